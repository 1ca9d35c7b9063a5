"""What dependents are told of their inputs, and what is planned in place of one that lacks some."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from service_manager.events import dependents
from service_manager.events.dependents import Dependents
from tasks.bag import protocol, task_table, transitions
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import MissingPolicy, State, TaskOutcome
from tasks.bag.spec import CollectSpec, Input, MosaicSpec
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Edge
from tasks.bag.task_table import TABLE, RowKind, kind_of
from tasks.bag.transitions import RetryPolicy
from tasks.storage.blobs import split_blob
from tasks.storage.store import MergeEntity, Operation, Row
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import GRID, collect, mosaic

A, B, C, D = (collect(name) for name in "abcd")
GRANULES = (A, B, C, D)
CELL = mosaic("cell", *GRANULES)
BAD = Category.BAD_IMAGE_FORMAT


@pytest.fixture
def scene() -> Scene:
    """Four granules, for one request."""
    scene = Scene()
    scene.request("r")
    for spec in GRANULES:
        scene.write(spec)
    return scene


def waits(scene: Scene, spec: Spec, missing: int, lacking: int = 0) -> None:
    """Write a task that waits for inputs which know nothing of it."""
    change = transitions.create(spec, scene.interest("r", spec), missing)
    scene.tasks.transact(shard(spec.key), change.operations)
    if lacking:
        scene.change(spec, lambda task: transitions.inputs_ended(task, lacking, lacking))


def reads(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of task rows that are read from now on."""
    found: list[str] = []
    original = scene.store.get

    def get(table: str, partition: str, row: str) -> Row | None:
        found.extend(key for key in [row.partition("|")[2]] if row == task_table.task_row(key))
        return original(table, partition, row)

    monkeypatch.setattr(scene.store, "get", get)
    return found


# --- telling dependents ---


def test_hosts_of_inputs_are_told_with_their_bytes(scene: Scene) -> None:
    told: list[tuple[object, ...]] = []

    class Locations:
        def made(self, *given: object) -> None:
            told.append(given)

    scene.write(CELL, over=[A, B])
    scene.run(A)
    scene.run(B, BAD)
    events = [one for key in (A.key, B.key) for one in scene.tasks.events(shard(key), 100)]
    Dependents(scene.runtime, scene.cache.requests.get, Locations()).inform(events)  # type: ignore[arg-type]
    size = sum(file.size for file in scene.task(A).files)
    assert size
    assert set(told) == {(CELL.key, A.key, "w", size)}


def test_a_dependent_that_still_waits_is_not_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.write(CELL, over=[A, B, C])
    scene.run(A)
    read = reads(scene, monkeypatch)
    scene.process()
    assert CELL.key in read
    for spec, waiting in ((B, {CELL.key}), (C, set())):
        scene.run(spec)
        read.clear()
        scene.process()
        assert CELL.key not in read
        assert set(scene.dependents._waiting) == waiting
    assert scene.task(CELL).state is State.READY


def test_a_remembered_row_that_is_older_is_not_believed(scene: Scene) -> None:
    """It says that nothing is to be changed, so no ETag would tell that it is old."""
    scene.write(CELL, over=[A, B])
    scene.dependents.remember(replace(scene.task(CELL), missing=0b10, etag="earlier"))
    for spec in (A, B):
        scene.run(spec)
        scene.process()
    assert scene.task(CELL).state is State.READY


