"""Five tasks as a new user has them, from the list of requests: how many clicks the answer takes.

docs/studies.md has these numbers beside those of earlier pages.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, FilePayload, Locator, Page, expect

from tests.browser.gallery import POLYGON, World, world
from tests.browser.pages import faultless_page

pytestmark = pytest.mark.browser


class Hand:
    """Whoever does a task: counts clicks and files given, and a choice in a list as two."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click()

    def choose(self, what: Locator, label: str) -> None:
        self.clicks += 2
        what.select_option(label=label)

    def give(self, what: Locator, name: str, content: str) -> None:
        self.clicks += 1
        payload = FilePayload(name=name, mimeType="text/plain", buffer=content.encode())
        what.set_input_files([payload])

    def screens_to(self, what: Locator) -> int:
        """How many screens lie between what is seen first and all of this."""
        expect(what).to_be_visible()
        box = what.bounding_box()
        assert box is not None
        return int(max(0.0, box["y"] + box["height"] - 1) // 900)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, sample_archive: Path) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("tasks"), sample_archive) as made:
        yield made


@pytest.fixture
def hand(context: BrowserContext, seen: World) -> Iterator[Hand]:
    """A person in front of the list of requests."""
    with faultless_page(context) as page:
        page.goto(seen.portal.link(role="operator"))
        yield Hand(page)


def the_request(hand: Hand) -> Locator:
    return hand.page.get_by_role("link", name="A thesis on leaf area", exact=True)


def test_is_my_request_good(hand: Hand) -> None:
    """The list says it; the request's page adds why."""
    row = hand.page.get_by_role("row", name="A thesis on leaf area")
    for said in ("complete with gaps", "27 of 32, 2 failed, 1 gap"):
        expect(row).to_contain_text(said)
    assert (hand.clicks, hand.screens_to(row)) == (0, 0)
    hand.click(the_request(hand))
    strip = hand.page.get_by_role("region", name="Progress")
    expect(strip).to_contain_text("27 of 32")
    expect(strip).to_contain_text("2 tasks failed: unreadable input file.")
    assert (hand.clicks, hand.screens_to(strip)) == (1, 0)


def test_which_dates_are_bad_and_why(hand: Hand) -> None:
    hand.click(the_request(hand))
    squares = hand.page.get_by_role("region", name="MCD15A2.005 Lai_1km")
    for date, said in {
        "2012-04-06": "partial, 50% of the inputs",
        "2012-04-14": "failed",
        "2012-04-22": "failed",
        "2012-04-30": "missing in the archive",
    }.items():
        expect(squares.locator(f"[aria-label^='{date}: {said}']")).to_have_count(1)
    reasons = hand.page.locator(".notes")
    expect(reasons).to_contain_text("a chunk of Lai_1km has 512 bytes, not 2,048")
    assert (hand.clicks, hand.screens_to(reasons)) == (1, 1)


def test_the_mean_of_my_field_over_the_year_as_csv(hand: Hand) -> None:
    hand.click(the_request(hand))
    field = hand.page.get_by_label("Means within your fields by date, of all layers, as CSV")
    assert hand.screens_to(field) == 1
    with hand.page.expect_download() as waiting:
        hand.give(field, "field.geojson", POLYGON)
    with Path(waiting.value.path()).open(encoding="utf-8", newline="") as file:
        means = {(row["layer"], row["date"]): row["mean"] for row in csv.DictReader(file)}
    assert len([date for layer, date in means if layer.endswith("Lai_1km")]) == 13
    assert all(means.values())
    assert hand.clicks == 2


def test_the_mean_of_my_field_is_as_on_the_map(hand: Hand) -> None:
    hand.click(the_request(hand))
    hand.click(hand.page.get_by_role("region", name="MCD15A2.005 Lai_1km").locator("ol a").first)
    expect(hand.page.locator("[data-results-map][data-lines]")).to_be_attached()
    hand.give(hand.page.locator("#polygon-file"), "field.geojson", POLYGON)
    with hand.page.expect_download() as waiting:
        hand.click(hand.page.get_by_role("button", name="This layer as CSV"))
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert len([line for line in lines if "2012-" in line]) == 13


def test_a_file_without_a_field_is_refused_and_leads_back(
    context: BrowserContext, seen: World
) -> None:
    with faultless_page(context, refusals=True) as page:
        page.goto(seen.portal.link(role="operator"))
        hand = Hand(page)
        hand.click(the_request(hand))
        field = page.get_by_label("Means within your fields by date, of all layers, as CSV")
        with page.expect_response(lambda one: one.url.endswith("polygons.csv")) as answer:
            hand.give(field, "field.geojson", "no polygon")
        assert answer.value.status == 422
        expect(page.locator("main")).to_contain_text("field.geojson")
        page.go_back()
        expect(field).to_be_visible()


def test_two_dates_are_compared(hand: Hand) -> None:
    hand.click(the_request(hand))
    squares = hand.page.get_by_role("region", name="MCD15A2.005 Lai_1km").locator("ol a")
    squares.nth(4).hover()
    hand.click(hand.page.get_by_role("button", name="Compare with another date"))
    hand.click(squares.nth(9))
    compared(hand, "2012-02-02", "2012-03-13")
    assert hand.clicks == 3


def test_two_dates_are_compared_by_a_finger(hand: Hand) -> None:
    """Nothing comes up beside a square that is touched."""
    hand.click(the_request(hand))
    hand.click(hand.page.get_by_role("region", name="MCD15A2.005 Lai_1km").locator("ol a").nth(4))
    hand.click(hand.page.get_by_role("button", name="Compare dates"))
    compared(hand, "2012-02-02", "2012-02-10")
    assert hand.clicks == 3


def test_two_dates_are_compared_by_keys(hand: Hand) -> None:
    hand.click(the_request(hand))
    square = hand.page.get_by_role("region", name="MCD15A2.005 Lai_1km").locator("ol a").first
    square.focus()
    hand.page.keyboard.press("c")
    expect(hand.page.get_by_text("2012-01-01 is chosen.")).to_be_visible()
    hand.page.keyboard.press("Escape")
    expect(hand.page.get_by_text("2012-01-01 is chosen.")).to_have_count(0)
    expect(square).to_be_focused()
    hand.page.keyboard.press("ArrowRight")
    hand.page.keyboard.press("Tab")
    expect(hand.page.get_by_role("button", name="Compare with another date")).to_be_focused()
    hand.page.keyboard.press("Enter")
    expect(hand.page.get_by_text("2012-01-09 is chosen.")).to_be_visible()
    hand.page.keyboard.press("ArrowRight")
    expect(hand.page.locator("[aria-label^='2012-01-17']:focus")).to_have_count(1)
    hand.page.keyboard.press("Enter")
    compared(hand, "2012-01-09", "2012-01-17")


def compared(hand: Hand, date: str, other: str) -> None:
    """The map shows both dates of the layer, divided by a handle."""
    expect(hand.page.locator("[data-results-map][data-lines]")).to_be_attached()
    expect(hand.page.locator("#date-shown")).to_have_text(date)
    expect(hand.page.locator("#other-date-shown")).to_have_text(other)
    layer = "MCD15A2.005 Lai_1km"
    sides = f"Left of the handle: {layer}, {date}. Right: {layer}, {other}."
    expect(hand.page.locator("#sides")).to_have_text(sides)
    expect(hand.page.locator(".side-2 canvas, canvas.side-2")).to_have_count(1)
    expect(hand.page.locator("#swipe")).to_be_in_viewport()


def test_which_package_wastes_most(hand: Hand) -> None:
    hand.click(hand.page.get_by_role("link", name="Operations", exact=True))
    told = hand.page.get_by_text("Most time was wasted by")
    expect(told).to_contain_text("ada/evapotranspiration@3")
    expect(told).to_contain_text("45 min")
    assert (hand.clicks, hand.screens_to(told)) == (1, 0)
