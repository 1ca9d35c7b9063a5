"""Which product of a record stands for which date, counted by hand over the end of both MODIS."""

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from archives.model import GranuleRecord
from modis.box import LonLatBox
from reprojection.records import record
from service_manager.planner.listing import newest_day, search_box
from service_manager.planner.plan_stream import PlanStream
from tasks.bag.spec import CubeSpec, GroupSpec, MosaicSpec, ReprojectSpec
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.request.resolved import resolve
from tasks.requests.plan import Plan
from tasks.spec_parts import RecordedLayer
from tests.service_manager.shelf import LIMITS, Shelf, made, outputs, specs, tile_granule

RECORD: dict[str, Any] = {
    "products": [{"record": "ndvi-16day", "layers": ["NDVI"]}],
    "region": {"tiles": ["h18v03"]},
    "time": {"start": "2025-12-01", "end": "2026-02-10"},
    "grid": {"modis": 1000},
}
"""Days of the year 337, 345, 353 and 361 of 2025; 1, 9, 17, 25, 33 and 41 of 2026."""

TERRA = ["2025-12-03", "2025-12-19"]  # 337, 353: its last
AQUA = ["2025-12-11", "2025-12-27", "2026-01-09"]  # 345, 361, 9: its last
NPP = ["2025-12-11", "2025-12-19", "2026-01-01", "2026-01-09", "2026-01-17", "2026-02-02"]
NOAA20 = ["2026-01-17", "2026-02-10"]
DATES = sorted({*TERRA, *AQUA, *NPP, *NOAA20})


def granules(
    product: str, collection: str, days: Iterable[str], h: int = 18
) -> list[GranuleRecord]:
    return [tile_granule(dt.date.fromisoformat(one), h, 3, product, collection) for one in days]


ARCHIVE = [
    *granules("MOD13A2", "61", TERRA),
    *granules("MYD13A2", "61", AQUA),
    *granules("VNP13A2", "2", NPP),
    *granules("VJ113A2", "2", NOAA20),
]


def sensors(plan: Plan) -> dict[str, str]:
    """Return by date which product each cell is made of; several cells of one would clash.

    Cells that are compared alone are in no raster.
    """
    shown = {given.key for one in specs(plan, MosaicSpec) for given in one.inputs}
    cells = [one for one in specs(plan, ReprojectSpec) if one.key in shown]
    found = {one.day.isoformat(): one.product for one in cells}
    assert len(found) == len(cells)
    return found


def test_the_first_sensor_in_order_that_has_a_date_stands_for_it() -> None:
    found = made(ARCHIVE, RECORD)
    assert sensors(found) == {
        "2025-12-03": "MOD13A2",
        "2025-12-11": "MYD13A2",  # Suomi NPP has it, too
        "2025-12-19": "MOD13A2",  # Suomi NPP has it, too
        "2025-12-27": "MYD13A2",
        "2026-01-01": "VNP13A2",
        "2026-01-09": "MYD13A2",
        "2026-01-17": "VNP13A2",  # NOAA-20 has it, too
        "2026-02-02": "VNP13A2",
        "2026-02-10": "VJ113A2",
    }
    # The record has a date every 8 days; no sensor has that of 25 January.
    assert [gap.what for gap in found.gaps] == ["ndvi-16day 2026-01-25"]
    assert outputs(found) == [f"ndvi-16day/NDVI/ndvi-16day.NDVI.{day}.tif" for day in DATES]
    said = RecordedLayer(record="ndvi-16day", layer="NDVI", units="1")
    assert {one.record for one in specs(found, MosaicSpec)} == {said}
    assert {one.units for one in specs(found, ReprojectSpec)} == {"physical"}
    assert found.notes[0].startswith("Where ndvi-16day goes on with another sensor, both are read")
    assert found.notes[1:] == (
        "ndvi-16day: Terra MODIS (MOD13A2) 2 dates, 2025-12-03 to 2025-12-19, 2 granules; "
        "Aqua MODIS (MYD13A2) 3 dates, 2025-12-11 to 2026-01-09, 3 granules; "
        "Suomi NPP VIIRS (VNP13A2) 3 dates, 2026-01-01 to 2026-02-02, 3 granules; "
        "NOAA-20 VIIRS (VJ113A2) 1 date, 2026-02-10, 1 granule. In physical units.",
    )


def test_small_rasters_of_a_record_are_made_of_cells_too() -> None:
    """Sensors are compared in cells, and a raster of a record says of which sensor it is."""
    small = {
        "region": {"bbox": [0.0, 51.0, 5.0, 55.0]},
        "grid": {"crs": "EPSG:4326", "resolution": 0.01},
    }
    found = made(ARCHIVE, {**RECORD, **small})
    assert len(specs(found, MosaicSpec)) == len(DATES)
    assert [*sensors(found)] == DATES


