"""The main job by hand: on a real stack, submit by the form and download the result."""

import io
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import rasterio
from playwright.sync_api import Browser, ViewportSize, expect

from tests.browser.pages import open_part

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.integration]

COMMAND = (sys.executable, "-m", "swathmill.cli")
START_SECONDS = 120.0
JOB_MILLISECONDS = 180_000


@pytest.fixture(scope="module")
def link(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory, sample_archive: Path
) -> Iterator[str]:
    """The sign-in link of a stack over a sample archive."""
    assert chromium.is_connected()
    folder = tmp_path_factory.mktemp("stack")
    log = folder / "up.log"
    with log.open("wb") as out:
        stack = subprocess.Popen(
            [*COMMAND, "up", "--data", str(folder / "data"), "--archive", str(sample_archive)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield wait_for_link(stack, log)
    finally:
        stack.send_signal(signal.SIGINT)
        stack.wait(90)


def wait_for_link(stack: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = re.search(r"http://\S+/sign-in\?token=\S+", log.read_text())
        if found is not None:
            return found[0]
        assert stack.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"the stack did not start: {log.read_text()}")


def test_a_request_by_the_form_makes_files_to_download(chromium: Browser, link: str) -> None:
    context = chromium.new_context(viewport=ViewportSize(width=1280, height=900))
    page = context.new_page()
    page.goto(link)
    page.get_by_role("link", name="New request").first.click()
    page.fill("#product-search", "MCD15A2")
    page.get_by_role("button", name="Add MCD15A2 collection 005", exact=True).click()
    page.get_by_role("checkbox", name="Lai_1km").check()
    for field, value in (("west", "-8"), ("south", "50.5"), ("east", "6"), ("north", "58.5")):
        page.fill(f"#{field}", value)
    page.fill("#start", "2012-04-13")
    page.fill("#end", "2012-04-15")
    page.fill("#resolution", "0.05")
    page.select_option("#package", "mean")
    page.fill("#title", "By the form")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview-counts")).to_contain_text("Granules", timeout=30_000)
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile("/requests/"))
    expect(page.locator("#progress .state")).to_have_text(
        re.compile("complete"), timeout=JOB_MILLISECONDS
    )
    expect(page.locator("#progress .state")).to_have_text("complete")
    first = page.get_by_role("link", name=re.compile(r"^Download .*Lai_1km.*\.tif$")).first
    open_part(page, "Files")
    expect(first).to_be_visible()
    with page.expect_download() as waiting:
        first.click()
    with rasterio.open(waiting.value.path()) as raster:
        assert (raster.width, raster.height) == (280, 160)
        assert raster.dataset_mask().any()
    open_part(page, "Results")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="All as one ZIP").click()
    archive = zipfile.ZipFile(io.BytesIO(Path(waiting.value.path()).read_bytes()))
    assert archive.testzip() is None
    rasters = [name for name in archive.namelist() if name.endswith(".tif")]
    expect(page.locator(".results tbody tr")).to_have_count(len(rasters))
    assert any("mean" in name for name in archive.namelist())
    page.get_by_role("link", name="Map, time series, statistics").click()
    expect(page.locator("[data-results-map][data-lines]")).to_be_attached()
    page.locator("#result-map").press("Enter")
    page.get_by_role("button", name="Where the value came from").click()
    explained = page.locator("#explained")
    expect(explained).to_contain_text(re.compile(r"MCD15A2\.A2012\d+\.h1"), timeout=60_000)
    expect(explained).to_contain_text("FparLai_QC")
    page.get_by_role("link", name="Operations").click()
    expect(page.get_by_role("region", name="Workers")).to_contain_text("worker-1")
    expect(page.get_by_role("region", name="Executions")).to_contain_text("success")
    context.close()
