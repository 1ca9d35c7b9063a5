"""The sweep reads all that is ready, running or unprocessed, a shard at a time; so does a look."""

from dataclasses import replace

import pytest

from service_manager.dispatch import dispatch as module
from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import WatchedAttempt
from service_manager.dispatch.ready import ReadyTasks
from service_manager.events import sweep
from service_manager.events.sweep import Sweep, read_running
from service_manager.fleet.attempts import Attempts
from service_manager.options import ManagerOptions
from tasks.bag import transitions, workers
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import SHARDS, shard
from tasks.bag.task_rows import CompletionEvent, ReadyMarker
from tasks.bag.transitions import RetryPolicy
from tasks.bag.workers import WorkerRow
from tasks.errors import StoreError
from tests.service_manager.scene import Scene, one_place
from tests.service_manager.workbench import collect

MANY = sorted((collect(f"g{i}") for i in range(300)), key=lambda spec: spec.key)
SHARD = shard(MANY[0].key)
HERE = [spec for spec in MANY if shard(spec.key) == SHARD]
A, B = HERE[0], HERE[1]


@pytest.fixture
def sweeping(scene: Scene, dispatch: FleetDispatch) -> Sweep:
    return Sweep(scene.runtime, scene.cache, dispatch, 30.0)


@pytest.mark.parametrize(("first", "page"), [(1, 3), (2, 3), (4, 3), (5, 2)])
def test_of_the_request_that_a_page_ends_in_the_rest_is_read(
    scene: Scene, sweeping: Sweep, monkeypatch: pytest.MonkeyPatch, first: int, page: int
) -> None:
    """Only of a request that fills a page is the rest left for another time."""
    monkeypatch.setattr(sweep, "_PAGE", page)
    for i, spec in enumerate(HERE[: first + 2]):
        scene.write(spec, "a" if i < first else "b")
    found, unread = sweeping._ready(SHARD)
    assert all(spec.key in found or spec.key > unread["a"][-1][0] for spec in HERE[:first])
    assert all(spec.key in found for spec in HERE[first : first + 2])


