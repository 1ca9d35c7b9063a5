"""Products without coordinates, whose pixels lie where granules of another product say."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from archives.model import GranuleRecord
from modis.collection import Collection
from tasks.bag.spec import CollectSpec, LayerSpec
from tasks.errors import RequestRefusedError
from tests.service_manager.shelf import SWATHS, made, specs, swath_granule

FIRE: dict[str, Any] = {
    **SWATHS,
    "products": [{"name": "MYD14", "collection": "61", "layers": ["fire mask"]}],
}
MOMENTS = [dt.datetime(2007, 4, 13, 12, minute, tzinfo=dt.UTC) for minute in (0, 5)]


def granules(
    product: str, moments: list[dt.datetime], collection: str = "61"
) -> list[GranuleRecord]:
    found = []
    for moment in moments:
        plain = swath_granule(moment, (0, 0, 10, 10))
        name = plain.name.replace("MYD99_L2", product).replace(".006.", f".{collection:0>3}.")
        found.append(replace(plain, name=name, product=product, collection=Collection(collection)))
    return found


def test_companions_are_collected_and_given_to_each_cell() -> None:
    found = made([*granules("MYD14", MOMENTS), *granules("MYD03", MOMENTS)], FIRE)
    names = {spec.granule.split(".")[0] for spec in specs(found, CollectSpec)}
    assert names == {"MYD14", "MYD03"}
    (cell,) = specs(found, LayerSpec)
    assert [given.name.split(".")[0] for given in cell.inputs] == ["MYD14", "MYD03"] * 2
    counted = next(task for task in found if task.spec is cell or task.spec == cell)
    assert counted.spec.amount == cell.grid.pixels * 4


def test_a_granule_without_its_companion_is_left_out() -> None:
    found = made([*granules("MYD14", MOMENTS), *granules("MYD03", MOMENTS[:1])], FIRE)
    (cell,) = specs(found, LayerSpec)
    assert len(cell.inputs) == 2
    assert {given.name.split(".")[2] for given in cell.inputs} == {"1200"}


def reflectance(*layers: str) -> dict[str, Any]:
    return {**SWATHS, "products": [{"name": "VJ109", "collection": "2", "layers": [*layers]}]}


M1, I1 = "750m Surface Reflectance Band M1", "375m Surface Reflectance Band I1"


def test_each_layer_has_the_companion_of_its_resolution_in_whatever_collection() -> None:
    shelf = [*granules("VJ109", MOMENTS, "2"), *granules("VJ103MOD", MOMENTS, "21")]
    shelf += [*granules("VJ103IMG", MOMENTS[:1], "2"), *granules("VJ103IMG", MOMENTS, "21")]
    for layers, names in (((M1,), {"VJ103MOD"}), ((M1, I1), {"VJ103MOD", "VJ103IMG"})):
        found = made(shelf, reflectance(*layers))
        collected = specs(found, CollectSpec)
        assert {spec.product for spec in collected} == {"VJ109", *names}
        assert len(collected) == 2 * (1 + len(names))  # one edition of each companion
        for cell in specs(found, LayerSpec):
            assert len(cell.inputs) == 2 * (1 + len(names))


def test_where_no_granule_has_its_companion_the_refusal_names_it() -> None:
    shelf = [*granules("VJ109", MOMENTS, "2"), *granules("VJ103MOD", MOMENTS, "21")]
    with pytest.raises(RequestRefusedError, match="no granule of VJ103IMG that starts with one"):
        made(shelf, reflectance(I1))
