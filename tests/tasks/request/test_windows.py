"""Windows of time: their names, their pieces, the days that none leaves out."""

import datetime as dt
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modis.composites import composite_end
from tasks.errors import RequestRefusedError
from tasks.request.document import Time, dump_request, parse_request
from tasks.request.windows import Window, enclosing, overlap, windows

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
YEAR = Time(start=dt.date(2012, 1, 1), end=dt.date(2012, 12, 31))
KINDS = (
    "date",
    "5-day",
    "8-day",
    "30-day",
    "month",
    "season",
    "year",
    "all",
    "day-of-year",
    "8-day-of-year",
    "month-of-year",
    "season-of-year",
)


def named(day: str, kind: str, span: Time = YEAR) -> tuple[str, str, str]:
    """The window of a day: its name, and the first and last day of the piece around the day."""
    wanted = dt.date.fromisoformat(day)
    for window in windows(kind, span):
        for first, last in window.pieces:
            if first <= wanted <= last:
                return window.name, first.isoformat(), last.isoformat()
    raise AssertionError(f"no window has {day}")


@pytest.mark.parametrize(
    ("kind", "day", "window"),
    [
        ("date", "2012-03-05", ("2012-03-05", "2012-03-05", "2012-03-05")),
        ("month", "2012-02-05", ("2012-02", "2012-02-01", "2012-02-29")),
        ("year", "2012-03-05", ("2012", "2012-01-01", "2012-12-31")),
        ("all", "2012-03-05", ("2012-01-01_2012-12-31", "2012-01-01", "2012-12-31")),
        ("8-day", "2012-02-10", ("2012-041", "2012-02-10", "2012-02-17")),
        ("8-day", "2012-12-31", ("2012-361", "2012-12-26", "2012-12-31")),
        ("16-day", "2012-01-16", ("2012-001", "2012-01-01", "2012-01-16")),
        ("30-day", "2012-01-31", ("2012-031", "2012-01-31", "2012-02-29")),
        ("season", "2012-02-05", ("2012-DJF", "2011-12-01", "2012-02-29")),
        ("season", "2012-03-05", ("2012-MAM", "2012-03-01", "2012-05-31")),
        ("season", "2012-07-05", ("2012-JJA", "2012-06-01", "2012-08-31")),
        ("season", "2012-11-30", ("2012-SON", "2012-09-01", "2012-11-30")),
        ("season", "2012-12-05", ("2013-DJF", "2012-12-01", "2013-02-28")),
        ("day-of-year", "2012-02-10", ("day-041", "2012-02-10", "2012-02-10")),
        ("8-day-of-year", "2012-02-11", ("day-041", "2012-02-10", "2012-02-17")),
        ("month-of-year", "2012-02-05", ("month-02", "2012-02-01", "2012-02-29")),
        ("season-of-year", "2012-12-05", ("DJF", "2012-12-01", "2013-02-28")),
    ],
)
def test_names_and_days_of_windows(kind: str, day: str, window: tuple[str, str, str]) -> None:
    assert named(day, kind) == window


def test_a_window_that_recurs_has_a_piece_in_each_year() -> None:
    span = Time(start=dt.date(2010, 12, 15), end=dt.date(2013, 1, 15))
    found = {window.name: window for window in windows("season-of-year", span)}
    winter = found["DJF"]
    assert [first.year for first, _ in winter.pieces] == [2010, 2011, 2012]
    assert winter.last == dt.date(2013, 2, 28)
    assert [*found][-1] == "DJF"  # it is complete last


@given(
    start=st.dates(dt.date(2010, 1, 1), dt.date(2012, 12, 31)),
    days=st.integers(1, 800),
    kind=st.sampled_from(KINDS),
)
def test_each_day_is_in_one_window_and_each_window_has_a_day(
    start: dt.date, days: int, kind: str
) -> None:
    span = Time(start=start, end=start + dt.timedelta(days=days - 1))
    found = windows(kind, span)
    assert len({window.name for window in found}) == len(found)
    assert [w.last for w in found] == sorted(w.last for w in found)
    assert all(window.shared_days(span.start, span.end) for window in found)
    assert sum(window.shared_days(span.start, span.end) for window in found) == days


SPANS = st.builds(
    lambda start, days: Time(start=start, end=start + dt.timedelta(days=days - 1)),
    st.dates(dt.date(2010, 1, 1), dt.date(2012, 12, 31)),
    st.integers(1, 800),
)


def midnights(window: Window) -> tuple[dt.datetime, dt.datetime]:
    """The bounds of a window by CF, as times."""
    first, last = window.time.bounds
    return EPOCH + dt.timedelta(days=first), EPOCH + dt.timedelta(days=last)


@given(span=SPANS, kind=st.sampled_from([kind for kind in KINDS if "of-year" not in kind]))
def test_bounds_of_windows_touch_without_overlap_or_gap(span: Time, kind: str) -> None:
    """From the first midnight to the midnight after the last day; the last second before that."""
    found = windows(kind, span)
    for before, after in pairwise(found):
        assert midnights(before)[1] == midnights(after)[0]
    for window in found:
        first, last = midnights(window)
        assert first == dt.datetime.fromisoformat(window.time.start)
        assert last == dt.datetime.fromisoformat(window.time.end) + dt.timedelta(seconds=1)
        assert not window.time.recurs
    assert enclosing(kind, span) == (found[0].first, found[-1].last)
    assert found[0].first <= span.start <= span.end <= found[-1].last


