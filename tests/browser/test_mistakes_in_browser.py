"""Mistakes in the form, in a real browser: focus, marks, messages in sight, the live check."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tasks.bag.runtime import Runtime
from tasks.holdings import holdings
from tasks.requests import request_operations
from tests.browser.pages import faultless_page
from tests.portal.archive import StillArchive, telling
from tests.portal.scripted import LivePortal, live_portal, live_runtime, settings

pytestmark = pytest.mark.browser

WIDTHS = (360, pytest.param(1280, marks=pytest.mark.proof))


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    live = live_runtime()
    with telling(live, StillArchive()):
        for _ in range(500):
            if holdings.read(live.store)[0] is not None:
                break
            live.clock.sleep(0.02)
        yield live


@pytest.fixture(scope="module")
def portal(runtime: Runtime) -> Iterator[LivePortal]:
    with live_portal(runtime, settings()) as running:
        yield running


@pytest.fixture(params=WIDTHS)
def page(
    context: BrowserContext, portal: LivePortal, request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A signed-in page with a form that is right."""
    with faultless_page(context, width=request.param, refusals=True) as page:
        page.goto(portal.link())
        page.goto(f"{portal.url}/new")
        page.fill("#product-search", "MCD15A2")
        page.get_by_role("button", name="Add MCD15A2 collection 005", exact=True).click()
        page.get_by_role("checkbox", name="Lai_1km").check()
        page.fill("#start", "2012-01-01")
        page.fill("#end", "2012-01-31")
        for edge, value in (("west", "-8"), ("south", "50.5"), ("east", "6"), ("north", "58.5")):
            page.fill(f"#{edge}", value)
        page.fill("#resolution", "0.1")
        yield page


def submit(page: Page) -> None:
    with page.expect_response(lambda answer: answer.request.is_navigation_request()):
        page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("#problem")).to_be_attached()


MISTAKES = [
    ({"north": "95"}, "error-region", "95 is not a latitude"),
    ({"east": "2,5"}, "error-region", "Write a decimal point: 2.5"),
    ({"start": "2031-01-01", "end": "2031-01-31"}, "error-time", "it has days from 2012-01-01 to"),
    ({"end": "2011-01-31"}, "error-time", "before the first day"),
    ({"crs": "EPSG:99999"}, "error-grid-crs", "EPSG:99999"),
    ({"resolution": "0.00002"}, "error-grid-resolution", "pixels"),
    ({"notify": "nobody@"}, "error-notify", "not an e-mail address"),
]
"""What is written into fields, the first of which is then the wrong one, and what is said."""


def test_the_focus_goes_to_the_wrong_field(page: Page, runtime: Runtime) -> None:
    for written, error, said in MISTAKES:
        right = {name: page.input_value(f"#{name}") for name in written}
        for name, value in written.items():
            page.fill(f"#{name}", value)
        submit(page)
        field, told = page.locator(f"#{next(iter(written))}"), page.locator(f"#{error}")
        expect(told).to_contain_text(said)
        expect(field).to_be_focused()
        expect(field).to_have_attribute("aria-invalid", "true")
        assert error in (field.get_attribute("aria-describedby") or "").split()
        expect(field).to_be_in_viewport()
        expect(told).to_be_in_viewport()
        expect(page.locator("[aria-invalid]")).to_have_count(1)
        assert page.input_value("#resolution")
        assert not list(request_operations.list_requests(runtime))
        for name, value in right.items():
            page.fill(f"#{name}", value)


@pytest.mark.proof
def test_a_layer_is_marked_on_its_card(page: Page) -> None:
    page.get_by_role("checkbox", name="Lai_1km").uncheck()
    submit(page)
    box = page.locator("#chosen input[type=checkbox]").first
    expect(box).to_be_focused()
    expect(page.locator("#chosen .error")).to_contain_text("no layer of MCD15A2 is chosen")
    expect(page.locator("#chosen .error")).to_be_in_viewport()


