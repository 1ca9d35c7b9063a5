"""The operators' page, and the same by the API."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from portal.operations import board
from portal.operations.board import Board
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.bag.task_table import RowKind, kind_of
from tasks.bag.workers import Hold
from tasks.operators import manager_rows
from tasks.operators.manager_rows import ManagerRow, PlaceQueue
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Row
from tests.portal.scripted import (
    LivePortal,
    put_executions,
    put_running_task,
    put_worker,
    set_row,
)
from tests.portal.submissions import submitted


def test_the_operators_page_shows_what_runs_failed_and_lives(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    now = runtime.clock.now()
    key = put_running_task(runtime, name, "A.hdf", "worker-1")
    today = dt.datetime.fromtimestamp(now, dt.UTC)
    counts = {None: 20, Category.EXECUTION_TIMEOUT: 3}
    put_executions(runtime, today, counts, duration=30.0)
    for worker, ago, draining in (("worker-1", 0, False), ("lost-1", 500, False), ("d", 0, True)):
        put_worker(
            runtime,
            workers.WorkerRow(
                name=worker,
                host="node",
                slots=4,
                started=now - 900,
                beat_at=now - ago,
                draining=draining,
                sandbox="bubblewrap",
            ),
        )
    with portal.browser() as scientist, portal.browser("op@example.org", "operator") as client:
        assert scientist.get("/operations").status_code == 403
        page = client.get("/operations").text
        answer = client.get("/api/operations").json()
    assert f"/tasks/{key}" in page
    assert "execution timeout" in page
    assert "bubblewrap" in page
    for state in ("lost", "draining", "ready"):
        assert re.search(rf'class="state \w+">{state}<', page)
    (running,) = answer["running"]
    assert running["mean"] == pytest.approx(30)
    assert running["bound"] == pytest.approx(120)
    assert answer["executions"]["outcomes"]["execution timeout"][-1] == 3
    assert {w["name"]: w["state"] for w in answer["workers"]}["lost-1"] == "lost"


class Counted(MemoryStore):
    """A store that counts the calls that read."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self.calls += 1
        return super().get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self.calls += 1
        return super().scan(table, partition, start, end, limit)


def test_an_idle_page_reads_little_and_a_busy_one_all_that_changes() -> None:
    clock, store = ManualClock(), Counted()
    runtime = replace(memory_runtime(clock), store=store)
    seen = Board(runtime)

    def calls() -> int:
        store.calls = 0
        seen.look()
        return store.calls

    worker = workers.WorkerRow(name="w", host="node", slots=2, started=1.0, beat_at=clock.now())
    put_worker(runtime, worker)
    beats = len(workers.PARTITIONS)
    assert calls() > 16 + beats
    assert [calls(), calls(), calls()] == [beats + 1] * 3
    clock.sleep(board.IDLE_SECONDS)
    assert [calls(), calls(), calls()] == [beats + 1, beats, beats]  # statistics now and then
    clock.sleep(board.IDLE_SECONDS)
    assert calls() == beats + 1

    name = submitted(runtime)
    key = put_running_task(runtime, name, "A.hdf", "w")
    (marker,) = (row for row in store.tables()["tasks"] if kind_of(row.row) is RowKind.RUNNING)
    attempt = workers.RunningAttempt(
        key=key,
        claim=str(marker.entity["claim"]),
        started_ago=1.0,
        phase=Phase.COLLECTION,
        task_class="collection",
    )
    assert seen.look().running == ()  # until its worker's next beat
    put_worker(runtime, replace(worker, attempts=(attempt,), sequence=1))
    assert [marker.key for marker in seen.look().running] == [key]

    today = dt.datetime.fromtimestamp(clock.now(), dt.UTC)
    put_executions(runtime, today, {None: 6})
    assert calls() > 16 + beats
    assert sum(one.count for one in seen.look().statistics.values()) == 6

    put_running_task(runtime, name, "B.hdf", "a worker that never beat")
    assert len(seen.look().running) == 1
    clock.sleep(board.MARKER_SECONDS)
    assert len(seen.look().running) == 2


def test_an_unfit_worker_says_what_its_self_test_met(portal: LivePortal, runtime: Runtime) -> None:
    now = runtime.clock.now()
    row = workers.WorkerRow(name="w", host="node", slots=2, started=now, beat_at=now)
    put_worker(runtime, replace(row, unfit="scratch cannot be written: <full>"))
    with portal.browser("op@example.org", "operator") as client:
        page = client.get("/operations").text
        (answer,) = client.get("/api/operations").json()["workers"]
    assert "Its self-test fails: scratch cannot be written: &lt;full&gt;." in page
    assert (answer["state"], answer["unfit_because"]) == (
        "unfit",
        "scratch cannot be written: <full>",
    )


