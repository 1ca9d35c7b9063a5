"""What a task makes: one immutable specification per task, from the planner to the worker.

A specification's `identity()` is what its task key is computed from: everything that determines
the artifact and nothing else (no URL, owner or request).
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import date
from functools import cache, cached_property
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from modis.collection import Collection
from reprojection.read.window_time import WindowTime
from tasks.bag.absence import NOTHING, Absence, Absent, Unnamed
from tasks.bag.classes import sized
from tasks.bag.model import Phase
from tasks.bag.task_keys import key_of
from tasks.canonical import canonical, digest_of
from tasks.spec_parts import Band, Driver, LayerLabel, RecordedLayer, SensorCell
from tasks.strict_model import StrictModel

ALGORITHM = 1  # of a kind that names no other; raise it when a specification would make other bytes


_OVER_NETWORK = ("http", "https", "ftp", "ftps")  # where connections to a host are counted
_quoted = json.encoder.encode_basestring_ascii


class Input(StrictModel):
    """A task this one waits for; `file` picks one file of its artifact, empty: all of them."""

    key: str
    name: str = ""  # for people and for names in manifests, not part of the identity
    file: str = ""

    @cached_property
    def text(self) -> str:
        """The part of it that belongs to an identity, as canonical JSON."""
        return f"[{_quoted(self.key)},{_quoted(self.file)}]"


class GridSpec(StrictModel):
    """A grid: CRS text, affine (a, b, c, d, e, f) with x = a*col + b*row + c, columns, rows."""

    crs: str
    transform: tuple[float, float, float, float, float, float]
    width: int
    height: int

    @property
    def pixels(self) -> int:
        """Columns times rows."""
        return self.width * self.height

    def widened(self, pixels: int) -> "GridSpec":
        """Return the grid with so many pixels more on each side; fewer if it is negative."""
        a, b, c, d, e, f = self.transform
        return GridSpec(
            crs=self.crs,
            transform=(a, b, c - pixels * (a + b), d, e, f - pixels * (d + e)),
            width=self.width + 2 * pixels,
            height=self.height + 2 * pixels,
        )

    def offset(self, other: "GridSpec") -> tuple[int, int]:
        """Return the column and row here at which another grid of the same lattice begins."""
        a, _, c, _, e, f = self.transform
        return round((other.transform[2] - c) / a), round((other.transform[5] - f) / e)

    def meets(self, other: "GridSpec") -> bool:
        """Tell whether another grid of the same lattice shares a pixel with this one."""
        column, row = self.offset(other)
        return -other.width < column < self.width and -other.height < row < self.height

    @cached_property
    def text(self) -> str:
        """The grid as canonical JSON; thousands of tasks share one grid."""
        return canonical(self.model_dump()).decode("ascii")


def _text(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, GridSpec):
        return value.text
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if value == ():
        return "[]"
    if isinstance(value, tuple) and isinstance(value[0], GridSpec):
        return "[" + ",".join(grid.text for grid in value) + "]"
    return canonical(value).decode("ascii")


@cache
def _frame(kind: type[BaseModel], left_out: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return the fields of an identity in their order, each with the text before its value.

    Before them all comes "algorithm", the first by the alphabet.
    """
    return tuple((name, f',"{name}":') for name in sorted({*kind.model_fields} - left_out))


