"""Plans with each overpass by itself, counted by hand before they were planned."""

import datetime as dt
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from archives.model import GranuleRecord
from service_manager.planner.overpasses import overpasses
from service_manager.planner.plan_stream import PlanStream
from service_manager.plans import stored_plan
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
from tasks.storage.blobs import MemoryBlobs
from tests.service_manager.shelf import LIMITS, SWATHS, Shelf, made, outputs, specs, swath_granule

HERE = (-2.0, -2.0, 12.0, 12.0)  # all of the region
ELSEWHERE = (100.0, 0.0, 120.0, 15.0)


def temperature(when: str, half: str, box: tuple[float, float, float, float] = HERE) -> Any:
    """Return a granule of MYD11_L2 in April 2007: "13 0210" is the 13th, 02:10."""
    start = dt.datetime.strptime(f"200704{when}", "%Y%m%d %H%M").replace(tzinfo=dt.UTC)
    record = swath_granule(start, box, half)
    return replace(record, product="MYD11_L2", name=record.name.replace("MYD99", "MYD11"))


def choice(half: str = "any", name: str = "MYD11_L2", layer: str = "LST") -> dict[str, Any]:
    which = {"day_night": half, "overpasses": "all"}
    return {"name": name, "collection": "6", "layers": [layer], **which}


# By day: on the 13th two overpasses, the first of two granules; one on the 14th; none on the 15th.
# By night: one on the 13th, none on the 14th, one of two granules on the 15th.
RECORDS = [
    temperature("13 0210", "Night"),
    temperature("13 1300", "Day"),
    temperature("13 1305", "Day"),
    temperature("13 1440", "Day"),
    temperature("13 1250", "Day", ELSEWHERE),
    temperature("14 1345", "Day"),
    temperature("15 0150", "Night"),
    temperature("15 0155", "Night"),
]


def test_overpasses_by_day_and_night_are_runs_files_and_gaps_counted_by_hand() -> None:
    found = made(
        RECORDS,
        SWATHS,
        products=[choice("day"), choice("night")],
        reduction={"package": "mean", "group_by": ["cell", "date"]},
        cube="netcdf",
    )
    count = Counter(type(planned.spec) for planned in found)
    assert count == {
        CollectSpec: 7,
        RasterSpec: 5,  # three overpasses by day, two by night; the region is one cell
        GroupSpec: 3,  # each day has something
        ReduceSpec: 3,
        MosaicSpec: 4,  # the mean of each half on the 13th, of one half on the others
        CubeSpec: 2 + 2,
    }
    layers = [name for name in outputs(found) if name.startswith("MYD11")]
    assert layers == [
        f"MYD11_L2.006.{half}/LST/MYD11_L2.006.{half}.LST.2007-04-{when}.tif"
        for half, when in (
            ("day", "13T1300"),
            ("day", "13T1440"),
            ("night", "13T0210"),
            ("day", "14T1345"),
            ("night", "15T0150"),
        )
    ]
    assert [gap.what for gap in found.gaps] == [
        "MYD11_L2.006.day 2007-04-15",
        "MYD11_L2.006.night 2007-04-14",
    ]
    assert found.notes[:2] == (
        "MYD11_L2.006.day: 3 overpasses, each by itself.",
        "MYD11_L2.006.night: 2 overpasses, each by itself.",
    )
    bands = {group.window: [(b.layer, b.when) for b in group.bands] for group in specs_of(found)}
    assert bands == {
        "2007-04-13": [
            ("LST.day", "2007-04-13T13:00"),
            ("LST.day", "2007-04-13T14:40"),
            ("LST.night", "2007-04-13T02:10"),
        ],
        "2007-04-14": [("LST.day", "2007-04-14T13:45")],
        "2007-04-15": [("LST.night", "2007-04-15T01:50")],
    }
    (by_day,) = [cube for cube in specs(found, CubeSpec) if cube.name == "MYD11_L2.006.day.LST"]
    assert [f"{day}T{time}" for day, time in zip(by_day.days, by_day.times, strict=True)] == [
        "2007-04-13T13:00",
        "2007-04-13T14:40",
        "2007-04-14T13:45",
    ]
    assert by_day.over({1: by_day.inputs[1]}).times == ("14:40",)
    assert {cube.times for cube in specs(found, CubeSpec) if cube.name.startswith("mean")} == {()}


def specs_of(found: Plan) -> list[GroupSpec]:
    return specs(found, GroupSpec)


def test_an_overpass_is_the_same_task_as_a_day_of_it_alone() -> None:
    """So that requests share the cells, and keys of requests without overpasses stay."""
    merged = {**choice("day"), "overpasses": "merged"}
    alone = made(RECORDS[5:6], SWATHS, products=[merged], cells=True)
    found = made(RECORDS, SWATHS, products=[choice("day")], cells=True)
    assert {s.key for s in specs(alone, LayerSpec)} < {s.key for s in specs(found, LayerSpec)}
    together = made(RECORDS, SWATHS, products=[merged])
    assert [len(one.inputs) for one in specs(together, RasterSpec)] == [3, 1]
    assert not any("overpass" in note for note in together.notes)


def test_cells_are_handed_over_by_overpass() -> None:
    found = made(RECORDS[1:4], SWATHS, products=[choice()], cells=True)
    folders = {p.output for p in found if isinstance(p.spec, LayerSpec)}
    assert {folder.rpartition("/")[0] for folder in folders} == {
        "MYD11_L2.006/LST/cells/2007-04-13T1300",
        "MYD11_L2.006/LST/cells/2007-04-13T1440",
    }


def test_a_plan_taken_over_has_the_overpasses_of_the_one_before() -> None:
    request = parse_request({**SWATHS, "products": [choice("day")], "cube": "netcdf"})
    blobs, shelf = MemoryBlobs(), Shelf(records=RECORDS)

    def frozen(name: str) -> stored_plan.Frozen:
        course = PlanStream(request, shelf, Packages.of(LIMITS), LIMITS)
        return stored_plan.freeze(blobs, name, course, "1")

    first = frozen("a")
    (part,) = [one for one in first.stretches if one.outcome is not None]
    assert part.outcome is not None
    assert [raster.time for raster in part.outcome.rasters] == ["13:00", "14:40", "13:45"]
    assert part.outcome.overpasses == {0: 3}


def test_granules_within_half_an_orbit_are_one_overpass() -> None:
    def of(*times: str) -> list[tuple[str, int]]:
        records: list[GranuleRecord] = [temperature(f"13 {time}", "Day") for time in times]
        return [(start, len(passed)) for start, passed in overpasses(reversed(records))]

    assert of("1300", "1305", "1315", "1440") == [("13:00", 3), ("14:40", 1)]
    assert of("0000", "0135", "0315") == [("00:00", 1), ("01:35", 1), ("03:15", 1)]
    # Over a region that is never left the next overpass begins after half an orbit.
    whole = [f"{minute // 60:02d}{minute % 60:02d}" for minute in range(0, 150, 5)]
    assert of(*whole) == [("00:00", 10), ("00:50", 10), ("01:40", 10)]


def test_tiles_have_no_overpasses() -> None:
    orbits = choice(name="MCD19A2", layer="Optical_Depth_055")
    with pytest.raises(RequestRefusedError, match=r"Optical_Depth_055\[0\]") as caught:
        made([], SWATHS, products=[orbits])
    assert caught.value.field == "products.0.overpasses"
    with pytest.raises(RequestRefusedError, match="lies on a grid") as caught:
        made([], SWATHS, products=[choice(name="MOD11A1", layer="LST_Day_1km")])
    assert caught.value.field == "products.0.overpasses"
