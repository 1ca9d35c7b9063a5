"""The windows of time that a reduction groups by.

| kind | its windows | name |
|---|---|---|
| `date` | days | `2012-02-10` |
| `8-day`, any number | so many days, counted from each January 1st | `2012-041` |
| `month`, `year` | of the calendar | `2012-02` |
| `season` | three months from December, March, ... on, by its January's year | `2012-DJF` |
| `all` | the whole time of the request | `2012-01-01_2012-12-31` |
| `day-of-year`, `8-day-of-year` | the same days of all years | `day-041` |
| `month-of-year`, `season-of-year` | the same of all years | `month-02`, `DJF` |
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

from reprojection.read.window_time import WindowTime
from tasks.request.document import Time

_SEASONS = ("DJF", "MAM", "JJA", "SON")
_DAY = timedelta(days=1)

Piece = tuple[date, date]
"""The first and last day of a part of a window, both included."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window of time; one that recurs has a piece in each year."""

    name: str
    pieces: tuple[Piece, ...]
    recurs: bool = False

    @cached_property
    def time(self) -> WindowTime:
        """Its days, as results tell them."""
        return WindowTime(days=self.pieces, recurs=self.recurs)

    @property
    def first(self) -> date:
        """Its first day."""
        return self.pieces[0][0]

    @property
    def last(self) -> date:
        """Its last day."""
        return self.pieces[-1][1]

    def shared_days(self, first: date, last: date) -> int:
        """Return how many days of a period lie in the window."""
        return self.time.shared_days(first, last)


def overlap(one: Piece, other: Piece) -> int:
    """Return how many days two pieces share."""
    return max(0, (min(one[1], other[1]) - max(one[0], other[0])).days + 1)


def length(kind: str, span: Time) -> int:
    """Return how many days a piece of a window has at most."""
    unit = kind.partition("-of-year")[0]
    days = re.fullmatch(r"([0-9]+)-day", unit)
    if days:
        return int(days[1])
    whole = (span.end - span.start).days + 1
    return {"date": 1, "day": 1, "month": 31, "season": 92, "year": 366}.get(unit, whole)


def windows(kind: str, span: Time) -> tuple[Window, ...]:
    """Return the windows that share a day with a request's time, by their last day."""
    pieces: dict[str, list[Piece]] = {}
    for name, piece in _pieces(kind, span):
        if any(overlap(piece, held) for held in span.pieces):
            pieces.setdefault(name, []).append(piece)
    recurs = kind.endswith("-of-year")
    found = [Window(name=name, pieces=tuple(own), recurs=recurs) for name, own in pieces.items()]
    return tuple(sorted(found, key=lambda window: window.last))


def enclosing(kind: str, span: Time) -> Piece:
    """Return the first and the last day of all windows of a request's time."""
    return _around(span.start, kind, span)[1], _around(span.end, kind, span)[2]


def _pieces(kind: str, span: Time) -> Iterator[tuple[str, Piece]]:
    day = span.start
    while day <= span.end:
        name, first, last = _around(day, kind, span)
        yield name, (first, last)
        if last == date.max:
            return
        day = last + _DAY


def _around(day: date, kind: str, span: Time) -> tuple[str, date, date]:
    """Return the window of a day: its name, and the first and last day of the piece around it."""
    unit, recurs, _ = kind.partition("-of-year")
    days = re.fullmatch(r"([0-9]+)-day", unit)
    if unit == "date":
        return day.isoformat(), day, day
    if unit == "day":
        return f"day-{day.timetuple().tm_yday:03d}", day, day
    if days:
        passed = (day.timetuple().tm_yday - 1) // int(days[1]) * int(days[1])
        first = date(day.year, 1, 1) + timedelta(days=passed)
        last = min(first + timedelta(days=int(days[1]) - 1), date(day.year, 12, 31))
        name = f"day-{passed + 1:03d}" if recurs else f"{day.year:04d}-{passed + 1:03d}"
        return name, first, last
    if unit == "month":
        first, last = day.replace(day=1), _month_end(day.year, day.month)
        name = f"month-{day.month:02d}" if recurs else f"{day.year:04d}-{day.month:02d}"
        return name, first, last
    if unit == "season":
        quarter = day.month % 12 // 3
        year = day.year + (day.month == 12)  # of the season's last month
        first = date(year, 3 * quarter, 1) if quarter else date(year - 1, 12, 1)
        name = _SEASONS[quarter] if recurs else f"{year:04d}-{_SEASONS[quarter]}"
        return name, first, _month_end(year, 3 * quarter + 2)
    if unit == "year":
        return f"{day.year:04d}", date(day.year, 1, 1), date(day.year, 12, 31)
    return f"{span.start.isoformat()}_{span.end.isoformat()}", span.start, span.end


def _month_end(year: int, month: int) -> date:
    return date(year, month, monthrange(year, month)[1])


NAME = (
    r"\d{4}(?:-\d\d){0,2}(?:_\d{4}-\d\d-\d\d)?|\d{4}-\d{3}|(?:\d{4}-)?(?:DJF|MAM|JJA|SON)"
    r"|day-\d{3}|month-\d\d"
)
"""A window's name, as a pattern."""


def begin(name: str) -> str:
    """Return where a window of this name begins, to sort and place it: an ISO date, or its front.

    Windows of all years are of the year 0000. Other names come back as they are.
    """
    year, _, part = name.rpartition("-")
    if part in _SEASONS:
        number = _SEASONS.index(part)
        if not year or number:
            return f"{year or '0000'}-{3 * number or 1:02d}"
        return f"{int(year) - 1:04d}-12"
    if year in ("day", "month"):
        year, part = "0000", part
    if len(part) == 3 and part.isdigit() and len(year) == 4:
        # Of a year of 366 days, so that there is a day of each number; 0000 is one, too.
        known = int(year) if int(year) else 2000
        at = date(known, 1, 1) + timedelta(days=int(part) - 1)
        return f"{year}-{at:%m-%d}"
    if year == "0000":
        return f"{year}-{part}"
    return name.partition("_")[0]
