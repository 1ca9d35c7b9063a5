"""The map's part about polygons: a chart and a table, both as files, and refusals in words."""

import csv
import html
import io
import json

import httpx
import shapely

from tests.portal.deliveries import LAYER
from tests.portal.polygons.test_polygons_api import SQUARE, asked, collection
from tests.portal.scripted import LivePortal

HTMX = {"HX-Request": "true"}


def posted(
    client: httpx.Client, address: str, data: bytes, name: str = "", **headers: str
) -> httpx.Response:
    """Send polygons as the form does: as a file, or as a text that was drawn."""
    fields = {"layer": LAYER} if name else {"layer": LAYER, "drawn": data.decode()}
    files = {"polygon_file": (name, data)}
    return client.post(address, data=fields, files=files, headers=headers)


def test_polygons_of_a_file_are_a_chart_a_table_and_files(portal: LivePortal, mapped: str) -> None:
    east = shapely.box(0, 52, 1, 53)
    _, said = asked(portal, mapped, collection(SQUARE, east))
    base = f"/requests/{mapped}/map/polygons"
    with portal.browser() as client:
        part = posted(client, base, collection(SQUARE, east), "a.geojson", **HTMX).text
        whole = posted(client, base, collection(SQUARE, east), "a.geojson").text
        drawn = posted(client, base, SQUARE.wkt.encode(), **HTMX).text
        table = posted(client, f"{base}.csv", collection(SQUARE, east)).text
        listed = posted(client, f"{base}.json", collection(SQUARE, east)).json()
        kept = html.unescape(part.partition('name="drawn" value="')[2].partition('"')[0])
        again = client.post(f"{base}.csv", data={"layer": LAYER, "drawn": kept}).text
    assert again == table, "what the part keeps gives the same files"
    assert part.count('<g class="mark') == 4
    assert part.count("<polygon ") == 0, "bands of two would hide one another"
    assert drawn.count("<polygon ") == 1
    assert "<html" not in part
    assert "<h1>Values within polygons</h1>" in whole
    assert f"{said['series'][0]['values'][0]['mean']:.6g}" in part
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["polygon"] for row in rows] == ["f0", "f0", "f1", "f1"]
    assert listed["series"] == said["series"]


def test_polygons_that_give_nothing_are_refused_in_the_part(
    portal: LivePortal, mapped: str
) -> None:
    base = f"/requests/{mapped}/map/polygons"
    with portal.browser() as client:
        far = posted(client, base, shapely.box(100, 0, 101, 1).wkt.encode(), **HTMX)
        none = posted(client, base, b"", **HTMX)
        broken = posted(client, base, json.dumps({"type": "Pol"}).encode(), "a.geojson")
    assert (far.status_code, "outside the results" in far.text) == (200, True)
    assert 'role="alert"' in none.text
    assert broken.status_code == 422
