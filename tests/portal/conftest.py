"""A live portal on services in memory."""

from collections.abc import Iterator

import pytest
import structlog

from tasks.bag.runtime import Runtime
from tests.portal.scripted import LivePortal, live_portal, live_runtime, raster_bytes, settings


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep logs from being drawn on a terminal, which takes seconds for a traceback."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
def runtime() -> Runtime:
    """Services in memory of this test's own."""
    return live_runtime()


@pytest.fixture
def portal(runtime: Runtime) -> Iterator[LivePortal]:
    """A portal over them."""
    with live_portal(runtime, settings()) as running:
        yield running


@pytest.fixture(scope="session")
def raster(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small COG."""
    return raster_bytes(tmp_path_factory.mktemp("raster"))
