"""The supervisor's decisions, on the in-memory store and with children that only pretend."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tasks.bag import (
    protocol,
    task_table,
    transitions,
    workers,
)
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, Phase, RunUse, State
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, GroupSpec, ReduceSpec
from tasks.bag.task_table import TaskTable
from tasks.bag.workers import Hold, WorkerRow
from tasks.errors import StoreError
from tasks.messages.wakeups import LOOK
from tasks.service import tracing
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Operation, Row
from tests.waiting import until
from tests.worker.world import REQUEST, World
from worker.files.scratch import Scratch
from worker.sandbox.children import AttemptProcess
from worker.sandbox.messages import (
    Begun,
    Ended,
    Failed,
    Job,
    Message,
    Postponed,
    Progress,
    Succeeded,
)
from worker.slots.heartbeat import Heartbeat
from worker.slots.supervisor import AttemptOrder, EndedAttempt, RunningProcess, Supervisor

FILE = ArtifactFile(name="g.hdf", blob="granules/k/c/g.hdf", size=3, sha256="0" * 64)
SPEC = CollectSpec(product="MOD", collection="61", granule="g.hdf", production="1")


@dataclass(kw_only=True)
class Pretended(AttemptProcess):
    """A child that says what it is told to say, and hangs until killed where it is told to."""

    messages: Sequence[Message] = (Begun(),)
    ended: Ended | None = field(
        default_factory=lambda: Ended(exit_code=0, peak_memory=7, over_memory=False, log="said")
    )
    hangs: bool = False
    began: threading.Event = field(default_factory=threading.Event)
    killed: threading.Event = field(default_factory=threading.Event)

    def follow(self, heard: Callable[[Message], None]) -> Ended | None:
        for message in self.messages:
            heard(message)
        self.began.set()
        if self.hangs:
            assert self.killed.wait(10)
            return Ended(exit_code=None, peak_memory=7, over_memory=False, log="said")
        return self.ended

    def kill(self) -> None:
        self.killed.set()


class Unsteady(MemoryStore):
    """A store whose next writes fail, with or without having taken effect."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[str] = []

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        failure = self.failures.pop() if self.failures else ""
        if failure == "lost answer":
            super().transact(table, partition, operations)
        if failure:
            raise StoreError(failure)
        return super().transact(table, partition, operations)


@dataclass(kw_only=True)
class Bench:
    """A supervisor over a world in memory, and what its children will pretend."""

    world: World
    supervisor: Supervisor
    child: Pretended
    jobs: list[Job]

    def attempt(self) -> str:
        key = self.world.plan(SPEC)
        self.supervisor.execute([key])
        return key

    def in_background(self) -> tuple[str, threading.Thread]:
        key = self.world.plan(SPEC)
        thread = threading.Thread(target=self.supervisor.execute, args=([key],))
        thread.start()
        assert self.child.began.wait(10)
        return key, thread


@pytest.fixture
def store() -> Unsteady:
    return Unsteady()


@pytest.fixture
def bench(tmp_path: Path, store: Unsteady) -> Iterator[Bench]:
    base = memory_runtime(ManualClock())
    base.clock.sleep(1000.0)  # no time is measured from 0
    runtime = Runtime(
        store=store, blobs=base.blobs, queue=base.queue, wakeups=base.wakeups, clock=base.clock
    )
    child, jobs = Pretended(messages=[Succeeded(files=(FILE,))]), list[Job]()
    scratch = Scratch(tmp_path, "w")

    def start(job: Job) -> Pretended:
        assert job.scratch.is_dir()
        jobs.append(job)
        return made.child

    supervisor = Supervisor(
        runtime=runtime,
        settings=Settings(data_dir=tmp_path),
        name="w",
        scratch=scratch,
        start=start,
    )
    supervisor.lease.renew(runtime.clock.monotonic())
    made = Bench(world=World(runtime=runtime), supervisor=supervisor, child=child, jobs=jobs)
    yield made
    scratch.close()


def test_a_success_is_committed_with_what_was_measured(bench: Bench) -> None:
    key = bench.attempt()
    task = bench.world.task(key)
    assert (task.state, task.files) == (State.DONE, (FILE,))
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert (attempt.log, attempt.peak_memory, attempt.category) == ("said", 7, None)
    assert bench.jobs[0].claim == attempt.claim
    assert not bench.jobs[0].scratch.exists()
    assert bench.supervisor.running() == ()


def test_a_stale_or_doubled_message_starts_nothing(bench: Bench) -> None:
    key = bench.attempt()
    bench.supervisor.execute([key])
    bench.supervisor.execute(["f" * 64])
    assert len(bench.jobs) == 1


def test_a_failure_keeps_its_category_delay_and_log(bench: Bench) -> None:
    bench.child.messages = [Failed(category=Category.SERVER_BUSY, message="slow down", asked=500.0)]
    key = bench.attempt()
    task = bench.world.task(key)
    assert task.state is State.READY
    assert task.not_before >= bench.world.runtime.clock.now() + 500
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert (attempt.category, attempt.message) == (Category.SERVER_BUSY, "slow down")


@pytest.mark.parametrize(
    ("ended", "category"),
    [
        (Ended(exit_code=None, peak_memory=9, over_memory=True, log=""), Category.OUT_OF_MEMORY),
        (Ended(exit_code=-9, peak_memory=9, over_memory=False, log=""), Category.OUT_OF_MEMORY),
        (Ended(exit_code=70, peak_memory=9, over_memory=False, log=""), Category.UNKNOWN),
        (None, Category.WORKER_LOST),
    ],
)
def test_an_end_without_a_report(bench: Bench, ended: Ended | None, category: Category) -> None:
    bench.child.messages, bench.child.ended = [Begun()], ended
    key = bench.attempt()
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert attempt.category is category


def test_a_disk_without_room_for_a_beginning_costs_its_task_no_try(bench: Bench) -> None:
    def start(job: Job) -> Pretended:
        raise OSError(28, "No space left on device", str(job.scratch))

    bench.supervisor.start = start
    key = bench.attempt()
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert attempt.category is Category.DISK_SHARED
    task = bench.world.task(key)
    assert (task.state, task.retries, task.losses) == (State.READY, 0, 1)
    assert task.not_before > 0


def test_progress_is_shown(bench: Bench) -> None:
    bench.child.hangs = True
    bench.child.messages = [Progress(fraction=0.25, note="fetching")]
    key, thread = bench.in_background()
    (running,) = bench.supervisor.running()
    assert (running.key, running.progress, running.note) == (key, 0.25, "fetching")
    bench.supervisor.kill(running.claim, AttemptOrder.KILL)
    thread.join(10)


