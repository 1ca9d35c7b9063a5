"""What the archive does not have, as each planned task says it."""

import datetime as dt
from typing import Any

import pytest

from archives.model import GranuleRecord
from tasks.bag.absence import NAMED
from tasks.bag.kinds import load_spec
from tasks.bag.spec import CubeSpec, GroupSpec, LayerSpec, MosaicSpec
from tests.service_manager.shelf import composites, made, specs, swath_granule, tile_granule

FIRST, SECOND = dt.date(2012, 1, 1), dt.date(2012, 1, 9)
JANUARY = {"start": "2012-01-01", "end": "2012-01-31"}
MONTHLY = {"package": "monthly-mean", "group_by": ["cell", "month"]}
ONE_LAYER = [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}]


def without(day: dt.date, tile: tuple[int, int] = (17, 3)) -> list[GranuleRecord]:
    return [r for r in composites() if (r.start_day, r.tile) != (day, tile)]


def test_a_plan_that_lacks_nothing_says_nothing() -> None:
    for planned in made(composites(), time=JANUARY, reduction=MONTHLY, cube="netcdf"):
        assert planned.spec.missing == ()
        assert planned.spec.missing_unnamed is None


def test_a_mosaic_names_the_tile_of_its_day_that_is_not_in_the_archive() -> None:
    found = made(without(SECOND), time=JANUARY, products=ONE_LAYER, cells=True)
    lacking = {s.day: s for s in specs(found, MosaicSpec) if s.missing}
    assert list(lacking) == [SECOND]
    (spec,) = lacking.values()
    assert {(one.what, one.why) for one in spec.missing} == {
        ("MCD15A2.005 2012-01-09 h17v03", "not in the archive")
    }
    assert spec.absent_parts == 2  # of four cells those left of the meridian
    assert len(spec.inputs) == 2
    assert {gap.what for gap in found.gaps} == {"MCD15A2.005 2012-01-09 h17v03"}


def test_a_cell_with_one_of_its_two_tiles_says_so() -> None:
    found = made(
        without(SECOND),
        time=JANUARY,
        products=ONE_LAYER,
        grid={"crs": "EPSG:3035", "resolution": 2000},
    )
    cells = [s for s in specs(found, LayerSpec) if s.missing]
    assert cells
    for cell in cells:
        assert cell.day == SECOND
        assert [given.name[17:23] for given in cell.inputs] == ["h18v03"]
        assert [one.part for one in cell.missing] == ["h17v03"]


def test_keys_and_texts_of_what_lacks_something_agree() -> None:
    records = [*without(SECOND), *composites(((17, 2),))[:1]]
    region = {"bbox": [-8.0, 55.0, 6.0, 62.0]}
    found = made(records, time=JANUARY, region=region, reduction=MONTHLY, cube="zarr")
    assert any(p.spec.missing for p in found if isinstance(p.spec, LayerSpec))
    for planned in found:
        assert planned.key == planned.spec.key
        assert load_spec(planned.spec.model_dump_json()) == planned.spec


def test_groups_and_their_mosaics_and_cubes_name_the_days_that_are_missing() -> None:
    records = [r for r in composites() if r.start_day != SECOND]
    found = made(records, time=JANUARY, products=ONE_LAYER, reduction=MONTHLY, cube="netcdf")
    for group in specs(found, GroupSpec):
        assert [one.model_dump() for one in group.missing] == [
            {
                "part": "MCD15A2.005 Lai_1km 2012-01-09",
                "what": "MCD15A2.005 2012-01-09",
                "why": "not in the archive",
            }
        ]
        assert group.part(0) == "MCD15A2.005 Lai_1km 2012-01-01"
    cubes = {s.name: s for s in specs(found, CubeSpec)}
    assert [one.part for one in cubes["MCD15A2.005.Lai_1km"].missing] == ["2012-01-09"]
    assert cubes["monthly-mean.Lai_1km_mean"].missing == ()


def test_a_place_without_any_granule_in_a_window_is_missing_from_the_mosaic() -> None:
    records = [r for r in composites() if r.tile == (18, 3) or r.start_day.month == 2]
    span = {"start": "2012-01-01", "end": "2012-02-29"}
    found = made(records, time=span, products=ONE_LAYER, reduction=MONTHLY, cells=True)
    by_name = {s.name: s for s in specs(found, MosaicSpec)}
    january, february = (by_name[f"Lai_1km_mean.2012-0{n}"] for n in (1, 2))
    assert january.absent_parts == 2
    assert {one.what for one in january.missing} == {
        f"MCD15A2.005 2012-01-{day:02d} h17v03" for day in (1, 9, 17, 25)
    }
    assert february.missing == ()


def test_of_swaths_whole_days_are_missing_from_a_cube() -> None:
    days = (
        dt.datetime(2007, 4, 13, 12, tzinfo=dt.UTC),
        dt.datetime(2007, 4, 15, 12, tzinfo=dt.UTC),
    )
    found = made(
        [swath_granule(day, (0, 0, 10, 10)) for day in days],
        products=[{"name": "MYD99_L2", "collection": "6", "layers": ["Depth"]}],
        region={"bbox": [0, 0, 10, 10]},
        time={"start": "2007-04-13", "end": "2007-04-15"},
        grid={"crs": "EPSG:4326", "resolution": 0.1},
        resampling={},
        cube="netcdf",
    )
    (cube,) = specs(found, CubeSpec)
    assert [one.what for one in cube.missing] == ["MYD99_L2.006 2007-04-14"]
    assert all(s.missing == () for s in specs(found, MosaicSpec))


