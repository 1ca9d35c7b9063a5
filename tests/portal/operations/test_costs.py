"""What work costs and wastes, who is slow, what fails most, and which kills were right."""

import datetime as dt
import re
from dataclasses import replace

import pytest

from portal.operations import costs
from portal.operations.costs import Verdict
from portal.operations.executions import executions, parse_filters
from tasks.bag import task_table
from tasks.bag.categories import Category
from tasks.bag.model import Attempt, Phase, Use
from tasks.bag.runtime import Runtime
from tasks.bag.workers import Hold, WorkerRow
from tasks.operators import manager_rows, prices, restrictions
from tasks.operators.manager_rows import HostQueue, ManagerRow, PhaseQueue, PhaseStore, RefusedMails
from tasks.operators.overhead import OverheadMeter
from tasks.operators.prices import PriceList, Prices
from tasks.operators.restrictions import Kind, Restriction
from tasks.storage.traffic import Meter, Traffic
from tests.portal.scripted import LivePortal, put_executions, put_failed_task, put_worker
from tests.portal.submissions import submitted

OPERATOR = ("op@example.org", "operator")


def now(runtime: Runtime) -> dt.datetime:
    return dt.datetime.fromtimestamp(runtime.clock.now(), dt.UTC)


def worker(runtime: Runtime, name: str, host: str = "node") -> WorkerRow:
    row = WorkerRow(
        name=name, host=host, slots=2, started=1.0, beat_at=runtime.clock.now(), hold=Hold.NONE
    )
    put_worker(runtime, row)
    return row


def test_the_most_wasteful_class_comes_first(portal: LivePortal, runtime: Runtime) -> None:
    at = now(runtime)
    put_executions(runtime, at, {None: 10}, "reprojection A.6 0.01", duration=100.0)
    put_executions(
        runtime, at, {None: 1, Category.USER_CODE_FAILED: 3}, "reduction bad 01", duration=30.0
    )
    made = executions(runtime.store, parse_filters(at.date(), 14, {}))
    assert [(one.task_class, one.seconds, one.wasted) for one in made.costs] == [
        ("reduction bad 01", 120.0, 90.0),
        ("reprojection A.6 0.01", 1000.0, 0.0),
    ]
    with portal.browser(*OPERATOR) as client:
        page = client.get("/operations/costs").text
        first = client.get("/operations").text
        csv = client.get("/operations/executions/classes.csv").text.splitlines()
    assert csv[1] == "reduction bad 01,reduction,4,3,120.0,90.0"
    assert "8.0%" in page  # 90 s of 1,120 s
    assert re.search(r"wasted by <a [^>]+>reduction bad 01</a>: 1 min 30 s in attempts", first)


def test_cost_is_by_owner_and_package_beside_the_quota(
    portal: LivePortal, runtime: Runtime
) -> None:
    at = now(runtime)
    for number, (owner, hours) in enumerate((("ada", 2), ("adam", 8), ("ada~b", 1))):
        moment = at - dt.timedelta(milliseconds=number)
        put_executions(runtime, moment, {None: hours}, "reduction ada 01", 3600.0, owner=owner)
    put_executions(runtime, at, {Category.UNKNOWN: 1}, "collection A.6", 1800.0, owner="ada")
    quota = Restriction(kind=Kind.QUOTA_OWNER, subject="ada", value=2.5, by="op", since=1.0)
    restrictions.put(runtime.store, quota)
    meant = parse_filters(at.date(), 14, {})
    found = costs.by_owner(runtime, meant)
    assert [(one.name, one.seconds / 3600, one.wasted / 3600) for one in found] == [
        ("adam", 8.0, 0.0),
        ("ada", 2.5, 0.5),
        ("ada~b", 1.0, 0.0),
    ]
    assert [(one.quota, one.spent) for one in found] == [(None, 0.0), (2.5, 2.5), (None, 0.0)]
    assert [one.name for one in costs.by_owner(runtime, meant.of("owner", "adam"))] == ["adam"]
    assert costs.by_owner(runtime, meant.of("worker", "worker-1")) == []
    packages = costs.by_package(runtime, executions(runtime.store, meant))
    assert [(one.name, one.count) for one in packages] == [("ada", 11)]
    with portal.browser(*OPERATOR) as client:
        bare = client.get("/operations/costs").text
        known = PriceList(currency="EUR", prices=Prices(core_hour=0.05), source="list.json")
        prices.put(runtime.store, known)
        page = client.get("/operations/costs").text
        csv = client.get("/operations/costs/owners.csv").text.splitlines()
    assert "No prices are known" in bare
    assert "EUR" not in bare
    assert "0.05 EUR for an hour of one core" in page
    assert "0.58 EUR. Source of the prices: list.json" in page  # 11.5 hours
    assert "2.50 of 2.5 h <strong>spent</strong>" in page
    assert 'href="/operations/costs?' in page
    assert csv[1] == "adam,8,0,28800.0,0.0,0.0,0,0,0,0,0.4,EUR,,"
    assert csv[2] == "ada,3,1,9000.0,1800.0,0.0,0,0,0,0,0.125,EUR,2.5,2.5"


