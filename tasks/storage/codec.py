"""The codec of rows: the fields of a dataclass as the properties of a row, and back.

A field's type says how it is stored; what is stored in another way has a `Form`. pydantic reads
and writes what is stored as JSON. The rest goes without it: pydantic takes twice as long to write a
row, and the manager writes thousands of rows in a second.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter

from tasks.storage.schema import BRIEF_ROWS, current, outgoing, written
from tasks.storage.store import Entity, Row, Value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a field is stored. None: as it is.

    `sparse`: rows of schema 6 lack it, too, while it has its default.
    """

    write: Callable[[Any], Value] | None = None
    read: Callable[[Any], object] | None = None
    sparse: bool = False


BITS = Form(write=lambda bits: f"{bits:x}", read=lambda text: int(text, 16))
WORDS = Form(write=" ".join, read=lambda text: tuple(text.split()))
WORDS_IN_BYTES = Form(
    write=lambda words: " ".join(words).encode(), read=lambda data: tuple(data.decode().split())
)


def cut(most: int, *, sparse: bool = False) -> Form:
    """Return the form of a text of which the first characters are kept."""
    return Form(write=lambda text: text[:most], sparse=sparse)


def up_to_a_word(text: str, most: int) -> str:
    """Return a text of at most so many characters, cut after a word with an ellipsis."""
    if len(text) <= most:
        return text
    start = text[: most - 1]
    return f"{start[: start.rfind(' ')] if ' ' in start else start}…"


def in_json(
    kind: Any,
    shortened: Callable[[Any], object] = lambda value: value,
    *,
    sparse: bool = False,
) -> Form:
    """Return the form of a value of type `kind` that is stored as JSON text, `shortened`."""
    adapter: TypeAdapter[object] = TypeAdapter(kind)

    def write(value: object) -> str:
        return json.dumps(adapter.dump_python(shortened(value), mode="json", warnings=False))

    return Form(write=write, read=adapter.validate_json, sparse=sparse)


class Codec(Generic[T]):
    """Rows of one kind, `kind` in `schema.UPGRADES`.

    A field that has its default is not stored, and a property that a row lacks has the field's
    default: no default of a class may change. A property without a field is left out. The field
    `etag` is the row's own. `apart` says how other fields that are no properties are read off a
    row, `named` the same of those that are properties in rows of schema 6. The class may have no
    cached properties: they would be stored. It has no `__post_init__`: what is read does not go
    through the constructor.
    """

    def __init__(
        self,
        cls: type[T],
        kind: str,
        forms: Mapping[str, Form] | None = None,
        apart: Mapping[str, Callable[[Row], object]] | None = None,
        named: Mapping[str, Callable[[Row], object]] | None = None,
    ) -> None:
        if hasattr(cls, "__post_init__"):
            raise TypeError(f"{cls.__name__} has a __post_init__, which `load` would pass over")
        self.of = cls
        self.kind = kind
        own = {each.name: each for each in fields(cls)}
        found = {"etag": lambda row: row.etag, **(apart or {})}
        self._apart = {name: read for name, read in found.items() if name in own}
        self._named = {**self._apart, **(named or {})}
        hints = get_type_hints(cls)
        stored = {
            name: (forms or {}).get(name) or _form(hints[name]) for name in own if name not in found
        }
        self._writes = [(name, form.write) for name, form in stored.items() if form.write]
        self._reads = [
            (name, form.read)
            for name, form in stored.items()
            if form.read and name not in self._named
        ]
        self._names = tuple(own)
        self._absent = {
            name: form.write(value) if form.write else value
            for name, form in stored.items()
            for value in [_default(own[name])]
            if value is not MISSING
        }
        self._sparse = [(name, _default(own[name])) for name in stored if stored[name].sparse]
        self._brief = [
            (name, _default(own[name]), form.write)
            for name, form in stored.items()
            if name not in self._named
        ]

    def dump(self, value: T) -> Entity:
        """Return the properties of a value's row."""
        if written() < BRIEF_ROWS:
            return self._dump_in_full(value)
        own, entity = vars(value), {}
        for name, default, write in self._brief:
            found = own[name]
            if found is not default and found != default:
                entity[name] = write(found) if write else found
        return outgoing(self.kind, entity)

    def _dump_in_full(self, value: T) -> Entity:
        """Return the properties as schema 6 has them."""
        entity: Entity = {**vars(value)}
        for name in self._apart:
            del entity[name]
        for name, default in self._sparse:
            if entity[name] == default:
                del entity[name]
        for name, write in self._writes:
            if name in entity:
                entity[name] = write(entity[name])
        return outgoing(self.kind, entity)

    def load(self, row: Row) -> T:
        """Return the value of a row.

        Raises:
            OtherSchemaError: the row's schema is none that this build reads.
            KeyError: the row lacks a property whose field has no default, or names no member of
                an enumeration.
        """
        values: dict[str, Any] = {**self._absent, **current(self.kind, row)}
        for name, read in self._reads:
            values[name] = read(values[name])
        for name, read_off in self._named.items():
            values[name] = read_off(row)
        # As its constructor does, which takes several times as long where the class is frozen.
        value = object.__new__(self.of)
        vars(value).update({name: values[name] for name in self._names})
        return value


def _form(hint: Any) -> Form:
    """Return the form of a field by its type; of an optional enumeration, None is an empty text."""
    if hint in (str, int, bool):
        return Form()
    if hint is float:
        return Form(read=float)
    if hint is dt.date:
        return Form(write=dt.date.isoformat, read=dt.date.fromisoformat)
    options = get_args(hint) or (hint,)
    values: dict[Any, str] = {member: member.value for member in options[0]}
    if options == (options[0], type(None)):
        values[None] = ""
    members = {value: member for member, value in values.items()}
    return Form(write=values.__getitem__, read=members.__getitem__)


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
