"""Charts over time: values by date with ticks, units and what each mark says.

A chart is numbers for one template (`chart.html`): places are in percent of its plot, so that its
texts keep their size on every screen.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

_LEFT, _RIGHT = 9.0, 97.0  # percent: what is left of it holds the labels of values
_TOP, _BOTTOM = 6.0, 92.0
_TICKS = 4
_APART = 18.0  # percent between the labels of two dates


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One value: its name (a date), its time in any unit, and its text; None is no value.

    `spread` is how far values lie around it, 0 for nothing to be drawn.
    """

    name: str
    moment: float
    value: float | None
    text: str = ""
    spread: float = 0.0
    is_chosen: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """A mark's place in percent; `low` and `high` are the ends of its spread."""

    mark: Mark
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A label and its place in percent; `is_end` for the first and the last date."""

    at: float
    text: str
    is_end: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Values over time: runs of marks without a date between them that has no value."""

    runs: tuple[tuple[Place, ...], ...]
    values: tuple[Tick, ...]
    dates: tuple[Tick, ...]
    units: str

    @property
    def places(self) -> tuple[Place, ...]:
        """All marks that have a value."""
        return tuple(place for run in self.runs for place in run)

    @property
    def has_spread(self) -> bool:
        """Tell whether any mark has a spread."""
        return any(place.mark.spread for place in self.places)


def chart(marks: Sequence[Mark], units: str) -> Chart:
    """Lay marks out, which are in the order of time; those without a value have their date."""
    ends = [
        mark.value + way * mark.spread
        for mark in marks
        if mark.value is not None
        for way in (-1, 1)
    ]
    ticks = _ticks(min(ends, default=0.0), max(ends, default=1.0))
    low, high = ticks[0], ticks[-1]
    first = min((mark.moment for mark in marks), default=0.0)
    span = max((mark.moment for mark in marks), default=0.0) - first

    def across(mark: Mark) -> float:
        return _LEFT + (_RIGHT - _LEFT) * ((mark.moment - first) / span if span else 0.5)

    def up(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - low) / (high - low)

    def place(mark: Mark) -> Place:
        value = mark.value or 0.0
        return Place(
            mark=mark,
            x=across(mark),
            y=up(value),
            low=up(value - mark.spread),
            high=up(value + mark.spread),
        )

    runs = tuple(
        tuple(map(place, run))
        for is_known, run in groupby(marks, lambda mark: mark.value is not None)
        if is_known
    )
    return Chart(
        runs=runs,
        values=tuple(Tick(at=up(one), text=f"{one:.6g}") for one in ticks),
        dates=tuple(_dates([(across(mark), mark.name) for mark in marks])),
        units=units,
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers at even steps of 1, 2 or 5 that hold both ends."""
    if high <= low:
        room = abs(low) / 10 or 1.0
        low, high = low - room, high + room
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * (1 - 1e-9))
    start, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(start, end + 1)]


def _dates(every: Sequence[tuple[float, str]]) -> Iterator[Tick]:
    """Yield the first date, the last one, and those between them whose labels have room."""
    if not every:
        return
    last = every[-1]
    at = -math.inf
    for x, text in every:
        is_end = (x, text) in (every[0], last)
        if is_end or (x - at >= _APART and last[0] - x >= _APART):
            yield Tick(at=x, text=text, is_end=is_end)
            at = x
