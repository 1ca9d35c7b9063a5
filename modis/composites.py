"""The days that composites cover: products of several days, a month or a year."""

from calendar import isleap, monthrange
from datetime import date, timedelta

MONTHLY = range(28, 32)
"""Periods in days that mean a calendar month."""

YEARLY = 365
"""The shortest period in days that means a calendar year."""


def composite_end(start: date, period: int) -> date:
    """Return the last day that a composite covers.

    The year's last composite is cut short, because a new one starts on January 1st (MODIS land
    composites of 4, 8 and 16 days). A month and a year have their own lengths; the year of some
    products begins in March (MOD44B).
    """
    if period in MONTHLY:
        return start.replace(day=monthrange(start.year, start.month)[1])
    if period >= YEARLY:
        return start + timedelta(days=366 if _leap_day_follows(start) else 365) - timedelta(days=1)
    return min(start + timedelta(days=period - 1), date(start.year, 12, 31))


def _leap_day_follows(start: date) -> bool:
    """Whether a 29 February lies in the year that begins on a day."""
    year = start.year if start <= date(start.year, 2, 28) else start.year + 1
    return isleap(year)


def longest_composite(period: int) -> int:
    """Return the days that a composite of this period covers at most."""
    if period in MONTHLY:
        return MONTHLY[-1]
    return YEARLY + 1 if period >= YEARLY else period
