"""Near real time granules, where asked for, stand for standard ones until those are there."""

import datetime as dt
from typing import Any

import pytest

from service_manager.planner.listing import newest_day, search_box
from tasks.bag.spec import CollectSpec, LayerSpec
from tasks.errors import RequestRefusedError
from tasks.request.document import parse_request
from tasks.request.resolved import resolve
from tests.service_manager.planner.test_planner_companions import MOMENTS, granules
from tests.service_manager.shelf import SWATHS, Shelf, made, specs, tile_granule

DAYS = [dt.date(2026, 11, day) for day in (20, 21, 22)]


def asked(name: str, collection: str, *, near: bool = True) -> dict[str, Any]:
    product = {"name": name, "collection": collection, "layers": ["x"], "near_real_time": near}
    return {
        "products": [product],
        "region": {"tiles": ["h18v03"]},
        "time": {"start": "2026-11-20", "end": "2026-11-22"},
        "grid": {"modis": 1000},
    }


def test_standard_granules_replace_near_real_time_ones() -> None:
    for name, collection, near in (
        ("VNP09GA", "2", ("VNP09GA_NRT", "2")),
        ("MOD09GA", "61", ("MOD09GA", "61NRT")),
        ("MCD19A2", "61", ("MCD19A2N", "61NRT")),
    ):
        early = [tile_granule(day, 18, 3, *near, made="9") for day in DAYS]
        late = [tile_granule(day, 18, 3, name, collection) for day in DAYS[:1]]
        first = made([*late, *early], asked(name, collection))
        taken = [late[0].name, early[1].name, early[2].name]
        assert [one.granule for one in specs(first, CollectSpec)] == taken
        assert {one.product for one in specs(first, CollectSpec)} == {name}
        said = "near real time granules on 2 days, 2026-11-21 to 2026-11-22"
        assert any(said in note for note in first.notes)
        assert not first.gaps
        late += [tile_granule(day, 18, 3, name, collection) for day in DAYS[1:]]
        again = made([*late, *early], asked(name, collection))
        assert [one.granule for one in specs(again, CollectSpec)] == [one.name for one in late]
        assert not any("near real time" in note for note in again.notes)
        unasked = made([late[0], *early], asked(name, collection, near=False))
        assert [one.granule for one in specs(unasked, CollectSpec)] == [late[0].name]


def test_swaths_lie_where_near_real_time_granules_say_until_the_standard_ones_are_there() -> None:
    names = ("VNP02MOD", "VNP02MOD_NRT", "VNP03MOD", "VNP03MOD_NRT")
    swaths, early, places, guessed = (granules(name, MOMENTS, "2") for name in names)
    wanted = {"name": "VNP02MOD", "collection": "2", "layers": ["M05"], "near_real_time": True}
    document = {**SWATHS, "products": [wanted]}
    for shelf, taken, noted in (
        ([*early, *guessed], [*early, *guessed], True),
        ([*swaths, *early, *guessed], [*swaths, *guessed], True),
        ([*early, *places, *guessed], [*early, *places], True),
        ([*swaths, *early, *places, *guessed], [*swaths, *places], False),
    ):
        found = made(shelf, document)
        collected = specs(found, CollectSpec)
        assert {one.granule for one in collected} == {one.name for one in taken}
        assert {one.product for one in collected} == {"VNP02MOD", "VNP03MOD"}
        assert any("near real time" in note for note in found.notes) == noted
        (cell,) = specs(found, LayerSpec)
        assert len(cell.inputs) == 4
    for unasked in ([*early, *places], [*swaths, *guessed]):
        with pytest.raises(RequestRefusedError):
            made(unasked, {**SWATHS, "products": [{**wanted, "near_real_time": False}]})


def test_a_standing_request_goes_on_with_near_real_time_days() -> None:
    late = [tile_granule(DAYS[0], 18, 3, "VNP09GA", "2")]
    early = [tile_granule(day, 18, 3, "VNP09GA_NRT", "2") for day in DAYS]
    for near, newest in ((True, DAYS[2]), (False, DAYS[0])):
        resolved = resolve(parse_request(asked("VNP09GA", "2", near=near)))
        box = search_box(resolved.target.area, 0.0)
        assert newest_day(resolved, Shelf(records=[*late, *early]), box) == newest
