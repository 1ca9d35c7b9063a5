"""A portal without a manager says so everywhere, and stops saying so when one acts."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from service_manager.leader.leadership import Leadership
from tasks.bag import workers
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.bag.workers import WorkerRow
from tasks.errors import StorageFullError, StoreError
from tasks.requests.request_table import PARTITION, TABLE, RequestTable
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.schema import SCHEMA
from tasks.storage.store import Replace
from tests.portal.scripted import LivePortal, event_of, live_portal, part, set_row, settings
from tests.portal.submissions import DOCUMENT, submitted

LONG = 50.0  # more than a lease and a half
NOTICE = "No service manager is at work"
PAGES = ("/", "/new", "/operations", "/docs", "/requests/{}", "/nowhere", "/service-notice")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock: ManualClock) -> Runtime:
    return memory_runtime(clock)


@pytest.fixture
def portal(runtime: Runtime) -> Iterator[LivePortal]:
    with live_portal(runtime, settings()) as running:
        yield running


def test_health_is_503_with_the_reason_while_no_manager_acts(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    with portal.client() as client:
        del client.headers["Authorization"]
        assert client.get("/healthz").json()["status"] == "ok"
        clock.sleep(LONG)
        answer = client.get("/healthz")
        assert answer.status_code == 503
        assert answer.json()["status"] == "no manager acts"
        assert "50 s; none has acted here before" in answer.json()["reason"]
        assert "logs/manager.log" in answer.json()["remedy"]
        assert client.get("/livez").json()["status"] == "ok"

        assert Leadership(runtime, 30.0).acquire()
        clock.sleep(3.0)
        assert client.get("/healthz").json() == {
            "status": "ok",
            "version": client.get("/livez").json()["version"],
            "reason": "",
            "remedy": "",
        }


def test_liveness_asks_neither_storage_nor_manager(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StoreError("gone")

    monkeypatch.setattr(runtime.store, "get", broken)
    with portal.client() as client:
        assert client.get("/healthz").status_code == 503
        assert client.get("/livez").status_code == 200


@pytest.mark.parametrize("role", ["scientist", "operator"])
def test_every_page_tells_it_and_stops_when_a_manager_acts(
    portal: LivePortal, runtime: Runtime, clock: ManualClock, role: str
) -> None:
    name = submitted(runtime)
    leader = Leadership(runtime, 30.0)
    assert leader.acquire()
    paths = [path.format(name) for path in PAGES if role == "operator" or path != "/operations"]
    with portal.browser(role=role) as client:
        for path in paths:
            assert NOTICE not in client.get(path).text, path
        clock.sleep(LONG)
        for path in paths:
            assert NOTICE in client.get(path).text, path
        told = part(client, "/service-notice")
        assert ("swathmill doctor" in told) == (role == "operator")
        leader.renew()
        clock.sleep(3.0)
        for path in paths:
            assert NOTICE not in client.get(path).text, path
        assert part(client, "/service-notice").strip() == ""


def test_each_page_asks_again_by_itself(portal: LivePortal) -> None:
    with portal.browser() as client:
        page = client.get("/").text
    assert re.search(r'id="service-notice" role="status" hx-get="/service-notice" hx-trigger', page)


def test_the_notice_says_the_same_each_time(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    assert Leadership(runtime, 30.0).acquire()
    with portal.browser() as client:
        client.get("/")
        told = set()
        for _ in range(3):
            clock.sleep(LONG)
            told.add(part(client, "/service-notice"))
    assert len(told) == 1
    assert "The last one is silent." in told.pop()


def test_what_a_waiting_request_says_of_itself_is_true(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    name = submitted(runtime)
    with portal.browser() as client:
        assert "It waits for its turn to be planned." in client.get(f"/requests/{name}").text
        clock.sleep(LONG)
        for state in (RequestState.SUBMITTED, RequestState.PLANNING):
            set_row(runtime, name, state=state)
            whole = client.get(f"/requests/{name}").text
            for page in (whole, event_of(client, name)["html"]):
                assert "It waits for its turn" not in page
                assert "are being searched" not in page
                assert "Not planned yet: no service manager is at work." in page


def test_without_redis_each_page_and_health_say_that_no_work_starts(
    runtime: Runtime, clock: ManualClock
) -> None:
    with live_portal(runtime, settings(redis_url="redis://127.0.0.1:9")) as portal:
        portal.redis.look()
        clock.sleep(14.0)
        with portal.browser(role="operator") as client:
            assert "Message server answers" in part(client, "/operations/live")
            assert client.get("/healthz").status_code == 200
            clock.sleep(6.0)
            answer = client.get("/healthz")
            assert (answer.status_code, answer.json()["status"]) == (
                503,
                "the message server does not answer",
            )
            assert "for 20 s" in answer.json()["reason"]
            assert "Message server is silent" in part(client, "/operations/live")
            assert "logs/redis.log" in part(client, "/service-notice")
        with portal.browser() as client:
            told = client.get("/").text
            assert "No new work starts: the message server does not answer." in told
            assert "logs/redis.log" not in told
        with portal.client() as client:
            assert client.post("/api/requests", json=DOCUMENT).status_code == 202, "it is kept"


def test_operators_see_who_acts(portal: LivePortal, runtime: Runtime, clock: ManualClock) -> None:
    with portal.browser(role="operator") as client:
        assert "None has acted yet" in client.get("/operations").text
        assert Leadership(runtime, 30.0).acquire()
        clock.sleep(3.0)
        assert "number 1 since the first start" in part(client, "/operations/live")
        told = client.get("/api/operations").json()["manager"]
        assert (told["acts"], told["epoch"]) == (True, 1)
        clock.sleep(LONG)
        assert "none acts" in part(client, "/operations/live")
        assert client.get("/api/operations").json()["manager"]["acts"] is False


def test_a_dry_run_does_not_wait_for_nobody(portal: LivePortal, clock: ManualClock) -> None:
    clock.sleep(LONG)
    with portal.client() as client:
        answer = client.post("/api/requests?dry_run=true", json=DOCUMENT)
    assert answer.status_code == 503
    assert "no service manager is at work" in answer.json()["detail"]


def test_a_request_is_kept_until_a_manager_acts(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    clock.sleep(LONG)
    with portal.client() as client:
        assert client.post("/api/requests", json=DOCUMENT).status_code == 202
    assert len(RequestTable(runtime.store).live()) == 1


def test_storage_that_does_not_answer_is_not_called_a_missing_manager(
    portal: LivePortal, runtime: Runtime, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.sleep(LONG)

    def broken(*_: object) -> None:
        raise StoreError("gone")

    monkeypatch.setattr(runtime.store, "get", broken)
    with portal.browser() as client:
        page = client.get("/requests/one").text
    assert "Storage" in page
    assert NOTICE not in page


def test_a_submission_to_a_full_disk_is_told_so(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageFullError("the disk of tables.sqlite is full")

    monkeypatch.setattr(runtime.store, "transact", full)
    with portal.client() as client:
        answer = client.post("/api/requests", json=DOCUMENT)
    assert (answer.status_code, answer.json()["title"]) == (503, "Storage full")
    assert "to make room there" in answer.json()["remedy"]


def test_the_sample_archive_is_told_on_each_page(runtime: Runtime) -> None:
    sample = settings(data_dir="data", archive="data/sample-archive")
    with live_portal(runtime, sample) as running, running.browser() as client:
        assert "synthetic values" in client.get("/").text
    with live_portal(runtime, settings()) as running, running.browser() as client:
        assert "synthetic values" not in client.get("/").text


def test_what_a_newer_build_wrote_is_no_failure_of_the_portal(
    portal: LivePortal, runtime: Runtime
) -> None:
    request = submitted(runtime)
    found = RequestTable(runtime.store).get(f"q|{request}")
    assert found is not None
    newer = Replace(row=found.row, entity={**found.entity, "schema": SCHEMA + 1}, etag=found.etag)
    runtime.store.transact(TABLE, PARTITION, [newer])
    with portal.client() as client:
        answer = client.get(f"/api/requests/{request}")
    assert answer.status_code == 503
    assert "install the newer build" in answer.json()["remedy"]


def test_work_that_waits_without_any_worker_is_said(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    """A full disk had stopped all workers: health was ok, and the request ran at 37%."""
    leadership = Leadership(runtime, 30.0)
    assert leadership.acquire()

    def acts(seconds: float, wanted: int) -> None:
        """The manager renews its lease all the time; the portal is asked at the end."""
        for _ in range(int(seconds / 10)):
            clock.sleep(10.0)
            leadership.wanted_slots = wanted
            leadership.renew()
            client.get("/healthz")

    with portal.client() as client:
        acts(600.0, 0)
        assert client.get("/healthz").json()["status"] == "ok"  # there is no work
        acts(200.0, 3)
        assert client.get("/healthz").status_code == 200  # a fleet takes its time
        acts(200.0, 3)
        answer = client.get("/healthz")
        assert (answer.status_code, answer.json()["status"]) == (503, "no worker is at work")
        assert "logs/stack.log" in answer.json()["remedy"]
        assert "No worker is at work" in part(client, "/service-notice")
        row = WorkerRow(name="w", host="w", slots=1, started=1.0, beat_at=1.0, sequence=1)
        workers.beat(runtime.store, clock, replace(row, unfit="no scratch folder"))
        acts(20.0, 3)
        assert "w: no scratch folder" in client.get("/healthz").json()["reason"]
        assert "no worker's machine can begin" in part(client, "/service-notice")
        workers.beat(runtime.store, clock, row)
        acts(20.0, 3)
        assert client.get("/healthz").json()["status"] == "ok"
        assert "No worker" not in part(client, "/service-notice")


def test_a_row_whose_beats_have_ceased_is_no_worker(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    """The row of a killed worker stays for a day; it kept the service "ok" as long."""
    leadership = Leadership(runtime, 30.0)
    assert leadership.acquire()
    row = WorkerRow(name="w", host="w", slots=1, started=1.0, beat_at=1.0, sequence=1)

    def acts(seconds: float, *, beats: bool = False, wanted: int = 3) -> int:
        """A manager renews its lease, and the worker beats or not; the status of health then."""
        nonlocal row
        for _ in range(int(seconds / 10)):
            clock.sleep(10.0)
            leadership.wanted_slots = wanted
            leadership.renew()
            if beats:
                row = replace(row, sequence=row.sequence + 1)
                workers.beat(runtime.store, clock, row)
            client.get("/healthz")
        return client.get("/healthz").status_code

    with portal.client() as client:
        acts(3600.0, beats=True)
        assert acts(290.0) == 200  # it was killed; a fleet takes its time
        assert acts(30.0) == 503
        assert "no worker gives a sign" in client.get("/healthz").json()["reason"]
        assert "No worker is at work" in part(client, "/service-notice")
        assert acts(20.0, beats=True) == 200
        assert acts(20.0) == 200
        assert acts(3600.0, wanted=0) == 200  # killed again, while there is no work
        assert acts(280.0) == 200  # it has waited for less than a fleet takes
        assert acts(60.0) == 503


def test_what_kept_a_dead_worker_from_beginning_is_not_told(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    leadership = Leadership(runtime, 30.0)
    assert leadership.acquire()
    row = WorkerRow(name="w", host="w", slots=1, started=1.0, beat_at=1.0, sequence=1)
    workers.beat(runtime.store, clock, replace(row, unfit="no scratch folder"))
    with portal.client() as client:
        for _ in range(40):
            clock.sleep(10.0)
            leadership.wanted_slots = 3
            leadership.renew()
            client.get("/healthz")
        assert "no worker gives a sign" in client.get("/healthz").json()["reason"]
