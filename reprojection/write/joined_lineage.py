"""Join the lineages of rasters into that of a raster which is made of them."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from modis.composites import Counted
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.description import Description, Provenance, SourceGranule
from reprojection.read.lineage import (
    CellRecord,
    InputRecord,
    LayerRecord,
    Lineage,
    RunRecord,
    Span,
    StepRecord,
    WindowRecord,
)
from reprojection.read.window_time import WindowTime

_Key = TypeVar("_Key", bound=Hashable)
_Entry = TypeVar("_Entry")


class _Table(Generic[_Key, _Entry]):
    """Entries by what they are, in the order in which they came, with their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self.entries: list[_Entry] = []

    def number(self, key: _Key, entry: _Entry) -> int:
        """Return the number of what is there under a key, or else of a new entry."""
        number = self._numbers.setdefault(key, len(self.entries))
        if number == len(self.entries):
            self.entries.append(entry)
        return number


class _InputKey(NamedTuple):
    layer: int
    date: str
    time: str
    use: str
    window: int | None


@dataclass
class _OpenInput:
    key: _InputKey
    start: str = ""
    end: str = ""
    expected: str = ""
    pieces: dict[int, tuple[SourceGranule, ...]] = field(default_factory=dict)
    lacking: dict[int, Completeness] = field(default_factory=dict)


@dataclass
class _OpenRun:
    bands: list[tuple[int, list[int]]]
    completeness: Completeness = WHOLE


