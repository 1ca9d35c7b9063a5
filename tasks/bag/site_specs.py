"""What the tasks of sites make: the list of sites, what is read or sampled there, the table."""

from collections.abc import Mapping
from datetime import date
from typing import ClassVar, Literal, NamedTuple, Self

from tasks.bag.absence import NOTHING, Absence
from tasks.bag.model import Phase
from tasks.bag.spec import ALGORITHM, BaseSpec, CollectSpec, GridSpec, Input
from tasks.comparison import Comparison


class SitesSpec(BaseSpec):
    """Write down the sites of a request as `sites.json`, which all its extractions take."""

    phase: ClassVar[Phase] = Phase.REPROJECTION
    work: ClassVar[str] = "extraction sites"
    words: ClassVar[str] = "the sites"
    kind: Literal["sites"] = "sites"
    sites: str  # as tasks/request/sites.py formats them

    @property
    def amount(self) -> int:
        return len(self.sites)


class ExtractSpec(BaseSpec):
    """Read layers of one date's granules at sites: one table, `rows.parquet`.

    Inputs are the tasks that fetch the granules, whole or in part, sorted by granule name, then the
    sites. `qa` runs
    parallel to `layers`, and so does `solar_times`: the layers of tiles that say when a pixel was
    seen; it is empty where no layer has one. `band` is the date's in granules that hold several,
    else None.
    """

    # Above the common one: an attribute that is 0 in HDF5 and netCDF counts, and then what is the
    # eighth of cells.
    algorithm: ClassVar[int] = ALGORITHM + 2

    phase: ClassVar[Phase] = Phase.REPROJECTION
    words: ClassVar[str] = "{product}.{collection} {day} at the sites"
    kind: Literal["extract"] = "extract"
    product: str
    collection: str
    layers: tuple[str, ...]
    qa: tuple[str, ...]
    mask: bool
    day: date
    band: int | None = None
    solar_times: tuple[str, ...] = ()

    @property
    def own_day(self) -> date:
        return self.day

    @property
    def work(self) -> str:
        return f"extraction {self.product}.{self.collection}"

    @property
    def amount(self) -> int:
        return max(1, len(self.inputs) - 1) * len(self.layers)


class NearDate(NamedTuple):
    """A date to read, the band of it in granules that hold several, and its granules' names."""

    day: date
    band: int | None
    granules: tuple[str, ...]


class ExtractNearSpec(BaseSpec):
    """Read layers of several dates' granules at sites where they lie: one table, `rows.parquet`.

    The input is the sites. `granules` are files of this machine's folders, as in collections of
    their own, sorted by name; their keys are `wholes`, and `stamps` say which file each is: one
    that is not there any more, or damaged, is left out and told, and a good one in its place has
    another stamp. The other fields are as in `ExtractSpec`.
    """

    not_identity: ClassVar[frozenset[str]] = frozenset({"granules"})

    # That of extractions: the rows are the same.
    algorithm: ClassVar[int] = ExtractSpec.algorithm

    opens_granules: ClassVar[bool] = True
    phase: ClassVar[Phase] = Phase.REPROJECTION
    words: ClassVar[str] = "{product}.{collection} {days} at the sites"
    kind: Literal["near"] = "near"
    product: str
    collection: str
    layers: tuple[str, ...]
    qa: tuple[str, ...]
    mask: bool
    dates: tuple[NearDate, ...]
    granules: tuple[CollectSpec, ...]
    wholes: tuple[str, ...]
    stamps: tuple[str, ...]
    solar_times: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        first, last = self.dates[0].day, self.dates[-1].day
        days = f"{first}" if first == last else f"{first} to {last}"
        return self.words.format_map({**self._told, "days": days})

    @property
    def own_day(self) -> date:
        return self.dates[0].day

    @property
    def work(self) -> str:
        return f"extraction {self.product}.{self.collection} near"

    @property
    def amount(self) -> int:
        return len(self.granules) * len(self.layers)


class SampleSpec(BaseSpec):
    """Read rasters of one window or date of a raster request at sites: one table, `rows.parquet`.

    Inputs are cells, or runs of a step with one of their rasters each, then the sites. `layers`
    runs parallel to the rasters. The value stands for the days from `day` to `last`. `time` is the
    start of the overpass, HH:MM in UTC; empty: of the whole day. `wholes` are the grids of the
    rasters that the cells are parts of.
    """

    # The version of all, and 1: pixels on corners are those of the whole raster.
    algorithm: ClassVar[int] = ALGORITHM + 1

    phase: ClassVar[Phase] = Phase.AGGREGATION
    work: ClassVar[str] = "aggregation sample"
    words: ClassVar[str] = "{product} {day} at the sites"
    kind: Literal["sample"] = "sample"
    product: str
    collection: str
    layers: tuple[str, ...]
    day: date
    last: date
    time: str = ""
    wholes: tuple[GridSpec, ...] = ()

    @property
    def own_day(self) -> date:
        return self.day

    @property
    def amount(self) -> int:
        return len(self.inputs)

    def over(self, kept: Mapping[int, Input], lost: Absence = NOTHING) -> Self:
        layers = tuple(layer for i, layer in enumerate(self.layers) if i in kept)
        return super().over(kept, lost).model_copy(update={"layers": layers})


class TableSpec(BaseSpec):
    """Join what was read at sites into `sites.csv` and `sites.parquet`, and plot each layer.

    Inputs are the extractions, then the sites. With a `comparison` there are `comparison.csv` and
    `comparison.parquet`, statistics and scatter plots, too.
    """

    # 2: pictures of layers with names alike have names of their own.
    # 3: texts that a spreadsheet would run have an apostrophe in CSV.
    algorithm: ClassVar[int] = 3

    phase: ClassVar[Phase] = Phase.AGGREGATION
    work: ClassVar[str] = "aggregation table"
    words: ClassVar[str] = "table of the sites"
    kind: Literal["table"] = "table"
    comparison: Comparison | None = None

    @property
    def amount(self) -> int:
        return len(self.inputs)


SiteSpec = SitesSpec | ExtractSpec | ExtractNearSpec | SampleSpec | TableSpec
