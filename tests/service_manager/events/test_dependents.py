"""Dependents of inputs that ended, came again or were lost; fallback tasks over what is there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from service_manager.plans import write_fence
from tasks.bag import protocol, task_table, transitions
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import RequestState, State, TaskOutcome
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Interest
from tasks.errors import ConflictError
from tasks.storage.blobs import MemoryBlobs, split_blob
from tasks.storage.store import Operation, Replace
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import collect, mosaic

A, B, C = collect("a"), collect("b"), collect("c")
CELL = mosaic("cell", A, B)
BAD = Category.BAD_IMAGE_FORMAT


@pytest.fixture
def scene() -> Scene:
    """A cell over two granules, for one request."""
    scene = Scene()
    scene.request("r")
    scene.write(A)
    scene.write(B)
    scene.write(CELL, over=[A, B])
    return scene


def revived(scene: Scene, spec: Spec, request: str = "s") -> None:
    """Another request wants a task that is not there any more."""
    scene.request(request)
    interest = scene.interest(request, spec)
    scene.change(spec, lambda task: transitions.add_interest(task, interest, 0))


def fallback(scene: Scene, spec: Spec, request: str = "r") -> Spec:
    """The task that a request got in the place of one that could not be made."""
    key = scene.recorded(request, spec).fallback
    assert key
    return scene.tasks.spec(key)


def lose(scene: Scene, spec: Spec) -> None:
    (file,) = scene.task(spec).files
    scene.runtime.blobs.delete(*split_blob(file.blob))
    protocol.lose(scene.runtime, spec.key, file.blob)


def test_a_failure_that_is_over_does_not_count_against_its_dependents(scene: Scene) -> None:
    scene.run(A, BAD)
    revived(scene, A)
    scene.run(B)
    scene.process()
    assert (scene.task(CELL).missing, scene.task(CELL).lacking) == (1, 0)
    scene.run(A)
    scene.process()
    assert scene.task(CELL).state is State.READY


def test_an_input_that_lacked_and_is_made_after_all_is_waited_for(scene: Scene) -> None:
    scene.run(A, BAD)
    scene.process()
    assert (scene.task(CELL).missing, scene.task(CELL).lacking) == (2, 1)
    revived(scene, A)
    scene.run(B)
    scene.process()
    assert (scene.task(CELL).missing, scene.task(CELL).lacking) == (1, 0)
    scene.run(A)
    scene.process()
    assert scene.task(CELL).state is State.READY


def test_a_task_of_a_request_that_leaves_is_not_superseded(scene: Scene) -> None:
    """It is withdrawn, and counts as cancelled: not as a gap."""
    live = scene.cache.requests["r"]
    live.row = replace(live.row, state=RequestState.CANCELLING)
    scene.run(A, BAD)
    scene.run(B)
    scene.process()
    assert scene.task(CELL).state is State.WAITING
    assert scene.recorded("r", CELL).outcome is None


def test_a_request_that_leaves_gets_no_fallback_task() -> None:
    scene = Scene()
    leaves = scene.request("leaves")
    scene.request("r")
    for spec in (A, B):
        scene.write(spec, "leaves", "r")
    scene.write(CELL, "leaves", "r", over=[A, B])
    leaves.row = replace(leaves.row, state=RequestState.CANCELLING)
    scene.run(A, BAD)
    scene.run(B)
    scene.process()
    new = fallback(scene, CELL)
    assert scene.task(new).interests == ("r",)
    assert scene.tasks.interest("leaves", new.key) is None


def test_who_wants_a_task_while_it_is_superseded_gets_its_fallback_task_too(scene: Scene) -> None:
    scene.request("late")

    def meddle(_table: str, operations: Sequence[Operation]) -> None:
        first = operations[0]
        if isinstance(first, Replace) and first.entity.get("state") == State.FAILED.value:
            if first.row != task_table.task_row(CELL.key):
                return
            scene.store.before = lambda _table, _operations: None
            interest = scene.interest("late", CELL)
            scene.change(CELL, lambda task: transitions.add_interest(task, interest, 0))

    scene.run(A, BAD)
    scene.run(B)
    scene.store.before = meddle
    scene.process()
    new = fallback(scene, CELL, "late")
    assert set(scene.task(new).interests) == {"r", "late"}


def test_what_is_made_again_waits_for_its_inputs_that_are_gone_too() -> None:
    scene = Scene()
    scene.request("r")
    top = mosaic("top", CELL)
    made: tuple[Spec, ...] = (A, B, CELL)
    for spec in made:
        scene.write(spec)
        scene.run(spec)
    scene.write(top)
    claimed = scene.claim(top)
    lose(scene, CELL)
    lose(scene, A)
    attempt = claimed.attempt(
        started=1.0, ended=2.0, duration=1.0, category=Category.SOURCE_BLOB_MISSING
    )
    assert protocol.fail(scene.runtime, attempt, transitions.RetryPolicy(), healing=1)
    scene.process()
    assert [scene.task(spec).state for spec in (A, B, CELL, top)] == [
        State.READY,
        State.DONE,
        State.WAITING,
        State.WAITING,
    ]
    again: tuple[Spec, ...] = (A, CELL, top)
    for spec in again:
        scene.run(spec)
        scene.process()
    assert scene.recorded("r", top).outcome is TaskOutcome.DONE
    assert len(scene.tasks.attempts(CELL.key)) == 2


@dataclass
class Meddled(MemoryBlobs):
    """Blobs of which one is missing; `meddle` is called once, while it is looked for."""

    def __post_init__(self) -> None:
        super().__init__()
        self.meddle: Callable[[], None] | None = None

    def exists(self, container: str, name: str) -> bool:
        meddle, self.meddle = self.meddle, None
        if meddle is None:
            return super().exists(container, name)
        meddle()
        return False


def meet_a_lost_blob(scene: Scene, meddle: Callable[[], None]) -> None:
    """An attempt finds a blob of an input missing, which the manager looks for in storage."""
    scene.run(A)
    scene.run(B)
    scene.process()
    claimed = scene.claim(CELL)
    blobs = Meddled()
    scene.dependents._runtime = replace(scene.runtime, blobs=blobs)
    blobs.meddle = meddle
    attempt = claimed.attempt(
        started=1.0, ended=2.0, duration=1.0, category=Category.SOURCE_BLOB_MISSING
    )
    assert protocol.fail(scene.runtime, attempt, transitions.RetryPolicy(), healing=1)
    scene.process()
    assert blobs.meddle is None  # storage was looked into


def test_an_artifact_that_was_made_again_meanwhile_is_not_made_once_more(scene: Scene) -> None:
    def store_again() -> None:
        task = scene.task(A)
        files = tuple(replace(file, blob=f"{file.blob}.again") for file in task.files)
        new = replace(task, files=files)
        scene.tasks.transact(shard(A.key), [task_table.replace_task(new)])

    meet_a_lost_blob(scene, store_again)
    assert (scene.task(A).state, scene.task(A).generation) == (State.DONE, 1)
    assert scene.task(CELL).state is State.READY


def test_an_artifact_that_somebody_else_records_as_lost_meanwhile_is_made_again(
    scene: Scene,
) -> None:
    meet_a_lost_blob(scene, lambda: lose(scene, A))
    assert (scene.task(A).state, scene.task(CELL).state) == (State.READY, State.WAITING)
    scene.run(A)
    scene.process()
    assert scene.task(CELL).state is State.READY


def test_an_input_that_is_named_twice_counts_twice_when_it_is_looked_at() -> None:
    scene = Scene()
    scene.request("r")
    scene.write(A)
    scene.run(A)
    twice = mosaic("twice", A, A)
    change = transitions.create(twice, scene.interest("r", twice), 3)
    waits = task_table.wait_event(change.task)
    scene.tasks.transact(shard(twice.key), [*change.operations, waits])
    scene.process()
    assert scene.task(twice).state is State.READY


def superseded_twice(scene: Scene, *, made: bool) -> Spec:
    """A task over a cell that gets a fallback task, twice, and over a granule that fails.

    `made`: the cell's fallback task is DONE before.
    """
    top = mosaic("top", CELL, CELL, C)
    scene.write(C)
    scene.write(top, over=[CELL, C])
    scene.run(A, BAD)
    scene.run(B)
    scene.process()
    if made:
        scene.run(fallback(scene, CELL))
    scene.run(C, BAD)
    scene.process()
    scene.process()
    return fallback(scene, top)


@pytest.mark.parametrize("made", [False, True])
def test_a_fallback_task_over_another_waits_for_each_of_its_places(
    scene: Scene, made: bool
) -> None:
    new = superseded_twice(scene, made=made)
    given = fallback(scene, CELL)
    assert [one.key for one in new.inputs] == [given.key] * 2
    (edge,) = scene.tasks.edges(given.key)
    assert (edge.dependent, edge.bits) == (new.key, 3)
    assert scene.task(new).missing == (0 if made else 3)
    if not made:
        scene.run(given)
        scene.process()
    assert scene.task(new).state is State.READY


@pytest.mark.parametrize("again", [True, False])
def test_a_fallback_task_waits_for_an_input_that_was_lost_since(scene: Scene, again: bool) -> None:
    """`again`: another request has begun to have it made again."""
    scene.run(A)
    scene.process()
    lose(scene, A)
    if again:
        revived(scene, A)
    scene.run(B, BAD)
    scene.process()
    new = fallback(scene, CELL)
    assert (scene.task(new).state, scene.task(A).state) == (State.WAITING, State.READY)
    scene.run(A)
    scene.process()
    assert scene.task(new).state is State.READY


@pytest.mark.parametrize("there", [False, True])
def test_a_fallback_task_is_written_under_the_fence_that_was_read_before(there: bool) -> None:
    """Somebody withdrew it since, and would find it back."""
    scene = Scene()
    scene.request("r")
    scene.request("other")
    new = mosaic("new", A)
    if there:
        scene.write(new, "other")
    guard = write_fence.passing(scene.tasks, shard(new.key), "r")
    scene.tasks.transact(shard(new.key), [write_fence.passing(scene.tasks, shard(new.key), "r")])
    interest = Interest(request="r", key=new.key, phase=new.phase)
    with pytest.raises(write_fence.FenceChangedError):
        scene.dependents._interest(new, interest, 0, guard, 0)
    assert scene.tasks.interest("r", new.key) is None
    guard = write_fence.passing(scene.tasks, shard(new.key), "r")
    task, _ = scene.dependents._interest(new, interest, 0, guard, 0)
    assert "r" in task.interests


def test_a_task_that_has_changed_since_it_was_read_names_no_fallback_task(scene: Scene) -> None:
    """Whoever changed it may have begun it again, and knows of no fallback task to withdraw."""
    seen, interest = scene.task(CELL), scene.recorded("r", CELL)
    revived(scene, CELL)
    with pytest.raises(ConflictError):
        scene.dependents._name(seen, "fallback", [interest])
    assert scene.recorded("r", CELL).fallback == ""
    scene.dependents._name(scene.task(CELL), "fallback", [interest])
    assert scene.recorded("r", CELL).fallback == "fallback"


def test_a_task_whose_interests_all_name_its_fallback_task_is_written_all_the_same(
    scene: Scene,
) -> None:
    """A manager that has stalled meanwhile, and would plan it again, is refused by that."""
    before = scene.task(CELL)
    named = replace(scene.recorded("r", CELL), fallback="f")
    assert scene.dependents._name(before, "f", [named]) == scene.task(CELL).etag != before.etag
    with pytest.raises(ConflictError):
        scene.dependents._name(before, "f", [named])
