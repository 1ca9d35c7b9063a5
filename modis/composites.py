"""The days that composites cover: products of several days, a month or a year."""

from calendar import isleap, monthrange
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

MONTHLY = range(28, 32)
"""Periods in days that mean a calendar month."""

_GOES_ON = 16  # days: from this period on, the year's last composite is not cut short

YEARLY = 365
"""The shortest period in days that means a calendar year."""


def composite_end(start: date, period: int) -> date:
    """Return the last day that a composite covers.

    The year's last composite of 4 or 8 days is cut short, because a new one starts on January 1st
    (the range dates of MOD17A2HGF and MOD21A2). One of 16 days goes on into the next year: the
    production periods of MOD13 end with "353-2/3", those of MYD13 with "361-10/11". A month and a
    year have their own lengths; the year of some products begins in March (MOD44B).
    """
    if period in MONTHLY:
        return start.replace(day=monthrange(start.year, start.month)[1])
    if period >= YEARLY:
        return start + timedelta(days=366 if _leap_day_follows(start) else 365) - timedelta(days=1)
    end = start + timedelta(days=period - 1)
    return end if period >= _GOES_ON else min(end, date(start.year, 12, 31))


def last_day(start: date, period: int, ends: Iterable[datetime]) -> date:
    """Return the last day that a composite covers, by its granules' own ends in UTC.

    `ends` are those that the granules or their archive state; one within the first day says nothing
    of a composite, as archives that know a granule by its name alone give it. Without any, it is
    the day of `composite_end`. An end at midnight is exclusive, unless that is the day expected.
    Products of one day cover that day: the range dates of some are those of all observations that
    went into it (MCD43).
    """
    return start if period <= 1 else own_last_day(start, composite_end(start, period), ends)


def own_last_day(start: date, expected: date, ends: Iterable[datetime]) -> date:
    """Return the last day of a composite by its granules' own ends; without any, `expected`.

    `last_day` says how ends are read.
    """
    said = [_inclusive(end, expected) for end in ends]
    own = [day for day in said if day > start]
    return max(own, default=expected)


def _inclusive(end: datetime, expected: date) -> date:
    if end.time() == time() and end.date() != expected:
        return end.date() - timedelta(days=1)
    return end.date()


class Counted(NamedTuple):
    """How a window counts one of its inputs.

    Attributes:
        days: How many of the days that it covers count in the window.
        share: Those as a share of all days that it covers; a total counts by it.
        weight: What a mean counts it by: its `days` where the request weighs by days, else 1.
    """

    days: int = 1
    share: float = 1.0
    weight: float = 1.0

    @classmethod
    def by_days(cls, inside: int, covered: int) -> "Counted":
        """Count by the days in the window, of all that it covers."""
        return cls(days=inside, share=inside / covered, weight=float(inside))


def _leap_day_follows(start: date) -> bool:
    """Tell whether a 29 February lies in the year that begins on a day."""
    year = start.year if start <= date(start.year, 2, 28) else start.year + 1
    return isleap(year)


def longest_composite(period: int) -> int:
    """Return the days that a composite of this period covers at most."""
    if period in MONTHLY:
        return MONTHLY[-1]
    return YEARLY + 1 if period >= YEARLY else period
