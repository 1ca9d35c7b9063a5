"""What a scientist reads when a document does not have the form it should have.

pydantic says what is wrong in a programmer's words ("Tuple should have at least 1 item after
validation"). Here each of its errors becomes a plain sentence: what is wrong, with which value, and
what to do.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tasks.errors import RequestRefusedError

Path = tuple[str | int, ...]

_SHORT = 3  # letters of a name from which on it may be misspelt
_LONGEST = 60  # characters of a value that are shown
_OWN = "Value error, "
_NUMBER = re.compile(r"[-+]?\d{1,20}(\.\d{1,20})?")
_CURLY = re.compile("[\u2018\u2019\u201a-\u201f\u00ab\u00bb]")
_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_COUNTED = ("too_long", "too_short", "string_too_long", "string_too_short", "bytes_too_long")


@dataclass(frozen=True, kw_only=True)
class FieldWords:
    """What a field takes, as in "VALUE is not WHAT", how to write it, and what pages call it.

    `what` is empty where its choices say enough.
    """

    what: str = ""
    remedy: str = ""
    label: str = ""


class Guide(Protocol):
    """What is known of a document's fields. A path is dotted: `products.0.name`."""

    def wanted(self, path: str) -> FieldWords | None:
        """Return what the field takes; None when no more than its type is known."""
        ...

    def names(self, path: str) -> Sequence[str]:
        """List the fields of the part at this path; empty when they are not known."""
        ...

    def home(self, name: str) -> str:
        """Return where else in the document a field of this name belongs; empty: nowhere."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """One error of pydantic's, at its place in the document."""

    path: Path
    tags: tuple[str, ...]  # of the branches of a union that were tried
    kind: str
    value: object
    context: Mapping[str, object]
    text: str  # what one of our own validators said; else empty

    @property
    def field(self) -> str:
        return _dotted(self.path) or "document"


def refusal(error: ValidationError, document: object, guide: Guide) -> RequestRefusedError:
    """All errors of a document as one refusal: misspelt names first, then by place."""
    first, *others = faults(error, document, guide)
    return RequestRefusedError(first.field, first.problem, first.remedy, tuple(others))


def faults(error: ValidationError, document: object, guide: Guide) -> list[RequestRefusedError]:
    """Each error of a document in plain words."""
    found = [_fault(item, document) for item in error.errors(include_url=False)]
    found = [fault for fault in found if not _of_another_branch(fault, found, document)]
    found = [fault for fault in found if not _for_its_parts(fault, found)]
    meant = {fault.path: _meant(fault, guide) for fault in found if fault.kind in _EXTRA}
    replaced = {(*path[:-1], name) for path, name in meant.items() if name}
    refusals: dict[str, RequestRefusedError] = {}
    for fault in sorted(map(partial(_with_choices, found), found), key=_by_spelling):
        if fault.kind == "missing" and fault.path in replaced:
            continue  # it is there, misspelt
        problem, remedy = _words(fault, guide)
        refusals.setdefault(fault.field, RequestRefusedError(fault.field, problem, remedy))
    return [*refusals.values()]


def _by_spelling(fault: _Fault) -> bool:
    return fault.kind not in _EXTRA


def _with_choices(found: Sequence[_Fault], fault: _Fault) -> _Fault:
    """Give a value that is no choice of a union the choices of all its branches."""
    if fault.kind != "literal_error":
        return fault
    every = [
        str(one.context.get("expected", ""))
        for one in found
        if one.kind == fault.kind and one.path == fault.path
    ]
    return replace(fault, context={**fault.context, "expected": ", ".join(dict.fromkeys(every))})


def sentence(details: ErrorDetails) -> str:
    """One error as a sentence, where nothing is known of the field but its type."""
    fault = _fault(details, None)
    problem, remedy = _words(fault, NoGuide())
    return f"{problem} {remedy}"


def nearest(name: str, known: Iterable[str], count: int = 1, least: float = 0.6) -> list[str]:
    """List the known names most like a misspelt one, in any case.

    A name of one or two letters is like none, unless it is written otherwise. Names that begin
    as the misspelt one, or it as they, come first. `least` is the ratio of likeness from which on
    a name is like another (`difflib`).
    """
    by_lower = {each.lower(): each for each in known}
    word = name.lower()
    if len(word) < _SHORT:
        return [by_lower[word]] if word in by_lower else []
    begin = [one for one in by_lower if len(one) >= _SHORT and word.startswith(f"{one}_")]
    like = difflib.get_close_matches(word, by_lower, count, least)
    return [by_lower[one] for one in dict.fromkeys((*begin, *like))][:count]