def test_the_service_s_own_calls_are_told_beside_those_of_attempts(
    portal: LivePortal, runtime: Runtime
) -> None:
    at = now(runtime)
    put_executions(runtime, at, {None: 2}, "collection A.6", 10.0, use=Use(cpu=1.0, reads=15))
    with portal.browser(*OPERATOR) as client:
        assert "belong to no request" not in client.get("/operations/costs").text
        meter = Meter()
        meter.add(Traffic(reads=9, writes=1, received=10**9))
        OverheadMeter(runtime, meter).note()
        page = client.get("/operations/costs").text
        prices.put(runtime.store, PriceList(currency="EUR", prices=Prices(reads=5_000.0)))
        priced = client.get("/operations/costs").text
        of_one = client.get("/operations/costs?owner=ada").text
    assert "workers themselves made 10 more calls, with 1 GB. They belong to no request" in page
    assert "are 25.0% of all calls" in page
    assert "10 more calls, with 1 GB: 4.50 EUR. They" in priced
    assert "belong to no request" not in of_one


def test_a_worker_is_compared_with_the_fleet_by_class(runtime: Runtime) -> None:
    at = now(runtime)
    for name, fetch, warp in (("quick", 10.0, 100.0), ("slow", 30.0, 300.0)):
        put_executions(runtime, at, {None: 10}, "collection A.6", fetch, worker=name)
        put_executions(runtime, at, {None: 10}, "reprojection A.6 1", warp, worker=name)
    put_executions(runtime, at, {Category.UNKNOWN: 4}, "collection A.6", 999.0, worker="quick")
    old = at - dt.timedelta(days=30)
    put_executions(runtime, old, {None: 50}, "collection A.6", 500.0, worker="quick")
    rows = [worker(runtime, name) for name in ("idle", "quick", "slow")]
    found = costs.paces(runtime, rows, at.date())
    assert [(one.worker.name, one.factor and round(one.factor, 2)) for one in found] == [
        ("slow", 1.5),
        ("quick", 0.5),
        ("idle", None),
    ]
    assert (found[1].attempts, found[1].failed) == (24, 4)


def test_what_fails_most_is_named(portal: LivePortal, runtime: Runtime) -> None:
    name, at = submitted(runtime), now(runtime)
    often = put_failed_task(runtime, name, "OFTEN.hdf", (Category.SERVER_BUSY,))
    seldom = put_failed_task(runtime, name, "SELDOM.hdf", (Category.SERVER_BUSY,))
    for number, key in enumerate((often, seldom, often)):
        moment = at - dt.timedelta(seconds=10 * number)
        put_executions(runtime, moment, {Category.SERVER_BUSY: 1}, keys=[key], worker="w1")
    put_executions(runtime, at, {Category.CANCELLED: 9}, worker="w3")
    put_executions(
        runtime, at, {Category.USER_CODE_FAILED: 2}, "reduction ada/lai@2 01", worker="w2"
    )
    rows = [worker(runtime, "w1", "node-1")]
    top = costs.top_failures(runtime, parse_filters(at.date(), 14, {}), rows)
    assert [(one.name, one.count) for one in top.granules] == [("OFTEN.hdf", 2), ("SELDOM.hdf", 1)]
    assert [(one.name, one.count) for one in top.packages] == [("ada/lai@2", 2)]
    assert [(one.name, one.count) for one in top.workers] == [("w1", 3), ("w2", 2)]
    assert dict(top.hosts) == {"node-1": 3, "of workers that have left": 2}
    with portal.browser(*OPERATOR) as client:
        page = client.get("/operations/costs").text
        (address,) = re.findall(r'href="(/operations/attempts[^"]+)">ada/lai@2', page)
        assert "reduction ada/lai@2 01" in client.get(address.replace("&amp;", "&")).text


