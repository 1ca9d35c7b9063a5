"""Parts of specifications: which layers, cells and rasters a task is about."""

from datetime import date

from modis.collection import versioned
from modis.composites import Counted
from tasks.strict_model import StrictModel


class Driver(StrictModel):
    """The layer that another layer of a swath product follows: fields as in its own cells."""

    layer: str
    resampling: str
    qa: str = ""


class RecordedLayer(StrictModel):
    """A layer of a record: what the layer of one of its products is called, and in which units."""

    record: str
    layer: str
    units: str = ""


class LayerLabel(StrictModel):
    """What the files of a layer of a group are called."""

    product: str
    collection: str
    layer: str
    label: str


class SensorCell(StrictModel):
    """One input of a comparison of sensors: a cell of a product on a day."""

    product: str
    day: date
    cell: str

    @property
    def text(self) -> str:
        """Name it for people."""
        return f"{self.product} {self.day} {self.cell}"


class Band(StrictModel):
    """One input raster of a group: which layer of which product, on which day, in which cell.

    Of an earlier step's output, `product` is the step's name, `layer` the output's without ending,
    `window` the name of its window and `day` the first day of that; it has no collection. Nor has a
    layer of a record, whose name is `product`. `time` is
    the start of the overpass that it is of, HH:MM in UTC; empty: of the whole day. `use` says which
    dates of it a window takes, as in a request; `weighed`: by its days in the window. `last` is the
    last day that the plan expected a composite to cover; None: it is not a composite of granules.
    """

    product: str
    collection: str
    layer: str
    day: date
    cell: str
    counted: Counted = Counted()
    weighed: bool = False
    window: str = ""
    time: str = ""
    use: str = ""
    last: date | None = None

    @property
    def when(self) -> str:
        """The day, of an overpass with its start: 2012-04-13T10:35."""
        return f"{self.day}T{self.time}" if self.time else self.day.isoformat()

    @property
    def text(self) -> str:
        """Name it for people."""
        if self.window:
            return f"{self.product} {self.layer} {self.window}"
        return f"{versioned(self.product, self.collection)} {self.layer} {self.when}"

    @property
    def of(self) -> tuple[str, str, str, str]:
        """The contents, in whichever cell."""
        return self.product, self.collection, self.layer, self.when
