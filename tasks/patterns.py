"""Tasks as text: the keys and specifications of a plan of a million without their objects.

Specifications that are alike but for a few fields have a pattern. Filled in, it is the text of an
identity, whose digest is the key, and the JSON that `load_spec` reads.
"""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tasks.keys import canonical, key_of
from tasks.spec import GridSpec, Spec

quoted = json.encoder.encode_basestring_ascii
"""A text as canonical JSON."""


class Pattern:
    """What specifications have in common with this one: all but the fields in `varying`."""

    def __init__(self, spec: Spec, *varying: str) -> None:
        self._identity = _template(json.loads(spec.identity), varying)
        self._text = _template(json.loads(spec.model_dump_json()), varying)

    def key(self, values: Mapping[str, str]) -> str:
        """The key of the task with these values of the varying fields, as they are in identities;
        more do no harm."""
        return key_of(self._identity % values)

    def text(self, values: Mapping[str, str]) -> str:
        """The specification with these values, as JSON."""
        return self._text % values


class Given(NamedTuple):
    """A task as an input of others: what is part of their identity, and its JSON."""

    identity: str
    text: str

    @classmethod
    def of(cls, key: str, name: str, file: str = "") -> "Given":
        """An input as `tasks.spec.Input` has it."""
        chosen = quoted(file)
        return cls(
            f'["{key}",{chosen}]', f'{{"key":"{key}","name":{quoted(name)},"file":{chosen}}}'
        )


def together(inputs: Iterable[Given]) -> Given:
    """Several inputs, as values of the field `inputs`."""
    found = [*inputs]
    return Given(
        "[" + ",".join([given.identity for given in found]) + "]",
        "[" + ",".join([given.text for given in found]) + "]",
    )


def grid_texts(grid: GridSpec) -> Given:
    """A grid, as values of the field `grid`."""
    return Given(grid.text, grid.model_dump_json())


def _template(fields: Mapping[str, object], varying: Iterable[str]) -> str:
    parts = []
    for name, value in fields.items():
        text = canonical(value).decode("ascii").replace("%", "%%")
        parts.append(f'"{name}":' + (f"%({name})s" if name in varying else text))
    return "{" + ",".join(parts) + "}"
