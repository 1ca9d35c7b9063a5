"""The meaning of a granule's data sets, each by its own product's convention.

Scale and offset are normalised to GDAL's meaning, `value = stored * scale + offset`, because files
use the same two attributes with three different meanings.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from modis.axes import Shape
from reprojection.catalogue.attributes import find, parse_number
from reprojection.formats.container import AttributeValue

Number = int | float


class LayerKind(StrEnum):
    """How a layer's values may be combined."""

    CONTINUOUS = "continuous"
    CLASS = "class"
    BITFIELD = "bitfield"


class Scaling(StrEnum):
    """What a product means by scale_factor and add_offset."""

    ADD = "add"  # stored * scale_factor + add_offset (land products, GDAL, CF)
    SUBTRACT = "subtract"  # scale_factor * (stored - add_offset) (atmosphere L2, HDF4's own)
    DIVIDE = "divide"  # stored / scale_factor (MOD09GA, MOD13)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One science data set of a granule, or one band of it.

    `name` may end in an index, `Corrected_Optical_Depth_Land[1]`, counted from 0 along the axes of
    `bands`. `dtype` is what reading gives (unsigned where the file means it so), `shape` is (rows,
    columns). `grid` or `swath` names the structure the layer lies on; a layer with neither cannot
    be placed. `codes` are stored values that are not data, `classes` the meanings of those that
    are. `qa` names the layer that holds its quality. `convention` and `scale_problem` are those of
    `Scale`, `band_scales` scale and offset of each band where they differ. `first_row` is the first
    row that is read, if `shape` is of fewer than all. `more_fills` are further values that are no
    data. `range_stated` says that the file alone gives the valid range; `notes` say which of the
    file's attributes were not understood.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: Shape
    kind: LayerKind
    fill: Number | None
    valid_range: tuple[Number, Number] | None
    scale: float
    offset: float
    units: str
    convention: str = ""
    scale_problem: str = ""
    codes: Mapping[int, str] = field(default_factory=dict)
    classes: Mapping[int, str] = field(default_factory=dict)
    description: str = ""
    qa: str | None = None
    grid: str | None = None
    swath: str | None = None
    dims: tuple[str, str] = ("", "")
    bands: tuple[tuple[str, int], ...] = ()
    index: tuple[int, ...] = ()
    first_row: int = 0
    more_fills: tuple[Number, ...] = ()
    range_stated: bool = False
    notes: tuple[str, ...] = ()
    band_scales: tuple[tuple[float, float], ...] = ()

    @property
    def fills(self) -> tuple[Number, ...]:
        """All values that are no data."""
        return self.more_fills if self.fill is None else (self.fill, *self.more_fills)

    @property
    def base_name(self) -> str:
        """The name of the whole data set, without a band's index."""
        return split_index(self.name)[0] if self.index else self.name


def is_fill(stored: npt.NDArray[np.generic], layer: Layer) -> npt.NDArray[np.bool_]:
    """Tell where stored values are a fill value of the layer, or not a number."""
    found = np.isnan(stored) if stored.dtype.kind == "f" else np.zeros(stored.shape, np.bool_)
    for fill in layer.fills:
        found |= stored == (np.float32(fill) if stored.dtype == np.float32 else fill)
    return np.asarray(found)


_INDEX = re.compile(r"^(?P<base>.+)\[(?P<index>\d{1,4}(?:,\s*\d{1,4})*)\]$")