@given(span=SPANS, kind=st.sampled_from([kind for kind in KINDS if "of-year" in kind]))
def test_days_of_climatologies_touch_and_their_bounds_go_from_first_to_last_year(
    span: Time, kind: str
) -> None:
    found = windows(kind, span)
    parts = sorted(part for window in found for part in window.time.days)
    for (_, before), (after, _) in pairwise(parts):
        assert after - before == dt.timedelta(days=1)
    for window in found:
        first, last = midnights(window)
        assert first.date() == min(first for first, _ in window.time.days)
        assert last.date() == max(last for _, last in window.time.days) + dt.timedelta(days=1)
        assert window.time.recurs
    assert enclosing(kind, span) == (parts[0][0], parts[-1][1])


@given(kind=st.sampled_from([kind for kind in KINDS if kind != "all" and "of-year" not in kind]))
def test_bounds_of_a_window_do_not_depend_on_the_time_of_the_request(kind: str) -> None:
    """Of a part of a month too they are the month."""
    every = {window.name: window.time for window in windows(kind, YEAR)}
    part = Time(start=dt.date(2012, 2, 10), end=dt.date(2012, 4, 20))
    summers = Time(start=YEAR.start, end=YEAR.end, every={"from": "06-10", "to": "08-20"})
    for span in (part, summers):
        for window in windows(kind, span):
            assert window.time == every[window.name]


def test_the_last_day_there_is_has_bounds() -> None:
    (window,) = windows("year", Time(start=dt.date.max, end=dt.date.max))
    assert window.time.end == "9999-12-31T23:59:59Z"
    assert window.time.bounds[1] - window.time.bounds[0] == 365.0


def test_of_a_season_of_each_year_there_are_only_its_windows() -> None:
    span = Time(
        start=dt.date(2010, 1, 1),
        end=dt.date(2012, 12, 31),
        every={"from": "06-01", "to": "08-31"},
    )
    assert [window.name for window in windows("month", span)] == [
        f"{year}-{month:02d}" for year in (2010, 2011, 2012) for month in (6, 7, 8)
    ]
    assert span.days == 3 * 92
    assert not span.holds(dt.date(2011, 5, 31))
    assert next(d for d in span.each_day() if d.year == 2011) == dt.date(2011, 6, 1)


def document(**changes: Any) -> dict[str, Any]:
    return {
        "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
        "region": {"tiles": ["h18v03"]},
        "time": {"start": "2012-01-01", "end": "2013-12-31"},
        "grid": {"modis": 1000},
        **changes,
    }


def test_a_season_may_pass_new_year_and_is_kept_with_the_request() -> None:
    span = {
        "start": "2012-01-01",
        "end": "2013-12-31",
        "every": {"from": "12-01", "to": "02-29"},
    }
    request = parse_request(document(time=span))
    assert [(a.isoformat(), b.isoformat()) for a, b in request.time.pieces] == [
        ("2012-01-01", "2012-02-29"),
        ("2012-12-01", "2013-02-28"),
        ("2013-12-01", "2013-12-31"),
    ]
    assert '"every": {"from": "12-01", "to": "02-29"}' in dump_request(request)


@pytest.mark.parametrize(
    ("change", "field", "word"),
    [
        ({"from": "02-30", "to": "03-01"}, "time.every.from", "06-01"),
        ({"from": "june", "to": "07-01"}, "time.every.from", "06-01"),
        ({"from": "06-01"}, "time.every.to", ""),
    ],
)
def test_a_season_that_is_none_is_refused(change: dict[str, str], field: str, word: str) -> None:
    span = {"start": "2012-01-01", "end": "2013-12-31", "every": change}
    with pytest.raises(RequestRefusedError) as caught:
        parse_request(document(time=span))
    assert caught.value.field == field
    assert word in str(caught.value)


def test_a_time_without_a_day_of_its_season_is_refused() -> None:
    every = {"from": "06-01", "to": "06-30"}
    with pytest.raises(RequestRefusedError, match="season") as caught:
        parse_request(document(time={"start": "2012-01-01", "end": "2012-02-01", "every": every}))
    assert caught.value.field == "time"


@pytest.mark.parametrize("kind", ["1-day", "0-day", "367-day", "week", "month-of-years"])
def test_what_is_no_window_is_refused(kind: str) -> None:
    reduction = {"package": "mean", "group_by": ["cell", kind]}
    with pytest.raises(RequestRefusedError, match="not a way to group"):
        parse_request(document(reduction=reduction))


@pytest.mark.parametrize(
    ("start", "period", "end"),
    [
        ("2012-01-25", 8, "2012-02-01"),
        ("2012-12-26", 8, "2012-12-31"),
        ("2012-12-18", 16, "2013-01-02"),
        ("2011-12-19", 16, "2012-01-03"),
        ("2020-12-26", 16, "2021-01-10"),
        ("2012-02-01", 30, "2012-02-29"),
        ("2012-01-01", 365, "2012-12-31"),
        ("2013-01-01", 365, "2013-12-31"),
        ("2011-03-06", 365, "2012-03-05"),
        ("2012-03-05", 365, "2013-03-04"),
    ],
)
def test_the_last_day_of_a_composite(start: str, period: int, end: str) -> None:
    found = composite_end(dt.date.fromisoformat(start), period)
    assert found == dt.date.fromisoformat(end)


def test_overlap_of_pieces() -> None:
    day = dt.date(2012, 1, 1)
    assert overlap((day, day), (day, day)) == 1
    assert overlap((day, day), (dt.date(2012, 1, 2), dt.date(2012, 1, 9))) == 0
