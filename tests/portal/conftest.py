"""A live portal on services in memory."""

from collections.abc import Iterator

import pytest
import structlog

from tasks.tables.services import Services
from tests.portal.scripted import LivePortal, live_portal, live_services, raster_bytes, settings


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep logs from being drawn on a terminal, which takes seconds for a traceback."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
def services() -> Services:
    """Services in memory of this test's own."""
    return live_services()


@pytest.fixture
def portal(services: Services) -> Iterator[LivePortal]:
    """A portal over them."""
    with live_portal(services, settings()) as running:
        yield running


@pytest.fixture(scope="session")
def raster(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small COG."""
    return raster_bytes(tmp_path_factory.mktemp("raster"))
