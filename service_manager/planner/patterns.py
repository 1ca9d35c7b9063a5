"""Tasks as text: the keys and specifications of a plan of a million without their objects.

Specifications that are alike but for a few fields have a pattern. Filled in, it is the text of an
identity, whose digest is the key, and the JSON that `load_spec` reads.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tasks.bag.kinds import Spec
from tasks.bag.spec import GridSpec
from tasks.bag.task_keys import key_of
from tasks.canonical import canonical

quoted = json.encoder.encode_basestring_ascii
"""A text as canonical JSON."""


class Pattern:
    """Hold what specifications have in common with this one.

    That is all but the fields in `varying`. The methods `key` and `text` take the values of those
    fields, as JSON, in that order.
    """

    def __init__(self, spec: Spec, *varying: str) -> None:
        self._identity, self._of_identity = _form(json.loads(spec.identity), varying)
        self._text, self._of_text = _form(json.loads(spec.model_dump_json()), varying)

    def key(self, *values: str) -> str:
        """Return the key of the task with these values as they are in identities.

        Values that determine no artifact have no effect.
        """
        parts = self._identity.copy()
        parts[1::2] = [values[i] for i in self._of_identity]
        return key_of("".join(parts))

    def text(self, *values: str) -> str:
        """Return the specification with these values, as JSON."""
        parts = self._text.copy()
        parts[1::2] = [values[i] for i in self._of_text]
        return "".join(parts)


class Given(NamedTuple):
    """A task as an input of others: what is part of their identity, and its JSON."""

    identity: str
    text: str

    @classmethod
    def of(cls, key: str, name: str, file: str = "") -> "Given":
        """Return an input in the form of `tasks.bag.spec.Input`."""
        chosen = quoted(file)
        return cls(
            f'["{key}",{chosen}]', f'{{"key":"{key}","name":{quoted(name)},"file":{chosen}}}'
        )


def together(inputs: Iterable[Given]) -> Given:
    """Join some inputs, at least one, as values of the field `inputs`."""
    identities, texts = zip(*inputs, strict=True)
    return Given(f"[{','.join(identities)}]", f"[{','.join(texts)}]")


def grid_texts(grid: GridSpec) -> Given:
    """Return a grid as values of the field `grid`."""
    return Given(grid.text, grid.model_dump_json())


def _form(fields: Mapping[str, object], varying: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return a JSON object with places to fill in, and which value each place takes.

    Every second text is a place.
    """
    parts, order, before = list[str](), list[int](), "{"
    for name, value in fields.items():
        before += f'"{name}":'
        if name in varying:
            parts += [before, ""]
            order.append(varying.index(name))
            before = ","
        else:
            before += canonical(value).decode("ascii") + ","
    return [*parts, before.removesuffix(",") + "}"], order
