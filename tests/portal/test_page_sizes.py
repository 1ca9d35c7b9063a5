"""What pages weigh as they are sent: 200 kB at most, with all they name but the map."""

import re

import httpx
import pytest

from portal.serving.pages import STATIC
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tests.portal.scripted import LivePortal, put_result, set_row
from tests.portal.submissions import submitted

MOST = 200_000  # bytes
_NAMED = re.compile(r'(?:<link rel="stylesheet" href|<script [a-z]*[^>]*src)="([^"]+)"')
_MAP = ("vendor/ol.", "vendor/geotiff.", "vendor/proj4.", "vendor/topojson-client.")


@pytest.fixture
def request_id(runtime: Runtime, raster: bytes) -> str:
    """A request with as many results as a page shows, and more."""
    name = submitted(runtime)
    for number in range(60):
        day = f"2012-{1 + number // 28:02d}-{1 + number % 28:02d}"
        put_result(runtime, name, "MCD15A2.005/Lai_1km", f"MCD15A2.005.Lai_1km.{day}.tif", raster)
    set_row(runtime, name, state=RequestState.COMPLETE, delivered=60, outputs=60, ended=1e9)
    return name


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/new",
        "/requests/ID",
        "/requests/ID/map",
        "/requests/ID/view/MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km.2012-01-01.tif",
        "/packages",
        "/rasters",
        "/groups",
        "/tokens",
        "/operations",
        "/operations/executions",
        "/docs",
    ],
)
def test_no_page_is_heavier_than_200_kb(portal: LivePortal, request_id: str, path: str) -> None:
    assert (STATIC / "vendor" / "htmx.min.js").is_file(), "no portal/static/vendor: run make setup"
    with portal.browser(role="operator") as client:
        size, text = weight(client, path.replace("ID", request_id))
        named = [one for one in _NAMED.findall(text) if not any(part in one for part in _MAP)]
        assert any("swathmill.css" in one for one in named)
        size += sum(weight(client, one)[0] for one in named)
        assert size < MOST, f"{path} weighs {size:,} bytes"


def weight(client: httpx.Client, path: str) -> tuple[int, str]:
    """Bytes of an answer as they were sent, and its text."""
    headers = {"Accept": "text/html", "Accept-Encoding": "gzip"}
    with client.stream("GET", path, headers=headers) as answer:
        answer.raise_for_status()
        answer.read()
        return answer.num_bytes_downloaded, answer.text