class BaseSpec(StrictModel, ABC):
    """What the specifications of all kinds have."""

    inputs: tuple[Input, ...] = ()
    missing: tuple[Absent, ...] = ()
    """What the artifact says it lacks."""
    missing_unnamed: Unnamed | None = None
    """How much more it lacks than `missing` may name."""

    phase: ClassVar[Phase]
    """The phase the task belongs to."""

    @property
    @abstractmethod
    def work(self) -> str:
        """The work without its amount: phase, product, resolution, reduction package."""

    @property
    @abstractmethod
    def amount(self) -> int:
        """The amount of work, in bytes to fetch or pixels to read and write; 0: not known."""

    words: ClassVar[str]
    """What the task makes, with fields in braces; a collection as granules have it: 005."""

    @property
    def title(self) -> str:
        """Say in words what the task makes."""
        return self.words.format_map(self._told)

    @property
    def _told(self) -> Mapping[str, object]:
        """The values of the fields in `words`."""
        collection = self.__dict__.get("collection")
        if not collection:
            return self.__dict__
        return {**self.__dict__, "collection": Collection(collection).padded}

    @property
    def own_day(self) -> date | None:
        """The day of which it reads data itself; None: it goes by its inputs."""
        return None

    @property
    def task_class(self) -> str:
        """The class that has one historical mean: the work and its amount, in powers of two."""
        return sized(self.work, self.amount)

    algorithm: ClassVar[int] = ALGORITHM

    opens_granules: ClassVar[bool] = False
    """Whether it opens granules that are not its inputs."""

    not_identity: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not determine the artifact."""

    if_given: ClassVar[frozenset[str]] = frozenset()
    """Fields that are part of the identity where they are not None."""

    @property
    def identity(self) -> str:
        """Return all that determines the artifact, as `tasks.canonical` would write it.

        Where very many keys are needed, the planner makes them of patterns.
        """
        values = self.__dict__
        parts = [f'{{"algorithm":{self.algorithm}']
        absent = frozenset(name for name in self.if_given if values[name] is None)
        for name, before in _frame(type(self), self.not_identity | absent):
            value = values[name]
            if name == "inputs":
                text = self._inputs
            else:
                text = _quoted(value) if value.__class__ is str else _text(value)
            parts.append(before + text)
        return "".join(parts) + "}"

    @property
    def _inputs(self) -> str:
        return "[" + ",".join([given.text for given in self.inputs]) + "]"

    @property
    def key(self) -> str:
        """The task key."""
        return key_of(self.identity)

    @property
    def absent_parts(self) -> int:
        """The number of parts that were expected and are not among the inputs."""
        return Absence(self.missing, self.missing_unnamed).parts

    def part(self, index: int) -> str:
        """Return what an input is to the task, as `Absent.part` names it."""
        return self.inputs[index].name or self.inputs[index].key

    def over(self, kept: Mapping[int, Input], lost: Absence = NOTHING) -> Self:
        """Return the same task over fewer or other inputs.

        `kept` maps an index among the present inputs to an input; `lost` says what the others lack.
        """
        inputs = tuple(kept[i] for i in sorted(kept))
        own = Absence(self.missing, self.missing_unnamed)
        return self.model_copy(update={"inputs": inputs, **own.joined(lost).fields})


def _host(url: str) -> str:
    """Return host and port of an address that is fetched from over the network."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] if parts.scheme in _OVER_NETWORK else ""


class CollectSpec(BaseSpec):
    """Fetch one granule into the store.

    The identity is product, collection and granule name, which holds the production time.
    """

    not_identity: ClassVar[frozenset[str]] = frozenset(
        {"source", "url", "size", "checksum", "checksum_type"}
    )

    opens_granules: ClassVar[bool] = True
    phase: ClassVar[Phase] = Phase.COLLECTION
    words: ClassVar[str] = "{granule}"
    kind: Literal["collect"] = "collect"
    product: str
    collection: str
    granule: str
    production: str
    source: str = ""  # which archive
    url: str = ""
    size: int = 0
    checksum: str = ""
    checksum_type: str = ""

    @property
    def work(self) -> str:
        host = "" if self.source in ("", "folder") else _host(self.url)
        return f"collection {self.product}.{self.collection}" + (f" from {host}" if host else "")

    @property
    def amount(self) -> int:
        return self.size


class PartsSpec(BaseSpec):
    """Fetch of one granule, and of those that say where its pixels lie, what sites or cells take.

    `granules` are as in their own collections, the granule itself first; `wholes` are the keys of
    those. The input is the list of the sites; with `grids`, which are cells, there is none. The
    other fields are those of the extraction or the cells that read it. The files are the granules
    held in part (`reprojection/formats/held.py`), packed; a granule that had to be fetched whole is
    under its own name. `expected` bytes are to be read.
    """

    not_identity: ClassVar[frozenset[str]] = frozenset({"granules", "expected"})

    if_given: ClassVar[frozenset[str]] = frozenset({"grids"})

    # A version above the common one: parts of VIIRS are those of the pixels that it keeps.
    algorithm: ClassVar[int] = ALGORITHM + 1

    opens_granules: ClassVar[bool] = True
    phase: ClassVar[Phase] = Phase.COLLECTION
    words: ClassVar[str] = "parts of {granule}"
    kind: Literal["parts"] = "parts"
    product: str
    collection: str
    granule: str
    granules: tuple[CollectSpec, ...]
    wholes: tuple[str, ...]
    expected: int
    layers: tuple[str, ...]
    qa: tuple[str, ...]
    mask: bool
    band: int | None = None
    solar_times: tuple[str, ...] = ()
    grids: Annotated[tuple[GridSpec, ...] | None, Field(exclude_if=lambda value: value is None)] = (
        None
    )

    @property
    def work(self) -> str:
        first = self.granules[0]
        return first.work.replace("collection", "collection parts of", 1)

    @property
    def amount(self) -> int:
        return self.expected

    @property
    def size(self) -> int:
        """Bytes of the whole granules."""
        return sum(one.size for one in self.granules)


