"""A folder of granules on a map in Chromium: `swathmill view`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from portal.viewer.app import viewer_app
from portal.viewer.folder import read_folder
from tests.browser.pages import faultless_page, faults
from tests.portal.scripted import live_runtime, settings
from tests.serving import serving_app

pytestmark = [pytest.mark.browser, pytest.mark.proof]


@pytest.fixture(scope="module")
def address(sample_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = settings(
        archive=str(sample_archive), data_dir=str(tmp_path_factory.mktemp("data")), sources="folder"
    )
    runtime = live_runtime()
    app = viewer_app(made, runtime)
    read_folder(made, runtime)
    with serving_app(app) as url:
        yield url


def test_a_folder_is_seen_and_read_by_keys(context: BrowserContext, address: str) -> None:
    with faultless_page(context, width=360) as page:
        page.goto(address)
        shown = page.locator("[data-layer-view][data-shown][data-loaded]")
        expect(shown).to_be_visible()
        said = page.locator('[data-view="said"]')
        expect(said).to_contain_text("of the pixels in the region have a value. 2 granules.")
        whole = said.inner_text()
        page.get_by_label("Quality", exact=True).select_option("good")
        expect(page.get_by_role("slider", name="Before the quality rule")).to_be_visible()
        days = page.get_by_role("group", name="Days with data").get_by_role("button")
        expect(days).to_have_count(8)
        picture = days.nth(7).locator("img")
        expect(picture).to_have_attribute("src", re.compile("qa=good"))  # not those of before
        days.nth(7).press("Enter")
        expect(page.locator("[data-layer-view][data-shown*='2012-05-16']")).to_be_visible()
        # Keys move the map and tell a value; numbers are of what is in view, then of the day again.
        target = page.locator("#region-map")
        target.press("Enter")
        expect(page.locator('[data-view="value"]')).to_contain_text("Source pixel")
        for _ in range(5):
            target.press("+")
        note = page.locator("[data-note]")
        before = note.inner_text()
        page.get_by_role("button", name="Count what is in view").press("Enter")
        expect(note).not_to_have_text(before)
        page.get_by_role("button", name="Count the whole day").press("Enter")
        expect(note).to_have_text(before)
        assert faults(page) == []
        page.get_by_label("Product").select_option("MYD04_L2.061")
        expect(page.locator("[data-layer-view][data-shown*='MYD04_L2']")).to_be_visible()
        assert said.inner_text() != whole