def test_granules_that_fail_in_reprojection_are_counted_by_the_message(
    portal: LivePortal, runtime: Runtime
) -> None:
    damaged = "MCD15A2.A2012073.h17v03.005.2012153131300.hdf"
    also = "MYD04_L2.A2012104.1230.061.hdf"
    name, at = submitted(runtime), now(runtime)
    fetched = put_failed_task(runtime, name, also, (Category.SERVER_BUSY,))
    put_executions(runtime, at, {Category.SERVER_BUSY: 1}, keys=[fetched])
    unreadable: dict[Category | None, int] = {Category.UNREADABLE_INPUT_FILE: 3}
    warp = "reprojection A.6 1"
    put_executions(runtime, at, unreadable, warp, message=f"{damaged}: layer 'Lai_1km' cannot be")
    other = at - dt.timedelta(minutes=1)
    put_executions(runtime, other, unreadable, warp, message=f"{also} is truncated: fetch it again")
    put_executions(runtime, at, {Category.OUT_OF_MEMORY: 5}, warp, message="it used 9 GB")
    ran = "reduction ada/lai@2 01"
    put_executions(runtime, at, {Category.USER_CODE_FAILED: 5}, ran, message=f"{damaged}: no")
    top = costs.top_failures(runtime, parse_filters(at.date(), 14, {}), [])
    assert [(one.name, one.count) for one in top.granules] == [(also, 4), (damaged, 3)]
    assert top.granules[0].address == f"/tasks/{fetched}"
    with portal.browser(*OPERATOR) as client:
        assert f">{damaged}</a>" in client.get("/operations/costs").text


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ((), Verdict.OPEN),
        (((None, 5.0),), Verdict.RIGHT),
        (((None, 95.0),), Verdict.EARLY),
        (((Category.EXECUTION_TIMEOUT, 200.0), (None, 5.0)), Verdict.AGAIN),
        (((Category.WORKER_LOST, 200.0), (None, 5.0)), Verdict.RIGHT),
        (((Category.UNKNOWN, 3.0),), Verdict.OPEN),
    ],
)
def test_a_kill_is_judged_by_the_attempt_after_it(
    portal: LivePortal,
    runtime: Runtime,
    after: tuple[tuple[Category | None, float], ...],
    verdict: Verdict,
) -> None:
    key, at = "ab" * 32, now(runtime)
    put_executions(runtime, at, {Category.EXECUTION_TIMEOUT: 1}, duration=90.0, keys=[key])
    first = Attempt(
        key=key,
        number=1,
        claim="c",
        phase=Phase.COLLECTION,
        task_class="collection MCD15A2.5",
        worker="w",
        started=0.0,
        ended=1.0,
        duration=90.0,
        category=Category.EXECUTION_TIMEOUT,
    )
    attempts = [
        replace(first, number=number, category=category, duration=duration)
        for number, (category, duration) in enumerate(after, 2)
    ]
    rows = [task_table.insert_attempt(one) for one in (first, *attempts)]
    runtime.store.transact(task_table.TABLE, key[0], rows)
    (judged,) = costs.judged_kills(runtime, parse_filters(at.date(), 14, {}))
    assert judged.verdict is verdict
    with portal.browser(*OPERATOR) as client:
        page = client.get("/operations/kills").text
        csv = client.get("/operations/kills.csv").text.splitlines()[1]
    assert f"<b>1</b> {verdict.value}" in page
    assert f",90.0,{verdict.value}," in csv


