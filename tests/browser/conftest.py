"""A browser for the tests that need one; they are skipped, with a word, where there is none."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import structlog
from playwright.sync_api import Browser, BrowserContext, Error, expect, sync_playwright

from portal.serving.pages import STATIC


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep logs from being drawn on a terminal, which takes seconds for a traceback."""
    with structlog.testing.capture_logs():
        yield


# A busy machine takes longer than the five seconds that are the default.
expect.set_options(timeout=60_000)

# Without a graphics card, an imitation costs a tenth of all processor time: only maps draw by it.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu-compositing",
    "--disable-gpu-rasterization",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]

NAMES = ("chromium", "chromium-browser", "google-chrome")


class NoBrowserError(Exception):
    """There is no Chromium that starts."""


@contextmanager
def launched() -> Iterator[Browser]:
    """Start the Chromium that SWATHMILL_TEST_CHROMIUM names, else the first on PATH.

    Raises NoBrowserError.
    """
    path = os.environ.get("SWATHMILL_TEST_CHROMIUM") or next(
        (found for name in NAMES if (found := shutil.which(name))), None
    )
    if path is None:
        raise NoBrowserError(
            "no chromium on PATH: install it, or name one by SWATHMILL_TEST_CHROMIUM"
        )
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        except Error as error:
            raise NoBrowserError(
                f"{path} does not start: {error.message.splitlines()[0]}"
            ) from error
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Chromium for all tests of a process; they are skipped where there is none."""
    assert (STATIC / "vendor" / "htmx.min.js").is_file(), "no portal/static/vendor: run make setup"
    asyncio.events._set_running_loop(None)  # Playwright's own takes its place
    with ExitStack() as stack:
        try:
            browser = stack.enter_context(launched())
        except NoBrowserError as error:
            pytest.skip(str(error))
        yield browser


@pytest.fixture(scope="module")
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A context for the pages of a file of tests: scripts are loaded and compiled once for all."""
    context = chromium.new_context()
    yield context
    context.close()
