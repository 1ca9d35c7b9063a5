"""Plans of sites: one extraction for each product and date, one table, and no raster."""

import datetime as dt
from typing import Any

from tasks.model.spec import (
    CollectSpec,
    ExtractSpec,
    MosaicSpec,
    ReprojectSpec,
    SitesSpec,
    TableSpec,
)
from tests.service_manager.shelf import composites, made, specs, swath_granule

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
