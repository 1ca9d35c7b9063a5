"""The worked example by the form: filled in by hand in Chromium, run by a stack, compared.

Three days of it, one without temperature, whose sum is held to a plain computation.
"""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import rasterio
import yaml
from playwright.sync_api import BrowserContext, Page, expect

from reprojection.sample.evapotranspiration import evapotranspiration_granules
from reprojection.sample.hdfeos_write import write_granule
from reprojection.sample.towers import tower_files
from tasks.bag.model import Phase
from tests.acceptance.running import Running, started
from tests.acceptance.test_evapotranspiration import DAYS, EXAMPLE, WITHOUT, plain
from tests.browser.pages import faultless_page

pytestmark = [pytest.mark.proof, pytest.mark.browser, pytest.mark.integration]

JOB_MILLISECONDS = 400_000


@dataclass(frozen=True, kw_only=True)
class Desk:
    """A stack with the example's packages, its granules, and the towers' tables."""

    stack: Running
    granules: Path
    towers: list[Path]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("example")
    granules, towers = folder / "granules", folder / "towers"
    granules.mkdir()
    towers.mkdir()
    days = [dt.datetime(d.year, d.month, d.day, tzinfo=dt.UTC) for d in DAYS if d != WITHOUT]
    for granule in evapotranspiration_granules(days):
        write_granule(granules / granule.local_name, granule)
    for name, text in tower_files():
        (towers / name).write_text(text)
    (folder / "packages").symlink_to(EXAMPLE / "packages")
    with started(folder, granules, {}) as running:
        yield Desk(stack=running, granules=granules, towers=sorted(towers.iterdir()))


def add(page: Page, name: str, layers: list[str], use: str = "same-day", days: str = "") -> None:
    """Add a product from the list, tick its layers, and say which dates a run takes."""
    page.fill("#product-search", name)
    page.get_by_role("button", name=f"Add {name} collection 061", exact=True).click()
    card = page.locator("[data-card]").filter(has_text=name)
    for layer in layers:
        card.locator(f"input[type=checkbox][value='{layer}']").check()
    card.get_by_label("A run takes the dates").select_option(use)
    if days:
        card.get_by_label("Days before, at most").fill(days)
        card.get_by_label("Days after, at most").fill(days)


def fill_in(page: Page, desk: Desk) -> None:
    """Fill in the example's document, field by field."""
    document = yaml.safe_load((EXAMPLE / "request.yaml").read_text())
    page.select_option("#package", label="Several steps …")
    page.fill("#steps", yaml.safe_dump(document["reduction"], sort_keys=False))
    page.select_option("#deliver", label="results only")
    for product in document["products"]:
        days = str(product.get("look_back", ""))
        add(page, product["name"], product["layers"], product.get("use", "same-day"), days)
    edges = zip(("west", "south", "east", "north"), document["region"]["bbox"], strict=True)
    for field, value in edges:
        page.fill(f"#{field}", f"{value:g}")
    page.fill("#start", str(DAYS[0]))
    page.fill("#end", str(DAYS[-1]))
    page.get_by_label("The MODIS sinusoidal grid").check()
    page.select_option("#modis", "1000")
    page.select_option("#resampling", label="By layer …")
    methods = document["resampling"].items()
    page.fill("#resampling_map", "\n".join(f"{layer}: {method}" for layer, method in methods))
    page.get_by_text("Compare with measurements at sites").click()
    page.set_input_files("#measured-files", desk.towers)
    expect(page.locator("#measured")).to_have_value(re.compile("# Site: XX-Bir"))
    page.fill("#measured_sites", (EXAMPLE / "towers.csv").read_text())
    page.fill("#compare", yaml.safe_dump(document["measurements"]["compare"]))
    page.fill("#title", "The example by hand")


def test_the_example_by_the_form_is_that_of_a_plain_computation(
    context: BrowserContext, desk: Desk, tmp_path: Path
) -> None:
    client = desk.stack.client
    with faultless_page(context) as page:
        found = re.search(r"http://\S+/sign-in\?token=\S+", desk.stack.log.read_text())
        assert found is not None
        page.goto(found[0])
        page.goto(f"{client.url}/new")
        fill_in(page, desk)
        page.screenshot(path=str(tmp_path / "form.png"), full_page=True)
        page.get_by_role("button", name="Preview").click()
        windows = page.locator("#preview-counts")
        expect(windows).to_contain_text("MOD11A1.061 2012-04-21", timeout=60_000)
        page.get_by_role("button", name="Submit", exact=True).click()
        page.wait_for_url(re.compile("/requests/"))
        expect(page.locator("#progress .state")).to_have_text(
            re.compile("complete|failed"), timeout=JOB_MILLISECONDS
        )
        request = page.url.rpartition("/")[2]
        page.goto(f"{client.url}/requests/{request}")
        page.screenshot(path=str(tmp_path / "request.png"), full_page=True)
    status = client.status(request)
    assert status.state.value == "complete with gaps", status.message
    assert [gap.what for gap in status.gaps] == [
        "MOD11A1.061 2012-04-21",
        "daily-et 2012-04-21",
    ]
    # Two days, two windows of 8 days, a month; two rasters of each sum, and no other.
    assert status.phases[Phase.REDUCTION].done == 2 + 2 + 1
    files = {file.name: file for file in client.results(request)}
    assert len([name for name in files if name.endswith(".tif")]) == 2 * (2 + 1)
    assert "sites/comparison-statistics.csv" in files
    path = client.download(files["monthly/et_sum/et_sum.2012-04.tif"], tmp_path)
    with rasterio.open(path) as made:
        found, where = made.read(1), made.transform
    side = 10 * 111194.92664455873 / 1200
    column, row = round(where.c / side), round((10 * 6 * 111194.92664455873 - where.f) / side)
    part = (slice(row, row + found.shape[0]), slice(column, column + found.shape[1]))
    stack = np.stack([plain(desk.granules, day)[part] for day in DAYS if day != WITHOUT])
    there = np.isfinite(stack).any(axis=0)
    expected = np.where(there, np.nansum(stack, axis=0), np.nan)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
