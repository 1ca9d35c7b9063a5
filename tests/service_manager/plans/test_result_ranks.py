"""The order in which results are made, of plans as the planner makes them."""

import datetime as dt
import heapq
from collections.abc import Iterator, Mapping, Sequence

import pytest

from service_manager.planner import plan_stream
from service_manager.planner.plan_stream import PlanStream
from service_manager.plans.result_ranks import place_of, result_ranks
from tasks.bag.spec import CollectSpec, CubeSpec, GroupSpec, MosaicSpec, RasterSpec, ReprojectSpec
from tasks.packages.packages import SHIPPED, Packages
from tasks.request.document import First, parse_request
from tasks.requests.plan import PlannedTask
from tests.service_manager.shelf import LIMITS, REQUEST, Shelf, composites, made

FINE = {"crs": "EPSG:4326", "resolution": 0.004}
JULY, MARCH = dt.date(2012, 7, 1), dt.date(2012, 3, 1)


def course(tasks: Sequence[PlannedTask], ranks: Mapping[str, int]) -> Iterator[PlannedTask]:
    """Yield the tasks one after another, of those that are ready the one of the lowest rank."""
    waiting = {one.key: {given.key for given in one.spec.inputs} for one in tasks}
    after: dict[str, list[int]] = {}
    for number, one in enumerate(tasks):
        for key in waiting[one.key]:
            after.setdefault(key, []).append(number)
    ready = [(ranks[one.key], n) for n, one in enumerate(tasks) if not waiting[one.key]]
    heapq.heapify(ready)
    while ready:
        _, number = heapq.heappop(ready)
        done = tasks[number]
        yield done
        for dependent in after.get(done.key, ()):
            left = waiting[tasks[dependent].key]
            left.discard(done.key)
            if not left:
                heapq.heappush(ready, (ranks[tasks[dependent].key], dependent))


def days(tasks: Sequence[PlannedTask], first: First) -> list[dt.date]:
    """The dates of the rasters in the order in which they are made, each once."""
    made_first = course(tasks, result_ranks(tasks, first))
    rasters = (one.spec for one in made_first if isinstance(one.spec, MosaicSpec | RasterSpec))
    return list(dict.fromkeys(one.day for one in rasters if one.day is not None))


