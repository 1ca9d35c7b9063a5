"""What a file says of a raster beside its pixels: bands, provenance, grid."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from modis.granule_name import is_near_real_time
from reprojection.grid.grids import Grid
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.lineage import Kind, LayerRecord, Lineage, Parameter
from reprojection.read.qa import Reason
from reprojection.read.window_time import WindowTime

Role = Literal["data", "class", "count", "source", "reason"]

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
