"""The product list: every product offers its layers, and common words find the right product."""

import datetime as dt

import pytest

from portal.submit import catalogue
from portal.submit.layer_words import words_of
from reprojection import catalogue as reprojection_catalogue
from tasks.holdings.holdings import Held, Holdings

WORDS = {
    "ndvi": "MOD13",
    "evi": "MOD13",
    "vegetation index": "MOD13",
    "lst": "MOD11",
    "land surface temperature": "MOD11",
    "emissivity": "MOD21",
    "albedo": "MCD43A3",
    "nbar": "MCD43A4",
    "brdf parameters": "MCD43A1",
    "surface reflectance": "MOD09",
    "red reflectance": "MOD13",
    "snow": "MOD10",
    "fire": "MOD14",
    "frp": "MOD14",
    "burned area": "MCD64",
    "burnt": "MCD64",
    "lai": "MCD15",
    "leaf area": "MCD15",
    "fpar": "MCD15",
    "gpp": "MOD17",
    "npp": "MOD17",
    "evapotranspiration": "MOD16",
    "land cover": "MCD12Q1",
    "igbp": "MCD12Q1",
    "phenology": "MCD12Q2",
    "aerosol": "MOD04",
    "aod": "MOD04",
    "cloud": "MOD06",
    "water vapor": "MOD05",
    "ozone": "MOD07",
    "latitude": "MOD03",
    "aqua ndvi": "MYD13",
    "npp viirs ndvi": "VNP13",
    "viirs_npp-jpl": "VIIRS_NPP-JPL-L2P",
    "sea surface temperature": "MODIS_A-JPL-L2P",
    "13q1": "MOD13Q1",
    "MYD11A1": "MYD11A1",
}


@pytest.mark.parametrize(("words", "wanted"), WORDS.items())
def test_common_words_find_the_right_product_first(words: str, wanted: str) -> None:
    found = catalogue.search(words)
    names = [group[0].name for group in found if not group[0].name.startswith("record:")]
    assert names[0].startswith(wanted), names[:5]


def test_records_come_before_the_products_that_they_are_of() -> None:
    names = [group[0].name for group in catalogue.search("leaf area")]
    assert names[0] == "record:leaf-area-8day"
    assert next(group[0].name for group in catalogue.search("MCD15A2H")) == "MCD15A2H"
    item = catalogue.find("record:leaf-area-8day", "")
    assert item is not None
    assert [layer.name for layer in item.layers] == ["Lai", "Fpar"]
    assert item.platform.startswith("Terra and Aqua MODIS, Terra MODIS, Aqua MODIS, Suomi NPP")


def test_every_product_says_what_it_is_of() -> None:
    known = {item.name: item.platform for item in catalogue.items()}
    assert [name for name, platform in known.items() if not platform] == []
    assert known["MODIS_A-JPL-L2P"] == known["XAERDT_L2_MODIS_Aqua"] == "Aqua MODIS"
    assert known["MCD43A4"] == "Terra and Aqua MODIS"
    assert known["AERDT_L2_VIIRS_SNPP"] == "Suomi NPP VIIRS"


def test_every_product_offers_its_data_layers() -> None:
    for item in catalogue.items():
        names = [layer.name for layer in item.layers]
        assert names, item.name
        assert len(set(names)) == len(names)
        assert not item.layers[0].is_quality, item.name
        later = [layer.is_quality for layer in item.layers]
        assert later == sorted(later), item.name


def test_layers_say_what_they_are_and_quality_comes_last() -> None:
    item = catalogue.find("MCD15A2H", "6.1")
    assert item is not None
    data = [layer.name for layer in item.layers if not layer.is_quality]
    quality = [layer.name for layer in item.layers if layer.is_quality]
    assert {"Lai_500m", "Fpar_500m"} <= set(data)
    assert "FparLai_QC" in quality
    about = {layer.name: layer.about for layer in item.layers}
    assert about["Lai_500m"].endswith("500 m")
    assert about["FparLai_QC"] == "bit fields, 500 m"
    vegetation = catalogue.find("MOD13Q1", "6.1")
    assert vegetation is not None
    assert vegetation.layers[0].name == "250m 16 days NDVI"
    assert {layer.name for layer in vegetation.layers if layer.is_quality} >= {
        "250m 16 days VI Quality",
        "250m 16 days pixel reliability",
        "250m 16 days view zenith angle",
    }


def test_layers_that_only_a_pattern_describes_are_offered() -> None:
    item = catalogue.find("MOD13Q1", "6.1")
    assert item is not None
    kinds = {layer.name: layer.kind for layer in item.layers}
    assert kinds["250m 16 days NDVI"] == "continuous"
    assert kinds["250m 16 days pixel reliability"] == "class"


def test_a_layer_with_several_bands_is_offered_band_by_band() -> None:
    item = catalogue.find("MCD43A1", "6.1")
    assert item is not None
    names = [layer.name for layer in item.layers]
    assert "BRDF_Albedo_Parameters_Band1[2]" in names
    assert "BRDF_Albedo_Parameters_Band1" not in names


