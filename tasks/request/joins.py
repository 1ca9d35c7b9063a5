"""Which dates of a product a window of a reduction takes, where products differ in time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from modis.composites import composite_end, longest_composite
from tasks.request.document import ProductChoice, Request, Time, Use
from tasks.request.windows import Piece, Window, length, overlap, windows

_DAY = timedelta(days=1)
_STATIC_BACK = 366  # days: a yearly product has a date in any such time

Picked = tuple[date, float]
"""A date that a window takes, and its weight there."""


@dataclass(frozen=True, kw_only=True)
class Join:
    """How the dates of one product choice go to windows of time.

    `use` is as in the request, but "covering" where composites count by their days. The archive is
    searched from `first` to `last`. `back` and `ahead` are the days before and after a window in
    which a date may lie. `weighted`: a composite's weight is the share of its days in the window.
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
        """Whether a window takes one date among several, instead of all that belong to it."""
        return self.use in ("nearest", "previous", "static")

    def wants(self, day: date) -> bool:
        """Whether a window may take a date."""
        match self.use:
            case "same-day":
                return self.span.holds(day)
            case "covering":
                return self._covers(day)
            case "static":
                return self.first <= day <= self.span.start + timedelta(days=self.ahead)
            case _:
                return self.first <= day <= self.last

    def pick(self, window: Window, days: Iterable[date]) -> list[Picked]:
        """Return the dates among `days` that a window takes, in order, with their weights."""
        there = sorted(day for day in days if self.wants(day))
        if self.chooses:
            return [(day, 1.0) for day in sorted({*self._choose(window, there)})]
        if self.use == "same-day":
            return [(day, 1.0) for day in there if window.shared_days(day, day)]
        found = []
        for day in there:
            end = composite_end(day, self.period)
            if any(
                overlap((max(day, first), min(end, last)), held)
                for first, last in window.pieces
                for held in self.span.pieces
            ):
                share = window.shared_days(day, end) / ((end - day).days + 1)
                found.append((day, share if self.weighted else 1.0))
        return found

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

    def _covers(self, day: date) -> bool:
        end = composite_end(day, self.period)
        return any(overlap((day, end), held) for held in self.span.pieces)

    def _choose(self, window: Window, there: Sequence[date]) -> Iterable[date]:
        if self.use == "static":
            before = [day for day in there if day <= self.span.start]
            return before[-1:] or there[:1]
        found = []
        for first, last in window.pieces:
            end = first if self.use == "previous" else last + timedelta(days=self.ahead)
            near = [day for day in there if first - timedelta(days=self.back) <= day <= end]
            if near and self.use == "previous":
                found.append(near[-1])
            elif near:
                middle = first.toordinal() + last.toordinal()
                found.append(min(near, key=lambda day: abs(self._middle(day) - middle)))
        return found

    def _middle(self, day: date) -> int:
        """Return twice the middle of a composite, as an ordinal."""
        return day.toordinal() + composite_end(day, self.period).toordinal()


class StepJoin:
    """Which windows of an earlier step go to the windows of a later one.

    A window takes those that begin in it; if the earlier step's are longer (a climatology's month
    for a day), those that share a day with it. With `weight: days`, shorter ones count by the share
    of their days in it. A window that began before `time` begins on its first day.
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

    def pick(self, window: Window) -> list[tuple[Window, float]]:
        """Return the earlier step's windows that a window takes, in order, with their weights."""
        shared: dict[str, int] = {}
        found: dict[str, Window] = {}
        for day in _days(window.pieces, self._span):
            one = self._of_day[day]
            if self._weighted or self._longer or day in self._begun:
                found[one.name] = one
                shared[one.name] = shared.get(one.name, 0) + 1
        ordered = sorted(found.values(), key=lambda one: (one.first, one.name))
        return [
            (one, shared[one.name] / self._days[one.name] if self._weighted else 1.0)
            for one in ordered
        ]


def _days(pieces: Iterable[Piece], span: Time) -> Iterator[date]:
    """Yield the days of a window that the request asks for."""
    for first, last in pieces:
        for begin, end in span.pieces:
            day = max(first, begin)
            while day <= min(last, end):
                yield day
                day += _DAY