def test_a_failing_host_says_why_and_can_be_released(portal: LivePortal, runtime: Runtime) -> None:
    now = runtime.clock.now()
    row = workers.WorkerRow(name="w", host="node", slots=2, started=now, beat_at=now)
    put_worker(runtime, row)
    why = "6 tasks failed on node one after another."
    workers.order_hold(
        runtime.store,
        runtime.clock,
        "w",
        now,
        Hold.DRAINED,
        why=why,
        wait=600.0,
        failing=True,
    )
    workers.beat(runtime.store, runtime.clock, replace(row, sequence=2))  # it keeps what it is told
    with portal.browser("op@example.org", "operator") as client:
        page = client.get("/operations").text
        (answer,) = client.get("/api/operations").json()["workers"]
    assert "Everything fails on its host: its workers take no new attempts." in page
    assert why in page
    assert 'id="release-w"' in page
    assert (answer["state"], answer["held_because"]) == ("failing", why)


def test_a_drained_worker_says_why_since_when_and_until_when(
    portal: LivePortal, runtime: Runtime
) -> None:
    now = runtime.clock.now()
    why = "Its attempts take about 4.2 times as long as usual. mosaic: 42 s, usually 10 s."
    started = now - 900
    put_worker(
        runtime,
        workers.WorkerRow(name="worker-2", host="node", slots=2, started=started, beat_at=now),
    )
    workers.order_hold(
        runtime.store, runtime.clock, "worker-2", started, Hold.DRAINED, why=why, wait=600.0
    )
    with portal.browser("op@example.org", "operator") as client:
        page = client.get("/operations").text
        (answer,) = client.get("/api/operations").json()["workers"]
    assert "It was slow, and takes no new attempts." in page
    assert why in page
    assert re.search(r"Since <time[^>]*>.*Next try: <time", page)
    assert (answer["state"], answer["held_because"]) == ("drained", why)
    since, until = (dt.datetime.fromisoformat(answer[k]) for k in ("held_since", "next_try"))
    assert since.timestamp() == pytest.approx(now, abs=5)
    assert until.timestamp() == pytest.approx(now + 600, abs=5)

    workers.order_hold(runtime.store, runtime.clock, "worker-2", started, Hold.NONE, why=why)
    with portal.browser("op@example.org", "operator") as client:
        page = client.get("/operations").text
        act = client.get("/operations/act?action=release+worker&subject=worker-2").text
        (answer,) = client.get("/api/operations").json()["workers"]
    assert "It takes new attempts while more tasks wait than all other workers" in page
    assert "takes no new attempts" not in page
    assert why in page
    assert 'id="release-worker-2"' in page
    assert "It was slow, and takes attempts while too few others do" in act
    assert (answer["state"], answer["held_because"]) == ("needed", why)


def test_work_whose_place_has_no_worker_says_so_on_its_page_and_to_operators(
    portal: LivePortal, runtime: Runtime
) -> None:
    name, other = submitted(runtime), submitted(runtime)
    for request in (name, other):
        set_row(runtime, request, state=RequestState.RUNNING)
    now = runtime.clock.now()
    waits = PlaceQueue(place="gpu", wanted_slots=3, ready=4, requests=(name,))
    places = (PlaceQueue(place="", workers=1, slots=2, running=1), waits)
    row = ManagerRow(
        name="m", host="h", version="1", started=now, beat_at=now, acts=True, places=places
    )
    manager_rows.put(runtime.store, row)
    put_worker(
        runtime,
        workers.WorkerRow(name="w", host="node", slots=2, started=now, beat_at=now, place="big"),
    )
    said = "waits for a worker of place gpu: none has been here since the manager began to act."
    with portal.browser() as scientist, portal.browser("op@example.org", "operator") as client:
        page, answer = client.get("/operations").text, client.get("/api/operations").json()
        assert f"Some of its work {said}" in scientist.get(f"/requests/{name}").text
        assert "place gpu" not in scientist.get(f"/requests/{other}").text
    assert "4 tasks wait for a worker of place gpu" in page
    assert f"W{said[1:]}" in page
    assert "node, place big" in page
    here, gpu = answer["places"]
    assert (here["place"], here["slots"], here["waits_because"]) == ("", 2, "")
    assert (gpu["place"], gpu["wanted_slots"], gpu["waits_because"]) == ("gpu", 3, said[:-1])
    assert [one["place"] for one in answer["workers"]] == ["big"]
