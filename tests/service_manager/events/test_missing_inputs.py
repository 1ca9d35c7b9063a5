"""What a task is said to do without: the first causes, whatever lies between them and the task."""

import datetime as dt
from dataclasses import replace

import pytest

from service_manager.events import missing_inputs
from tasks.bag import task_table
from tasks.bag.absence import Absent, Unnamed
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import State
from tasks.bag.spec import Input, MosaicSpec, ReprojectSpec
from tasks.bag.task_keys import shard
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import GRID, collect

A, B, C, D = (collect(f"{name}.hdf") for name in "abcd")
BAD = Category.BAD_IMAGE_FORMAT
BAD_A, BAD_B, BAD_C = ((f"{name}.hdf", "bad image format") for name in "abc")


@pytest.fixture
def scene() -> Scene:
    """Four granules, of which D was made."""
    scene = Scene()
    scene.request("r")
    for spec in (A, B, C, D):
        scene.write(spec)
    return scene


def end(scene: Scene) -> Scene:
    """Have A, B and C fail and D succeed, and the manager see to what becomes of the others."""
    for spec in (A, B, C, D):
        scene.run(spec, None if spec is D else BAD)
    for _ in range(5):
        scene.process()
    return scene


def over(name: str, *inputs: Spec, **more: object) -> MosaicSpec:
    """A mosaic whose inputs have names."""
    named = tuple(Input(key=one.key, name=f"part {i}") for i, one in enumerate(inputs))
    return MosaicSpec.model_validate({"name": name, "grid": GRID, "inputs": named, **more})


def without(scene: Scene, spec: Spec, *lacking: int) -> dict[str, list[tuple[str, str]]]:
    """What is absent, by part."""
    found: dict[str, list[tuple[str, str]]] = {}
    for one in missing_inputs.absent(scene.tasks, spec, lacking or range(len(spec.inputs))).named:
        found.setdefault(one.part, []).append((one.what, one.why))
    return found


def test_failed_inputs_are_named_with_their_category(scene: Scene) -> None:
    end(scene)
    top = over("top", A, D, B)
    assert without(scene, top, 0, 2) == {"part 0": [BAD_A], "part 2": [BAD_B]}
    assert without(scene, top, 2) == {"part 2": [BAD_B]}
    assert missing_inputs.absent(scene.tasks, top, [0]).unnamed is None


def test_an_input_that_is_not_there_is_named_itself(scene: Scene) -> None:
    top = over("top", collect("never planned"))
    assert without(scene, top) == {"part 0": [("part 0", "upstream failed")]}


def test_an_input_without_a_category_failed_of_what_is_unknown(scene: Scene) -> None:
    """It was to be made again, and is not yet."""
    assert without(scene, over("top", A)) == {"part 0": [("a.hdf", "unknown")]}


def test_a_cell_that_failed_names_its_granules(scene: Scene) -> None:
    cell = ReprojectSpec(
        inputs=(Input(key=D.key, name="d.hdf"), Input(key=A.key, name="a.hdf")),
        product="P",
        collection="6",
        layer="x",
        day=dt.date(2012, 1, 1),
        grid=GRID,
        resampling="nearest",
    )
    swath = cell.model_copy(update={"inputs": ()})
    what = "P.006 x 2012-01-01 cell at 0, 0"
    for spec in (cell, swath):
        scene.write(spec)
        task = scene.task(spec)
        ended = replace(task, state=State.FAILED, category=Category.OUT_OF_MEMORY)
        scene.tasks.transact(shard(spec.key), [task_table.replace_task(ended, task.etag)])
    assert without(scene, over("top", cell, swath)) == {
        "part 0": [(what, "out of memory, from d.hdf, a.hdf")],
        "part 1": [(what, "out of memory")],
    }


def test_through_tasks_that_lack_all_their_inputs_the_granules_are_named(scene: Scene) -> None:
    middle = over("middle", A, B)
    scene.write(middle, over=[A, B])
    end(scene)
    assert scene.task(middle).category is Category.UPSTREAM_FAILED
    assert without(scene, over("top", middle, C)) == {"part 0": [BAD_A, BAD_B], "part 1": [BAD_C]}


def test_what_a_task_does_without_its_fallback_task_does_without_too(scene: Scene) -> None:
    middle = over("middle", A, D, B)
    scene.write(middle, over=[A, D, B])
    end(scene)
    scene.run(scene.tasks.spec(scene.task(middle).fallback), BAD)
    failed = ("middle", "bad image format")
    assert without(scene, over("top", middle)) == {"part 0": [BAD_A, BAD_B, failed]}


def test_what_was_absent_from_the_start_is_named_first_and_counted_once(scene: Scene) -> None:
    gap = Absent(part="day", what="P 2012-01-01", why="not in the archive")
    middle = over("middle", A, missing=(gap,), missing_unnamed=Unnamed(inputs=7, parts=2))
    scene.write(middle, over=[A])
    end(scene)
    expected = {"part 0": [("P 2012-01-01", "not in the archive"), BAD_A]}
    top = over("top", middle)
    assert without(scene, top) == expected
    assert missing_inputs.absent(scene.tasks, top, [0]).unnamed == Unnamed(inputs=7, parts=0)
    twice = over("twice", middle, middle)
    assert missing_inputs.absent(scene.tasks, twice, [0, 1]).unnamed == Unnamed(inputs=7, parts=0)


def test_no_more_tasks_are_read_than_a_number(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    middle = over("middle", A, B, C)
    scene.write(middle, over=[A, B, C])
    end(scene)
    monkeypatch.setattr(missing_inputs, "_MOST", 3)
    assert without(scene, over("top", middle, A)) == {
        "part 0": [BAD_A, BAD_B, ("part 2", "upstream failed")],
        "part 1": [("part 1", "upstream failed")],
    }
