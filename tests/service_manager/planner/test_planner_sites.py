"""Plans of sites: one extraction for each product and date, one table, and no raster."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from archives.model import GranuleRecord
from service_manager.planner import plan_stream, sites
from service_manager.planner.cubes import Cubes
from service_manager.planner.draft import Draft, PlannedRaster
from service_manager.planner.expected import Dates
from service_manager.planner.listing import Day, Stretch
from tasks.bag.site_specs import ExtractNearSpec, ExtractSpec, SampleSpec, SitesSpec, TableSpec
from tasks.bag.spec import CollectSpec, CubeSpec, MosaicSpec, ReduceSpec, ReprojectSpec
from tasks.errors import RequestRefusedError
from tests.service_manager.shelf import composites, made, specs, swath_granule, tile_granule

REQUEST: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]}],
    "region": {"sites": "id,latitude,longitude\nMoor,56.6,-6.7\n"},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
}
BOTH = {"sites": "id,latitude,longitude\nMoor,56.6,-6.7\nDunes,51.8,4.7\n"}


def test_only_the_tiles_of_the_sites_are_fetched() -> None:
    found = made(composites(), REQUEST)
    assert len(specs(found, CollectSpec)) == 16  # of 32: h18v03 holds no site
    assert len(specs(found, ExtractSpec)) == 16
    assert len(specs(found, SitesSpec)) == len(specs(found, TableSpec)) == 1
    assert not specs(found, ReprojectSpec)
    assert not specs(found, MosaicSpec)
    assert [task.output for task in found if task.output] == ["sites"]
    assert found.gaps == ()
    (table,) = specs(found, TableSpec)
    assert len(table.inputs) == 17


def test_the_tile_beside_a_site_at_an_edge_is_fetched_too() -> None:
    region = {"sites": "id,latitude,longitude\nGreenwich,51.5,0.001\n"}
    found = made(composites(), REQUEST, region=region)
    assert len(specs(found, CollectSpec)) == 32
    assert len(specs(found, ExtractSpec)) == 16
    assert not any(spec.missing for spec in specs(found, ExtractSpec))


def test_a_tile_that_is_not_there_is_named() -> None:
    records = [r for r in composites() if not r.name.startswith("MCD15A2.A2012009.h18v03")]
    found = made(records, REQUEST, region=BOTH)
    (lacking,) = [spec for spec in specs(found, ExtractSpec) if spec.missing]
    assert lacking.day == dt.date(2012, 1, 9)
    assert [one.part for one in lacking.missing] == ["h18v03"]
    assert len(found.gaps) == 1


def test_equal_sites_share_tasks_and_others_do_not() -> None:
    one = made(composites(), REQUEST)
    week = made(composites(), REQUEST, time={"start": "2012-01-01", "end": "2012-01-10"})
    other = made(composites(), REQUEST, region=BOTH)
    keys = {spec.key for spec in specs(one, ExtractSpec)}
    assert {spec.key for spec in specs(week, ExtractSpec)} < keys
    assert not {spec.key for spec in specs(other, ExtractSpec)} & keys


def test_extractions_of_daily_tiles_name_the_layers_that_say_when_pixels_were_seen() -> None:
    day = dt.date(2012, 1, 1)
    there = [tile_granule(day, 17, 3, name, "61") for name in ("MOD11A1", "MOD11A2", "MCD15A2H")]
    products = [
        {"name": "MOD11A1", "collection": "61", "layers": ["LST_Day_1km", "QC_Day"]},
        {"name": "MOD11A2", "collection": "61", "layers": ["LST_Day_1km"]},  # of 8 days: a mean
        {"name": "MCD15A2H", "collection": "61", "layers": ["Lai_500m"]},
    ]
    found = made(there, REQUEST, products=products, time={"start": day, "end": day})
    times = {spec.product: spec.solar_times for spec in specs(found, ExtractSpec)}
    assert times == {"MOD11A1": ("Day_view_time", ""), "MOD11A2": (), "MCD15A2H": ()}


def test_swaths_that_see_no_site_are_not_fetched() -> None:
    day = dt.datetime(2012, 1, 1, 11, 0, tzinfo=dt.UTC)
    records = [
        swath_granule(day, (-12.0, 50.0, 2.0, 60.0)),
        swath_granule(day + dt.timedelta(minutes=100), (-30.0, 50.0, -15.0, 60.0)),
        swath_granule(day + dt.timedelta(hours=14), (-10.0, 55.0, 5.0, 65.0), "Night"),
    ]
    swaths = [{"name": "MYD99_L2", "collection": "6", "layers": ["AOD"]}]
    found = made(
        records, REQUEST, products=swaths, time={"start": "2012-01-01", "end": "2012-01-02"}
    )
    given = [[one.name.split(".")[2] for one in s.inputs[:-1]] for s in specs(found, ExtractSpec)]
    assert given == [["1100"], ["0100"]]
    assert len(specs(found, CollectSpec)) == 2


def near(records: Sequence[GranuleRecord]) -> list[GranuleRecord]:
    """The records of files on this machine."""
    return [replace(record, stamp=f"{n} 1") for n, record in enumerate(records)]


def days(spec: ExtractNearSpec) -> list[dt.date]:
    return [one.day for one in spec.dates]


def test_dates_of_files_on_this_machine_are_read_together_by_the_calendar() -> None:
    found = made(near(composites()), REQUEST, region=BOTH)
    assert not specs(found, CollectSpec)
    assert not specs(found, ExtractSpec)
    together = specs(found, ExtractNearSpec)
    spans = [{day.toordinal() // sites.NEAR_DAYS for day in days(one)} for one in together]
    assert all(len(one) == 1 for one in spans)
    assert len({one.pop() for one in spans}) == len(together)
    dates = [day for one in together for day in days(one)]
    assert dates == sorted(dates)
    assert len(dates) == 16
    first = together[1]
    assert first.title == f"MCD15A2.005 {days(first)[0]} to {days(first)[-1]} at the sites"
    assert [one.granule for one in first.granules] == sorted(
        name for one in first.dates for name in one.granules
    )
    assert first.wholes == tuple(one.key for one in first.granules)
    (table,) = specs(found, TableSpec)
    assert [one.key for one in table.inputs[:-1]] == [one.key for one in together]


def test_requests_share_what_lies_in_both_and_another_file_is_another_task() -> None:
    records = near(composites())
    keys = {one.key for one in specs(made(records, REQUEST), ExtractNearSpec)}
    part = made(records, REQUEST, time={"start": "2012-01-20", "end": "2012-03-20"})
    others = {one.key for one in specs(part, ExtractNearSpec)}
    assert len(others - keys) <= 2  # those at its ends
    assert len(others & keys) >= 2
    (moor,) = [r for r in records if r.name.startswith("MCD15A2.A2012041.h17v03")]
    changed = [replace(r, stamp="9 9") if r is moor else r for r in records]
    again = {one.key for one in specs(made(changed, REQUEST), ExtractNearSpec)}
    assert len(keys - again) == len(again - keys) == 1
    assert list(stretch_digests(changed)) != list(stretch_digests(records))


def stretch_digests(records: Sequence[GranuleRecord]) -> Iterator[str]:
    day = Day(day=dt.date(2012, 1, 1), records={0: tuple(records)})
    yield Stretch(first=day.day, last=day.day, final=True, days=(day,)).digest()


def test_few_granules_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "NEAR_GRANULES", 2)
    found = specs(made(near(composites()), REQUEST, region=BOTH), ExtractNearSpec)
    assert [len(one.granules) for one in found] == [2] * 16
    monkeypatch.undo()
    monkeypatch.setattr(sites, "NEAR_BYTES", 0)
    found = specs(made(near(composites()), REQUEST, region=BOTH), ExtractNearSpec)
    assert [len(one.dates) for one in found] == [1] * 16


def test_dates_that_lack_tiles_say_which() -> None:
    records = [r for r in near(composites()) if not r.name.startswith("MCD15A2.A2012009.h18v03")]
    (lacking,) = [
        spec for spec in specs(made(records, REQUEST, region=BOTH), ExtractNearSpec) if spec.missing
    ]
    assert [one.part for one in lacking.missing] == ["2012-01-09 h18v03"]
    assert dt.date(2012, 1, 9) in days(lacking)


def test_granules_are_collected_where_one_lies_elsewhere_or_nothing_may_be_missing() -> None:
    records = near(composites())
    records[0] = replace(records[0], stamp="")
    found = made(records, REQUEST, region=BOTH)
    assert [spec.day for spec in specs(found, ExtractSpec)] == [records[0].start_day]
    assert len(specs(found, CollectSpec)) == 2
    strict = made(near(composites()), REQUEST, on_missing="fail")
    assert not specs(strict, ExtractNearSpec)
    assert len(specs(strict, ExtractSpec)) == 16


MEASURED = {
    "table": "site,time,LAI\nMoor,2012-01-03,2.5\nDunes,2012-01-03,3\nFar,2012-01-03,3\n",
    "sites": "id,latitude,longitude\nMoor,56.6,-6.7\nFar,10,10\n",
    "compare": {"Lai_1km": "LAI"},
}
RASTERS: dict[str, Any] = {
    **REQUEST,
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "grid": {"crs": "EPSG:4326", "resolution": 0.004},
    "time": {"start": "2012-01-01", "end": "2012-01-10"},
    "resampling": "nearest",
}


def test_measurements_are_part_of_the_table_alone() -> None:
    plain = made(composites(), REQUEST)
    compared = made(
        composites(), REQUEST, measurements={**MEASURED, "sites": None, "time_zone": "UTC"}
    )
    (table,) = specs(compared, TableSpec)
    assert table.comparison is not None
    assert [pair.layer for pair in table.comparison.pairs] == ["Lai_1km"]
    assert not specs(compared, SampleSpec)
    keys = {task.key for task in plain}
    assert [task.key for task in compared if task.key not in keys] == [table.key]


def test_rasters_are_sampled_in_the_cells_that_hold_a_site(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_stream, "MOST_WHOLE", 0)  # they have cells in any case
    plain = made(composites(), RASTERS)
    found = made(composites(), RASTERS, measurements=MEASURED)
    samples = specs(found, SampleSpec)
    assert [(one.day, one.last, one.layers[0]) for one in samples] == [
        (dt.date(2012, 1, 1), dt.date(2012, 1, 8), "Lai_1km"),
        (dt.date(2012, 1, 9), dt.date(2012, 1, 16), "Lai_1km"),
    ]
    cells = {spec.key: spec for spec in specs(found, ReprojectSpec)}
    for sample in samples:
        given = [cells[one.key] for one in sample.inputs[:-1]]
        assert {(one.layer, one.day) for one in given} == {("Lai_1km", sample.day)}
        (cell,) = given
        assert 0 <= (-6.7 - cell.grid.transform[2]) / 0.004 < cell.grid.width
        assert 0 <= (cell.grid.transform[5] - 56.6) / 0.004 < cell.grid.height
        day = [o for o in cells.values() if (o.day, o.layer) == (sample.day, "Lai_1km")]
        assert len(day) > 1
    (table,) = specs(found, TableSpec)
    assert [one.key for one in table.inputs[:-1]] == [one.key for one in samples]
    assert any("outside the results: Far" in note for note in found.notes)
    assert {task.key for task in plain} < {task.key for task in found}


def test_sites_on_both_sides_of_180_are_sampled() -> None:
    day = dt.date(2012, 1, 1)
    records = [tile_granule(day, h, 9) for h in (0, 1, 34, 35)]
    region = {"bbox": [170.0, -5.0, -170.0, -1.0]}
    sites = "id,latitude,longitude\nMoor,-2,171\nDunes,-2,-171\nFar,-2,160\n"
    asked = {**RASTERS, "region": region, "time": {"start": day, "end": day}}
    found = made(records, asked, measurements={**MEASURED, "sites": sites})
    cells = {spec.key: spec.grid.transform[2] for spec in specs(found, ReprojectSpec)}
    (sample,) = specs(found, SampleSpec)
    assert any("outside the results: Far." in note for note in found.notes)
    west = sorted(cells[one.key] for one in sample.inputs[:-1])
    assert len(west) == 2
    assert west[0] < 180 < west[1]


def test_outputs_of_a_step_are_sampled_in_their_windows() -> None:
    reduction = {"package": "monthly-mean", "group_by": ["cell", "month"]}
    compare = {"monthly-mean/Lai_1km_mean": {"column": "LAI"}}
    asked: dict[str, Any] = {**RASTERS, "reduction": reduction, "deliver": "results"}
    found = made(composites(), asked, measurements={**MEASURED, "compare": compare})
    (sample,) = specs(found, SampleSpec)
    assert (sample.product, sample.collection) == ("monthly-mean", "")
    assert (sample.day, sample.last) == (dt.date(2012, 1, 1), dt.date(2012, 1, 31))
    runs = {spec.key for spec in specs(found, ReduceSpec)}
    assert {one.key for one in sample.inputs[:-1]} <= runs
    with pytest.raises(RequestRefusedError, match="makes no raster 'et'") as refused:
        made(composites(), asked, measurements={**MEASURED, "compare": {"monthly-mean/et": "LAI"}})
    assert "Lai_1km_mean" in refused.value.remedy
    asked["reduction"] = {**reduction, "group_by": ["cell", "month-of-year"]}
    with pytest.raises(RequestRefusedError, match="windows of step monthly-mean are of all years"):
        made(composites(), asked, measurements={**MEASURED, "compare": compare})


def test_cubes_leave_out_the_samples_of_earlier_stretches() -> None:
    found = made(composites(), RASTERS, measurements=MEASURED, cube="netcdf")
    assert len(specs(found, CubeSpec)) == 2
    cubes, draft = Cubes("netcdf", ()), Draft(limit=10)
    cubes.add(
        [PlannedRaster(key="k", file="rows.parquet", folder="sites", day=dt.date(2012, 1, 1))]
    )
    cubes.plan(draft, Dates.of((), (), lambda _: {}))
    assert not draft.lines


def test_a_table_has_so_many_dates_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "MOST_DATES", 16)
    assert len(specs(made(composites(), REQUEST), TableSpec)) == 1
    monkeypatch.setattr(sites, "MOST_DATES", 15)
    with pytest.raises(
        RequestRefusedError, match=r"have 16 dates together; .* may have 15"
    ) as said:
        made(composites(), REQUEST)
    assert said.value.field == "time"
