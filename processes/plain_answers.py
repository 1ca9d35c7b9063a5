"""Write values as JSON and read them back without running anything that the text says.

For what comes from a process that read strangers' files: whoever took it over writes what they
like, and a pickle may call any function. Here only plain values come out, and our own records,
models, enumerations and errors. Records and our errors are made without their constructors.
"""

import builtins
import dataclasses
import importlib
import json
import sys
from collections.abc import Mapping
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any, cast

from processes.reading_rights import OURS

_PLAIN = (type(None), bool, int, float, str)
_QUIET = frozenset(("archives", "modis", "reprojection"))
_GATHERED: Mapping[str, type] = {one.__name__: one for one in (list, tuple, set, frozenset)}


class BadAnswerError(Exception):
    """What was said is no value that this module writes."""


def dump(value: object) -> bytes:
    """Write a value; raise TypeError for one of a kind that is not known."""
    return json.dumps(_plain(value)).encode("ascii")


def load(data: bytes) -> object:
    """Read a value that `dump` wrote; raise BadAnswerError for what it would not write."""
    try:
        return _value(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise BadAnswerError(f"{type(error).__name__}: {error}") from None
    except (ImportError, RecursionError, OverflowError) as error:
        raise BadAnswerError(type(error).__name__) from None


def _plain(value: object) -> object:
    """Make lists that begin with the name of a kind of all that JSON does not hold."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind.__name__ in _GATHERED and kind.__module__ == "builtins":
        return [kind.__name__, [_plain(one) for one in cast("list[object]", value)]]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["named", *_name(kind), [_plain(one) for one in value]]
    if isinstance(value, Mapping):
        return ["dict", [[_plain(key), _plain(one)] for key, one in value.items()]]
    if isinstance(value, Enum):
        return ["enum", *_name(kind), _plain(value.value)]
    if isinstance(value, Path):
        return ["path", str(value)]
    if isinstance(value, Exception):
        return _plain_error(value)
    return _plain_record(value) if _is_whole(value) else _plain_scalar(value)


def _is_whole(value: object) -> bool:
    return dataclasses.is_dataclass(value) or hasattr(value, "model_dump")


def _plain_scalar(value: Any) -> object:
    """Make a text, a number, or a list of what has one value; raise TypeError for all else."""
    kind = type(value)
    if isinstance(value, str):
        ours = _is_known(*_name(kind))
        return ["text", *_name(kind), str(value)] if ours else str(value)
    if isinstance(value, int | float):  # of numpy
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.decode("latin-1")]
    if isinstance(value, datetime):
        return ["datetime", value.isoformat()]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    if hasattr(value, "item"):  # of numpy, too
        return _plain(value.item())
    raise TypeError(f"{kind.__name__} is not written")


def _plain_record(value: Any) -> object:
    """Make a list of a record or of a model."""
    if dataclasses.is_dataclass(value):
        fields = {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return ["record", *_name(type(value)), fields]
    return ["model", *_name(type(value)), value.model_dump(mode="json")]


def _plain_error(error: Exception) -> object:
    """Make a list of an error, or of the next kind of it that is ours or Python's own."""
    known = (one for one in type(error).__mro__ if _is_known(*_name(one)))
    args: list[object] = []
    file = (error.filename,) if isinstance(error, OSError) and error.filename is not None else ()
    for one in (*error.args, *file):
        try:
            args.append(_plain(one))
        except TypeError:
            args.append(str(one))
    told = {}
    for name, one in vars(error).items():
        try:
            told[name] = _plain(one)
        except TypeError:
            continue
    return ["error", *_name(next(known)), args, told]


def _name(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__name__


def _is_known(module: str, name: str) -> bool:
    return module.partition(".")[0] in OURS or (module == "builtins" and hasattr(builtins, name))


def _value(plain: Any) -> Any:
    if not isinstance(plain, list):
        return plain
    kind, *rest = plain
    if kind in _GATHERED:
        return _GATHERED[kind](_value(one) for one in rest[0])
    match kind:
        case "dict":
            return {_value(key): _value(one) for key, one in rest[0]}
        case "bytes":
            return rest[0].encode("latin-1")
        case "datetime":
            return datetime.fromisoformat(rest[0])
        case "date":
            return date.fromisoformat(rest[0])
        case "path":
            return Path(rest[0])
    return _made(kind, _class(rest[0], rest[1]), rest[2:])


def _class(module: str, name: str) -> type:
    """Find one of our classes, or what Python has.

    Only modules that do nothing when they are imported are imported for it.
    """
    if module == "builtins":
        return cast("type", getattr(builtins, name))
    package = module.partition(".")[0]
    if package in OURS:
        where = importlib.import_module(module) if package in _QUIET else sys.modules.get(module)
        found = vars(where).get(name)
        if isinstance(found, type) and found.__module__ == module:
            return found
    raise BadAnswerError(f"{module}.{name} is not taken")


def _made(kind: str, of: Any, rest: list[Any]) -> object:
    if kind == "enum" and issubclass(of, Enum):
        return of(_value(rest[0]))
    if kind == "named" and hasattr(of, "_make"):
        return of._make(_value(one) for one in rest[0])
    if kind == "text" and issubclass(of, str):
        return of(rest[0])
    if kind == "model" and hasattr(of, "model_validate"):
        return of.model_validate(rest[0])
    if kind == "record" and hasattr(of, "__dataclass_fields__"):
        if rest[0].keys() != {one.name for one in dataclasses.fields(of)}:
            raise BadAnswerError(f"{of.__name__} has other fields")
        made: object = object.__new__(of)
        for name, one in rest[0].items():
            object.__setattr__(made, name, _value(one))
        return made
    if kind == "error" and issubclass(of, Exception):
        args = [_value(one) for one in rest[0]]
        error = of(*args) if of.__module__ == "builtins" else Exception.__new__(of, *args)
        vars(error).update({name: _value(one) for name, one in rest[1].items()})
        return error
    raise BadAnswerError(f"{kind!r} of {of.__name__} is not taken")
