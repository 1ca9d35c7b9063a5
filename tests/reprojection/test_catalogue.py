"""The product catalogue is complete, consistent, and true to real granules and STAC items."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from reprojection import catalogue
from reprojection.catalogue import LayerEntry
from reprojection.layers import Kind

FAMILIES = ("03", "04", "05", "06", "07", "09", "10", "11", "12", "13", "14", "15", "16", "17")


def test_every_family_is_there_in_current_and_coming_collections() -> None:
    for family in (*FAMILIES, "43", "64"):
        collections = {
            collection
            for item in catalogue.products()
            if item.family == family
            for collection in item.collections
        }
        assert {"6", "61", "7"} <= collections, family


def test_a_product_is_found_by_any_spelling_of_its_collection() -> None:
    found = catalogue.product("MCD15A2", "005")
    assert found is not None
    assert found is catalogue.product("MCD15A2", "5")
    assert catalogue.product("MOD13A2", "6.1") is catalogue.product("MOD13A2", "061")
    assert catalogue.product("MCD15A2", "61") is None
    assert catalogue.product("XYZ99", "6") is None
    assert catalogue.product("", "") is None


def test_no_product_is_described_twice() -> None:
    keys = [(item.name, key) for item in catalogue.products() for key in item.collections]
    assert len(keys) == len(set(keys))


def test_products_are_found_one_by_one_as_in_the_whole_list() -> None:
    for item in catalogue.products():
        assert catalogue.product(item.name, item.collections[0]) == item


def test_every_qa_reference_names_a_layer_with_presets() -> None:
    for item in catalogue.products():
        for name in item.layer_names:
            entry = item.layer(name)
            assert entry is not None or item.family in ("04", "07", "11"), (item.name, name)
            if entry is None or entry.qa is None:
                continue
            quality = item.layer(entry.qa)
            assert quality is not None, (item.name, name, entry.qa)
            if item.name != "MCD12Q1":  # its QC says where a label came from, not how good it is
                assert {"best", "good"} <= set(quality.presets), (item.name, entry.qa)


def test_best_is_never_wider_than_good() -> None:
    for item in catalogue.products():
        for name, entry in item.layers.items():
            for field, wanted in entry.presets.get("good", {}).items():
                best = entry.presets["best"].get(field)
                assert best is None or set(best) <= set(wanted), (item.name, name, field)


def test_bit_fields_do_not_overlap() -> None:
    for item in catalogue.products():
        for name, entry in item.layers.items():
            taken: set[int] = set()
            for field, bits in entry.bits.items():
                span = set(range(bits.start, bits.start + bits.length))
                assert not span & taken, (item.name, name, field)
                taken |= span
                assert all(value < 1 << bits.length for value in bits.values)


def test_wildcards_carry_their_match_into_the_qa_layer() -> None:
    albedo = catalogue.product("MCD43A3", "61")
    assert albedo is not None
    entry = albedo.layer("Albedo_WSA_shortwave")
    assert entry is not None
    assert entry.qa == "BRDF_Albedo_Band_Mandatory_Quality_shortwave"
    indices = catalogue.product("MOD13Q1", "61")
    assert indices is not None
    entry = indices.layer("250m 16 days NDVI")
    assert entry is not None
    assert entry.qa == "250m 16 days pixel reliability"


def test_default_resampling_never_blends_classes() -> None:
    lai = catalogue.product("MCD15A2", "5")
    assert lai is not None
    assert lai.default_resampling("Lai_1km") == "bilinear"
    assert lai.default_resampling("FparLai_QC", 1.5) == "nearest"
    assert lai.default_resampling("FparLai_QC", 2.0) == "mode"
    for item in catalogue.products():
        for name, entry in item.layers.items():
            if entry.kind is not Kind.CONTINUOUS:
                assert item.default_resampling(name, 1.0) in ("nearest", "mode")


def test_fpar_is_a_fraction_whatever_the_file_says() -> None:
    lai = catalogue.product("MOD15A2H", "61")
    assert lai is not None
    entry = lai.layer("Fpar_500m")
    assert entry is not None
    assert entry.units == "1"


def test_code_ranges_spread() -> None:
    entry = LayerEntry.model_validate({"codes": {"249-251": "unused", -2: "water", "-1": "none"}})
    assert entry.codes == {249: "unused", 250: "unused", 251: "unused", -2: "water", -1: "none"}


def test_a_preset_must_name_known_bits() -> None:
    with pytest.raises(ValidationError, match="MODLAND"):
        LayerEntry.model_validate({"presets": {"best": {"MODLAND": [0]}}})


@pytest.mark.real_data
def test_stac_items_of_the_products_list_the_same_layers(granules: Path) -> None:
    items = sorted((granules / "fixtures" / "stac-items").glob("*.json"))
    assert items
    for path in items:
        product, _, _, collection, _ = path.name.split(".")
        found = catalogue.product(product, collection)
        assert found is not None, path.name
        for name, asset in json.loads(path.read_text())["assets"].items():
            if "raster:bands" in asset:
                spelled = {name, name.replace("_", " ")}
                assert any(found.layer(each) for each in spelled), (product, name)
