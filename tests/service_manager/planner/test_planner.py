"""Plans from records alone: which granules, cells, tasks and outputs tiles come to."""

import datetime as dt
from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from modis.tile import Tile
from tasks.bag.spec import (
    CollectSpec,
    CubeSpec,
    GroupSpec,
    LayerSpec,
    MosaicSpec,
    RasterSpec,
    ReduceSpec,
)
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.requests.plan import Plan
from tasks.settings import Settings
from tests.service_manager.shelf import (
    REQUEST,
    Shelf,
    composites,
    made,
    outputs,
    plan,
    specs,
    tile_granule,
)


def test_the_tasks_of_tiles_of_sixteen_dates() -> None:
    found = made(composites())
    assert len(specs(found, CollectSpec)) == 32
    assert sum(spec.size for spec in specs(found, CollectSpec)) == 32_000
    assert len(specs(found, RasterSpec)) == 16 * 2  # dates, layers
    assert not specs(found, MosaicSpec)
    assert found.gaps == ()
    assert "MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km.2012-01-01.tif" in outputs(found)
    assert len(outputs(found)) == len({*outputs(found)}) == 32


def test_composites_are_selected_by_their_start_day() -> None:
    found = made(composites(), time={"start": "2012-01-03", "end": "2012-04-30"})
    assert len(specs(found, CollectSpec)) == 30
    assert min(s.day for s in specs(found, LayerSpec)) == dt.date(2012, 1, 9)


def test_inputs_come_before_dependents_and_every_task_once() -> None:
    found = made(composites(), reduction={"package": "monthly-mean", "group_by": ["cell", "month"]})
    seen: set[str] = set()
    for planned in found:
        assert all(given.key in seen for given in planned.spec.inputs)
        assert planned.spec.key not in seen
        seen.add(planned.spec.key)


def test_equal_requests_give_equal_plans_whatever_the_order_of_records() -> None:
    records = composites()
    assert made(records) == made(records[::-1])


def test_a_cell_has_only_the_granules_that_touch_it() -> None:
    found = made(composites(), cells=True)
    first = [s for s in specs(found, LayerSpec) if s.day == dt.date(2012, 1, 1)]
    for spec in first:
        west = spec.grid.transform[2]
        names = [given.name for given in spec.inputs]
        assert names == sorted(names)
        assert all(("h17" in name) == (west < 0) for name in names)
        assert len(names) == 1


def test_a_wide_kernel_reaches_over_the_edge_of_a_tile() -> None:
    tiles = ((17, 3), (18, 3))
    region = {"bbox": [-1.0, 52.0, -0.005, 53.0]}
    nearest = made(composites(tiles), region=region)
    bilinear = made(composites(tiles), region=region, resampling="bilinear")
    assert len(specs(nearest, CollectSpec)) == 16
    assert len(specs(bilinear, CollectSpec)) == 32


def test_a_tile_on_its_own_grid_needs_no_neighbour() -> None:
    around = [(h, v) for h in (16, 17, 18) for v in (2, 3, 4)]
    for resampling in ("nearest", "cubic", "average"):
        found = made(
            composites(around),
            region={"tiles": ["h17v03"]},
            grid={"modis": 1000},
            resampling=resampling,
        )
        assert len(specs(found, CollectSpec)) == 16
        cells = specs(found, LayerSpec)
        assert {(c.grid.width, c.grid.height) for c in cells} == {(1200, 1200)}
        assert all(len(c.inputs) == 1 for c in cells)


def test_only_the_tiles_named_are_cells() -> None:
    records = composites([(17, 3), (18, 3), (17, 4), (18, 4)])
    found = made(records, region={"tiles": ["h17v03", "h18v04"]}, grid={"modis": 1000})
    assert len(specs(found, CollectSpec)) == 32
    mosaic = specs(found, MosaicSpec)[0]
    assert (mosaic.grid.width, mosaic.grid.height) == (2400, 2400)
    assert len(mosaic.inputs) == 2


