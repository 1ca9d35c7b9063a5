"""The region on the form over HTTP: files and drawings that fill it in, outlines for the map."""

import json
from typing import Any

import httpx
import pytest
import shapely
from shapely.geometry import shape

from portal.serving.documents import MOST_BYTES as MOST_TEXT
from portal.submit.state import MOST_READING, Submit
from tests.portal.scripted import LivePortal, take_all
from tests.portal.submissions import FORM

FIELD = shapely.box(5, 50, 8, 53)
PART = {"HX-Request": "true"}


def send(portal: LivePortal, name: str, content: bytes, **changes: str) -> httpx.Response:
    """Send the form with a file, as the page does."""
    with portal.browser() as client:
        return client.post(
            "/new/region",
            data={**FORM, **changes},
            files={"region_file": (name, content)},
            headers=PART,
        )


def features(portal: LivePortal, **form: str) -> list[dict[str, Any]]:
    with portal.browser() as client:
        answer = client.post("/new/outline", data=form)
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["features"]
    return found


def test_a_file_fills_in_the_region_alone(portal: LivePortal) -> None:
    answer = send(portal, "f.wkt", FIELD.wkt.encode())
    assert answer.status_code == 200
    assert "Read from f.wkt." in answer.text
    assert 'value="geojson" checked' in answer.text
    assert "<html" not in answer.text


def test_a_browser_without_scripts_gets_the_whole_form_back(portal: LivePortal) -> None:
    with portal.browser() as client:
        answer = client.post(
            "/new/region", data=FORM, files={"region_file": ("f.wkt", FIELD.wkt.encode())}
        )
    assert "<html" in answer.text
    assert 'value="By form"' in answer.text
    assert 'value="geojson" checked' in answer.text


def test_polygons_with_ids_become_sites_where_sites_are_asked_for(portal: LivePortal) -> None:
    one = {"type": "Feature", "id": "plot", "geometry": json.loads(shapely.to_geojson(FIELD))}
    text = json.dumps({"type": "FeatureCollection", "features": [one]}).encode()
    assert 'value="sites" checked' in send(portal, "p.json", text, region_kind="sites").text
    assert 'value="geojson" checked' in send(portal, "p.json", text).text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.shp", b"\x00\x00", "Zip the .shp"),
        ("a.csv", b"one,two\n1,2", "no column"),
        ("a.wkt", b"POLYGON ((1 2", "cannot be read"),
        ("flat.wkt", b"POLYGON ((1 2, 3 4, 1 2))", "have no area"),
        ("empty.wkt", b"", "empty.wkt is empty"),
        ("deep.json", b'{"a":' * 100_000, "cannot be read"),
        ("<b>.wkt", b"x", "&lt;b&gt;.wkt"),
    ],
)
def test_a_file_without_a_region_says_why(
    portal: LivePortal, name: str, content: bytes, said: str
) -> None:
    answer = send(portal, name, content)
    assert said in answer.text
    assert 'value="bbox" checked' in answer.text
    assert 'value="50.5"' in answer.text


def test_a_file_that_is_too_large_is_not_read(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.submit.region_page.MOST_BYTES", 1000 - MOST_TEXT)
    assert send(portal, "f.wkt", b" " * 1000).status_code == 413


def test_few_files_are_read_at_once(portal: LivePortal) -> None:
    turns = portal.inner.state(Submit).reading_regions
    take_all(turns, MOST_READING)
    busy = send(portal, "f.wkt", FIELD.wkt.encode())
    assert busy.status_code == 503
    assert "Other uploads are being read." in busy.text
    turns.release()
    for _ in range(2):  # a turn is given back, though nothing was read
        assert "f.wkt is empty" in send(portal, "f.wkt", b"").text


def test_outlines_and_files_need_a_session(portal: LivePortal) -> None:
    for address in ("/new/region", "/new/outline", "/new/places"):
        method = "GET" if address == "/new/places" else "POST"
        assert httpx.request(method, portal.url + address, trust_env=False).status_code == 401


def test_an_outline_is_of_any_notation_and_of_what_is_right(portal: LivePortal) -> None:
    (one,) = features(portal, region_kind="geojson", geojson=FIELD.wkt)
    assert shape(one["geometry"]).equals(FIELD)
    assert features(portal, region_kind="geojson", geojson="POLYGON ((1 2") == []
    assert features(portal, region_kind="bbox", west="5") == []
    table = "id,lat,lon\nA,51.5,-2\nB,52,5"
    points = features(portal, region_kind="sites", sites=table)
    assert [shape(point["geometry"]).wkt for point in points] == [
        "POINT (-2 51.5)",
        "POINT (5 52)",
    ]


def test_a_place_over_the_antimeridian_is_in_one_piece(portal: LivePortal) -> None:
    (one,) = features(portal, region_kind="place", place="Fiji")
    west, _, east, _ = shape(one["geometry"]).bounds
    assert 170 < west < 180 < east < 190
    assert features(portal, region_kind="place", place="Fidschi") == []
