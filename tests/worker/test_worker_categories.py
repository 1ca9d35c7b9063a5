"""Ends of attempts that a fetch does not show, in a worker process: real Azurite, Redis, Celery."""

import os
import signal
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from processes import proctree
from reprojection.grid.grids import modis_tile_grid
from reprojection.sample.hdfeos_write import write_granule
from tasks.bag import protocol, transitions, workers
from tasks.bag.categories import Category
from tasks.bag.model import Attempt, State
from tasks.bag.spec import CollectSpec, GridSpec, Input, ReprojectSpec
from tasks.storage.blobs import split_blob
from tests.archives.servers import without_structure
from tests.reprojection.reading_samples import small_tile
from tests.waiting import until
from tests.worker.disks import disk_of
from tests.worker.processes import GOOD, Process, Stack, dead, hanging, make_stack, reduction
from tests.worker.world import collect_spec

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def stack(
    embedded: str, redis_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    stack = make_stack(embedded, redis_server, tmp_path_factory.mktemp("categories"))
    yield stack
    stack.end()


@pytest.fixture(scope="module")
def process(stack: Stack) -> Process:
    """One slot, and no cache to speak of, so that inputs come from storage."""
    process = stack.worker("provoked", SLOTS=1, CACHE_GB=1e-6)
    until(lambda: process.says("worker starts"), 30, "the worker has started")
    return process


def granule(stack: Stack, day: int, change: Callable[[bytes], bytes] = bytes) -> CollectSpec:
    """A granule of that day in the archive's folder, changed first, and its collection."""
    archive = stack.folder / "archive"
    path = archive / f"MCD15A2.A2012{day:03d}.h17v03.005.2012153130500.hdf"
    write_granule(path, small_tile(date=f"2012{day:03d}"))
    path.write_bytes(change(path.read_bytes()))
    return collect_spec(path, archive, "MCD15A2", "5")


def cell(collected: CollectSpec) -> ReprojectSpec:
    grid = modis_tile_grid(17, 3, 1000)
    return ReprojectSpec(
        inputs=(Input(key=collected.key, name=collected.granule),),
        product="MCD15A2",
        collection="5",
        layer="Lai_1km",
        day=date(2012, 1, 1),
        grid=GridSpec(crs=grid.crs, transform=grid.transform, width=grid.width, height=grid.height),
        resampling="nearest",
    )


def end_of(stack: Stack, key: str) -> Attempt:
    """Its last attempt, when that has ended."""
    stack.settled(key)
    return stack.world.runtime.tasks.attempts(key)[-1]


def made(stack: Stack, collected: CollectSpec) -> tuple[str, str]:
    """The blob of a granule that has been collected."""
    stack.world.plan(collected)
    stack.send(collected.key)
    task = stack.settled(collected.key)
    assert task.state is State.DONE, end_of(stack, collected.key)
    return split_blob(task.files[0].blob)


def forked(process: Process) -> list[int]:
    """The forkserver and what it has forked."""
    (forkserver,) = [p for p in proctree.children(process.popen.pid) if proctree.children(p)]
    return [forkserver, *proctree.descendants(forkserver)]


def attempt_processes(process: Process) -> tuple[int, int]:
    """The guard and the warm child of the one slot."""
    forkserver, *_ = forked(process)
    (guard,) = proctree.children(forkserver)
    _server, child = proctree.children(guard)  # the server of makers is forked first
    return guard, child


@pytest.mark.provokes(Category.BAD_IMAGE_FORMAT, Category.UNREADABLE_INPUT_FILE)
@pytest.mark.usefixtures("process")
def test_granules_that_are_none_or_broken(stack: Stack) -> None:
    other = granule(stack, 1, lambda _: b"CDF\x01" + bytes(28))  # an empty netCDF-3 file
    broken = granule(stack, 2, without_structure)
    for spec in (other, broken):
        stack.world.plan(spec)
        stack.send(spec.key)
    assert end_of(stack, other.key).category is Category.BAD_IMAGE_FORMAT
    assert end_of(stack, broken.key).category is Category.UNREADABLE_INPUT_FILE
    assert stack.world.task(other.key).state is State.FAILED


@pytest.mark.provokes(Category.CHOICE_REFUSED)
@pytest.mark.usefixtures("process")
def test_a_choice_that_its_granules_refuse_is_not_tried_again(stack: Stack) -> None:
    collected = granule(stack, 5)
    made(stack, collected)
    blended = {"layer": "FparLai_QC", "resampling": "bilinear"}
    spec = cell(collected).model_copy(update=blended)
    stack.world.plan(spec)
    stack.send(spec.key)
    end = end_of(stack, spec.key)
    assert end.category is Category.CHOICE_REFUSED, end
    assert "FparLai_QC" in end.message
    assert "choose nearest or mode" in end.message
    assert stack.world.task(spec.key).state is State.FAILED
    assert len(stack.world.runtime.tasks.attempts(spec.key)) == 1


@pytest.mark.provokes(Category.SOURCE_BLOB_MISSING, Category.CORRUPT_BLOB_READ)
@pytest.mark.usefixtures("process")
def test_inputs_that_are_gone_or_changed_in_storage(stack: Stack) -> None:
    blobs = stack.world.runtime.blobs
    gone, changed = granule(stack, 3), granule(stack, 4)
    where = made(stack, gone)
    blobs.delete(*where)
    where = made(stack, changed)
    content = blobs.get_bytes(*where)
    blobs.delete(*where)
    blobs.put_bytes(*where, content[:-1] + b"?")
    cells = {spec.granule: stack.world.plan(cell(spec)) for spec in (gone, changed)}
    for key in cells.values():
        stack.send(key)
    missing = end_of(stack, cells[gone.granule])
    assert missing.category is Category.SOURCE_BLOB_MISSING, missing
    corrupt = end_of(stack, cells[changed.granule])
    assert corrupt.category is Category.CORRUPT_BLOB_READ, corrupt
    assert blobs.exists(*where)  # the sweep deletes what no task names
    assert stack.world.task(changed.key).state is State.EXPIRED
    for key in cells.values():
        task = stack.world.task(key)
        assert (task.state, task.missing) == (State.WAITING, 1), task


@pytest.mark.provokes(Category.OUT_OF_MEMORY, Category.WORKER_LOST, Category.UNKNOWN)
def test_processes_of_an_attempt_that_are_killed(stack: Stack, process: Process) -> None:
    """By the kernel, when memory is short: the child first; the guard; and a crash."""
    ends = {}
    for name, of_guard, number in (
        ("child", False, signal.SIGKILL),
        ("guard", True, signal.SIGKILL),
        ("crash", False, signal.SIGSEGV),
    ):
        key = hanging(stack, f"killed-{name}", process)
        guard, child = attempt_processes(process)
        os.kill(guard if of_guard else child, number)
        ends[name] = end_of(stack, key)
        until(dead([child]), 10, "the attempt's process is gone")
    assert ends["child"].category is Category.OUT_OF_MEMORY, ends["child"]
    assert ends["guard"].category is Category.WORKER_LOST, ends["guard"]
    assert ends["crash"].category is Category.UNKNOWN, ends["crash"]
    assert "SIGSEGV" in ends["crash"].message
    good = reduction(stack, "after-kills", GOOD)
    stack.send(good)
    assert end_of(stack, good).category is None, "a kill costs the attempt in hand alone"


def test_a_slot_keeps_its_child_until_an_attempt_fails(stack: Stack, process: Process) -> None:
    children = []
    for number, script in enumerate((GOOD, GOOD, "raise SystemExit(3)", GOOD)):
        key = reduction(stack, f"attempt-{number}", f"attempt = {number}\n{script}")
        stack.send(key)
        failed = end_of(stack, key).category is Category.USER_CODE_FAILED
        assert failed is (number == 2)
        until(lambda: len(forked(process)) == 4, 10, "guard, child and server of makers are there")
        children.append(attempt_processes(process)[1])
    first, second, after, last = children
    assert first == second != after == last


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 80 megabytes, of which collections leave 64 free."""
    with disk_of(tmp_path / "disk", "80m") as disk:
        yield disk


@pytest.mark.provokes(Category.OUT_OF_DISK, Category.DISK_SHARED)
def test_a_granule_larger_than_the_worker_disk_and_one_beside_other_attempts(
    stack: Stack, process: Process, small_disk: Path
) -> None:
    store, clock = stack.world.runtime.store, stack.world.runtime.clock

    def large() -> workers.WorkerRow:
        (row,) = [row for row in workers.list_workers(store) if row.name == process.name]
        return row

    until(lambda: bool(workers.list_workers(store)), 30, "the large worker has beaten")
    assert workers.order_hold(store, clock, large().name, large().started, workers.Hold.DRAINED)
    sequence = large().sequence
    until(lambda: large().sequence > sequence + 1, 30, "the large worker has read its hold")
    cramped = stack.worker("cramped", DATA_DIR=small_disk, SLOTS=1)
    until(lambda: cramped.says("worker starts"), 30, "the small worker has started")
    fits = granule(stack, 7, lambda data: data.ljust(500_000, b"x"))
    other = small_disk / "scratch" / "neighbour" / "attempt"
    other.mkdir(parents=True)
    (other / "output").write_bytes(bytes(18_000_000))
    stack.world.plan(fits)
    stack.send(fits.key)
    end = end_of(stack, fits.key)
    assert (end.worker, end.category) == ("cramped", Category.DISK_SHARED), end
    assert "; other attempts held 0.018 GB of the disk" in end.message
    task = stack.world.task(fits.key)
    assert (task.state, task.retries, task.losses) == (State.READY, 0, 1)
    (other / "output").unlink()
    protocol.change_task(
        stack.world.runtime, fits.key, lambda found: transitions.wake(found, found.not_before)
    )
    stack.send(fits.key)
    until(lambda: stack.world.task(fits.key).state is State.DONE, 30, "there was room for it")

    spec = granule(stack, 6, lambda data: data.ljust(20_000_000, b"x"))
    stack.world.plan(spec)
    stack.send(spec.key)
    end = end_of(stack, spec.key)
    assert (end.worker, end.category) == ("cramped", Category.OUT_OF_DISK), end
