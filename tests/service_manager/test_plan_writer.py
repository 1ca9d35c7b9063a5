"""Writing a plan: the same whatever fails meanwhile, and never past a closed write fence."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from service_manager.plans import write_fence
from service_manager.plans.plan_writer import PlanWriter
from tasks.errors import ConflictError, FencedError, StoreError
from tasks.model.categories import Category
from tasks.model.model import RequestState, State, Task
from tasks.model.spec import Spec
from tasks.model.task_keys import SHARDS
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Operation, Row
from tasks.tables import task_table
from tasks.tables.runtime import Runtime, memory_runtime
from tasks.tables.task_table import TaskTable
from tasks.tables.transitions import Change
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import collect, mosaic, plan_of

MANY = [collect(f"m{i}") for i in range(400)]
TASKS = plan_of(*MANY, *(mosaic(f"t{i}", *MANY[i : i + 3]) for i in range(300))).tasks


class Lossy(MemoryStore):
    """Loses every so manyth answer to a write that took effect; counts calls."""

    def __init__(self, every: int = 0) -> None:
        super().__init__()
        self._every = every
        self.reads = self.writes = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self.reads += 1
        return super().get(table, partition, row)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self.writes += 1
        lost = self._every and self.writes % self._every == 0
        etags = super().transact(table, partition, operations)
        if lost:
            raise StoreError("the answer was lost")
        return etags


def runtime(store: MemoryStore) -> Runtime:
    return replace(memory_runtime(ManualClock()), store=store)


def written(store: MemoryStore) -> list[str]:
    """The keys in the order they were written in."""
    writer = PlanWriter(runtime(store), "r", [TASKS])
    return [task.key for batch in writer.batches() for task, _ in batch.tasks]


def content(store: MemoryStore) -> dict[tuple[str, str], object]:
    return {(row.partition, row.row): row.entity for row in store.tables()[task_table.TABLE]}


def test_lost_answers_change_nothing_of_what_is_written() -> None:
    quiet, lossy = MemoryStore(), Lossy(5)
    keys = written(quiet)
    found = written(lossy)
    assert content(lossy) == content(quiet)
    assert sorted(found) == sorted(keys) == sorted(task.key for task in TASKS)
    place = {key: i for i, key in enumerate(found)}
    assert all(place[given.key] < place[t.key] for t in TASKS for given in t.spec.inputs)


def test_the_gate_is_read_once_in_each_shard() -> None:
    store = Lossy()
    written(store)
    assert store.writes > 2 * len(SHARDS)
    assert store.reads == len(SHARDS)


def test_a_gate_that_closes_in_the_middle_lets_nothing_more_through() -> None:
    store = MemoryStore()
    mine = runtime(store)
    batches = PlanWriter(mine, "r", [TASKS]).batches()
    for _ in range(3 * len(SHARDS)):  # every shard's fence has been passed
        next(batches)
    write_fence.close(mine.tasks, mine.clock, "r")
    before = content(store)
    with pytest.raises(FencedError):
        list(batches)
    assert content(store) == before


def test_who_read_the_gate_before_another_passed_it_writes_nothing() -> None:
    tasks, clock = TaskTable(MemoryStore()), ManualClock()
    change = Change(task=cast(Task, None))
    for _ in range(2):  # before it is first passed, and after
        guard = write_fence.passing(tasks, "0", "r")
        assert write_fence.guarded(tasks, "0", guard, change).operations == (guard,)
        tasks.transact("0", [write_fence.passing(tasks, "0", "r")])
        with pytest.raises(write_fence.FenceChangedError):
            write_fence.guarded(tasks, "0", guard, change)
        with pytest.raises(ConflictError):
            tasks.transact("0", [guard])
    write_fence.close(tasks, clock, "r")
    with pytest.raises(FencedError):
        write_fence.passing(tasks, "0", "r")


A, B = collect("a"), collect("b")
CELL = mosaic("cell", A, B)


def plan(scene: Scene, *sections: Sequence[Spec], request: str = "r") -> PlanWriter:
    return PlanWriter(scene.runtime, request, [plan_of(*some).tasks for some in sections])


def test_an_input_that_another_request_has_running_is_waited_for() -> None:
    scene = Scene()
    scene.request("other")
    for spec in (A, B):
        scene.write(spec, "other")
    scene.run(B)
    scene.claim(A)
    list(plan(scene, [A, B, CELL]).batches())
    assert (scene.task(CELL).state, scene.task(CELL).missing) == (State.WAITING, 1)


def test_an_input_of_a_section_before_that_failed_meanwhile_is_looked_at() -> None:
    """Its event was processed when it had no dependent to wait for."""
    scene = Scene()
    live = scene.request("r", RequestState.WRITING)
    batches = plan(scene, [A, B], [CELL]).batches()
    for _ in range(2):
        next(batches)
    scene.run(A, Category.BAD_IMAGE_FORMAT)
    scene.run(B)
    scene.process()
    assert scene.left(A) == []
    for written in batches:
        for _, interest in written.tasks:
            live.note(interest)
    live.row = replace(live.row, state=RequestState.RUNNING)
    scene.process()
    assert scene.recorded("r", CELL).fallback


def test_a_task_left_waiting_by_ended_requests_is_looked_at_for_the_next() -> None:
    """Its input fails after the plan has seen it run, when no running request has the task."""
    scene = Scene()
    scene.write(A, "ended")
    scene.write(B, "ended")
    scene.write(CELL, "ended", over=[A, B])
    scene.run(B)
    live = scene.request("r", RequestState.WRITING)
    batches = plan(scene, [A, B, CELL]).batches()
    for _ in range(2):
        next(batches)
    scene.run(A, Category.BAD_IMAGE_FORMAT)
    scene.process()
    assert (scene.task(CELL).state, scene.task(CELL).missing) == (State.WAITING, 0)
    for written in batches:
        for _, interest in written.tasks:
            live.note(interest)
    live.row = replace(live.row, state=RequestState.RUNNING)
    scene.process()
    assert scene.recorded("r", CELL).fallback


def test_an_input_that_is_named_twice_is_one_dependent_with_two_places() -> None:
    scene = Scene()
    scene.request("r")
    twice = mosaic("twice", A, A)
    list(plan(scene, [A, twice]).batches())
    assert scene.task(twice).missing == 3
    scene.run(A)
    scene.process()
    assert scene.task(twice).state is State.READY


def test_a_task_that_two_sections_have_is_told_to_the_dependents_of_both() -> None:
    """The request has an interest in it already when the second one is written."""
    scene = Scene()
    scene.request("r")
    other = mosaic("other", A)
    list(plan(scene, [A, mosaic("first", A)], [A, other]).batches())
    scene.run(A)
    scene.process()
    assert scene.task(other).state is State.READY


def test_many_tasks_over_an_input_that_failed_fit_their_transactions() -> None:
    """Each of them writes an event, besides the rows that a new task has."""
    scene = Scene()
    scene.request("r")
    cells = [mosaic(f"cell{i}", A) for i in range(70)]
    assert len({cell.key[0] for cell in cells}) == 1
    batches = plan(scene, [A], cells).batches()
    next(batches)
    scene.run(A, Category.BAD_IMAGE_FORMAT)
    list(batches)
    assert all(scene.task(cell).state is State.WAITING for cell in cells)
