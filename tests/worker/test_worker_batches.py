"""Batches in real workers: one killed child costs one task; batches change no byte of an output."""

import datetime as dt
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from processes import proctree
from reprojection.grid.grids import modis_tile_grid
from reprojection.sample.hdfeos_write import write_granule
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.bag.spec import GridSpec, Input, ReprojectSpec
from tasks.messages import celery_app
from tasks.storage.blobs import ARTIFACTS
from tests.reprojection.reading_samples import small_tile
from tests.waiting import until
from tests.worker.processes import Process, Stack, dead, make_stack
from tests.worker.world import collect_spec

pytestmark = pytest.mark.integration

NAME = "MCD15A2.A2012001.h17v03.005.2012153130500.hdf"


@contextmanager
def stack_on(storage: str, redis_url: str, folder: Path) -> Iterator[Stack]:
    folder.mkdir(exist_ok=True)
    stack = make_stack(storage or f"file:{folder / 'storage'}", redis_url, folder)
    try:
        yield stack
    finally:
        stack.end()


@pytest.fixture
def stack(redis_server: str, tmp_path: Path) -> Iterator[Stack]:
    with stack_on("", redis_server, tmp_path) as stack:
        yield stack


def worker(stack: Stack, name: str) -> Process:
    process = stack.worker(name, SLOTS=1)
    until(lambda: process.says("worker starts"), 30, "the worker has started")
    return process


def child(process: Process) -> int:
    """The warm child of the one slot."""
    (forkserver,) = [p for p in proctree.children(process.popen.pid) if proctree.children(p)]
    until(lambda: bool(proctree.children(forkserver)), 10, "a guard is there")
    (guard,) = proctree.children(forkserver)
    until(lambda: len(proctree.children(guard)) == 2, 10, "its child is there")
    return proctree.children(guard)[1]  # after the server of its makers


def send(stack: Stack, keys: Sequence[str]) -> None:
    """Name all of them in one message."""
    app = celery_app.make_app(stack.settings.redis_url.get_secret_value())
    celery_app.Sender(app)(keys)
    app.close()


@cache
def _granule() -> bytes:
    """The bytes of one granule for all stacks: results name it with its digest."""
    with TemporaryDirectory() as folder:
        write_granule(Path(folder) / NAME, small_tile(date="2012001"))
        return (Path(folder) / NAME).read_bytes()


def collected(stack: Stack) -> str:
    """The key of the granule, which a worker has collected."""
    archive = stack.folder / "archive"
    archive.mkdir(parents=True, exist_ok=True)
    (archive / NAME).write_bytes(_granule())
    granule = collect_spec(archive / NAME, archive, "MCD15A2", "5")
    stack.world.plan(granule)
    send(stack, [granule.key])
    assert stack.settled(granule.key).state is State.DONE
    return granule.key


def cells(stack: Stack, granule: str, number: int, side: int) -> list[str]:
    """Plan cells over the granule."""
    tile = modis_tile_grid(17, 3, 1000)
    a, b, c, d, e, f, *_ = tile.transform
    keys = [
        stack.world.plan(
            ReprojectSpec(
                inputs=(Input(key=granule, name=NAME),),
                product="MCD15A2",
                collection="5",
                layer="Lai_1km",
                day=dt.date(2012, 1, 1),
                grid=GridSpec(
                    crs=tile.crs,
                    transform=(a, b, c + a * 7 * at, d, e, f + e * 11 * at),
                    width=side,
                    height=side,
                ),
                resampling="cubic",
            )
        )
        for at in range(number)
    ]
    return sorted(keys)


def done(stack: Stack, keys: Sequence[str]) -> list[str]:
    return [key for key in keys if stack.world.task(key).state is State.DONE]


def stored(stack: Stack) -> int:
    return sum(1 for _ in stack.world.runtime.blobs.names(ARTIFACTS))


