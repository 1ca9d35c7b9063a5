"""On which dates the sensors of a record are compared, counted by hand."""

import datetime as dt
from typing import Any

from tasks.bag.spec import CollectSpec, MosaicSpec, OverlapSpec, ReprojectSpec
from tasks.request.resolved import COMPARED_CELLS
from tasks.requests.plan import Plan
from tests.service_manager.planner.test_record_dates import ARCHIVE, RECORD, granules
from tests.service_manager.shelf import made, specs

TERRA = [(dt.date(2024, 1, 1) + dt.timedelta(16 * n)).isoformat() for n in range(23)]
LATER = ["2024-12-26", "2025-01-01"]
ENDED = [
    *granules("MOD13A2", "61", TERRA),
    *granules("VNP13A2", "2", [*TERRA, *LATER]),
]
YEAR = {**RECORD, "time": {"start": "2024-01-01", "end": "2025-01-08"}}


def compared(plan: Plan) -> dict[tuple[str, str], list[str]]:
    """Return the common dates of each pair of products."""
    (spec,) = specs(plan, OverlapSpec)
    keys = {one.key: one for one in specs(plan, ReprojectSpec)}
    assert [keys[given.key].product for given in spec.inputs] == [one.product for one in spec.cells]
    days: dict[str, set[str]] = {}
    for one in spec.cells:
        days.setdefault(one.product, set()).add(one.day.isoformat())
    return {pair: sorted(days[pair[0]] & days[pair[1]]) for pair in spec.pairs}


def test_each_sensor_is_compared_with_the_one_that_follows_it() -> None:
    assert compared(made(ARCHIVE, RECORD)) == {
        ("MYD13A2", "VNP13A2"): ["2025-12-11", "2026-01-09"],
        ("MOD13A2", "VNP13A2"): ["2025-12-19"],
        ("VNP13A2", "VJ113A2"): ["2026-01-17"],
    }


def test_the_last_common_date_of_each_month_is_compared() -> None:
    found = made(ENDED, YEAR)
    last = {day[:7]: day for day in TERRA}
    assert compared(found) == {("MOD13A2", "VNP13A2"): [*last.values()]}
    # Beside what stands for dates: a granule and a cell of Suomi NPP for each of the twelve.
    assert len(specs(found, MosaicSpec)) == 23 + 2
    assert len(specs(found, ReprojectSpec)) == len(specs(found, CollectSpec)) == 25 + 12


def test_nothing_is_compared_where_no_other_sensor_follows() -> None:
    before = {**YEAR, "time": {"start": "2024-01-01", "end": "2024-12-18"}}
    found = made(ENDED, before)
    assert not specs(found, OverlapSpec)
    assert len(specs(found, CollectSpec)) == 23


def test_sensors_by_themselves_and_means_are_compared_with_nothing_more() -> None:
    for overlap in ("all", "mean"):
        product = {**RECORD["products"][0], "overlap": overlap}
        found = made(ENDED, {**YEAR, "products": [product]})
        assert compared(found) == {("MOD13A2", "VNP13A2"): [*{d[:7]: d for d in TERRA}.values()]}
        assert len(specs(found, CollectSpec)) == 23 + 25


def test_a_wide_region_is_compared_in_some_cells() -> None:
    tiles = range(10, 30)
    wide: dict[str, Any] = {**YEAR, "region": {"tiles": [f"h{h}v03" for h in tiles]}}
    archive = [
        one
        for h in tiles
        for one in (
            *granules("MOD13A2", "61", TERRA[:1], h=h),
            *granules("VNP13A2", "2", TERRA[:2], h=h),
        )
    ]
    found = made(archive, wide)
    (spec,) = specs(found, OverlapSpec)
    cells = {one.cell for one in spec.cells}
    whole = {given.name.split()[0] for one in specs(found, MosaicSpec) for given in one.inputs}
    assert len(cells) == COMPARED_CELLS < len(whole)
    assert cells < whole


def test_classes_have_no_difference() -> None:
    burned = {"record": "burned-area-monthly", "layers": ["Burn_Date"]}
    days = ["2024-01-01", "2024-02-01"]
    archive = [
        *granules("MCD64A1", "61", days[:1]),
        *granules("VNP64A1", "2", days),
    ]
    changed = {"products": [burned], "grid": {"modis": 500}}
    assert not specs(made(archive, {**YEAR, **changed}), OverlapSpec)