def test_an_ordered_kill_is_an_execution_timeout(bench: Bench) -> None:
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    bench.supervisor.kill(bench.world.task(key).claim, AttemptOrder.KILL)
    thread.join(10)
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert attempt.category is Category.EXECUTION_TIMEOUT


def test_a_kill_of_what_nobody_wants_changes_nothing(bench: Bench) -> None:
    told: list[EndedAttempt] = []
    bench.supervisor.heard = told.append
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    claim = bench.world.task(key).claim
    protocol.change_task(bench.world.runtime, key, lambda task: transitions.drop(task, REQUEST))
    bench.supervisor.kill(claim, AttemptOrder.KILL)
    thread.join(10)
    assert bench.world.task(key).state is State.CANCELLED
    assert bench.world.runtime.tasks.attempts(key) == []
    assert [one.outcome for one in told] == [Category.CANCELLED.value]


def test_a_success_that_crossed_a_kill_order_counts(bench: Bench) -> None:
    bench.child.hangs = True
    key, thread = bench.in_background()
    bench.supervisor.kill(bench.world.task(key).claim, AttemptOrder.KILL)
    thread.join(10)
    assert bench.world.task(key).state is State.DONE


def test_handing_back_spends_no_budget(bench: Bench) -> None:
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    bench.supervisor.draining = True
    bench.supervisor.kill_all(AttemptOrder.HAND_BACK)
    thread.join(10)
    task = bench.world.task(key)
    assert (task.state, task.not_before, task.retries) == (State.READY, 0.0, 0)
    bench.supervisor.execute([key])
    assert len(bench.jobs) == 1


@pytest.mark.parametrize("failure", ["refused", "lost answer"])
def test_an_attempt_is_settled_once_when_the_table_comes_back(
    bench: Bench, store: Unsteady, failure: str
) -> None:
    bench.child.hangs = True
    key, thread = bench.in_background()
    store.failures = [failure] * 20
    bench.child.kill()
    thread.join(20)
    assert bench.world.task(key).state is State.DONE
    assert len(TaskTable(store).attempts(key)) == 1


def heartbeat(bench: Bench) -> Heartbeat:
    now = bench.world.runtime.clock.now()
    row = WorkerRow(name="w", host="h", slots=1, started=now, beat_at=now)
    return Heartbeat(
        runtime=bench.world.runtime,
        supervisor=bench.supervisor,
        row=row,
        every=5.0,
    )


def test_a_task_without_room_goes_back_and_costs_it_nothing(bench: Bench) -> None:
    bench.child.messages = [Postponed(message="its machine has no room")]
    key = bench.attempt()
    task = bench.world.task(key)
    assert (task.state, task.claim, task.retries, task.category) == (State.READY, "", 0, None)
    assert not bench.world.runtime.tasks.attempts(key)
    (event,) = bench.world.runtime.tasks.events(key[0], 10)
    assert (event.number, event.message) == (0, "its machine has no room")
    bench.child.messages = [Succeeded(files=(FILE,))]
    bench.supervisor.execute([key])
    assert bench.world.task(key).state is State.DONE


LACKS = Postponed(message="no sandbox here", tier="limits")


def sandbox_of(bench: Bench, name: str, line: str, place: str = "") -> None:
    """Have a worker of another host beat."""
    now = bench.world.runtime.clock.now()
    row = WorkerRow(
        name=name, host=f"host of {name}", slots=1, started=now, beat_at=now, place=place
    )
    runtime = bench.world.runtime
    workers.beat(runtime.store, runtime.clock, replace(row, sandbox=line))


def test_a_package_that_only_others_can_run_goes_back_and_says_so(bench: Bench) -> None:
    heartbeat(bench).beat()
    sandbox_of(bench, "other", "bubblewrap: no network")
    bench.child.messages = [LACKS]
    key = bench.attempt()
    assert bench.world.task(key).state is State.READY
    assert not bench.world.runtime.tasks.attempts(key)
    (event,) = bench.world.runtime.tasks.events(key[0], 10)
    assert (event.worker, event.message) == ("w", "not here: no sandbox here")


@pytest.mark.parametrize(
    ("line", "place", "tier"),
    [
        ("none: bwrap is absent; granules apart", "", "limits"),
        ("bubblewrap: no network", "gpu", "limits"),
        ("limits: no network", "", "bubblewrap"),
        ("", "", "limits"),
    ],
)
def test_a_package_that_nobody_can_run_is_refused_at_once(
    bench: Bench, line: str, place: str, tier: str
) -> None:
    heartbeat(bench).beat()
    sandbox_of(bench, "other", line, place)
    bench.child.messages = [Postponed(message="no sandbox here", tier=tier)]
    key = bench.attempt()
    task = bench.world.task(key)
    assert (task.state, task.category) == (State.FAILED, Category.CHOICE_REFUSED)
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert attempt.message == "no sandbox here"


def test_a_pool_runs_packages_for_a_worker_without_a_sandbox(bench: Bench) -> None:
    heartbeat(bench).beat()
    sandbox_of(bench, "other", "reduction pool 10.0.0.9:7070; granules apart")
    bench.child.messages = [LACKS]
    assert bench.world.task(bench.attempt()).state is State.READY


def test_a_beat_lists_attempts_and_brings_orders(bench: Bench) -> None:
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    beating, runtime = heartbeat(bench), bench.world.runtime
    beating.beat()
    claim = bench.world.task(key).claim
    (row,) = workers.list_workers(runtime.store)
    assert [attempt.claim for attempt in row.attempts] == [claim]
    assert workers.order_kill(runtime.store, runtime.clock, "w", claim)
    beating.beat()
    thread.join(10)
    assert bench.child.killed.is_set()
    beating.beat()
    (row,) = workers.list_workers(runtime.store)
    assert (row.attempts, row.orders, row.sequence) == ((), (), 3)
    beating.stop()
    assert workers.list_workers(runtime.store) == []


