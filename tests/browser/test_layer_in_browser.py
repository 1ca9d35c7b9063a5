"""A layer on the form's map in Chromium, on a phone, before anything is requested."""

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tasks.holdings import holdings
from tests.browser.pages import faultless_page, faults, map_ready
from tests.portal.archive import StillArchive, telling
from tests.portal.scripted import LivePortal, live_portal, live_runtime, settings
from tests.waiting import until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def portal(sample_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePortal]:
    runtime = live_runtime()
    made = settings(
        archive=str(sample_archive), data_dir=str(tmp_path_factory.mktemp("data")), sources="folder"
    )
    with telling(runtime, StillArchive()), live_portal(runtime, made) as running:
        until(lambda: holdings.read(runtime.store)[0] is not None, what="what the archive has")
        yield running


@pytest.fixture
def page(context: BrowserContext, portal: LivePortal) -> Iterator[Page]:
    with faultless_page(context, width=390) as page:
        page.goto(portal.link())
        page.goto(f"{portal.url}/new")
        map_ready(page)
        yield page


def said(page: Page, text: str) -> None:
    expect(page.locator('[data-view="said"]')).to_contain_text(text)


def test_a_layer_is_seen_before_it_is_requested(page: Page) -> None:
    page.get_by_label("See a layer on the map").check()
    said(page, "Tick a layer above")
    page.get_by_label("Find a product").fill("MCD15A2")
    page.get_by_role("button", name="Add MCD15A2").first.click()
    page.locator('.layers input[value="Lai_1km"]').check()
    for name, value in {
        "start": "2012-03-05", "end": "2012-03-30",
        "west": "-8", "south": "51", "east": "6", "north": "58",
    }.items():  # fmt: skip
        page.locator(f"#{name}").fill(value)
    page.locator("#qa").select_option("best")
    # The picture, its numbers, and the days of the span with pictures.
    expect(page.locator("[data-layer-view][data-shown*='2012-03-05'][data-loaded]")).to_be_visible()
    said(page, "with the quality rule. 2 granules.")
    chart = page.get_by_role(
        "application", name="Histogram of Lai_1km, before the quality rule and with it"
    )
    expect(chart.locator(".behind").first).to_be_visible()
    expect(page.locator('[data-view="legend"]')).to_contain_text("The rule leaves out")
    chart.focus()
    chart.press("End")
    expect(page.locator('[data-view="legend"] .chart-read')).to_contain_text("before")
    days = page.get_by_role("group", name="Days with data").get_by_role("button")
    expect(days).to_have_count(4)
    expect(days.first).to_have_attribute("aria-pressed", "true")
    picture = days.nth(1).locator("img")
    expect(picture).to_have_attribute("src", re.compile("qa=best"))  # not those of before the rule
    # The rule applies to the right of the divider, which keys move.
    divider = page.get_by_role("slider", name="Before the quality rule")
    divider.press("Home")
    assert divider.input_value() == "0"
    page.get_by_role("button", name="Tell the one in the middle").press("Enter")
    expect(page.locator('[data-view="value"]')).to_contain_text("Source pixel")
    days.nth(1).press("Enter")
    expect(page.locator("[data-layer-view][data-shown*='2012-03-13']")).to_be_visible()
    expect(days.nth(1)).to_have_attribute("aria-pressed", "true")
    address = page.get_by_role("link", name="Address for QGIS").get_attribute("href")
    assert address is not None
    assert address.startswith("/tiles/MCD15A2.005/Lai_1km/2012-03-13/WMTSCapabilities.xml?qa=best")
    # None of it is part of the request.
    assert "2012-03-13" not in page.locator("#summary").inner_text()
    assert faults(page) == []
    page.get_by_label("See a layer on the map").uncheck()
    expect(page.locator("[data-layer-view][data-shown]")).to_have_count(0)


def test_days_are_those_of_the_archive(portal: LivePortal) -> None:
    with portal.client() as client:
        found = client.get(
            "/tiles/MCD15A2/days.json",
            params={"start": dt.date(2012, 1, 2).isoformat(), "end": "2012-04-30", "most": 3},
        ).json()
        assert found == {"days": ["2012-01-09", "2012-03-05", "2012-04-30"]}
        assert client.get(
            "/tiles/MOD99/days.json", params={"start": "2012-01-02", "end": "2012-04-30"}
        ).json() == {"days": []}