@pytest.mark.proof
def test_the_form_says_while_one_types_what_the_archive_has(page: Page) -> None:
    expect(page.locator("#chosen")).to_contain_text("In the archive: 16 granules, 2012-01-01")
    page.fill("#start", "2031-01-01")
    page.fill("#end", "2031-01-31")
    told = page.locator("#told-time")
    expect(told).to_contain_text("it has days from 2012-01-01 to 2012-04-30")
    expect(page.locator("[aria-invalid]")).to_have_count(0)  # it is told, and refused by nothing
    expect(page.locator("#summary")).to_contain_text("pixels of 0.1 degree")
    page.fill("#start", "2012-01-01")
    page.fill("#end", "2012-01-31")
    expect(told).to_be_empty()
    page.fill("#south", "-20")
    page.fill("#north", "-10")
    expect(page.locator("#told-region")).to_contain_text("it has tiles h17v03, h18v03")
    page.fill("#south", "51")
    page.fill("#north", "52")
    expect(page.locator("#told-region")).to_be_empty()


@pytest.mark.proof
def test_the_archive_s_days_are_told_before_a_layer_is_chosen(page: Page) -> None:
    page.get_by_role("checkbox", name="Lai_1km").uncheck()
    page.fill("#start", "")
    expect(page.locator("#told-time")).to_have_text(
        "The archive has MCD15A2 005: 16 granules, 2012-01-01 to 2012-04-30. Take these days"
    )
    page.get_by_role("button", name="Take these days").click()
    expect(page.locator("#start")).to_have_value("2012-01-01")
    expect(page.locator("#end")).to_have_value("2012-04-30")
    expect(page.locator("#told-time")).to_be_empty()
    page.fill("#north", "95")
    page.fill("#start", "2031-01-01")
    page.fill("#end", "2031-01-31")
    expect(page.locator("#told-time")).to_contain_text("no granule of MCD15A2 005 from 2031")


@pytest.mark.proof
def test_a_product_that_the_archive_lacks_is_told_on_its_card(page: Page) -> None:
    page.locator("#product-search").fill("MOD13A2")
    page.get_by_role("button", name="Add MOD13A2").first.click()
    expect(page.locator("[data-card]").nth(1).locator(".told")).to_contain_text(
        "The archive has no granule of MOD13A2."
    )
    expect(page.locator("[data-card]").first.locator(".told")).to_be_empty()


@pytest.mark.proof
def test_a_value_that_a_browser_refuses_does_not_stop_the_check(page: Page) -> None:
    expect(page.locator("#summary")).to_contain_text("pixels of 0.1 degree")
    page.fill("#north", "95")
    expect(page.locator("#error-region")).to_contain_text("95 is not a latitude")
    page.fill("#north", "58.5")
    page.fill("#notify", "nobody@")
    expect(page.locator("#error-region")).to_be_empty()
    expect(page.locator("#error-notify")).to_contain_text("not an e-mail address")
    page.fill("#notify", "")
    page.fill("#west", "")
    expect(page.locator("#error-notify")).to_be_empty()
    expect(page.locator("#summary")).to_contain_text("west is empty")
    expect(page.locator("#error-region")).to_be_empty()  # nothing is wrong yet


@pytest.mark.proof
def test_what_is_empty_stays_marked_after_it_was_sent(page: Page) -> None:
    page.fill("#west", "")
    submit(page)
    expect(page.locator("#west")).to_be_focused()
    page.fill("#title", "Another field")
    expect(page.locator("#summary")).to_contain_text("west is empty")
    expect(page.locator("#error-region")).to_contain_text("west is empty")
    page.fill("#west", "-8")
    expect(page.locator("#error-region")).to_be_empty()


def test_a_document_that_is_wrong_stays_open_with_all_that_is_wrong(page: Page) -> None:
    text = "regoin: {bbox: [1, 2, 3, 4]}\nproducts: []\ntime: {start: 2012-13-01}"
    page.get_by_text("Load a request document").click()
    page.fill("#document", text)
    page.get_by_role("button", name="Fill the form from it").click()
    told = page.locator("#error-document")
    expect(told).to_contain_text("Did you mean region?")
    expect(told).to_contain_text("'2012-13-01' is not a day")
    expect(told.locator("li")).to_have_count(5)
    expect(told).to_be_in_viewport()
    expect(page.locator("#document")).to_be_focused()
    assert page.input_value("#document") == text
