"""Regions on the form in Chromium: files, pasted text, drawings, places, sites."""

import base64
import json
from collections.abc import Iterator

import pytest
import shapely
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from shapely.geometry import shape
from shapely.geometry.base import BaseGeometry

from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tests.browser.pages import faultless_page, map_ready
from tests.portal.scripted import LivePortal, live_portal, live_runtime, settings
from tests.portal.submissions import submitted
from tests.tasks.request.region.test_files import FIELD, zipped_shapefile

pytestmark = pytest.mark.browser

WGS84 = shapely.box(5, 50, 8, 53)
DROP = """([name, data]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  const where = document.querySelector(".where");
  for (const type of ["dragenter", "dragover", "drop"]) {
    where.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer }));
  }
}"""


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return live_runtime()


@pytest.fixture(scope="module")
def portal(runtime: Runtime) -> Iterator[LivePortal]:
    with live_portal(runtime, settings()) as running:
        yield running


@pytest.fixture(params=[1280])
def page(
    context: BrowserContext, portal: LivePortal, request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A form in a signed-in browser on which no error may come up: not in scripts, nor policy."""
    with faultless_page(context, width=request.param) as page:
        page.goto(portal.link())
        page.goto(f"{portal.url}/new")
        map_ready(page)
        yield page


def outline(page: Page) -> Locator:
    return page.locator("[data-region-map][data-shape='1']")


def drop(page: Page, name: str, content: bytes) -> None:
    page.evaluate(DROP, [name, base64.b64encode(content).decode()])


def area(page: Page) -> BaseGeometry:
    return shape(json.loads(page.input_value("#geojson")))


def at(page: Page, across: float, down: float) -> tuple[float, float]:
    map_ = page.locator("#region-map")
    map_.evaluate("map => map.scrollIntoView({ block: 'center' })")
    box = map_.bounding_box()
    assert box is not None
    return box["x"] + across * box["width"], box["y"] + down * box["height"]


def test_a_chosen_file_becomes_the_region_and_is_shown(page: Page) -> None:
    page.fill("#title", "Kept")
    page.set_input_files(
        "#region-file",
        {"name": "f.zip", "mimeType": "", "buffer": zipped_shapefile(FIELD, None)},
    )
    expect(page.locator("#region-fields")).to_contain_text("Read from f.zip.")
    expect(page.locator("#region-fields")).to_contain_text("taken as degrees")
    expect(page.get_by_label("Polygon", exact=True)).to_be_checked()
    expect(outline(page)).to_be_attached()
    assert area(page).equals(FIELD)
    assert page.input_value("#title") == "Kept"
    page.wait_for_function("document.querySelector('[data-region-map]').dataset.resolution < 0.1")


@pytest.mark.proof
def test_a_dropped_file_that_gives_no_region_says_why(page: Page) -> None:
    told = page.locator("#error-region-file")
    drop(page, "fields.shp", b"no zip")
    expect(told).to_contain_text("Zip the .shp, .shx, .dbf and .prj")
    drop(page, "line.geojson", b'{"type": "LineString", "coordinates": [[1, 2], [3, 4]]}')
    expect(told).to_contain_text("has LineString alone")
    with page.expect_response("**/new/check"):
        page.fill("#title", "Another field")
    expect(page.locator("#summary")).to_contain_text("Still to do")
    expect(told).to_contain_text("has LineString alone")
    expect(page.locator("#region-file")).to_have_attribute("aria-invalid", "true")
    drop(page, "field.geojson", shapely.to_geojson(WGS84).encode())
    expect(outline(page)).to_be_attached()
    expect(told).to_be_empty()
    assert area(page).equals(WGS84)


def test_a_dropped_table_becomes_sites(page: Page) -> None:
    drop(page, "towers.csv", b"id,lat,lon\nA,51.5,-2\nB,52,5")
    expect(page.get_by_label("Sites", exact=True)).to_be_checked()
    expect(page.locator("#region-fields")).to_contain_text("2 sites.")
    expect(page.locator("[data-region-map][data-shape='2']")).to_be_attached()
    expect(page.locator("[data-note]")).to_have_text("2 sites")


@pytest.mark.proof
def test_pasted_text_in_other_notations_is_shown(page: Page) -> None:
    page.get_by_label("Polygon", exact=True).check()
    page.fill("#geojson", WGS84.wkt)
    expect(outline(page)).to_be_attached()
    page.fill("#geojson", "POLYGON ((5 50, 8")
    expect(page.locator("[data-region-map][data-shape='0']")).to_be_attached()
    expect(page.locator("#error-region")).to_contain_text("cannot be read")


@pytest.mark.proof
def test_a_polygon_is_drawn_over_the_antimeridian_and_changed(page: Page) -> None:
    page.get_by_label("Polygon", exact=True).check()
    page.locator("#region-map").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Draw a polygon").click()
    for across, down in ((0.3, 0.3), (0.7, 0.3), (0.7, 0.6), (0.3, 0.6), (0.3, 0.3)):
        page.mouse.click(*at(page, across, down))
    expect(outline(page)).to_be_attached()
    text, before = page.input_value("#geojson"), area(page)
    assert before.bounds[0] == -180
    assert before.bounds[2] == 180
    expect(page.locator("#error-region")).to_be_empty()
    page.mouse.move(*at(page, 0.3, 0.3))
    page.mouse.down()
    page.mouse.move(*at(page, 0.31, 0.31))
    page.mouse.move(*at(page, 0.35, 0.35))
    page.mouse.up()
    expect(page.locator("#geojson")).not_to_have_value(text)
    assert area(page).area < before.area
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#geojson")).to_have_value("")


def test_a_polygon_is_drawn_by_keys_alone(page: Page) -> None:
    page.get_by_label("Polygon", exact=True).check()
    page.get_by_role("button", name="Draw a polygon").press("Enter")
    expect(page.locator("#region-map")).to_be_focused()
    for key in ("+", "+", "+", "+", "+", "Enter", "ArrowRight", "Enter", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    page.get_by_role("button", name="Finish").press("Enter")
    expect(outline(page)).to_be_attached()
    assert len(shapely.get_coordinates(area(page))) == 4


@pytest.mark.proof
def test_a_place_is_outlined_and_enter_sends_nothing(page: Page, runtime: Runtime) -> None:
    page.get_by_label("Place", exact=True).check()
    page.locator("#place").press_sequentially("bayern")
    expect(page.locator("#places option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#place")).to_have_value("Bayern, Germany")
    expect(outline(page)).to_be_attached()
    expect(page.locator("[data-note]")).to_have_text("Bayern, Germany")
    expect(page.get_by_label("Leave pixels outside the region empty")).to_be_visible()
    assert page.url.endswith("/new")
    assert not list(request_operations.list_requests(runtime))


@pytest.mark.parametrize("page", [360], indirect=True)
def test_the_region_fits_a_phone(page: Page) -> None:
    for kind in ("Box", "MODIS tiles", "Polygon", "Place", "Sites"):
        page.get_by_label(kind, exact=True).check()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.proof
def test_a_file_is_read_without_scripts(
    chromium: Browser, portal: LivePortal, runtime: Runtime
) -> None:
    again = submitted(runtime)
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(portal.link())
    page.goto(f"{portal.url}/new?again={again}")
    buffer = shapely.to_geojson(WGS84).encode()
    page.set_input_files("#region-file", {"name": "f.geojson", "mimeType": "", "buffer": buffer})
    page.get_by_role("button", name="Read the file").click()
    expect(page.get_by_text("Read from f.geojson.")).to_be_visible()
    page.get_by_role("button", name="Submit", exact=True).click()
    name = page.url.rpartition("/")[2]
    context.close()
    made = request_operations.document_of(request_operations.load(runtime, name))
    assert shapely.from_geojson(json.dumps(made.region.geojson)).equals(WGS84)
    assert made.title == "Leaf <area>"