def split_index(name: str) -> tuple[str, tuple[int, ...]]:
    """Split off an index: `"Name[2]"` becomes `("Name", (2,))`, `"Name"` `("Name", ())`."""
    match = _INDEX.match(name)
    if match is None:
        return name, ()
    return match["base"], tuple(int(item) for item in match["index"].split(","))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How stored values become physical ones: `stored * scale + offset`.

    `convention` is the formula by which the file's attributes were read, and who states it; "" if
    values are not scaled. `bands` has scale and offset of each band where they differ. `problem`
    says why physical values are unknown; then nothing is scaled.
    """

    scale: float = 1.0
    offset: float = 0.0
    convention: str = ""
    problem: str = ""
    bands: tuple[tuple[float, float], ...] = ()


_ABSENT = ("", "n/a", "na", "none")
_FORMULAS = {
    Scaling.ADD: "stored * scale_factor + add_offset",
    Scaling.SUBTRACT: "scale_factor * (stored - add_offset)",
    Scaling.DIVIDE: "stored / scale_factor + add_offset",
}


def read_scale(
    attributes: Mapping[str, AttributeValue],
    name: str,
    units: str,
    *,
    catalogued: Scaling | None,
    file_has_atmosphere_note: bool,
    scaled_by: str | None = None,
    file_is_cf: bool = False,
) -> Scale:
    """Read scale and offset by the convention that the catalogue or the file states.

    Without a stated convention an offset could be added or subtracted, which would be a guess.
    """
    numbers: dict[str, Number | None] = {}
    for what in ("factor", "shift"):
        found = find(attributes, what)
        number = numbers[what] = parse_number(found[1]) if found is not None else None
        if found is None or (isinstance(found[1], str) and found[1].strip().lower() in _ABSENT):
            continue
        if number is None or not math.isfinite(number) or (what == "factor" and number == 0):
            return Scale(problem=f"its {found[0]} is {found[1]!r}, which is not a factor or offset")
    factor, shift = numbers["factor"], numbers["shift"]
    if scaled_by is not None:
        return _read_band_scales(attributes, scaled_by)
    others = [key for key in attributes if key.endswith("_scales")]
    if others and factor is None:
        return Scale(problem=f"it is scaled by {', '.join(others)}, which Swathmill does not apply")
    if catalogued is not None:
        # One product stores its scale or the inverse of it, depending on the collection; a
        # factor that divides is always large.
        small = catalogued is Scaling.DIVIDE and factor is not None and abs(factor) <= 1
        scaling, by = Scaling.ADD if small else catalogued, "by the catalogue"
    elif file_has_atmosphere_note:
        scaling, by = Scaling.SUBTRACT, "by the file's own note"
    elif file_is_cf:
        scaling, by = Scaling.ADD, "by the file's Conventions"
    elif shift:
        return Scale(
            problem=f"its scale_factor is {factor} and its add_offset {shift}, and neither the "
            "catalogue nor the file says whether the offset is added or subtracted"
        )
    else:
        scaling, by = guess_scaling(factor, name, units), "assumed: nothing states it"
    scale, offset = normal_scaling(factor, shift, scaling)
    if (scale, offset) == (1.0, 0.0):
        return Scale()
    return Scale(scale=scale, offset=offset, convention=f"{_FORMULAS[scaling]}, {by}")


def _read_band_scales(attributes: Mapping[str, AttributeValue], quantity: str) -> Scale:
    """Read scale and offset of each band: `scale * (stored - offset)` (MODIS L1B User's Guide)."""
    scales, offsets = (attributes.get(f"{quantity}_{word}") for word in ("scales", "offsets"))
    pairs = [
        value if isinstance(value, tuple) else (value,)
        for value in (scales, offsets)
        if isinstance(value, tuple | int | float)
    ]
    if len(pairs) != 2 or len(pairs[0]) != len(pairs[1]):
        return Scale(problem=f"it has no {quantity}_scales and {quantity}_offsets for its bands")
    bands = tuple(
        normal_scaling(scale, offset, Scaling.SUBTRACT)
        for scale, offset in zip(*pairs, strict=True)
    )
    return Scale(
        scale=bands[0][0],
        offset=bands[0][1],
        convention=f"{quantity}_scales * (stored - {quantity}_offsets), by the catalogue",
        bands=bands,
    )


def normal_scaling(
    factor: Number | None, offset: Number | None, scaling: Scaling
) -> tuple[float, float]:
    """Convert finite attributes to (scale, offset) in GDAL's meaning; None counts as 1 and 0."""
    scale = 1.0 if factor is None else _decimal(factor)
    shift = 0.0 if offset is None else _decimal(offset)
    if scaling is Scaling.SUBTRACT:
        return scale, -scale * shift if shift else 0.0
    if scaling is Scaling.DIVIDE:
        return 1.0 / scale, shift
    return scale, shift


def guess_scaling(factor: Number | None, name: str, units: str) -> Scaling:
    """Guess whether a factor without an offset divides, for a product outside the catalogue.

    A reflectance or vegetation index cannot be a hundred or more per stored unit, so such a factor
    divides. In other layers large factors occur (MOD16's LE is 10,000 J per stored unit).
    """
    if (factor or 0) >= 100 and re.search(
        r"refl|ndvi|evi\b|albedo", f"{name} {units}", re.IGNORECASE
    ):
        return Scaling.DIVIDE
    return Scaling.ADD


def _decimal(value: Number) -> float:
    """Recover the decimal of a float32 written as float64: 0.001, not 0.00100000004."""
    number = float(value)
    with np.errstate(over="ignore"):
        single = np.float32(number)
    if math.isfinite(number) and float(single) == number:
        return float(str(single))
    return number


# Words in a name, in lower case, that tell the kind of a layer of whole numbers.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_BIT_WORDS = frozenset(
    ("qf", "qc", "qa", "quality", "state", "flags", "gflags", "assurance", "ancillary")
)
_CLASS_WORDS = frozenset(
    ("class", "type", "lc", "flag", "mask", "pnt", "pointer", "reliability", "lw")
)
# Only in layers without scaling do these words name dates, counts or numbers of things.
_NUMBER_WORDS = frozenset(
    ("date", "doy", "num", "number", "count", "counts", "obs", "iobs", "observations", "index")
)
_DAY_OF_YEAR = re.compile(r"\bday of (?:the )?year\b")
_MEASURE_WORDS = frozenset(("uncertainty", "error", "std", "percent"))
_BIT_UNITS = ("bit field", "bit flags", "class-flag", "bit", "bits", "concatenated flags")
_CLASS_UNITS = ("class", "class number", "flag", "flags", "classes")
_NO_UNITS = ("none", "n/a", "no units", *_BIT_UNITS, *_CLASS_UNITS)


def named_units(units: str) -> str:
    """Return the units; "" if the file's text only says that there are none, or names a kind."""
    return "" if units.strip().lower() in _NO_UNITS else units


def guess_kind(
    name: str, dtype: np.dtype[np.generic], units: str, *, scaled: bool = False
) -> LayerKind:
    """Guess the kind of a layer that the catalogue does not know, from its name, type and units.

    `scaled` says that the file gives a scale or an offset. In doubt the layer is not continuous:
    blending classes gives wrong values, not blending continuous values only gives coarse ones.
    """
    if dtype.kind not in "iu":
        return LayerKind.CONTINUOUS
    unit = units.strip().lower()
    listed = [word.lower() for word in _WORD.findall(name)]
    words = frozenset(listed)
    if unit in _BIT_UNITS or words & _BIT_WORDS:
        return LayerKind.BITFIELD
    if unit in _CLASS_UNITS or words & _CLASS_WORDS:
        return LayerKind.CLASS
    if scaled or words & _MEASURE_WORDS:
        return LayerKind.CONTINUOUS
    if words & _NUMBER_WORDS or _DAY_OF_YEAR.search(" ".join(listed)):
        return LayerKind.CLASS
    return LayerKind.CONTINUOUS
