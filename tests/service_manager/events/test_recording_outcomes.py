"""What a completion event records in the interests, in which transactions, and what stays of it."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from service_manager.events import completion_events
from service_manager.events.completion_events import CompletionEvents
from tasks.bag import (
    history,
    protocol,
    task_table,
    transitions,
)
from tasks.bag.categories import Category
from tasks.bag.model import RequestState, TaskOutcome
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import shard
from tasks.bag.transitions import RetryPolicy
from tasks.errors import ConflictError, StoreError
from tasks.requests import request_table
from tasks.requests.request_table import REQUEST, RequestRow, request_row
from tasks.storage.store import Delete, Insert, MergeEntity, Operation, Replace, Row
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import collect, mosaic, reduction

MANY = sorted((collect(f"g{i}") for i in range(400)), key=lambda spec: spec.key)
A, B = MANY[0], MANY[-1]
CELL = mosaic("cell", A)
BAD = Category.BAD_IMAGE_FORMAT


def alike(number: int) -> list[CollectSpec]:
    """So many granules of one shard."""
    return [spec for spec in MANY if shard(spec.key) == shard(A.key)][:number]


def written(scene: Scene, table: str = task_table.TABLE) -> list[Sequence[Operation]]:
    """The transactions on a table from now on."""
    found: list[Sequence[Operation]] = []

    def note(one: str, operations: Sequence[Operation]) -> None:
        if one == table:
            found.append(operations)

    scene.store.before = note
    return found


def once(scene: Scene, is_it: Callable[[Operation], bool], do: Callable[[], None]) -> None:
    """Have something happen before the first transaction with such an operation."""

    def before(_table: str, operations: Sequence[Operation]) -> None:
        if any(map(is_it, operations)):
            scene.store.before = lambda _table, _operations: None
            do()

    scene.store.before = before


def withdraw(scene: Scene, request: str, spec: CollectSpec = A) -> None:
    """Delete an interest's row, which the task's row still names."""
    row = task_table.interest_row(request, spec.key)
    scene.tasks.transact(shard(spec.key), [Delete(row=row)])


# --- what is recorded ---


def test_a_success_is_recorded_with_its_files_in_one_transaction(scene: Scene) -> None:
    live = scene.cache.requests["r"]
    scene.write(A)
    scene.run(A)
    transactions = written(scene)
    assert not scene.process().more
    assert len(transactions) == 1
    found = scene.recorded("r", A)
    assert (found.outcome, found.files) == (TaskOutcome.DONE, scene.task(A).files)
    assert (found.category, found.message, found.stopped) == (None, "", False)
    assert live.unsure == set()


def test_a_failure_is_recorded_with_its_category_and_what_was_said(scene: Scene) -> None:
    scene.write(A)
    claimed = scene.claim(A)
    attempt = claimed.attempt(started=1.0, ended=2.0, duration=1.0, category=BAD, message="cut off")
    assert protocol.fail(scene.runtime, attempt, RetryPolicy(budget=1))
    scene.process()
    found = scene.recorded("r", A)
    assert (found.outcome, found.category, found.message) == (TaskOutcome.FAILED, BAD, "cut off")
    assert not found.stopped


def test_what_is_stopped_without_an_attempt_says_so(scene: Scene) -> None:
    scene.write(A)
    scene.change(A, lambda task: transitions.stop(task, BAD, "reason", "said"))
    assert scene.process().ended == []
    found = scene.recorded("r", A)
    assert (found.outcome, found.stopped, found.message) == (TaskOutcome.FAILED, True, "said")


def test_a_task_without_any_input_is_a_gap_and_was_not_stopped(scene: Scene) -> None:
    scene.write(A)
    scene.write(CELL, over=[A])
    scene.run(A, BAD)
    scene.process()
    scene.process()
    assert scene.task(CELL).category is Category.UPSTREAM_FAILED
    found = scene.recorded("r", CELL)
    assert (found.outcome, found.stopped) == (TaskOutcome.GAP, False)


def test_the_event_of_an_attempt_that_was_tried_again_tells_no_outcome(scene: Scene) -> None:
    """Though the task has failed since: what its last attempt said counts."""
    run = reduction(1, A)
    scene.write(A)
    scene.run(A)
    scene.write(run)
    scene.run(run, Category.CANCELLED, RetryPolicy())
    scene.run(run, BAD)
    scene.process()
    assert scene.cache.requests["r"].run_failures == {(BAD, "")}


def test_requests_that_are_in_memory_are_told_after_one_that_is_not(scene: Scene) -> None:
    scene.write(A, "unread", "r")
    scene.run(A)
    scene.process()
    for request in ("unread", "r"):
        assert scene.recorded(request, A).outcome is TaskOutcome.DONE


def test_an_interest_that_another_manager_wrote_is_told(scene: Scene) -> None:
    scene.write(A)
    scene.cache.requests["r"].forget(A.key)
    scene.run(A)
    scene.process()
    assert scene.recorded("r", A).outcome is TaskOutcome.DONE


@pytest.mark.parametrize("known", [True, False])
def test_an_interest_that_is_gone_is_not_told(scene: Scene, known: bool) -> None:
    """The others of the task are, and its event goes."""
    live = scene.request("gone")
    scene.write(A, "r", "gone")
    scene.run(A, BAD)
    withdraw(scene, "gone")
    if not known:
        live.forget(A.key)
    assert not scene.process().more
    assert scene.recorded("r", A).outcome is TaskOutcome.FAILED
    assert scene.tasks.interest("gone", A.key) is None
    assert scene.left(A) == []
    assert scene.cache.requests["r"].ledger.get(A.key).outcome is TaskOutcome.FAILED  # type: ignore[union-attr]


def test_an_interest_that_is_gone_of_a_request_that_is_not_in_memory_costs_no_write(
    scene: Scene,
) -> None:
    scene.write(A, "r", "unread")
    scene.run(A)
    withdraw(scene, "unread")
    transactions = written(scene)
    scene.process()
    assert len(transactions) == 1
    assert scene.recorded("r", A).outcome is TaskOutcome.DONE


@pytest.mark.parametrize(
    ("had", "files", "told"),
    [
        (TaskOutcome.DONE, "the same", False),
        (TaskOutcome.DONE, "others", True),
        (TaskOutcome.FAILED, "others", False),
    ],
)
def test_an_ended_request_hears_only_of_files_that_were_made_again(
    had: TaskOutcome, files: str, told: bool
) -> None:
    scene = Scene()
    scene.write(A)
    scene.run(A)
    listed = scene.task(A).files if files == "the same" else ()
    before = task_table.record_outcome("r", A.key, had, message="as it was", files=listed)
    scene.tasks.transact(shard(A.key), [before])
    scene.process()
    found = scene.recorded("r", A)
    assert (found.message != "as it was") is told
    assert found.outcome is had
    assert scene.left(A) == []


# --- how it is written ---


def test_many_events_share_transactions_as_large_as_there_may_be(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_events, "BATCH_OPERATIONS", 4)
    specs = alike(5)  # two operations each
    for spec in specs:
        scene.write(spec)
        scene.run(spec)
    transactions = written(scene)
    scene.process()
    assert [len(one) for one in transactions] == [4, 4, 2]
    assert all(scene.recorded("r", spec).outcome is TaskOutcome.DONE for spec in specs)


def test_two_events_of_a_task_are_written_one_after_the_other(scene: Scene) -> None:
    scene.write(A)
    scene.run(A, Category.CANCELLED, RetryPolicy())
    scene.run(A)
    event = task_table.wait_event(scene.task(A))
    scene.tasks.transact(shard(A.key), [event])
    transactions = written(scene)
    scene.process()
    rows = [[one.row for one in some] for some in transactions]
    assert all(len(set(some)) == len(some) for some in rows)
    assert len(rows) == 2
    assert scene.left(A) == []


@pytest.mark.parametrize("category", [None, BAD])
def test_a_task_of_very_many_requests_is_told_in_parts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, category: Category | None
) -> None:
    monkeypatch.setattr(completion_events, "BATCH_OPERATIONS", 5)
    requests = ["r", *(f"r{i}" for i in range(6))]
    for one in requests[1:]:
        scene.request(one)
    scene.write(A, *requests)
    scene.run(A, category)
    transactions = written(scene)
    assert not scene.process().more
    assert max(map(len, transactions)) <= 5
    assert category or [len(one) for one in transactions] == [4, 4, 2]
    for some in transactions:
        told = [one for one in some if isinstance(one, MergeEntity) and "outcome" in one.entity]
        fenced = any(isinstance(one, Replace) for one in some)
        assert fenced or not (category and told)  # a failure only over the task as it is
    for one in requests:
        outcome = TaskOutcome.FAILED if category else TaskOutcome.DONE
        assert scene.recorded(one, A).outcome is outcome
    assert scene.left(A) == []


def test_an_event_that_is_kept_is_written_once(scene: Scene) -> None:
    """It notes that its attempt is counted; and it goes when it is kept no more."""
    scene.write(A)
    scene.run(A)
    scene.write(CELL)
    claimed = scene.claim(CELL)
    missing = Category.SOURCE_BLOB_MISSING
    attempt = claimed.attempt(started=1.0, ended=2.0, duration=1.0, category=missing)
    assert protocol.fail(scene.runtime, attempt, RetryPolicy(), healing=1)
    scene.cache.retrying.add("r")
    scene.process()
    (kept,) = [one for one in scene.tasks.events(shard(CELL.key), 10) if one.key == CELL.key]
    assert kept.counted
    transactions = written(scene)
    assert scene.process().ended == []
    assert transactions == []
    scene.cache.retrying.discard("r")
    scene.process()
    assert scene.left(CELL) == []


@pytest.mark.parametrize("kept", [True, False])
def test_the_end_of_an_event_is_written_though_an_interest_is_gone(
    scene: Scene, kept: bool
) -> None:
    scene.request("gone")
    scene.write(A, "gone", "r")
    scene.run(A, BAD)
    withdraw(scene, "gone")
    if kept:
        scene.cache.retrying.add("r")
    scene.process()
    assert scene.recorded("r", A).outcome is TaskOutcome.FAILED
    events = scene.tasks.events(shard(A.key), 10)
    assert [one.counted for one in events] == [True] * kept


def test_what_another_manager_did_with_an_event_is_read(scene: Scene) -> None:
    live = scene.cache.requests["r"]
    scene.write(A)
    scene.run(A)
    (event,) = scene.tasks.events(shard(A.key), 1)

    def other() -> None:
        done = task_table.record_outcome("r", A.key, TaskOutcome.DONE)
        scene.tasks.transact(shard(A.key), [done, Delete(row=event.row)])

    once(scene, lambda one: one.row == event.row, other)
    assert scene.process().more
    assert live.ledger.get(A.key).outcome is TaskOutcome.DONE  # type: ignore[union-attr]
    assert not scene.events.run().more


@pytest.mark.parametrize("change", ["the event is gone", "the task was revived"])
def test_what_changes_between_two_interests_is_read(scene: Scene, change: str) -> None:
    live = scene.request("late")
    scene.request("gone")
    scene.write(A, "r", "gone", "late")
    scene.run(A, BAD)
    (event,) = scene.tasks.events(shard(A.key), 1)
    withdraw(scene, "gone")
    row = task_table.interest_row("late", A.key)
    seen: list[int] = []

    def before(_table: str, operations: Sequence[Operation]) -> None:
        if any(isinstance(one, MergeEntity) and one.row == row for one in operations):
            seen.append(len(operations))
            if len(seen) == 3:  # after the batch, and after its record: each by itself
                if change == "the event is gone":
                    scene.tasks.transact(shard(A.key), [Delete(row=event.row)])
                else:
                    interest = scene.recorded("r", A)
                    scene.change(A, lambda task: transitions.retry(task, [interest], 0))

    scene.store.before = before
    scene.process()
    assert len(seen) >= 3
    assert live.ledger.get(A.key).outcome is None  # type: ignore[union-attr]
    assert scene.recorded("late", A).outcome is None


def test_an_outcome_whose_writing_was_not_answered_is_read_again(scene: Scene) -> None:
    live = scene.cache.requests["r"]
    scene.write(A)
    scene.run(A)
    scene.store.lost = [task_table.TABLE]
    with pytest.raises(StoreError):
        scene.process()
    assert live.ledger.get(A.key).outcome is None  # type: ignore[union-attr]
    assert live.unsure == {A.key}
    scene.process()
    assert live.ledger.get(A.key).outcome is TaskOutcome.DONE  # type: ignore[union-attr]
    assert live.unsure == set()


def test_a_failed_run_is_known_by_what_it_said(scene: Scene) -> None:
    run = reduction(1, A)
    scene.write(A)
    scene.run(A)
    scene.write(run)
    scene.run(run, BAD)
    scene.process()
    assert scene.cache.requests["r"].run_failures == {(BAD, "")}


# --- which events are read ---


def test_attempts_that_ended_or_were_given_back_are_named_once(scene: Scene) -> None:
    for spec in (A, B, MANY[100], MANY[300]):
        scene.write(spec)
    for spec in (A, B):
        scene.run(spec)
    for spec in (MANY[100], MANY[300]):
        claim = scene.claim(spec).claim
        scene.change(spec, lambda task, claim=claim: transitions.give_back(task, claim))  # type: ignore[misc]
    found = scene.process()
    assert [one.key for one in found.ended] == [A.key, B.key]
    assert [one.key for one in found.returned] == [MANY[100].key, MANY[300].key]
    assert not found.more
    again = scene.process()
    assert (again.ended, again.returned, again.ready) == ([], [], [])


def test_all_tasks_that_become_ready_are_named(scene: Scene) -> None:
    """Those that are told of an input, and those whose inputs are looked at."""
    waiting = [mosaic(f"waiting {number}", B) for number in range(2)]
    told = mosaic("told", A)
    for spec in (A, B):
        scene.write(spec)
    scene.run(B)
    scene.process()
    scene.write(told, over=[A])
    for one in waiting:
        created = transitions.create(one, scene.interest("r", one), 1)
        event = task_table.wait_event(created.task)
        scene.tasks.transact(shard(one.key), [*created.operations, event])
    scene.run(A)
    assert {one.key for one in scene.process().ready} == {one.key for one in (told, *waiting)}


def test_shards_that_get_events_by_a_round_are_read_in_the_next(scene: Scene) -> None:
    """Of tasks without any input left, told by the input or found by a look."""
    told, looked = mosaic("told", A), mosaic("looked at", B)
    for spec in (A, B):
        scene.write(spec)
    scene.run(B, BAD)
    scene.process()
    scene.write(told, over=[A])
    created = transitions.create(looked, scene.interest("r", looked), 1)
    event = task_table.wait_event(created.task)
    scene.tasks.transact(shard(looked.key), [*created.operations, event])
    scene.run(A, BAD)
    scene.process()
    scene.events.run()
    for one in (told, looked):
        assert scene.recorded("r", one).outcome is TaskOutcome.GAP


def test_shards_without_events_are_not_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.process()

    def none(*_: object, **__: object) -> None:
        raise AssertionError("read")

    monkeypatch.setattr(scene.store, "scan", none)
    assert not scene.events.run().more


def test_so_many_events_are_read_at_once_and_the_next_after_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_events, "ROWS", 3)
    scene.request("planned", RequestState.WRITING)
    *kept, last = alike(6)
    for spec in kept:
        scene.write(spec, "planned")
        scene.link(spec, CELL)
        scene.run(spec)
    scene.write(last)
    scene.run(last)
    assert scene.process().more
    scene.events.run()
    assert scene.recorded("r", last).outcome is TaskOutcome.DONE


def test_of_several_shards_no_more_is_read_than_the_statistics_name(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.process()
    monkeypatch.setattr(completion_events, "_TOGETHER", 5)
    elsewhere = [spec for spec in MANY if shard(spec.key) == shard(B.key)][:3]
    for spec in (*alike(3), *elsewhere):
        scene.write(spec)
        scene.run(spec)
    scene.events.notice([shard(A.key), shard(B.key)])
    first = scene.events.run()
    assert [one.key for one in first.ended] == [
        *(spec.key for spec in alike(2)),
        *(spec.key for spec in elsewhere[:2]),
    ]
    assert first.more
    assert len(scene.events.run().ended) == 2


# --- statistics ---


def counted(scene: Scene) -> int:
    return sum(one.count for one in history.class_statistics(scene.store).values())


def test_attempts_are_counted_in_as_few_transactions_as_can_be(scene: Scene) -> None:
    """Those that have rows in common, as here all have, need no more of a transaction than one."""
    some = MANY[:205]
    for spec in some:
        scene.write(spec)
        scene.run(spec)
    transactions = written(scene, history.TABLE)
    scene.process()
    assert [len(operations) for operations in transactions] == [6, 6, 6]
    assert counted(scene) == len(some)


def test_what_counts_the_attempts_of_a_round_is_read_together(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def together(read: Callable[[str], Row | None], names: Iterable[str]) -> list[Row | None]:
        asked.append(list(names))
        return [read(name) for name in asked[-1]]

    scene.events = CompletionEvents(
        scene.runtime, scene.cache, scene.dependents, 1, together=together
    )
    for spec in MANY[:120]:
        scene.write(spec)
        scene.run(spec)
    read: list[str] = []
    get = scene.store.get

    def watched(table: str, partition: str, row: str) -> Row | None:
        if table == history.TABLE:
            read.append(row)
        return get(table, partition, row)

    monkeypatch.setattr(scene.store, "get", watched)
    scene.process()
    assert [len(names) for names in asked] == [5]  # class, day, owner, worker and request
    assert sorted(read) == sorted([*asked[0], history.CURSOR])


def test_a_count_is_tried_again_a_few_times(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    original = history.count

    def count(*given: object, **more: object) -> None:
        tries.append(1)
        if len(tries) < refused:
            raise ConflictError("another's count came first")
        original(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(history, "count", count)
    scene.write(A)
    scene.run(A)
    refused = 100
    with pytest.raises(ConflictError):
        scene.process()
    assert len(tries) == 5
    tries.clear()
    refused = 5
    scene.process()
    assert counted(scene) == 1


def test_what_the_manager_before_counted_stays_known_until_it_was_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = alike(3)
    scene.write(third)
    scene.run(third)

    def ends(table: str, _operations: Sequence[Operation]) -> None:
        if table == task_table.TABLE:
            raise StoreError("the manager ends here")

    scene.store.before = ends
    with pytest.raises(StoreError):
        scene.process()
    scene.store.before = lambda _table, _operations: None
    for spec in (first, second):
        scene.write(spec)
        scene.run(spec)
    after = Scene(store=scene.store, cache=scene.cache, epoch=2)
    monkeypatch.setattr(completion_events, "ROWS", 1)
    after.process()
    while after.events.run().more:
        pass
    assert counted(scene) == 3


@pytest.mark.parametrize("known", [True, False])
def test_the_owner_of_a_request_that_is_not_in_memory_is_read(known: bool) -> None:
    scene = Scene()
    if known:
        row = RequestRow(id="r", owner="somebody", state=RequestState.RUNNING, submitted=1.0)
        new = Insert(row=request_row("r"), entity=REQUEST.dump(row))
        scene.store.transact(request_table.TABLE, request_table.PARTITION, [new])
    scene.write(A)
    scene.run(A)
    scene.process()
    assert scene.events._owner("r") == ("somebody" if known else "")
