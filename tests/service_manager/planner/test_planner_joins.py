"""Products that differ in time, joined in windows of a reduction; windows that lack one."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archives.model import GranuleRecord
from modis.tile import Tile
from service_manager.planner.plan_stream import PlanStream
from service_manager.planner.reductions import Groups
from service_manager.plans import stored_plan
from tasks.bag.spec import CollectSpec, GroupSpec, MosaicSpec, ReduceSpec, ReprojectSpec
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.requests.plan import Plan
from tasks.storage.blobs import MemoryBlobs
from tests.service_manager.shelf import LIMITS, Shelf, outputs, plan, specs, tile_granule

Make = Callable[..., Plan]
JANUARY = {"start": "2012-01-02", "end": "2012-01-04"}
SNOW = {"name": "MOD10A1", "collection": "6", "layers": ["NDSI_Snow_Cover"]}
LEAF = {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}
GLOBE = {"name": "MOD11C2", "collection": "6", "layers": ["LST_Day_CMG"]}
COVER = {"name": "MCD12Q1", "collection": "6", "layers": ["LC_Type1"]}


def days(first: str, last: str, step: int = 1) -> list[dt.date]:
    start, end = dt.date.fromisoformat(first), dt.date.fromisoformat(last)
    return [start + dt.timedelta(days=n) for n in range(0, (end - start).days + 1, step)]


def records(
    snow: Sequence[dt.date] = (), leaf: Sequence[dt.date] = (), cover: Sequence[dt.date] = ()
) -> list[GranuleRecord]:
    return [
        *(tile_granule(day, 18, 3, "MOD10A1", "6") for day in snow),
        *(tile_granule(day, 18, 3, "MCD15A2", "5") for day in leaf),
        *(tile_granule(day, 18, 3, "MCD12Q1", "6") for day in cover),
    ]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(
        there: Sequence[GranuleRecord],
        *products: dict[str, Any],
        requires: str = "all",
        window: str = "date",
        **changes: Any,
    ) -> Plan:
        own = tmp_path / "own"
        own.mkdir(exist_ok=True)
        own.joinpath("package.yaml").write_text(
            f"name: own\ncommand: [sh, own.sh]\noutputs: [et.tif]\nrequires: {requires}\n"
        )
        own.joinpath("own.sh").write_text("exit 0\n")
        request = parse_request(document(*products, window=window, **changes))
        return plan(request, Shelf(records=there), Packages([tmp_path]), LIMITS)

    return make


def document(*products: dict[str, Any], window: str = "date", **changes: Any) -> dict[str, Any]:
    return {
        "products": [*products],
        "region": {"tiles": ["h18v03"]},
        "time": JANUARY,
        "grid": {"modis": 1000},
        "reduction": {"package": "own", "group_by": ["cell", window]},
        "deliver": "results",
        **changes,
    }


def bands(found: Plan) -> dict[str, list[str]]:
    """By window: what each group gets, as product and day."""
    return {
        group.window: [f"{band.product} {band.day}" for band in group.bands]
        for group in specs(found, GroupSpec)
    }


def told(found: Plan) -> list[str]:
    return [f"{gap.what}: {gap.reason}" for gap in found.gaps]


def test_daily_eight_day_and_yearly_products_are_joined_by_day(make: Make) -> None:
    """The request that gave 103 empty runs of 106, and 310 gaps, with dates from 1 January on."""
    there = records(
        days("2011-12-20", "2012-01-20"),
        [*days("2011-12-27", "2011-12-27"), *days("2012-01-01", "2012-03-01", 8)],
        days("2011-01-01", "2011-01-01") + days("2012-01-01", "2012-01-01"),
    )
    found = make(there, SNOW, LEAF | {"use": "covering"}, COVER | {"use": "covering"})
    assert bands(found) == {
        f"2012-01-0{n}": [f"MOD10A1 2012-01-0{n}", "MCD15A2 2012-01-01", "MCD12Q1 2012-01-01"]
        for n in (2, 3, 4)
    }
    assert found.gaps == ()
    assert len(specs(found, CollectSpec)) == len(specs(found, ReprojectSpec)) == 5
    assert len(specs(found, ReduceSpec)) == 3
    assert found.notes[-1] == "own runs in 3 of 3 windows of time: 2012-01-02 to 2012-01-04."
    assert outputs(found) == [f"own/et/et.2012-01-0{n}.tif" for n in (2, 3, 4)]


def test_a_composite_that_began_before_the_first_day_counts_by_its_days(make: Make) -> None:
    there = records(leaf=[dt.date(2011, 12, 27), *days("2012-01-01", "2012-02-26", 8)])
    span = {"start": "2012-01-04", "end": "2012-02-03"}
    found = make(there, LEAF, requires="any", window="month", time=span, weight="days")
    january, february = specs(found, GroupSpec)
    weights = {band.day.isoformat(): band.counted.weight for band in january.bands}
    assert weights == {
        "2012-01-01": 8.0,
        "2012-01-09": 8.0,
        "2012-01-17": 8.0,
        "2012-01-25": 7.0,
    }
    weights = {band.day.isoformat(): band.counted.weight for band in february.bands}
    assert weights == {"2012-01-25": 1.0, "2012-02-02": 8.0}
    assert found.gaps == ()
    lacking = make(
        there[2:], LEAF, requires="any", window="month", time=span, weight="days", deliver="both"
    )
    assert [gap.what for gap in lacking.gaps] == ["MCD15A2.005 2012-01-01"]
    # The composite serves the reduction alone: its raster was not asked for.
    both = make(
        there, LEAF, requires="any", window="month", time=span, weight="days", deliver="both"
    )
    assert {spec.day.isoformat() for spec in specs(both, MosaicSpec) if spec.day} == {
        "2012-01-09",
        "2012-01-17",
        "2012-01-25",
        "2012-02-02",
    }


@pytest.mark.parametrize(
    ("use", "more", "taken"),
    [
        ("same-day", {}, [None, None, None]),
        ("previous", {}, ["2011-12-31", "2011-12-31", "2011-12-31"]),
        ("previous", {"look_back": 2}, ["2011-12-31", None, None]),
        ("nearest", {"look_back": 3, "look_ahead": 3}, ["2011-12-31", "2012-01-05", "2012-01-05"]),
        ("nearest", {"look_back": 0, "look_ahead": 1}, [None, None, "2012-01-05"]),
        ("static", {}, ["2011-12-31", "2011-12-31", "2011-12-31"]),
        ("static", {"look_back": 1}, [None, None, None]),
        ("static", {"look_back": 1, "look_ahead": 3}, ["2012-01-05", "2012-01-05", "2012-01-05"]),
    ],
)
def test_which_date_of_a_product_each_day_takes(
    make: Make, use: str, more: dict[str, int], taken: list[str | None]
) -> None:
    there = records(days("2012-01-02", "2012-01-04"), [dt.date(2011, 12, 31), dt.date(2012, 1, 5)])
    leaf = LEAF | {"name": "MOD10A1", "collection": "61", "layers": ["NDSI"], "use": use, **more}
    there = [
        *records(days("2012-01-02", "2012-01-04")),
        *(
            tile_granule(day, 18, 3, "MOD10A1", "61")
            for day in (dt.date(2011, 12, 31), dt.date(2012, 1, 5))
        ),
    ]
    if use == "previous" and not more:
        leaf["look_back"] = 30
    found = bands(make(there, SNOW, leaf, requires="any"))
    both = {
        f"2012-01-0{n}": [f"MOD10A1 2012-01-0{n}", *([f"MOD10A1 {day}"] if day else [])]
        for n, day in zip((2, 3, 4), taken, strict=True)
    }
    assert found == both


def test_nothing_is_fetched_of_dates_that_no_window_takes(make: Make) -> None:
    there = records(days("2012-01-02", "2012-01-04"), days("2011-11-01", "2012-01-31"))
    found = make(there, SNOW, LEAF | {"use": "previous", "look_back": 60})
    leaf = [s for s in specs(found, CollectSpec) if s.product == "MCD15A2"]
    assert len(leaf) == 3
    assert found.gaps == ()


def test_a_window_that_lacks_a_product_is_a_named_gap_and_no_run(make: Make) -> None:
    there = records(
        [dt.date(2012, 1, 2), dt.date(2012, 1, 4)], [dt.date(2012, 1, 1)], [dt.date(2012, 1, 1)]
    )
    found = make(there, SNOW, LEAF | {"use": "covering"}, COVER | {"use": "static"})
    assert [*bands(found)] == ["2012-01-02", "2012-01-04"]
    assert found.notes[-1] == "own runs in 2 of 3 windows of time: 2012-01-02 to 2012-01-04."
    assert told(found) == [
        "MOD10A1.006 2012-01-03: the archive has no granule of this date",
        "own 2012-01-03: not run: own needs every product, and MOD10A1.006 has no date",
    ]
    # Without what it requires, it runs on what is there.
    assert [*bands(make(there, SNOW, LEAF | {"use": "covering"}, requires="any"))] == [
        "2012-01-02",
        "2012-01-03",
        "2012-01-04",
    ]


def test_a_product_of_16_days_decides_which_days_are_run(make: Make) -> None:
    """Six dates in three months, one of which is missing: 5 runs and 2 gaps, not 86."""
    ndvi = {"name": "MOD13A2", "collection": "6", "layers": ["1 km 16 days NDVI"]}
    dates = [day for day in days("2012-01-01", "2012-03-21", 16) if day != dt.date(2012, 2, 2)]
    there = [
        *(tile_granule(day, 18, 3, "MOD13A2", "6") for day in dates),
        *records(days("2012-01-01", "2012-03-31")),
    ]
    span = {"start": "2012-01-01", "end": "2012-03-31"}
    found = make(there, ndvi, SNOW | {"use": "nearest"}, time=span)
    assert [*bands(found)] == [str(day) for day in dates]
    assert told(found) == [
        "MOD13A2.006 2012-02-02: the archive has no granule of this date",
        "own 2012-02-02: not run: own needs every product, and MOD13A2.006 has no date",
    ]
    # Who takes the composite that covers a day has a window each day.
    found = make(there, ndvi | {"use": "covering"}, SNOW, time=span)
    assert len(bands(found)) == 91 - 16


def test_a_product_without_a_date_near_is_told_for_each_window(make: Make) -> None:
    there = records(days("2012-01-02", "2012-01-04"), cover=[dt.date(2009, 1, 1)])
    with pytest.raises(RequestRefusedError):
        make(there, SNOW, COVER | {"use": "static"})
    found = make(there, SNOW, COVER | {"use": "static"}, requires="any")
    assert told(found) == [
        f"MCD12Q1.006 for 2012-01-0{n}: the archive has no date of it within 366 days before the "
        "first day of the time"
        for n in (2, 3, 4)
    ]
    assert make(there, SNOW, COVER | {"use": "static", "look_back": 1100}).gaps == ()


def test_a_share_of_the_expected_dates_may_be_required(make: Make) -> None:
    span = {"start": "2012-01-01", "end": "2012-02-29"}
    there = records([*days("2012-01-01", "2012-01-24"), *days("2012-02-01", "2012-02-08")])
    found = make(there, SNOW, requires="0.75", window="month", time=span)
    assert [*bands(found)] == ["2012-01"]
    assert told(found)[-1] == (
        "own 2012-02 h18v03: not run: own needs 75% of the dates, and fewer are there"
    )
    assert [*bands(make(there, SNOW, requires="0.8", window="month", time=span))] == []


def test_a_climatology_joins_the_same_month_of_all_years(make: Make) -> None:
    span = {"start": "2010-01-01", "end": "2012-12-31"}
    leaf = [day for year in (2010, 2011, 2012) for day in days(f"{year}-01-01", f"{year}-12-27", 8)]
    found = make(records(leaf=leaf), LEAF, window="month-of-year", requires="any", time=span)
    groups = bands(found)
    assert [*groups] == [f"month-{n:02d}" for n in range(1, 13)]
    assert sum(map(len, groups.values())) == len(leaf) == 138
    assert {day[-10:-6] for day in groups["month-07"]} == {"2010", "2011", "2012"}
    (july,) = [window for window in found.windows if window.window == "month-07"]
    assert (july.first, july.last) == ("2010-07-01", "2012-07-31")
    assert len(specs(found, MosaicSpec)) == 12


def test_a_season_across_new_year(make: Make) -> None:
    span = {"start": "2011-12-01", "end": "2012-02-29", "every": {"from": "12-01", "to": "02-29"}}
    leaf = days("2011-11-25", "2011-12-27", 8) + days("2012-01-01", "2012-03-05", 8)
    found = make(records(leaf=leaf), LEAF, window="season", requires="any", time=span)
    assert [*bands(found)] == ["2012-DJF"]
    assert len(bands(found)["2012-DJF"]) == 12


def test_only_the_season_of_each_year_is_listed(make: Make) -> None:
    span = {"start": "2010-01-01", "end": "2012-12-31", "every": {"from": "06-01", "to": "08-31"}}
    snow = days("2010-01-01", "2012-12-31")
    found = make(records(snow), SNOW, window="year", requires="any", time=span)
    assert len(specs(found, CollectSpec)) == 3 * 92
    assert [*bands(found)] == ["2010", "2011", "2012"]
    assert found.gaps == ()


def test_a_plan_is_the_same_in_one_stretch_and_in_many(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = records(
        days("2011-12-20", "2012-01-20"),
        [*days("2011-12-27", "2011-12-27"), *days("2012-01-01", "2012-03-01", 8)],
        days("2011-01-01", "2012-01-01", 365),
    )
    products = (SNOW, LEAF | {"use": "nearest"}, COVER | {"use": "static"})
    span = {"start": "2012-01-02", "end": "2012-01-18"}
    whole = make(there, *products, time=span)
    monkeypatch.setattr("service_manager.planner.listing.STRETCH", 1)
    parts = make(there, *products, time=span)
    assert {p.key for p in parts} == {p.key for p in whole}
    assert parts.gaps == whole.gaps
    assert bands(parts) == bands(whole)


def test_dates_that_no_later_window_takes_are_forgotten(make: Make) -> None:
    there = records(days("2012-01-01", "2012-06-30"), days("2012-01-01", "2012-06-30", 8))
    span = {"start": "2012-01-01", "end": "2012-06-30"}
    products = (SNOW, LEAF | {"use": "previous", "look_back": 8})
    held: list[int] = []

    class Watched(Groups):
        def _forget(self) -> None:
            super()._forget()
            held.append(sum(map(len, self._days.values())))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service_manager.planner.plan_stream.Groups", Watched)
        make(there, *products, time=span)
    assert len(held) == 182
    assert max(held) <= 12


def test_planning_that_broke_off_goes_on_with_its_windows(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch that was stored is used again; the windows after it still have its cells."""
    monkeypatch.setattr("service_manager.planner.listing.STRETCH", 1)
    there = records(days("2012-01-02", "2012-01-10"))
    span = {"start": "2012-01-02", "end": "2012-01-10"}
    whole = make(there, SNOW, window="month", requires="any", time=span)
    request = parse_request(document(SNOW, window="month", time=span))
    blobs = MemoryBlobs()
    count = 0

    def stopped() -> bool:
        nonlocal count
        count += 1
        return count == 3

    def stream() -> PlanStream:
        return PlanStream(request, Shelf(records=there), Packages([tmp_path]), LIMITS)

    with pytest.raises(stored_plan.AbandonedError):
        stored_plan.freeze(blobs, "one", stream(), "first", stopped)
    frozen = stored_plan.freeze(blobs, "one", stream(), "second")
    assert [s.name.split("/")[1] for s in frozen.stretches[:4]] == ["first"] * 3 + ["second"]
    assert [p.key for p in frozen.tasks()] == [p.key for p in whole]
    assert frozen.notes == whole.notes
    # A request of the same document takes the plan over, with its notes.
    assert stored_plan.freeze(blobs, "two", stream()).notes == whole.notes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reduction": None, "deliver": "results"}, "there is no reduction"),
        ({"reduction": None, "deliver": "both"}, "`use: covering` of MCD15A2"),
    ],
)
def test_joins_without_a_reduction_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestRefusedError, match=words):
        parse_request(document(LEAF | {"use": "covering"}) | change)


