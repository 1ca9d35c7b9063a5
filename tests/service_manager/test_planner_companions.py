"""Products without coordinates, whose pixels lie where granules of another product say."""

import datetime as dt
from dataclasses import replace
from typing import Any

from archives.model import GranuleRecord
from modis.collection import Collection
from tasks.model.spec import CollectSpec, ReprojectSpec
from tests.service_manager.shelf import SWATHS, made, specs, swath_granule

FIRE: dict[str, Any] = {
    **SWATHS,
    "products": [{"name": "MYD14", "collection": "61", "layers": ["fire mask"]}],
}
MOMENTS = [dt.datetime(2007, 4, 13, 12, minute, tzinfo=dt.UTC) for minute in (0, 5)]


def granules(product: str, moments: list[dt.datetime]) -> list[GranuleRecord]:
    found = []
    for moment in moments:
        plain = swath_granule(moment, (0, 0, 10, 10))
        name = plain.name.replace("MYD99_L2", product).replace(".006.", ".061.")
        found.append(replace(plain, name=name, product=product, collection=Collection("61")))
    return found


def test_companions_are_collected_and_given_to_each_cell() -> None:
    found = made([*granules("MYD14", MOMENTS), *granules("MYD03", MOMENTS)], FIRE)
    names = {spec.granule.split(".")[0] for spec in specs(found, CollectSpec)}
    assert names == {"MYD14", "MYD03"}
    (cell,) = specs(found, ReprojectSpec)
    assert [given.name.split(".")[0] for given in cell.inputs] == ["MYD14", "MYD03"] * 2
    counted = next(task for task in found if task.spec is cell or task.spec == cell)
    assert counted.spec.amount == cell.grid.pixels * 4


def test_a_granule_without_its_companion_is_left_out() -> None:
    found = made([*granules("MYD14", MOMENTS), *granules("MYD03", MOMENTS[:1])], FIRE)
    (cell,) = specs(found, ReprojectSpec)
    assert len(cell.inputs) == 2
    assert {given.name.split(".")[2] for given in cell.inputs} == {"1200"}
