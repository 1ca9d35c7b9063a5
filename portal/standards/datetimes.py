"""Read the parameter `datetime` of OGC API: a time or an interval (RFC 3339)."""

import datetime as dt
import re
from dataclasses import dataclass
from typing import Self

from portal.serving.problems import BadCallError

_FIRST = dt.datetime.min.replace(tzinfo=dt.UTC)
_LAST = dt.datetime.max.replace(tzinfo=dt.UTC)
_OPEN = ("", "..")
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A span of time, both ends included."""

    start: dt.datetime = _FIRST
    end: dt.datetime = _LAST

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "TIME", "TIME/TIME", "../TIME" or "TIME/.."; "" is all time.

        Raises BadCallError for anything else: days alone are none of the standard's.
        """
        if not text:
            return cls()
        first, slash, last = text.partition("/")
        if not slash:
            last = first
        if (first in _OPEN and last in _OPEN) or "/" in last:
            raise _wrong(text)
        try:
            start = _FIRST if first in _OPEN else _moment(first)
            end = _LAST if last in _OPEN else _moment(last)
        except (ValueError, OverflowError):  # the years 1 to 9999 are those of UTC
            raise _wrong(text) from None
        if end < start:
            raise _wrong(text)
        return cls(start=start, end=end)

    def meets(self, start: dt.datetime, end: dt.datetime) -> bool:
        """Tell whether a span has a moment in common with this one."""
        return start <= self.end and end >= self.start


def _moment(text: str) -> dt.datetime:
    if not _RFC_3339.fullmatch(text.upper()):
        raise ValueError(text)
    return dt.datetime.fromisoformat(text.upper()).astimezone(dt.UTC)


def _wrong(text: str) -> BadCallError:
    return BadCallError(
        f"{text!r} is neither a time of RFC 3339 nor an interval of such times.",
        "Write 2012-04-14T00:00:00Z, or 2012-04-01T00:00:00Z/2012-04-30T23:59:59Z, with .. for an "
        "open end.",
        field="datetime",
    )
