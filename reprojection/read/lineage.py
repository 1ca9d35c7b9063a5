"""How a raster was made, in a form from which it can be made again.

A lineage has tables whose entries refer to one another by number, so that nothing is said twice.
Granules are numbered from 1, as in bands of role "source": those of `Provenance.granules`, then
those of `Provenance.beside`. All other numbers count from 0.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from modis.composites import Counted
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.window_time import WindowTime

Parameter = str | int | float | bool | None
Kind = Literal["continuous", "class", "bitfield"]
Piece = tuple[int, tuple[int, ...]]
"""The number of a cell, and the numbers of the granules that were read for it."""
Span = tuple[int, int]
"""The first and the last of numbers that follow one another."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class CellRecord(_Model):
    """The grid of a cell, in the CRS of the raster, and its name in the request if it is known."""

    name: str = Field(default="", exclude_if=lambda name: not name)
    transform: tuple[float, float, float, float, float, float]
    width: int
    height: int


class LayerRecord(_Model):
    """A layer as its own raster describes it.

    Of an output of an earlier step, `product` is the step's name, `layer` the output's without
    ending, and there is no collection. `requested` are product, collection and layer as a request
    names them, and so as a package reads them. `notes` say what its granules state and was not
    understood.
    """

    product: str
    collection: str
    layer: str
    kind: Kind
    units: str
    scale: float
    offset: float
    parameters: tuple[tuple[str, Parameter], ...]
    operation: str
    accuracy: float | None
    scaling: str
    software: str
    requested: tuple[str, str, str] | None = Field(
        default=None, exclude_if=lambda names: names is None
    )
    notes: tuple[str, ...] = Field(default=(), exclude_if=lambda notes: not notes)


class InputRecord(_Model):
    """A layer on one date, or an output of one window of an earlier step.

    Attributes:
        layer: Number of the layer.
        date: Its nominal first day.
        time: Start of its overpass, HH:MM in UTC; empty: it is of the whole day.
        use: Which dates of it a window takes, as in a request.
        start: Start of its first granule, or of its window, ISO 8601 in UTC.
        end: End of its last granule, or of its window.
        expected: The last day that the plan expected it to cover, where its granules state another.
        window: Number of the window whose runs made it; None: it is made of granules.
        pieces: Its cells.
        lacking: The completeness of each cell that is not complete.
    """

    layer: int
    date: str
    time: str = Field(default="", exclude_if=lambda text: not text)
    use: str = Field(default="", exclude_if=lambda text: not text)
    start: str = ""
    end: str = ""
    expected: str = Field(default="", exclude_if=lambda text: not text)
    window: int | None = Field(default=None, exclude_if=lambda number: number is None)
    pieces: tuple[Piece, ...]
    lacking: tuple[tuple[int, Completeness], ...] = Field(
        default=(), exclude_if=lambda cells: not cells
    )

    def completeness(self, cell: int) -> Completeness:
        """Return how complete it is in a cell."""
        return dict(self.lacking).get(cell, WHOLE)

    def files(self, cell: int) -> tuple[int, ...]:
        """Return the numbers of the granules that were read for a cell."""
        return dict(self.pieces)[cell]


class StepRecord(_Model):
    """A package with its parameters; `sha256` is that of the package's content.

    `name` is that of an earlier step in the request; it is "" for the step that made the raster.
    `halo` pixels around each cell were given to the package, and with `masked` the mask of the
    region.
    """

    name: str = ""
    package: str
    version: str
    sha256: str
    parameters: tuple[tuple[str, str], ...] = ()
    halo: int = 0
    masked: bool = False


class RunRecord(_Model):
    """One run of a package: its cell, and its inputs by number.

    `bands` has cells from which it got something, the own one first, each with spans of inputs, in
    the order in which it got them.
    """

    cell: int
    bands: tuple[tuple[int, tuple[Span, ...]], ...]
    completeness: Completeness = Field(default=WHOLE, exclude_if=lambda said: said == WHOLE)

    def inputs(self) -> tuple[tuple[int, int], ...]:
        """List the bands of its group: the number of the input, and the cell that it is from."""
        return tuple(
            (number, cell)
            for cell, spans in self.bands
            for first, last in spans
            for number in range(first, last + 1)
        )


class WindowRecord(_Model):
    """A window of time of a step: its days, runs, and how inputs count that do not as one day.

    `window` is its name. There is no `time` where the group did not say it.
    """

    step: int
    window: str
    time: WindowTime | None = Field(default=None, exclude_if=lambda time: time is None)
    counts: tuple[tuple[int, Counted], ...] = ()
    runs: tuple[RunRecord, ...]

    def counted(self, given: int) -> Counted:
        """Return how an input counts, by its number."""
        return dict(self.counts).get(given, Counted())


class Lineage(_Model):
    """All steps from granules to a raster.

    Without `windows` the raster is made of its inputs' cells; otherwise by the runs of the last
    window, after those of the windows before it. `joined`: cells were put together into it.
    `region` is GeoJSON in longitude and latitude; with `clipped` pixels outside it are empty.
    """

    version: Literal[1] = 1
    joined: bool = False
    clipped: bool = False
    region: str = Field(default="", exclude_if=lambda text: not text)
    cells: tuple[CellRecord, ...]
    layers: tuple[LayerRecord, ...]
    inputs: tuple[InputRecord, ...]
    steps: tuple[StepRecord, ...] = Field(default=(), exclude_if=lambda steps: not steps)
    windows: tuple[WindowRecord, ...] = Field(default=(), exclude_if=lambda windows: not windows)
