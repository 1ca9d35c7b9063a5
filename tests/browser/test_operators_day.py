"""An operator's day in Chromium: from a number to its cause, and from a cause to an action."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect

from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.bag.workers import Ask, Hold
from tasks.operators import manager_rows, restrictions
from tasks.operators.manager_rows import ManagerRow, PhaseQueue, PhaseStore
from tasks.operators.restrictions import Kind
from tasks.requests import request_operations
from tasks.requests.request_table import PhaseCount
from tests.browser.pages import faultless_page, misfits
from tests.portal.scripted import (
    LivePortal,
    live_portal,
    live_runtime,
    put_executions,
    put_failed_task,
    put_running_task,
    put_worker,
    set_row,
    settings,
)
from tests.portal.submissions import submitted

pytestmark = pytest.mark.browser

ADA = "ada@example.org"
WASTEFUL = "reduction ada/evapotranspiration@3 0123abcd, 1-2 Gpx"
PAGES = (
    "/operations",
    "/operations/executions",
    "/operations/executions?owner=ada%40example.org&phase=reduction",
    "/operations/attempts",
    "/operations/costs",
    "/operations/kills",
    "/operations/actions",
    "/operations/act?action=pause+owner&subject=ada%40example.org",
    "/operations/retry?category=bad+image+format",
)


@dataclass(frozen=True, kw_only=True)
class Day:
    """A portal in the midst of work: what runs, what failed, and whose it is."""

    portal: LivePortal
    request: str
    running: str
    failed: str

    @property
    def runtime(self) -> Runtime:
        return self.portal.runtime


@pytest.fixture
def day() -> Iterator[Day]:
    """Two workers, one of them drained; a hanging attempt; failures, kills and waste."""
    runtime = live_runtime()
    name = submitted(runtime)
    running = put_running_task(runtime, name, "HANGS.hdf", "worker-1")
    failed = put_failed_task(runtime, name, "BAD.hdf", (Category.BAD_IMAGE_FORMAT,))
    killed = put_failed_task(runtime, name, "SLOW.hdf", (Category.EXECUTION_TIMEOUT,) * 2)
    counts = {
        Phase.COLLECTION: PhaseCount(total=40, done=36, failed=2, running=1),
        Phase.REDUCTION: PhaseCount(total=12),
    }
    set_row(runtime, name, state=RequestState.RUNNING, phases=counts)
    _count(runtime, failed, killed)
    _fleet(runtime, running)
    with live_portal(runtime, settings()) as portal:
        yield Day(portal=portal, request=name, running=running, failed=failed)


def _count(runtime: Runtime, failed: str, killed: str) -> None:
    """Executions of today and yesterday, of two owners and two workers."""
    today = dt.datetime.fromtimestamp(runtime.clock.now(), dt.UTC)
    tile = "collection MCD15A2.5"
    put_executions(runtime, today, {None: 60}, tile, owner=ADA)
    put_executions(
        runtime, today, {Category.BAD_IMAGE_FORMAT: 1}, tile, owner=ADA, keys=[failed], duration=90
    )
    put_executions(
        runtime, today, {Category.EXECUTION_TIMEOUT: 1}, tile, keys=[killed], duration=90
    )
    put_executions(runtime, today, {Category.USER_CODE_FAILED: 3}, WASTEFUL, 900.0, owner=ADA)
    yesterday = today - dt.timedelta(days=1)
    ben = "ben@example.org"
    put_executions(runtime, yesterday, {None: 9}, tile, 12.0, owner=ben, worker="worker-2")


def _fleet(runtime: Runtime, running: str) -> None:
    """The workers and the manager, as their rows say."""
    task, now = runtime.tasks.task(running), runtime.clock.now()
    assert task is not None
    attempt = workers.RunningAttempt(
        key=running,
        claim=task.claim,
        started_ago=2000.0,
        phase=task.phase,
        task_class=task.task_class,
        note="fetching HANGS.hdf",
    )
    one = workers.WorkerRow(
        name="worker-1", host="node-1", slots=2, started=1.0, beat_at=now, attempts=(attempt,)
    )
    put_worker(runtime, one)
    put_worker(
        runtime,
        workers.WorkerRow(name="worker-2", host="node-2", slots=2, started=1.0, beat_at=now),
    )
    workers.order_hold(
        runtime.store,
        runtime.clock,
        "worker-2",
        1.0,
        Hold.DRAINED,
        why="Its attempts took 3.1 times the usual: collection MCD15A2.5 12.0 s, not 3.9 s.",
        wait=600.0,
    )
    row = ManagerRow(
        name="manager",
        host="node-0",
        version="1",
        started=1.0,
        beat_at=now,
        acts=True,
        epoch=1,
        requests=1,
        queues=(PhaseQueue(phase=Phase.REDUCTION, ready=12, oldest=65.0),),
        stored=(PhaseStore(phase=Phase.COLLECTION, artifacts=36, size=2_000_000_000),),
        shards=16,
    )
    manager_rows.put(runtime.store, row)


@pytest.fixture
def page(context: BrowserContext, day: Day) -> Iterator[Page]:
    """An operator's page, on which no error may come up."""
    with faultless_page(context) as page:
        page.goto(day.portal.link("op@example.org", "operator"))
        page.get_by_role("link", name="Operations", exact=True).click()
        yield page


