"""Read the attributes by which a layer says what its stored numbers are, in every form met.

One table of names and forms serves HDF-EOS, HDF5, netCDF and GDAL. Names are compared without case,
blanks and underscores. Numbers may stand as text, several fill values as an array, a range as two
numbers, as text in many spellings, or as one end. What cannot be understood is said in `notes`:
nothing is passed over.

Sources: HDF-EOS Library User's Guide, "Attributes"; netCDF User's Guide, Appendix A, "Attribute
Conventions"; CF conventions 1.11, 2.5.1 and 8.1; VIIRS Black Marble User Guide, "Scale and offset".
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reprojection.formats.container import AttributeValue

Number = int | float

NAMES: Mapping[str, tuple[str, ...]] = {
    "fill": ("_FillValue", "FillValue", "fill_value", "fillvalue"),
    "missing": ("missing_value",),
    "range": ("valid_range",),
    "low": ("valid_min",),
    "high": ("valid_max",),
    "factor": ("scale_factor", "scale", "slope"),
    "shift": ("add_offset", "offset", "intercept"),
    "unsigned": ("_Unsigned",),
}
"""The names of each attribute; of several that a file has, the first counts."""

_UNSIGNED = re.compile(r"[\s_]+")
_NUMBER = r"[-+]?(?:\d+\.\d+|\d+\.(?!\.)|\d+|\.\d+)(?:[eE][-+]?\d+)?"
_ONE = re.compile(rf"\s*({_NUMBER})[bBsSlLfFdDuU]?\s*")  # CDL writes -1b, 10s, 0.1f
_BY_WORD = re.compile(rf"({_NUMBER})\s*(?:,|;|:|to|\.\.\.?|\u2013|\u2014|\s)\s*({_NUMBER})")
_BY_HYPHEN = re.compile(rf"({_NUMBER})\s*-\s*({_NUMBER})")
_AROUND = re.compile(r"^\s*[\[({]?\s*(.*?)\s*[\])}]?\s*(?:%|percent)?\s*$", re.DOTALL)
_ABSENT = ("", "n/a", "na", "none")


@dataclass(frozen=True, kw_only=True)
class NumberForm:
    """What the attributes of a layer say of its stored numbers.

    `dtype` is that of the values as they are meant: unsigned where the file says so. `fills` are
    all values that were never data, the first one first, `missing` those that are missing for a
    reason, which a catalogue may name. `notes` say what was not understood.
    """

    dtype: np.dtype[np.generic]
    fills: tuple[Number, ...] = ()
    missing: tuple[Number, ...] = ()
    valid_range: tuple[Number, Number] | None = None
    notes: tuple[str, ...] = ()


def find(attributes: Mapping[str, AttributeValue], what: str) -> tuple[str, AttributeValue] | None:
    """Return the name and value of the first attribute in the table that a file has."""
    names = NAMES[what]
    for name in names:  # as a rule it is written so
        if name in attributes:
            return name, attributes[name]
    plain = {_plain(name): name for name in attributes}
    for name in names:
        if _plain(name) in plain:
            there = plain[_plain(name)]
            return there, attributes[there]
    return None


def parse_number(value: AttributeValue | None) -> Number | None:
    """Return an attribute's number, also one written as text; None if it is not one number."""
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        found = _ONE.fullmatch(value)
        return _number(found[1]) if found else None
    return value if isinstance(value, int | float) else None


def parse_range(text: str) -> tuple[Number, Number] | None:
    """Return the two ends of a range that is written as text, in any spelling met.

    Such as "0-100", "-10 - 100", "[0, 100]", "0 to 100", "0..100", "0.0-1.0e2". A hyphen is the
    sign of the second number only where that gives ends in order. None if it is not a range.
    """
    around = _AROUND.match(text)
    inner = around[1] if around else text
    for form in (_BY_WORD, _BY_HYPHEN):
        if found := form.fullmatch(inner):
            low, high = _number(found[1]), _number(found[2])
            if low <= high:
                return low, high
    return None