def test_a_layer_of_very_many_bands_is_offered_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = "BRDF_Albedo_Parameters_Band1"
    product = reprojection_catalogue.product("MCD43A1", "61")
    assert product is not None
    assert product.facts(layer).bands == (3,)
    for most, count in ((3, 3), (2, 1)):
        monkeypatch.setattr(catalogue, "_MOST_BANDS", most)
        names = [one.name for one in catalogue._layers(product) if one.name.startswith(layer)]
        assert len(names) == count, names


def test_so_many_groups_of_layers_are_offered_beside_all(monkeypatch: pytest.MonkeyPatch) -> None:
    item = catalogue.find("MOD11A1", "61")
    assert item is not None
    titles = [group.title for group in catalogue.groups(item)]
    for most in (len(titles) - 1, len(titles) - 2):
        monkeypatch.setattr(catalogue, "_MOST_GROUPS", most)
        found = [group.title for group in catalogue.groups(item)]
        assert found == [*titles[:-1][:most], titles[-1]]


def test_few_layers_are_meant_by_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    item = catalogue.find("MCD43A4", "61")
    assert item is not None
    monkeypatch.setattr(catalogue, "_MOST_SOUGHT", 100)
    meant = len(catalogue.sought(item, "reflectance"))
    assert meant > 4
    for most in (meant, meant - 1):
        monkeypatch.setattr(catalogue, "_MOST_SOUGHT", most)
        assert bool(catalogue.sought(item, "reflectance")) == (most == meant)


def test_layers_whose_names_do_not_say_it_have_words_and_a_unit() -> None:
    assert words_of("Lai_1km") == ("leaf area index", "m^2/m^2")
    assert words_of("sur_refl_b02_1") == ("surface reflectance, near infrared, 841 to 876 nm", "")
    assert words_of("Emis_31") == ("emissivity, band 31", "")
    assert words_of("Cloud_Fraction") == ("", "")
    found = catalogue.find("MCD15A2", "5")
    assert found is not None
    about = {layer.name: layer.about for layer in found.layers}
    assert about["Lai_1km"] == "leaf area index, m² m⁻², 1 km"


def test_a_product_comes_once_with_its_newest_published_collection_first() -> None:
    found = catalogue.search("MOD13Q1")
    assert [[item.collection for item in group] for group in found] == [["61", "6", "7", "5"]]
    assert catalogue.search("MOD13Q1 5")[0][0].collection == "5"


def test_what_the_archive_holds_comes_first() -> None:
    day = dt.date(2012, 1, 1)
    held = Held(name="MYD13A2", collection="6", granules=1, first=day, last=day, bits="1")
    first = catalogue.search("ndvi", Holdings(products=(held,)))[0]
    assert (first[0].name, first[0].collection) == ("MYD13A2", "6")


def test_words_that_no_product_has_find_nothing() -> None:
    assert catalogue.search("ndvi sausage") == []


@pytest.mark.parametrize(
    ("name", "collection", "titles", "count"),
    [
        ("MOD09GA", "61", ["Reflectance, all 7"], 7),
        ("MOD11A1", "61", ["LST, day and night", "Emissivity, both"], 2),
        ("MCD43A3", "61", ["Black-sky albedo, all 7", "White-sky albedo, all 7"], 7),
        ("MOD13A2", "61", ["Reflectance, all 4"], 4),
    ],
)
def test_layers_are_grouped(name: str, collection: str, titles: list[str], count: int) -> None:
    item = catalogue.find(name, collection)
    assert item is not None
    found = {group.title: group.names for group in catalogue.groups(item)}
    assert set(titles) <= set(found)
    assert len(found[titles[0]]) == count


def test_groups_of_a_product_have_names_of_their_own_and_data_layers_alone() -> None:
    for item in catalogue.items():
        found = catalogue.groups(item)
        titles = [group.title for group in found]
        assert len(titles) == len(set(titles)), (item.name, titles)
        data = {layer.name for layer in item.layers if not layer.is_quality}
        assert all(set(group.names) <= data for group in found)


@pytest.mark.parametrize(
    ("product", "collection", "words", "ticked"),
    [
        ("MOD13A2", "61", "NDVI", ("1 km 16 days NDVI",)),
        ("MOD13A2", "61", "mod13a2 ndvi", ("1 km 16 days NDVI",)),
        ("MOD11A1", "61", "lst day", ("LST_Day_1km",)),
        ("MOD13A2", "61", "MOD13A2", ()),  # the product was searched for
        ("MCD43A4", "61", "reflectance", ()),  # too many to be meant
    ],
)
def test_the_layers_that_were_searched_for_are_ticked(
    product: str, collection: str, words: str, ticked: tuple[str, ...]
) -> None:
    item = catalogue.find(product, collection)
    assert item is not None
    assert catalogue.sought(item, words) == ticked