def test_across_the_antimeridian() -> None:
    found = made(
        composites([(0, 9), (35, 9), (18, 9)]),
        region={"bbox": [178.0, -8.0, -178.0, -2.0]},
        grid={"crs": "EPSG:4326", "resolution": 0.1},
    )
    names = {s.granule.split(".")[2] for s in specs(found, CollectSpec)}
    assert names == {"h00v09", "h35v09"}
    assert specs(found, RasterSpec)[0].grid.width == 40


def test_the_newest_edition_of_a_granule_is_used() -> None:
    day = dt.date(2012, 1, 1)
    both = [tile_granule(day, 17, 3, made="1"), tile_granule(day, 17, 3, made="2")]
    found = made(both, time={"start": day, "end": day})
    assert [s.production for s in specs(found, CollectSpec)] == ["0000000000002"]


def test_what_a_task_key_depends_on() -> None:
    day = dt.date(2012, 1, 1)
    once = {"time": {"start": day, "end": day}}
    plain = made(composites(), **once)

    def keys(found: Plan, kind: type[Any]) -> set[str]:
        return {spec.key for spec in specs(found, kind)}

    moved = [replace(r, url="elsewhere", checksum="0", size=5) for r in composites()]
    assert keys(made(moved, **once), LayerSpec) == keys(plain, LayerSpec)
    remade = [replace(r, production_time="3" * 13) for r in composites()]
    assert not keys(made(remade, **once), LayerSpec) & keys(plain, LayerSpec)
    assert keys(made(composites(), **once, merge="latest"), LayerSpec) == keys(
        plain, LayerSpec
    )  # tiles are never merged
    assert not keys(made(composites(), **once, qa="best"), LayerSpec) & keys(plain, LayerSpec)
    longer = made(composites())
    assert keys(plain, LayerSpec) < keys(longer, LayerSpec)


def test_default_methods() -> None:
    products = [
        {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "FparLai_QC"]},
    ]

    def methods(**changes: Any) -> dict[str, str]:
        found = made(composites(), products=products, **changes)
        return {s.layer: s.resampling for s in specs(found, LayerSpec)}

    assert methods(resampling=None) == {"Lai_1km": "bilinear", "FparLai_QC": "nearest"}
    assert methods(resampling="cubic") == {"Lai_1km": "cubic", "FparLai_QC": "nearest"}
    assert methods(resampling={"Lai_1km": "average"}) == {
        "Lai_1km": "average",
        "FparLai_QC": "nearest",
    }
    coarse = {"crs": "EPSG:4326", "resolution": 0.05}
    assert methods(resampling=None, grid=coarse)["FparLai_QC"] == "mode"
    assert made(composites(), products=products, resampling="cubic").notes != ()


def test_groups_and_runs_of_a_reduction() -> None:
    reduction = {"package": "monthly-mean", "group_by": ["cell", "month"]}
    found = made(composites(), reduction=reduction, cells=True)
    groups = specs(found, GroupSpec)
    assert Counter(g.window for g in groups) == {f"2012-0{m}": 4 for m in range(1, 5)}  # cells
    for group in groups:
        assert len(group.bands) == len(group.inputs) == 2 * 4  # layers, composites
        assert {given.file for given in group.inputs} == {"cell.tif"}
    runs = specs(found, ReduceSpec)
    assert len(runs) == 16
    assert all(len(run.inputs) == 1 for run in runs)
    monthly = [o for o in outputs(found) if o.startswith("monthly-mean/")]
    assert len(monthly) == 8
    assert any(o.endswith(".2012-01.tif") for o in monthly)
    assert len(found.archives) == 1
    assert {run.digest for run in runs} == {found.archives[0].digest}


