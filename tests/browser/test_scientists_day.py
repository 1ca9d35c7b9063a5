"""A scientist in Chromium: find a layer, see results by date and on the map, take them away."""

import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, Route, expect
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import MemoryFile

from reprojection.read.completeness import Completeness, Missing
from tasks.bag.model import RequestState
from tests.browser.pages import faultless_page, open_part
from tests.portal.scripted import (
    LivePortal,
    live_portal,
    live_runtime,
    put_result,
    raster_bytes,
    set_row,
    settings,
)
from tests.portal.submissions import submitted
from tests.waiting import until

DAYS = ("2012-01-01", "2012-01-09", "2012-01-17")
LAYERS = ("Fpar_1km", "Lai_1km")
LAYER = "MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LivePortal, str]]:
    """A portal with one request: two layers, three dates; the last LAI is incomplete."""
    runtime = live_runtime()
    name = submitted(runtime)
    folder = tmp_path_factory.mktemp("day")
    lacks = Completeness(share=0.5, missing=(Missing(what="MCD15A2 h17v03", why="unreadable"),))
    for layer in LAYERS:
        for number, one in enumerate(DAYS):
            said = lacks if (layer, number) == ("Lai_1km", 2) else Completeness()
            file = f"MCD15A2.005.{layer}.{one}"
            data = raster_bytes(folder, seed=number, width=700, height=400)
            put_result(runtime, name, f"MCD15A2.005/{layer}", f"{file}.tif", data, said)
            put_result(runtime, name, f"MCD15A2.005/{layer}", f"{file}.json", b"{}")
    set_row(runtime, name, state=RequestState.GAPS, outputs=6, delivered=6, ended=1e9)
    with live_portal(runtime, settings()) as running:
        yield running, name


@pytest.fixture
def page(context: BrowserContext, day: tuple[LivePortal, str]) -> Iterator[Page]:
    """A signed-in page on which no error may come up: not in scripts, not by the policy."""
    with faultless_page(context) as page:
        page.goto(day[0].link())
        yield page


def open_map(page: Page, day: tuple[LivePortal, str]) -> None:
    portal, name = day
    page.goto(f"{portal.url}/requests/{name}/map?layer={LAYER}&date=2012-01-09")
    expect(page.locator("#legend")).to_contain_text("m² m⁻²")
    expect(page.locator("[data-results-map][data-lines]")).to_be_attached()


def test_the_layer_of_a_subject_is_found_and_quality_comes_after_data(
    page: Page, day: tuple[LivePortal, str]
) -> None:
    page.goto(f"{day[0].url}/new")
    page.fill("#product-search", "NDVI")
    page.get_by_role("button", name="Add MOD13").first.click()
    card = page.locator("[data-card]")
    expect(card.get_by_role("checkbox").first).to_have_attribute(
        "value", re.compile(r"16 days NDVI$")
    )
    quality = card.get_by_role("checkbox", name="VI Quality")
    expect(quality).to_be_hidden()
    card.get_by_text("Quality, geometry and time of observation").click()
    expect(quality).to_be_visible()


def test_the_matrix_says_what_is_incomplete_and_leads_to_the_map(
    page: Page, day: tuple[LivePortal, str]
) -> None:
    portal, name = day
    page.goto(f"{portal.url}/requests/{name}")
    expect(page.locator(".heat")).to_have_count(2)
    expect(page.locator(".heat li > a")).to_have_count(6)
    expect(page.locator(".notes")).to_contain_text("MCD15A2 h17v03: unreadable")
    expect(page.locator(".results tbody tr")).to_have_count(6)
    page.get_by_role("link", name=re.compile("^2012-01-17: partial, 50% of the inputs")).click()
    expect(page.locator("#date-shown")).to_have_text("2012-01-17")
    expect(page.locator("#layer")).to_have_value(LAYER)


def test_the_map_reads_parts_of_the_files_and_steps_through_dates(
    page: Page, day: tuple[LivePortal, str]
) -> None:
    ranges: list[Response] = []
    page.on("response", lambda one: ranges.append(one) if ".tif" in one.url else None)
    open_map(page, day)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#date-shown")).to_have_text("2012-01-17")
    expect(page.locator("#statistics")).to_contain_text("Statistics, 2012-01-17")
    page.locator("#when").press("Home")
    expect(page.locator("#date-shown")).to_have_text("2012-01-01")
    page.get_by_role("button", name="Play").click()
    expect(page.locator("#date-shown")).to_have_text("2012-01-09")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#map-problem")).to_be_hidden()
    assert ranges
    assert {one.status for one in ranges} == {206}


