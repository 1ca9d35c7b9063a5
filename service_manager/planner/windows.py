"""Windows of time that a reduction groups by, and the share of a composite that lies in each."""

from calendar import monthrange
from collections.abc import Iterator
from datetime import date, timedelta

from tasks.request.document import Reduction, Time

MONTHLY = range(28, 32)
"""Periods in days that mean a calendar month."""


def window_of(day: date, kind: str, span: Time) -> str:
    """Return the name of a day's window: "2012-01-01", "2012-01", "2012" or the whole span."""
    match kind:
        case "date":
            return day.isoformat()
        case "month":
            return f"{day.year:04d}-{day.month:02d}"
        case "year":
            return f"{day.year:04d}"
    return f"{span.start.isoformat()}_{span.end.isoformat()}"


def window_start(window: str, kind: str, span: Time) -> date:
    """Return the first day of a window, by its name."""
    match kind:
        case "date":
            return date.fromisoformat(window)
        case "month":
            return date(int(window[:4]), int(window[5:]), 1)
        case "year":
            return date(int(window), 1, 1)
    return span.start


def window_end(window: str, kind: str, span: Time) -> date:
    """Return the last day of a window, by its name."""
    match kind:
        case "date":
            return date.fromisoformat(window)
        case "month":
            year, month = int(window[:4]), int(window[5:])
            return date(year, month, monthrange(year, month)[1])
        case "year":
            return date(int(window), 12, 31)
    return span.end


def window_kind(reduction: Reduction) -> str:
    """Return the unit of time by which a reduction groups."""
    return next(group for group in reduction.group_by if group != "cell")


def composite_days(start: date, period: int) -> int:
    """Return how many days a composite covers.

    The year's last composite is cut short, because a new one starts on January 1st (MODIS land
    composites of 4, 8 and 16 days). A month has its own length.
    """
    if period in MONTHLY:
        return monthrange(start.year, start.month)[1]
    return min(period, (date(start.year + 1, 1, 1) - start).days)


def shares(
    day: date, period: int, kind: str, span: Time, weight: str
) -> Iterator[tuple[str, float]]:
    """Yield the windows a granule of a start day belongs to, with its weight in each.

    By start day the window is one and the weight 1. With `weight` "days" it is the share of the
    composite's days inside the window; windows outside the request's span are left out.
    """
    if weight == "none":
        yield window_of(day, kind, span), 1.0
        return
    days = composite_days(day, period)
    last = window_of(span.end, kind, span)
    counts: dict[str, int] = {}
    for offset in range(days):
        one = day + timedelta(days=offset)
        name = window_of(one, kind, span)
        if one > span.end and name != last:
            break
        counts[name] = counts.get(name, 0) + 1
    for name, count in counts.items():
        yield name, count / days