def test_another_order_is_what_the_request_prefers() -> None:
    first = {"record": "ndvi-16day", "layers": ["NDVI"], "prefer": ["VIIRS"]}
    found = made(ARCHIVE, RECORD, products=[first])
    assert sensors(found) == {
        "2025-12-03": "MOD13A2",
        **dict.fromkeys(NPP, "VNP13A2"),
        "2025-12-27": "MYD13A2",
        "2026-02-10": "VJ113A2",
    }
    aqua = {**first, "prefer": ["NOAA-20", "myd13a2"]}
    late = sensors(made(ARCHIVE, RECORD, products=[aqua]))
    assert late["2026-01-17"] == "VJ113A2"
    assert late["2026-01-09"] == "MYD13A2"


def test_a_mean_is_of_all_sensors_that_have_a_date() -> None:
    mean = {"record": "ndvi-16day", "layers": ["NDVI"], "overlap": "mean"}
    found = made(ARCHIVE, RECORD, products=[mean], cube="netcdf")
    cells = {one.key: one.product for one in specs(found, ReprojectSpec)}
    of = {
        one.day.isoformat(): [cells[given.key] for given in one.inputs]
        for one in specs(found, MosaicSpec)
        if one.day
    }
    have = {"MOD13A2": TERRA, "MYD13A2": AQUA, "VNP13A2": NPP, "VJ113A2": NOAA20}
    assert of == {day: [name for name, days in have.items() if day in days] for day in DATES}
    assert [gap.what for gap in found.gaps] == ["ndvi-16day 2026-01-25"]
    (cube,) = specs(found, CubeSpec)
    assert [day.isoformat() for day in cube.days] == DATES


def test_a_mean_lacks_a_tile_that_no_sensor_has() -> None:
    mean = {"record": "ndvi-16day", "layers": ["NDVI"], "overlap": "mean"}
    two = {"region": {"tiles": ["h18v03", "h19v03"]}, "products": [mean]}
    beside = granules("VNP13A2", "2", NPP, h=19)
    found = made([*ARCHIVE, *beside], RECORD, **two)
    lacking = {one.day.isoformat(): one.missing for one in specs(found, MosaicSpec) if one.day}
    assert {day for day, absent in lacking.items() if absent} == {*DATES} - {*NPP}
    assert lacking["2025-12-03"][0].what == "ndvi-16day 2025-12-03 h19v03"


def test_each_sensor_by_itself() -> None:
    both = {"record": "ndvi-16day", "layers": ["NDVI"], "overlap": "all"}
    found = made(ARCHIVE, RECORD, products=[both], cube="netcdf")
    folders = {"MOD13A2.061": TERRA, "MYD13A2.061": AQUA, "VNP13A2.002": NPP, "VJ113A2.002": NOAA20}
    assert sorted(outputs(found)) == sorted(
        f"ndvi-16day.{one}/NDVI/ndvi-16day.{one}.NDVI.{day}.tif"
        for one, days in folders.items()
        for day in days
    )
    cubes = {one.name: [day.isoformat() for day in one.days] for one in specs(found, CubeSpec)}
    assert cubes == {f"ndvi-16day.{one}.NDVI": days for one, days in folders.items()}


def test_a_cube_holds_all_sensors() -> None:
    (cube,) = specs(made(ARCHIVE, RECORD, cube="netcdf"), CubeSpec)
    assert cube.name == "ndvi-16day.NDVI"
    assert [day.isoformat() for day in cube.days] == DATES
    assert [one.what for one in cube.missing] == ["ndvi-16day 2026-01-25"]


def test_a_granule_elsewhere_does_not_keep_the_next_sensor_away() -> None:
    """The search takes granules around the region, and the sensor is chosen by the region's own."""
    far = granules("MOD13A2", "61", ["2026-01-17"], h=19)
    assert sensors(made([*ARCHIVE, *far], RECORD))["2026-01-17"] == "VNP13A2"


def test_a_date_of_one_sensor_lacks_its_tiles_whatever_others_have() -> None:
    two = {"region": {"tiles": ["h18v03", "h19v03"]}}
    beside = granules("VNP13A2", "2", DATES, h=19)
    found = made([*ARCHIVE, *beside], RECORD, **two)
    assert sorted(gap.what for gap in found.gaps if "2025-12" in gap.what) == [
        f"ndvi-16day {day} h19v03" for day in DATES if day < "2026"
    ]


def test_a_plan_is_another_where_a_record_says_another_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = parse_request(RECORD)

    def identity() -> str:
        return PlanStream(request, Shelf(records=[]), Packages.of(LIMITS), LIMITS).identity

    before = identity()
    known = record("ndvi-16day")
    assert known is not None
    assert identity() == before
    layers = {name: one.model_copy(update={"units": "%"}) for name, one in known.layers.items()}
    changed = known.model_copy(update={"layers": layers})
    monkeypatch.setattr("tasks.request.record_products.record", lambda _name: changed)
    assert identity() != before