def finish(stack: Stack, keys: Sequence[str]) -> None:
    """Have all of them made; what a worker gave back is sent again, as the manager does."""
    ready: list[str] = []

    def made() -> bool:
        left = [stack.world.task(key) for key in keys if key not in done(stack, keys)]
        given_back = [task.key for task in left if task.state is State.READY]
        if given_back and given_back == ready:
            send(stack, given_back)
        ready[:] = given_back
        return not left

    until(made, 60, "all are done")


def digests(stack: Stack, keys: Sequence[str]) -> dict[str, list[str]]:
    return {key: [file.sha256 for file in stack.world.task(key).files] for key in keys}


@pytest.mark.provokes(Category.OUT_OF_MEMORY)
def test_a_child_killed_in_the_midst_of_a_batch_of_20_charges_one_task(stack: Stack) -> None:
    process = worker(stack, "killed-in-a-batch")
    lost: list[str] = []
    granule = collected(stack)
    # A child that is met between two tasks has none in hand, and none is charged.
    for side in (400, 401, 402, 403):
        keys = cells(stack, granule, 20, side)  # so large that the batch can be met in its midst
        kill_in_the_midst(stack, process, keys)
        lost = [key for key in keys if stack.world.task(key).retries]
        finish(stack, [key for key in keys if key not in lost])
        if lost:
            break
    assert {key: stack.world.task(key).retries for key in lost} == {lost[0]: 1}
    (attempt,) = stack.world.runtime.tasks.attempts(lost[0])
    assert attempt.category is Category.OUT_OF_MEMORY
    stack.world.wake(lost[0])
    finish(stack, lost)


def kill_in_the_midst(stack: Stack, process: Process, keys: Sequence[str]) -> None:
    """Kill the child that carries out these tasks, and wait until the worker has none in hand."""
    victim = child(process)
    before = stored(stack)
    send(stack, keys)
    # Its ends are told together, so that the first files say that it has begun.
    limit = time.monotonic() + 30
    while stored(stack) < before + 3 and time.monotonic() < limit:
        pass  # no sleep: the whole batch takes a second
    os.kill(victim, signal.SIGSTOP)

    def in_hand() -> list[str]:
        (row,) = workers.list_workers(stack.world.runtime.store)
        return [attempt.key for attempt in row.attempts]

    until(lambda: len(in_hand()) == 1, 10, "its worker has told what is in hand")
    assert before + 3 <= stored(stack) < before + 20
    os.kill(victim, signal.SIGKILL)
    until(dead([victim]), 10, "the child is gone")
    until(
        lambda: all(stack.world.task(key).state is not State.RUNNING for key in keys),
        30,
        "none of the batch runs",
    )


@pytest.mark.proof
def test_batches_warm_children_and_storage_change_no_byte(
    azurite: str, redis_server: str, tmp_path: Path
) -> None:
    """One by one in fresh children, 50 in one warm child, and 50 on Azurite."""
    with stack_on("", redis_server, tmp_path / "alone") as stack:
        alone = made_alone(stack, 4)
    with stack_on("", redis_server, tmp_path / "embedded") as stack:
        embedded = made_together(stack, 50)
    with stack_on(azurite, redis_server, tmp_path / "azurite") as stack:
        on_azurite = made_together(stack, 50)
    assert embedded == on_azurite
    assert alone.items() <= embedded.items()
    assert len({digest for files in embedded.values() for digest in files}) == 50


def made_alone(stack: Stack, number: int) -> dict[str, list[str]]:
    process = worker(stack, "alone")
    keys = cells(stack, collected(stack), number, 60)
    children = {child(process)}
    for key in keys:
        before = child(process)
        os.kill(before, signal.SIGKILL)
        until(dead([before]), 10, "the child is gone")
        finish(stack, [key])
        children.add(child(process))
    assert len(children) == number + 1
    return digests(stack, keys)


def made_together(stack: Stack, number: int) -> dict[str, list[str]]:
    process = worker(stack, "together")
    keys = cells(stack, collected(stack), number, 60)
    before = child(process)
    send(stack, keys)
    finish(stack, keys)
    assert child(process) == before
    return digests(stack, keys)