def test_a_click_gives_values_and_a_series_as_csv(page: Page, day: tuple[LivePortal, str]) -> None:
    open_map(page, day)
    page.locator("#result-map").click(position={"x": 200, "y": 250})
    expect(page.locator("#point")).to_contain_text("3 of 3 dates have a value here")
    expect(page.locator("#point tbody tr").first).to_contain_text("MCD15A2.005 Fpar_1km")
    expect(page.locator("#point")).to_contain_text("swathmill explain")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Values of all dates as CSV").click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["date", *DAYS]
    assert all(0 < float(line.rpartition(",")[2]) < 10 for line in lines[1:])


@pytest.mark.proof
def test_another_band_of_a_layer_is_drawn(
    page: Page, day: tuple[LivePortal, str], tmp_path: Path
) -> None:
    portal, _name = day
    name = submitted(portal.runtime)
    data = raster_bytes(tmp_path, counted=True)
    file = f"MCD15A2.005.Lai_1km.{DAYS[0]}.tif"
    put_result(portal.runtime, name, "MCD15A2.005/Lai_1km", file, data)
    set_row(portal.runtime, name, state=RequestState.COMPLETE, outputs=1, delivered=1, ended=1e9)
    open_map(page, (portal, name))
    page.select_option("#band", label="count")
    expect(page.locator("#legend")).to_contain_text("granules with a value")
    expect(page.get_by_label("Shares of the classes").locator("li")).to_have_count(2)
    page.locator("#result-map").press("Enter")
    expect(page.locator("#map-value")).to_contain_text("m² m⁻² at the marked place")
    expect(page.locator("#map-problem")).to_be_hidden()


def test_colours_and_range_are_chosen_by_keys_and_kept_in_the_address(
    page: Page, day: tuple[LivePortal, str]
) -> None:
    open_map(page, day)
    legend = page.locator("#legend")
    page.focus("#colormap")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    expect(legend.get_by_role("img")).to_have_attribute("aria-label", re.compile("black to white"))
    until(lambda: is_grey(page), what="the map in grey")
    page.focus("#low")
    page.keyboard.type("2.5")
    page.keyboard.press("Tab")
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    said = page.locator("#range-problem")
    expect(said).to_have_text("From must be less than To: 2.5 is not less than 1.")
    expect(page.locator("#high")).to_have_attribute("aria-invalid", "true")
    expect(legend).to_contain_text("6.3 m² m⁻²")  # as before
    page.keyboard.press("Control+A")
    page.keyboard.type("4.5")
    page.keyboard.press("Enter")
    expect(legend).to_contain_text("Your range; the layer's own is")
    expect(said).to_be_empty()
    expect(page).to_have_url(re.compile(r"rescale=2\.5%2C4\.5&colormap=grey"))
    page.reload()
    expect(legend).to_contain_text("Your range; the layer's own is")
    expect(page.locator("[data-results-map][data-lines]")).to_be_attached()
    until(lambda: is_grey(page), what="the map in grey")
    page.get_by_role("button", name="The layer's own range").click()
    expect(legend).not_to_contain_text("Your range")
    expect(page).not_to_have_url(re.compile("rescale"))