def test_one_collection_of_a_product_is_taken() -> None:
    old = granules("MOD13A2", "6", ["2026-01-17", "2026-01-25"])
    found = made([*ARCHIVE, *old], RECORD)
    assert sensors(found)["2026-01-17"] == "VNP13A2"
    assert "2026-01-25" not in sensors(found)


def test_a_reduction_sees_one_layer_over_all_sensors() -> None:
    mean = {"package": "monthly-mean", "group_by": ["cell", "month"]}
    found = made(ARCHIVE, RECORD, reduction=mean)
    groups = {one.window: one for one in specs(found, GroupSpec)}
    january = [(one.product, one.collection, one.layer) for one in groups["2026-01"].bands]
    assert january == [("ndvi-16day", "", "NDVI")] * 3
    assert [one.day.day for one in groups["2026-01"].bands] == [9, 1, 17]
    assert [one.part for one in groups["2026-01"].missing] == ["ndvi-16day NDVI 2026-01-25"]
    assert "monthly-mean/NDVI_mean/NDVI_mean.2026-01.tif" in outputs(found)
    (february,) = (one for one in found.windows if one.window == "2026-02")
    assert february.has == "ndvi-16day: 2"


def test_a_reduction_that_needs_every_product_needs_one_of_a_record() -> None:
    mean = {
        "package": "monthly-mean",
        "group_by": ["cell", "month"],
        "requires": {"dates": "all"},
    }
    found = made(ARCHIVE, RECORD, reduction=mean)
    assert {one.window for one in specs(found, GroupSpec)} == {"2025-12", "2026-01", "2026-02"}


def test_a_standing_request_goes_on_with_the_sensors_that_go_on() -> None:
    resolved = resolve(parse_request(RECORD))
    shelf = Shelf(records=ARCHIVE)
    # Suomi NPP goes before NOAA-20, and its granule of February 10th may still come.
    assert newest_day(resolved, shelf, search_box(resolved.target.area, 0.0)) == dt.date(2026, 2, 2)
    old = Shelf(records=[one for one in ARCHIVE if one.product != "VJ113A2"])
    assert newest_day(resolved, old, search_box(resolved.target.area, 0.0)) == dt.date(2026, 2, 2)


def test_the_newest_day_takes_one_listing_of_each_product() -> None:
    listed: list[str] = []

    class Noting(Shelf):
        def search(
            self,
            product: str,
            collection: str,
            start_day: dt.date,
            end_day: dt.date,
            box: LonLatBox | None = None,
        ) -> Iterator[GranuleRecord]:
            listed.append(product)
            return super().search(product, collection, start_day, end_day, box)

    resolved = resolve(parse_request(RECORD))
    newest_day(resolved, Noting(records=ARCHIVE), search_box(resolved.target.area, 0.0))
    assert listed == [one.choice.name for one in resolved.products]


DAILY: dict[str, Any] = {
    **RECORD,
    "products": [{"record": "reflectance-daily", "layers": ["red"]}],
    "time": {"start": "2026-03-10", "end": "2026-03-31"},
    "grid": {"modis": 500},
}


def newest(terra: Iterable[str], aqua: Iterable[str], **more: str) -> dt.date | None:
    """Return the newest day of the daily reflectance, whose first sensor is Terra."""
    product = {**DAILY["products"][0], **more}
    resolved = resolve(parse_request({**DAILY, "products": [product]}))
    shelf = Shelf(records=[*granules("MOD09GA", "61", terra), *granules("MYD09GA", "61", aqua)])
    return newest_day(resolved, shelf, search_box(resolved.target.area, 0.0))


def test_a_standing_request_waits_for_the_sensor_that_goes_first() -> None:
    days = [f"2026-03-{day}" for day in range(10, 13)]
    assert newest(days[:2], days) == dt.date(2026, 3, 11)
    assert newest(days, days[:2]) == dt.date(2026, 3, 12)
    assert newest(days, days[:2], overlap="all") == dt.date(2026, 3, 11)
    assert newest(days, days[:2], overlap="mean") == dt.date(2026, 3, 11)
    # Terra's last granules are of before the days asked for; all of Aqua's might be doubled.
    assert newest(["2026-03-09"], days) is None
    assert newest(["2026-03-09", "2026-03-12"], days) == dt.date(2026, 3, 12)


def test_a_standing_request_does_not_wait_for_a_sensor_that_has_ended() -> None:
    assert newest(["2026-02-21"], ["2026-03-10"]) == dt.date(2026, 3, 10)
    assert newest(["2026-02-22"], ["2026-03-10"]) is None
    assert newest(["2026-02-22"], ["2026-03-10", "2026-03-11"]) == dt.date(2026, 3, 11)


def test_a_record_without_a_granule_is_refused() -> None:
    with pytest.raises(RequestRefusedError, match=r"MOD13A2 061, MYD13A2 061, VNP13A2 002"):
        made([], RECORD)
