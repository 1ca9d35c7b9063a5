"""Collections have one spelling, wherever they come from."""

import json
import pickle

import pytest

from archives.formats.layout import held_sets
from modis.collection import Collection, parted, short_text, versioned, versioned_text
from reprojection import catalogue
from tasks.request.document import ProductChoice

SPELLED = {
    "1": ("1", "001", "1.0", "01"),
    "2": ("2", "002", "2.0", " 2 "),
    "5": ("5", "005", "5.0"),
    "51": ("51", "051", "5.1"),
    "6": ("6", "006", "6.0"),
    "61": ("61", "061", "6.1"),
    "10": ("10", "010", "10.0"),
    "105": ("105",),
    "0": ("0", "000"),
    "": ("", " "),
}
SPELLINGS = [(text, one) for one, texts in SPELLED.items() for text in texts]


@pytest.mark.parametrize(("text", "one"), SPELLINGS)
def test_a_collection_has_one_spelling(text: str, one: str) -> None:
    assert Collection(text) == one
    assert Collection(Collection(text)) == one


@pytest.mark.parametrize(("text", "one"), [pair for pair in SPELLINGS if pair[1]])
def test_a_request_spells_it_in_the_same_way(text: str, one: str) -> None:
    choice = ProductChoice.model_validate({"name": "VNP09GA", "collection": text, "layers": ["x"]})
    assert choice.collection == one
    assert type(choice.collection) is str


@pytest.mark.parametrize("text", ["1", "001", "1.0"])
def test_the_catalogue_knows_a_product_in_every_spelling(text: str) -> None:
    found = catalogue.product("VNP09GA", text)
    assert found is not None
    assert found == catalogue.product("VNP09GA", "1")


def test_every_collection_of_the_catalogue_and_of_the_archives_is_in_its_spelling() -> None:
    known = {c for product in catalogue.products() for c in product.collections}
    known |= {c for product in ("MOD09GA", "VNP09GA") for c, _ in held_sets(product)}
    assert "61" in known
    assert known == {Collection(c) for c in known}


def test_it_is_text_when_it_is_stored() -> None:
    made = Collection("6.1")
    assert json.dumps(made) == '"61"'
    assert pickle.loads(pickle.dumps(made)).padded == "061"
    as_text: dict[str, int] = {made: 1}
    assert as_text["61"] == 1


def test_it_reads_as_people_and_as_data_centres_write_it() -> None:
    assert [Collection(c).dotted for c in ("5", "61", "105", "")] == ["5", "6.1", "105", ""]
    assert [Collection(c).padded for c in ("5", "61", "105", "")] == ["005", "061", "105", ""]


@pytest.mark.parametrize(("text", "one"), SPELLINGS)
def test_a_product_in_any_spelling_is_named_as_its_granules_are(text: str, one: str) -> None:
    name = versioned("MCD15A2", text.strip())
    assert name == ("MCD15A2." + one.zfill(3) if one else "MCD15A2")
    assert parted(f"MCD15A2.{text}" if one else "MCD15A2") == ("MCD15A2", one)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("collection MCD15A2.5", "collection MCD15A2.005"),
        ("reprojection MOD11A1.61 0.01, 2-4 Mpx", "reprojection MOD11A1.061 0.01, 2-4 Mpx"),
        ("MCD15A2.5.Lai_1km", "MCD15A2.005.Lai_1km"),
        ("MCD15A2.005.Lai_1km.2012-01-01", "MCD15A2.005.Lai_1km.2012-01-01"),
        ("reduction ada/NDVI@1.0.2", "reduction ada/NDVI@1.0.2"),
    ],
)
def test_collections_in_a_text_are_written_as_granules_have_them(text: str, shown: str) -> None:
    assert versioned_text(text) == shown
    assert versioned_text(short_text(shown)) == shown


def test_a_class_of_tasks_is_found_by_what_pages_show_of_it() -> None:
    text = "collection MOD11A1.61 from archive.example.org, 1-2 MB"
    assert short_text(versioned_text(text)) == text


def test_collections_sort_by_age() -> None:
    by_age = ["x", "1", "2", "5", "51", "55", "6", "61", "7"]
    assert sorted(map(Collection, reversed(by_age)), key=lambda c: c.age) == by_age
