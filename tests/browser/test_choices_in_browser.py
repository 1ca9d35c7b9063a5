"""Choices on the form in Chromium: groups of layers, quality rules by their bits in words."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tests.browser.pages import faultless_page
from tests.portal.scripted import LivePortal, live_portal, live_runtime, settings

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return live_runtime()


@pytest.fixture(scope="module")
def portal(runtime: Runtime) -> Iterator[LivePortal]:
    with live_portal(runtime, settings()) as running:
        yield running


@pytest.fixture
def page(context: BrowserContext, portal: LivePortal) -> Iterator[Page]:
    with faultless_page(context, refusals=True) as page:
        page.goto(portal.link())
        page.goto(f"{portal.url}/new")
        yield page


def add(page: Page, name: str) -> None:
    page.fill("#product-search", name)
    page.get_by_role("button", name=f"Add {name}").first.click()
    expect(page.locator("[data-card]")).to_have_count(1)


def test_a_group_of_layers_is_ticked_at_once(page: Page) -> None:
    add(page, "MOD11A1")
    group = page.get_by_role("button", name="LST, day and night")
    group.press("Enter")
    expect(page.locator("#chosen input:checked")).to_have_count(2)
    expect(page.get_by_role("checkbox", name="LST_Night_1km")).to_be_checked()
    expect(group).to_have_attribute("aria-pressed", "true")
    page.get_by_role("checkbox", name="LST_Day_1km").uncheck()
    expect(group).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="All 6 data layers").press("Enter")
    expect(group).to_have_attribute("aria-pressed", "true")
    group.click()
    expect(page.get_by_role("checkbox", name="LST_Day_1km")).not_to_be_checked()
    expect(page.get_by_role("checkbox", name="Emis_31")).to_be_checked()


def test_a_quality_rule_is_chosen_in_words(page: Page, runtime: Runtime) -> None:
    add(page, "MOD11A1")
    rules = page.locator("#quality")
    expect(rules.locator("details:not([open])")).to_have_count(2)  # no layer is chosen yet
    page.get_by_role("button", name="LST, day and night").click()
    page.select_option("#qa", label="By choice …")
    expect(rules.locator("details[open]")).to_have_count(2)
    field = rules.locator("details[open]").first.get_by_role("group", name="Mandatory bits 0 to 1")
    field.get_by_role("checkbox").first.check()
    expect(page.locator("#summary")).to_contain_text("First day is empty")
    expect(field.get_by_role("checkbox").first).to_be_checked()
    for name, value in (("west", "5"), ("south", "50"), ("east", "6"), ("north", "51")):
        page.fill(f"#{name}", value)
    page.fill("#start", "2012-01-01")
    page.fill("#end", "2012-01-02")
    expect(page.locator("#summary")).to_contain_text("Each raster")
    expect(field.get_by_role("checkbox").first).to_be_checked()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/requests/*")
    (row,) = request_operations.list_requests(runtime)
    made = request_operations.document_of(request_operations.load(runtime, row.id))
    assert made.qa == {"QC_Day": {"Mandatory": (0,)}}
    page.goto(page.url.replace("/requests/", "/new?again="))
    expect(page.locator("#quality input:checked")).to_have_count(1)


def test_a_rule_without_a_tick_is_told_at_its_place(page: Page) -> None:
    add(page, "MCD15A2")
    page.get_by_role("checkbox", name="Lai_1km", exact=False).first.check()
    page.select_option("#qa", label="By choice …")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("#error-qa")).to_contain_text("Tick the values to keep")
    expect(page.locator("#quality input").first).to_have_attribute("aria-invalid", "true")


def test_what_is_typed_before_the_scripts_are_there_is_searched_for(
    page: Page, portal: LivePortal
) -> None:
    held: list[Route] = []
    page.route("**/htmx.min.js*", lambda route: held.append(route))
    with page.expect_request("**/htmx.min.js*"):
        page.goto(f"{portal.url}/new", wait_until="commit")
    page.fill("#product-search", "MCD15A2")
    (route,) = held
    route.continue_()
    expect(
        page.get_by_role("button", name="Add MCD15A2 collection 005", exact=True)
    ).to_be_visible()
