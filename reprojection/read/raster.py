"""The result of reprojection: pixels on a grid, with everything a file must say about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from modis.granule_name import is_near_real_time
from reprojection.grid.grids import Grid
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.lineage import Kind, LayerRecord, Lineage, Parameter
from reprojection.read.qa import Reason
from reprojection.read.window_time import WindowTime

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "Band",
    "Colour",
    "Description",
    "GridDescription",
    "Kind",
    "Parameter",
    "Pixels",
    "Provenance",
    "Raster",
    "RecordOf",
    "Role",
    "SourceGranule",
]

Pixels = npt.NDArray[np.generic]
Role = Literal["data", "class", "count", "source", "reason"]

_ROWS_AT_ONCE = 256

# The components of a colour: red, green, blue, opacity, each 0..255.
Colour = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class Band:
    """One band of a raster: its name as written in the file, and its content.

    Bands of role "data" and "class" hold the layer's values. "count" bands hold the number of
    granules with a value at the pixel; "source" bands hold the number of the granule that gave the
    value (1 is the first of `Provenance.granules`, 0 none); "reason" bands hold a
    `reprojection.read.qa.Reason`.
    """

    name: str
    role: Role = "data"

    @property
    def is_index(self) -> bool:
        """True if the band holds counts or numbers of things, and so is never empty."""
        return self.role in ("count", "source", "reason")

    def empty(self, nodata: float | int | None) -> float | int:
        """Return what the band holds where no granule contributes."""
        if self.role == "reason":
            return int(Reason.NO_GRANULE)
        return 0 if nodata is None or self.is_index else nodata


@dataclass(frozen=True, kw_only=True)
class SourceGranule:
    """A granule that a raster was made from: its file name, production time and SHA-256.

    The digest is "" where it was not computed.
    """

    name: str
    produced: str = ""
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class RecordOf:
    """The record that a raster is a layer of, what the layer is called there, and its sensor.

    `sensor` is for people, "Terra MODIS". With several `sensors` the raster is their mean, and
    `sensor` names all.
    """

    record: str
    layer: str
    sensor: str
    sensors: Annotated[int, Field(exclude_if=lambda count: count == 1)] = 1


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What determined a raster's pixels; holds no time of making, no host and no folder.

    `beside` are other granules that were read: those that say where the pixels of a swath lie, and
    those of other layers of the same run. There is a `lineage` if a request made the raster.

    `start` and `end` are those of the granules; of a reduction those of its `window`, and `taken`
    are the start of the first and the end of the last input.
    """

    product: str
    collection: str
    layer: str
    granules: tuple[SourceGranule, ...]
    start: str = ""  # the first second, ISO 8601, UTC
    end: str = ""  # the last second
    parameters: tuple[tuple[str, Parameter], ...] = ()
    operation: str = ""  # PROJ's name of the coordinate operation
    accuracy: float | None = None  # PROJ's accuracy of that operation in metres
    scaling: str = ""  # the formula of scale and offset, and who states it; "" if not scaled
    software: str = ""
    beside: tuple[SourceGranule, ...] = ()
    lineage: Lineage | None = None
    window: Annotated[WindowTime | None, Field(exclude_if=lambda time: time is None)] = None
    taken: Annotated[tuple[str, str] | None, Field(exclude_if=lambda both: both is None)] = None
    cell_method: Annotated[str, Field(exclude_if=lambda name: not name)] = ""
    """How the values came of those of the window, by the names of CF (Appendix E); "": unknown."""
    record: Annotated[RecordOf | None, Field(exclude_if=lambda record: record is None)] = None

    @property
    def called(self) -> str:
        """The layer's name: the record's, if it is of one."""
        return self.record.layer if self.record is not None else self.layer

    @property
    def near_real_time(self) -> int:
        """The number of granules that are LANCE's, which standard ones replace."""
        return sum(is_near_real_time(one.name) for one in self.files)

    @property
    def files(self) -> tuple[SourceGranule, ...]:
        """All granules that were read, in the order in which a lineage numbers them."""
        return *self.granules, *self.beside


