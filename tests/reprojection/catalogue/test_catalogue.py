"""The product catalogue is complete, consistent, and true to real granules and STAC items."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from reprojection import catalogue
from reprojection.catalogue import Axis, LayerEntry
from reprojection.catalogue.layers import LayerKind
from reprojection.errors import CatalogueError
from reprojection.read.granule import open_granule

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


VIIRS = (
    ("09GA", "SurfReflect_I1_1", "SurfReflect_QF1_1"),
    ("09GA", "SurfReflect_M11_1", "SurfReflect_QF1_1"),
    ("09H1", "SurfReflect_I3", "SurfReflect_State_500m"),
    ("09A1", "SurfReflect_M10", "SurfReflect_State"),
    ("13A1", "500 m 16 days EVI2", "500 m 16 days pixel reliability"),
    ("13A2", "1 km 16 days NDVI", "1 km 16 days pixel reliability"),
    ("13A3", "1 km monthly EVI", "1 km monthly pixel reliability"),
    ("21A1D", "LST_1KM", "QC"),
    ("21A1N", "LST_1KM", "QC"),
    ("21A2", "LST_Night_1KM", "QC_Night"),
)


@pytest.mark.parametrize(("number", "layer", "quality"), VIIRS)
def test_viirs_land_tiles_have_kinds_and_presets(number: str, layer: str, quality: str) -> None:
    for name, collection in (("VNP", "001"), ("VNP", "002"), ("VJ1", "002")):
        found = catalogue.product(f"{name}{number}", collection)
        assert found is not None, (name, collection)
        entry = found.layer(layer)
        assert entry is not None
        assert (entry.kind, entry.qa) == (LayerKind.CONTINUOUS, quality)
        held = found.layer(quality)
        assert held is not None
        assert held.kind is not LayerKind.CONTINUOUS
        assert {"best", "good"} <= set(held.presets)


def test_viirs_bit_fields_and_dates_are_not_blended() -> None:
    for name, layers in (
        ("VNP09GA", [f"SurfReflect_QF{number}_1" for number in range(1, 8)]),
        ("VNP09GA", ["iobs_res_1", "num_observations_500m", "orbit_pnt_1", "land_water_mask_1"]),
        ("VNP09H1", ["SurfReflect_QC_500m", "SurfReflect_State_500m"]),
        ("VNP09A1", ["SurfReflect_QC", "SurfReflect_State", "SurfReflect_Day_Of_Year"]),
        ("VNP13A1", ["500 m 16 days VI Quality", "500 m 16 days composite day of the year"]),
    ):
        found = catalogue.product(name, "2")
        assert found is not None
        for layer in layers:
            assert found.facts(layer).default_resampling() == "nearest", (name, layer)


def test_viirs_vegetation_indices_hold_two_fills() -> None:
    found = catalogue.product("VNP13A2", "2")
    assert found is not None
    for index in ("NDVI", "EVI", "EVI2"):
        entry = found.layer(f"1 km 16 days {index}")
        assert entry is not None
        assert set(entry.codes) == {-15000, -13000}


@pytest.mark.parametrize(
    ("name", "collection", "layer", "kind"),
    [
        ("MCD12Q1", "051", "Land_Cover_Type_1", LayerKind.CLASS),
        ("MCD12Q1", "005", "Land_Cover_Type_1_Assessment", LayerKind.CONTINUOUS),
        ("MCD12Q2", "061", "Greenup", LayerKind.CONTINUOUS),
        ("MCD43A1", "005", "BRDF_Albedo_Parameters_nir", LayerKind.CONTINUOUS),
        ("MCD43A2", "005", "BRDF_Albedo_Band_Quality", LayerKind.BITFIELD),
        ("MCD64A1", "051", "Burn Date", LayerKind.CLASS),
        ("MOD10_L2", "005", "Snow_Cover", LayerKind.CLASS),
        ("MOD16A2", "105", "ET_1km", LayerKind.CONTINUOUS),
        ("MOD17A2", "055", "Psn_QC_1km", LayerKind.BITFIELD),
        ("MOD17A3", "055", "Npp_1km", LayerKind.CONTINUOUS),
        ("MYD21A1N", "061", "LST_1KM", LayerKind.CONTINUOUS),
    ],
)
def test_older_collections_and_neighbours_are_known(
    name: str, collection: str, layer: str, kind: LayerKind
) -> None:
    found = catalogue.product(name, collection)
    assert found is not None
    entry = found.layer(layer)
    assert entry is not None
    assert entry.kind is kind


def test_the_coverage_of_observations_is_a_fraction_whatever_the_file_says() -> None:
    for name, layer in (("MOD09GA", "obscov_500m_1"), ("MYD09GQ", "obscov_1")):
        found = catalogue.product(name, "61")
        assert found is not None
        entry = found.layer(layer)
        assert entry is not None
        assert entry.units == "1"


def test_no_product_is_described_twice() -> None:
    keys = [(item.name, key) for item in catalogue.products() for key in item.collections]
    assert len(keys) == len(set(keys))


def test_products_are_found_one_by_one_as_in_the_whole_list() -> None:
    for item in catalogue.products():
        assert catalogue.product(item.name, item.collections[0]) == item


WITHOUT_PRESETS = {
    "MCD12Q1",  # its QC says where a label came from, not how good it is
    "MCD19A1",  # the guide asks for a combination of fields that depends on the use
}
ONLY_BEST = {"MCD19A2", "VNP19A2", "VJ119A2", "VJ219A2"}  # no second quality is named


def test_every_qa_reference_names_a_layer_with_presets() -> None:
    for item in catalogue.products():
        for name in item.layer_names:
            entry = item.layer(name)
            assert entry is not None or item.family in ("04", "07", "11"), (item.name, name)
            if entry is None or entry.qa is None:
                continue
            quality = item.layer(entry.qa)
            assert quality is not None, (item.name, name, entry.qa)
            if item.name not in WITHOUT_PRESETS:
                wanted = {"best"} if item.name in ONLY_BEST else {"best", "good"}
                assert wanted <= set(quality.presets), (item.name, entry.qa)


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
    assert lai.facts("Lai_1km").default_resampling() == "bilinear"
    assert lai.facts("FparLai_QC").default_resampling(1.5) == "nearest"
    assert lai.facts("FparLai_QC").default_resampling(2.0) == "mode"
    for item in catalogue.products():
        for name, entry in item.layers.items():
            if entry.kind is not LayerKind.CONTINUOUS:
                assert item.facts(name).default_resampling(1.0) in ("nearest", "mode")


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


def test_every_axis_says_what_it_runs_over() -> None:
    assert all(axes for item in catalogue.products() for axes in item.bands.values())
    aerosol = catalogue.product("MYD04_L2", "61")
    fires = catalogue.product("MOD14A1", "61")
    assert aerosol is not None
    assert fires is not None
    assert aerosol.facts("Corrected_Optical_Depth_Land[1]").band == "wavelength 0.55 µm"
    assert fires.facts("FireMask[2]").band == "day 3 of 8"
    assert fires.facts("FireMask").band == ""
    assert aerosol.facts("Solution_Index_Ocean_Small").band_names == (
        "Solution_Index_Ocean_Small[0]",
        "Solution_Index_Ocean_Small[1]",
    )


def test_an_axis_has_as_many_names_as_bands() -> None:
    assert Axis.model_validate({"of": "day", "names": ["a", "b"]}).length == 2
    with pytest.raises(ValidationError, match="3 bands have 2 names"):
        Axis(of="day", length=3, names=("a", "b"))


@pytest.mark.real_data
def test_axes_have_the_lengths_of_real_granules(granules: Path) -> None:
    for folder in sorted(granules.glob("l*/*")):
        with open_granule(min(folder.glob("*.hdf"))) as found:
            assert found.entry is not None
            for name, layer in found.layers.items():
                lengths = tuple(length for _, length in layer.bands)
                assert found.entry.facts(name).bands == lengths, (folder.name, name)


@pytest.mark.real_data
def test_dois_are_those_that_real_granules_name(granules: Path) -> None:
    compared = 0
    for folder in sorted(granules.glob("l*/*")):
        with open_granule(min(folder.glob("*.hdf"))) as found:
            named = found.attributes.get("identifier_product_doi")
            if isinstance(named, str):
                assert found.entry is not None
                assert found.entry.doi(found.collection) == named.strip()
                compared += 1
    assert compared >= 6


def test_each_entry_names_the_document_it_is_taken_from_and_the_part_of_it() -> None:
    for product in catalogue.products():
        document, _, part = product.source.partition(", ")
        assert len(document) > 10, product.name
        words = ("section", "table", "field", "page", "bits")
        assert any(word in part for word in words), f"{product.name}: {product.source}"
        if product.name.startswith(("VNP", "VJ")):
            assert "VIIRS" in document or "VNP" in document or "Black Marble" in document


def test_the_guide_shows_a_whole_file_and_a_wrong_one_is_named() -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/add-a-product.md").read_text()
    text = guide.partition("```yaml\n")[2].partition("```")[0]
    found = catalogue.read_family("mod99.yaml", text)
    assert [product.name for product in found] == ["MOD99A2", "MYD99A2"]
    with pytest.raises(CatalogueError, match=r"(?s)mod99\.yaml.*products"):
        catalogue.read_family("mod99.yaml", text.partition("products:")[0])
    with pytest.raises(CatalogueError, match=r"mod99\.yaml"):
        catalogue.read_family("mod99.yaml", "family: [")
