"""What a request comes to: catalogue entries, methods, masks and units of each layer."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from reprojection.catalogue import product
from service_manager.planner.plan_stream import PlanStream
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages
from tasks.request import resolved as module
from tasks.request.document import ProductChoice, Request, parse_request
from tasks.request.resolved import ResolvedRequest, resolve
from tests.service_manager.shelf import LIMITS, REQUEST, Shelf, composites, tile_granule

TILES = {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "FparLai_QC"]}
SWATHS = {
    "name": "MYD04_L2",
    "collection": "6",
    "layers": ["Optical_Depth_Land_And_Ocean", "Land_Ocean_Quality_Flag"],
}
UNKNOWN = {"name": "MCD99Q9", "collection": "5", "layers": ["A", "B"]}


def document(*products: dict[str, Any], **changes: Any) -> Request:
    return parse_request({**REQUEST, "resampling": None, "products": list(products), **changes})


def methods(found: ResolvedRequest) -> dict[str, str]:
    return {one.name: one.resampling for each in found.products for one in each.layers}


def test_a_product_of_the_catalogue_has_its_entry_and_what_it_says() -> None:
    found = resolve(document(TILES, SWATHS))
    tiles, swaths = found.products
    assert tiles.entry == product("MCD15A2", "5")
    assert (tiles.number, tiles.geometry, tiles.period) == (0, "tile", 8)
    assert (swaths.number, swaths.geometry, swaths.period) == (1, "swath", 1)
    for each in found.products:
        assert each.entry is not None
        assert [one.entry for one in each.layers] == [
            each.entry.layer(n) for n in each.choice.layers
        ]
    assert found.target.modis is None
    assert found.target.grid.width > 1000


def test_each_layer_has_its_method_mask_and_units() -> None:
    plain = resolve(document(TILES, SWATHS))
    assert plain == resolve(document(TILES, SWATHS))
    assert methods(plain)["FparLai_QC"] in ("nearest", "mode")
    assert {one.mask for each in plain.products for one in each.layers} == {True}
    assert {one.units for each in plain.products for one in each.layers} == {"stored"}
    blended = resolve(document(TILES, SWATHS, resampling="bilinear", units="physical"))
    assert methods(blended)["Lai_1km"] == "bilinear"
    assert methods(blended)["FparLai_QC"] == methods(plain)["FparLai_QC"]
    assert methods(blended)["Optical_Depth_Land_And_Ocean"] == "nearest"
    assert {one.units for each in blended.products for one in each.layers} == {"physical"}
    own = resolve(document(TILES, resampling={"Lai_1km": "cubic"}))
    assert methods(own)["Lai_1km"] == "cubic"
    (lai, _) = own.products[0].layers
    assert lai.reach > plain.products[0].layers[0].reach


def test_a_preset_and_a_mean_go_for_the_layers_that_have_them() -> None:
    (tiles,) = resolve(document(TILES, qa="best")).products
    assert [one.qa for one in tiles.layers] == ["best", ""]
    (swaths,) = resolve(document(SWATHS, merge="mean")).products
    assert [one.merge for one in swaths.layers] == ["mean", "nadir"]
    rule = {"FparLai_QC": {"MODLAND": [1, 0]}}
    tiles, swaths = resolve(document(TILES, SWATHS, qa=rule)).products
    assert tiles.layers[0].qa == '{"FparLai_QC":{"MODLAND":[0,1]}}'
    assert swaths.layers[0].qa == ""


def test_layers_of_a_swath_product_follow_the_first_and_look_as_far() -> None:
    depth = {**SWATHS, "layers": ["Optical_Depth_Land_And_Ocean"]}
    flag = {**SWATHS, "layers": ["Land_Ocean_Quality_Flag"]}
    method = {"Optical_Depth_Land_And_Ocean": "average"}
    first, second = resolve(document(depth, flag, resampling=method)).products
    assert first.driver == second.driver == first.layers[0]
    assert second.layers[0].whole_pixel
    assert not resolve(document(flag)).products[0].layers[0].whole_pixel
    first, night = resolve(document(depth, {**flag, "day_night": "night"})).products
    assert night.driver == night.layers[0] != first.driver


def test_the_granules_of_an_unknown_product_tell_its_geometry() -> None:
    found = resolve(document(UNKNOWN, {**UNKNOWN, "name": "MCD99Q8"}, merge="mean"))
    assert [(each.entry, each.geometry) for each in found.products] == [(None, "swath")] * 2
    assert {one.entry for one in found.products[0].layers} == {None}
    tiles = found.with_geometry(1, "tile")
    assert (tiles.number, tiles.geometry) == (1, "tile")
    assert {one.merge for one in tiles.layers} == {"nadir"}
    assert {one.merge for one in found.products[1].layers} == {"mean"}


def test_it_is_frozen() -> None:
    found = resolve(document(TILES))
    with pytest.raises(FrozenInstanceError):
        found.products[0].layers[0].mask = False  # type: ignore[misc]


def test_a_grid_that_cannot_be_is_refused_with_its_field() -> None:
    with pytest.raises(RequestRefusedError) as refused:
        resolve(document(TILES, grid={"crs": "EPSG:99999", "resolution": 1}))
    assert refused.value.field == "grid.crs"


def test_planning_works_it_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def looked_up(choice: ProductChoice) -> object:
        asked.append(choice.name)
        return product(choice.name, choice.collection)

    monkeypatch.setattr(module, "_entry_of", looked_up)
    reduction = {"package": "monthly-mean", "group_by": ["cell", "month"]}
    request = document(TILES, reduction=reduction)
    course = PlanStream(request, Shelf(records=composites()), Packages.of(LIMITS), LIMITS)
    assert len([*course.stretches()]) == 1
    assert asked == ["MCD15A2"]


def test_a_plan_is_known_by_the_same_identity_before_and_after_it_is_made() -> None:
    first = composites()[0].start.date()
    shelf = Shelf(records=[tile_granule(first, 17, 3, "MCD99Q9")])
    course = PlanStream(document(UNKNOWN), shelf, Packages.of(LIMITS), LIMITS)
    before = course.identity
    assert len([*course.stretches()]) == 1
    assert course.identity == before
    other = PlanStream(document(UNKNOWN, merge="mean"), shelf, Packages.of(LIMITS), LIMITS)
    assert other.identity != before
