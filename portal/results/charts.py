"""Charts over time: values by date with ticks, units and what each mark says.

A chart is numbers for one template (`chart.html`): places are in percent of its plot, so that its
texts keep their size on every screen. `chart.js` adds what needs a script.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

_LEFT, _RIGHT = 9.0, 97.0  # percent: what is left of it holds the labels of values
_TOP, _BOTTOM = 6.0, 92.0
_TICKS = 4
_APART = 18.0  # percent between the labels of two dates
_EQUAL, _LEAST = 1e-12, 1e-300  # values that differ by less, in proportion or at all, are one
_SMALL, _LARGE = 1e-4, 1e6  # values beyond are written with an exponent


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One value: its name (a date), its time in any unit, and its text; None is no value.

    `spread` is how far values lie around it, 0 for nothing to be drawn. `is_doubtful` is of one
    that is not made of all that it should be; its text says why.
    """

    name: str
    moment: float
    value: float | None
    text: str = ""
    spread: float = 0.0
    is_chosen: bool = False
    is_doubtful: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """The marks of one thing, which are in the order of time; `name` is "" where there is one."""

    marks: Sequence[Mark]
    name: str = ""


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
class Drawn:
    """A line as it is drawn: runs of marks without a date between them that has no value."""

    name: str
    runs: tuple[tuple[Place, ...], ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """All marks that have a value."""
        return tuple(place for run in self.runs for place in run)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Values over time, of one thing or of several."""

    lines: tuple[Drawn, ...]
    values: tuple[Tick, ...]
    dates: tuple[Tick, ...]
    units: str

    @property
    def places(self) -> tuple[Place, ...]:
        """All marks that have a value."""
        return tuple(place for line in self.lines for place in line.places)

    @property
    def has_spread(self) -> bool:
        """Tell whether any mark has a spread."""
        return any(place.mark.spread for place in self.places)

    @property
    def has_doubtful(self) -> bool:
        """Tell whether any mark is doubtful."""
        return any(place.mark.is_doubtful for place in self.places)


def chart(lines: Sequence[Line], units: str) -> Chart:
    """Lay lines out over one axis of time; marks without a value have their date."""
    every = sorted((mark for line in lines for mark in line.marks), key=lambda mark: mark.moment)
    ends = [
        _finite(mark.value + way * mark.spread)
        for mark in every
        if mark.value is not None
        for way in (-1, 1)
    ]
    ticks = _ticks(min(ends, default=0.0), max(ends, default=1.0))
    low, high = ticks[0] / 4, ticks[-1] / 4  # a quarter: their difference is a number, too
    first = every[0].moment if every else 0.0
    span = every[-1].moment - first if every else 0.0

    def across(mark: Mark) -> float:
        return _LEFT + (_RIGHT - _LEFT) * ((mark.moment - first) / span if span else 0.5)

    def up(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * ((_finite(value) / 4 - low) / (high - low))

    def place(mark: Mark) -> Place:
        value = mark.value or 0.0
        return Place(
            mark=mark,
            x=across(mark),
            y=up(value),
            low=up(value - mark.spread),
            high=up(value + mark.spread),
        )

    def drawn(line: Line) -> Drawn:
        runs = groupby(line.marks, lambda mark: mark.value is not None)
        return Drawn(
            name=line.name,
            runs=tuple(tuple(map(place, run)) for is_known, run in runs if is_known),
        )

    labels = dict.fromkeys((across(mark), mark.name) for mark in every)
    return Chart(
        lines=tuple(map(drawn, lines)),
        values=tuple(
            Tick(at=up(one), text=text) for one, text in zip(ticks, tick_texts(ticks), strict=True)
        ),
        dates=tuple(_dates([*labels])),
        units=units,
    )


def _finite(value: float) -> float:
    """Return the nearest finite number."""
    return min(max(value, -sys.float_info.max), sys.float_info.max)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers at even steps of 1, 2 or 5 that hold both ends.

    Ends that differ by less than a chart can show have some room between them.
    """
    middle = low / 2 + high / 2
    if high / 2 - low / 2 <= max(abs(middle) * _EQUAL, _LEAST):
        room = abs(middle) / 10 if abs(middle) > _LEAST else 1.0
        low, high = _finite(middle - room), _finite(middle + room)
    rough = high / _TICKS - low / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * (1 - 1e-9))
    start, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [_finite(number * step) for number in range(start, end + 1)]


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Write ticks with the digits that tell them apart, all alike."""
    step = ticks[1] / 2 - ticks[0] / 2
    most = max(map(abs, ticks))
    digit = math.floor(math.log10(step) + math.log10(2) + 1e-9)
    if _SMALL <= most < _LARGE:
        return [f"{one:.{max(0, -digit)}f}" for one in ticks]
    digits = max(0, math.floor(math.log10(most)) - digit)
    return [f"{one:.{digits}e}" if one else "0" for one in ticks]


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
