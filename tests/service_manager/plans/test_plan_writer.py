"""Writing a plan: the same whatever fails meanwhile, and never past a closed write fence."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from itertools import count
from typing import cast

import pytest

from service_manager.plans import write_fence
from service_manager.plans.plan_writer import PlanWriter, Written
from service_manager.plans.result_ranks import result_ranks
from tasks.bag import protocol, task_table, transitions
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import RequestState, State, Task, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.site_specs import ExtractSpec, SampleSpec, SitesSpec, TableSpec
from tasks.bag.spec import CubeSpec, GroupSpec, ReprojectSpec
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_table import TaskTable
from tasks.bag.transitions import Change
from tasks.errors import ConflictError, FencedError, StoreError
from tasks.requests.plan import PlannedTask
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Operation, Row
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import GRID, collect, mosaic, plan_of, reduction, scribble

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
    """Transactions of 60 operations: each shard has several."""
    return replace(memory_runtime(ManualClock()), store=store, most_operations=60)


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
    written = [*plan(scene, [A, B, CELL]).batches()]
    assert (scene.task(CELL).state, scene.task(CELL).missing) == (State.WAITING, 1)
    assert [key for batch in written for key in batch.waiting] == []  # nothing to look at
    assert scene.task(A).interests == ("other", "r")
    end(scene, A)
    assert scene.task(CELL).state is State.READY


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


def end(scene: Scene, spec: Spec) -> None:
    """Have a running task make its artifact, and its dependents hear of it."""
    task = scene.task(spec)
    claimed = protocol.Claimed(task=task, spec=spec, input_files={})
    attempt = claimed.attempt(started=1.0, ended=2.0, duration=1.0, category=None)
    assert protocol.commit(scene.runtime, attempt, [scene.artifact(claimed)])
    scene.process()


def test_a_task_waits_for_each_of_its_inputs_apart() -> None:
    scene = Scene()
    scene.request("r")
    list(plan(scene, [A, B, CELL], []).batches())
    scene.run(B)
    scene.process()
    assert (scene.task(CELL).state, scene.task(CELL).missing) == (State.WAITING, 1)


def test_inputs_of_a_section_before_that_are_still_made_tell_their_new_dependents() -> None:
    scene = Scene()
    scene.request("r")
    many = [collect(f"m{i}") for i in range(2 * len(SHARDS))]
    top = mosaic("top", *many)
    batches = plan(scene, many, [top]).batches()
    for _ in SHARDS:
        next(batches)
    scene.run(many[0])
    list(batches)
    for spec in many[1:]:
        scene.run(spec)
        assert scene.task(top).state is State.WAITING
        scene.process()
    assert scene.task(top).state is State.READY


@pytest.mark.parametrize("there", [False, True])
def test_an_input_that_no_section_before_has_is_a_fault_of_the_plan(there: bool) -> None:
    scene = Scene()
    if there:
        scene.write(A, "other")
    with pytest.raises(ValueError, match=f"task {A.key} is needed, but no section before has it"):
        list(plan(scene, [mosaic("a", A)]).batches())


def test_an_input_of_very_many_dependents_tells_all_of_them() -> None:
    """The edges do not fit its own transaction."""
    scene = Scene()
    scene.request("r")
    cells = [mosaic(f"cell{i}", A) for i in range(250)]
    list(plan(scene, [A, *cells]).batches())
    scene.run(A)
    while scene.process().more:
        pass
    assert {scene.task(cell).state for cell in cells} == {State.READY}


def test_a_result_that_is_there_is_reused_with_its_files_and_its_place() -> None:
    scene = Scene()
    for spec in (A, B, CELL):
        scene.write(spec, "other")
        scene.run(spec)
    scene.request("r")
    new = collect("new")
    tasks = plan_of(A, B, new, CELL, outputs={"cell": "out"}).tasks
    for written in PlanWriter(scene.runtime, "r", [tasks]).batches():
        for task, interest in written.tasks:
            assert interest == scene.tasks.interest("r", task.key)
    made = scene.recorded("r", CELL)
    assert (made.outcome, made.reused) == (TaskOutcome.DONE, True)
    assert made.files == scene.task(CELL).files != ()
    assert (made.name, made.output, made.phase) == ("cell", "out", CELL.phase)
    wanted = scene.recorded("r", new)
    assert (wanted.outcome, wanted.reused, wanted.name, wanted.output) == (None, False, "new", "")


def test_a_plan_written_again_keeps_what_is_recorded() -> None:
    scene = Scene()
    scene.request("r")
    list(plan(scene, [A, B, CELL]).batches())
    scene.run(A)
    scene.process()
    recorded = [scene.recorded("r", spec) for spec in (A, B, CELL)]
    assert recorded[0].outcome is TaskOutcome.DONE
    again = [i for batch in plan(scene, [A, B, CELL]).batches() for _, i in batch.tasks]
    assert sorted(again, key=lambda i: i.key) == sorted(recorded, key=lambda i: i.key)


def test_a_cancelled_task_is_revived_to_wait_for_what_is_not_there_now() -> None:
    scene = Scene()
    scene.write(CELL, "other")
    scene.change(CELL, lambda task: transitions.drop(task, "other"))
    assert scene.task(CELL).state is State.CANCELLED
    scene.write(A, "third")
    scene.run(A)
    scene.request("r")
    written = [*plan(scene, [A, B, CELL]).batches()]
    assert (scene.task(CELL).state, scene.task(CELL).missing) == (State.WAITING, 2)
    assert [key for batch in written for key in batch.waiting] == [CELL.key]
    scene.run(B)
    scene.process()
    assert scene.task(CELL).state is State.READY


def writes_task(operation: Operation) -> bool:
    """Whether an operation writes a task's own row."""
    return task_table.kind_of(operation.row) is task_table.RowKind.TASK


