"""No page, in no state, has a fault that axe finds (WCAG 2.0 to 2.2, A and AA; best practice)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from reprojection.read.completeness import Completeness, Missing
from tasks.accounts.group_table import GroupRow, GroupTable
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState, TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, Preparation
from tasks.storage.clock import SystemClock
from tests.browser.pages import misfits, open_part
from tests.portal.scripted import (
    LivePortal,
    live_portal,
    live_runtime,
    put_failed_task,
    put_interest,
    put_result,
    raster_bytes,
    set_row,
    settings,
)
from tests.portal.site_tables import parquet, site_rows
from tests.portal.submissions import submitted

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
LAYER = "MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km"
ADA = "ada@example.org"
SITES = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"sites": "id,latitude,longitude\nMoor,56.6,-6.7"},
    "time": {"start": "2012-04-13", "end": "2012-04-15"},
}
RUN = """async () => {
    const found = await axe.run(document, {resultTypes: ["violations"]});
    return found.violations.map(one => `${one.id}: ${one.nodes.map(n => n.target).join(" ")}`);
}"""
STATES = (RequestState.SUBMITTED, RequestState.RUNNING, RequestState.HELD, RequestState.FAILED)


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LivePortal, dict[str, str]]]:
    """A portal, and requests by their state: one has ended with results, gaps and failures."""
    runtime = live_runtime()
    folder = tmp_path_factory.mktemp("axe")
    ids = {state.value: submitted(runtime) for state in STATES}
    planning, ended = submitted(runtime), submitted(runtime)
    lacks = Completeness(share=0.5, missing=(Missing(what="MCD15A2 h17v03", why="unreadable"),))
    for number, day in enumerate(("2012-01-01", "2012-01-09")):
        data = raster_bytes(folder, seed=number, width=300, height=200)
        said = lacks if number else Completeness()
        put_result(
            runtime, ended, LAYER.rpartition("/")[0], f"MCD15A2.005.Lai_1km.{day}.tif", data, said
        )
    key = put_failed_task(runtime, ended, "MCD15A2.A2012001.h17v03.005.hdf", (Category.UNKNOWN,))
    follows = Interest(
        request=ended,
        key="0" * 64,
        phase=Phase.REPROJECTION,
        name="a cell",
        outcome=TaskOutcome.GAP,
        category=Category.UPSTREAM_FAILED,
    )
    put_interest(runtime, follows)
    sites = request_operations.submit(runtime, ADA, parse_request(SITES))
    put_result(runtime, sites, "sites", "sites.csv", b"site,value\n")
    rows = [*site_rows("Moor", [1.0, 2.5]), *site_rows("Fen", [0.5, 1.0])]
    put_result(runtime, sites, "sites", "sites.parquet", parquet(rows))
    set_row(runtime, sites, state=RequestState.COMPLETE, ended=1e9, delivered=1, outputs=1)
    counts = {Phase.COLLECTION: PhaseCount(total=8, done=3, failed=1, running=2, reused=1)}
    set_row(runtime, ids["running"], state=RequestState.RUNNING, phases=counts)
    set_row(runtime, ids["waiting for confirmation"], state=RequestState.HELD, phases=counts)
    set_row(runtime, ids["failed"], state=RequestState.FAILED, ended=1e9, message="it failed")
    days = Preparation(done=12, total=121, unit="days")
    set_row(runtime, planning, state=RequestState.PLANNING, preparation=days)
    set_row(
        runtime,
        ended,
        state=RequestState.GAPS,
        ended=1e9,
        delivered=2,
        outputs=2,
        phases=counts,
        labels=("thesis",),
        standing=7,
        gaps=(Gap(what="MCD15A2 2012-01-17", reason="not published"),),
        gap_count=1,
    )
    GroupTable(runtime.store).write(
        SystemClock(), GroupRow(name="forest-team", owner=ADA, members=("b@c.org",))
    )
    assert request_operations.load(runtime, ended).gap_count
    with live_portal(runtime, settings()) as running:
        yield running, {**ids, "planning": planning, "ended": ended, "task": key, "sites": sites}


@pytest.fixture(
    params=[
        ("dark", 360),
        *(
            pytest.param((scheme, width), marks=pytest.mark.proof)
            for width in (360, 768, 1280, 1600)
            for scheme in ("light", "dark")
            if (scheme, width) != ("dark", 360)
        ),
    ],
    ids=lambda one: f"{one[0]}, {one[1]}",
    scope="module",
)
def page(
    chromium: Browser, portal: tuple[LivePortal, dict[str, str]], request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A page of an operator, who sees all pages, in both themes."""
    assert AXE.is_file(), "no node_modules/axe-core: run make setup"
    scheme, width = request.param
    context = chromium.new_context(
        viewport=ViewportSize(width=width, height=900), color_scheme=scheme
    )
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.goto(portal[0].link(role="operator"))
    yield page
    context.close()


