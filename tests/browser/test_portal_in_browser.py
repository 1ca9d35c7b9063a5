"""The portal in a real browser: the form, the map, live progress, every width and scheme."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.operators.manager_lease import Acting, ManagerWatch
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import Preparation
from tests.browser.pages import faultless_page, map_ready, open_part
from tests.portal.scripted import (
    LivePortal,
    ScriptedManager,
    live_portal,
    live_runtime,
    put_result,
    raster_bytes,
    set_row,
    settings,
)
from tests.portal.submissions import submitted

pytestmark = pytest.mark.browser

WIDER = [pytest.param(width, marks=pytest.mark.proof) for width in (768, 1280)]

DOCUMENT = {
    "title": "A rather long title of a request about leaf area over the British Isles",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}


@pytest.fixture
def runtime() -> Runtime:
    return live_runtime()


@pytest.fixture
def portal(runtime: Runtime) -> Iterator[LivePortal]:
    with live_portal(runtime, settings()) as running:
        yield running


@pytest.fixture
def page(context: BrowserContext, portal: LivePortal) -> Iterator[Page]:
    """A signed-in page on which no error may come up: not in scripts, not by the policy."""
    with faultless_page(context, refusals=True) as page:
        page.goto(portal.link(role="operator"))
        yield page


def edges(page: Page) -> list[float]:
    return [
        float(page.input_value(f"#{edge}") or "nan") for edge in ("west", "south", "east", "north")
    ]


def at(page: Page, across: float, down: float) -> tuple[float, float]:
    """A point on the map by shares of its width and height."""
    map_ = page.locator("#region-map")
    map_.evaluate("map => map.scrollIntoView({ block: 'center' })")
    box = map_.bounding_box()
    assert box is not None
    return box["x"] + across * box["width"], box["y"] + down * box["height"]


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()


def open_form(page: Page, portal: LivePortal) -> None:
    page.goto(f"{portal.url}/new")
    map_ready(page)


def fill_in(page: Page, portal: LivePortal) -> None:
    """Fill the form in as a person would, the region by drawing."""
    open_form(page, portal)
    page.fill("#product-search", "MCD15A2")
    page.get_by_role("button", name="Add MCD15A2 collection 005", exact=True).click()
    page.get_by_role("checkbox", name="Lai_1km").check()
    page.fill("#start", "2012-01-01")
    page.fill("#end", "2012-01-31")
    page.fill("#resolution", "0.1")
    page.locator("#region-map").scroll_into_view_if_needed()
    drag(page, at(page, 0.45, 0.2), at(page, 0.55, 0.3))


def test_a_request_is_made_by_the_form_followed_and_its_result_downloaded(
    page: Page, portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    fill_in(page, portal)
    west, south, east, north = edges(page)
    assert west < 0 < east
    assert 0 < south < north
    expect(page.locator("#summary")).to_contain_text("pixels of 0.1 degree")
    expect(page.locator("#summary")).to_contain_text("MODIS tiles")
    with ScriptedManager(runtime, tmp_path).running(every=0.4):
        # A field that has just been typed in is checked a moment later, beside the preview.
        page.fill("#title", "Drawn by mouse")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#preview-counts")).to_contain_text("32, 123 MB to fetch")
        page.get_by_role("button", name="Submit", exact=True).click()
        expect(page.get_by_role("heading", name="Drawn by mouse")).to_be_visible()
        expect(page.locator("#progress .state")).to_have_text("complete", timeout=30_000)
        expect(page.locator(".results tbody tr")).to_have_count(3)
    expect(page.locator("#said")).to_have_text("complete")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    open_part(page, "Files")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download Lai_1km_2012-01-01.tif").click()
    data = Path(waiting.value.path()).read_bytes()
    shown = page.locator(".results td.mono").first.get_attribute("title")
    assert hashlib.sha256(data).hexdigest() == shown
    picture = page.locator(".results img.thumb").first
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("naturalWidth", 144)
    (row,) = request_operations.list_requests(runtime)
    made = request_operations.document_of(request_operations.load(runtime, row.id))
    assert made.region.bbox == (west, south, east, north)
    assert made.products[0].layers == ("Lai_1km",)


@pytest.mark.proof
def test_a_mistake_is_shown_beside_its_field_and_can_be_mended(
    page: Page, portal: LivePortal, runtime: Runtime
) -> None:
    fill_in(page, portal)
    page.fill("#end", "2011-01-01")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("#problem")).to_be_attached()  # the live check tells the rest, too
    expect(page.locator("#error-time")).to_contain_text("before the first day")
    expect(page.locator("#end")).to_be_focused()
    assert page.input_value("#resolution") == "0.1"
    expect(page.get_by_role("checkbox", name="Lai_1km")).to_be_checked()
    page.fill("#end", "2012-01-02")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile("/requests/"))
    assert len(list(request_operations.list_requests(runtime))) == 1


@pytest.mark.proof
def test_after_back_the_form_is_a_new_submission(
    page: Page, portal: LivePortal, runtime: Runtime
) -> None:
    page.goto(f"{portal.url}/new?again={submitted(runtime)}")
    seen = set()
    for title in ("First version", "Second version"):
        seen.add(page.input_value("[name=submission]"))
        page.fill("#title", title)
        page.get_by_role("button", name="Submit", exact=True).click()
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="New request")).to_be_visible()
    assert len(seen) == 2
    titles = {row.title for row in request_operations.list_requests(runtime)}
    assert {"First version", "Second version"} < titles


def test_map_and_fields_are_kept_in_step(page: Page, portal: LivePortal) -> None:
    open_form(page, portal)
    expect(page.locator("[data-region-map][data-land]")).to_be_attached()
    for edge, value in (("west", "-10"), ("south", "-10"), ("east", "10"), ("north", "10")):
        page.fill(f"#{edge}", value)
    expect(page.locator("[data-note]")).to_have_text("10° W to 10° E, 10° S to 10° N")
    page.locator("#region-map").focus()
    page.keyboard.press("ArrowRight")
    west, south, east, north = edges(page)
    assert west > -10
    assert east - west == pytest.approx(20)
    assert (south, north) == (-10, 10)
    page.keyboard.press("Shift+ArrowUp")
    assert edges(page)[3] > 10
    assert edges(page)[1] == -10
    page.keyboard.press("0")
    page.wait_for_function("document.querySelector('[data-region-map]').dataset.resolution < 0.2")
    before = edges(page)
    drag(page, *on_corner(page, before))
    assert edges(page)[:2] == pytest.approx(before[:2])
    assert edges(page)[2] > before[2]
    assert edges(page)[3] > before[3]


def on_corner(page: Page, box: list[float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where the box's corner in the north-east is on the map that was fitted, and a bit beyond."""
    frame = page.locator("#region-map").bounding_box()
    assert frame is not None
    each = float(page.locator("[data-region-map]").get_attribute("data-resolution") or "")
    west, south, east, north = box
    x = frame["x"] + frame["width"] / 2 + (east - west) / 2 / each
    y = frame["y"] + frame["height"] / 2 - (north - south) / 2 / each
    return (x, y), (x + 15, y - 15)


