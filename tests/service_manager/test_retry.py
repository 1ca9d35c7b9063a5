"""Trying again what failed: of a request, a category, a task; running or ended; through crashes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

import pytest

from service_manager.dispatch.manager_cache import Live
from service_manager.leader.manager import Manager
from service_manager.plans import write_fence
from service_manager.requests.retrying import Retrying
from tasks.bag import protocol, task_table, transitions
from tasks.bag.categories import Category
from tasks.bag.model import RequestOrder, RequestState, State, TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.bag.task_table import TaskTable
from tasks.errors import ConflictError, FencedError, StoreError
from tasks.request.document import dump_request
from tasks.requests import (
    outbox,
    request_operations,
    request_table,
    retrying,
)
from tasks.requests.request_table import RequestRow
from tasks.requests.retrying import NothingToRetryError, Scope
from tasks.storage.store import Operation, Row, Store
from tests.service_manager.scene import Scene, one_place
from tests.service_manager.workbench import Bench, collect, document, mosaic, plan_of

G = [collect(f"g{i}") for i in range(5)]
A, B = mosaic("a", G[0], G[1]), mosaic("b", G[2], G[3])
TOP = mosaic("top", A, B)
LAST = mosaic("last", G[4])
PLAN = plan_of(*G, A, B, TOP, LAST, outputs={"top": "out", "a": "out", "last": "out"})
NAMES = {spec.key: name for spec, name in zip(G, ("g0", "g1", "g2", "g3", "g4"), strict=True)}


class Held(Bench):
    """A bench on which g4 is not run before it is let go, so that requests go on, nor anything else
    that is held; chosen granules fail until they are mended."""

    broken: dict[str, Category]
    held: bool = True
    late: str = ""

    def work(self) -> None:
        kept = [key for key in self.sent if (self.held and key == G[4].key) or key == self.late]
        self.sent[:] = [key for key in self.sent if key not in kept]
        super().work()


def held(broken: dict[int, Category]) -> Held:
    """A request whose granules `broken` fail, gone as far as it can."""
    b = Held(
        plans={"p": PLAN, "a": plan_of(*G[:2], G[4], A, LAST, outputs={"a": "o", "last": "o"})}
    )
    b.broken = {G[i].key: category for i, category in broken.items()}
    b.decide = lambda claimed: b.broken.get(claimed.task.key)
    return b


def interests(b: Bench, request: str) -> dict[str, Interest]:
    return {interest.key: interest for interest in request_operations.interests(b.runtime, request)}


def made_over(b: Bench, request: str) -> set[str]:
    """The names of the results, each with the number of its inputs."""
    return {
        f"{interest.name} {len(b.runtime.tasks.spec(interest.key).inputs)}"
        for interest in request_operations.results(b.runtime, request)
    }


ABSENT = {0: Category.SOURCE_NOT_PUBLISHED}


def test_a_running_request_makes_what_it_lacked_and_all_that_hangs_on_it() -> None:
    b = held(ABSENT)
    request = b.submit("p")
    b.rounds(8)
    before = interests(b, request)
    assert before[A.key].outcome == before[TOP.key].outcome == "superseded"
    assert made_over(b, request) == {"a 1", "top 2"}
    b.broken.clear()
    assert retrying.retry(b.runtime, request, Scope()).id == request
    b.rounds(8)
    assert made_over(b, request) == {"a 2", "top 2"}
    b.held = False
    row = b.until_ended(request)
    assert row.state is RequestState.COMPLETE
    assert (row.outputs, row.delivered, row.gap_count) == (3, 3, 0)
    assert set(interests(b, request)) == {spec.key for spec in (*G, A, B, TOP, LAST)}
    fallback = b.runtime.tasks.task(before[A.key].fallback)
    assert fallback is not None
    assert fallback.interests == ()
    assert len(list(outbox.mails(b.runtime.store))) == 1


def test_a_failure_that_persists_leads_to_the_same_successor_again() -> None:
    b = held(ABSENT)
    request = b.submit("p")
    b.rounds(8)
    before = interests(b, request)
    retrying.retry(b.runtime, request, Scope())
    b.rounds(8)
    ran = b.ran.count(G[0].key)
    assert ran == 2
    assert interests(b, request).keys() == before.keys()
    b.held = False
    assert b.until_ended(request).state is RequestState.GAPS
    assert made_over(b, request) == {"a 1", "top 2", "last 1"}
    assert b.ran.count(before[A.key].fallback) == 1  # it was there already


@pytest.mark.parametrize(
    ("scope", "again"),
    [
        (Scope(), {"g0", "g2"}),
        (Scope(category=Category.SOURCE_NOT_PUBLISHED), {"g0"}),
        (Scope(category=Category.DOWNLOAD_FAILED), set()),
        (Scope(category=Category.UPSTREAM_FAILED), set()),
        (Scope(task=G[2].key), {"g2"}),
        (Scope(task=TOP.key), {"g0", "g2"}),
        (Scope(task=G[1].key), set()),
    ],
    ids=lambda value: ",".join(sorted(value)) if isinstance(value, set) else str(value),
)
def test_a_scope_means_what_it_says(scope: Scope, again: set[str]) -> None:
    b = held({0: Category.SOURCE_NOT_PUBLISHED, 2: Category.BAD_IMAGE_FORMAT})
    request = b.submit("p")
    b.rounds(8)
    b.broken.clear()
    ran = len(b.ran)
    retrying.retry(b.runtime, request, scope)
    retrying.retry(b.runtime, request, scope)  # asked for twice, done once
    b.rounds(8)
    assert {NAMES[key] for key in b.ran[ran:] if key in NAMES} == again
    assert b.row(request).retry_orders == ()
    b.held = False
    complete = again == {"g0", "g2"}
    ended = b.until_ended(request)
    assert ended.state is (RequestState.COMPLETE if complete else RequestState.GAPS)
    assert made_over(b, request) >= {f"a {1 + ('g0' in again)}", "last 1"}
    assert {gap.what for gap in ended.gaps} == {"g0", "g2"} - again


def test_a_gap_is_tried_again_by_its_cause() -> None:
    b = held({0: Category.BAD_IMAGE_FORMAT, 1: Category.BAD_IMAGE_FORMAT})
    request = b.submit("a")
    b.rounds(8)
    assert interests(b, request)[A.key].outcome == "gap"
    b.broken.clear()
    retrying.retry(b.runtime, request, Scope(category=Category.UPSTREAM_FAILED))
    b.held = False
    assert b.until_ended(request).state is RequestState.COMPLETE


def test_every_running_request_that_shares_it_gains_by_it() -> None:
    b = held(ABSENT)
    first, second = b.submit("p"), b.submit("a", owner="other")
    b.rounds(8)
    b.broken.clear()
    retrying.retry(b.runtime, first, Scope())
    b.held = False
    assert b.until_ended(first).state is RequestState.COMPLETE
    assert b.until_ended(second).state is RequestState.COMPLETE
    assert b.ran.count(G[0].key) == 2


def test_what_another_request_had_made_since_is_taken() -> None:
    b = held(ABSENT)
    first = b.submit("p")
    b.rounds(8)
    b.broken.clear()
    b.submit("a", owner="other")  # its new interests revive g0 and a
    b.rounds(8)
    assert interests(b, first)[A.key].outcome == "superseded"
    ran = len(b.ran)
    retrying.retry(b.runtime, first, Scope())
    b.rounds(4)
    assert interests(b, first)[A.key].outcome == "done"
    assert set(b.ran[ran:]) == {TOP.key}
    b.held = False
    assert b.until_ended(first).state is RequestState.COMPLETE


def test_an_ended_request_is_tried_again_by_another_of_the_same_document() -> None:
    b = held(ABSENT)
    b.held = False
    request = b.submit("p")
    ended = b.until_ended(request)
    assert ended.state is RequestState.GAPS
    ran = len(b.ran)
    again = retrying.retry(b.runtime, request, Scope())
    assert again.id != request
    assert (again.retry_of, again.owner, again.document) == (request, "owner", ended.document)
    assert retrying.retry(b.runtime, request, Scope()).id == again.id
    assert b.until_ended(again.id).state is RequestState.GAPS
    b.broken.clear()
    third = retrying.retry(b.runtime, request, Scope())
    assert third.retry_of == again.id
    assert b.until_ended(third.id).state is RequestState.COMPLETE
    assert b.ran[ran:].count(G[0].key) == 2
    assert set(b.ran[ran:]) == {G[0].key, A.key, TOP.key}
    assert b.row(request).state is RequestState.GAPS  # it ended once
    assert retrying.retry(b.runtime, request, Scope()).id == third.id
    complete = b.submit("a", owner="other")
    b.until_ended(complete)
    with pytest.raises(NothingToRetryError, match="nothing failed"):
        retrying.retry(b.runtime, complete, Scope())


def test_a_retry_of_an_ended_request_survives_a_crash_before_it_is_stored() -> None:
    b = held(ABSENT)
    b.held = False
    request = b.submit("p")
    b.until_ended(request)
    request_operations.change_request(
        b.runtime, request, lambda row: replace(row, retried_as="named")
    )
    assert retrying.retry(b.runtime, request, Scope()).id == "named"


def test_a_request_that_is_to_be_cancelled_tries_nothing_again() -> None:
    b = held(ABSENT)
    request = b.submit("p")
    b.rounds(8)
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    with pytest.raises(NothingToRetryError, match="is being cancelled"):
        retrying.retry(b.runtime, request, Scope())
    assert b.row(request).retry_orders == ()
    assert b.until_ended(request).state is RequestState.CANCELLED


def test_a_request_does_not_end_before_its_order_is_obeyed() -> None:
    b = held(ABSENT)
    request = b.submit("p")
    b.rounds(8)
    b.broken.clear()
    b.held = False
    b.work()  # all has ended, and the manager has not heard of it
    retrying.retry(b.runtime, request, Scope())
    assert b.until_ended(request).state is RequestState.COMPLETE


def test_too_many_orders_are_refused() -> None:
    b = held({})
    request = b.submit("p")
    for number in range(retrying.MOST_ORDERS):
        retrying.retry(b.runtime, request, Scope(task=f"{number:064x}"))
    with pytest.raises(retrying.TooManyOrdersError, match="retry all of it"):
        retrying.retry(b.runtime, request, Scope())


class Breaking:
    """A store whose write number `at` takes effect or not, and then fails with all that follow."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.at = -1
        self.lands = False
        self.count = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        return self._inner.get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        return self._inner.scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self.count += 1
        if 0 <= self.at < self.count:
            if self.lands and self.count == self.at + 1:
                self._inner.transact(table, partition, operations)
            raise StoreError("the manager dies here")
        return self._inner.transact(table, partition, operations)