def test_dependents_of_one_shard_are_told_in_one_transaction(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [mosaic(f"cell {number}", A, B) for number in range(12)]
    for cell in cells:
        scene.write(cell, over=[A, B])
    assert len({shard(cell.key) for cell in cells}) == 1
    for spec in (A, B):
        scene.run(spec)
    written: list[int] = []

    def noted(table: str, operations: Sequence[Operation]) -> None:
        tasks = [one for one in operations if table == TABLE and kind_of(one.row) is RowKind.TASK]
        written.extend([len(tasks)] if tasks else [])

    monkeypatch.setattr(scene.store, "before", noted)
    scene.process()
    assert written == [len(cells)]
    assert {scene.task(cell).state for cell in cells} == {State.READY}


def test_rows_of_waiting_tasks_are_remembered_up_to_a_number(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependents, "_REMEMBERED", 2)
    for number, given in enumerate((A, B, C)):
        scene.write(mosaic(f"cell {number}", given, D), over=[given, D])
        scene.run(given)
        scene.process()
        assert len(scene.dependents._waiting) == (number % 2) + 1


def test_all_that_becomes_ready_is_named_and_nothing_else(scene: Scene) -> None:
    cells = [mosaic(f"cell {number}", A) for number in range(2)]
    for cell in cells:
        scene.write(cell, over=[A])
    scene.write(CELL, over=[A, B])
    scene.run(A)
    assert {one.key for one in scene.process().ready} == {cell.key for cell in cells}


# --- looking at inputs ---


def test_a_look_tells_of_all_inputs(scene: Scene) -> None:
    """A is made, B and C failed, D is to come: and it will tell."""
    waits(scene, CELL, 0b1111)
    scene.run(A)
    for spec in (B, C):
        scene.run(spec, BAD)
    found = scene.dependents.examine(CELL.key)
    assert (found.ready, found.ended) == ([], [])
    assert (scene.task(CELL).missing, scene.task(CELL).lacking) == (0b1000, 0b0110)
    assert [edge.dependent for edge in scene.tasks.edges(D.key)] == [CELL.key]
    assert not any(list(scene.tasks.edges(spec.key)) for spec in (A, B, C))


def test_a_look_leaves_out_inputs_and_those_that_were_told(scene: Scene) -> None:
    waits(scene, CELL, 0b1110)
    for spec in GRANULES:
        scene.run(spec)
    scene.dependents.examine(CELL.key, but=(B.key, C.key))
    assert scene.task(CELL).missing == 0b0110
    assert [one.key for one in scene.dependents.examine(CELL.key).ready] == [CELL.key]


def test_two_inputs_that_are_made_are_both_told(scene: Scene) -> None:
    waits(scene, CELL, 0b1111)
    for spec in (A, B):
        scene.run(spec)
    scene.dependents.examine(CELL.key)
    assert scene.task(CELL).missing == 0b1100


def test_a_look_without_storage_believes_the_rows(scene: Scene) -> None:
    cell = mosaic("cell of one", A)
    scene.run(A)
    waits(scene, cell, 1)
    (file,) = scene.task(A).files
    scene.runtime.blobs.delete(*split_blob(file.blob))
    assert [one.key for one in scene.dependents.examine(cell.key).ready] == [cell.key]


@pytest.mark.parametrize("state", [State.READY, State.RUNNING, State.DONE, None])
def test_a_task_that_does_not_wait_is_not_looked_at(scene: Scene, state: State | None) -> None:
    if state is State.RUNNING:
        scene.claim(A)
    if state is State.DONE:
        scene.run(A)
    found = scene.dependents.examine(A.key if state else CELL.key)
    assert (found.ready, found.ended, found.kept) == ([], [], set())


def test_what_lacks_all_its_inputs_by_a_look_ends(scene: Scene) -> None:
    waits(scene, CELL, 0b1111)
    for spec in GRANULES:
        scene.run(spec, BAD)
    assert scene.dependents.examine(CELL.key).ended == [CELL.key]
    assert scene.task(CELL).state is State.FAILED


@pytest.mark.parametrize("storage", [True, False])
def test_of_several_inputs_the_lost_one_is_made_again(scene: Scene, storage: bool) -> None:
    """And what is made again waits for those of its own inputs alone that are not there."""
    inner = mosaic("inner", A, B, C)
    top = mosaic("top", inner, D)
    for spec in GRANULES:
        scene.run(spec)
    scene.process()
    scene.write(inner)
    scene.run(inner)
    scene.process()
    for key, lost in ((inner.key, True), (B.key, False)):
        (file,) = scene.task(key).files
        scene.runtime.blobs.delete(*split_blob(file.blob))
        if not (storage and lost):
            protocol.lose(scene.runtime, key, file.blob)
    waits(scene, top, 0b11)
    found = scene.dependents.examine(top.key, look=True)
    assert [one.key for one in found.ready] == [B.key]
    assert (scene.task(inner).state, scene.task(inner).missing) == (State.WAITING, 0b010)
    assert scene.task(top).missing == 0b01
    assert [edge.dependent for edge in scene.tasks.edges(inner.key)] == [top.key]
    scene.run(B)
    scene.process()
    scene.run(inner)
    scene.process()
    assert scene.task(top).state is State.READY


def linked(scene: Scene, spec: Spec) -> State | None:
    return scene.dependents.linked(Edge(key=spec.key, dependent=CELL.key, bits=1))


def test_an_edge_is_written_to_what_is_to_end_or_has_failed(scene: Scene) -> None:
    scene.run(A)
    scene.run(B, BAD)
    assert [linked(scene, spec) for spec in (A, B, C, CELL)] == [
        State.DONE,
        State.FAILED,
        State.READY,
        None,
    ]
    edges = [len(list(scene.tasks.edges(spec.key))) for spec in (A, B, C)]
    assert edges == [0, 1, 1]


# --- fallback tasks ---


def lacking(scene: Scene, *failed: CollectSpec) -> Callable[[], Spec]:
    """Have granules of a cell fail, and the others be made; return what finds its fallback task."""
    for spec in GRANULES:
        scene.run(spec, BAD if spec in failed else None)

    def fallback() -> Spec:
        key = scene.recorded("r", CELL).fallback
        assert key
        return scene.tasks.spec(key)

    return fallback


def in_place(scene: Scene, output: str = "") -> None:
    change = transitions.create(CELL, scene.interest("r", CELL, output), 0b1111)
    scene.tasks.transact(shard(CELL.key), change.operations)
    for i, spec in enumerate(GRANULES):
        scene.link(spec, CELL, 1 << i)


def test_a_fallback_task_has_the_place_of_the_task_among_the_results(scene: Scene) -> None:
    in_place(scene, "lai")
    fallback = lacking(scene, B, D)
    ready = scene.process().ready
    new = fallback()
    assert [one.key for one in new.inputs] == [A.key, C.key]
    assert isinstance(new, MosaicSpec)
    assert new.missing
    assert [one.key for one in ready] == [new.key]
    found = scene.recorded("r", new)
    assert (found.name, found.output, found.reused, found.outcome) == ("cell", "lai", False, None)
    task = scene.task(CELL)
    said = (task.state, task.fallback, task.reason)
    assert said == (State.FAILED, new.key, "bad image format")
    scene.process()
    assert scene.recorded("r", CELL).outcome is TaskOutcome.SUPERSEDED


def test_a_fallback_task_that_is_made_already_is_reused_with_its_files(scene: Scene) -> None:
    scene.request("earlier")
    without = CELL.over({0: CELL.inputs[0], 2: CELL.inputs[2], 3: CELL.inputs[3]})
    in_place(scene)
    fallback = lacking(scene, B)
    scene.process()
    new = fallback()
    assert new != without  # it says what it lacks
    scene.run(new)
    scene.process()
    second = Scene(store=scene.store, cache=scene.cache)
    second.request("late")
    interest = second.interest("late", CELL)
    second.change(CELL, lambda task: transitions.add_interest(task, interest, 0b0010))
    second.process()
    second.dependents.examine(CELL.key)
    second.process()
    found = second.recorded("late", new)
    assert (found.outcome, found.reused) == (TaskOutcome.DONE, True)
    assert found.files == second.task(new).files


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (MissingPolicy.SKIP, f"granule 0: {BAD.value}: said 0"),  # nothing is left
        (MissingPolicy.FAIL, f"granule 1: {BAD.value}: said 1"),  # nobody wants what is left
    ],
)
def test_why_nothing_is_made_is_what_was_said_of_the_first_that_failed(
    policy: MissingPolicy, why: str
) -> None:
    scene = Scene()
    scene.request("r", policy=policy)
    some = (A, B, C)
    named = tuple(Input(key=one.key, name=f"granule {i}") for i, one in enumerate(some))
    cell = MosaicSpec(name="cell", grid=GRID, inputs=named)
    for spec in some:
        scene.write(spec)
    scene.write(cell, over=some)
    for number, spec in enumerate(some):
        if policy is MissingPolicy.FAIL and not number:
            scene.run(spec)
            continue
        claimed = scene.claim(spec)
        attempt = claimed.attempt(
            started=1.0, ended=2.0, duration=1.0, category=BAD, message=f"said {number}"
        )
        assert protocol.fail(scene.runtime, attempt, RetryPolicy(budget=1))
    scene.process()
    task = scene.task(cell)
    assert (task.state, task.fallback, task.reason) == (State.FAILED, "", why)


