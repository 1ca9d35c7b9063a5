"""What the manager makes of completion events: each counted once, told once, kept while needed."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

import pytest

from service_manager.events import completion_events
from tasks.bag import history, task_table, transitions
from tasks.bag.categories import Category
from tasks.bag.model import RequestState, State, TaskOutcome
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import shard
from tasks.bag.transitions import RetryPolicy
from tasks.errors import FencedError, StoreError
from tasks.storage.store import Delete, MergeEntity, Operation
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import collect, mosaic

MANY = sorted((collect(f"g{i}") for i in range(400)), key=lambda spec: spec.key)
A, B = MANY[0], MANY[-1]
CELL = mosaic("cell", A, B)


def alike(number: int) -> list[CollectSpec]:
    """So many granules of one shard."""
    found = [spec for spec in MANY if shard(spec.key) == shard(A.key)]
    assert len(found) >= number
    return found[:number]


def counted(scene: Scene) -> int:
    return sum(one.count for one in history.class_statistics(scene.store).values())


def test_attempts_whose_count_was_not_answered_are_not_counted_again(scene: Scene) -> None:
    """Others are counted before them the next time, and the cursor must still name them."""
    scene.write(B)
    scene.run(B)
    scene.store.lost = [history.TABLE]
    with pytest.raises(StoreError):
        scene.process()
    early = [spec for spec in MANY if spec.key < B.key and shard(spec.key) != shard(B.key)]
    for spec in early[: history.TOGETHER]:
        scene.write(spec)
        scene.run(spec)
    scene.process()
    assert counted(scene) == history.TOGETHER + 1


def test_attempts_whose_events_were_not_deleted_are_not_counted_again(scene: Scene) -> None:
    """Others are counted before them the next time, and the cursor must still name them."""
    scene.write(B)
    scene.run(B)

    def away(_table: str, operations: Sequence[Operation]) -> None:
        if any(isinstance(one, Delete) and one.row.startswith("o|") for one in operations):
            raise StoreError("storage is away")

    scene.store.before = away
    with pytest.raises(StoreError):
        scene.process()
    scene.store.before = lambda _table, _operations: None
    early = [spec for spec in MANY if spec.key < B.key and shard(spec.key) != shard(B.key)]
    for spec in early[: history.TOGETHER]:
        scene.write(spec)
        scene.run(spec)
    scene.process()
    assert counted(scene) == history.TOGETHER + 1


def test_attempts_count_for_the_owner_of_the_request_that_they_ran_for(scene: Scene) -> None:
    scene.write(B)
    scene.run(B)
    scene.process()
    (found,) = history.executions_between(
        scene.store, dt.date(1970, 1, 1), dt.date(1970, 1, 1), owner="owner"
    )
    assert (found.task_class, found.count) == (B.task_class, 1)


def test_a_failure_is_not_processed_while_a_retry_revives(scene: Scene) -> None:
    """Its dependent waits again already: the input comes next, and is not to be made without."""
    scene.write(A)
    scene.write(B)
    scene.write(CELL, over=[A, B])
    scene.run(A, Category.BAD_IMAGE_FORMAT)
    scene.run(B)
    scene.cache.retrying.add("r")
    assert scene.process().more
    assert (scene.task(CELL).missing, scene.task(CELL).lacking) == (1, 0)
    assert scene.left(A)
    scene.cache.retrying.discard("r")
    scene.events.run()  # nobody needs to notice it again
    assert scene.task(CELL).state is State.FAILED
    assert scene.left(A) == []


def test_an_event_that_was_written_again_meanwhile_stays(scene: Scene) -> None:
    scene.write(A)
    scene.write(CELL, over=[A])
    event = task_table.wait_event(scene.task(CELL))
    scene.tasks.transact(shard(CELL.key), [event])

    def again(_table: str, operations: Sequence[Operation]) -> None:
        if any(isinstance(one, Delete) and one.row == event.row for one in operations):
            scene.store.before = lambda _table, _operations: None
            scene.tasks.transact(shard(CELL.key), [event])

    scene.store.before = again
    scene.process()
    assert scene.left(CELL) == [event.row]
    scene.process()
    assert scene.left(CELL) == []


def test_the_end_of_a_back_off_is_known_without_a_sweep(scene: Scene) -> None:
    scene.write(A)
    scene.run(A, Category.SERVER_BUSY, RetryPolicy())
    assert scene.process().later == [(scene.task(A).not_before, A.key)]


@pytest.mark.parametrize("category", [None, Category.BAD_IMAGE_FORMAT])
def test_a_request_that_is_not_in_memory_is_told(category: Category | None) -> None:
    """The manager has just begun to act, and could not read the request yet."""
    scene = Scene()
    scene.write(A)
    scene.run(A, category)
    scene.process()
    assert scene.recorded("r", A).outcome is (TaskOutcome.FAILED if category else TaskOutcome.DONE)
    assert scene.left(A) == []


def test_an_outcome_that_another_manager_cleared_is_told_anew(scene: Scene) -> None:
    """It obeyed a retry while this one stalled, whose memory says that the task has failed."""
    live = scene.cache.requests["r"]
    scene.write(A)
    scene.run(A, Category.BAD_IMAGE_FORMAT)
    scene.process()
    assert live.ledger.get(A.key).outcome is TaskOutcome.FAILED  # type: ignore[union-attr]
    interest = scene.recorded("r", A)
    scene.change(A, lambda task: transitions.retry(task, [interest], 0))
    scene.run(A)
    scene.process()
    assert scene.recorded("r", A).outcome is TaskOutcome.DONE
    assert live.ledger.get(A.key).outcome is TaskOutcome.DONE  # type: ignore[union-attr]


@pytest.mark.parametrize("again", [Category.BAD_IMAGE_FORMAT, None])
def test_an_event_of_an_end_before_a_retry_tells_nothing(
    scene: Scene, again: Category | None
) -> None:
    scene.write(A)
    scene.run(A, Category.BAD_IMAGE_FORMAT)
    interest = scene.recorded("r", A)
    scene.change(A, lambda task: transitions.retry(task, [interest], 0))
    scene.process()
    assert scene.recorded("r", A).outcome is None
    scene.run(A, again)
    scene.process()
    assert scene.recorded("r", A).outcome is (TaskOutcome.FAILED if again else TaskOutcome.DONE)


@pytest.mark.parametrize("gone", [False, True])
def test_a_failure_that_is_written_late_does_not_undo_a_retry(scene: Scene, gone: bool) -> None:
    """Another manager obeys the retry while the write is on its way; the event is as it was."""
    scene.request("other")
    scene.write(A, "r", "other")
    scene.run(A, Category.BAD_IMAGE_FORMAT)
    interest = scene.recorded("r", A)
    row = task_table.record_outcome("r", A.key, TaskOutcome.FAILED).row
    other = task_table.record_outcome("other", A.key, TaskOutcome.FAILED).row

    def retried(_table: str, operations: Sequence[Operation]) -> None:
        if any(isinstance(one, MergeEntity) and one.row == row for one in operations):
            scene.store.before = lambda _table, _operations: None
            if gone:  # so that each interest is written by itself
                scene.tasks.transact(shard(A.key), [Delete(row=other)])
            scene.change(A, lambda task: transitions.retry(task, [interest], 0))

    scene.store.before = retried
    scene.process()
    assert scene.task(A).state is State.READY
    assert scene.recorded("r", A).outcome is None
    assert scene.cache.requests["r"].ledger.get(A.key).outcome is None  # type: ignore[union-attr]
    scene.run(A)
    scene.process()
    assert scene.recorded("r", A).outcome is TaskOutcome.DONE


def test_events_that_have_to_be_kept_do_not_hide_those_after_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_events, "ROWS", 2)
    scene.request("planned", RequestState.WRITING)
    *kept, last = alike(5)
    for spec in kept:
        scene.write(spec, "planned")
        scene.link(spec, CELL)
        scene.run(spec)
    scene.write(last)
    scene.run(last)
    scene.process()
    for _ in range(4):
        scene.events.run()
    assert scene.recorded("r", last).outcome is TaskOutcome.DONE
    assert scene.left(last) == []
    assert all(scene.left(spec) for spec in kept)


def test_an_event_before_where_the_reading_goes_on_is_seen_without_a_sweep(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_events, "ROWS", 2)
    first, *others = alike(5)
    for spec in others:
        scene.write(spec)
        scene.run(spec)
    assert scene.process().more
    scene.write(first)
    scene.run(first)
    scene.events.notice([shard(first.key)])
    for _ in range(4):
        scene.events.run()
    assert scene.recorded("r", first).outcome is TaskOutcome.DONE


@pytest.mark.parametrize("state", [RequestState.WRITING, RequestState.RUNNING])
def test_an_event_waits_for_dependents_only_while_a_plan_is_written(state: RequestState) -> None:
    """The edge is in the transaction of the input, and the dependent in a later one."""
    scene = Scene()
    live = scene.request("r", state)
    scene.write(A)
    scene.link(A, CELL)
    scene.run(A)
    scene.process()
    assert bool(scene.left(A)) is (state is RequestState.WRITING)
    assert live.ledger.get(A.key).outcome is TaskOutcome.DONE  # type: ignore[union-attr]
    assert counted(scene) == 1
    if state is RequestState.RUNNING:
        return
    scene.tasks.transact(
        shard(CELL.key), transitions.create(CELL, scene.interest("r", CELL), 1).operations
    )
    scene.process()
    assert scene.task(CELL).state is State.READY
    live.row = replace(live.row, state=RequestState.RUNNING)
    scene.process()
    assert scene.left(A) == []
    assert counted(scene) == 1


EARLY = [spec for spec in MANY if shard(spec.key) < shard(B.key)][: history.TOGETHER + 5]


def run_early(scene: Scene) -> None:
    """Tasks that are counted before B, in a batch that names B no more."""
    for spec in EARLY:
        scene.write(spec)
        scene.run(spec)


def test_what_is_counted_and_kept_is_not_counted_again() -> None:
    scene = Scene()
    scene.request("r", RequestState.WRITING)
    scene.write(B)
    scene.link(B, CELL)
    scene.run(B)
    scene.process()
    assert scene.left(B)
    run_early(scene)
    scene.process()
    assert counted(scene) == len(EARLY) + 1


def test_a_new_manager_does_not_count_again_what_the_one_before_counted(scene: Scene) -> None:
    """It ended between counting an attempt and deleting its event."""
    scene.write(B)
    scene.run(B)

    def ends(table: str, _operations: Sequence[Operation]) -> None:
        if table == task_table.TABLE:
            raise StoreError("the manager ends here")

    scene.store.before = ends
    with pytest.raises(StoreError):
        scene.process()
    assert counted(scene) == 1
    scene.store.before = lambda _table, _operations: None
    after = Scene(store=scene.store, cache=scene.cache, epoch=2)
    run_early(after)
    after.process()
    assert counted(after) == len(EARLY) + 1


def test_the_cursor_names_only_attempts_whose_events_may_still_exist(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a backlog lasts, too: a property of a row has a limit, and a backlog has none."""
    monkeypatch.setattr(completion_events, "ROWS", 2)
    same = alike(12)
    for spec in same:
        scene.write(spec)
        scene.run(spec)
    named = list[int]()
    while scene.process().more:
        named.append(len(history.load_cursor(scene.store).counted))
    assert counted(scene) == len(same)
    assert len(named) >= len(same) // 2 - 1
    assert max(named) <= 2


def test_a_manager_that_was_followed_counts_no_more_by_what_it_remembers(scene: Scene) -> None:
    scene.write(A)
    scene.run(A)
    scene.process()
    Scene(store=scene.store, cache=scene.cache, epoch=2)
    scene.write(B)
    scene.run(B)
    with pytest.raises(FencedError):
        scene.process()
    assert counted(scene) == 1