def nearest_names(name: str, known: Iterable[str]) -> str:
    """Suggest names for a misspelt one: those like it, or all when there are few."""
    names = sorted(known)
    like = nearest(name, names, 3)
    if like:
        return f"Did you mean {listed(like)}?"
    shown = ", ".join(names[:30])
    return f"There are: {shown}{', ...' if len(names) > 30 else ''}."


def listed(names: Sequence[str], last: str = "or") -> str:
    """Names as people write them: "a, b or c"."""
    *most, end = names
    return f"{', '.join(most)} {last} {end}" if most else end


def shown(value: object) -> str:
    """Write a value for a sentence: text in quotes, cut where it is long; lists only as such."""
    if value is None:
        return "nothing"
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = " ".join(value.split())
        return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
    if isinstance(value, Mapping):
        return "a mapping of names to values"
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return "a list" if len(value) else "an empty list"
    return str(value)[:_LONGEST]


_EXTRA = ("extra_forbidden", "invalid_key")

_BY_TYPE: Sequence[tuple[tuple[str, ...], FieldWords]] = (
    (
        ("int", "whole"),
        FieldWords(what="a whole number", remedy="Write a whole number, like 5."),
    ),
    (
        ("float", "finite", "decimal", "complex", "greater", "less", "multiple"),
        FieldWords(what="a number that fits here", remedy="Write a number, like 0.5."),
    ),
    (("bool",), FieldWords(what="true or false", remedy="Write true or false.")),
    (
        ("date", "time", "timezone"),
        FieldWords(what="a day", remedy="Write year, month and day, like 2012-01-31."),
    ),
    (
        ("string", "bytes", "enum", "literal", "url", "uuid"),
        FieldWords(what="a text that fits here", remedy="Write a text without special characters."),
    ),
    (
        ("list", "tuple", "set", "frozen", "iter", "generator"),
        FieldWords(what="a list", remedy="Write a list: [first, second]."),
    ),
    (
        ("dict", "mapping", "model", "dataclass", "arguments", "get_attribute"),
        FieldWords(
            what="a mapping of names to values",
            remedy="Write names with values: {name: value}.",
        ),
    ),
)
_ANYTHING = FieldWords(
    what="a value that fits here", remedy="Look the field up in the documentation."
)


class NoGuide:
    """As `Guide`, where nothing is known but types."""

    def wanted(self, path: str) -> FieldWords | None:
        del path
        return None

    def names(self, path: str) -> Sequence[str]:
        del path
        return ()

    def home(self, name: str) -> str:
        del name
        return ""


def _fault(details: ErrorDetails, document: object) -> _Fault:
    kind = details["type"]
    path, tags = _place(details["loc"], kind, document)
    text = details["msg"].removeprefix(_OWN) if kind == "value_error" else ""
    return _Fault(
        path=path,
        tags=tags,
        kind=kind,
        value=details.get("input"),
        context=details.get("ctx", {}),
        text=text,
    )


def _place(loc: Path, kind: str, document: object) -> tuple[Path, tuple[str, ...]]:
    """Find where an error is in the document.

    pydantic's location also names the branch of a union, which is no part of the document.
    """
    at: object = document
    path: list[str | int] = []
    tags: list[str] = []
    for number, part in enumerate(loc):
        last = number == len(loc) - 1
        if isinstance(at, Mapping) and part in at:
            path.append(part)
            at = at[part]
        elif isinstance(at, list | tuple) and isinstance(part, int):
            path.append(part)
            at = at[part] if part < len(at) else None
        elif part == 0 and isinstance(at, Mapping):
            continue  # a mapping in the place of a list of one
        elif document is None or (last and kind in ("missing", *_EXTRA)):
            path.append(part)
            at = None
        elif part != "[key]":
            tags.append(str(part))
    return tuple(path), tuple(tags)


def _of_another_branch(fault: _Fault, found: Sequence[_Fault], document: object) -> bool:
    """Return whether an error belongs to a branch of a union that the value was not meant for.

    A mapping is meant for the branch that takes mappings, anything else for one that takes a word.
    """
    if not fault.tags:
        return False
    at = document
    for part in fault.path:
        at = _item(at, part)
    mapping = fault.tags[0].startswith("dict")
    meant_mapping = isinstance(at, Mapping) or any(
        other.path[: len(fault.path)] == fault.path and len(other.path) > len(fault.path)
        for other in found
    )
    if len(fault.path) > 1 and mapping:
        return False  # inside a mapping already
    return mapping is not meant_mapping


def _for_its_parts(fault: _Fault, found: Sequence[_Fault]) -> bool:
    """Tell whether a list counts as too short only because what is in it is wrong."""
    depth = len(fault.path)
    return fault.kind == "too_short" and any(
        len(other.path) > depth and other.path[:depth] == fault.path for other in found
    )