def is_grey(page: Page) -> bool:
    """Tell whether a part of the map has no colour, but for lines and names on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        taken = page.locator("#result-map canvas").first.screenshot()
        with MemoryFile(taken) as file, file.open() as picture:
            red, green, blue = picture.read([1, 2, 3]).astype(int)
    row, column = red.shape[0] // 2, red.shape[1] // 3
    part = np.s_[row - 20 : row, column : column + 20]
    grey = (abs(red - green)[part] < 8) & (abs(green - blue)[part] < 8)
    return bool(red[part].any() and grey.mean() > 0.7)


def test_outlines_get_finer_and_places_are_named_or_not(
    page: Page, day: tuple[LivePortal, str]
) -> None:
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    page.route("**/map/names?*", only_cities)
    page.set_viewport_size({"width": 360, "height": 740})
    open_map(page, day)
    whole = page.locator("[data-results-map]")
    expect(whole).to_have_attribute("data-lines", "fine")
    expect(whole).to_have_attribute("data-named", re.compile(r"[1-9]"))
    assert not any("countries-10m" in one for one in asked)
    for _ in range(3):
        before = whole.get_attribute("data-resolution") or ""
        page.locator("#result-map").press("+")
        expect(whole).not_to_have_attribute("data-resolution", before)
    expect(whole).to_have_attribute("data-lines", "finest")
    assert any("countries-10m" in one for one in asked)
    names = page.get_by_label("Names of places")
    names.focus()  # the map shows when it has the focus, too
    named = still(page)
    names.uncheck()
    assert still(page) != named
    expect(page.locator("#map-problem")).to_be_hidden()


def still(page: Page) -> bytes:
    """Return a picture of the map that is the same as the one before."""
    pictures = [b""]

    def taken_twice() -> bool:
        pictures.append(page.locator("#result-map").screenshot())
        return pictures[-1] == pictures[-2]

    until(taken_twice, what="a map that stands still")
    return pictures[-1]


def only_cities(route: Route) -> None:
    """Answer with the cities alone of the names on a map."""
    route.fulfill(json=[one for one in route.fetch().json() if one["city"]])


@pytest.mark.proof
def test_two_layers_are_compared(page: Page, day: tuple[LivePortal, str]) -> None:
    open_map(page, day)
    expect(page.locator("#swipe")).to_be_hidden()
    page.select_option("#other", label="MCD15A2.005 Fpar_1km")
    expect(page.locator("#other-date-shown")).to_have_text("2012-01-09")
    expect(page.locator(".side-2 canvas, canvas.side-2")).to_have_count(1)
    # The handle is drawn to the side on the map, and beside it the map is clicked.
    handle = page.locator("#swipe")
    box = page.locator("#result-map").bounding_box()
    assert box is not None
    middle, height = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(middle, height)
    page.mouse.down()
    page.mouse.move(middle - box["width"] / 4, height, steps=5)
    page.mouse.up()
    assert 20 < int(handle.input_value()) < 30
    page.mouse.click(middle + box["width"] / 4, height)
    expect(page.locator("#point")).to_contain_text("dates have a value here")
    assert 20 < int(handle.input_value()) < 30
    page.locator("#opacity").press("Home")
    page.get_by_role("button", name="Full screen").click()
    expect(handle).to_be_visible()
    page.keyboard.press("Escape")
    handle.press("End")
    page.select_option("#other", label="nothing")
    expect(page.locator("#swipe")).to_be_hidden()


def test_a_selection_is_taken_away_with_what_to_cite(
    page: Page, day: tuple[LivePortal, str]
) -> None:
    portal, name = day
    page.goto(f"{portal.url}/requests/{name}")
    open_part(page, "Files")
    page.get_by_text("Part of it, scripts, citation").click()
    page.select_option("#zip-layer", label="MCD15A2.005 Lai_1km")
    page.fill("#zip-start", "2012-01-05")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download the selection as ZIP").click()
    names = zipfile.ZipFile(waiting.value.path()).namelist()
    assert [one for one in names if one.endswith(".tif")] == [f"{LAYER}.{d}.tif" for d in DAYS[1:]]
    assert {"request.yaml", "CITATION.txt", "open_results.py", "results.qgs"} <= set(names)


def test_the_map_works_with_the_keyboard_alone(page: Page, day: tuple[LivePortal, str]) -> None:
    open_map(page, day)
    place = page.locator("#result-map")
    for _ in range(40):
        page.keyboard.press("Tab")
        if place.evaluate("node => node === document.activeElement"):
            break
    expect(place).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#point")).to_contain_text("dates have a value here")
    chart = page.locator("#point .drawn-chart")
    chart.focus()
    page.keyboard.press("End")
    expect(page.locator("#point .chart-read")).to_contain_text("2012-01-17: ")
    page.keyboard.press("+")
    expect(chart.locator(".mark:not([hidden])")).to_have_count(2)
    expect(chart.locator(".zoomed")).to_have_text(["2012-01-09", "2012-01-17"])
    page.keyboard.press("-")
    expect(chart.locator(".mark:not([hidden])")).to_have_count(3)
    page.focus("#lon")
    page.fill("#lon", "no number")
    page.keyboard.press("Enter")
    expect(page.locator("#point")).to_contain_text("are numbers in degrees")


def test_a_polygon_is_drawn_on_the_map(page: Page, day: tuple[LivePortal, str]) -> None:
    open_map(page, day)
    found, draw = page.locator("#polygons-found"), page.locator("[data-polygon=draw]")
    draw.click()
    for x, y in ((200, 200), (300, 210), (250, 280), (200, 200)):
        page.locator("#result-map").click(position={"x": x, "y": y})
    expect(found).to_contain_text("Polygon 1")
    draw.click()
    page.keyboard.press("Enter")
    expect(page.locator("[data-polygon-hint]")).to_contain_text("1 corner")
    page.keyboard.press("Escape")
    expect(draw).to_have_attribute("aria-pressed", "false")
    page.locator("[data-polygon=clear]").click()
    expect(found).to_be_empty()


def test_the_map_fits_a_phone(page: Page, day: tuple[LivePortal, str]) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    open_map(page, day)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_dates_of_many_layers_fit_a_phone(
    page: Page, day: tuple[LivePortal, str], tmp_path: Path
) -> None:
    runtime = day[0].runtime
    name = submitted(runtime)
    data = raster_bytes(tmp_path, width=8, height=8)
    for number, one in enumerate(DAYS):
        layer = f"Layer_{number}"  # one date each: most cells say that nothing is expected
        put_result(runtime, name, f"MCD15A2.005/{layer}", f"MCD15A2.005.{layer}.{one}.tif", data)
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=3, delivered=3, ended=1e9)
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(f"{day[0].url}/requests/{name}")
    expect(page.locator("#matrix")).to_contain_text("Layer_2")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_a_request_is_labelled_shared_and_its_link_ended(
    page: Page, chromium: Browser, day: tuple[LivePortal, str]
) -> None:
    portal, name = day
    page.goto(f"{portal.url}/groups")
    page.fill("#name", "forest-team")
    page.fill("#members", "ben@example.org")
    page.get_by_role("button", name="Make the group").click()
    page.goto(f"{portal.url}/requests/{name}")
    open_part(page, "Sharing")
    page.fill("#labels", "thesis, drought")
    page.select_option("#group", label="the group forest-team")
    page.select_option("#standing", label="each week at most")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#sharing")).to_be_visible()
    expect(page.locator(".head").first).to_contain_text("goes on with new data, each week at most")
    link = page.locator("#link").input_value().replace("http://127.0.0.1/", f"{portal.url}/")

    ben = chromium.new_context()
    theirs = ben.new_page()
    theirs.goto(portal.link("ben@example.org"))
    theirs.select_option("#of-group", label="the group forest-team of ada@example.org")
    theirs.get_by_role("button", name="Show").click()
    theirs.get_by_role("link", name="Leaf <area>", exact=True).click()
    expect(theirs.get_by_text("shares this with the group")).to_be_visible()
    expect(theirs.get_by_role("button", name="Cancel")).to_have_count(0)
    ben.close()

    guest = chromium.new_context()
    seen = guest.new_page()
    seen.goto(link)
    expect(seen.locator(".heat li > a")).to_have_count(6)
    page.on("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="End all links").click()
    expect(page.locator("#link")).not_to_have_value(link)
    seen.goto(link)
    expect(seen.locator("main")).to_contain_text("ended by the owner")
    guest.close()

    page.goto(f"{portal.url}/?label=drought")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("h1")).to_have_text("Your requests labelled “drought”")


def test_labels_and_standing_are_set_by_keys_alone(page: Page, day: tuple[LivePortal, str]) -> None:
    portal, name = day
    page.goto(f"{portal.url}/requests/{name}")
    page.get_by_role("link", name="Sharing").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/*#sharing")
    expect(page.locator("#sharing")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator("#labels")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("by keys")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="by keys").first).to_be_visible()


def test_a_part_is_open_before_its_link_is_followed(
    page: Page, day: tuple[LivePortal, str]
) -> None:
    page.goto(f"{day[0].url}/requests/{day[1]}")
    expect(page.locator("#sharing")).to_be_hidden()
    open_at_once = """link => {
        link.click();
        return document.getElementById("sharing").checkVisibility();
    }"""
    assert page.get_by_role("link", name="Sharing").evaluate(open_at_once)


def test_parts_of_a_request_are_links_without_scripts(
    chromium: Browser, day: tuple[LivePortal, str]
) -> None:
    portal, name = day
    context = chromium.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(portal.link())
    plain.goto(f"{portal.url}/requests/{name}")
    for part in ("#by-date", "#lacks", "#results", "#document", "#sharing"):
        expect(plain.locator(part)).to_be_visible()
        expect(plain.locator(f'[data-tabs] a[href="{part}"]')).to_be_visible()
    context.close()