@dataclass(frozen=True, kw_only=True)
class Raster:
    """Pixels on a grid, with everything that a file says about them.

    A pixel is worth `stored * scale + offset` in `units`.

    Attributes:
        data: Stored pixels, shape (bands, grid.height, grid.width), of one dtype.
        grid: Where they lie.
        nodata: What a pixel without a value holds, outside the valid range; None: every pixel has
            one. Bands of role "count", "source" and "reason" are never empty.
        kind: "continuous", "class" or "bitfield": whether values may be blended.
        bands: Name and role of each band.
        provenance: Granules, times and options that the pixels depend on.
        scale: Factor from stored to physical values, 1 by default.
        offset: What is added then, 0 by default.
        units: Physical units, "" by default.
        codes: Names of the values of a class layer or band.
        colours: Red, green, blue and opacity (0 to 255) by value of a class layer.
        completeness: Which expected inputs are missing; by default none.
        notes: What the granules state of the layer and was not understood, so not applied.

    Raises:
        ValueError: the data are not of three dimensions, or not of as many bands as are named.
    """

    data: Pixels
    grid: Grid
    nodata: float | int | None
    kind: Kind
    bands: tuple[Band, ...]
    provenance: Provenance
    scale: float = 1.0
    offset: float = 0.0
    units: str = ""
    codes: Mapping[int, str] = field(default_factory=dict)
    colours: Mapping[int, Colour] = field(default_factory=dict)
    completeness: Completeness = WHOLE
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.data.ndim != 3 or len(self.data) != len(self.bands):
            raise ValueError(f"{self.data.shape} pixels do not fit {len(self.bands)} bands")

    def valid(self, band: int = 0) -> npt.NDArray[np.bool_]:
        """Return where a band has a value, bool of shape (height, width).

        Args:
            band: Number of the band, from 0, the default.
        """
        plane = self.data[band]
        if self.nodata is None or self.bands[band].is_index:
            return np.ones(plane.shape, bool)
        valid: npt.NDArray[np.bool_] = np.not_equal(plane, self.nodata)
        if np.isnan(self.nodata):
            valid = ~np.isnan(plane)
        return valid

    @property
    def valid_share(self) -> float:
        """The share of pixels with a value in at least one band of the layer's own.

        It is rounded to six significant digits, and is 0 only if no pixel has a value.
        """
        own = [n for n, band in enumerate(self.bands) if band.role == self.bands[0].role]
        found = 0
        for start in range(0, self.grid.height, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            strip = replace(self, data=self.data[:, rows])
            found += int(np.logical_or.reduce([strip.valid(band) for band in own]).sum())
        return float(f"{found / (self.grid.height * self.grid.width):.6g}")

    def values(self, band: int = 0) -> npt.NDArray[np.float64]:
        """Return a band in `units`: float64, shape (height, width), NaN where it has no value.

        Args:
            band: Number of the band, from 0, the default.
        """
        physical: npt.NDArray[np.float64] = self.data[band].astype(np.float64)
        if self.bands[band].role == "data":
            physical = physical * self.scale + self.offset
        physical[~self.valid(band)] = np.nan
        return physical

    def to_xarray(self) -> "xr.Dataset":
        """Make a dataset of the raster, a variable for each band, named after the layer.

        The values are those of `data`, and attributes say the rest as CF has it: `_FillValue`,
        `scale_factor`, `add_offset`, flags. `xarray.decode_cf` makes physical values of them. The
        CRS is found by rioxarray and odc-geo.

        Raises:
            ChoiceRefusedError: the grid is rotated, or xarray is not installed.
        """
        from reprojection.read.raster_dataset import dataset_of

        return dataset_of(self)

    def description(self) -> "Description":
        """Describe everything except pixels and nodata, as a file holds it in JSON."""
        return Description(
            kind=self.kind,
            units=self.units,
            scale=self.scale,
            offset=self.offset,
            bands=self.bands,
            codes=dict(sorted(self.codes.items())),
            colours=dict(sorted(self.colours.items())),
            provenance=self.provenance,
            grid=GridDescription(
                crs=self.grid.crs,
                transform=self.grid.transform,
                width=self.grid.width,
                height=self.grid.height,
            ),
            completeness=self.completeness,
            notes=self.notes,
        )


class GridDescription(BaseModel):
    """A grid as a file holds it in JSON; the fields are those of `Grid`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    crs: str
    transform: tuple[float, float, float, float, float, float]
    width: int
    height: int

    def grid(self) -> Grid:
        """Make the grid; raise GridError if the fields do not form one."""
        return Grid(crs=self.crs, transform=self.transform, width=self.width, height=self.height)


class Description(BaseModel):
    """A raster without its pixels. Equal rasters have equal JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: Kind
    units: str
    scale: float
    offset: float
    bands: tuple[Band, ...]
    codes: dict[int, str]
    colours: dict[int, Colour]
    provenance: Provenance
    grid: GridDescription
    completeness: Completeness = Field(default=WHOLE, exclude_if=lambda said: said == WHOLE)
    """The JSON omits it if the raster lacks nothing."""
    notes: tuple[str, ...] = Field(default=(), exclude_if=lambda notes: not notes)

    def physical(self, stored: float) -> float:
        """Return what a stored value of a band of values is worth, in `units`."""
        return stored * self.scale + self.offset

    def layer_record(self) -> LayerRecord:
        """Return what it says of its layer, for the lineages of rasters that are made of it."""
        own = self.provenance
        return LayerRecord(
            product=own.product,
            collection=own.collection,
            layer=own.layer,
            kind=self.kind,
            units=self.units,
            scale=self.scale,
            offset=self.offset,
            parameters=own.parameters,
            operation=own.operation,
            accuracy=own.accuracy,
            scaling=own.scaling,
            software=own.software,
            notes=self.notes,
        )

    def raster(self, data: Pixels, nodata: float | int | None, grid: Grid | None = None) -> Raster:
        """Make the raster with these pixels, on another grid if one is given."""
        return Raster(
            data=data,
            grid=grid or self.grid.grid(),
            nodata=nodata,
            kind=self.kind,
            bands=self.bands,
            scale=self.scale,
            offset=self.offset,
            units=self.units,
            codes=self.codes,
            colours=self.colours,
            provenance=self.provenance,
            completeness=self.completeness,
            notes=self.notes,
        )