def test_a_beat_reads_its_row_only_when_somebody_else_changed_it(
    bench: Bench, store: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = store.get

    def get(table: str, partition: str, row: str) -> Row | None:
        read.append(row)
        return original(table, partition, row)

    monkeypatch.setattr(store, "get", get)
    beating = heartbeat(bench)
    for _ in range(3):
        beating.beat()
    assert read == ["w"], "the first one only"
    workers.order_hold(store, bench.world.runtime.clock, "w", beating.row.started, Hold.DRAINED)
    read.clear()
    beating.beat()
    assert (read, bench.supervisor.hold) == (["w"], Hold.DRAINED)


def test_a_lease_without_a_beat_ends_all_attempts(bench: Bench, store: Unsteady) -> None:
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    beating = heartbeat(bench)
    beating.beat()
    bench.world.runtime.clock.sleep(29)
    beating.check_lease()
    assert not bench.child.killed.is_set()
    store.failures = ["refused"] * 8
    with pytest.raises(StoreError):
        beating.beat()
    bench.world.runtime.clock.sleep(2)
    beating.check_lease()
    assert bench.child.killed.is_set()
    thread.join(10)
    until(lambda: bool(TaskTable(store).attempts(key)), 5)
    (attempt,) = TaskTable(store).attempts(key)
    assert attempt.category is Category.WORKER_LOST


def test_without_a_fresh_lease_nothing_is_claimed_and_nothing_begins(
    bench: Bench, store: Unsteady
) -> None:
    """Its beats fail and its claims would succeed: what it took would be rejected soon."""
    beating, clock = heartbeat(bench), bench.world.runtime.clock
    beating.beat()
    clock.sleep(22)
    assert bench.supervisor.takes()
    clock.sleep(1)
    key = bench.attempt()
    assert (bench.world.task(key).state, bench.jobs) == (State.READY, [])
    store.failures = ["refused"] * 20
    with pytest.raises(StoreError):
        beating.beat()
    assert not bench.supervisor.takes()
    store.failures = []
    beating.beat()
    bench.supervisor.execute([key])
    assert bench.world.task(key).state is State.DONE


def test_what_waits_in_a_batch_is_given_back_when_the_lease_is_not_fresh(bench: Bench) -> None:
    bench.child.hangs = True
    keys = [
        bench.world.plan(SPEC.model_copy(update={"granule": f"{number}.hdf"}))
        for number in range(40)
    ]
    mates = [key for key in keys if key[0] == keys[0][0]][:3]
    assert len(mates) > 1
    thread = threading.Thread(target=bench.supervisor.execute, args=(mates,))
    thread.start()
    assert bench.child.began.wait(10)
    bench.supervisor.lease.seconds = 8.0
    bench.world.runtime.clock.sleep(7)
    bench.supervisor.tend()
    assert [bench.world.task(key).state for key in mates[1:]] == [State.READY] * (len(mates) - 1)
    bench.child.kill()
    thread.join(10)
    assert len(bench.jobs) == 1


def test_a_beat_is_dated_by_its_begin_and_is_not_tried_for_longer_than_half_a_lease(
    bench: Bench, store: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    beating, clock = heartbeat(bench), bench.world.runtime.clock
    tries: list[float] = []
    found, written = store.get, store.transact

    def slow_get(table: str, partition: str, row: str) -> Row | None:
        clock.sleep(4)
        tries.append(clock.monotonic())
        return found(table, partition, row)

    monkeypatch.setattr(store, "get", slow_get)
    began = clock.monotonic()
    beating.beat()
    assert bench.supervisor.lease.silence == clock.monotonic() - began == 4
    store.failures = ["refused"] * 20
    tries.clear()
    with pytest.raises(StoreError):
        beating.beat()
    assert len(tries) == 4
    assert store.transact == written


def test_a_beat_that_hangs_does_not_stop_the_next(
    bench: Bench, store: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.supervisor.lease.seconds = 0.2
    beating, answer, tries = heartbeat(bench), threading.Event(), list[int]()
    beating.every = 0.05
    written = store.transact

    def hangs(table: str, partition: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        if table == workers.TABLE:
            tries.append(1)
            assert len(tries) != 2 or answer.wait(10)
        return written(table, partition, operations)

    monkeypatch.setattr(store, "transact", hangs)
    beating.start()
    assert LOOK in bench.world.runtime.wakeups.drain()  # a manager may know of no worker
    try:
        until(lambda: workers.list_workers(store)[0].sequence > 3, 5)
    finally:
        answer.set()
        beating.stop()


def test_a_beat_under_way_does_not_write_the_row_again_that_the_worker_deleted(
    bench: Bench, store: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    beating, written = heartbeat(bench), store.transact
    beating.beat()
    stops = [beating.stop]

    def late(table: str, partition: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        if stops:
            stops.pop()()  # between the beat's reading and its write
        return written(table, partition, operations)

    monkeypatch.setattr(store, "transact", late)
    beating.beat()
    assert workers.list_workers(store) == []


def test_a_hold_is_read_with_the_beat_and_obeyed(bench: Bench) -> None:
    beating, runtime = heartbeat(bench), bench.world.runtime
    beating.beat()
    (row,) = workers.list_workers(runtime.store)
    assert bench.supervisor.takes()
    workers.order_hold(runtime.store, runtime.clock, "w", row.started, Hold.DRAINED)
    beating.beat()
    assert not bench.supervisor.takes()
    workers.order_hold(runtime.store, runtime.clock, "w", row.started, Hold.PROBE)
    beating.beat()
    assert bench.supervisor.takes()
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    assert not bench.supervisor.takes()
    beating.beat()
    workers.order_move(runtime.store, runtime.clock, "w", bench.world.task(key).claim)
    beating.beat()
    thread.join(10)
    (attempt,) = runtime.tasks.attempts(key)
    assert (attempt.category, bench.world.task(key).state) == (Category.CANCELLED, State.READY)
    workers.order_hold(runtime.store, runtime.clock, "w", row.started - 1, Hold.DRAINED)
    beating.beat()
    assert bench.supervisor.takes()


def test_a_worker_told_to_leave_takes_no_more_and_ends_what_it_runs(bench: Bench) -> None:
    beating, runtime = heartbeat(bench), bench.world.runtime
    beating.beat()
    (row,) = workers.list_workers(runtime.store)
    bench.child.hangs = True
    key, thread = bench.in_background()
    workers.order_leave(runtime.store, runtime.clock, "w", row.started)
    beating.beat()
    assert bench.supervisor.leaving
    assert not bench.supervisor.takes()
    assert bench.supervisor.busy()
    beating.beat()
    assert not runtime.tasks.attempts(key), "its attempt goes on"
    bench.supervisor.kill_all(AttemptOrder.HAND_BACK)
    thread.join(10)


def test_a_worker_does_not_inherit_the_end_of_a_dead_namesake(bench: Bench) -> None:
    runtime = bench.world.runtime
    dead = WorkerRow(name="w", host="h", slots=1, started=1.0, beat_at=1.0, draining=True)
    workers.beat(runtime.store, runtime.clock, dead)
    heartbeat(bench).beat()
    (row,) = workers.list_workers(runtime.store)
    assert not row.draining


# --- batches ---


def batch_of(bench: Bench, number: int) -> list[str]:
    specs = [SPEC.model_copy(update={"granule": f"g.A2012001.{i:02d}"}) for i in range(number)]
    return sorted(bench.world.plan(spec) for spec in specs)


def by_turn(bench: Bench, *children: Pretended) -> None:
    """Give each task of a batch a child of its own; the last one serves all others, too."""
    left = list(children)

    def start(job: Job) -> Pretended:
        bench.jobs.append(job)
        return left.pop(0) if len(left) > 1 else left[0]

    bench.supervisor.start = start


def well() -> Pretended:
    return Pretended(messages=[Succeeded(files=(FILE,))])


def hanging() -> Pretended:
    return Pretended(hangs=True)


def in_background(bench: Bench, keys: Sequence[str], hangs: Pretended) -> threading.Thread:
    thread = threading.Thread(target=bench.supervisor.execute, args=(keys,))
    thread.start()
    assert hangs.began.wait(10)
    return thread


def states(bench: Bench, keys: Sequence[str]) -> list[State]:
    return [bench.world.task(key).state for key in keys]


def test_a_batch_is_run_task_by_task_and_each_has_its_attempt(bench: Bench) -> None:
    keys = batch_of(bench, 5)
    bench.supervisor.execute(keys)
    assert [job.key for job in bench.jobs] == keys
    assert states(bench, keys) == [State.DONE] * 5
    assert all(len(bench.world.runtime.tasks.attempts(key)) == 1 for key in keys)
    assert not bench.supervisor.busy()


def test_a_killed_child_in_a_batch_of_20_charges_one_task(bench: Bench) -> None:
    keys = batch_of(bench, 20)
    killed = Pretended(ended=Ended(exit_code=-9, peak_memory=1, over_memory=False, log=""))
    by_turn(bench, well(), well(), killed, well())
    bench.supervisor.execute(keys)
    assert states(bench, keys) == [State.DONE] * 2 + [State.READY] + [State.DONE] * 17
    assert [bench.world.task(key).retries for key in keys] == [0] * 2 + [1] + [0] * 17
    (attempt,) = bench.world.runtime.tasks.attempts(keys[2])
    assert attempt.category is Category.OUT_OF_MEMORY


def test_a_damaged_input_of_one_task_costs_the_others_nothing(bench: Bench) -> None:
    keys = batch_of(bench, 3)
    damaged = Failed(category=Category.CORRUPT_BLOB_READ, message="damaged", healing=1)
    by_turn(bench, well(), Pretended(messages=[damaged]), well())
    bench.supervisor.execute(keys)
    assert states(bench, keys) == [State.DONE, State.WAITING, State.DONE]


def test_an_attempt_whose_input_is_absent_fails_without_a_child(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a claim returns it when storage did not take its end."""
    claim = protocol.claim_batch

    def claimed(*given: Any) -> list[protocol.Claimed]:
        first, *others = claim(*given)
        return [replace(first, absent=1), *others]

    monkeypatch.setattr(protocol, "claim_batch", claimed)
    keys = batch_of(bench, 2)
    bench.supervisor.execute(keys)
    assert states(bench, keys) == [State.WAITING, State.DONE]
    (attempt,) = bench.world.runtime.tasks.attempts(keys[0])
    said = (attempt.category, attempt.message)
    assert said == (Category.SOURCE_BLOB_MISSING, protocol.INPUT_ABSENT)
    assert len(bench.jobs) == 1


def test_what_is_in_hand_is_told_apart_from_what_waits(bench: Bench) -> None:
    keys, hangs = batch_of(bench, 3), hanging()
    by_turn(bench, well(), hangs, well())
    thread = in_background(bench, keys, hangs)
    beating = heartbeat(bench)
    beating.beat()
    (row,) = workers.list_workers(bench.world.runtime.store)
    assert [one.key for one in row.attempts] == [keys[1]]
    assert {*row.waiting} == {bench.world.task(keys[0]).claim, bench.world.task(keys[2]).claim}
    bench.supervisor.kill(row.attempts[0].claim, AttemptOrder.KILL)
    thread.join(10)
    assert states(bench, keys) == [State.DONE, State.READY, State.DONE]


def test_an_end_is_written_soon_although_the_next_task_takes_long(bench: Bench) -> None:
    keys, hangs = batch_of(bench, 2), hanging()
    by_turn(bench, well(), hangs)
    thread = in_background(bench, keys, hangs)
    assert states(bench, keys) == [State.RUNNING] * 2
    bench.supervisor.tend()
    assert states(bench, keys) == [State.RUNNING] * 2  # it waits for others a little
    bench.world.runtime.clock.sleep(2.0)
    bench.supervisor.tend()
    assert states(bench, keys) == [State.DONE, State.RUNNING]
    bench.supervisor.kill_all(AttemptOrder.HAND_BACK)
    thread.join(10)


def test_a_batch_that_takes_long_gives_back_what_it_has_not_begun(bench: Bench) -> None:
    keys, hangs = batch_of(bench, 3), hanging()
    by_turn(bench, hangs)
    thread = in_background(bench, keys, hangs)
    bench.supervisor.tend()
    assert states(bench, keys) == [State.RUNNING] * 3
    bench.world.runtime.clock.sleep(11.0)
    bench.supervisor.tend()
    assert states(bench, keys) == [State.RUNNING, State.READY, State.READY]
    assert [bench.world.task(key).retries for key in keys] == [0, 0, 0]
    bench.supervisor.kill_all(AttemptOrder.HAND_BACK)
    thread.join(10)


@pytest.mark.parametrize("stopped", ["draining", "held", "probed", "killed"])
def test_a_worker_that_stops_gives_back_what_waits_without_a_charge(
    bench: Bench, stopped: str
) -> None:
    keys, hangs = batch_of(bench, 4), hanging()
    by_turn(bench, well(), hangs, well())
    thread = in_background(bench, keys, hangs)
    if stopped == "draining":
        bench.supervisor.draining = True
        bench.supervisor.tend()
        assert states(bench, keys)[2:] == [State.READY] * 2
    elif stopped != "killed":
        bench.supervisor.hold = Hold.DRAINED if stopped == "held" else Hold.PROBE
    bench.supervisor.kill_all(AttemptOrder.HAND_BACK)
    thread.join(10)
    assert states(bench, keys) == [State.DONE] + [State.READY] * 3
    assert [bench.world.task(key).retries for key in keys] == [0] * 4
    assert [len(bench.world.runtime.tasks.attempts(key)) for key in keys] == [1, 1, 0, 0]
    assert len(bench.jobs) == 2


def test_a_probe_runs_one_task_of_a_batch(bench: Bench) -> None:
    keys = batch_of(bench, 3)
    bench.supervisor.hold = Hold.PROBE
    bench.supervisor.execute(keys)
    assert states(bench, keys) == [State.DONE, State.READY, State.READY]


def test_a_waiting_task_that_nobody_wants_any_more_is_not_begun(bench: Bench) -> None:
    keys, hangs = batch_of(bench, 3), hanging()
    by_turn(bench, hangs, well())
    thread = in_background(bench, keys, hangs)
    runtime = bench.world.runtime
    beating = heartbeat(bench)
    beating.beat()
    claim = bench.world.task(keys[1]).claim
    protocol.change_task(runtime, keys[1], lambda task: transitions.drop(task, REQUEST))
    workers.order_kill(runtime.store, runtime.clock, "w", claim)
    beating.beat()
    bench.supervisor.kill(bench.world.task(keys[0]).claim, AttemptOrder.KILL)
    thread.join(10)
    assert [job.key for job in bench.jobs] == [keys[0], keys[2]]
    assert states(bench, keys) == [State.READY, State.CANCELLED, State.DONE]


def test_more_files_than_a_row_can_name_fail_the_attempt(bench: Bench) -> None:
    many = tuple(replace(FILE, name=f"{i}.tif") for i in range(2000))
    bench.child.messages = [Succeeded(files=many)]
    key = bench.attempt()
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert (attempt.category, "2000 files" in attempt.message) == (Category.UNKNOWN, True)


def test_a_kill_while_the_table_is_away_is_an_execution_timeout(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether somebody still wants the task cannot be asked; the order may be about time."""
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    slot = bench.supervisor._in_hand()[0]

    def away(_key: str) -> None:
        raise StoreError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(TaskTable, "task", lambda _table, key: away(key))
        diagnosis = bench.supervisor._ordered(slot, AttemptOrder.KILL)
    assert diagnosis.category is Category.EXECUTION_TIMEOUT
    bench.child.kill()
    thread.join(10)
    assert bench.world.runtime.tasks.attempts(key)


def test_an_input_that_an_attempt_found_damaged_is_lost(bench: Bench) -> None:
    given = bench.world.done(SPEC, [FILE])
    other = bench.world.done(SPEC.model_copy(update={"granule": "other.hdf"}), [FILE])
    group = GroupSpec(group="g", cell="c", window="all", grid=None, bands=())
    spec = group.model_copy(update={"inputs": (other, given)})
    bench.child.messages = [Failed(category=Category.CORRUPT_BLOB_READ, message="bad", healing=2)]
    key = bench.world.plan(spec)
    bench.supervisor.execute([key])
    assert bench.world.task(given.key).state is State.EXPIRED
    assert bench.world.task(other.key).state is State.DONE
    assert (bench.world.task(key).state, bench.world.task(key).missing) == (State.WAITING, 2)


def test_a_lost_input_is_written_before_the_attempt_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request may end with the attempt; and a worker may die between the two."""
    given = bench.world.done(SPEC, [FILE])
    group = GroupSpec(group="g", cell="c", window="all", grid=None, bands=())
    key = bench.world.plan(group.model_copy(update={"inputs": (given,)}))
    bench.child.messages = [Failed(category=Category.CORRUPT_BLOB_READ, message="bad", healing=1)]
    at_ends: list[State] = []
    end_batch = protocol.end_batch

    def ended(*words: Any) -> list[bool]:
        at_ends.append(bench.world.task(given.key).state)
        return end_batch(*words)

    def away(*_: object, **__: object) -> None:
        monkeypatch.setattr(protocol, "lose", lose)
        assert bench.world.task(key).state is State.RUNNING
        raise StoreError("away")

    lose = protocol.lose
    monkeypatch.setattr(protocol, "lose", away)
    monkeypatch.setattr(protocol, "end_batch", ended)
    bench.supervisor.execute([key])
    assert at_ends == [State.EXPIRED]
    assert bench.world.task(key).state is State.WAITING


def test_a_batch_whose_claim_outlasts_the_lease_is_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor may have found its claims old before it begins."""
    claim = protocol.claim_batch

    def slow(*words: Any) -> Any:
        claimed = claim(*words)
        bench.world.runtime.clock.sleep(23)
        return claimed

    monkeypatch.setattr(protocol, "claim_batch", slow)
    key = bench.attempt()
    assert bench.jobs == []
    assert bench.world.task(key).state is State.READY


@pytest.mark.parametrize("ended", [[Begun()], [Succeeded(files=(FILE,))]])
def test_the_tier_in_which_granules_were_read_is_in_the_attempts_row(
    bench: Bench, ended: list[Message]
) -> None:
    """Also of an attempt that ended without a word; a run of a package reads none."""
    bench.supervisor.reading = "limits"
    bench.child.messages = ended
    key = bench.attempt()
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert attempt.reading == "limits"
    given = bench.world.done(SPEC.model_copy(update={"granule": "other.hdf"}), [FILE])
    spec = ReduceSpec(
        inputs=(given,), package="p 1", digest="0" * 64, outputs=("a",), parameters={}
    )
    run = bench.world.plan(spec)
    bench.supervisor.execute([run])
    (attempt,) = bench.world.runtime.tasks.attempts(run)
    assert attempt.reading == ""


def test_a_row_of_an_attempt_without_a_tier_is_read(bench: Bench) -> None:
    """As builds wrote it that did not note one; without one nothing is written."""
    key = bench.attempt()
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    entity = task_table.ATTEMPT.dump(attempt)
    assert "reading" not in entity
    row = Row(partition="p", row=f"a|{key}|000001", entity=entity, etag="")
    assert task_table.ATTEMPT.load(row).reading == ""
    noted = task_table.ATTEMPT.dump(replace(attempt, reading="none"))
    assert noted["reading"] == "none"


def test_a_kill_that_comes_before_its_child_is_started_is_not_lost(bench: Bench) -> None:
    bench.child.hangs, bench.child.messages = True, []
    started, go_on = threading.Event(), threading.Event()
    start = bench.supervisor.start

    def slow(job: Job) -> RunningProcess:
        started.set()
        assert go_on.wait(10)
        return start(job)

    bench.supervisor.start = slow
    key = bench.world.plan(SPEC)
    thread = threading.Thread(target=bench.supervisor.execute, args=([key],))
    thread.start()
    assert started.wait(10)
    bench.supervisor.kill(bench.world.task(key).claim, AttemptOrder.MOVE)
    go_on.set()
    thread.join(10)
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert (attempt.category, bench.world.task(key).retries) == (Category.CANCELLED, 0)


def test_a_probe_that_runs_takes_nothing_more(bench: Bench) -> None:
    bench.supervisor.hold = Hold.PROBE
    bench.child.hangs = True
    assert bench.supervisor.takes()
    _, thread = bench.in_background()
    assert not bench.supervisor.takes()
    bench.child.kill()
    thread.join(10)
    assert bench.supervisor.takes()


def test_a_beat_that_was_late_takes_nothing_back(bench: Bench) -> None:
    """Its answer came after that of the next one."""
    lease, clock = bench.supervisor.lease, bench.world.runtime.clock
    clock.sleep(10)
    now = clock.monotonic()
    lease.renew(now)
    lease.renew(now - 5)
    assert lease.silence == 0


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("", "ended, as its machine is slow: handed back"),
        ("op@example.org", "killed by op@example.org: handed back"),
    ],
)
def test_a_worker_obeys_a_move(bench: Bench, by: str, said: str) -> None:
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    runtime = bench.world.runtime
    beating = heartbeat(bench)
    beating.beat()
    claim = bench.world.task(key).claim
    assert workers.order_move(runtime.store, runtime.clock, "w", claim, by)
    beating.beat()
    thread.join(10)
    (attempt,) = runtime.tasks.attempts(key)
    assert (attempt.category, bench.world.task(key).retries) == (Category.CANCELLED, 0)
    assert attempt.message == said


def test_an_end_that_comes_while_others_are_written_is_written_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = batch_of(bench, 2)
    second = Pretended(messages=[Succeeded(files=(FILE,))], hangs=True)
    by_turn(bench, well(), second)
    thread = in_background(bench, keys, second)
    supervisor, runtime = bench.supervisor, bench.world.runtime
    (batch,) = supervisor._batches
    original = protocol.end_batch

    def end_batch(*given: object) -> list[bool]:
        monkeypatch.setattr(protocol, "end_batch", original)
        second.kill()
        until(lambda: len(batch.ended) == 2, 10)
        return original(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(protocol, "end_batch", end_batch)
    runtime.clock.sleep(2)
    supervisor.tend()
    thread.join(10)
    assert states(bench, keys) == [State.DONE, State.DONE]


# --- what is recorded of an attempt ---

USED = RunUse(
    seconds=1.0,
    cpu_seconds=2.0,
    written=3,
    cores=4,
    waited=5.0,
    most_seconds=6.0,
    most_written=7,
    most_memory=8,
)


@dataclass(kw_only=True)
class Working(Pretended):
    """A child that takes its time, on the bench's clock."""

    clock: ManualClock
    seconds: float

    def follow(self, heard: Callable[[Message], None]) -> Ended | None:
        self.clock.sleep(self.seconds)
        return super().follow(heard)


def working(bench: Bench, seconds: float, *messages: Message) -> Working:
    clock = bench.world.runtime.clock
    assert isinstance(clock, ManualClock)
    return Working(clock=clock, seconds=seconds, messages=messages)


def test_of_each_attempt_of_a_batch_it_is_told_when_it_ran_and_on_what(bench: Bench) -> None:
    told: list[EndedAttempt] = []
    bench.supervisor.heard = told.append
    now = bench.world.runtime.clock.now()
    keys = batch_of(bench, 2)
    success = Succeeded(files=(FILE,), fetching=2.0, storing=3.0, used=USED)
    failure = Failed(
        category=Category.USER_CODE_FAILED,
        message="it failed",
        fetching=9.0,
        storing=1.0,
        used=USED,
    )
    by_turn(bench, working(bench, 20.0, success), working(bench, 4.0, failure))
    bench.supervisor.execute(keys)
    tasks = bench.world.runtime.tasks
    (first,), (second,) = (tasks.attempts(key) for key in keys)
    assert (first.started, first.ended, first.duration) == (now, now + 20, 20.0)
    assert (second.started, second.ended, second.duration) == (now + 20, now + 24, 4.0)
    assert (first.used, second.used) == (USED, USED)
    assert (first.worker, first.message, bench.world.task(keys[0]).worker) == ("w", "", "w")
    assert (second.message, second.log, second.peak_memory) == ("it failed", "said", 7)
    assert told == [
        EndedAttempt(
            phase=SPEC.phase,
            outcome="success",
            parts={"wait": 0.0, "fetch": 2.0, "compute": 15.0, "store": 3.0},
        ),
        EndedAttempt(
            phase=SPEC.phase,
            outcome=Category.USER_CODE_FAILED.value,
            parts={"wait": 20.0, "fetch": 9.0, "compute": 0.0, "store": 1.0},
        ),
    ]


def test_an_attempt_without_a_report_computed_all_the_time(bench: Bench) -> None:
    told: list[EndedAttempt] = []
    bench.supervisor.heard = told.append
    by_turn(bench, working(bench, 6.0))
    bench.attempt()
    assert told[0].parts == {"wait": 0.0, "fetch": 0.0, "compute": 6.0, "store": 0.0}


def test_a_child_gets_all_of_its_job(bench: Bench) -> None:
    given = bench.world.done(SPEC, [FILE])
    group = GroupSpec(group="g", cell="c", window="all", grid=None, bands=())
    key = bench.world.plan(group.model_copy(update={"inputs": (given,)}))
    bench.supervisor.execute([key])
    (job,) = bench.jobs
    assert (job.request, job.key) == (REQUEST, key)
    assert job.claim == bench.world.runtime.tasks.attempts(key)[0].claim
    assert job.inputs == {0: (FILE,)}
    assert isinstance(job.spec, GroupSpec)
    assert job.scratch.is_absolute()


@pytest.mark.parametrize(
    ("order", "category", "said"),
    [
        (AttemptOrder.KILL, Category.EXECUTION_TIMEOUT, "killed after 8.0 s: longer than"),
        (AttemptOrder.MOVE, Category.CANCELLED, "handed back"),
        (AttemptOrder.HAND_BACK, Category.CANCELLED, "asked to stop"),
        (AttemptOrder.FENCE, Category.WORKER_LOST, "did not reach the table"),
    ],
)
def test_an_ordered_end_says_why_with_what_was_measured(
    bench: Bench, order: AttemptOrder, category: Category, said: str
) -> None:
    failed = Failed(category=Category.UNKNOWN, message="killed in the middle", used=USED)
    bench.child.hangs, bench.child.messages = True, [failed]
    key, thread = bench.in_background()
    bench.world.runtime.clock.sleep(8.0)
    bench.supervisor.kill_all(order)
    thread.join(10)
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert attempt.category is category
    assert said in attempt.message
    assert (attempt.log, attempt.peak_memory, attempt.used) == ("said", 7, USED)


def test_a_batch_gives_back_what_waits_after_ten_seconds_and_writes_after_one(
    bench: Bench,
) -> None:
    keys, hangs = batch_of(bench, 3), hanging()
    by_turn(bench, well(), hangs, well())
    thread = in_background(bench, keys, hangs)
    clock = bench.world.runtime.clock
    for seconds, expected in (
        (0.5, [State.RUNNING] * 3),
        (0.5, [State.DONE, State.RUNNING, State.RUNNING]),
        (9.0, [State.DONE, State.RUNNING, State.RUNNING]),
        (0.5, [State.DONE, State.RUNNING, State.READY]),
    ):
        clock.sleep(seconds)
        bench.supervisor.tend()
        assert states(bench, keys) == expected
    hangs.kill()
    thread.join(10)


def test_a_probed_batch_stops_after_one_whatever_was_begun(bench: Bench) -> None:
    keys, hangs = batch_of(bench, 4), hanging()
    by_turn(bench, well(), hangs, well())
    thread = in_background(bench, keys, hangs)
    (batch,) = bench.supervisor._batches
    assert batch.begun == 2
    bench.supervisor.hold = Hold.PROBE
    hangs.kill()
    thread.join(10)
    assert [one for one in states(bench, keys) if one is State.READY] == [State.READY] * 3


@pytest.mark.parametrize(
    ("phase", "advises"), [(Phase.REDUCTION, True), (Phase.REPROJECTION, False)]
)
def test_what_runs_out_of_memory_is_told_what_to_change(
    bench: Bench, phase: Phase, advises: bool
) -> None:
    said = bench.supervisor._over_memory(phase, 4_040_000_000)
    assert said.category is Category.OUT_OF_MEMORY
    assert said.message.startswith("used 4.04 GB of memory, the limit is")
    assert ("write fewer bands" in said.message) == advises


def test_the_first_order_counts(bench: Bench) -> None:
    bench.child.hangs, bench.child.messages = True, []
    key, thread = bench.in_background()
    claim = bench.world.task(key).claim
    bench.supervisor._kill(slot := bench.supervisor._in_hand()[0], AttemptOrder.MOVE)
    bench.supervisor._kill(slot, AttemptOrder.FENCE)
    thread.join(10)
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert (attempt.claim, attempt.category) == (claim, Category.CANCELLED)


def test_an_order_kills_only_the_attempt_of_its_claim(bench: Bench) -> None:
    bench.child.hangs = True
    key, thread = bench.in_background()
    bench.supervisor.kill("another", AttemptOrder.KILL)
    assert not bench.child.killed.is_set()
    bench.child.kill()
    thread.join(10)
    assert bench.world.task(key).state is State.DONE


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (
            Ended(exit_code=None, peak_memory=2_500_000_000, over_memory=True, log=""),
            "used 2.50 GB of memory, the limit is",
        ),
        (
            Ended(exit_code=3, peak_memory=1, over_memory=False, log="first\nlast words \n"),
            "ended with exit code 3 and no report: last words",
        ),
        (Ended(exit_code=0, peak_memory=1, over_memory=False, log=" \n"), "and no report"),
        (Ended(exit_code=-11, peak_memory=1, over_memory=False, log="words"), "by SIGSEGV"),
        (Ended(exit_code=None, peak_memory=1, over_memory=False, log=""), "exit code 0"),
        (None, "killed from outside"),
    ],
)
def test_an_end_without_a_report_is_put_into_words(
    bench: Bench, ended: Ended | None, message: str
) -> None:
    bench.child.messages, bench.child.ended = [Begun()], ended
    key = bench.attempt()
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert message in attempt.message


CRASH = Ended(exit_code=-11, peak_memory=9, over_memory=False, log="first ")


def crashing_once(bench: Bench, then: Pretended, ended: Ended = CRASH) -> None:
    """The first child ends so without a report, the next is another."""
    children = [Pretended(ended=ended), then]

    def start(job: Job) -> Pretended:
        assert not any(job.scratch.iterdir())
        bench.jobs.append(job)
        (job.scratch / "left").touch()
        return children[len(bench.jobs) - 1]

    bench.supervisor.start = start


def test_a_crash_is_done_again_with_granules_read_apart(bench: Bench) -> None:
    damaged = Failed(category=Category.UNREADABLE_INPUT_FILE, message="reading g.hdf crashed")
    crashing_once(bench, Pretended(messages=[damaged]))
    (attempt,) = bench.world.runtime.tasks.attempts(bench.attempt())
    assert [job.after_crash for job in bench.jobs] == [False, True]
    assert attempt.category is Category.UNREADABLE_INPUT_FILE
    assert (attempt.log, attempt.peak_memory) == ("first said", 9)


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "BUS", "FPE", "ILL", "TRAP"])
def test_an_attempt_that_crashed_once_may_succeed(bench: Bench, name: str) -> None:
    """SIGBUS too: HDF4 ends so on damaged bytes, with disks that have room."""
    ended = CRASH.model_copy(update={"exit_code": -signal.Signals[f"SIG{name}"]})
    crashing_once(bench, Pretended(messages=[Succeeded(files=(FILE,))]), ended)
    assert bench.world.task(bench.attempt()).state is State.DONE


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS"])
def test_a_crash_that_no_granule_explains_is_unknown(bench: Bench, name: str) -> None:
    ended = CRASH.model_copy(update={"exit_code": -signal.Signals[name]})
    crashing_once(bench, Pretended(ended=ended), ended)
    (attempt,) = bench.world.runtime.tasks.attempts(bench.attempt())
    assert len(bench.jobs) == 2
    assert attempt.category is Category.UNKNOWN
    assert f"by {name}, twice, the second time with its granules read apart" in attempt.message


def test_a_disk_that_fills_while_a_file_is_mapped_costs_the_task_nothing(bench: Bench) -> None:
    ended = CRASH.model_copy(update={"exit_code": -signal.SIGBUS, "no_room": True})
    crashing_once(bench, Pretended(ended=ended), ended)
    key = bench.attempt()
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert len(bench.jobs) == 1, "no granule is blamed"
    assert attempt.category is Category.DISK_SHARED
    assert "mapped in memory" in attempt.message
    task = bench.world.task(key)
    assert (task.state, task.retries, task.losses) == (State.READY, 0, 1)


@pytest.mark.parametrize(
    "ended",
    [
        Ended(exit_code=-9, peak_memory=9, over_memory=False, log=""),
        Ended(exit_code=70, peak_memory=9, over_memory=False, log=""),
        Ended(exit_code=-11, peak_memory=9, over_memory=True, log=""),
    ],
)
def test_other_ends_without_a_report_are_not_done_again(bench: Bench, ended: Ended) -> None:
    crashing_once(bench, Pretended(ended=CRASH), ended)
    bench.attempt()
    assert len(bench.jobs) == 1


def test_a_crash_without_granules_is_not_done_again(bench: Bench) -> None:
    crashing_once(bench, Pretended(ended=CRASH))
    group = GroupSpec(group="g", cell="c", window="all", grid=None, bands=())
    bench.supervisor.execute([bench.world.plan(group)])
    (attempt,) = bench.world.runtime.tasks.attempts(group.key)
    assert (len(bench.jobs), attempt.category) == (1, Category.UNKNOWN)


def test_last_words_are_short(bench: Bench) -> None:
    ended = Ended(exit_code=3, peak_memory=1, over_memory=False, log="x" * 1000)
    bench.child.messages, bench.child.ended = [Begun()], ended
    (attempt,) = bench.world.runtime.tasks.attempts(bench.attempt())
    assert attempt.message.count("x") == 300 + "exit".count("x")


@pytest.mark.parametrize("error", [ValueError("no such thing")])
def test_an_attempt_whose_child_cannot_be_started_ends(bench: Bench, error: Exception) -> None:
    def start(_job: Job) -> Pretended:
        raise error

    bench.supervisor.start = start
    (attempt,) = bench.world.runtime.tasks.attempts(bench.attempt())
    assert "no such thing" in attempt.message
    assert "Traceback" in attempt.log


def test_the_beat_lists_what_is_in_hand_in_few_words(bench: Bench) -> None:
    bench.child.hangs = True
    bench.child.messages = [Progress(fraction=0.123456, note="x" * 500)]
    key, thread = bench.in_background()
    bench.world.runtime.clock.sleep(2.0)
    (running,) = bench.supervisor.running()
    assert (running.key, running.claim) == (key, bench.world.task(key).claim)
    assert (running.phase, running.task_class) == (SPEC.phase, SPEC.task_class)
    assert (running.started_ago, running.progress) == (2.0, 0.123)
    assert running.note == "x" * 120
    assert bench.supervisor.busy()
    bench.child.kill()
    thread.join(10)


def test_the_trace_of_an_attempt_has_its_course(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tracing.Span] = []
    monkeypatch.setattr(tracing, "is_on", lambda: True)
    monkeypatch.setattr(tracing, "record", found.append)
    now = bench.world.runtime.clock.now()
    keys = batch_of(bench, 2)
    by_turn(
        bench,
        working(bench, 5.0, Succeeded(files=(FILE,), steps=(("fetch", now, now + 5),))),
        working(bench, 3.0),
    )
    bench.supervisor.execute(keys)
    spans = [(one.name, one.began - now, one.ended - now) for one in found]
    assert [one for one in spans if one[0].startswith("attempt")] == [
        ("attempt collection", 0.0, 8.0),
        ("attempt collection", 0.0, 8.0),
    ]
    assert [one for one in spans if one[2] > one[1] and not one[0].startswith("attempt")] == [
        ("fetch", 0.0, 5.0),
        ("settle", 5.0, 8.0),
        ("wait", 0.0, 5.0),
        ("compute", 5.0, 8.0),
    ]
    assert {one.trace for one in found} == {tracing.trace_of(REQUEST)}
    assert [one.failure != "" for one in found if one.name.startswith("attempt")] == [False, True]


# --- when ends are written ---


def test_ends_are_written_together_until_one_has_waited(bench: Bench) -> None:
    """Of attempts of 0.5 s the third ends 1 s after the first."""
    wrote: list[int] = []
    original = protocol.end_batch

    def end_batch(*given: Sequence[object]) -> list[bool]:
        wrote.append(len(given[1]))
        return original(*given)  # type: ignore[arg-type]

    keys = batch_of(bench, 5)
    by_turn(bench, working(bench, 0.5, Succeeded(files=(FILE,))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "end_batch", end_batch)
        bench.supervisor.execute(keys)
    assert wrote == [3, 2]
    assert states(bench, keys) == [State.DONE] * 5


def test_an_end_is_tried_for_minutes_and_then_left_to_the_monitor(bench: Bench) -> None:
    clock = bench.world.runtime.clock
    key = bench.world.plan(SPEC)
    ends: list[float] = []

    def end_batch(*_: object) -> list[bool]:
        ends.append(clock.monotonic())
        raise StoreError("away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "end_batch", end_batch)
        bench.supervisor.execute([key])
    assert [after - before for before, after in pairwise(ends)] == [5.0] * 29
    assert bench.world.task(key).state is State.RUNNING
    assert not bench.supervisor.busy()


def test_a_worker_with_a_short_lease_tries_more_often(bench: Bench) -> None:
    clock = bench.world.runtime.clock
    bench.supervisor.settings = bench.supervisor.settings.model_copy(update={"lease_seconds": 8.0})
    tries: list[float] = []
    original = protocol.end_batch

    def end_batch(*given: object) -> list[bool]:
        tries.append(clock.monotonic())
        if len(tries) < 3:
            raise StoreError("away")
        return original(*given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "end_batch", end_batch)
        key = bench.attempt()
    assert [one - tries[0] for one in tries] == [0.0, 2.0, 4.0]
    assert bench.world.task(key).state is State.DONE


def test_failures_follow_the_settings_of_the_worker(tmp_path: Path, bench: Bench) -> None:
    settings = Settings(
        data_dir=tmp_path,
        retry_budget=7,
        retry_base=1.5,
        lease_seconds=40.0,
    )
    made = replace(bench.supervisor, settings=settings)
    assert made._policy == transitions.RetryPolicy(budget=7, base=1.5)
    assert made._policy.largest == 180.0
    assert made.lease.seconds == 40.0


def test_only_the_task_without_room_goes_back(bench: Bench) -> None:
    keys = batch_of(bench, 3)
    by_turn(bench, well(), Pretended(messages=[Postponed(message="no memory")]), well())
    bench.supervisor.execute(keys)
    assert states(bench, keys) == [State.DONE, State.READY, State.DONE]
    assert bench.world.runtime.tasks.attempts(keys[1]) == []


def test_a_task_without_room_that_was_ordered_to_end_ends(bench: Bench) -> None:
    bench.child.hangs, bench.child.messages = True, [Postponed(message="no memory")]
    key, thread = bench.in_background()
    bench.supervisor.kill_all(AttemptOrder.HAND_BACK)
    thread.join(10)
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert attempt.category is Category.CANCELLED


def test_a_claim_that_storage_does_not_answer_starts_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(protocol, "claim_batch", away)
    bench.supervisor.execute([bench.world.plan(SPEC)])
    assert (bench.jobs, bench.supervisor.busy()) == ([], False)