@pytest.mark.slow
@pytest.mark.parametrize("lands", [False, True])
def test_a_manager_that_dies_at_any_write_leaves_nothing_undone(lands: bool) -> None:
    at = 0
    while True:
        b = held(ABSENT)
        request = b.submit("p")
        b.rounds(8)
        b.broken.clear()
        retrying.retry(b.runtime, request, Scope())
        store = b.runtime.store
        breaking = Breaking(store)
        b.runtime = replace(b.runtime, store=breaking)
        b.restart(epoch=1)
        breaking.at, breaking.lands, breaking.count = at, lands, 0
        b.runtime.clock.sleep(2)
        for _ in range(3):
            b.manager.tick()
        died = breaking.count > at
        b.runtime = replace(b.runtime, store=store)
        b.restart(epoch=1)
        b.held = False
        row = b.until_ended(request)
        assert row.state is RequestState.COMPLETE, (at, row.message)
        assert (row.outputs, row.delivered) == (3, 3)
        assert made_over(b, request) == {"a 2", "top 2", "last 1"}
        states = {
            TaskTable(store).task(interest.key) for interest in interests(b, request).values()
        }
        assert {task.state for task in states if task} == {State.DONE}
        if not died:
            assert at > 5
            return
        at += 1


class Stalling(Breaking):
    """A store of which a writer stalls before write number `at`: other things happen then."""

    def __init__(self, inner: Store, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self._meanwhile = meanwhile

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self.count += 1
        if self.count == self.at + 1:
            self._meanwhile()
        return self._inner.transact(table, partition, operations)


def stalls(b: Held, at: int, meanwhile: Callable[[], None]) -> bool:
    """Have a manager act that stalls before its write number `at`, while another that takes over
    goes on from `meanwhile`; then all that is left is done. Whether it wrote so often."""
    stalled = False

    def another() -> None:
        nonlocal stalled
        stalled = True
        meanwhile()
        b.restart(epoch=2)
        b.rounds(8)

    stalling = Stalling(b.runtime.store, another)
    runtime = replace(b.runtime, store=stalling)
    over = Manager(runtime, b.options, b.plan_of_request, b.sent.extend, 1)
    stalling.at, stalling.count = at, 0
    for _ in range(6):
        if not stalled:
            with suppress(FencedError):
                over.tick()
            b.work()
            b.runtime.clock.sleep(1)
    b.held = False
    return stalled


@pytest.mark.slow
@pytest.mark.parametrize("published", [False, True])
def test_a_manager_that_stalls_at_any_write_while_another_tries_again(published: bool) -> None:
    """It plans without what failed, for two requests, when the other takes that back."""
    at, stalled = 0, True
    while stalled:
        b = held(ABSENT)
        b.late = G[0].key
        names = [b.submit("p"), b.submit("p", owner="other")]
        b.rounds(8)
        b.late = ""

        def again(b: Held = b, first: str = names[0]) -> None:
            if published:
                b.broken.clear()
            retrying.retry(b.runtime, first, Scope())

        stalled = stalls(b, at, again)
        for request in names:
            row = b.until_ended(request)
            assert (row.outputs, row.delivered) == (3, 3), at
            ends = RequestState.COMPLETE if published and stalled else RequestState.GAPS
            assert row.state is ends, at
            if published and stalled:
                assert set(interests(b, request)) == {s.key for s in (*G, A, B, TOP, LAST)}, at
        at += 1
    assert at > 10, at


@pytest.mark.slow
def test_a_manager_that_stalls_at_any_write_of_a_retry_while_another_obeys_it() -> None:
    """What it tries again has failed again, and is made without, when it goes on."""
    at, stalled = 0, True
    while stalled:
        b = held(ABSENT)
        names = [b.submit("p"), b.submit("p", owner="other")]
        b.rounds(8)
        retrying.retry(b.runtime, names[0], Scope())
        stalled = stalls(b, at, lambda: None)
        for request in names:
            row = b.until_ended(request)
            assert (row.outputs, row.delivered, row.state) == (3, 3, RequestState.GAPS), at
            assert made_over(b, request) == {"a 1", "top 2", "last 1"}, at
        at += 1
    assert at > 10, at


@pytest.mark.slow
def test_a_manager_that_stalls_at_any_write_of_a_retry_leaves_an_ended_request_as_it_is() -> None:
    """Another obeyed the order, and ended the request with what failed again."""
    at, stalled = 0, True
    while stalled:
        b = held(ABSENT)
        request = b.submit("p")
        b.rounds(8)
        retrying.retry(b.runtime, request, Scope())
        left: list[object] = []

        def shown(b: Held = b, request: str = request) -> list[object]:
            return [*request_operations.failures(b.runtime, request), made_over(b, request), *b.ran]

        def end(b: Held = b, request: str = request, left: list[object] = left) -> None:
            b.held = False
            b.restart(epoch=2)
            assert b.until_ended(request).state is RequestState.GAPS
            left += shown()

        stalled = stalls(b, at, end)
        b.rounds(8)
        assert not stalled or shown() == left, at
        at += 1
    assert at > 10, at


def test_a_fallback_task_goes_only_with_the_task_that_it_replaces() -> None:
    """Another request had the task itself begun again since, and it failed."""
    b = held(ABSENT)
    first = b.submit("p")
    b.rounds(8)
    assert interests(b, first)[TOP.key].outcome is TaskOutcome.SUPERSEDED
    b.broken = {TOP.key: Category.BAD_IMAGE_FORMAT}
    b.submit("p", owner="other")
    b.rounds(8)
    task = b.runtime.tasks.task(TOP.key)
    assert task is not None
    assert (task.state, task.category) == (State.FAILED, Category.BAD_IMAGE_FORMAT)
    retrying.retry(b.runtime, first, Scope())
    b.rounds(8)
    b.held = False
    row = b.until_ended(first)
    assert interests(b, first)[TOP.key].outcome is TaskOutcome.FAILED
    assert (row.outputs, row.delivered, row.state) == (3, 2, RequestState.GAPS)


class StallingAtFence(Breaking):
    """A store of which a reader stalls before it reads a write fence for the first time."""

    def __init__(self, inner: Store, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], None] | None = meanwhile

    def get(self, table: str, partition: str, row: str) -> Row | None:
        if row.startswith("p|") and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().get(table, partition, row)


