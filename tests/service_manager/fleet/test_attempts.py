"""What a look at the workers leads to: orders in their rows, attempts that are given up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import WatchedAttempt
from service_manager.events.sweep import read_running
from service_manager.fleet.attempts import Attempts
from service_manager.fleet.machines import DrainOrder
from service_manager.fleet.monitor import Kill, Verdicts
from service_manager.options import ManagerOptions
from tasks.bag import history, transitions, workers
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.transitions import RetryPolicy
from tasks.bag.workers import Hold, WorkerRow
from tasks.storage.store import Operation, Row
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import collect

MANY = sorted((collect(f"g{i}") for i in range(300)), key=lambda spec: spec.key)
A, B, C = MANY[0], MANY[1], MANY[-1]
OPTIONS = ManagerOptions(scale_in=300.0)


@pytest.fixture
def attempts(scene: Scene, dispatch: FleetDispatch) -> Attempts:
    return Attempts(scene.runtime, OPTIONS, scene.cache, dispatch)


def claimed(scene: Scene, *specs: CollectSpec) -> list[str]:
    """Write tasks and have worker "w" claim them; return the fencing tokens."""
    for spec in specs:
        scene.write(spec)
    return [scene.claim(spec).claim for spec in specs]


def worker(scene: Scene, name: str = "w") -> WorkerRow:
    return next(row for row in workers.list_workers(scene.store) if row.name == name)


def watched(scene: Scene, spec: CollectSpec) -> WatchedAttempt:
    return scene.cache.running[spec.key]


def decided(attempts: Attempts, monkeypatch: pytest.MonkeyPatch, verdicts: Verdicts) -> None:
    monkeypatch.setattr(attempts._monitor, "look", lambda *_, **__: verdicts)


# --- a worker that was lost ---


def test_of_a_lost_worker_what_was_in_hand_is_lost_and_what_waited_goes_back(
    scene: Scene, attempts: Attempts
) -> None:
    clock = scene.runtime.clock
    clock.sleep(500.0)
    first, second = claimed(scene, A, B)
    at = clock.now()
    scene.beat(1, (A, first), waiting=[second], ago=40.0)
    attempts.look()
    assert watched(scene, A).in_hand
    assert watched(scene, A).since == 460.0
    assert not watched(scene, B).in_hand
    assert watched(scene, B).since == 500.0
    silence = OPTIONS.lease + 2 * OPTIONS.heartbeat
    clock.sleep(silence)
    attempts.look()
    assert scene.task(A).state is State.RUNNING
    clock.sleep(1.0)
    attempts.look()
    assert scene.cache.running == {}
    (lost,) = scene.tasks.attempts(A.key)
    assert (lost.key, lost.number, lost.claim) == (A.key, 1, first)
    assert (lost.phase, lost.task_class, lost.worker) == (A.phase, A.task_class, "w")
    assert (lost.started, lost.ended) == (at, clock.now())
    assert lost.duration == 40.0 + silence + 1.0
    assert lost.category is Category.WORKER_LOST
    assert lost.message
    assert lost.log == lost.message
    task = scene.task(A)
    assert (task.state, task.retries, task.losses) == (State.READY, 0, 1)
    task = scene.task(B)
    assert (task.state, task.losses, task.alone) == (State.READY, 0, True)
    assert not scene.tasks.attempts(B.key)


def test_a_worker_counts_as_lost_by_its_silence_alone(scene: Scene, attempts: Attempts) -> None:
    for sequence in range(1, 20):
        scene.beat(sequence)
        attempts.look()
        scene.runtime.clock.sleep(OPTIONS.lease)
        assert [one.name for one in attempts.workers] == ["w"]


def test_what_has_ended_costs_no_call_for_each_attempt_while_its_event_waits(
    scene: Scene, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = [spec for spec in MANY if shard(spec.key) == shard(A.key)]
    for spec in here:
        scene.write(spec)
    claims = [scene.claim(spec) for spec in here]
    scene.beat(1, *((spec, one.claim) for spec, one in zip(here, claims, strict=True)))
    attempts.look()
    still, *others = here
    assert len(scene.cache.running) == len(here) > 5
    for one in claims[1:]:
        scene.end(one)
    read: list[str] = []
    get = scene.store.get

    def watched(table: str, partition: str, row: str) -> Row | None:
        read.append(row)
        return get(table, partition, row)

    monkeypatch.setattr(scene.store, "get", watched)
    for sequence in range(2, 6):
        scene.beat(sequence)
        read.clear()
        attempts.look()
        assert len(read) < 5
    assert scene.cache.running == {}
    assert scene.task(still).losses == 1
    assert {scene.task(spec).state for spec in others} == {State.DONE}


def test_no_limit_is_held_against_attempts_while_ends_are_not_counted(
    scene: Scene, attempts: Attempts
) -> None:
    """Storage was away for long: of many that began together, the shortest alone were counted."""
    clock = scene.runtime.clock
    for spec in MANY[2:8]:
        scene.write(spec)
        scene.run(spec)
    scene.process()
    clock.sleep(50.0)
    attempts.counted(clock.monotonic())
    (claim,) = claimed(scene, A)
    for sequence in range(1, 15):
        scene.beat(sequence, (A, claim), ago=10.0 * sequence)
        clock.sleep(10.0)
        attempts.look()
    assert worker(scene).orders == ()
    attempts.counted(clock.monotonic())
    attempts.look()
    assert worker(scene).orders == (claim,)


# --- orders ---


@pytest.mark.parametrize("answered", [True, False])
def test_orders_are_written_once_though_storage_gave_no_answer(
    scene: Scene, attempts: Attempts, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    scene.runtime.clock.sleep(50.0)
    (claim,) = claimed(scene, A)
    scene.beat(1, (A, claim))
    attempts.look()
    running = watched(scene, A)

    def look(verdicts: Verdicts) -> WorkerRow:
        decided(attempts, monkeypatch, verdicts)
        if not answered:
            scene.store.lost = [workers.TABLE]
        attempts.look()
        assert scene.store.lost == []
        return worker(scene)

    assert look(Verdicts(kills=[Kill(running=running, limit=1.0)])).orders == (claim,)
    assert running.ordered is not None
    running.ordered = None
    assert look(Verdicts(moves=[running])).moves == (claim,)
    assert running.ordered == scene.runtime.clock.monotonic()
    now = scene.runtime.clock.now()
    order = DrainOrder(worker="w", started=1.0, hold=Hold.DRAINED, why="it is slow", wait=60.0)
    row = look(Verdicts(holds=[order]))
    assert (row.hold, row.hold_why) == (Hold.DRAINED, "it is slow")
    assert row.hold_until == pytest.approx(now + 60.0, abs=5.0)
    other = replace(order, started=2.0, hold=Hold.NONE)
    decided(attempts, monkeypatch, Verdicts(holds=[other]))
    attempts.look()
    assert worker(scene).hold is Hold.DRAINED


@pytest.mark.parametrize("answered", [True, False])
def test_who_has_nothing_to_do_is_told_to_leave_first(
    scene: Scene, attempts: Attempts, answered: bool
) -> None:
    clock = scene.runtime.clock
    (claim,) = claimed(scene, A)
    for sequence in range(1, 12):
        scene.beat(sequence, (A, claim))
        scene.beat(sequence, name="idle")
        attempts.look()
        if sequence == 6 and not answered:
            scene.store.lost = [workers.TABLE]
        attempts.scale_in(1)
        clock.sleep(60.0)
    assert scene.store.lost == []
    assert [worker(scene, name).draining for name in ("w", "idle")] == [False, True]


def test_a_row_of_long_ago_is_deleted_though_storage_gave_no_answer(
    scene: Scene, attempts: Attempts
) -> None:
    scene.beat(1)
    attempts.look()
    assert [one.name for one in attempts.workers] == ["w"]
    scene.runtime.clock.sleep(86400.0)
    attempts.look()
    assert attempts.workers == ()
    assert workers.list_workers(scene.store)
    scene.runtime.clock.sleep(1.0)
    scene.store.lost = [workers.TABLE]
    attempts.look()
    assert workers.list_workers(scene.store) == []


# --- attempts that nobody waits for ---


@pytest.mark.parametrize("answered", [True, False])
def test_strays_of_several_shards_are_killed_and_what_runs_is_watched(
    scene: Scene, attempts: Attempts, answered: bool
) -> None:
    first, second = claimed(scene, A, C)
    assert shard(A.key) != shard(C.key)
    scene.change(A, lambda task: transitions.drop(task, "r"))
    for sequence in (1, 2):
        scene.beat(sequence, (A, first), (C, second))
        if sequence == 2 and not answered:
            scene.store.lost = [workers.TABLE]
        attempts.look()
    assert worker(scene).orders == (first,)
    assert set(scene.cache.running) == {C.key}


def test_attempts_of_two_shards_are_watched_at_the_first_look(
    scene: Scene, attempts: Attempts
) -> None:
    first, second = claimed(scene, A, C)
    scene.beat(1, (A, first), (C, second))
    attempts.look()
    assert {one.claim for one in scene.cache.running.values()} == {first, second}


def test_what_is_being_committed_or_is_gone_is_not_killed(scene: Scene, attempts: Attempts) -> None:
    scene.write(A)
    claim = scene.run(A).claim
    for sequence in (1, 2, 3):
        scene.beat(sequence, (A, claim), (B, "of no task"))
        attempts.look()
    assert worker(scene).orders == ()


# --- what a look tells others ---


def test_a_look_tells_what_runs_and_what_is_ready(
    scene: Scene, dispatch: FleetDispatch, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = scene.cache.requests["r"]
    heard: list[Mapping[str, int]] = []

    def look(
        _statistics: object, _now: float, waiting: Callable[[], Mapping[str, int]], _behind: float
    ) -> Verdicts:
        heard.append(waiting())
        return Verdicts()

    monkeypatch.setattr(attempts._monitor, "look", look)
    claimed(scene, A)
    scene.cache.running = read_running(scene.tasks, shard(A.key), 0.0)
    dispatch.add(A.key, "r")
    live.changed = False
    assert attempts.workers == ()
    attempts.look()
    assert (dispatch.known(), live.changed) == ([], True)
    dispatch.add(B.key, "r")
    attempts.look()
    assert heard == [{"": 0}, {"": 1}]


def test_statistics_are_read_at_the_first_look_and_once_in_a_sweep(
    scene: Scene, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[float] = []
    clock = scene.runtime.clock
    clock.sleep(-clock.monotonic())
    original = history.class_statistics

    def statistics(*given: object) -> object:
        read.append(clock.monotonic())
        return original(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(history, "class_statistics", statistics)
    for _ in range(4):
        attempts.look()
        clock.sleep(OPTIONS.sweep / 2)
    assert read == [0.0, OPTIONS.sweep]


# --- attempts that ended ---


def test_what_was_known_of_an_ended_attempt_is_told_to_the_monitor(
    scene: Scene, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[object, ...]] = []
    monkeypatch.setattr(attempts._monitor, "ended", lambda *given: told.append(given))
    claimed(scene, A)
    scene.runtime.clock.sleep(9.0)
    scene.cache.running = read_running(scene.tasks, shard(A.key), 0.0)
    running = watched(scene, A)
    assert running.attempt == 1
    event = event_of(scene)
    for number, mine in ((0, None), (2, None)):
        scene.cache.running = {A.key: running}
        attempts.ended(replace(event, number=number))
        assert told.pop() == (replace(event, number=number), mine, {}, 9.0)
    scene.cache.running = {A.key: running}
    attempts.ended(event)
    assert told.pop()[1] is running
    attempts.ended(event)
    assert told.pop()[1] is None


def event_of(scene: Scene) -> CompletionEvent:
    """An event of A's first attempt."""
    scene.write(B)
    scene.run(B, Category.CANCELLED, RetryPolicy())
    found = [one for one in scene.tasks.events(shard(B.key), 10) if one.number]
    return replace(found[0], key=A.key)


