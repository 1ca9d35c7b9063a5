"""Read the parameter `datetime` of OGC API: a time or an interval (RFC 3339)."""

import datetime as dt
from dataclasses import dataclass
from typing import Self

from portal.core.problems import BadCallError

_FIRST = dt.datetime.min.replace(tzinfo=dt.UTC)
_LAST = dt.datetime.max.replace(tzinfo=dt.UTC)
_OPEN = ("", "..")


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A span of time, both ends included."""

    start: dt.datetime = _FIRST
    end: dt.datetime = _LAST

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "TIME", "TIME/TIME", "../TIME" or "TIME/.."; "" is all time.

        A day stands for all of it. Raises BadCallError for anything else.
        """
        if not text:
            return cls()
        first, slash, last = text.partition("/")
        if not slash:
            last = first
        if (first in _OPEN and last in _OPEN) or "/" in last:
            raise _wrong(text)
        try:
            start = _FIRST if first in _OPEN else _moment(first, end=False)
            end = _LAST if last in _OPEN else _moment(last, end=True)
        except ValueError:
            raise _wrong(text) from None
        if end < start:
            raise _wrong(text)
        return cls(start=start, end=end)

    def meets(self, start: dt.datetime, end: dt.datetime) -> bool:
        """Whether a span has a moment in common with this one."""
        return start <= self.end and end >= self.start


def _moment(text: str, *, end: bool) -> dt.datetime:
    if len(text) == len("2012-04-14"):
        day = dt.datetime.combine(dt.date.fromisoformat(text), dt.time(), dt.UTC)
        return day + dt.timedelta(days=1, microseconds=-1) if end else day
    moment = dt.datetime.fromisoformat(text.upper())
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.astimezone(dt.UTC)


def _wrong(text: str) -> BadCallError:
    return BadCallError(
        f"{text!r} is neither a time nor an interval.",
        "Write 2012-04-14T00:00:00Z, or 2012-04-01/2012-04-30, with .. for an open end.",
        field="datetime",
    )
