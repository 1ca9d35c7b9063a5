"""Plans from records alone: which granules, cells, tasks and gaps a request comes to."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from archives.model import Box, Fetched, GranuleRecord, Holding, Progress, newest_editions
from service_manager.planner.plan import plan
from service_manager.planner.preview import preview
from tasks.errors import RequestRefusedError
from tasks.model import Phase
from tasks.packages import Packages
from tasks.plan import Gap, Plan
from tasks.request import parse_request
from tasks.settings import Settings
from tasks.spec import CollectSpec, CubeSpec, GroupSpec, MosaicSpec, ReduceSpec, ReprojectSpec

LIMITS = Settings()
REQUEST: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
    "resampling": "nearest",
}
SWATHS: dict[str, Any] = {
    "products": [{"name": "MYD99_L2", "collection": "6", "layers": ["Depth"]}],
    "region": {"bbox": [0, 0, 10, 10]},
    "time": {"start": "2007-04-13", "end": "2007-04-15"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.1},
}


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """An archive of records without files."""

    records: Sequence[GranuleRecord]

    def search(
        self,
        product: str,
        collection: str,
        start_day: dt.date,
        end_day: dt.date,
        box: Box | None = None,
    ) -> Iterator[GranuleRecord]:
        del box
        yield from newest_editions(
            r
            for r in self.records
            if (r.product, r.collection) == (product, collection)
            and start_day <= r.start_day <= end_day
        )

    def holdings(self, product: str) -> list[Holding]:
        days: dict[str, list[dt.date]] = {}
        for r in self.records:
            if r.product == product:
                days.setdefault(r.collection, []).append(r.start_day)
        return [
            Holding(product=product, collection=c, first=min(d), last=max(d))
            for c, d in sorted(days.items())
        ]

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        del progress
        raise AssertionError(f"planning must not open {record.name}, least of all write {to}")


def tile_granule(
    day: dt.date, h: int, v: int, product: str = "MCD15A2", collection: str = "5", made: str = "1"
) -> GranuleRecord:
    start = dt.datetime.combine(day, dt.time(), dt.UTC)
    name = f"{product}.A{day:%Y%j}.h{h:02d}v{v:02d}.00{collection}.{made:0>13}.hdf"
    return GranuleRecord(
        name=name,
        product=product,
        collection=collection,
        start=start,
        end=start + dt.timedelta(days=8),
        tile=(h, v),
        boundary=None,
        production_time=f"{made:0>13}",
        size=1000,
        checksum=None,
        checksum_type=None,
        url=f"here/{name}",
        day_night="",
    )


def swath_granule(
    start: dt.datetime, box: tuple[float, float, float, float], day_night: str = "Day"
) -> GranuleRecord:
    west, south, east, north = box
    name = f"MYD99_L2.A{start:%Y%j}.{start:%H%M}.006.2014051174308.hdf"
    ring = tuple(
        [(west + (east - west) * i / 8, south) for i in range(8)]
        + [(east, south + (north - south) * i / 8) for i in range(8)]
        + [(east - (east - west) * i / 8, north) for i in range(8)]
        + [(west, north - (north - south) * i / 8) for i in range(8)]
    )
    return GranuleRecord(
        name=name,
        product="MYD99_L2",
        collection="6",
        start=start,
        end=start + dt.timedelta(minutes=5),
        tile=None,
        boundary=(ring,),
        production_time="2014051174308",
        size=500,
        checksum=None,
        checksum_type=None,
        url=name,
        day_night=day_night,
    )


def composites(tiles: Iterable[tuple[int, int]] = ((17, 3), (18, 3))) -> list[GranuleRecord]:
    first = dt.date(2012, 1, 1)
    return [
        tile_granule(first + dt.timedelta(days=8 * n), h, v) for n in range(16) for h, v in tiles
    ]


def made(records: Sequence[GranuleRecord], base: dict[str, Any] = REQUEST, **changes: Any) -> Plan:
    request = parse_request({**base, **changes})
    return plan(request, Shelf(records=records), Packages.of(LIMITS), LIMITS)


def specs(found: Plan, kind: type[Any]) -> list[Any]:
    return [planned.spec for planned in found if isinstance(planned.spec, kind)]


def outputs(found: Plan) -> list[str]:
    return [
        f"{p.output}/{p.spec.name}.tif"
        for p in found
        if p.output and isinstance(p.spec, MosaicSpec)
    ]


def test_the_tasks_of_tiles_of_sixteen_dates() -> None:
    found = made(composites())
    counted = preview(found)
    assert counted.granules == 32
    assert counted.download == 32_000
    assert counted.results == 32
    assert counted.tasks[Phase.REPROJECTION] == 16 * 2 * 4  # dates, layers, cells
    assert counted.tasks[Phase.AGGREGATION] == 32
    assert found.gaps == ()
    assert "MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km.2012-01-01.tif" in outputs(found)
    assert len(set(outputs(found))) == 32


def test_composites_are_selected_by_their_start_day() -> None:
    found = made(composites(), time={"start": "2012-01-03", "end": "2012-04-30"})
    assert preview(found).granules == 30
    assert min(s.day for s in specs(found, ReprojectSpec)) == dt.date(2012, 1, 9)


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
    found = made(composites())
    first = [s for s in specs(found, ReprojectSpec) if s.day == dt.date(2012, 1, 1)]
    for spec in first:
        west = spec.grid.transform[2]
        names = [given.name for given in spec.inputs]
        assert names == sorted(names)
        assert all(("h17" in name) == (west < 0) for name in names)
        assert len(names) == 1


def test_a_wide_kernel_reaches_over_the_edge_of_a_tile() -> None:
    tiles = ((17, 3), (18, 3))
    region = {"bbox": [-1.0, 52.0, -0.005, 53.0]}
    assert preview(made(composites(tiles), region=region)).granules == 16
    assert preview(made(composites(tiles), region=region, resampling="bilinear")).granules == 32


def test_a_tile_on_its_own_grid_needs_no_neighbour() -> None:
    around = [(h, v) for h in (16, 17, 18) for v in (2, 3, 4)]
    for resampling in ("nearest", "cubic", "average"):
        found = made(
            composites(around),
            region={"tiles": ["h17v03"]},
            grid={"modis": 1000},
            resampling=resampling,
        )
        assert preview(found).granules == 16
        cells = specs(found, ReprojectSpec)
        assert {(c.grid.width, c.grid.height) for c in cells} == {(1200, 1200)}
        assert all(len(c.inputs) == 1 for c in cells)


def test_only_the_tiles_named_are_cells() -> None:
    records = composites([(17, 3), (18, 3), (17, 4), (18, 4)])
    found = made(records, region={"tiles": ["h17v03", "h18v04"]}, grid={"modis": 1000})
    assert preview(found).granules == 32
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
    assert specs(found, MosaicSpec)[0].grid.width == 40


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
    assert keys(made(moved, **once), ReprojectSpec) == keys(plain, ReprojectSpec)
    remade = [replace(r, production_time="3" * 13) for r in composites()]
    assert not keys(made(remade, **once), ReprojectSpec) & keys(plain, ReprojectSpec)
    assert keys(made(composites(), **once, merge="latest"), ReprojectSpec) == keys(
        plain, ReprojectSpec
    )  # tiles are never merged
    assert not keys(made(composites(), **once, qa="best"), ReprojectSpec) & keys(
        plain, ReprojectSpec
    )
    longer = made(composites())
    assert keys(plain, ReprojectSpec) < keys(longer, ReprojectSpec)


def test_default_methods() -> None:
    products = [
        {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "FparLai_QC"]},
    ]

    def methods(**changes: Any) -> dict[str, str]:
        found = made(composites(), products=products, **changes)
        return {s.layer: s.resampling for s in specs(found, ReprojectSpec)}

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
    found = made(composites(), reduction={"package": "monthly-mean", "group_by": ["cell", "month"]})
    groups = specs(found, GroupSpec)
    assert len(groups) == 4 * 4  # cells, months
    assert Counter(g.window for g in groups) == {f"2012-0{m}": 4 for m in range(1, 5)}
    for group in groups:
        assert len(group.bands) == len(group.inputs) == 2 * 4  # layers, composites
        assert {given.file for given in group.inputs} == {"cell.tif"}
    runs = specs(found, ReduceSpec)
    assert len(runs) == 16
    assert all(len(run.inputs) == 1 for run in runs)
    monthly = [o for o in outputs(found) if o.startswith("monthly-mean/")]
    assert len(monthly) == 8
    assert any(o.endswith(".2012-01.tif") for o in monthly)
    assert found.package is not None
    assert {run.digest for run in runs} == {found.package.digest}


def test_days_of_composites_are_shared_over_months() -> None:
    reduction = {"package": "monthly-mean", "group_by": ["cell", "month"]}
    by_day = made(composites(), reduction=reduction, weight="days")
    january = next(g for g in specs(by_day, GroupSpec) if g.window == "2012-01")
    weights = {band.day: band.weight for band in january.bands}
    assert weights[dt.date(2012, 1, 1)] == 1.0
    assert weights[dt.date(2012, 1, 25)] == pytest.approx(7 / 8)  # 25 to 31 January
    february = next(g for g in specs(by_day, GroupSpec) if g.window == "2012-02")
    weights = {band.day: band.weight for band in february.bands}
    assert weights[dt.date(2012, 1, 25)] == pytest.approx(1 / 8)
    assert {g.window for g in specs(by_day, GroupSpec)} == {f"2012-0{m}" for m in range(1, 5)}


def test_cells_are_delivered_when_asked_for() -> None:
    found = made(composites(), cells=True)
    folders = [p.output for p in found if isinstance(p.spec, ReprojectSpec)]
    assert "MCD15A2.005/Lai_1km/cells/2012-01-01/r-6c-1" in folders
    assert len(set(folders)) == len(folders) == 128


def test_gaps_of_tiles_and_dates() -> None:
    lost = [
        record
        for record in composites()
        if record.start_day != dt.date(2012, 2, 18)
        and (record.start_day, record.tile) != (dt.date(2012, 3, 5), (18, 3))
    ]
    found = made(lost)
    assert [gap.what for gap in found.gaps] == [
        "MCD15A2.005 2012-02-18",
        "MCD15A2.005 2012-03-05 h18v03",
    ]
    assert preview(found).results == 30


def test_a_tile_that_is_nowhere_is_one_gap() -> None:
    found = made(composites([(17, 3)]))
    assert found.gaps == (
        Gap(
            what="MCD15A2.005 h18v03",
            reason="the archive has no granule of this tile in the whole time span",
        ),
    )


def test_days_without_swaths_are_gaps() -> None:
    day = dt.datetime(2007, 4, 13, 2, 50, tzinfo=dt.UTC)
    records = [
        swath_granule(day, (2, 2, 20, 20)),
        swath_granule(day + dt.timedelta(days=1), (100, 2, 120, 20)),
    ]
    found = made(records, SWATHS)
    assert [gap.what for gap in found.gaps] == [
        "MYD99_L2.006 2007-04-14",
        "MYD99_L2.006 2007-04-15",
    ]
    assert [s.granule for s in specs(found, CollectSpec)] == [records[0].name]
    assert len(found.notes) == 1  # the catalogue does not know the product


def test_swaths_of_one_utc_day_are_merged_and_others_are_not() -> None:
    late = dt.datetime(2007, 4, 13, 23, 58, tzinfo=dt.UTC)
    records = [
        swath_granule(late - dt.timedelta(hours=2), (2, 2, 20, 20)),
        swath_granule(late, (4, 2, 22, 20)),
        swath_granule(late + dt.timedelta(minutes=5), (6, 2, 24, 20)),
    ]
    cells = specs(made(records, SWATHS), ReprojectSpec)
    assert {(c.day.day, len(c.inputs)) for c in cells} == {(13, 2), (14, 1)}


def test_day_and_night_are_separate_when_asked_for() -> None:
    noon = dt.datetime(2007, 4, 13, 12, 0, tzinfo=dt.UTC)
    records = [
        swath_granule(noon, (2, 2, 20, 20), "Day"),
        swath_granule(noon + dt.timedelta(hours=6), (2, 2, 20, 20), "Both"),
        swath_granule(noon + dt.timedelta(hours=11), (2, 2, 20, 20), "Night"),
    ]
    one_day = {"time": {"start": "2007-04-13", "end": "2007-04-13"}}

    def inputs(day_night: str) -> set[int]:
        products = [{**SWATHS["products"][0], "day_night": day_night}]
        cells = specs(made(records, SWATHS, products=products, **one_day), ReprojectSpec)
        assert {c.day_night for c in cells} == {day_night}
        return {len(c.inputs) for c in cells}

    assert inputs("any") == {3}
    assert inputs("day") == {2}
    assert inputs("night") == {2}


def test_a_polar_grid_finds_swaths_over_the_pole() -> None:
    day = dt.datetime(2007, 4, 13, 2, 50, tzinfo=dt.UTC)
    records = [
        swath_granule(day, (0, 75, 40, 85)),
        swath_granule(day.replace(hour=4), (0, 0, 9, 9)),
    ]
    found = made(
        records,
        SWATHS,
        region={"bbox": [-180, 60, 180, 90]},
        grid={"crs": "EPSG:3995", "resolution": 25_000},
        time={"start": "2007-04-13", "end": "2007-04-13"},
    )
    assert [s.granule for s in specs(found, CollectSpec)] == [records[0].name]


def test_clipping_leaves_out_cells_and_granules_beyond_the_polygon() -> None:
    triangle = {"type": "Polygon", "coordinates": [[[-8, 51], [-7, 51], [-8, 58], [-8, 51]]]}
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
    assert preview(found).tasks[Phase.REPROJECTION] < preview(whole).tasks[Phase.REPROJECTION]
    assert all(spec.clip for spec in specs(found, MosaicSpec))
    assert not any(spec.clip for spec in specs(whole, MosaicSpec))


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        (
            {"time": {"start": "2013-01-01", "end": "2013-02-01"}},
            "time",
            "days from 2012-01-01 to 2012-04-30",
        ),
        ({"region": {"bbox": [100, 0, 110, 10]}}, "region", "none touches"),
        (
            {"products": [{"name": "MCD15A9", "collection": "5", "layers": ["a"]}]},
            "products.0",
            "MCD15A2",
        ),
        (
            {"products": [{"name": "MCD15A2", "collection": "7", "layers": ["Lai_1km"]}]},
            "products.0",
            "it serves collection 005",
        ),
        ({"reduction": {"package": "nothing"}}, "reduction.package", "monthly-mean"),
        ({"grid": {"crs": "EPSG:4326", "resolution": 1e-4}}, "grid.resolution", "MAX_PIXELS"),
    ],
)
def test_refusals_say_what_there_is(changes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        made(composites(), **changes)
    assert refused.value.field == field
    assert said in str(refused.value)


def test_a_plan_beyond_the_limit_is_refused_by_the_settings_name() -> None:
    small = Settings(max_tasks=100)
    with pytest.raises(RequestRefusedError, match="SWATHMILL_MAX_TASKS"):
        plan(parse_request(REQUEST), Shelf(records=composites()), Packages.of(small), small)


def test_a_long_thin_grid_is_refused_before_its_cells_are_looked_at() -> None:
    with pytest.raises(RequestRefusedError, match="20,000 are the most"):
        made(
            composites(),
            region={"bbox": [-8.0, 50.5, 6.0, 50.5000001]},
            grid={"crs": "EPSG:4326", "resolution": 1.4e-7},
        )


def test_a_world_map_centred_on_one_pole_sees_swaths_at_the_other() -> None:
    start = dt.datetime(2007, 4, 13, 2, 50, tzinfo=dt.UTC)
    records = [
        swath_granule(start, (0, -70, 20, -60)),
        swath_granule(start.replace(hour=3), (100, -5, 120, 15)),
        swath_granule(start.replace(hour=4), (-100, 60, -60, 75)),
    ]
    laea = "+proj=laea +lat_0=90 +lon_0=0 +datum=WGS84 +units=m +type=crs"
    found = made(
        records,
        SWATHS,
        region={"bbox": [-180, -80, 180, 90]},
        grid={"crs": laea, "resolution": 50_000},
        time={"start": "2007-04-13", "end": "2007-04-13"},
    )
    assert len(specs(found, CollectSpec)) == 3


def test_a_preview_counts_what_is_there_already() -> None:
    found = made(composites())
    there = {s.key for s in specs(found, CollectSpec)[:30]}
    counted = preview(found, there.__contains__)
    assert counted.reused[Phase.COLLECTION] == 30
    assert counted.download == 2_000


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
    inputs = {spec.layer: len(spec.inputs) for spec in specs(found, ReprojectSpec)}
    assert inputs == {"sur_refl_b01_1": 1, "SensorZenith_1": 9}


def test_swath_layers_are_never_resampled_by_a_lattice_kernel() -> None:
    start = dt.datetime(2007, 4, 13, 2, 50, tzinfo=dt.UTC)
    record = swath_granule(start, (2, 2, 20, 20))
    record = replace(record, product="MYD04_L2", name=record.name.replace("MYD99", "MYD04"))
    products = [
        {
            "name": "MYD04_L2",
            "collection": "6",
            "layers": ["Optical_Depth_Land_And_Ocean", "Land_Ocean_Quality_Flag"],
        }
    ]
    found = made([record], SWATHS, products=products, resampling="bilinear", merge="mean")
    chosen = {s.layer: (s.resampling, s.merge) for s in specs(found, ReprojectSpec)}
    assert chosen == {
        "Optical_Depth_Land_And_Ocean": ("nearest", "mean"),
        "Land_Ocean_Quality_Flag": ("nearest", "nadir"),
    }
    assert len(found.notes) == 2


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
    mosaics = {p.key: p.spec for p in found if isinstance(p.spec, MosaicSpec)}
    for spec in cubes.values():
        assert [given.file for given in spec.inputs] == [
            f"{mosaics[given.key].name}.tif" for given in spec.inputs
        ]
    assert [day.month for day in cubes["monthly-mean/Lai_1km_mean"].days] == [1, 2, 3, 4]
    without = lai.over({0: lai.inputs[0], 5: lai.inputs[5]})
    assert without.days == (lai.days[0], lai.days[5])
