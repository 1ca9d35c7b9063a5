"""Charts: values by date or over another value, and bars, with ticks and what each mark says.

A chart is numbers for one template (`chart.html`): places are in percent of its plot, so that its
texts keep their size on every screen. `chart.js` adds what needs a script.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

_LEFT, _RIGHT = 1.0, 98.0  # percent: the labels of values are beside it
_TOP, _BOTTOM = 6.0, 92.0
_TICKS = 4
_APART = 18.0  # percent between the labels of two dates
_MANY = 100  # bars; of more those of nothing are not drawn
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
    """The marks of one thing, which are in the order of time; `name` is "" where there is one.

    They are joined unless they are points; a plain line has no marks that one can point at.
    """

    marks: Sequence[Mark]
    name: str = ""
    is_points: bool = False
    is_plain: bool = False


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: its name, its parts from below (a class of the page's styles, a value), its text.

    `address` is where it leads; `behind` is the value of a paler bar behind it.
    """

    name: str
    parts: Sequence[tuple[str, float]]
    text: str
    address: str = ""
    behind: float | None = None


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
    is_points: bool = False
    is_plain: bool = False

    @property
    def places(self) -> tuple[Place, ...]:
        """All marks that have a value."""
        return tuple(place for run in self.runs for place in run)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A bar as it is drawn: its left edge and width, and of each part its class, top and height."""

    bar: Bar
    x: float
    width: float
    parts: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Values over time, of one thing or of several; or bars."""

    values: tuple[Tick, ...]
    dates: tuple[Tick, ...]
    units: str
    lines: tuple[Drawn, ...] = ()
    columns: tuple[Column, ...] = ()

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


def chart(lines: Sequence[Line], units: str, *, has_dates: bool = True) -> Chart:
    """Lay lines out over one axis of time; marks without a value have their date.

    Without dates the axis below has round numbers, as marks have any number in place of a time.
    """
    every = sorted((mark for line in lines for mark in line.marks), key=lambda mark: mark.moment)
    ends = [
        _finite(mark.value + way * mark.spread)
        for mark in every
        if mark.value is not None
        for way in (-1, 1)
    ]
    ticks = _ticks(min(ends, default=0.0), max(ends, default=1.0))
    up = _Axis.of((ticks[0], ticks[-1]), (_BOTTOM, _TOP))
    moments = [mark.moment for mark in every] or [0.0]
    below = [] if has_dates else _ticks(moments[0], moments[-1])
    along = below or moments
    across = _Axis.of((along[0], along[-1]), (_LEFT, _RIGHT))

    def place(mark: Mark) -> Place:
        value = mark.value or 0.0
        return Place(
            mark=mark,
            x=across(mark.moment),
            y=up(value),
            low=up(value - mark.spread),
            high=up(value + mark.spread),
        )

    def drawn(line: Line) -> Drawn:
        runs = groupby(line.marks, lambda mark: mark.value is not None)
        return Drawn(
            name=line.name,
            runs=tuple(tuple(map(place, run)) for is_known, run in runs if is_known),
            is_points=line.is_points,
            is_plain=line.is_plain,
        )

    labels = dict.fromkeys((across(mark.moment), mark.name) for mark in every)
    return Chart(
        lines=tuple(map(drawn, lines)),
        values=_numbers(ticks, up),
        dates=tuple(_labels([*labels])) if has_dates else _numbers(below, across),
        units=units,
    )


def bars(
    every: Sequence[Bar], units: str, *, least: float, edges: tuple[float, float] | None = None
) -> Chart:
    """Lay bars out side by side, over an axis that reaches at least so far up.

    The axis below has the bars' names, or numbers if the bars together go from one to the other.
    """
    tops = [sum(value for _, value in bar.parts) for bar in every]
    most = max([least, *tops, *(bar.behind or 0.0 for bar in every)])
    ticks = _ticks(0.0, most)
    up = _Axis.of((ticks[0], ticks[-1]), (_BOTTOM, _TOP))
    width = (_RIGHT - _LEFT) / max(1, len(every))
    columns = []
    for number, bar in enumerate(every):
        if len(every) > _MANY and not (bar.behind or any(value for _, value in bar.parts)):
            continue
        parts, top = [], 0.0
        if bar.behind is not None:
            parts.append(("behind", up(bar.behind), up(0.0) - up(bar.behind)))
        for kind, value in bar.parts:
            parts.append((kind, up(top + value), up(top) - up(top + value)))
            top += value
        columns.append(Column(bar=bar, x=_LEFT + width * number, width=width, parts=tuple(parts)))
    if edges is None:
        dates = tuple(
            _labels([(_LEFT + width * (n + 0.5), bar.name) for n, bar in enumerate(every)])
        )
    else:
        below = [one for one in _ticks(*edges) if edges[0] <= one <= edges[1]]
        dates = _numbers(below, _Axis.of(edges, (_LEFT, _RIGHT)))
    return Chart(values=_numbers(ticks, up), dates=dates, units=units, columns=tuple(columns))


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """Where numbers lie between two places in percent."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def of(cls, numbers: tuple[float, float], places: tuple[float, float]) -> "_Axis":
        """Return the axis on which two numbers have two places."""
        low, high = (number / 4 for number in numbers)  # a quarter: their difference is a number
        return cls(low=low, high=high, start=places[0], end=places[1])

    def __call__(self, number: float) -> float:
        span = self.high - self.low
        share = (_finite(number) / 4 - self.low) / span if span else 0.5
        return self.start + (self.end - self.start) * share


def _numbers(ticks: Sequence[float], axis: _Axis) -> tuple[Tick, ...]:
    """Return ticks with their texts."""
    if not ticks:
        return ()
    texts = tick_texts(ticks) if len(ticks) > 1 else [f"{ticks[0]:g}"]
    return tuple(Tick(at=axis(one), text=text) for one, text in zip(ticks, texts, strict=True))


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


def _labels(every: Sequence[tuple[float, str]]) -> Iterator[Tick]:
    """Yield the first label, the last one, and those between them that have room."""
    if not every:
        return
    last = every[-1]
    at = -math.inf
    for x, text in every:
        is_end = (x, text) in (every[0], last)
        if is_end or (x - at >= _APART and last[0] - x >= _APART):
            yield Tick(at=x, text=text, is_end=is_end)
            at = x