class LayerSpec(BaseSpec):
    """Put one layer of one date's granules onto a grid.

    Inputs are the granules' collection tasks, sorted by granule name. With `driver` each pixel is
    taken from the granule that the driver's pixel is taken from.
    """

    # 2: numbers in text are read, codes that the catalogue lacked are masked, and rasters name the
    # convention of scale and offset.
    # 3: on the tiles' own grid pixels beyond the map's rim are kept.
    # 4: averages of swaths take every footprint by its area, not 16 x 16 points at most.
    # 5: averages and spreads of swaths are those of the shares with a value, however small.
    # 6: rasters hold their lineage, with the digests of granules.
    # 7: an attribute that is 0 in HDF5 and netCDF counts, such as a fill value.
    # 8: rotated grids lie where they are, pixels that VIIRS deletes are not seen, and its codes and
    # bits are those of its granules.
    algorithm: ClassVar[int] = 8

    phase: ClassVar[Phase] = Phase.REPROJECTION
    product: str
    collection: str
    layer: str
    day: date
    grid: GridSpec
    resampling: str  # resolved by the planner; "default": by the file's attributes
    merge: str = "nadir"
    qa: str = ""  # canonical JSON of the QA rule, or a preset's name
    mask: bool = True
    units: Literal["stored", "physical", "brightness"] = "stored"
    codes: Literal["mask", "keep"] = "mask"
    extra_bands: tuple[str, ...] = ()
    day_night: Literal["any", "day", "night"] = "any"
    driver: Driver | None = None
    clamp: bool = False

    @property
    def own_day(self) -> date:
        return self.day

    @property
    def work(self) -> str:
        return f"reprojection {self.product}.{self.collection} {abs(self.grid.transform[0]):g}"

    @property
    def amount(self) -> int:
        return self.grid.pixels * max(1, len(self.inputs))


class ReprojectSpec(LayerSpec):
    """Put one layer of one date's granules onto one cell: one GeoTIFF, `cell.tif`."""

    words: ClassVar[str] = (
        "{product}.{collection} {layer} {day} cell at {grid.transform[2]:g}, {grid.transform[5]:g}"
    )
    kind: Literal["reproject"] = "reproject"


class RasterSpec(LayerSpec):
    """Make one raster of the results of one layer of one date's granules, without cells.

    The files are those of a mosaic, and so are `name` and `clip`; `grid` is that of the raster.
    """

    words: ClassVar[str] = "{name}"
    kind: Literal["raster"] = "raster"
    name: str  # file name without ending
    clip: str = ""

    @property
    def work(self) -> str:
        return f"{super().work} raster"


class MosaicSpec(BaseSpec):
    """Assemble cells into one Cloud Optimized GeoTIFF cropped to a region.

    The files are `<name>.tif` and its STAC item `<name>.json`. With a `record` the raster is a
    layer of that, and says of which sensor it is; of cells of several products it is the mean.
    """

    if_given: ClassVar[frozenset[str]] = frozenset({"record"})

    # The version of all, and 1: the statistics of all pixels.
    algorithm: ClassVar[int] = ALGORITHM + 1

    phase: ClassVar[Phase] = Phase.AGGREGATION
    words: ClassVar[str] = "{name}"
    kind: Literal["mosaic"] = "mosaic"
    name: str  # file name without ending
    grid: GridSpec
    clip: str = ""  # GeoJSON geometry in longitude/latitude; empty: no clipping
    day: date | None = None
    record: Annotated[RecordedLayer | None, Field(exclude_if=lambda value: value is None)] = None

    @property
    def work(self) -> str:
        return f"aggregation mosaic {abs(self.grid.transform[0]):g}"

    @property
    def amount(self) -> int:
        return self.grid.pixels


class OverlapSpec(BaseSpec):
    """Say how sensors of a record differ on dates that both have: one table, `<name>.csv`.

    `cells` runs parallel to `inputs`. `pairs` are products: one that stands for dates, and another
    that is compared with it, where both have a value.
    """

    phase: ClassVar[Phase] = Phase.AGGREGATION
    work: ClassVar[str] = "aggregation overlap"
    words: ClassVar[str] = "{name}"
    kind: Literal["overlap"] = "overlap"
    name: str  # file name without ending
    record: RecordedLayer
    cells: tuple[SensorCell, ...]
    pairs: tuple[tuple[str, str], ...]

    @property
    def amount(self) -> int:
        return len(self.inputs)

    def part(self, index: int) -> str:
        return self.cells[index].text

    def over(self, kept: Mapping[int, Input], lost: Absence = NOTHING) -> Self:
        cells = tuple(self.cells[i] for i in sorted(kept))
        return super().over(kept, lost).model_copy(update={"cells": cells})