@pytest.mark.parametrize(
    "looks",
    [
        {"look_back": 3},
        {"use": "covering", "look_back": 3},
        {"use": "previous", "look_ahead": 3},
    ],
)
def test_looks_that_mean_nothing_are_refused(looks: dict[str, Any]) -> None:
    with pytest.raises(RequestRefusedError, match="has no meaning"):
        parse_request(document(LEAF | looks))


@pytest.mark.parametrize("product", [LEAF, GLOBE], ids=["tile", "globe"])
def test_a_composite_is_taken_by_the_days_that_its_granule_states(
    make: Make, product: dict[str, Any]
) -> None:
    """16 days every 8 days, whatever the catalogue expects of the products (8)."""
    there = [
        replace(
            tile_granule(day, 18, 3, product["name"], product["collection"]),
            end=dt.datetime.combine(day, dt.time(), dt.UTC) + dt.timedelta(days=16, seconds=-1),
            tile=None if product is GLOBE else Tile(18, 3),
        )
        for day in days("2012-01-01", "2012-01-09", 8)
    ]
    span = {"start": "2012-01-01", "end": "2012-01-31"}
    found = make(there, product, requires="any", window="8-day", time=span, weight="days")
    counts = {
        group.window: [(band.day.day, band.counted.days) for band in group.bands]
        for group in specs(found, GroupSpec)
    }
    assert counts == {"2012-001": [(1, 8)], "2012-009": [(1, 8), (9, 8)], "2012-017": [(9, 8)]}


def test_composites_that_cover_a_season_of_each_year_are_planned(make: Make) -> None:
    """Also where the request's time begins before the first season."""
    span = {"start": "2011-06-01", "end": "2012-12-31", "every": {"from": "02-01", "to": "02-10"}}
    leaf = days("2012-01-01", "2012-02-26", 8)
    found = make(
        records(leaf=leaf), LEAF | {"use": "covering"}, window="date", requires="any", time=span
    )
    assert [*bands(found)] == [str(day) for day in days("2012-02-01", "2012-02-10")]
