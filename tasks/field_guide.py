"""What is known of a document's fields, read from the model that they are checked by.

A field of a pydantic model says in its metadata what it takes and what pages call it:
`Annotated[str, FieldWords(what="a title", remedy="Write one line.", label="Title")]`. So do the
entries of lists and mappings. A path is dotted, as errors have it: `products.0.name`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict

from tasks.refusal_wording import FieldWords

YES_NO = FieldWords(what="true or false", remedy="Write true or false.")
"""What a switch takes."""


class PartOfDocument(BaseModel):
    """A part of a document: it takes no field that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


@dataclass(frozen=True)
class _Node:
    """A place in a document: its type, and the metadata of the field or entry that it is."""

    type: Any
    metadata: tuple[object, ...] = ()

    @property
    def words(self) -> FieldWords | None:
        return next((one for one in self.metadata if isinstance(one, FieldWords)), None)


@dataclass(frozen=True)
class ModelGuide:
    """As `refusal_wording.Guide`, of the documents of a model.

    A list of one may be written without the list, so that `reduction.package` is found as
    `reduction.0.package` is. `also` has the fields that a model takes besides its own.
    """

    model: type[BaseModel]
    words: FieldWords  # of the document as a whole
    also: Mapping[type[BaseModel], Sequence[str]] = field(default_factory=dict)

    def wanted(self, path: str) -> FieldWords | None:
        """Return what the field takes; None when no more than its type is known."""
        found = [node.words for node in self._at(path) if node.words and node.words.what]
        return found[0] if found else None

    def label(self, path: str) -> str:
        """Return what pages call a field, or the nearest part that it is in: else its path."""
        if path == "document":
            return self.words.label
        parts = path.split(".")
        while parts:
            found = [node.words for node in self._at(".".join(parts)) if node.words]
            if found and found[0].label:
                return found[0].label
            parts.pop()
        return path

    def names(self, path: str) -> Sequence[str]:
        """List the fields of the part at this path; empty when they are not known."""
        for node in self._at(path):
            for model in _models(node.type):
                return self._own(model)
        return ()

    def home(self, name: str) -> str:
        """Return where else in the document a field of this name belongs; empty: nowhere."""
        within = (part for part in self.parts() if part[0])
        return next((path for path, model in within if name in self._own(model)), "")

    def _own(self, model: type[BaseModel]) -> Sequence[str]:
        return (*_fields(model), *self.also.get(model, ()))

    def parts(self) -> Iterator[tuple[str, type[BaseModel]]]:
        """Yield the document's model and those within, each with the path of its field."""
        below = [("", self.model)]
        while below:
            path, model = below.pop(0)
            yield path, model
            for name, node in _fields(model).items():
                at = f"{path}.{name}".lstrip(".")
                below += [(at, inner) for inner in _models(node.type)]

    def _at(self, path: str) -> list[_Node]:
        """List what a path may be, the likeliest first; empty if there is no such place."""
        nodes = [_Node(self.model, (self.words,))]
        for part in path.split(".") if path else ():
            nodes = [below for node in nodes for below in _below(node.type, part)]
        return nodes


def _fields(model: type[BaseModel]) -> dict[str, _Node]:
    return {
        one.alias or name: _Node(one.annotation, tuple(one.metadata))
        for name, one in model.model_fields.items()
    }


def _branches(kind: Any) -> Iterator[Any]:
    """Yield the types that a type may stand for, without their metadata."""
    if get_origin(kind) is Annotated:
        yield from _branches(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _branches(one)
    else:
        yield kind


def _below(kind: Any, part: str) -> Iterator[_Node]:
    """Yield what a part of a path may be below a type."""
    for one in _branches(kind):
        origin, within = get_origin(one), get_args(one)
        if isinstance(one, type) and issubclass(one, BaseModel):
            node = _fields(one).get(part)
            if node is not None:
                yield node
        elif origin is tuple and part.isdigit():
            number = 0 if within[-1] is Ellipsis else int(part)
            if number < len(within):
                yield _node(within[number])
        elif origin is tuple:
            yield from _below(within[0], part)
        elif origin is dict:
            yield _node(within[1])


def _node(kind: Any) -> _Node:
    if get_origin(kind) is not Annotated:
        return _Node(kind)
    bare, *metadata = get_args(kind)
    return _Node(bare, tuple(metadata))


def _models(kind: Any) -> Iterable[type[BaseModel]]:
    """Yield the models that a type holds, itself or as the entries of a list or mapping."""
    for one in _branches(kind):
        if isinstance(one, type) and issubclass(one, BaseModel):
            yield one
        elif get_origin(one) in (tuple, dict):
            yield from _models(get_args(one)[0 if get_origin(one) is tuple else 1])