def test_a_box_over_the_antimeridian_is_drawn(page: Page, portal: LivePortal) -> None:
    open_form(page, portal)
    page.get_by_label("Dragging moves the map").check()
    drag(page, at(page, 0.9, 0.5), at(page, 0.4, 0.5))
    page.get_by_label("Dragging draws").check()
    drag(page, at(page, 0.3, 0.4), at(page, 0.7, 0.6))
    west, _, east, _ = edges(page)
    assert 0 < east + 180 < west
    assert west > east


def test_tiles_are_picked_on_the_map(page: Page, portal: LivePortal) -> None:
    open_form(page, portal)
    page.get_by_label("MODIS tiles", exact=True).check()
    page.mouse.click(*at(page, 0.51, 0.49))
    expect(page.locator("#tiles")).to_have_value("h18v08")
    page.mouse.click(*at(page, 0.49, 0.49))
    expect(page.locator("#tiles")).to_have_value("h18v08, h17v08")
    expect(page.locator("[data-note]")).to_have_text("2 tiles chosen")
    page.mouse.click(*at(page, 0.51, 0.49))
    expect(page.locator("#tiles")).to_have_value("h17v08")


def test_the_form_works_without_a_mouse(page: Page, portal: LivePortal, runtime: Runtime) -> None:
    page.goto(f"{portal.url}/new")
    page.locator("#product-search").focus()
    page.keyboard.type("MCD15A2H")
    expect(page.locator("#found li")).to_have_count(1)  # what is found for fewer letters is gone
    expect(page.locator("#found li")).to_contain_text("MCD15A2H")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Add":
            break
    page.keyboard.press("Enter")
    expect(page.locator("#chosen input[type=checkbox]").first).to_be_focused()
    page.keyboard.press("Space")
    for field, value in (("west", "5"), ("south", "50"), ("east", "6"), ("north", "51")):
        page.locator(f"#{field}").focus()
        page.keyboard.type(value)
    page.fill("#start", "2012-01-01")
    page.fill("#end", "2012-01-02")
    page.get_by_role("button", name="Submit", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/requests/"))
    (row,) = request_operations.list_requests(runtime)
    made = request_operations.document_of(request_operations.load(runtime, row.id))
    assert made.region.bbox == (5, 50, 6, 51)


def test_cancelling_asks_first(page: Page, portal: LivePortal, runtime: Runtime) -> None:
    name = request_operations.submit(runtime, "ada@example.org", parse_request(DOCUMENT))
    set_row(runtime, name, state=RequestState.RUNNING)
    page.goto(f"{portal.url}/requests/{name}")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Cancel").click()
    assert request_operations.load(runtime, name).state is RequestState.RUNNING
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Being cancelled: ")).to_be_visible()
    assert request_operations.load(runtime, name).state is RequestState.CANCELLING


def test_planning_has_a_bar_with_a_name_that_moves(
    page: Page, portal: LivePortal, runtime: Runtime
) -> None:
    name = request_operations.submit(runtime, "ada@example.org", parse_request(DOCUMENT))
    days = Preparation(done=12, total=121, unit="days")
    set_row(runtime, name, state=RequestState.PLANNING, preparation=days)
    page.goto(f"{portal.url}/requests/{name}")
    bar = page.get_by_role("progressbar", name="Days searched")
    expect(bar).to_be_visible()
    expect(page.get_by_text("12 of 121 days")).to_be_visible()
    assert bar.evaluate("bar => bar.position") == pytest.approx(12 / 121)
    set_row(runtime, name, preparation=replace(days, done=90))
    expect(page.get_by_text("90 of 121 days")).to_be_visible()
    expect(page.locator("#said")).to_have_text("planning, 70 percent")
    set_row(runtime, name, state=RequestState.RUNNING, preparation=None)
    expect(bar).to_have_count(0)


def test_a_page_that_is_not_seen_follows_nothing(
    page: Page, portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/events" in one.url else None)

    def seen(hidden: str) -> None:
        page.evaluate(
            f"Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    page.goto(f"{portal.url}/requests/{name}")
    set_row(runtime, name, state=RequestState.PLANNING)
    expect(page.locator("#progress .state")).to_have_text("planning")
    with page.expect_event("requestfailed") as closed:
        seen("true")
    assert closed.value.url.endswith("/events")
    set_row(runtime, name, state=RequestState.RUNNING)
    seen("false")
    expect(page.locator("#progress .state")).to_have_text("running")
    assert len(asked) == 2


@pytest.mark.parametrize("width", [360, *WIDER])
def test_the_table_of_everybodys_requests_stays_in_its_card(
    chromium: Browser, portal: LivePortal, runtime: Runtime, width: int
) -> None:
    owner = "a.rather.long.name@science.example.org"
    name = request_operations.submit(runtime, owner, parse_request(DOCUMENT))
    counts = {"outputs": 1261, "delivered": 1200, "gap_count": 61, "submitted": 1.7e9}
    set_row(runtime, name, state=RequestState.HELD, **counts)
    page = chromium.new_page(viewport=ViewportSize(width=width, height=900))
    page.goto(portal.link(role="operator"))
    page.goto(f"{portal.url}/?everybody=true")
    expect(page.get_by_text(owner).first).to_be_visible()
    cut = page.evaluate("(t => t.scrollWidth - t.clientWidth)(document.querySelector('.table'))")
    assert cut <= 0
    page.close()


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.proof)])
def test_the_newest_results_come_with_their_pictures_to_an_open_page(
    context: BrowserContext, portal: LivePortal, runtime: Runtime, tmp_path: Path, width: int
) -> None:
    name = request_operations.submit(runtime, "ada@example.org", parse_request(DOCUMENT))
    set_row(runtime, name, state=RequestState.RUNNING, outputs=9)
    with faultless_page(context, width=width) as page:
        page.goto(portal.link())
        page.goto(f"{portal.url}/requests/{name}")
        parts = page.get_by_role("navigation", name="Parts of the request")
        expect(parts.get_by_role("link", name="Files")).to_be_visible()
        expect(parts.get_by_role("link", name="Map")).to_be_hidden()
        for number in (1, 2):
            raster = raster_bytes(tmp_path, seed=number)
            put_result(runtime, name, "L", f"MCD15A2.005.Lai_1km.2012-0{number}-01.tif", raster)
            set_row(runtime, name, delivered=number)
            newest = page.locator(".newest li").first
            expect(newest).to_contain_text(f"2012-0{number}-01")
        expect(page.locator(".newest li")).to_have_count(2)
        expect(parts.get_by_role("link", name="Map")).to_be_visible()
        drawn = newest.locator("img")
        expect(drawn).to_have_js_property("naturalWidth", 144)
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0
        newest.locator("a").click()
        expect(
            page.get_by_role("heading", name="MCD15A2.005.Lai_1km.2012-02-01.tif")
        ).to_be_visible()


