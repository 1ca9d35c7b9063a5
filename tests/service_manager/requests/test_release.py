"""The interests of a request after its end: what its pages show, and no more."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from service_manager.dispatch.allowance import Need
from service_manager.dispatch.dispatch import _Task
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.events.sweep import read_running
from service_manager.plans import write_fence
from service_manager.requests import release
from service_manager.requests.release import Dropping, Release, what_ended
from tasks.bag import (
    protocol,
    task_table,
    transitions,
    workers,
)
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import RequestOrder, RequestState, State
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import SHARDS, shard
from tasks.errors import FencedError, StoreError
from tasks.request.document import dump_request
from tasks.requests import outbox, request_operations, request_table
from tasks.requests.request_table import RequestTable
from tasks.storage import limits
from tasks.storage.limits import operation_size
from tasks.storage.store import Delete, Operation
from tests.service_manager.scene import ONCE, Scene, one_place
from tests.service_manager.workbench import Bench, collect, document, mosaic, plan_of

G = [collect(f"g{i}") for i in range(3)]
A, TOP = mosaic("a", G[0], G[1]), mosaic("top", G[2])
PLAN = plan_of(*G, A, TOP, outputs={"a": "out", "top": "out"})


MANY = sorted((collect(f"many {i:03}") for i in range(200)), key=lambda spec: spec.key)


def side_by_side(number: int) -> list[CollectSpec]:
    """Granules of one shard."""
    return [spec for spec in MANY if shard(spec.key) == shard(MANY[0].key)][:number]


def bench(*broken: int) -> Bench:
    lost = {G[i].key for i in broken}
    return Bench(
        plans={"p": PLAN},
        decide=lambda c: Category.BAD_IMAGE_FORMAT if c.task.key in lost else None,
    )


def wanted(b: Bench, request: str) -> set[str]:
    return {interest.name for interest in request_operations.interests(b.runtime, request)}


def test_an_ended_request_lets_its_intermediates_go() -> None:
    b = bench(0)
    request = b.submit("p")
    row = b.until_ended(request)
    assert row.state is RequestState.GAPS
    assert RequestTable(b.runtime.store).unsettled() == [request]
    shown = [w.output for w in request_operations.results(b.runtime, request)]
    lost = [w.name for w in request_operations.failures(b.runtime, request)]
    b.rounds(60)
    assert RequestTable(b.runtime.store).unsettled() == []
    assert wanted(b, request) == {"g0", "a", "top"}
    assert [w.output for w in request_operations.results(b.runtime, request)] == shown
    assert [w.name for w in request_operations.failures(b.runtime, request)] == lost
    for spec, interests in ((G[1], ()), (TOP, (request,)), (G[0], (request,))):
        task = b.runtime.tasks.task(spec.key)
        assert task is not None
        assert task.interests == interests
    assert b.row(request) == row


def test_another_request_keeps_what_it_wants() -> None:
    b = bench()
    first = b.submit("p")
    b.until_ended(first)
    second = b.submit("p", owner="other")
    while not wanted(b, second):
        b.manager.tick()
    task = b.runtime.tasks.task(G[0].key)
    assert task is not None
    assert second in task.interests
    b.rounds(60)
    assert b.ran.count(G[0].key) == 1


def test_a_manager_that_dies_meanwhile_is_followed_by_one_that_goes_on() -> None:
    b = bench()
    request = b.submit("p")
    b.until_ended(request)
    b.restart(epoch=2)
    b.rounds(60)
    assert RequestTable(b.runtime.store).unsettled() == []
    assert wanted(b, request) == {"a", "top"}


def test_a_cancelled_request_wants_nothing_and_is_let_go() -> None:
    b = bench()
    request = b.submit("p")
    b.rounds(1)
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    b.until_ended(request)
    b.rounds(40)
    assert wanted(b, request) == set()
    assert RequestTable(b.runtime.store).unsettled() == []


def test_an_ended_request_keeps_the_results_that_could_not_be_made() -> None:
    b = bench(0, 1)
    request = b.submit("p")
    assert b.until_ended(request).state is RequestState.GAPS
    b.rounds(60)
    assert RequestTable(b.runtime.store).unsettled() == []
    outcomes = {w.name: w.outcome for w in request_operations.interests(b.runtime, request)}
    assert outcomes == {"g0": "failed", "g1": "failed", "a": "gap", "top": "done"}


def dropping(scene: Scene) -> Dropping:
    dispatch = one_place(window=8, resend=30.0)
    return Dropping(scene.runtime, scene.cache, dispatch, "r", what_ended)


def test_nothing_more_is_written_for_a_request_that_is_withdrawn() -> None:
    scene = Scene()
    scene.request("r")
    scene.write(G[0])
    write_fence.passing(scene.tasks, "0", "r")
    list(dropping(scene).batches())
    for number in SHARDS:
        with pytest.raises(FencedError):
            write_fence.passing(scene.tasks, number, "r")


def test_an_attempt_is_killed_though_the_answer_that_its_task_is_cancelled_was_lost() -> None:
    """And though the manager has not heard of the attempt yet."""
    scene = Scene()
    scene.request("r")
    scene.write(G[0])
    row = workers.WorkerRow(name="w", host="h", slots=1, started=1.0, beat_at=1.0)
    workers.beat(scene.store, scene.runtime.clock, row)
    claim = scene.claim(G[0]).claim
    scene.store.lost = [task_table.TABLE]
    dropping(scene).one(G[0].key)
    assert scene.task(G[0]).state is State.CANCELLED
    (found,) = workers.list_workers(scene.store)
    assert found.orders == (claim,)


def test_a_task_that_is_left_to_another_request_is_sent_on_its_account() -> None:
    scene = Scene()
    scene.request("r")
    scene.request("other")
    scene.write(G[0], "r", "other")
    scene.write(G[1], "r")
    scene.run(G[0], Category.CANCELLED)  # it was handed back
    dispatch = one_place(window=8, resend=30.0)
    for spec in G[:2]:
        dispatch.add(spec.key, "r")
    withdrawing = Dropping(scene.runtime, scene.cache, dispatch, "r", what_ended)
    list(withdrawing.batches())
    assert dispatch.known() == [G[0].key]
    task = scene.task(G[0])
    assert dispatch.places[""]._tasks[G[0].key] == _Task(
        "other", task.task_class, alone=True, need=Need.of(task.task_class)
    )
    del scene.cache.requests["r"]
    assert dispatch.backlog(scene.cache) == {"other": 1}


def test_what_was_made_and_is_not_told_yet_is_kept() -> None:
    """Its event is still to be processed, and then there would be nobody to tell."""
    scene = Scene()
    live = scene.request("r", RequestState.CANCELLING)
    scene.write(G[0])
    scene.run(G[0])
    list(dropping(scene).batches())
    assert scene.recorded("r", G[0]).outcome == "done"
    assert live.ledger.get(G[0].key).outcome == "done"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("state", "live", "cancelled"),
    [
        (RequestState.CANCELLING, True, True),
        (RequestState.FAILED, False, True),
        (None, False, True),
        (RequestState.RUNNING, True, False),
        (RequestState.RUNNING, False, False),
    ],
)
def test_who_has_got_its_end_of_a_task_does_not_keep_it_alive(
    state: RequestState | None, live: bool, cancelled: bool
) -> None:
    """Another request began it again, and leaves; the first one leaves, has ended, or goes on."""
    scene = Scene()
    scene.request("r")
    first = scene.request("first")
    scene.write(G[0], "first")
    scene.run(G[0], Category.BAD_IMAGE_FORMAT)
    scene.process()
    interest = scene.interest("r", G[0])
    scene.change(G[0], lambda task: transitions.add_interest(task, interest, 0))
    if state is not None:
        first.row = replace(first.row, state=state, document=dump_request(document("p")))
        operations = request_table.insert_request(first.row)
        scene.store.transact(request_table.TABLE, request_table.PARTITION, operations)
    if not live:
        del scene.cache.requests["first"]
    list(dropping(scene).batches())
    assert scene.task(G[0]).state is (State.CANCELLED if cancelled else State.READY)


def test_what_was_recorded_stays_though_the_task_was_made_for_another_request_since() -> None:
    scene = Scene()
    for name in ("r", "other"):
        scene.request(name)
    scene.write(G[0])
    scene.run(G[0], Category.BAD_IMAGE_FORMAT)
    scene.process()
    interest = scene.interest("other", G[0])
    scene.change(G[0], lambda task: transitions.add_interest(task, interest, 0))
    scene.run(G[0])
    assert "r" in scene.task(G[0]).interests
    list(dropping(scene).batches())
    assert scene.recorded("r", G[0]).outcome == "failed"


def test_who_leaves_without_an_outcome_keeps_a_task_until_its_own_interest_is_withdrawn() -> None:
    scene = Scene()
    scene.request("r")
    scene.request("first", RequestState.CANCELLING)
    scene.write(G[0], "first", "r")
    list(dropping(scene).batches())
    assert scene.task(G[0]).interests == ("first",)
    assert scene.task(G[0]).state is State.READY


def heard(scene: Scene, *specs: Spec) -> None:
    """Have the manager hear of what runs."""
    for spec in specs:
        scene.cache.running |= read_running(scene.tasks, shard(spec.key), 0.0)


def test_the_attempt_that_runs_now_is_killed_though_an_earlier_one_is_known() -> None:
    """The manager has not heard that the earlier one ended."""
    scene = Scene()
    scene.request("r")
    scene.write(G[0])
    row = workers.WorkerRow(name="w", host="h", slots=1, started=1.0, beat_at=1.0)
    workers.beat(scene.store, scene.runtime.clock, row)
    claimed = scene.claim(G[0])
    heard(scene, G[0])
    attempt = claimed.attempt(started=1.0, ended=2.0, duration=1.0, category=Category.CANCELLED)
    assert protocol.fail(scene.runtime, attempt, ONCE)
    claim = scene.claim(G[0]).claim
    list(dropping(scene).batches())
    (found,) = workers.list_workers(scene.store)
    assert found.orders == (claim,)
    assert scene.cache.running == {}


def test_a_task_that_runs_on_for_another_request_is_counted_on_its_account() -> None:
    scene = Scene()
    scene.request("r")
    scene.request("other")
    scene.write(G[0], "r", "other")
    scene.claim(G[0])
    heard(scene, G[0])
    assert scene.cache.running[G[0].key].sponsor == "r"
    list(dropping(scene).batches())
    assert scene.cache.running[G[0].key].sponsor == "other"


def test_an_interest_whose_task_is_not_there_holds_up_no_other() -> None:
    scene = Scene()
    scene.request("r")
    gone, there = side_by_side(2)
    interest = scene.interest("r", gone)
    scene.tasks.transact(shard(gone.key), [task_table.put_interest(interest)])
    scene.write(there)
    list(dropping(scene).batches())
    assert scene.task(there).state is State.CANCELLED


def test_under_a_guard_nothing_is_withdrawn_once_the_write_fence_has_changed() -> None:
    scene = Scene()
    scene.request("r")
    scene.write(G[0])
    number = shard(G[0].key)
    guard = write_fence.passing(scene.tasks, number, "r")
    scene.tasks.transact(number, [write_fence.passing(scene.tasks, number, "r")])
    with pytest.raises(write_fence.FenceChangedError):
        dropping(scene).one(G[0].key, guard)
    assert scene.task(G[0]).interests == ("r",)
    dropping(scene).one(G[0].key, write_fence.passing(scene.tasks, number, "r"))
    assert scene.task(G[0]).state is State.CANCELLED
    dropping(scene).one(G[0].key, guard)  # there is nothing to withdraw any more


@pytest.mark.parametrize("when", [0, 3])
def test_whoever_asked_for_it_is_told_of_a_cancelled_request_once(when: int) -> None:
    """Before it was planned, and while it ran."""
    b = bench()
    request = b.submit("p")
    for _ in range(when):
        b.manager.tick()
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    b.rounds(60)
    assert b.row(request).state is RequestState.CANCELLED
    (mail,) = outbox.mails(b.runtime.store, request)
    assert mail.subject == "p: cancelled"
    assert ("before it was planned" in mail.body) == (when == 0)


# --- in which order, and in which transactions ---


def written(scene: Scene) -> list[list[str]]:
    """The keys of the tasks whose interests are withdrawn, by transaction, from now on."""
    found: list[list[str]] = []

    def note(_table: str, operations: Sequence[Operation]) -> None:
        rows = [one.row for one in operations if isinstance(one, Delete)]
        keys = [row.rpartition("|")[2] for row in rows if row.startswith("w|")]
        if keys:
            found.append(keys)

    scene.store.before = note
    return found


def test_what_runs_and_what_may_begin_is_withdrawn_first() -> None:
    scene = Scene()
    scene.request("r")
    scene.request("other")
    first, sent, running = MANY[0], MANY[100], MANY[-1]
    for spec in (first, sent, running):
        scene.write(spec)
    scene.write(MANY[50], "other")
    dispatch = one_place(window=8, resend=30.0)
    dispatch.add(sent.key, "r")
    assert dispatch.choose(scene.cache, 0.0)
    for spec in (running, MANY[50]):
        scene.claim(spec)
        scene.cache.running |= read_running(scene.tasks, shard(spec.key), 0.0)
    found = written(scene)
    list(Dropping(scene.runtime, scene.cache, dispatch, "r").batches())
    assert found == [[sent.key], [running.key], [first.key]]
    assert set(scene.cache.running) == {MANY[50].key}
    assert scene.task(MANY[50]).state is State.RUNNING
    assert scene.cache.requests["r"].ledger.get(first.key) is None


@pytest.mark.parametrize(("operations", "size"), [(6, 10**6), (100, 0)])
def test_interests_are_withdrawn_in_transactions_as_large_as_there_may_be(
    monkeypatch: pytest.MonkeyPatch, operations: int, size: int
) -> None:
    """Of a ready task three rows change: itself, its marker, the interest."""
    scene = Scene()
    scene.request("r")
    some = side_by_side(5)
    for spec in some:
        scene.write(spec)
    monkeypatch.setattr(release, "grouped", partial(limits.grouped, most=operations))
    step = dropping(scene)._decide(scene.task(some[0]), None).operations
    one = sum(operation_size("0", op) for op in step)
    monkeypatch.setattr(limits, "_GROUP", size or 2 * one)
    monkeypatch.setattr(release, "_READ", 4)
    found = written(scene)
    list(dropping(scene).batches())
    assert [len(keys) for keys in found] == [2, 2, 1]
    assert all(scene.task(spec).state is State.CANCELLED for spec in some)


def test_what_is_refused_together_is_withdrawn_one_by_one() -> None:
    scene = Scene()
    scene.request("r")
    some = side_by_side(3)
    for spec in some:
        scene.write(spec)
    taken: list[str] = []

    def claims(_table: str, operations: Sequence[Operation]) -> None:
        if len(operations) > 6 and not taken:
            taken.append(scene.claim(some[1]).claim)

    scene.store.before = claims
    list(dropping(scene).batches())
    assert taken
    assert all(scene.task(spec).state is State.CANCELLED for spec in some)
    assert not any(spec.key in scene.cache.requests["r"].ledger for spec in some)


def test_what_was_made_is_kept_though_it_was_refused_together_with_others() -> None:
    scene = Scene()
    live = scene.request("r", RequestState.CANCELLING)
    made, other = side_by_side(2)
    for spec in (made, other):
        scene.write(spec)
    scene.run(made)
    taken: list[str] = []

    def claims(_table: str, operations: Sequence[Operation]) -> None:
        if len(operations) > 3 and not taken:
            taken.append("")
            scene.claim(other)

    scene.store.before = claims
    list(dropping(scene).batches())
    assert taken
    assert scene.recorded("r", made).outcome == "done"
    assert [key for key in (made.key, other.key) if key in live.ledger] == [made.key]


def ended(b: Bench) -> str:
    request = b.submit("p")
    b.until_ended(request)
    assert RequestTable(b.runtime.store).unsettled() == [request]
    return request


def test_a_slice_of_the_work_is_done_in_each_round_and_its_end_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = bench()
    request = ended(b)
    told: list[str] = []
    cache = ManagerCache()
    dispatch = one_place(window=8, resend=30.0)
    work = Release(b.runtime, cache, dispatch, 60.0, told.append)
    monkeypatch.setattr(release, "_SLICE", 0.0)
    steps = 0
    while RequestTable(b.runtime.store).unsettled():
        assert told == []
        work.step()
        steps += 1
        assert steps < 100
    assert steps > 1
    assert told == [request]
    assert wanted(b, request) == {"a", "top"}
    work.step()
    assert told == [request]


def test_ended_requests_are_looked_for_once_in_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench()
    looks: list[float] = []
    clock = b.runtime.clock
    began = clock.monotonic()
    original = type(RequestTable(b.runtime.store)).unsettled

    def unsettled(table: request_table.RequestTable) -> list[str]:
        looks.append(clock.monotonic() - began)
        return original(table)

    monkeypatch.setattr(request_table.RequestTable, "unsettled", unsettled)
    work = Release(b.runtime, ManagerCache(), one_place(window=8, resend=30.0), 60.0)
    for _ in range(5):
        work.step()
        clock.sleep(30.0)
    assert looks == [0.0, 60.0, 120.0]


def test_a_request_whose_storage_failed_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench()
    request = ended(b)
    told: list[str] = []
    work = Release(b.runtime, ManagerCache(), one_place(window=8, resend=30.0), 60.0, told.append)
    with monkeypatch.context() as patch:

        def away(*_: object) -> None:
            raise StoreError("away")

        patch.setattr(write_fence, "close", away)
        with pytest.raises(StoreError):
            work.step()
    assert told == []
    b.runtime.clock.sleep(60.0)
    work.step()
    assert told == [request]