def written_together(refusals: int) -> tuple[Scene, Sequence[Spec], Written, int]:
    """Six tasks of one transaction, refused some times, over inputs of which one has failed."""
    scene = Scene()
    scene.request("r")
    place = mosaic("", A).key[0]
    failed = next(one for i in count() if mosaic("", one := collect(f"f{i}")).key[0] == place)
    tasks = [mosaic(f"of a {i}", A) for i in range(3)]
    tasks += [mosaic(f"of f {i}", failed) for i in range(3)]
    batches = plan(scene, [A, failed], tasks).batches()
    for _ in {A.key[0], failed.key[0]}:
        next(batches)
    scene.run(A)
    scene.run(failed, Category.BAD_IMAGE_FORMAT)
    tries = 0

    def before(_table: str, operations: Sequence[Operation]) -> None:
        nonlocal tries
        if sum(map(writes_task, operations)) > 1:
            tries += 1
            if tries <= refusals:
                raise ConflictError("somebody has changed a row")

    scene.store.before = before
    *_, written = batches
    return scene, tasks, written, tries


def test_rows_that_others_change_are_tried_twice_and_then_written_one_by_one() -> None:
    scene, tasks, written, tries = written_together(refusals=2)
    assert tries == 2
    assert written == written_together(refusals=0)[2]
    assert [task.key for task, _ in written.tasks] == [spec.key for spec in tasks]
    size = sum(file.size for file in scene.task(A).files)
    assert written.made == [(spec.key, A.key, "w", size) for spec in tasks[:3]]
    assert written.waiting == [spec.key for spec in tasks[3:]]


@pytest.mark.parametrize("cells", [3, 100])  # in the transaction of their input, and before it
def test_storage_that_does_not_answer_is_asked_again_for_some_seconds(cells: int) -> None:
    scene = Scene()
    scene.request("r")
    section: list[Spec] = [A, *(mosaic(f"cell{i}", A) for i in range(cells))]
    failures = 0

    def before(_table: str, _operations: Sequence[Operation]) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreError("no answer")

    scene.store.before = before
    failures, began = 8, scene.runtime.clock.monotonic()
    with pytest.raises(StoreError, match="no answer"):
        list(plan(scene, section).batches())
    assert failures == 0
    failures, began = 7, scene.runtime.clock.monotonic()
    list(plan(scene, section).batches())
    assert 5 < scene.runtime.clock.monotonic() - began < 10


