"""Plans of swaths: which a day and a place need, and how they are merged and resampled."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from archives.model import GranuleRecord
from modis.box import LonLatBox
from tasks.bag.spec import CollectSpec, LayerSpec
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.spec_parts import Driver
from tests.service_manager.shelf import LIMITS, SWATHS, Shelf, made, plan, specs, swath_granule


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
    cells = specs(made(records, SWATHS), LayerSpec)
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
        cells = specs(made(records, SWATHS, products=products, **one_day), LayerSpec)
        assert {c.day_night for c in cells} == {day_night}
        return {len(c.inputs) for c in cells}

    assert inputs("any") == {3}
    assert inputs("day") == {2}
    assert inputs("night") == {2}


class Boxed(Shelf):
    """A shelf that searches: only the granules of noon are near."""

    def search(
        self,
        product: str,
        collection: str,
        start_day: dt.date,
        end_day: dt.date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        found = super().search(product, collection, start_day, end_day)
        return (one for one in found if box is None or one.start.hour == 12)


def test_granules_of_the_other_half_of_the_day_are_told_as_that() -> None:
    noon = dt.datetime(2007, 4, 13, 12, 0, tzinfo=dt.UTC)
    near = [swath_granule(noon + dt.timedelta(minutes=5 * n), (2, 2, 9, 9)) for n in range(2)]
    far = [
        swath_granule(noon + dt.timedelta(hours=11), (100, 2, 109, 9), "Night"),
        swath_granule(noon + dt.timedelta(hours=10), (100, 2, 109, 9), ""),
    ]
    night = {"products": [{**SWATHS["products"][0], "day_night": "night"}]}
    with pytest.raises(RequestRefusedError) as refused:
        plan(
            parse_request({**SWATHS, **night}),
            Boxed(records=[*near, *far]),
            Packages.of(LIMITS),
            LIMITS,
        )
    assert refused.value.field == "products.0.day_night"
    said = refused.value.problem
    assert said.startswith("2 granules of MYD99_L2 006 from 2007-04-13 ")
    assert said.endswith("near the region, and all of the day; none is of the night.")


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


def test_all_layers_of_a_swath_product_follow_the_first_of_them() -> None:
    start = dt.datetime(2007, 4, 13, 2, 50, tzinfo=dt.UTC)
    records = [
        replace(record, product=product, name=record.name.replace("MYD99_L2", product))
        for product in ("MYD04_L2", "MYD05_L2")
        for record in (
            swath_granule(start, (2, 2, 20, 20)),
            swath_granule(start.replace(hour=4), (4, 2, 22, 20)),
        )
    ]

    def choice(name: str, *layers: str) -> dict[str, Any]:
        return {"name": name, "collection": "6", "layers": layers}

    depth, zenith = "Optical_Depth_Land_And_Ocean", "Solar_Zenith"
    products = [
        choice("MYD04_L2", depth, zenith),
        choice("MYD05_L2", "Water_Vapor_Infrared"),
        choice("MYD04_L2", "Land_Ocean_Quality_Flag"),
    ]
    methods = {depth: "average"}
    rule = {"Land_Ocean_Quality_Flag": {"value": [3]}}
    day = {"start": "2007-04-13", "end": "2007-04-13"}
    cells = specs(
        made(records, SWATHS, products=products, resampling=methods, qa=rule, time=day),
        LayerSpec,
    )
    lead = Driver(layer=depth, resampling="average", qa='{"Land_Ocean_Quality_Flag":{"value":[3]}}')
    assert {c.layer: c.driver for c in cells} == {
        depth: None,
        zenith: lead,
        "Land_Ocean_Quality_Flag": lead,
        "Water_Vapor_Infrared": None,
    }
    inputs = {c.layer: [given.key for given in c.inputs] for c in cells}
    assert inputs[depth] == inputs[zenith] == inputs["Land_Ocean_Quality_Flag"]
    # Alone, a layer is the same task whether others follow it or not.
    alone = specs(
        made(records, SWATHS, products=[choice("MYD04_L2", depth)], resampling=methods, qa=rule),
        LayerSpec,
    )
    assert {c.key for c in alone} == {c.key for c in cells if c.layer == depth}
    # A mean takes all granules; only what has no mean follows.
    mean = specs(
        made(records, SWATHS, products=products, resampling=methods, merge="mean", time=day),
        LayerSpec,
    )
    assert [c.layer for c in mean if c.driver] == ["Land_Ocean_Quality_Flag"]


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
    chosen = {s.layer: (s.resampling, s.merge) for s in specs(found, LayerSpec)}
    assert chosen == {
        "Optical_Depth_Land_And_Ocean": ("nearest", "mean"),
        "Land_Ocean_Quality_Flag": ("nearest", "nadir"),
    }
    assert len(found.notes) == 2