def faults(page: Page) -> list[str]:
    """What axe finds on the page as it is now, and what does not fit or cannot be read."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[str] = page.evaluate(RUN)
    return [*(f"{page.url}: {one}" for one in found), *misfits(page)]


def test_no_page_has_a_fault(page: Page, portal: tuple[LivePortal, dict[str, str]]) -> None:
    live, ids = portal
    found = []
    for path in (
        "/",
        "/?everybody=true",
        "/?label=thesis",
        "/?group=forest-team",
        "/new",
        f"/new?again={ids['ended']}",
        *(
            f"/requests/{ids[state]}"
            for state in (*(s.value for s in STATES), "planning", "ended", "sites")
        ),
        f"/requests/{ids['ended']}/view/{LAYER}.2012-01-01.tif",
        f"/requests/{ids['ended']}/runs",
        f"/tasks/{ids['task']}",
        "/packages",
        "/rasters",
        "/groups",
        "/tokens",
        "/operations",
        "/operations/executions",
        "/operations/attempts",
        "/operations/costs",
        "/operations/kills",
        "/operations/actions",
        "/operations/act?action=pause+phase&subject=collection",
        "/docs",
        "/nowhere",
    ):
        page.goto(live.url + path)
        page.wait_for_load_state("networkidle")
        found += faults(page)
    assert found == []


def test_what_opens_on_a_page_has_no_fault(
    page: Page, portal: tuple[LivePortal, dict[str, str]]
) -> None:
    """The form with a product, wrong fields and a polygon; a request with all opened; the map."""
    live, ids = portal
    found = []
    page.goto(f"{live.url}/new")
    page.fill("#product-search", "NDVI")
    page.get_by_role("button", name="Add MOD13").first.click()
    page.locator("[data-card] input[type=checkbox]").first.check()
    page.get_by_role("radio", name="Polygon").check()
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#problem")).to_be_visible()
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    found += faults(page)
    page.goto(f"{live.url}/requests/{ids['ended']}")
    for part in ("Failures", "Files", "Document", "Sharing", "Results"):
        open_part(page, part)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        found += faults(page)
    page.goto(f"{live.url}/requests/{ids['ended']}/map?layer={LAYER}&date=2012-01-09")
    expect(page.locator("#statistics")).to_contain_text("Statistics, 2012-01-09")
    page.fill("#lon", "-6")
    page.fill("#lat", "56")
    page.get_by_role("button", name="Read the values").click()
    expect(page.locator("#point")).to_contain_text("dates have a value here")
    found += faults(page)
    assert found == []


@pytest.mark.proof
def test_nobody_signed_in_and_a_guest_find_no_fault(
    chromium: Browser, portal: tuple[LivePortal, dict[str, str]]
) -> None:
    live, _ids = portal
    context = chromium.new_context()
    page = context.new_page()
    found = []
    for path in ("/sign-in", "/", "/requests/none"):
        page.goto(live.url + path)
        found += faults(page)
    context.close()
    assert found == []