def test_a_failed_fallback_task_is_replaced_by_the_next_that_was_made(scene: Scene) -> None:
    """Over a task whose fallback task failed, too, nothing is left of that input."""
    top = mosaic("top", CELL, D)
    in_place(scene)
    scene.write(top, over=[CELL, D])
    fallback = lacking(scene, B)
    scene.process()
    new = fallback()
    scene.run(new, BAD)
    for _ in range(3):
        scene.process()
    final = scene.tasks.spec(scene.recorded("r", top).fallback)
    assert [one.key for one in final.inputs] == [D.key]


def test_a_fallback_task_is_named_in_the_interests_of_very_many_requests(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependents, "BATCH_OPERATIONS", 3)
    requests = [f"r{number}" for number in range(5)]
    for one in requests:
        scene.request(one)
    in_place(scene)
    for one in requests:
        interest = scene.interest(one, CELL)
        scene.change(CELL, lambda task, given=interest: transitions.add_interest(task, given, 0))  # type: ignore[misc]
    sizes: list[int] = []

    def note(_table: str, operations: Sequence[Operation]) -> None:
        named = [one for one in operations if isinstance(one, MergeEntity)]
        if any("earlier" in one.entity for one in named):
            sizes.append(len(operations))

    fallback = lacking(scene, B)
    scene.store.before = note
    scene.process()
    key = fallback().key
    assert sizes == [3, 3, 3]
    for one in ("r", *requests):
        assert scene.recorded(one, CELL).fallback == key
    assert set(scene.task(key).interests) == {"r", *requests}