def tab(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Operations").get_by_role("link", name=name).click()


def confirm(page: Page, why: str) -> None:
    """Give the reason and confirm, by the keyboard alone."""
    page.get_by_label("Reason, for the audit").focus()
    page.keyboard.type(why)
    page.keyboard.press("Tab")
    expect(page.locator("#confirm, #retry-category")).to_be_focused()
    page.keyboard.press("Enter")


def test_1_from_a_bar_of_timeouts_to_a_log_in_two_clicks(page: Page) -> None:
    tab(page, "Executions")
    expect(page.locator("#timeouts")).to_contain_text("The highest day is")
    page.locator("#timeouts svg a rect").first.click()
    expect(page.get_by_role("heading", name="Failed attempts")).to_be_visible()
    expect(page.locator("#category")).to_have_value("execution timeout")
    page.locator("tbody a.mono").first.click()
    expect(page.locator("#log-1")).to_contain_text("fetching SLOW.hdf")
    assert page.url.endswith("#log-1")


def test_2_to_the_package_that_wastes_most_and_its_log(page: Page) -> None:
    tab(page, "Cost and waste")
    worst = page.locator("#classes tbody tr").first
    expect(worst).to_contain_text(WASTEFUL)
    expect(worst).to_contain_text("45 min")
    with page.expect_download() as waiting:
        page.locator("#classes").get_by_role("link", name="CSV").click()
    first = Path(waiting.value.path()).read_text().splitlines()[1]
    assert first == f'"{WASTEFUL}",reduction,3,3,2700.0,2700.0'
    page.locator("#failing").get_by_role("link", name="ada/evapotranspiration@3").click()
    expect(page.locator("#package")).to_have_value("ada/evapotranspiration@3")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.locator("tbody td a").first.click()
    expect(page.get_by_role("link", name="Try this class again …")).to_be_visible()


def test_3_a_drained_worker_shows_its_evidence_and_is_released(page: Page, day: Day) -> None:
    slow = page.get_by_role("row").filter(has_text="worker-2")
    expect(slow).to_contain_text("3.1 times the usual")
    expect(slow).to_contain_text("Since just now")
    expect(slow).to_contain_text("Next try:")
    slow.get_by_role("link", name="Release …").click()
    expect(page.get_by_text("in all its 2 slots")).to_be_visible()
    confirm(page, "the disk was replaced")
    audit = page.locator("#audit tbody tr").first
    expect(audit).to_contain_text("release worker worker-2")
    expect(audit).to_contain_text("the disk was replaced")
    found = {one.name: one for one in workers.list_workers(day.runtime.store)}
    assert found["worker-2"].asked is Ask.RELEASE
    tab(page, "Now")
    page.get_by_role("row").filter(has_text="worker-1").last.get_by_role(
        "link", name="Drain …"
    ).click()
    expect(page.get_by_text("Running attempts will finish: 1 now.")).to_be_visible()


def test_4_an_attempt_that_hangs_is_killed_and_kills_are_judged(page: Page, day: Day) -> None:
    hangs = page.get_by_role("row").filter(has_text="fetching HANGS.hdf")
    hangs.get_by_role("link", name="Kill …").click()
    expect(page.get_by_text("has run on worker-1 for 2000 s")).to_be_visible()
    confirm(page, "the archive hangs")
    expect(page.locator("#audit tbody tr").first).to_contain_text("kill attempt")
    found = {one.name: one for one in workers.list_workers(day.runtime.store)}
    task = day.runtime.tasks.task(day.running)
    assert task is not None
    assert found["worker-1"].moves == (task.claim,)
    tab(page, "Kills")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr").first).to_contain_text("killed again")


def test_5_what_failed_alike_is_tried_again_with_its_number_of_tasks(page: Page, day: Day) -> None:
    page.get_by_text("bad image format").click()
    page.get_by_role("link", name="Try again in all requests …").last.click()
    expect(page.get_by_text("1 task failed this way: in 1 running request")).to_be_visible()
    assert request_operations.load(day.runtime, day.request).retry_orders == ()
    confirm(page, "the archive mended its file")
    expect(page.get_by_role("status").last).to_contain_text(
        "1 failed task in 1 request is tried again"
    )
    row = request_operations.load(day.runtime, day.request)
    assert row.retry_orders == ("category|bad image format",)
    page.goto(f"{day.portal.url}/operations/actions")
    with page.expect_download() as waiting:
        page.locator("#audit").get_by_role("link", name="CSV").click()
    said = Path(waiting.value.path()).read_text()
    assert (
        "op@example.org,retry category,bad image format,the archive mended its file,1 tas" in said
    )


def test_6_an_owner_waits_and_everybody_concerned_reads_why(
    page: Page, day: Day, chromium: Browser
) -> None:
    tab(page, "Actions")
    page.select_option("#action", "set quota of owner")
    page.fill("#subject", ADA)
    page.fill("#value", "0")
    page.get_by_role("button", name="See what it does …").click()
    expect(page.get_by_text("1 request has not ended, with 14 unfinished tasks.")).to_be_visible()
    expect(page.get_by_text("the owner's requests wait from now on")).to_be_visible()
    confirm(page, "until the campaign ends")
    page.get_by_role("row").filter(has_text="reduction").get_by_role("link", name="Pause …").click()
    expect(page.get_by_text("Tasks that are ready and wait: 12.")).to_be_visible()
    confirm(page, "")
    expect(page.locator("#audit tbody tr").first).to_contain_text("pause phase")
    tab(page, "Now")
    notice = page.get_by_text("Operators have restricted:")
    expect(notice).to_contain_text("pause phase reduction")
    waiting = {Phase.REDUCTION: PhaseCount(total=12)}
    set_row(day.runtime, day.request, phases=waiting)
    ada = chromium.new_page()
    ada.goto(day.portal.link())
    ada.goto(f"{day.portal.url}/requests/{day.request}")
    expect(ada.get_by_text("An operator has paused the phase reduction.")).to_be_visible()
    ada.close()
    tab(page, "Actions")
    set_before = {one.kind for one in restrictions.load(day.runtime.store)}
    assert set_before == {Kind.QUOTA_OWNER, Kind.PAUSE_PHASE}
    lift = page.get_by_role("link", name="Lift …")
    for left in (1, 0):
        lift.first.click()
        confirm(page, "over")
        expect(page.locator("#audit")).to_be_visible()
        expect(lift).to_have_count(left)
    assert restrictions.load(day.runtime.store) == []
    expect(
        page.get_by_text("Nothing: every phase and every owner may use all slots.")
    ).to_be_visible()


@pytest.mark.proof
def test_what_is_filtered_has_an_address_to_share(page: Page, day: Day, chromium: Browser) -> None:
    tab(page, "Executions")
    page.select_option("#phase", "reduction")
    page.fill("#owner", ADA)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text(re.compile(r"^3 executions from"))).to_be_visible()
    shared = page.locator("#outcomes").get_by_role("link", name="Link to this table")
    address = shared.get_attribute("href")
    other = chromium.new_page()
    other.goto(day.portal.link("night@example.org", "operator"))
    other.goto(f"{day.portal.url}{address}")
    expect(other.get_by_text(re.compile(r"^3 executions from"))).to_be_visible()
    expect(other.locator("#owner")).to_have_value(ADA)
    other.close()


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        pytest.param("light", 360, marks=pytest.mark.proof),
        pytest.param("dark", 1280, marks=pytest.mark.proof),
        pytest.param("dark", 768, marks=pytest.mark.proof),
        pytest.param("light", 1600, marks=pytest.mark.proof),
    ],
)
def test_the_pages_of_a_busy_day_fit_and_can_be_read(
    chromium: Browser, day: Day, scheme: str, width: int
) -> None:
    context = chromium.new_context(
        viewport=ViewportSize(width=width, height=900),
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(day.portal.link("op@example.org", "operator"))
    for path in PAGES:
        page.goto(day.portal.url + path)
        page.wait_for_load_state("networkidle")
        assert misfits(page) == []
    context.close()