def acts(b: Held, store: Store, epoch: int) -> None:
    """Have a manager act over a store of its own for some rounds, or until it is fenced."""
    runtime = replace(b.runtime, store=store)
    with suppress(FencedError, StoreError):
        manager = Manager(runtime, b.options, b.plan_of_request, b.sent.extend, epoch)
        for _ in range(3):
            manager.tick()
            b.work()
            b.runtime.clock.sleep(1)


def test_a_manager_that_stalls_before_it_reads_the_fence_plans_nothing_over_again() -> None:
    """The manager before it had named the fallback task; the one after it takes that back."""
    at, died, stalled = 0, True, 0
    while died:
        b = held(ABSENT)
        b.late = G[0].key
        request = b.submit("p")
        b.rounds(8)
        b.late = ""
        breaking = Breaking(b.runtime.store)
        breaking.at, breaking.lands = at, True
        acts(b, breaking, epoch=1)
        died = breaking.count > at

        def another(b: Held = b, request: str = request) -> None:
            nonlocal stalled
            stalled += 1
            b.restart(epoch=3)
            b.rounds(8)
            b.broken.clear()
            retrying.retry(b.runtime, request, Scope())
            b.rounds(8)

        acts(b, StallingAtFence(b.runtime.store, another), epoch=2)
        b.restart(epoch=3)
        b.held = False
        row = b.until_ended(request)
        assert (row.outputs, row.delivered) == (3, 3), at
        live = [task for spec in (A, B, TOP) if (task := b.runtime.tasks.task(spec.key))]
        assert not any(task.state.live for task in live), at
        at += 1
    assert at > 10, at
    assert stalled > 5, stalled


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ({"category": "server busy", "task": "0" * 64}, "one of them"),
        ({"task": "xyz"}, "not a task key"),
        ({"category": "busy"}, "server busy"),
    ],
)
def test_a_scope_that_is_none_is_refused(named: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Scope.of(**named)
    for scope in (Scope(), Scope(category=Category.UNKNOWN), Scope(task="0" * 64)):
        assert Scope.parse(str(scope)) == scope


@pytest.mark.parametrize(("asked", "after"), [(3600.0, 3600.0), (1e9, 21_600.0)])
def test_a_server_gets_the_pause_it_asks_for_up_to_hours(asked: float, after: float) -> None:
    b = Bench(plans={"p": plan_of(G[4], LAST, outputs={"last": "o"})})
    request = b.submit("p")
    times: list[float] = []
    while not b.row(request).state.ended:
        b.manager.tick()
        keys, b.sent[:] = list(b.sent), []
        for key in keys:
            claimed = protocol.claim(b.runtime, key, "worker", b.options.retry)
            assert claimed is not None
            now = b.runtime.clock.now()
            times.append(now)
            busy = claimed.attempt(
                started=now, ended=now, duration=1.0, category=Category.SERVER_BUSY, message="busy"
            )
            protocol.fail(b.runtime, busy, b.options.retry, asked=asked)
        b.runtime.clock.sleep(60.0)
    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert len(pauses) == b.options.retry.budget - 1
    assert all(after <= pause < after + 200 for pause in pauses)


def test_orders_that_another_manager_obeyed_are_not_obeyed_again() -> None:
    """The answer to its last write was lost, say, and what this one remembers is out of date."""
    b = held(ABSENT)
    request = b.submit("p")
    b.rounds(8)
    live = b.manager.cache.requests[request]
    retrying.retry(b.runtime, request, Scope())
    ordered = request_operations.load(b.runtime, request)
    b.rounds(8)
    before = interests(b, request)
    live.row = ordered
    assert list(b.manager._lifecycle._retrying.batches(live)) == []
    assert live.row.retry_orders == ()
    assert interests(b, request) == before


A_GRANULE, B_GRANULE = collect("a"), collect("b")
CELL = mosaic("cell", A_GRANULE, B_GRANULE)


def retries(scene: Scene) -> Retrying:
    dispatch = one_place(window=8, resend=30.0)
    find = scene.cache.requests.get
    return Retrying(scene.runtime, scene.cache, dispatch, scene.dependents, find, Mock())


def a_cell(category: Category | None = Category.BAD_IMAGE_FORMAT) -> Scene:
    """A cell over two granules, of which the first has failed, before any event is processed."""
    scene = Scene()
    scene.request("r")
    for spec in (A_GRANULE, B_GRANULE):
        scene.write(spec)
    scene.write(CELL, over=[A_GRANULE, B_GRANULE])
    scene.run(A_GRANULE, category)
    scene.run(B_GRANULE)
    return scene


def ordered(scene: Scene) -> Live:
    """Store an order to try everything again."""
    live = scene.cache.requests["r"]
    row = replace(live.row, retry_orders=(str(Scope()),), document=dump_request(document("p")))
    operations = request_table.insert_request(row)
    scene.store.transact(request_table.TABLE, request_table.PARTITION, operations)
    return live


def test_a_dependent_that_was_about_to_be_superseded_waits_again() -> None:
    """The manager before ended when it had noted that an input is lacking, and no further."""
    scene = a_cell()
    told, bad = TaskOutcome.FAILED, Category.BAD_IMAGE_FORMAT
    failed = replace(scene.recorded("r", A_GRANULE), outcome=told, category=bad)
    scene.tasks.transact(A_GRANULE.key[0], [task_table.put_interest(failed)])
    live = ordered(scene)
    live.note(failed)
    scene.change(CELL, lambda task: transitions.inputs_ended(task, 3, 1))
    list(retries(scene).batches(live))
    assert (scene.task(CELL).state, scene.task(CELL).missing) == (State.WAITING, 1)
    assert scene.task(A_GRANULE).state is State.READY


def test_an_input_that_was_lost_is_made_again_for_a_retry() -> None:
    """Nobody would report its end: it is neither there nor under way."""
    scene = a_cell()
    scene.process()
    (file,) = scene.task(B_GRANULE).files
    protocol.lose(scene.runtime, B_GRANULE.key, file.blob)
    list(retries(scene).batches(ordered(scene)))
    assert (scene.task(CELL).state, scene.task(CELL).missing) == (State.WAITING, 3)
    assert scene.task(A_GRANULE).state is scene.task(B_GRANULE).state is State.READY


@pytest.mark.parametrize(("members", "bits"), [((), (0, 1)), ((A_GRANULE.key,), (1, 0))])
def test_an_input_that_failed_lacks_unless_it_is_tried_again(
    members: tuple[str, ...], bits: tuple[int, int]
) -> None:
    scene = a_cell()
    assert retries(scene)._inputs(CELL.key, frozenset(members)) == bits


OVER_CELL = mosaic("top", CELL)


def a_top() -> tuple[Scene, str, str]:
    """A mosaic over a cell that lacks a granule, and the fallback tasks of the cell and of it."""
    scene = a_cell()
    scene.write(OVER_CELL, over=[CELL])
    scene.process()
    scene.process()
    fallback, over = scene.recorded("r", CELL).fallback, scene.recorded("r", OVER_CELL).fallback
    assert fallback
    assert over
    return scene, fallback, over


def test_what_was_planned_over_a_fallback_task_stays_where_its_own_task_is_superseded() -> None:
    """Another manager has planned it again, between the retry of its task and of the cell."""
    scene, fallback, over = a_top()
    cell = replace(scene.recorded("r", CELL), fallback="")
    scene.change(CELL, lambda task: transitions.retry(task, [cell], 1))
    retries(scene)._drop(scene.cache.requests["r"], fallback, CELL.key)
    assert scene.tasks.interest("r", fallback) is None
    assert scene.tasks.interest("r", over) is not None


def test_a_fallback_task_goes_with_all_that_was_planned_over_it() -> None:
    scene, fallback, over = a_top()
    for spec in (CELL, OVER_CELL):  # both wait again, and `top` names no fallback task any more
        interest = replace(scene.recorded("r", spec), fallback="")
        scene.change(spec, lambda t, w=interest: transitions.retry(t, [w], 1))  # type: ignore[misc]
    retries(scene)._drop(scene.cache.requests["r"], fallback, CELL.key)
    for key in (fallback, over):
        assert scene.tasks.interest("r", key) is None
        assert scene.task(key).state is State.CANCELLED
        assert key not in scene.cache.requests["r"].ledger


def test_a_fallback_task_that_was_planned_anew_stays() -> None:
    scene = a_cell()
    scene.process()
    fallback = scene.recorded("r", CELL).fallback
    retries(scene)._drop(scene.cache.requests["r"], fallback, CELL.key)
    assert scene.tasks.interest("r", fallback) is not None


def test_who_is_about_to_supersede_a_task_that_is_tried_again_has_to_read_it_again() -> None:
    scene = a_cell()
    before = scene.task(CELL)
    assert not retries(scene)._superseded(CELL.key)
    after = scene.task(CELL)
    assert after == replace(before, etag=after.etag)
    assert after.etag != before.etag


def test_who_is_about_to_write_a_fallback_task_that_is_withdrawn_is_refused() -> None:
    scene = a_cell()
    shard = CELL.key[0]
    guard = write_fence.passing(scene.tasks, shard, "r")
    retries(scene)._drop(scene.cache.requests["r"], CELL.key[0] + "f" * 63, CELL.key)
    with pytest.raises(ConflictError):
        scene.tasks.transact(shard, [guard])


def test_an_order_that_comes_while_others_are_obeyed_is_obeyed_after_them() -> None:
    scene = a_cell()
    scene.process()
    live = ordered(scene)
    obeying = retries(scene).batches(live)
    next(obeying)
    late = str(Scope(category=Category.BAD_IMAGE_FORMAT))

    def order(row: RequestRow) -> RequestRow:
        return replace(row, retry_orders=(*row.retry_orders, late))

    request_operations.change_request(scene.runtime, "r", order)
    for _ in obeying:
        pass
    assert live.row.retry_orders == (late,)
    assert request_operations.load(scene.runtime, "r").retry_orders == (late,)