@dataclass
class _OpenWindow:
    step: int
    name: str
    time: WindowTime | None
    counts: dict[int, Counted] = field(default_factory=dict)
    runs: dict[int, _OpenRun] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A raster that a run takes: what it says, and as what the run takes it.

    `product` is an earlier step's name for its outputs. `cell` is the name of its cell, `window` of
    the window of the earlier step which made it; empty: it is made of granules. `expected` is the
    last day that the plan expected it to cover, where its granules state another.
    """

    said: Description
    product: str
    collection: str
    layer: str
    date: str
    time: str
    use: str
    counted: Counted
    cell: str
    window: str
    expected: str = ""


class LineageJoiner:
    """Takes lineages in one after another, and says each thing once."""

    def __init__(self) -> None:
        self._region = ""
        self._cells: _Table[tuple[tuple[float, ...], int, int], CellRecord] = _Table()
        self._layers: _Table[LayerRecord, LayerRecord] = _Table()
        self._steps: _Table[StepRecord, StepRecord] = _Table()
        self._inputs: _Table[_InputKey, _OpenInput] = _Table()
        self._windows: _Table[tuple[int, str, WindowTime | None], _OpenWindow] = _Table()
        self._root: int | None = None

    def add(self, said: Provenance, lineage: Lineage) -> "_Added":
        """Take in all that a lineage says; its last window becomes the last."""
        added = _Added(self, said.files, lineage)
        for number in range(len(lineage.inputs)):
            added.input(number)
        for number in range(len(lineage.windows)):
            self._root = added.window(number)
        self._region = lineage.region or self._region
        return added

    def take(self, taken: Taken) -> tuple[int, int] | None:
        """Take in a raster as an input; return the numbers of input and cell.

        Returns None if it has no lineage.
        """
        said, lineage = taken.said, taken.said.provenance.lineage
        if lineage is None:
            return None
        if not taken.window:
            (own,) = lineage.inputs
            dated = own.model_copy(
                update={
                    "date": taken.date,
                    "time": taken.time,
                    "use": taken.use,
                    "expected": taken.expected,
                }
            )
            names = taken.product, taken.collection, taken.layer
            layers = tuple(one.model_copy(update={"requested": names}) for one in lineage.layers)
            lineage = lineage.model_copy(update={"inputs": (dated,), "layers": layers})
            added = self.add(said.provenance, lineage)
            return added.input(0), self._cell_of(said, taken.cell)
        root = lineage.windows[-1].step
        steps = list(lineage.steps)
        steps[root] = steps[root].model_copy(update={"name": taken.product})
        lineage = lineage.model_copy(update={"steps": tuple(steps)})
        made = self.add(said.provenance, lineage).window(len(lineage.windows) - 1)
        cell = self._cell_of(said, taken.cell)
        record = said.layer_record().model_copy(
            update={"product": taken.product, "collection": "", "layer": taken.layer}
        )
        key = _InputKey(self.layer(record), taken.date, taken.time, taken.use, made)
        number, there = self.open_input(key)
        _widen(there, said.provenance.start, said.provenance.end)
        there.pieces[cell] = ()
        if said.completeness != WHOLE:
            there.lacking[cell] = said.completeness
        return number, cell

    def _cell_of(self, said: Description, name: str) -> int:
        grid = said.grid
        return self.cell(
            CellRecord(name=name, transform=grid.transform, width=grid.width, height=grid.height)
        )

    def run(
        self,
        window: str,
        cell: CellRecord,
        bands: Sequence[tuple[int, int, Counted]],
        completeness: Completeness,
        region: str,
        time: WindowTime | None = None,
    ) -> None:
        """Add the run that takes `bands` (input, cell, how it counts); its step is the next one."""
        number, there = self.open_window(len(self._steps.entries), window, time)
        chunks: list[tuple[int, list[int]]] = []
        for given, of, counted in bands:
            if not chunks or chunks[-1][0] != of:
                chunks.append((of, []))
            chunks[-1][1].append(given)
            if counted != Counted():
                there.counts[given] = counted
        there.runs[self.cell(cell)] = _OpenRun(chunks, completeness)
        self._root = number
        self._region = region or self._region

    def cell(self, record: CellRecord) -> int:
        """Return the number of a cell; one with a name gives it to an equal one without."""
        key = record.transform, record.width, record.height
        number = self._cells.number(key, record)
        if record.name:
            self._cells.entries[number] = record
        return number

    def layer(self, record: LayerRecord) -> int:
        """Return the number of a layer."""
        return self._layers.number(record, record)

    def step(self, record: StepRecord) -> int:
        """Return the number of a step."""
        return self._steps.number(record, record)

    def open_input(self, key: _InputKey) -> tuple[int, _OpenInput]:
        """Return an input by what it is, with its number."""
        number = self._inputs.number(key, _OpenInput(key))
        return number, self._inputs.entries[number]

    def open_window(self, step: int, name: str, time: WindowTime | None) -> tuple[int, _OpenWindow]:
        """Return a window by its step, name and days, with its number."""
        number = self._windows.number((step, name, time), _OpenWindow(step, name, time))
        return number, self._windows.entries[number]

    def finish(self, said: Provenance, *, joined: bool = False, clip: str = "") -> Provenance:
        """Return a provenance with the lineage of all that was taken in.

        Its granules keep their order; others that were read are added beside them.
        """
        own = set(said.granules)
        inputs, windows = self._inputs.entries, self._windows.entries
        every = {one for there in inputs for files in there.pieces.values() for one in files}
        beside = tuple(sorted(every - own, key=lambda one: (one.name, one.produced, one.sha256)))
        numbers = {one: number for number, one in enumerate((*said.granules, *beside), 1)}
        order = [number for number in range(len(windows)) if number != self._root]
        order += [] if self._root is None else [self._root]
        place = {number: index for index, number in enumerate(order)}
        lineage = Lineage(
            joined=joined,
            clipped=bool(clip),
            region=clip or self._region,
            cells=tuple(self._cells.entries),
            layers=tuple(self._layers.entries),
            inputs=tuple(_closed_input(there, numbers, place) for there in inputs),
            steps=tuple(self._steps.entries),
            windows=tuple(_closed_window(windows[number]) for number in order),
        )
        return replace(said, beside=beside, lineage=lineage)


class _Added:
    """A lineage that a joiner takes in: its numbers, and theirs there."""

    def __init__(
        self, joiner: LineageJoiner, files: Sequence[SourceGranule], lineage: Lineage
    ) -> None:
        self._joiner = joiner
        self._files = files
        self._lineage = lineage
        self._cells = [joiner.cell(one) for one in lineage.cells]
        self._layers = [joiner.layer(one) for one in lineage.layers]
        self._steps = [joiner.step(one) for one in lineage.steps]
        self._inputs: dict[int, int] = {}
        self._windows: dict[int, int] = {}

    def input(self, number: int) -> int:
        """Take an input in, after what made it; return its number."""
        if number not in self._inputs:
            self._inputs[number] = self._input(self._lineage.inputs[number])
        return self._inputs[number]

    def _input(self, given: InputRecord) -> int:
        window = None if given.window is None else self.window(given.window)
        key = _InputKey(self._layers[given.layer], given.date, given.time, given.use, window)
        number, there = self._joiner.open_input(key)
        _widen(there, given.start, given.end)
        there.expected = given.expected or there.expected
        for cell, files in given.pieces:
            there.pieces[self._cells[cell]] = tuple(self._files[one - 1] for one in files)
        for cell, lacking in given.lacking:
            there.lacking[self._cells[cell]] = lacking
        return number

    def window(self, number: int) -> int:
        """Take a window in, after its inputs; return its number."""
        if number not in self._windows:
            self._windows[number] = self._window(self._lineage.windows[number])
        return self._windows[number]

    def _window(self, given: WindowRecord) -> int:
        runs = {
            self._cells[run.cell]: _OpenRun(
                [
                    (
                        self._cells[cell],
                        [self.input(n) for first, last in spans for n in range(first, last + 1)],
                    )
                    for cell, spans in run.bands
                ],
                run.completeness,
            )
            for run in given.runs
        }
        number, there = self._joiner.open_window(self._steps[given.step], given.window, given.time)
        there.counts |= {self.input(one): counted for one, counted in given.counts}
        there.runs |= runs
        return number


def _widen(there: _OpenInput, start: str, end: str) -> None:
    there.start = min(filter(None, (there.start, start)), default="")
    there.end = max(there.end, end)


def _closed_input(
    there: _OpenInput,
    numbers: Mapping[SourceGranule, int],
    place: Mapping[int, int],
) -> InputRecord:
    key = there.key
    return InputRecord(
        layer=key.layer,
        date=key.date,
        time=key.time,
        use=key.use,
        start=there.start,
        end=there.end,
        expected=there.expected,
        window=None if key.window is None else place[key.window],
        pieces=tuple(
            (cell, tuple(sorted(numbers[one] for one in files)))
            for cell, files in sorted(there.pieces.items())
        ),
        lacking=tuple(sorted(there.lacking.items(), key=lambda item: item[0])),
    )


def _closed_window(there: _OpenWindow) -> WindowRecord:
    return WindowRecord(
        step=there.step,
        window=there.name,
        time=there.time,
        counts=tuple(sorted(there.counts.items())),
        runs=tuple(
            RunRecord(
                cell=cell,
                bands=tuple((of, _spans(inputs)) for of, inputs in run.bands),
                completeness=run.completeness,
            )
            for cell, run in there.runs.items()
        ),
    )


def _spans(numbers: Iterable[int]) -> tuple[Span, ...]:
    """Write numbers as spans, in their order."""
    spans: list[Span] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = spans[-1][0], number
        else:
            spans.append((number, number))
    return tuple(spans)