def test_days_of_composites_are_shared_over_months() -> None:
    reduction = {"package": "monthly-mean", "group_by": ["cell", "month"]}
    by_day = made(composites(), reduction=reduction, weight="days")
    january = next(g for g in specs(by_day, GroupSpec) if g.window == "2012-01")
    weights = {band.day: band.counted.share for band in january.bands}
    assert weights[dt.date(2012, 1, 1)] == 1.0
    assert weights[dt.date(2012, 1, 25)] == pytest.approx(7 / 8)  # 25 to 31 January
    february = next(g for g in specs(by_day, GroupSpec) if g.window == "2012-02")
    weights = {band.day: band.counted.share for band in february.bands}
    assert weights[dt.date(2012, 1, 25)] == pytest.approx(1 / 8)
    assert {g.window for g in specs(by_day, GroupSpec)} == {f"2012-0{m}" for m in range(1, 5)}


def test_cells_are_delivered_when_asked_for() -> None:
    found = made(composites(), cells=True)
    folders = [p.output for p in found if isinstance(p.spec, LayerSpec)]
    assert "MCD15A2.005/Lai_1km/cells/2012-01-01/r-6c-1" in folders
    assert len(set(folders)) == len(folders) == 128


def test_clipping_leaves_out_cells_and_granules_beyond_the_polygon() -> None:
    triangle = {"type": "Polygon", "coordinates": [[[-8, 51], [6, 51], [-8, 58], [-8, 51]]]}
    found = made(
        composites(),
        region={"geojson": triangle, "clip": True},
        grid={"crs": "EPSG:4326", "resolution": 0.001},
        time={"start": "2012-01-01", "end": "2012-01-01"},
    )
    whole = made(
        composites(),
        region={"geojson": triangle},
        grid={"crs": "EPSG:4326", "resolution": 0.001},
        time={"start": "2012-01-01", "end": "2012-01-01"},
    )
    assert len(specs(found, LayerSpec)) < len(specs(whole, LayerSpec))
    assert all(spec.clip for spec in specs(found, MosaicSpec))
    assert not any(spec.clip for spec in specs(whole, MosaicSpec))


def test_names_of_layers_are_fit_for_files() -> None:
    records = [tile_granule(dt.date(2012, 1, 1), 17, 3, product="NEWPROD")]
    products = [
        {"name": "NEWPROD", "collection": "5", "layers": ["1 km NDVI", "1_km_NDVI", "a/b[1]"]}
    ]
    found = made(records, products=products, time={"start": "2012-01-01", "end": "2012-01-01"})
    assert [o.split("/")[1] for o in outputs(found)] == ["1_km_NDVI", "1_km_NDVI_2", "a_b_1"]


def test_a_coarser_layer_of_a_tile_product_needs_its_neighbours() -> None:
    day = dt.date(2012, 1, 1)
    records = [
        tile_granule(day, h, v, product="MOD09GA", collection="6")
        for h in (17, 18, 19)
        for v in (2, 3, 4)
    ]
    products = [
        {"name": "MOD09GA", "collection": "6", "layers": ["sur_refl_b01_1", "SensorZenith_1"]}
    ]
    found = made(
        records,
        products=products,
        region={"tiles": ["h18v03"]},
        grid={"modis": 500},
        time={"start": day, "end": day},
        resampling="bilinear",
    )
    inputs = {spec.layer: len(spec.inputs) for spec in specs(found, LayerSpec)}
    assert inputs == {"sur_refl_b01_1": 1, "SensorZenith_1": 9}


