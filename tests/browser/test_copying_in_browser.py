"""A scientist copies results to a bucket of her own, on the request's page."""

import json
from pathlib import Path

import pytest
import s3fs
from playwright.sync_api import Browser, Route, expect

from tasks.bag.model import RequestState
from tests.browser.pages import open_part
from tests.portal.scripted import live_portal, live_runtime, put_result, set_row, settings
from tests.portal.submissions import submitted

pytestmark = [pytest.mark.integration, pytest.mark.browser]


def test_results_are_copied_by_the_page(
    chromium: Browser, s3_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.elsewhere.copies_api.SECONDS", 0.0)  # a call for each file
    address = f"http://localhost:{s3_port}"
    there = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=address)
    there.mkdir("pages")
    runtime = live_runtime()
    request = submitted(runtime)
    for name in ("a.csv", "b.csv", "c.csv"):
        put_result(runtime, request, "MCD15A2.005", name, name.encode())
    set_row(runtime, request, state=RequestState.COMPLETE, delivered=3, outputs=3, ended=1.0)
    # The page offers Amazon's S3: the test's stands in for it.
    monkeypatch.setattr("portal.elsewhere.copies.AMAZON", address)
    made = settings(copy_hosts=f"localhost:{s3_port}, 127.0.0.0/8, ::1/128")
    with live_portal(runtime, made) as portal:
        page = chromium.new_page(viewport={"width": 1000, "height": 900})
        page.goto(portal.link())
        page.goto(f"{portal.url}/requests/{request}")
        open_part(page, "Files")
        page.get_by_text("Copy to your storage").click()
        page.get_by_label("SAS URL of an Azure container").fill("s3://pages/folder")
        page.get_by_label("S3: access key").fill("KEYID")
        page.get_by_label("S3: secret").fill("SECRET-KEY")
        orders: list[dict[str, str]] = []

        def break_the_second(route: Route) -> None:
            orders.append(json.loads(route.request.post_data or "{}"))
            if len(orders) == 2:
                route.abort()
            else:
                route.fallback()

        page.route("**/copies", break_the_second)
        page.get_by_role("button", name="Copy all results").click()
        expect(page.get_by_text("1 copied. ")).to_contain_text("Press again to go on from there.")
        page.get_by_role("button", name="Copy all results").click()
        expect(page.get_by_text("All 3 files are copied.")).to_be_visible(timeout=30_000)
        paths = [order["after"].rpartition("/")[2] for order in orders]
        assert paths == ["", "a.csv", "a.csv", "b.csv"]
        page.screenshot(path=str(tmp_path / "copied.png"))
        page.get_by_label("SAS URL of an Azure container").fill("https://example.org/c?sig=s")
        page.get_by_role("button", name="Copy all results").click()
        expect(page.get_by_text("0 copied. ")).to_contain_text("SWATHMILL_COPY_HOSTS")
        page.close()
    assert sorted(there.ls("pages/folder/MCD15A2.005", detail=False)) == [
        f"pages/folder/MCD15A2.005/{name}" for name in ("a.csv", "b.csv", "c.csv")
    ]
