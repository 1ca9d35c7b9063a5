"""How composites count in windows: a mean by their days, a total by their share of all days."""

import datetime as dt
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modis.composites import Counted, composite_end, last_day
from tasks.request.document import Request, parse_request
from tasks.request.joins import Join
from tasks.request.windows import windows

DAY = dt.timedelta(days=1)
KINDS = ("date", "8-day", "16-day", "month", "season", "year", "all")


def request(first: dt.date, last: dt.date, **more: object) -> Request:
    return parse_request(
        {
            "products": [{"name": "MOD11A2", "collection": "6.1", "layers": ["LST_Day_1km"]}],
            "region": {"tiles": ["h18v03"]},
            "time": {"start": first.isoformat(), "end": last.isoformat()},
            "grid": {"modis": 1000},
            **more,
        }
    )


def counted(
    asked: Request, kind: str, period: int, lasts: Mapping[dt.date, dt.date]
) -> dict[str, dict[dt.date, Counted]]:
    """By window: its dates, and how they count."""
    join = Join.of(asked.products[0], period, asked)
    return {window.name: dict(join.pick(window, lasts)) for window in windows(kind, asked.time)}


def starts(first: dt.date, last: dt.date, period: int) -> dict[dt.date, dt.date]:
    """Composites that begin anew on each January 1st, with their last days."""
    days = [first + n * DAY for n in range((last - first).days + 1)]
    kept = [day for day in days if (day.timetuple().tm_yday - 1) % period == 0]
    return {day: composite_end(day, period) for day in kept}


def test_the_last_five_days_of_a_year_count_five() -> None:
    """December to February of 8 days, by hand."""
    asked = request(dt.date(2011, 12, 1), dt.date(2012, 2, 29), weight="days")
    lasts = starts(dt.date(2011, 11, 17), dt.date(2012, 2, 29), 8)
    season = counted(asked, "season", 8, lasts)["2012-DJF"]
    days = [2, 8, 8, 8, 5, 8, 8, 8, 8, 8, 8, 8, 4]
    assert [one.days for one in season.values()] == days
    assert [one.weight for one in season.values()] == days
    assert [one.share for one in season.values()] == [0.25, *[1.0] * 11, 0.5]
    values = {day: 250.0 if day == dt.date(2011, 12, 27) else 280.0 for day in season}
    assert weighted(season, values) == pytest.approx(278.352, abs=5e-4)
    december = counted(asked, "month", 8, lasts)["2011-12"]
    assert weighted(december, values) == pytest.approx(275.161, abs=5e-4)


def weighted(dates: Mapping[dt.date, Counted], values: Mapping[dt.date, float]) -> float:
    total = sum(one.weight for one in dates.values())
    return sum(one.weight * values[day] for day, one in dates.items()) / total


@settings(max_examples=60, deadline=None)
@given(
    period=st.sampled_from([1, 4, 8, 16, 30]),
    kind=st.sampled_from(KINDS),
    first=st.dates(dt.date(2002, 1, 1), dt.date(2022, 1, 1)),
    length=st.integers(1, 500),
)
def test_windows_share_out_the_days_of_each_composite(
    period: int, kind: str, first: dt.date, length: int
) -> None:
    """A composite that lies in the time asked for: its days and its total go to windows whole."""
    last = first + length * DAY
    asked = request(first, last, weight="days")
    days = [first.replace(day=1)] if period == 30 else [first]
    while days[-1] < last:
        days.append(composite_end(days[-1], period) + DAY)
    lasts = {day: composite_end(day, period) for day in days}
    found = counted(asked, kind, period, lasts)
    for day, end in lasts.items():
        if not (first <= day and end <= last):
            continue
        own = [window[day] for window in found.values() if day in window]
        assert sum(one.days for one in own) == (end - day).days + 1
        assert sum(one.share for one in own) == pytest.approx(1.0)
        assert all(one.weight == one.days > 0 for one in own)


@pytest.mark.parametrize("kind", KINDS)
def test_without_weights_each_date_counts_whole(kind: str) -> None:
    asked = request(dt.date(2011, 12, 1), dt.date(2012, 2, 29))
    lasts = starts(dt.date(2011, 12, 1), dt.date(2012, 2, 29), 8)
    for dates in counted(asked, kind, 8, lasts).values():
        for day, one in dates.items():
            assert one == Counted(days=(lasts[day] - day).days + 1)


def test_a_composite_covers_the_days_that_its_granules_state() -> None:
    day, midnight = dt.date(2025, 1, 1), dt.time(tzinfo=dt.UTC)
    late = dt.datetime(2025, 1, 16, 23, 59, 59, tzinfo=dt.UTC)
    assert last_day(day, 8, [late]) == dt.date(2025, 1, 16)
    assert last_day(day, 8, [late.replace(day=17, hour=0, minute=0, second=0)]) == late.date()
    on_time = dt.datetime.combine(dt.date(2025, 1, 8), midnight)
    assert last_day(day, 8, [on_time]) == on_time.date()
    # An archive that knows a granule by its name gives the end of its first day, or 5 minutes.
    assert last_day(day, 8, [late.replace(day=1)]) == dt.date(2025, 1, 8)
    assert last_day(day, 8, []) == dt.date(2025, 1, 8)
    assert last_day(day, 1, [late]) == day  # observations of 16 days, and a product of one


def test_composites_of_16_days_every_8_are_taken_by_their_own_days() -> None:
    first, second = dt.date(2025, 1, 1), dt.date(2025, 1, 9)
    lasts = {first: dt.date(2025, 1, 16), second: dt.date(2025, 1, 24)}
    asked = request(first, dt.date(2025, 1, 31), weight="days")
    found = counted(asked, "8-day", 8, lasts)  # whatever the catalogue expects
    assert {
        name: {d: one.days for d, one in own.items()} for name, own in found.items() if own
    } == {
        "2025-001": {first: 8},
        "2025-009": {first: 8, second: 8},
        "2025-017": {second: 8},
    }