@pytest.fixture
def of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rasters of several cells made of them."""
    monkeypatch.setattr(plan_stream, "MOST_WHOLE", 0)


@pytest.mark.usefixtures("of_cells")
def test_at_30_percent_of_the_cells_a_quarter_of_the_rasters_is_there() -> None:
    tasks = made(composites(), grid=FINE, cube="netcdf").tasks
    order = [*course(tasks, result_ranks(tasks, "oldest"))]
    assert len(order) == len(tasks)
    cells = [n for n, one in enumerate(order) if isinstance(one.spec, ReprojectSpec)]
    rasters = [n for n, one in enumerate(order) if isinstance(one.spec, MosaicSpec)]
    at = cells[int(0.3 * len(cells))]
    assert len(cells) > 3 * len(rasters)
    assert sum(number < at for number in rasters) >= 0.25 * len(rasters)
    assert isinstance(order[-1].spec, CubeSpec)


@pytest.mark.usefixtures("of_cells")
def test_the_granules_of_the_first_result_come_before_cells_of_later_ones() -> None:
    tasks = made(composites(), grid=FINE).tasks
    ranks = result_ranks(tasks, "newest")
    rasters = [one for one in tasks if one.output]
    by_key = {one.key: one for one in tasks}
    for raster in rasters:
        for cell in raster.spec.inputs:
            assert ranks[cell.key] == ranks[raster.key]
            granules = by_key[cell.key].spec.inputs
            assert all(ranks[given.key] <= ranks[raster.key] for given in granules)
    assert len({ranks[one.key] for one in rasters}) == len(rasters)
    # What serves both layers of a date goes by the first of them.
    collections = {ranks[one.key] for one in tasks if isinstance(one.spec, CollectSpec)}
    assert len(collections) == 16
    assert collections < {ranks[one.key] for one in rasters}


def test_oldest_newest_and_listed_dates_come_first() -> None:
    tasks = made(composites()).tasks
    dates = days(tasks, "oldest")
    assert dates == sorted(dates)
    assert len(dates) == 16
    assert days(tasks, "newest") == dates[::-1]
    # A composite that begins before a listed date is its result; 21 January is in that of the 17th.
    assert days(tasks, (dates[9], dt.date(2012, 1, 21)))[:4] == [
        dates[9],
        dt.date(2012, 1, 17),
        dates[8],
        dt.date(2012, 1, 9),
    ]
    assert days(tasks, (dates[9], dt.date(2012, 1, 21)))[-6:] == dates[10:]


def test_days_after_all_that_are_listed_come_last_and_the_order_of_the_list_counts() -> None:
    first = (JULY, MARCH)
    assert place_of(JULY, first) < place_of(MARCH, first)
    assert place_of(MARCH, first) < place_of(JULY - dt.timedelta(days=1), first)
    assert place_of(JULY + dt.timedelta(days=1), first) > place_of(dt.date(1999, 1, 1), first)
    orders: list[First] = ["oldest", "newest", first]
    for order in orders:
        assert 0 < place_of(dt.date.max, order) < 2**31


@pytest.mark.parametrize("first", ["oldest", "newest"])
def test_a_window_does_not_bring_forward_what_ends_late(first: First) -> None:
    """With the layers and a climatology of all dates, the layers still come one by one."""
    reduction = {"package": "mean", "group_by": ["cell", "all"]}
    tasks = made(composites(), grid=FINE, reduction=reduction).tasks
    order = [*course(tasks, result_ranks(tasks, first))]
    cells = [n for n, one in enumerate(order) if isinstance(one.spec, ReprojectSpec)]
    rasters = [n for n, one in enumerate(order) if one.output]
    at = cells[int(0.3 * len(cells))]
    assert sum(number < at for number in rasters) >= 0.25 * len(rasters)


def test_windows_are_made_in_order_and_a_listed_date_brings_its_window() -> None:
    reduction = {"package": "monthly-mean", "group_by": ["cell", "month"]}
    tasks = made(composites(), reduction=reduction, deliver="results").tasks

    def windows(first: First) -> list[str]:
        order = course(tasks, result_ranks(tasks, first))
        return [one.spec.window for one in order if isinstance(one.spec, GroupSpec)]

    assert windows("oldest") == ["2012-01", "2012-02", "2012-03", "2012-04"]
    assert windows("newest") == ["2012-04", "2012-03", "2012-02", "2012-01"]
    assert windows((dt.date(2012, 2, 12),))[0] == "2012-02"


def test_what_all_windows_take_comes_first_of_all() -> None:
    records = composites()
    products = [
        {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]},
        {"name": "MCD15A2", "collection": "5", "layers": ["Fpar_1km"], "use": "static"},
    ]
    reduction = {"package": "mean", "group_by": ["cell", "date"]}
    tasks = made(records, products=products, reduction=reduction, deliver="results").tasks
    ranks = result_ranks(tasks, "newest")
    (group, *_) = [one.spec for one in tasks if isinstance(one.spec, GroupSpec)]
    statics = [
        given.key
        for given, band in zip(group.inputs, group.bands, strict=True)
        if band.use == "static"
    ]
    assert statics
    assert {ranks[key] for key in statics} == {0}
    groups = [one for one in course(tasks, ranks) if isinstance(one.spec, GroupSpec)]
    names = [one.spec.window for one in groups if isinstance(one.spec, GroupSpec)]
    assert names == sorted(names, reverse=True)


def test_the_order_changes_no_plan_and_no_key() -> None:
    def stream(first: object) -> PlanStream:
        request = parse_request({**REQUEST, "first": first})
        return PlanStream(request, Shelf(records=composites()), Packages([SHIPPED]), LIMITS)

    plans = [stream(first) for first in ("oldest", "newest", ["2012-02-02"])]
    assert len({plan.identity for plan in plans}) == 1
    keys = [[one.key for part in plan.stretches() for one in part.tasks()] for plan in plans]
    assert keys[0] == keys[1] == keys[2]
