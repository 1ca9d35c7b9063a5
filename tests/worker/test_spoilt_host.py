"""A worker whose scratch becomes read-only beside one that is well: real processes, one storage."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from reprojection.sample.hdfeos_write import write_granule
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.bag.spec import CollectSpec
from tests.reprojection.reading_samples import small_tile
from tests.waiting import until
from tests.worker.disks import disk_of
from tests.worker.processes import Stack, make_stack
from tests.worker.world import collect_spec

pytestmark = [pytest.mark.integration, pytest.mark.proof]


@pytest.fixture
def stack(embedded: str, redis_server: str, tmp_path: Path) -> Iterator[Stack]:
    stack = make_stack(embedded, redis_server, tmp_path)
    yield stack
    stack.end()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Cover a folder by an empty, read-only file system."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def granule(stack: Stack, day: int) -> CollectSpec:
    archive = stack.folder / "archive"
    path = archive / f"MCD15A2.A2012{day:03d}.h17v03.005.2012153130500.hdf"
    write_granule(path, small_tile(date=f"2012{day:03d}"))
    return collect_spec(path, archive, "MCD15A2", "5")


def row(stack: Stack, name: str) -> workers.WorkerRow:
    (found,) = [w for w in workers.list_workers(stack.world.runtime.store) if w.name == name]
    return found


def beats(stack: Stack, name: str) -> bool:
    return any(w.name == name for w in workers.list_workers(stack.world.runtime.store))


def hold(stack: Stack, name: str, order: workers.Hold) -> None:
    world = stack.world.runtime
    workers.order_hold(world.store, world.clock, name, row(stack, name).started, order)


def done(stack: Stack, key: str) -> bool:
    """Whether a task is done; it is sent again while it is ready, as the manager does."""
    task = stack.world.task(key)
    if task.state is State.READY:
        stack.send(key)
    return task.state is State.DONE


@pytest.mark.provokes(Category.HOST_FAILED)
def test_a_worker_whose_scratch_becomes_read_only_costs_no_task_a_try(
    stack: Stack, tmp_path: Path
) -> None:
    with disk_of(tmp_path / "spoilt", "1g") as disk:
        spoilt = stack.worker("spoilt", DATA_DIR=disk)
        until(lambda: spoilt.says("self-test passed"), 240, "it has tested itself", spoilt.log)
        with read_only(disk / "scratch"):
            first = stack.world.plan(granule(stack, 1))
            stack.send(first)
            until(lambda: bool(row(stack, "spoilt").unfit), 60, "it says that it is unfit")
            sound = stack.worker("sound", DATA_DIR=tmp_path / "sound")
            until(lambda: beats(stack, "sound"), 240, "the other beats", sound.log)
            keys = [first, *(stack.world.plan(granule(stack, day)) for day in range(2, 8))]
            for key in keys:
                until(partial(done, stack, key), 120, f"task {key} is done")
        attempts = [one for key in keys for one in stack.world.runtime.tasks.attempts(key)]
        failed = [one for one in attempts if one.category is not None]
        assert {one.category for one in failed} == {Category.HOST_FAILED}
        assert {one.worker for one in failed} == {"spoilt"}
        assert {one.worker for one in attempts if one.category is None} == {"sound"}
        assert [stack.world.task(key).retries for key in keys] == [0] * len(keys)
        assert len(failed) <= 2, "it fails one, tests itself, and takes no more"
        assert "ead-only" in row(stack, "spoilt").unfit
        until(lambda: not row(stack, "spoilt").unfit, 90, "it is fit again by itself")
        hold(stack, "sound", workers.Hold.DRAINED)
        last = stack.world.plan(granule(stack, 9))
        until(lambda: done(stack, last), 90, "the last task is done")
        assert stack.world.runtime.tasks.attempts(last)[-1].worker in ("spoilt", "sound")
        spoilt.popen.terminate()
        spoilt.popen.wait()
