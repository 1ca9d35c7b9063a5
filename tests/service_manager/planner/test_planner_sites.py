"""Plans of sites: one extraction for each product and date, one table, and no raster."""

import datetime as dt
from typing import Any

import pytest

from service_manager.planner import sites
from service_manager.planner.cubes import Cubes
from service_manager.planner.draft import Draft, PlannedRaster
from service_manager.planner.expected import Dates
from tasks.bag.site_specs import ExtractSpec, SampleSpec, SitesSpec, TableSpec
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


def test_rasters_are_sampled_in_the_cells_that_hold_a_site() -> None:
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
