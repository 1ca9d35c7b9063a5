"""Which dates of a product a window of a reduction takes, where products differ in time."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from modis.composites import Counted, composite_end, longest_composite
from tasks.request.document import ProductChoice, Request, Time, Use
from tasks.request.windows import Piece, Window, length, overlap, windows

_DAY = timedelta(days=1)
_STATIC_BACK = 366  # days: a yearly product has a date in any such time

Picked = tuple[date, Counted]
"""A date that a window takes, and how it counts there."""


@dataclass(frozen=True, kw_only=True)
class Join:
    """How the dates of one product choice go to windows of time.

    `use` is as in the request, but "covering" where composites count by their days. The archive is
    searched from `first` to `last`. `back` and `ahead` are the days before and after a window in
    which a date may lie. `weighted`: a composite counts in each window by its days there.

    Which days a composite covers is what its granules state (`modis.composites.last_day`); before
    they are known, `composites` gives what is expected of them.
    """

    use: Use
    period: int
    span: Time
    first: date
    last: date
    back: int
    ahead: int
    weighted: bool

    @classmethod
    def of(cls, choice: ProductChoice, period: int, request: Request) -> "Join":
        """Return the join of a product choice whose composites cover `period` days."""
        span, use, back, ahead = request.time, choice.use, choice.look_back, choice.look_ahead
        weighted = request.weight == "days" and use in ("same-day", "covering")
        if weighted:
            use = "covering"
        if use in ("same-day", "covering"):
            back = longest_composite(period) - 1 if use == "covering" else 0
            ahead = 0
        elif back is None:
            back = _STATIC_BACK if use == "static" else longest_composite(period)
        if ahead is None:
            ahead = longest_composite(period) if use == "nearest" else 0
        first, last = span.start, span.end
        if use in ("nearest", "previous"):
            kinds = {step.window_kind for step in request.steps}
            found = [window for kind in sorted(kinds) for window in windows(kind, span)]
            first = min([first, *(window.first for window in found)])
            last = max([last, *(window.last for window in found)]) if use == "nearest" else last
        return cls(
            use=use,
            period=period,
            span=span,
            first=first - timedelta(days=back),
            last=last + timedelta(days=ahead),
            back=back,
            ahead=ahead,
            weighted=weighted,
        )

    @property
    def chooses(self) -> bool:
        """True if a window takes one date among several, instead of all that belong to it."""
        return self.use in ("nearest", "previous", "static")

    def composites(self, days: Iterable[date]) -> dict[date, date]:
        """Return the last day that each composite is expected to cover, by its first day."""
        return {day: composite_end(day, self.period) for day in days}

    def wants(self, day: date, last: date | None = None) -> bool:
        """Tell whether a window may take a date, whose composite covers the days until `last`."""
        match self.use:
            case "same-day":
                return self.span.holds(day)
            case "covering":
                end = last or composite_end(day, self.period)
                return any(overlap((day, end), held) for held in self.span.pieces)
            case "static":
                return self.first <= day <= self.span.start + timedelta(days=self.ahead)
            case _:
                return self.first <= day <= self.last

    def pick(self, window: Window, days: Mapping[date, date]) -> list[Picked]:
        """Return the dates that a window takes, in order, and how each counts.

        `days` has the last day that a composite covers by its first day.
        """
        there = {day: days[day] for day in sorted(days) if self.wants(day, days[day])}
        if self.chooses:
            taken = sorted({*self._choose(window, there)})
        elif self.use == "same-day":
            taken = [day for day in there if window.shared_days(day, day)]
        else:
            taken = [day for day in there if self._shares(window, day, there[day])]
        return [(day, self._counted(window, day, there[day])) for day in taken]

    def _shares(self, window: Window, day: date, end: date) -> bool:
        return any(
            overlap((max(day, first), min(end, last)), held)
            for first, last in window.pieces
            for held in self.span.pieces
        )

    def _counted(self, window: Window, day: date, end: date) -> Counted:
        covered = (end - day).days + 1
        if not self.weighted:
            return Counted(days=covered)
        return Counted.by_days(window.shared_days(day, end), covered)

    def needed_from(self, first: date) -> date:
        """Return the earliest date that a window which begins on `first` or later may take."""
        return date.min if self.use == "static" else first - timedelta(days=self.back)

    def waits_for(self, window: Window) -> date:
        """Return the last day that must have been listed before the window is complete."""
        last = self.span.start if self.use == "static" else window.last
        return last + timedelta(days=self.ahead)

    @property
    def reach_text(self) -> str:
        """Describe in words where a date is looked for."""
        near = {"static": "the first day of the time", "previous": "the window's first day"}
        text = f"within {self.back} days before {near.get(self.use, 'the window')}"
        return f"{text} or {self.ahead} days after" if self.ahead else text

    def _choose(self, window: Window, there: Mapping[date, date]) -> Iterable[date]:
        if self.use == "static":
            before = [day for day in there if day <= self.span.start]
            return before[-1:] or [*there][:1]
        found = []
        for first, last in window.pieces:
            end = first if self.use == "previous" else last + timedelta(days=self.ahead)
            near = [day for day in there if first - timedelta(days=self.back) <= day <= end]
            if near and self.use == "previous":
                found.append(near[-1])
            elif near:
                middle = first.toordinal() + last.toordinal()
                found.append(min(near, key=lambda day: abs(_middle(day, there[day]) - middle)))
        return found


def _middle(first: date, last: date) -> int:
    """Return twice the middle of some days, as an ordinal."""
    return first.toordinal() + last.toordinal()


class StepJoin:
    """Which windows of an earlier step go to the windows of a later one.

    A window takes those that begin in it; if the earlier step's are longer (a climatology's month
    for a day), those that share a day with it. With `weight: days`, shorter ones count by their
    days in it. A window that began before `time` begins on its first day.
    """

    def __init__(self, earlier: str, later: str, request: Request) -> None:
        span = self._span = request.time
        self._longer = length(earlier, span) > length(later, span)
        self._weighted = request.weight == "days" and not self._longer
        self._of_day: dict[date, Window] = {}
        self._begun: set[date] = set()
        self._days: dict[str, int] = {}
        for window in windows(earlier, span):
            for piece in window.pieces:
                days = [*_days([piece], span)]
                self._begun.update(days[:1])
                self._of_day.update(dict.fromkeys(days, window))
                self._days[window.name] = self._days.get(window.name, 0) + len(days)

    def pick(self, window: Window) -> list[tuple[Window, Counted]]:
        """Return the earlier step's windows that a window takes, in order, and how each counts."""
        shared: dict[str, int] = {}
        found: dict[str, Window] = {}
        for day in _days(window.pieces, self._span):
            one = self._of_day[day]
            if self._weighted or self._longer or day in self._begun:
                found[one.name] = one
                shared[one.name] = shared.get(one.name, 0) + 1
        ordered = sorted(found.values(), key=lambda one: (one.first, one.name))
        return [(one, self._counted(shared[one.name], self._days[one.name])) for one in ordered]

    def _counted(self, inside: int, covered: int) -> Counted:
        if not self._weighted:
            return Counted(days=covered)
        return Counted.by_days(inside, covered)


def _days(pieces: Iterable[Piece], span: Time) -> Iterator[date]:
    """Yield the days of a window that the request asks for."""
    for first, last in pieces:
        for begin, end in span.pieces:
            day = max(first, begin)
            while day <= min(last, end):
                yield day
                day += _DAY