def test_a_notice_is_put_in_its_place_only_when_it_has_changed(
    page: Page, portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = False
    monkeypatch.setattr(ManagerWatch, "look", lambda _: Acting(acts=acts, epoch=1))
    page.goto(portal.url)
    notice = page.locator("#service-notice")
    expect(notice).to_contain_text("No service manager is at work")
    page.evaluate(
        """() => {
          window.changes = 0;
          const watch = new MutationObserver(() => { window.changes += 1; });
          watch.observe(document.getElementById("service-notice"), { childList: true });
        }"""
    )
    ask = "htmx.ajax('GET', '/service-notice', '#service-notice')"
    page.evaluate(ask)
    page.evaluate(ask)
    assert page.evaluate("window.changes") == 0
    acts = True
    page.evaluate(ask)
    expect(notice).to_be_empty()
    acts = False
    page.evaluate(ask)
    expect(notice).to_contain_text("No service manager is at work")


@pytest.mark.parametrize("width", [360, pytest.param(1800, marks=pytest.mark.proof)])
@pytest.mark.parametrize("address", ["/", "/operations"])
def test_what_is_told_on_each_page_is_aligned_with_it(
    chromium: Browser, runtime: Runtime, address: str, width: int
) -> None:
    sample = settings(data_dir="data", archive="data/sample-archive")
    with live_portal(runtime, sample) as portal:
        page = chromium.new_page(viewport=ViewportSize(width=width, height=900))
        page.goto(portal.link(role="operator"))
        page.goto(f"{portal.url}{address}")
        heading = page.locator("main h1").bounding_box()
        told = page.locator("aside.band p").bounding_box()
        page.close()
    assert heading is not None
    assert told is not None
    assert told["x"] == heading["x"]