def test_a_claim_that_was_given_back_is_forgotten(scene: Scene, attempts: Attempts) -> None:
    claimed(scene, A)
    scene.cache.running = read_running(scene.tasks, shard(A.key), 0.0)
    for _ in range(2):
        attempts.returned(event_of_return(scene))
        assert scene.cache.running == {}


def event_of_return(scene: Scene) -> CompletionEvent:
    if scene.task(A).state is State.RUNNING:
        scene.change(A, lambda task: transitions.give_back(task, task.claim))
    return scene.tasks.events(shard(A.key), 10)[0]


def test_what_an_attempt_usually_takes_is_known_by_its_class(
    scene: Scene, attempts: Attempts
) -> None:
    assert attempts.expected(A.task_class) is None
    for spec in MANY[: OPTIONS.time_limits.samples]:
        scene.write(spec)
        scene.run(spec)
    while (found := scene.process()).more:
        pass
    assert found.ended
    attempts.look()
    assert attempts.expected(A.task_class) == 1.0


def test_a_look_without_news_writes_nothing(scene: Scene, attempts: Attempts) -> None:
    scene.beat(1)
    attempts.look()
    wrote: list[Sequence[Operation]] = []
    scene.store.before = lambda _table, operations: wrote.append(operations)
    attempts.look()
    assert wrote == []
