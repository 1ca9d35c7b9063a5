"""Countries and states by name. Areas are compared with published ones, in square kilometres."""

import json
from zipfile import ZipFile

import pytest
import shapely
from pyproj import Geod
from shapely import Point

from tasks.errors import RequestRefusedError
from tasks.request import places
from tasks.request.document import parse_request
from tasks.request.places import cities_within, labels_within, place_area, search_places
from tasks.request.region.kinds import region_area, region_tiles
from tasks.request.vertices import MAX_VERTICES

REQUEST = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "time": {"start": "2012-01-01", "end": "2012-01-31"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}


@pytest.mark.parametrize(
    ("name", "thousands"),
    [
        ("Kenya", 580),
        ("ken", 580),
        ("Bayern, Germany", 70.5),
        ("Democratic Republic Congo", 2345),
        ("South Sudan", 620),
        ("Iceland", 103),
        ("California, United States of America", 410),
        ("Canada", 9985),
        ("Russia", 17098),
    ],
)
def test_outlines_have_about_the_area_of_the_place(name: str, thousands: float) -> None:
    area = place_area(name)
    assert area.is_valid
    assert shapely.get_num_coordinates(area) <= MAX_VERTICES
    square_metres, _ = Geod(ellps="WGS84").geometry_area_perimeter(shapely.orient_polygons(area))
    assert abs(square_metres) / 1e9 == pytest.approx(thousands, rel=0.07)


def test_states_are_found_without_accents_and_capitals() -> None:
    assert place_area("isere, FRANCE") == place_area("Isère, France")


def test_a_place_across_the_antimeridian_is_one_region() -> None:
    west, _, east, _ = region_area(
        parse_request({**REQUEST, "region": {"place": "Fiji"}}).region
    ).bounds
    assert east - west < 10
    assert east > 180


def test_the_region_of_a_place_is_its_tiles_and_its_name_is_kept() -> None:
    region = parse_request({**REQUEST, "region": {"place": "Netherlands"}}).region
    assert {tile.name for tile in region_tiles(region)} >= {"h18v03"}
    assert region.model_dump(exclude_defaults=True) == {"place": "Netherlands"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Kenia", "did you mean Kenya"),
        ("California", "California, United States of America"),
        ("Netherland", "did you mean Netherlands"),
        ("Atlantis", "name a country, or a state with it"),
        ("Tuvalu", "too small for an outline"),
    ],
)
def test_other_names_are_refused_with_what_was_meant(name: str, said: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        parse_request({**REQUEST, "region": {"place": name}})
    assert refused.value.field == "region.place"
    assert said.lower() in f"{refused.value.problem} {refused.value.remedy}".lower()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("UK", "GBR"),
        ("United States", "USA"),
        ("Holland", "NLD"),
        ("Czech Republic", "CZE"),
        ("Ivory Coast", "CIV"),
        ("Burma", "MMR"),
        ("Great Britain", "GBR"),
    ],
)
def test_a_country_is_found_by_a_name_in_common_use(name: str, meant: str) -> None:
    assert place_area(name).equals(place_area(meant))


def test_every_other_name_is_that_of_a_country() -> None:
    known = places._countries()
    assert {name: known.get(name) for name in places._OTHER_NAMES} == dict(places._OTHER_NAMES)


def test_a_question_ends_with_one_mark() -> None:
    with pytest.raises(RequestRefusedError) as refused:
        parse_request({**REQUEST, "region": {"place": "Kenia"}})
    assert refused.value.remedy.startswith("Did you mean Kenya")
    assert refused.value.remedy.endswith("?")