def test_the_page_shows_managers_queue_and_storage(portal: LivePortal, runtime: Runtime) -> None:
    row = ManagerRow(
        name="manager",
        host="a",
        version="1",
        started=1.0,
        beat_at=runtime.clock.now(),
        acts=True,
        epoch=3,
        rounds=0.25,
        queues=(PhaseQueue(phase=Phase.REDUCTION, ready=1234, oldest=65.0, running=2),),
        stored=(PhaseStore(phase=Phase.COLLECTION, artifacts=7, size=2_000_000_000),),
        shards=16,
    )
    manager_rows.put(runtime.store, row)
    with portal.browser(*OPERATOR) as client:
        assert "the mail server does not take" not in client.get("/operations").text
    full = HostQueue(host="archive.example.org", places=8, waiting=1200)
    row = replace(row, refused=RefusedMails(count=3, error="ConnectionRefusedError: <no>"))
    room = HostQueue(host="own 1a2b3c4d", places=2, waiting=1, why="it waited for <2> processors")
    row = replace(row, hosts=(full, room))
    manager_rows.put(runtime.store, row)
    standby = replace(row, name="manager-2", acts=False, queues=(), stored=(), shards=0)
    manager_rows.put(runtime.store, standby)
    silent = replace(standby, name="manager-3", beat_at=runtime.clock.now() - 900)
    manager_rows.put(runtime.store, silent)
    gone = replace(standby, name="manager-4", beat_at=runtime.clock.now() - 90_000)
    manager_rows.put(runtime.store, gone)
    with portal.browser(*OPERATOR) as client:
        page = client.get("/operations").text
        kept = client.get("/operations/costs").text
        sizes = client.get("/operations/costs/storage.csv").text
    for name, state in (("manager", "acting"), ("manager-2", "stands by"), ("manager-3", "silent")):
        assert re.search(rf">{name}<br>.*?>{state}<", page, re.DOTALL)
    assert "manager-4" not in page
    assert (
        "3 mails wait: the mail server does not take them (ConnectionRefusedError: &lt;no&gt;)"
        in page
    )
    assert "1,200 collections wait for one of the 8 connections to" in page
    assert "Swathmill's own limit, <code>SWATHMILL_HOST_CONNECTIONS</code>" in page
    assert "1 run waits for room beside the 2 of" in page
    assert "it waited for &lt;2&gt; processors" in page
    assert "1,234" in page
    assert "1 min 5 s" in page
    assert "2 GB" in kept
    assert sizes == "phase,artifacts,bytes\ncollection,7,2000000000\n"


def test_each_table_of_costs_is_a_csv_file_and_a_link(portal: LivePortal, runtime: Runtime) -> None:
    at = now(runtime)
    put_executions(runtime, at, {None: 6, Category.UNKNOWN: 2}, "reduction ada/lai@2 0123")
    put_executions(runtime, at, {None: 3}, "collection MCD15A2.5", worker="worker-2")
    for name in ("worker-1", "worker-2"):
        put_worker(
            runtime,
            WorkerRow(name=name, host="=cmd()", slots=2, started=1.0, beat_at=runtime.clock.now()),
        )
    with portal.browser(*OPERATOR) as client:
        page = client.get("/operations/costs").text
        files = re.findall(r'href="(/operations/costs/(\w+)\.csv[^"]*)" download', page)
        found = {name: client.get(href.replace("&amp;", "&")).text for href, name in files}
        assert client.get("/operations/costs/nothing.csv").status_code == 400
        phase = client.get("/operations/costs/failing.csv?phase=collection").text
    assert {"packages", "throughput", "failing", "workers"} == found.keys()
    assert found["packages"].splitlines()[1].startswith("ada/lai@2,8,2,32.0,8.0,")
    assert found["throughput"].splitlines()[-1].startswith(f"{at.date()},9,")
    assert "package,ada/lai@2,2,/operations/attempts?" in found["failing"]
    assert "worker-1,'=cmd(),1.0,8,2,free," in found["workers"]
    assert phase == "what,name,failed,address\n", "the filters hold"
    for name in found:
        assert re.search(rf'href="/operations/costs\?[^"]*#{name}"', page)


def test_the_csv_file_of_kills_has_more_than_the_page(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.operations.executions.LOOKED_AT", 3)
    put_executions(runtime, now(runtime), {Category.EXECUTION_TIMEOUT: costs.JUDGED + 5})
    with portal.browser(*OPERATOR) as client:
        page = client.get("/operations/kills").text
        kills = client.get("/operations/kills.csv").text
        attempts = client.get("/operations/attempts.csv").text
    assert page.count('data-label="Killed after"') == costs.JUDGED
    assert "of the latest 50; the CSV file has all" in page
    assert len(kills.splitlines()) == len(attempts.splitlines()) == costs.JUDGED + 6


@pytest.mark.parametrize("address", ["costs", "kills", "kills.csv"])
def test_costs_are_for_operators(portal: LivePortal, address: str) -> None:
    with portal.browser() as scientist:
        assert scientist.get(f"/operations/{address}").status_code == 403