def test_a_cube_has_all_dates_of_a_layer_and_all_windows_of_a_reduction() -> None:
    assert not specs(made(composites()), CubeSpec)
    found = made(
        composites(),
        cube="netcdf",
        reduction={"package": "monthly-mean", "group_by": ["cell", "month"]},
    )
    cubes = {p.output: p.spec for p in found if isinstance(p.spec, CubeSpec)}
    assert sorted(cubes) == [
        "MCD15A2.005/Fpar_1km",
        "MCD15A2.005/Lai_1km",
        "monthly-mean/Fpar_1km_mean",
        "monthly-mean/Lai_1km_mean",
    ]
    lai = cubes["MCD15A2.005/Lai_1km"]
    assert lai.name == "MCD15A2.005.Lai_1km"
    assert lai.days == tuple(dt.date(2012, 1, 1) + dt.timedelta(days=8 * n) for n in range(16))
    rasters = {p.key: p.spec for p in found if isinstance(p.spec, MosaicSpec | RasterSpec)}
    for spec in cubes.values():
        assert [given.file for given in spec.inputs] == [
            f"{rasters[given.key].name}.tif" for given in spec.inputs
        ]
    assert [day.month for day in cubes["monthly-mean/Lai_1km_mean"].days] == [1, 2, 3, 4]
    without = lai.over({0: lai.inputs[0], 5: lai.inputs[5]})
    assert without.days == (lai.days[0], lai.days[5])


class TestScatteredTiles:
    """Tiles of the tile grid that do not touch are rasters of their own."""

    TILES = ("h00v08", "h15v07", "h16v08", "h18v05")
    CHANGES: ClassVar[dict[str, Any]] = {
        "region": {"tiles": TILES},
        "grid": {"modis": 500},
        "time": {"start": "2012-01-01", "end": "2012-01-31"},
        "cube": "netcdf",
        "reduction": {"package": "monthly-mean", "group_by": ["cell", "month"]},
    }
    RECORDS = composites([(0, 8), (15, 7), (16, 8), (18, 5)])

    def test_each_group_has_rasters_of_its_own(self) -> None:
        found = made(self.RECORDS, **self.CHANGES)
        daily = [s for s in specs(found, MosaicSpec) if s.day == dt.date(2012, 1, 1)]
        sizes = {(s.name.split(".")[3], s.grid.width, s.grid.height) for s in daily}
        assert sizes == {
            ("h00v08", 2400, 2400),
            ("h15v07", 4800, 4800),  # h16v08 touches it at a corner
            ("h18v05", 2400, 2400),
        }
        assert {(len(s.inputs), s.name.split(".")[3]) for s in daily} == {
            (1, "h00v08"),
            (2, "h15v07"),
            (1, "h18v05"),
        }
        folder = "MCD15A2.005/Lai_1km/h00v08"
        assert f"{folder}/MCD15A2.005.Lai_1km.h00v08.2012-01-01.tif" in outputs(found)
        assert "monthly-mean/Lai_1km_mean/h18v05/Lai_1km_mean.h18v05.2012-01.tif" in outputs(found)
        assert any("each layer and date has 3 rasters" in note for note in found.notes)

    def test_cubes_and_lacks_go_by_group(self) -> None:
        there = [r for r in self.RECORDS if (r.tile, r.start_day.day) != (Tile(16, 8), 9)]
        there = [r for r in there if (r.tile, r.start_day.day) != (Tile(18, 5), 17)]
        found = made(there, **self.CHANGES)
        cubes = {s.name: s for s in specs(found, CubeSpec)}
        assert cubes["MCD15A2.005.Lai_1km.h15v07"].grid.width == 4800
        days = {
            name.split(".")[-1]: len(s.days) for name, s in cubes.items() if "Lai_1km.h" in name
        }
        assert days == {"h00v08": 4, "h15v07": 4, "h18v05": 3}
        lacking = [s.name for s in specs(found, MosaicSpec) if s.missing and s.day]
        assert lacking == [f"MCD15A2.005.{x}.h15v07.2012-01-09" for x in ("Lai_1km", "Fpar_1km")]

    def test_one_of_them_may_have_as_many_pixels_as_one_raster(self) -> None:
        limits = Settings(max_pixels=4800 * 4800)
        request = parse_request({**REQUEST, **self.CHANGES})
        assert plan(request, Shelf(records=self.RECORDS), Packages.of(limits), limits).tasks
        tight = Settings(max_pixels=4800 * 4800 - 1)
        with pytest.raises(RequestRefusedError, match="4,800 x 4,800"):
            plan(request, Shelf(records=self.RECORDS), Packages.of(tight), tight)