@pytest.mark.slow
def test_three_years_without_most_tiles_fit_into_rows() -> None:
    days = [FIRST + dt.timedelta(days=n) for n in range(3 * 365)]
    found = made(
        [tile_granule(day, 18, 4, "MOD11A1", "6") for day in days],
        products=[{"name": "MOD11A1", "collection": "6", "layers": ["LST_Day_1km"]}],
        region={"bbox": [-30.0, 25.0, 20.0, 60.0]},
        time={"start": f"{days[0]}", "end": f"{days[-1]}"},
        grid={"crs": "EPSG:4326", "resolution": 0.01},
        reduction={"package": "mean", "group_by": ["cell", "all"]},
    )
    for planned in found:
        assert len(planned.spec.missing) <= NAMED
        assert len(planned.spec.model_dump_json()) < 500_000
    (mosaic,) = [s for s in specs(found, MosaicSpec) if s.day is None]
    places = {s.cell for s in specs(found, GroupSpec)}
    cells = {s.grid.transform for s in specs(found, LayerSpec)}
    assert len(cells) == len(places) == len(mosaic.inputs)
    assert mosaic.absent_parts == 16
    tiles = 17  # that places without any granule lack
    assert mosaic.missing_unnamed is not None
    named = {one.what for one in mosaic.missing}
    assert len(named) + mosaic.missing_unnamed.inputs == len(days) * tiles


def test_layers_that_the_package_does_not_take_are_not_expected_of_its_groups() -> None:
    days = [FIRST + dt.timedelta(days=n) for n in range(31)]
    temperature = [tile_granule(day, 18, 4, "MOD11A1", "6") for day in days]
    plain: dict[str, Any] = {
        "region": {"tiles": ["h18v04"]},
        "time": JANUARY,
        "grid": {"modis": 1000},
        "reduction": {"package": "mean", "group_by": ["cell", "month"]},
        "cube": "netcdf",
    }
    both = [{"name": "MOD11A1", "collection": "6", "layers": ["LST_Day_1km", "QC_Day"]}]
    (group,) = specs(made(temperature[1:], products=both, **plain), GroupSpec)
    assert [one.part for one in group.missing] == ["MOD11A1.006 LST_Day_1km 2012-01-01"]
    classes = [
        {"name": "MOD11A1", "collection": "6", "layers": ["LST_Day_1km"]},
        {"name": "MOD13A2", "collection": "6", "layers": ["1 km 16 days pixel reliability"]},
    ]
    held = [*temperature, tile_granule(days[0], 18, 4, "MOD13A2", "6")]  # none of 17 January
    found = made(held, products=classes, **plain)
    (group,) = specs(found, GroupSpec)
    assert (len(group.bands), group.missing) == (31, ())
    lacking = {s.name for s in specs(found, CubeSpec) if s.missing}
    assert lacking == {"MOD13A2.006.1_km_16_days_pixel_reliability"}


def test_the_cube_of_a_reduction_expects_what_its_package_takes() -> None:
    held = [tile_granule(FIRST, 18, 4, "MOD11A1", "6")]
    products = [
        {"name": "MOD11A1", "collection": "6", "layers": ["LST_Day_1km"]},
        {"name": "MCD12Q1", "collection": "6", "layers": ["LC_Type1"]},
    ]
    held.append(tile_granule(FIRST, 18, 4, "MCD12Q1", "6"))
    found = made(
        held,
        products=products,
        region={"tiles": ["h18v04"]},
        time={"start": "2012-01-01", "end": "2012-02-29"},
        grid={"modis": 1000},
        reduction={"package": "mean", "group_by": ["cell", "month"]},
        cube="netcdf",
    )
    cubes = {s.name: s for s in specs(found, CubeSpec)}
    reduced = cubes["mean.LST_Day_1km_mean"].missing
    assert {one.part for one in reduced} == {"2012-02-01"}
    assert {one.what.split()[0] for one in reduced} == {"MOD11A1.006"}


def test_aquas_half_of_sixteen_day_pairs_is_expected_on_its_own_days_without_a_granule() -> None:
    layers = ["1 km 16 days NDVI"]
    found = made(
        [tile_granule(dt.date(2012, 1, day), 18, 4, "MOD13A2", "6") for day in (1, 17)],
        products=[
            {"name": name, "collection": "6", "layers": layers} for name in ("MOD13A2", "MYD13A2")
        ],
        region={"tiles": ["h18v04"]},
        time=JANUARY,
        grid={"modis": 1000},
        reduction={"package": "mean", "group_by": ["cell", "month"]},
    )
    (group,) = specs(found, GroupSpec)
    assert [one.what for one in group.missing] == [
        "MYD13A2.006 2012-01-09",
        "MYD13A2.006 2012-01-25",
    ]