def read_form(attributes: Mapping[str, AttributeValue], dtype: np.dtype[np.generic]) -> NumberForm:
    """Read which stored numbers are data.

    The range is one of stored values. One of another type than the values that are packed is
    converted by who knows the scale (`unpacked_range`).
    """
    notes: list[str] = []
    fills = list(_numbers(attributes, "fill", notes))
    missing = list(_numbers(attributes, "missing", notes))
    ends, as_numbers = _range(attributes, dtype, notes)
    signed_for_unsigned = as_numbers and ends is not None and ends[1] < 0 <= ends[0]
    wanted = _other_sign(attributes, dtype) if dtype.kind in "iu" else None
    if wanted is None and signed_for_unsigned and dtype.kind == "i":
        wanted = np.dtype(f"u{dtype.itemsize}")  # MOD04's QA bytes: int8 with the range [0, -1]
    if wanted is not None:
        fills, missing = ([as_type(one, wanted) for one in some] for some in (fills, missing))
        ends = None if ends is None else (as_type(ends[0], wanted), as_type(ends[1], wanted))
    if ends is not None and ends[1] < ends[0]:
        notes.append(f"its valid range ends below its start ({ends[0]} to {ends[1]}): not used")
        ends = None
    return NumberForm(
        dtype=wanted or dtype,
        fills=tuple(dict.fromkeys(fills)),
        missing=tuple(dict.fromkeys(one for one in missing if one not in fills)),
        valid_range=ends,
        notes=tuple(notes),
    )


def unpacked_range(
    ends: tuple[Number, Number] | None, dtype: np.dtype[np.generic], scale: float, offset: float
) -> tuple[Number, Number] | None:
    """Return a range of stored values; one in decimals of scaled whole numbers is of physical ones.

    Source: netCDF User's Guide, Appendix A, `valid_range`: of another type than the packed data.
    """
    if ends is None or dtype.kind not in "iu" or (scale, offset) == (1.0, 0.0):
        return ends
    if not any(isinstance(one, float) for one in ends):
        return ends
    low, high = sorted((one - offset) / scale for one in ends)
    return math.ceil(low - 1e-6), math.floor(high + 1e-6)


def as_type(value: Number, dtype: np.dtype[np.generic]) -> Number:
    """Convert a whole number to the one with the same bits in another type of this size."""
    if not math.isfinite(value) or value != int(value):
        return value
    bits = 8 * dtype.itemsize
    found = int(value) % (1 << bits)
    return found - (1 << bits) if dtype.kind == "i" and found >> (bits - 1) else found


def _plain(name: str) -> str:
    return _UNSIGNED.sub("", name).lower()


def _number(text: str) -> Number:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def _numbers(
    attributes: Mapping[str, AttributeValue], what: str, notes: list[str]
) -> tuple[Number, ...]:
    """Read one or several numbers."""
    if (found := find(attributes, what)) is None:
        return ()
    name, value = found
    if isinstance(value, str):
        parts = [part for part in re.split(r"[,;\s]+", value.strip("[](){} \0")) if part]
        numbers = [parse_number(part) for part in parts]
        known = [one for one in numbers if one is not None]
        if value.strip().lower() not in _ABSENT and len(known) < len(parts):
            notes.append(f"its {name} is {value!r}, which is no number: not used")
            return ()
        return tuple(known)
    return value if isinstance(value, tuple) else (value,)


def _range(
    attributes: Mapping[str, AttributeValue], dtype: np.dtype[np.generic], notes: list[str]
) -> tuple[tuple[Number, Number] | None, bool]:
    """Read the valid range; tell too whether it stands as numbers, not as text."""
    if (found := find(attributes, "range")) is not None:
        name, value = found
        if isinstance(value, str):
            ends = parse_range(value)
            if ends is None and value.strip().lower() not in _ABSENT:
                notes.append(f"its {name} is {value!r}, which is no range: not used")
            return ends, False
        if isinstance(value, tuple) and len(value) == 2 and all(map(math.isfinite, value)):
            return (value[0], value[1]), True
        notes.append(f"its {name} is {value!r}, which is not two numbers: not used")
        return None, True
    ends_found: list[Number | None] = []
    for what in ("low", "high"):
        there = find(attributes, what)
        number = parse_number(there[1]) if there is not None else None
        if there is not None and (number is None or not math.isfinite(number)):
            notes.append(f"its {there[0]} is {there[1]!r}, which is no number: not used")
            number = None
        ends_found.append(number)
    low, high = ends_found
    if low is None and high is None:
        return None, True
    least, most = _span(dtype)
    return (least if low is None else low, most if high is None else high), True


def _span(dtype: np.dtype[np.generic]) -> tuple[Number, Number]:
    if dtype.kind == "f":
        return -math.inf, math.inf
    info = np.iinfo(dtype.name)
    return int(info.min), int(info.max)


def _other_sign(
    attributes: Mapping[str, AttributeValue], dtype: np.dtype[np.generic]
) -> np.dtype[np.generic] | None:
    """Return the type that `_Unsigned` gives to whole numbers, if it is another one."""
    found = find(attributes, "unsigned")
    said = str(found[1]).strip().lower() if found is not None else ""
    if said == "true" and dtype.kind == "i":
        return np.dtype(f"u{dtype.itemsize}")
    if said == "false" and dtype.kind == "u":
        return np.dtype(f"i{dtype.itemsize}")
    return None
