"""The write fence of a request: each pass changes it, and once closed nothing passes."""

from collections.abc import Sequence

import pytest

from service_manager.plans import write_fence
from service_manager.plans.write_fence import FenceChangedError
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_table import put_fence
from tasks.bag.transitions import Change
from tasks.errors import FencedError, StoreError
from tasks.storage.store import Insert, Operation, Replace
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import collect


@pytest.fixture
def scene() -> Scene:
    return Scene()


def passed(scene: Scene) -> str:
    """Pass the fence of a request in one shard; return its ETag since."""
    return scene.tasks.transact("0", [write_fence.passing(scene.tasks, "0", "r")])[0]


def test_a_pass_is_refused_when_another_came_since_it_was_read(scene: Scene) -> None:
    first = write_fence.passing(scene.tasks, "0", "r")
    assert isinstance(first, Insert)
    etag = passed(scene)
    with pytest.raises(StoreError):
        scene.tasks.transact("0", [first])
    second = write_fence.passing(scene.tasks, "0", "r")
    assert isinstance(second, Replace)
    assert (second.row, second.etag) == (first.row, etag)
    assert isinstance(write_fence.passing(scene.tasks, "1", "r"), Insert)
    assert isinstance(write_fence.passing(scene.tasks, "0", "other"), Insert)


def test_whoever_passed_last_passes_again_without_reading(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = passed(scene)

    def read(*_: object) -> None:
        raise AssertionError("read")

    with monkeypatch.context() as patch:
        patch.setattr(scene.store, "get", read)
        again = write_fence.passing(scene.tasks, "0", "r", etag)
    scene.tasks.transact("0", [again])
    with pytest.raises(StoreError):
        scene.tasks.transact("0", [again])
    fence = scene.tasks.fence("r", "0")
    assert fence is not None
    assert fence.open


def test_nothing_passes_a_closed_fence(scene: Scene) -> None:
    before = write_fence.passing(scene.tasks, "0", "r")
    write_fence.close(scene.tasks, scene.runtime.clock, "r")
    for shard in SHARDS:
        with pytest.raises(FencedError, match="request r takes no more interests"):
            write_fence.passing(scene.tasks, shard, "r")
    with pytest.raises(StoreError):
        scene.tasks.transact("0", [before])
    write_fence.close(scene.tasks, scene.runtime.clock, "r")


def test_a_guarded_change_is_made_only_over_the_fence_that_was_read(scene: Scene) -> None:
    spec = collect("a")
    scene.write(spec)
    change = Change(task=scene.task(spec), operations=(put_fence("x", is_open=True),))
    guard = write_fence.passing(scene.tasks, "0", "r")
    made = write_fence.guarded(scene.tasks, "0", guard, change)
    assert (made.task, made.operations) == (change.task, (*change.operations, guard))
    etag = passed(scene)
    with pytest.raises(FenceChangedError):
        write_fence.guarded(scene.tasks, "0", guard, change)
    guard = write_fence.passing(scene.tasks, "0", "r", etag)
    assert write_fence.guarded(scene.tasks, "0", guard, change).operations[-1] is guard
    passed(scene)
    with pytest.raises(FenceChangedError):
        write_fence.guarded(scene.tasks, "0", guard, change)


@pytest.mark.parametrize("failures", [7, 8])
def test_closing_is_tried_some_times_in_each_shard(scene: Scene, failures: int) -> None:
    left, clock = [failures], scene.runtime.clock
    began = clock.monotonic()

    def away(_table: str, _operations: Sequence[Operation]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise StoreError("away")

    scene.store.before = away
    if failures == 8:
        with pytest.raises(StoreError):
            write_fence.close(scene.tasks, clock, "r")
    else:
        write_fence.close(scene.tasks, clock, "r")
    assert clock.monotonic() - began == pytest.approx(sum(0.05 * 2**n for n in range(7)))
    closed = [shard for shard in SHARDS if scene.tasks.fence("r", shard) is not None]
    assert closed == ([] if failures == 8 else list(SHARDS))
