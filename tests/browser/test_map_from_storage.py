"""The map of results reads rasters straight from storage, by signed links."""

from pathlib import Path

import pytest
from azure.storage.blob import CorsRule
from playwright.sync_api import Browser, Response

from tasks.bag.model import RequestState
from tasks.service.azure_clients import sdk_clients
from tasks.service.connect import connect_storage
from tests.portal.scripted import live_portal, put_result, raster_bytes, set_row, settings
from tests.portal.submissions import submitted

pytestmark = [pytest.mark.integration, pytest.mark.browser]


def test_the_map_draws_rasters_from_storage(
    azurite: str, chromium: Browser, tmp_path: Path
) -> None:
    # As infra/bicep/storage.bicep has it: a link is what opens a file, whichever page asks.
    rule = CorsRule(["*"], ["GET", "HEAD"], allowed_headers=["*"], exposed_headers=["*"])
    sdk_clients(azurite, retries=0).blobs.set_service_properties(cors=[rule])
    runtime = connect_storage(azurite)
    request = submitted(runtime)
    name = "MCD15A2.005.Lai_1km.2012-01-01.tif"
    put_result(runtime, request, "MCD15A2.005/Lai_1km", name, raster_bytes(tmp_path))
    set_row(runtime, request, state=RequestState.COMPLETE, delivered=1, outputs=1, ended=1.0)
    problems: list[str] = []
    read: list[str] = []

    def note(answer: Response) -> None:
        if answer.status == 206:
            read.append(answer.url)

    with live_portal(runtime, settings(result_link_minutes="5")) as portal:
        page = chromium.new_page(viewport={"width": 1000, "height": 800})
        page.on(
            "console",
            lambda line: problems.append(line.text) if line.type == "error" else None,
        )
        page.on("response", note)
        page.goto(portal.link())
        with page.expect_response(lambda one: one.status == 206):
            page.goto(f"{portal.url}/requests/{request}/map")
        page.wait_for_selector("canvas.side-1, .side-1 canvas")
        page.screenshot(path=str(tmp_path / "map.png"))
        assert read
        assert all("sig=" in url and not url.startswith(portal.url) for url in read)
        assert page.locator("#map-problem").is_hidden()
        page.close()
    assert not problems