@pytest.mark.parametrize("name", ["Kenía", "TUVALU"])
def test_a_refusal_shows_the_name_as_it_was_typed(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'"):
        place_area(f" {name} ")


def test_search_finds_names_by_their_beginning_first() -> None:
    assert search_places("keny")[0] == "Kenya"
    assert "Bayern, Germany" in search_places("bay")
    assert search_places("isere fra") == ("Isère, France",)
    assert search_places(" ") == ()


def test_the_main_part_of_a_country_leaves_out_what_lies_far_away() -> None:
    """The Netherlands reach from 68 degrees west; the antimeridian parts no country."""
    whole, main = (place_area(name).bounds for name in ("Netherlands", "Netherlands, Main part"))
    assert whole[0] < -68 < 3 < main[0]
    assert whole[2:] == main[2:]
    assert place_area("Russia, main part").equals(place_area("Russia"))
    assert search_places("netherl")[:2] == ("Netherlands", "Netherlands, main part")


@pytest.mark.proof
def test_countries_with_parts_far_away_are_known() -> None:
    found = set()
    for code in set(places._countries().values()):
        area = places._area(code, "")
        if not area.is_empty and not places.main_part(area).equals(area):
            found.add(code)
    assert found == places.SCATTERED


def test_a_map_names_countries_then_states_the_large_ones_first() -> None:
    found = labels_within(-11, 49, 3, 61)
    names = [one.name for one in found]
    assert names[:2] == ["United Kingdom", "Ireland"]
    assert {"Cornwall", "Norfolk"} <= set(names)
    sizes = [one.size for one in found[2:]]
    assert sizes == sorted(sizes, reverse=True)
    for one in found:
        assert -11 <= one.at[0] <= 3
        assert 49 <= one.at[1] <= 61
    assert len(labels_within(-11, 49, 3, 61, most=3)) == 3


def test_a_box_as_wide_as_a_continent_has_names_of_countries_alone() -> None:
    names = {one.name for one in labels_within(-20, 30, 40, 70)}
    assert {"France", "Norway"} <= names
    assert "Bayern" not in names


def test_a_label_lies_in_its_place_and_around_the_antimeridian() -> None:
    for name in ("France", "Norway", "United States of America"):
        label = next(one for one in labels_within(-180, -90, 180, 90) if one.name == name)
        assert place_area(name).contains(Point(label.at))
    assert "Fiji" in {one.name for one in labels_within(170, -25, 190, -10)}


def test_cities_are_listed_by_how_far_a_larger_one_is() -> None:
    found = cities_within(3, 50.7, 7.3, 53.6)
    by_name = {one.name: one for one in found}
    assert {"Brussels", "Amsterdam", "Groningen", "Utrecht", "Assen"} <= set(by_name)
    assert by_name["Amsterdam"].at == (4.917, 52.35)
    assert all(one.is_city and 3 <= one.at[0] <= 7.3 and 50.7 <= one.at[1] <= 53.6 for one in found)
    # The largest has no larger one; Assen is 25 km from Groningen, which is larger.
    assert (found[0].name, found[0].size) == ("Brussels", 180.0)
    assert by_name["Assen"].size == pytest.approx(25 / 111.2, abs=0.01)
    sizes = [one.size for one in found]
    assert sizes == sorted(sizes, reverse=True)


def test_cities_lie_on_land_and_around_the_antimeridian() -> None:
    assert cities_within(-5, -5, 4, 3) == ()  # the Gulf of Guinea, where faulty tables have cities
    fiji = {one.name: one for one in cities_within(170, -25, 190, -10)}
    assert "Suva" in fiji
    assert len(cities_within(-180, -90, 180, 90, most=7)) == 7


@pytest.mark.parametrize("country", ["Australia", "Brazil", "France", "India", "Kenya"])
def test_almost_each_city_lies_in_its_country(country: str) -> None:
    """The list is another package's: a place that is wrong would be named on the sea."""
    with ZipFile(places.DATA) as file:
        cities = json.loads(file.read("cityMap.json"))
    own = [Point(one["lng"], one["lat"]) for one in cities if one["country"] == country]
    near = place_area(country).buffer(0.3)  # degrees; ports lie on simplified coasts
    outside = [at for at in own if not near.contains(at)]
    assert len(own) > 20
    assert len(outside) <= 0.03 * len(own)