def _item(at: object, part: str | int) -> object:
    if isinstance(at, Mapping):
        return at.get(part)
    if isinstance(at, list | tuple) and isinstance(part, int) and part < len(at):
        return at[part]
    return None


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _meant(fault: _Fault, guide: Guide) -> str:
    known = nearest(str(fault.path[-1]), guide.names(_dotted(fault.path[:-1])))
    return known[0] if known else ""


def _words(fault: _Fault, guide: Guide) -> tuple[str, str]:
    """Say what is wrong, and what to do; of typographic quotes, that they are no quotes."""
    problem, remedy = _told(fault, guide)
    written = fault.path[-1] if fault.kind in _EXTRA else fault.value
    if isinstance(written, str) and _CURLY.search(written):
        meant = _CURLY.sub("", written).strip()
        remedy = f'Write straight quotes (") or none, not those of a word processor: {meant}.'
    return problem, remedy


def _told(fault: _Fault, guide: Guide) -> tuple[str, str]:
    if fault.kind in _EXTRA:
        return _misspelt(fault, guide)
    if fault.kind == "json_invalid" or isinstance(fault.value, bytes):
        why = f": {fault.context['error']}" if "error" in fault.context else ""
        return f"the body is not JSON{why}.", "Send JSON, with Content-Type: application/json."
    wanted = guide.wanted(_dotted(fault.path))
    remedy = (wanted or _wanted_by_type(fault.kind)).remedy
    if fault.text:
        problem, _, own = fault.text.partition("; ")
        own = own if own.endswith("?") else f"{own}."
        return f"{problem}.", f"{own[0].upper()}{own[1:]}" if own != "." else remedy
    if fault.kind == "missing":
        return "is missing.", f"Add it. {remedy}" if wanted else "Add it."
    if fault.value is None or fault.value == "":
        either = "Fill it in, or leave the field out." if fault.path else "Fill it in."
        return "is empty.", f"{either} {remedy}"
    if fault.kind in ("literal_error", "enum"):
        return _no_choice(fault, wanted)
    if fault.kind in _COUNTED:
        return _counted(fault), remedy
    if isinstance(fault.value, str) and _COMMA.fullmatch(fault.value):
        remedy = f"Write a decimal point: {fault.value.strip().replace(',', '.')}. {remedy}"
    if wanted is None and fault.kind == "string_type" and isinstance(fault.value, int | float):
        remedy = f'Write it in quotes: "{shown(fault.value)}".'
    what = (wanted or _wanted_by_type(fault.kind)).what
    return f"{shown(fault.value)} is not {what}.", remedy


def _wanted_by_type(kind: str) -> FieldWords:
    for starts, wanted in _BY_TYPE:
        if kind.startswith(starts):
            return wanted
    return _ANYTHING


def _misspelt(fault: _Fault, guide: Guide) -> tuple[str, str]:
    name = str(fault.path[-1])
    problem = f"there is no field {name!r} here."
    known = guide.names(_dotted(fault.path[:-1]))
    like = nearest(name, known)
    if like:
        return problem, f"Did you mean {like[0]}?"
    home = guide.home(name)
    if home:
        return problem, f"It belongs under {home}."
    if known:
        return problem, f"The fields are: {', '.join(known)}."
    return problem, "Take it out, or check its spelling."


def _no_choice(fault: _Fault, wanted: FieldWords | None) -> tuple[str, str]:
    choices = str(fault.context.get("expected", "")).replace("'", "")
    names = [name.strip() for name in choices.replace(" or ", ",").split(",") if name.strip()]
    like = nearest(fault.value, names) if isinstance(fault.value, str) else []
    asked = f"Did you mean {like[0]}? " if like else ""
    if fault.tags and wanted is not None and all(name in wanted.remedy for name in names):
        return f"{shown(fault.value)} is not {wanted.what}.", f"{asked}{wanted.remedy}"
    return (
        f"{shown(fault.value)} is not a choice here.",
        f"{asked}Choose {listed(names) if names else 'another'}.",
    )


def _counted(fault: _Fault) -> str:
    """Name what has too many or too few entries or characters."""
    text = fault.kind.startswith(("string", "bytes"))
    count = fault.context.get("actual_length")
    if count is None:
        count = len(fault.value) if isinstance(fault.value, Sized) else 0
    unit = "character" if text else "entry"
    units = "characters" if text else "entries"
    most = fault.context.get("max_length")
    if most is not None:
        return f"has {count} {unit if count == 1 else units}; {most} are the most."
    if not count:
        return "is empty."
    least = fault.context.get("min_length")
    return f"has {count} {unit if count == 1 else units}; {least} are the least."