def test_what_a_sweep_did_not_read_of_a_request_stays_ready(
    scene: Scene, dispatch: FleetDispatch, sweeping: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_PAGE", 2)
    for spec in HERE[:5]:
        scene.write(spec)
        dispatch.add(spec.key, "r")
    sweeping.run(SHARD)
    assert len(dispatch) == 5


def test_a_sweep_finds_events_back_offs_and_what_runs(scene: Scene, sweeping: Sweep) -> None:
    scene.write(A)
    scene.write(B)
    assert not sweeping.run(SHARD).has_events
    scene.run(A, Category.SERVER_BUSY, RetryPolicy())
    claim = scene.claim(B).claim
    swept = sweeping.run(SHARD)
    assert swept.has_events
    assert [key for _, key in swept.later] == [A.key]
    assert scene.cache.running[B.key].claim == claim


def test_a_sweep_forgets_attempts_that_are_over_and_tells_the_next_from_them(
    scene: Scene, sweeping: Sweep
) -> None:
    scene.write(A)
    scene.claim(A)
    sweeping.run(SHARD)
    first = scene.cache.running[A.key]
    first.begun, first.since = True, -1000.0
    scene.change(A, lambda task: transitions.give_back(task, first.claim))
    second = scene.claim(A).claim
    sweeping.run(SHARD)
    assert scene.cache.running[A.key].claim == second
    assert scene.cache.running[A.key].begun is None
    scene.change(A, lambda task: transitions.give_back(task, second))
    sweeping.run(SHARD)
    assert scene.cache.running == {}


@pytest.mark.parametrize(
    ("first", "read", "fills"), [(1, 1, False), (2, 2, False), (3, 3, True), (7, 3, True)]
)
def test_of_a_request_that_fills_a_page_no_more_is_read(
    scene: Scene,
    sweeping: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    read: int,
    fills: bool,
) -> None:
    monkeypatch.setattr(sweep, "_PAGE", 3)
    for i, spec in enumerate(HERE[: first + 1]):
        scene.write(spec, "a" if i < first else "b")
    found, last = sweeping._ready(SHARD)
    assert list(found) == [spec.key for spec in (*HERE[:read], HERE[first])]
    assert [*last] == (["a"] if fills else [])
    assert not fills or last["a"][-1] == (HERE[2].key, "g")


def test_of_a_request_that_shares_a_page_with_another_all_is_read(
    scene: Scene, sweeping: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_PAGE", 3)
    for i, spec in enumerate(HERE[:4]):
        scene.write(spec, "b" if i else "a")
    found, last = sweeping._ready(SHARD)
    assert list(found) == [spec.key for spec in HERE[:4]]
    assert last == {}


def test_each_shard_is_swept_once_in_a_period_and_the_longest_unread_first(
    scene: Scene, sweeping: Sweep
) -> None:
    clock, order = scene.runtime.clock, [*SHARDS[3:], *SHARDS[:3]]
    clock.sleep(-clock.monotonic())
    for number in order:
        assert sweeping.due()
        sweeping.run(number)
        clock.sleep(1.0)
    assert sweeping.due() is None
    clock.sleep(30.0 - len(order))
    for number in order:
        assert sweeping.due() == number
        sweeping.run(number)
        assert sweeping.due() is None
        clock.sleep(1.0)


def test_a_shard_whose_sweep_failed_is_due_again(
    scene: Scene, sweeping: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreError("no answer")

    monkeypatch.setattr(scene.store, "scan", away)
    due = sweeping.due()
    assert due is not None
    with pytest.raises(StoreError):
        sweeping.run(due)
    assert sweeping.due() == due


def test_a_sweep_forgets_what_is_no_longer_ready_or_running_in_its_shard_alone(
    scene: Scene, dispatch: FleetDispatch, sweeping: Sweep
) -> None:
    other = next(spec for spec in MANY if shard(spec.key) != SHARD)
    for spec in (A, other):
        scene.write(spec)
        scene.claim(spec)
        sweeping.run(shard(spec.key))
        scene.change(spec, lambda task: transitions.give_back(task, task.claim))
        sweeping.run(shard(spec.key))
        scene.claim(spec)
    assert sorted(dispatch.known()) == sorted([A.key, other.key])
    scene.cache.running = read_running(scene.tasks, shard(other.key), 0.0)
    sweeping.run(SHARD)
    assert dispatch.known() == [other.key]
    assert set(scene.cache.running) == {A.key, other.key}


def test_a_sweep_keeps_what_is_known_of_an_attempt(scene: Scene, sweeping: Sweep) -> None:
    scene.write(A)
    scene.claim(A)
    scene.runtime.clock.sleep(7.0)
    sweeping.run(SHARD)
    known = scene.cache.running[A.key]
    assert known.since == scene.runtime.clock.monotonic()
    known.begun = True
    scene.runtime.clock.sleep(7.0)
    sweeping.run(SHARD)
    assert scene.cache.running[A.key] is known
    assert known.since == scene.runtime.clock.monotonic() - 7.0


@pytest.mark.parametrize("number", [2, 3, 4])
def test_of_a_request_that_is_not_in_memory_whole_some_is_read_of_each_shard(
    scene: Scene, number: int
) -> None:
    dispatch = one_place(window=1, resend=30.0)
    sweeping = Sweep(scene.runtime, scene.cache, dispatch, 30.0)
    elsewhere = next(spec for spec in MANY if shard(spec.key) != SHARD)
    scene.write(HERE[-1], "another")
    for spec in (*HERE[:number], elsewhere):
        scene.write(spec)
    scene.run(HERE[0], Category.CANCELLED, RetryPolicy())  # so that it goes into no batch
    assert scene.task(HERE[0]).alone
    dispatch.reconcile(SHARD, {}, {"r": [("0", "g")]})
    assert dispatch.hungry() == ["r"]
    sweeping.feed("r")
    assert dispatch.known() == [spec.key for spec in (*HERE[:number], elsewhere)]
    assert not dispatch.places[""]._ready["r"].more
    for spec in HERE[:2]:
        task = dispatch.places[""]._tasks[spec.key]
        found = (task.sponsor, task.task_class, task.alone)
        assert found == ("r", spec.task_class, spec is HERE[0])


def test_of_a_large_request_a_page_of_each_shard_is_read_in_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no partition has to give all its rows at once; and there is an end to what is read."""
    monkeypatch.setattr(sweep, "_PAGE", 2)
    monkeypatch.setattr(module, "_REMEMBERED", 16)
    dispatch = one_place(window=64)
    sweeping = Sweep(scene.runtime, scene.cache, dispatch, 30.0)
    for spec in MANY:
        scene.write(spec)
    read: list[str] = []
    ready = scene.tasks.ready

    def watched(
        number: str, limit: int, request: str, after: ReadyMarker | None = None
    ) -> list[ReadyMarker]:
        read.append(number)
        return ready(number, limit, request, after)

    monkeypatch.setattr(scene.tasks, "ready", watched)
    dispatch.reconcile(SHARD, {}, {"r": [("0", "g")]})
    sweeping.feed("r")
    assert read == [*SHARDS] * 3
    assert len(dispatch) == 16
    assert dispatch.hungry() == []


# --- attempts ---


def looking(scene: Scene, dispatch: FleetDispatch) -> Attempts:
    return Attempts(scene.runtime, ManagerOptions(), scene.cache, dispatch)


def orders(scene: Scene) -> tuple[str, ...]:
    (row,) = workers.list_workers(scene.store)
    return row.orders


def test_an_attempt_that_nobody_waits_for_is_killed_at_the_second_look(
    scene: Scene, dispatch: FleetDispatch
) -> None:
    """At the first it may be on its way to its end."""
    scene.write(A)
    claim = scene.claim(A).claim
    scene.change(A, lambda task: transitions.drop(task, "r"))
    attempts = looking(scene, dispatch)
    for sequence, killed in ((1, ()), (2, (claim,))):
        scene.beat(sequence, (A, claim))
        attempts.look()
        assert orders(scene) == killed


def test_a_new_manager_takes_an_attempt_for_as_old_as_it_is(
    scene: Scene, dispatch: FleetDispatch
) -> None:
    scene.runtime.clock.sleep(1000)
    scene.write(A)
    scene.beat(1, (A, scene.claim(A).claim), ago=900.0)
    looking(scene, dispatch).look()
    watched = scene.cache.running[A.key]
    assert scene.runtime.clock.monotonic() - watched.since == 900.0
    assert watched.in_hand


def watched(scene: Scene, number: int) -> WatchedAttempt:
    found = read_running(scene.tasks, SHARD, 0.0)[A.key]
    assert found.attempt == number
    scene.cache.running[A.key] = found
    return found


def event(scene: Scene) -> CompletionEvent:
    return scene.tasks.events(SHARD, 10)[0]


def test_a_late_event_does_not_end_the_watch_of_the_next_attempt(
    scene: Scene, dispatch: FleetDispatch
) -> None:
    scene.write(A)
    scene.run(A, Category.CANCELLED)
    scene.claim(A)
    found = watched(scene, 2)
    attempts = looking(scene, dispatch)
    attempts.ended(event(scene))
    assert scene.cache.running == {A.key: found}
    attempts.ended(replace(event(scene), number=2))
    assert scene.cache.running == {}


def test_a_kill_is_ordered_once(scene: Scene, dispatch: FleetDispatch) -> None:
    scene.write(A)
    claim = scene.claim(A).claim
    clock, attempts = scene.runtime.clock, looking(scene, dispatch)
    scene.beat(1, (A, claim))
    attempts.look()
    clock.sleep(10**6)
    scene.beat(2, (A, claim), ago=10.0**6)
    attempts.look()
    assert orders(scene) == (claim,)
    assert scene.cache.running[A.key].ordered == clock.monotonic()
    clock.sleep(10)
    scene.beat(3, (A, claim), ago=10.0**6)
    attempts.look()
    assert scene.cache.running[A.key].ordered == clock.monotonic() - 10


# --- back-offs and sponsors ---


def waiting(scene: Scene, dispatch: FleetDispatch) -> ReadyTasks:
    return ReadyTasks(scene.runtime, ManagerOptions(), scene.cache, dispatch)


def test_the_end_of_a_back_off_is_tried_again_when_storage_fails(
    scene: Scene, dispatch: FleetDispatch
) -> None:
    scene.write(A)
    scene.run(A, Category.SERVER_BUSY, RetryPolicy())
    ready = waiting(scene, dispatch)
    ready.later(scene.task(A).not_before, A.key)
    scene.runtime.clock.sleep(100)

    def away(_table: str, _operations: object) -> None:
        raise StoreError("no answer")

    scene.store.before = away
    with pytest.raises(StoreError):
        ready.wake()
    scene.store.before = lambda _table, _operations: None
    ready.wake()
    assert dispatch.known() == [A.key]
    assert not scene.task(A).not_before


def test_a_back_off_is_no_longer_than_any_can_be(scene: Scene, dispatch: FleetDispatch) -> None:
    """The clock of the worker that failed may be days ahead."""
    scene.write(A)
    claimed, policy = scene.claim(A), RetryPolicy()
    busy = Category.SERVER_BUSY
    attempt = claimed.attempt(started=1.0, ended=2.0, duration=1.0, category=busy)
    its_time = scene.runtime.clock.now() + 10**6
    ahead = scene.change(
        A, lambda task: transitions.fail(task, attempt, policy, now=its_time, jitter=0.5)
    )
    ready = waiting(scene, dispatch)
    ready.later(ahead.not_before, A.key)
    scene.runtime.clock.sleep(policy.most + 1)
    ready.wake()
    assert dispatch.known() == [A.key]


def test_a_task_of_a_paused_request_runs_for_another_that_wants_it(
    scene: Scene, dispatch: FleetDispatch
) -> None:
    scene.request("other")
    scene.write(A, "r", "other")
    live = scene.cache.requests["r"]
    live.row = replace(live.row, paused=True)
    waiting(scene, dispatch).now(scene.task(A))
    assert scene.task(A).sponsor == "other"
    assert scene.task(A).state is State.READY
    assert [key for batch in dispatch.choose(scene.cache, 0.0) for key in batch] == [A.key]


def dispatched(dispatch: FleetDispatch, spec: CollectSpec) -> tuple[str, str, bool]:
    task = dispatch.places[""]._tasks[spec.key]
    return task.sponsor, task.task_class, task.alone


@pytest.mark.parametrize("sponsor", ["r", "unread"])
def test_what_is_ready_goes_on_the_account_of_its_sponsor(
    scene: Scene, dispatch: FleetDispatch, sponsor: str
) -> None:
    scene.write(A, sponsor)
    scene.write(B, sponsor)
    scene.run(B, Category.CANCELLED, RetryPolicy())
    for spec in (A, B):
        waiting(scene, dispatch).now(scene.task(spec))
        assert dispatched(dispatch, spec) == (sponsor, spec.task_class, spec is B)


def test_a_task_that_lost_its_sponsor_meanwhile_goes_on_the_account_that_it_has(
    scene: Scene, dispatch: FleetDispatch
) -> None:
    for name in ("other", "third"):
        scene.request(name)
    scene.write(A, "r", "other", "third")
    before = scene.task(A)
    for name in ("r", "other"):
        scene.change(A, lambda task, name=name: transitions.drop(task, name))  # type: ignore[misc]
    live = scene.cache.requests["r"]
    live.row = replace(live.row, paused=True)
    waiting(scene, dispatch).now(before)
    assert dispatched(dispatch, A) == ("third", A.task_class, False)


def test_back_offs_end_in_order_and_each_once(scene: Scene, dispatch: FleetDispatch) -> None:
    clock, ready = scene.runtime.clock, waiting(scene, dispatch)
    for spec in (A, B):
        scene.write(spec)
        scene.run(spec, Category.SERVER_BUSY, RetryPolicy())
    now = clock.now()
    for _ in range(2):
        ready.later(now + 20.0, A.key)
        ready.later(now + 10.0, B.key)
    assert len(ready._later) == 2
    for known in ([], [B.key], [B.key, A.key]):
        ready.wake()
        assert dispatch.known() == known
        clock.sleep(10.0)
    ready.later(now + 40.0, A.key)  # it is known no more, and may come again
    assert len(ready._later) == 1


@pytest.mark.parametrize("became", ["claimed", "awake", "gone"])
def test_what_does_not_wait_any_more_is_left_alone(
    scene: Scene, dispatch: FleetDispatch, became: str
) -> None:
    ready = waiting(scene, dispatch)
    key = "0" * 64 if became == "gone" else scene.write(A)
    if became == "claimed":
        scene.claim(A)
    ready.later(scene.runtime.clock.now() - 1.0, key)
    ready.wake()
    assert dispatch.known() == ([A.key] if became == "awake" else [])


def test_the_row_of_a_lost_worker_is_kept_for_a_day(scene: Scene, dispatch: FleetDispatch) -> None:
    attempts = looking(scene, dispatch)
    scene.beat(1)
    for hours, left in ((0, 1), (23, 1), (2, 0)):
        scene.runtime.clock.sleep(hours * 3600)
        attempts.look()
        assert len(workers.list_workers(scene.store)) == left


def test_idle_workers_are_told_to_leave_and_lost_ones_count_for_nothing(
    scene: Scene, dispatch: FleetDispatch
) -> None:
    options = ManagerOptions(scale_in=300.0)
    attempts = Attempts(scene.runtime, options, scene.cache, dispatch)
    clock = scene.runtime.clock
    for name in ("lost", "idle", "needed"):
        some = WorkerRow(name=name, host=name, slots=1, started=1.0, beat_at=1.0)
        workers.beat(scene.store, clock, some)
    for sequence in range(2, 12):
        clock.sleep(60)
        for name in ("idle", "needed"):
            row = WorkerRow(
                name=name, host=name, slots=1, started=1.0, beat_at=1.0, sequence=sequence
            )
            workers.beat(scene.store, clock, row)
        attempts.look()
        attempts.scale_in(1)
    told = {row.name for row in workers.list_workers(scene.store) if row.draining}
    assert len(told) == 1
    assert told < {"idle", "needed"}