def test_a_fallback_task_that_cannot_be_stored_fails_the_task_and_says_why(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: object) -> None:
        raise ValueError("too many bytes")

    monkeypatch.setattr(dependents, "check_transaction", too_large)
    in_place(scene)
    lacking(scene, B)
    scene.process()
    task = scene.task(CELL)
    assert (task.state, task.fallback) == (State.FAILED, "")
    assert "could not be planned without the inputs that failed: too many bytes" in task.reason


def test_all_inputs_that_were_revived_are_waited_for(scene: Scene) -> None:
    scene.request("other")
    in_place(scene)
    for spec in (A, B, C):
        scene.run(spec, BAD)
    scene.process()
    for spec in (B, C):
        interest = scene.interest("other", spec)
        scene.change(spec, lambda task, given=interest: transitions.add_interest(task, given, 0))  # type: ignore[misc]
    scene.run(D)
    scene.process()
    assert (scene.task(CELL).missing, scene.task(CELL).lacking) == (0b0110, 0b0001)


def test_a_task_with_a_lacking_input_waits_for_the_others(scene: Scene) -> None:
    """Not remembered is what waits for its fallback task: it is read again."""
    in_place(scene)
    scene.run(A, BAD)
    scene.process()
    assert (scene.task(CELL).state, scene.task(CELL).fallback) == (State.WAITING, "")
    for spec in (B, C, D):
        scene.run(spec)
    scene.process()
    assert scene.dependents._waiting == {}
    assert scene.task(CELL).fallback