def test_a_new_task_has_three_rows_or_four_and_one_for_its_dependents() -> None:
    """Storage takes most of the time of a large plan, and rows most of the storage."""
    store = MemoryStore()
    written(store)
    kinds = Counter(row[0] for _, row in content(store))
    assert kinds["t"] == kinds["w"] == len(TASKS)
    assert kinds["r"] == len(MANY)
    assert kinds["e"] == len({given.key for task in TASKS for given in task.spec.inputs})
    assert set(kinds) == set("twrep")


def test_large_tasks_fit_their_transactions() -> None:
    scene = Scene()
    scene.request("r")
    large = {"parameters": {"text": scribble(60_000)}}
    runs = [reduction(i, A).model_copy(update=large) for i in range(40)]
    tasks = [run.model_copy(update={"outputs": (f"{n}.tif",)}) for run in runs for n in range(5)]
    list(plan(scene, [A, *tasks]).batches())
    assert all(scene.task(task).state is State.WAITING for task in tasks)


DAY = date(2012, 1, 31)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (collect("MOD13A2.A2012001.h18v04"), "MOD13A2.A2012001.h18v04"),
        (
            ReprojectSpec(
                product="MOD13A2",
                collection="6",
                layer="NDVI",
                day=DAY,
                grid=GRID.model_copy(update={"transform": (1, 0, 10.5, 0, -1, 45)}),
                resampling="nearest",
            ),
            "MOD13A2.006 NDVI 2012-01-31 cell at 10.5, 45",
        ),
        (mosaic("map"), "map"),
        (CubeSpec(name="map", form="zarr", grid=GRID, days=(DAY,)), "map over time"),
        (GroupSpec(group="g7", cell="c", window="w", grid=GRID, bands=()), "g7"),
        (SitesSpec(sites="s"), "the sites"),
        (
            ExtractSpec(product="MOD13A2", collection="6", layers=(), qa=(), mask=False, day=DAY),
            "MOD13A2.006 2012-01-31 at the sites",
        ),
        (
            SampleSpec(product="MOD13A2", collection="6", layers=(), day=DAY, last=DAY),
            "MOD13A2 2012-01-31 at the sites",
        ),
        (TableSpec(), "table of the sites"),
        (reduction(3, A, "mean"), "mean group 3"),
        (reduction(3, A, "mean").model_copy(update={"inputs": ()}), "mean"),
    ],
)
def test_what_a_task_makes_is_said_in_words(spec: Spec, words: str) -> None:
    assert spec.title == words


def test_tasks_are_ranked_by_the_first_result_that_they_serve() -> None:
    scene = Scene()
    scene.request("r", RequestState.WRITING)
    first, second = mosaic("first", A, B), mosaic("second", B)
    tasks = [PlannedTask(spec=spec) for spec in (A, B)]
    tasks += [PlannedTask(spec=spec, output=spec.name) for spec in (second, first)]
    (*_,) = PlanWriter(scene.runtime, "r", [tasks]).batches()
    ranks = {spec.key: scene.task(spec).rank for spec in (A, B, first, second)}
    assert ranks == result_ranks(tasks, "oldest")
    assert 0 < ranks[B.key] == ranks[second.key] < ranks[A.key] == ranks[first.key]
    markers = [one for number in SHARDS for one in scene.runtime.tasks.ready(number, 9)]
    assert {one.key: one.rank for one in markers} == {A.key: ranks[A.key], B.key: ranks[B.key]}


def test_a_task_that_is_shared_goes_by_who_wants_it_soonest() -> None:
    scene = Scene()
    change = transitions.create(A, scene.interest("other", A), 0, rank=2**60)
    scene.runtime.tasks.transact(A.key[0], change.operations)
    scene.request("r", RequestState.WRITING)
    (*_,) = plan(scene, [A]).batches()
    rank = result_ranks(plan_of(A).tasks, "oldest")[A.key]
    assert 0 < rank < 2**60
    assert scene.task(A).rank == rank
    (marker,) = scene.runtime.tasks.ready(A.key[0], 9)
    assert (marker.request, marker.rank) == ("other", rank)
