"""A live portal on services in memory."""

from collections.abc import Iterator

import pytest
import structlog

from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tests.portal.deliveries import LAI
from tests.portal.scripted import (
    LivePortal,
    live_portal,
    live_runtime,
    put_result,
    raster_bytes,
    set_row,
    settings,
)
from tests.portal.submissions import submitted


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


@pytest.fixture
def mapped(runtime: Runtime, raster: bytes) -> str:
    name = submitted(runtime)
    for day in ("2012-01-01", "2012-01-09"):
        put_result(runtime, name, LAI, f"MCD15A2.005.Lai_1km.{day}.tif", raster)
        put_result(runtime, name, LAI, f"MCD15A2.005.Lai_1km.{day}.json", b"{}")
    set_row(runtime, name, state=RequestState.COMPLETE, outputs=2, delivered=2, ended=1e9)
    return name
