"""Granules that start before the request's first day, and granules that hold several days."""

import datetime as dt
from typing import Any

import pytest

from tasks.bag.spec import CollectSpec, CubeSpec, GroupSpec, LayerSpec, MosaicSpec, RasterSpec
from tasks.errors import RequestRefusedError
from tests.service_manager.shelf import composites, made, outputs, specs, tile_granule

MONTHLY = {"package": "monthly-mean", "group_by": ["cell", "month"]}
FIRE: dict[str, Any] = {
    "products": [{"name": "MOD14A1", "collection": "6", "layers": ["FireMask", "QA"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-03", "end": "2012-01-10"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}
STACKS = [
    tile_granule(dt.date(2011, 12, 27) + dt.timedelta(days=n), h, 3, "MOD14A1", "6")
    for n in (0, 5, 13, 21)
    for h in (17, 18)
]


def weights(found: Any, window: str) -> dict[dt.date, float]:
    group = next(g for g in specs(found, GroupSpec) if g.window == window)
    return {band.day: band.counted.share for band in group.bands}


def test_the_composite_that_covers_the_first_day_counts_by_its_days() -> None:
    whole = made(composites(), reduction=MONTHLY, weight="days")
    later = made(
        composites(),
        reduction=MONTHLY,
        weight="days",
        time={"start": "2012-02-01", "end": "2012-04-30"},
    )
    assert weights(later, "2012-02") == weights(whole, "2012-02")
    assert weights(later, "2012-02")[dt.date(2012, 1, 25)] == pytest.approx(1 / 8)
    assert {g.window for g in specs(later, GroupSpec)} == {"2012-02", "2012-03", "2012-04"}
    assert later.gaps == ()


def test_a_composite_before_the_first_day_makes_no_raster_of_its_own() -> None:
    day = {"start": "2012-01-28", "end": "2012-01-28"}
    found = made(composites(), reduction=MONTHLY, weight="days", time=day, cells=True)
    assert weights(found, "2012-01") == {dt.date(2012, 1, 25): pytest.approx(7 / 8)}
    assert all(spec.day is None for spec in specs(found, MosaicSpec))
    assert not [o for o in outputs(found) if "2012-01-25" in o]


def test_a_missing_composite_before_the_first_day_is_told() -> None:
    span = {"start": "2012-02-01", "end": "2012-02-29"}
    records = [record for record in composites() if record.start_day != dt.date(2012, 1, 25)]
    found = made(records, reduction=MONTHLY, weight="days", time=span)
    assert [gap.what for gap in found.gaps] == ["MCD15A2.005 2012-01-25"]
    group = next(g for g in specs(found, GroupSpec) if g.window == "2012-02")
    assert {absent.what for absent in group.missing} == {"MCD15A2.005 2012-01-25"}


def test_without_weight_composites_go_by_their_first_day() -> None:
    with pytest.raises(RequestRefusedError, match="no granule"):
        made(composites(), reduction=MONTHLY, time={"start": "2012-01-28", "end": "2012-01-28"})


def test_the_days_of_a_stack_are_dates_of_their_own() -> None:
    found = made(STACKS, FIRE)
    assert len(specs(found, CollectSpec)) == 4  # of January 1st and 9th; of December none
    cells = {(spec.layer, spec.day.day) for spec in specs(found, LayerSpec)}
    bands = [(2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (0, 9), (1, 10)]
    assert cells == {(f"{name}[{band}]", day) for name in ("FireMask", "QA") for band, day in bands}
    assert "MOD14A1.006/FireMask/MOD14A1.006.FireMask.2012-01-03.tif" in outputs(found)
    assert len(specs(found, RasterSpec)) == 2 * 8
    assert found.gaps == ()


def test_the_years_last_stack_ends_with_the_year() -> None:
    found = made(STACKS, FIRE, time={"start": "2011-12-30", "end": "2012-01-02"})
    cells = sorted((spec.day, spec.layer) for spec in specs(found, LayerSpec))
    assert [layer for _, layer in cells if "Fire" in layer] == [
        "FireMask[3]",
        "FireMask[4]",
        "FireMask[0]",
        "FireMask[1]",
    ]


def test_cubes_go_by_the_days_of_a_stack() -> None:
    span = {"start": "2012-01-07", "end": "2012-01-20"}
    missing = [record for record in STACKS if record.start_day != dt.date(2012, 1, 9)]
    found = made(missing, FIRE, time=span, cube="netcdf")
    cube = next(spec for spec in specs(found, CubeSpec) if "FireMask" in spec.name)
    assert [day.day for day in cube.days] == [7, 8, 17, 18, 19, 20]
    assert [absent.what[-2:] for absent in cube.missing] == [f"{day:02d}" for day in range(9, 17)]
    assert len(found.gaps) == 8


def test_a_band_of_a_stack_stays_with_its_granule() -> None:
    mixed = [{"name": "MOD14A1", "collection": "6", "layers": ["FireMask", "QA[2]"]}]
    with pytest.raises(RequestRefusedError, match="other layers asked for are of one date"):
        made(STACKS, FIRE, products=mixed)
    alone = [{"name": "MOD14A1", "collection": "6", "layers": ["QA[2]"]}]
    found = made(STACKS, FIRE, products=alone)
    assert {spec.day for spec in specs(found, LayerSpec)} == {dt.date(2012, 1, 9)}