class CubeSpec(BaseSpec):
    """Put the rasters of one layer of all dates into one file over time.

    The file is `<name>.nc` (CF NetCDF) or `<name>.zarr.zip` (Zarr). `days` runs parallel to
    `inputs`: it has the first day of each. So does `times`, HH:MM in UTC, where the rasters are of
    single overpasses; else it is empty.
    """

    # 2: bounds of windows are their own, and end where the next begins. 3: more of ACDD.
    algorithm: ClassVar[int] = 3

    phase: ClassVar[Phase] = Phase.AGGREGATION
    words: ClassVar[str] = "{name} over time"
    kind: Literal["cube"] = "cube"
    name: str  # file name without ending
    form: Literal["netcdf", "zarr"]
    grid: GridSpec
    days: tuple[date, ...]
    times: tuple[str, ...] = ()

    @property
    def work(self) -> str:
        return f"aggregation cube {self.form}"

    @property
    def amount(self) -> int:
        return self.grid.pixels * len(self.days)

    def over(self, kept: Mapping[int, Input], lost: Absence = NOTHING) -> Self:
        days = tuple(self.days[i] for i in sorted(kept))
        times = tuple(self.times[i] for i in sorted(kept)) if self.times else ()
        return super().over(kept, lost).model_copy(update={"days": days, "times": times})


class GroupSpec(BaseSpec):
    """Group reprojected cells for one run of a reduction.

    The files are `manifest.json` and, for each layer, a GeoTIFF with one band per day, so that the
    artifact stands alone. `bands` runs parallel to `inputs`.

    `window` is the window's name, `time` has its days; a plan of an earlier build has none. With a
    `halo` of pixels around the cell, bands of neighbouring cells are among them. With a `region`,
    GeoJSON in longitude and latitude, there is a mask of it, too.

    `labels` name the layers' files where two products have a layer of one name; they are those of
    the plan, also where a run then lacks a layer. Without them the bands that are there tell, and
    the collection has its short spelling, as in plans of earlier builds.
    """

    if_given: ClassVar[frozenset[str]] = frozenset({"labels"})

    # 2: kinds, units and codes of the layers. 3: a version, scale, offset and valid shares.
    # 4: the lineage of the inputs. 5: days and share of each input beside its weight.
    # 6: the days of the window. 7: inputs count by the dates that their granules state.
    # 8: stacks are compressed quickly. 9: and by the packer of rasters.
    algorithm: ClassVar[int] = 9

    phase: ClassVar[Phase] = Phase.AGGREGATION
    work: ClassVar[str] = "aggregation group"
    words: ClassVar[str] = "{group}"
    kind: Literal["group"] = "group"
    group: str  # "r4c-1 2012-01": cell and window
    cell: str
    window: str
    grid: GridSpec | None
    bands: tuple[Band, ...]
    halo: int = 0
    region: str = ""
    time: WindowTime | None = None
    labels: Annotated[
        tuple[LayerLabel, ...] | None, Field(exclude_if=lambda value: value is None)
    ] = None

    @property
    def own(self) -> tuple[int, ...]:
        """The bands that are the cell's own."""
        return tuple(i for i, band in enumerate(self.bands) if band.cell == self.cell)

    @property
    def amount(self) -> int:
        if self.grid is None:
            return 0
        many = len(self.own) if self.halo else len(self.bands)
        return self.grid.widened(self.halo).pixels * many

    def part(self, index: int) -> str:
        return self.bands[index].text

    def over(self, kept: Mapping[int, Input], lost: Absence = NOTHING) -> Self:
        if self.halo:  # what lies around a day that the cell itself lacks is of no use
            days = {self.bands[i].of for i in self.own if i in kept}
            kept = {i: given for i, given in kept.items() if self.bands[i].of in days}
        bands = tuple(self.bands[i] for i in sorted(kept))
        return super().over(kept, lost).model_copy(update={"bands": bands})


class ReduceSpec(BaseSpec):
    """Run a reduction package over one group. The only input is the group's task."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"pixels"})

    phase: ClassVar[Phase] = Phase.REDUCTION
    words: ClassVar[str] = "{package} {inputs[0].name}"
    kind: Literal["reduce"] = "reduce"
    package: str  # name, for people
    digest: str  # SHA-256 of the package archive, which is the blob packages/<digest>.tar
    outputs: tuple[str, ...]  # file names the package declares for this group
    parameters: dict[str, str] = Field(default_factory=dict)
    pixels: int = 0  # of its group, in all bands
    least_valid: float = 0.0
    """The share of its group's pixels that must hold a value; with fewer it is not run."""

    @property
    def title(self) -> str:
        return super().title.strip() if self.inputs else self.package

    @property
    def work(self) -> str:
        text = f"reduction {self.package} {self.digest[:8]}"
        if not self.parameters:
            return text
        return f"{text} {digest_of(canonical(self.parameters).decode('ascii'))[:6]}"

    @property
    def amount(self) -> int:
        return self.pixels
