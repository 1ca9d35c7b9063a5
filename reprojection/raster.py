"""What reprojection makes: pixels on a grid, with everything a file must say about them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from reprojection.grids import Grid

Pixels = npt.NDArray[np.integer | np.floating]
Kind = Literal["continuous", "class", "bitfield"]
Role = Literal["data", "class", "count", "source", "reason"]
Parameter = str | int | float | bool | None

# The parts of a colour: red, green, blue, opacity, each 0..255.
Colour = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class Band:
    """One band of a raster: its name as written in the file, and what it holds.

    Bands of role "data" and "class" hold the layer's values; "count" the number of granules with a
    value there, "source" the number of the granule the value came from (1 is the first of
    `Provenance.granules`, 0 none), "reason" a `reprojection.qa.Reason`.
    """

    name: str
    role: Role = "data"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A granule that went into a raster: its file name, and when the provider made it."""

    name: str
    produced: str = ""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What determined a raster's pixels. Holds no time of making, no host and no folder."""

    product: str
    collection: str
    layer: str
    granules: tuple[Source, ...]
    start: str = ""  # of the first granule, ISO 8601, UTC
    end: str = ""  # of the last granule
    parameters: tuple[tuple[str, Parameter], ...] = ()
    operation: str = ""  # the coordinate operation, as PROJ names it
    accuracy: float | None = None  # of that operation in metres, as PROJ states it
    software: str = ""


@dataclass(frozen=True, kw_only=True)
class Raster:
    """Pixels on a grid. A pixel is worth `stored * scale + offset` in `units`.

    `data` has the shape (bands, height, width) and one dtype; a pixel equal to `nodata` has no
    value (bands of role "count", "source" and "reason" are never empty). `codes` names the
    values of a class layer, or of the class band, `colours` paints them.
    """

    data: Pixels
    grid: "Grid"
    nodata: float | int | None
    kind: Kind
    bands: tuple[Band, ...]
    provenance: Provenance
    scale: float = 1.0
    offset: float = 0.0
    units: str = ""
    codes: Mapping[int, str] = field(default_factory=dict)
    colours: Mapping[int, Colour] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.data.ndim != 3 or len(self.data) != len(self.bands):
            raise ValueError(f"{self.data.shape} pixels do not fit {len(self.bands)} bands")

    def valid(self, band: int = 0) -> npt.NDArray[np.bool_]:
        """True where the band (numbered from 0) has a value, shape (height, width)."""
        plane = self.data[band]
        if self.nodata is None or self.bands[band].role in ("count", "source", "reason"):
            return np.ones(plane.shape, bool)
        if np.isnan(self.nodata):
            return ~np.isnan(plane)
        return np.asarray(plane != self.nodata)

    def values(self, band: int = 0) -> npt.NDArray[np.float64]:
        """The band in physical units, float64, NaN where it has no value."""
        physical = self.data[band].astype(np.float64)
        if self.bands[band].role == "data":
            physical = physical * self.scale + self.offset
        physical[~self.valid(band)] = np.nan
        return physical

    def metadata(self) -> dict[str, object]:
        """Everything but pixels and grid, as JSON types in a fixed order."""
        said = self.provenance
        return {
            "kind": self.kind,
            "units": self.units,
            "scale": self.scale,
            "offset": self.offset,
            "nodata": None if self.nodata is None else repr(self.nodata),
            "bands": [{"name": band.name, "role": band.role} for band in self.bands],
            "codes": {str(code): name for code, name in sorted(self.codes.items())},
            "colours": {str(code): list(rgba) for code, rgba in sorted(self.colours.items())},
            "product": said.product,
            "collection": said.collection,
            "layer": said.layer,
            "granules": [{"name": one.name, "produced": one.produced} for one in said.granules],
            "start": said.start,
            "end": said.end,
            "parameters": dict(said.parameters),
            "operation": said.operation,
            "accuracy": said.accuracy,
            "software": said.software,
        }

    def metadata_json(self) -> str:
        """`metadata()` as one line of JSON, equal for equal rasters."""
        return json.dumps(self.metadata(), separators=(",", ":"), ensure_ascii=False)
