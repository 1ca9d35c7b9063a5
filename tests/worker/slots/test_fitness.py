"""What fails before an attempt's own work is the machine's, and it takes no more until tested."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.errors import StoreError
from tasks.service.classify import AttemptError
from tasks.settings import Settings
from tasks.storage.blobs import CONTAINERS, MemoryBlobs
from tasks.storage.clock import ManualClock
from tasks.storage.file_blobs import FileBlobs
from tasks.storage.writable import write_error
from tests.worker.disks import disk_of
from tests.worker.slots.test_supervisor import (
    Bench,
    Pretended,
    batch_of,
    bench,
    by_turn,
    heartbeat,
    states,
    store,
    well,
)
from worker.sandbox import confined, sandbox
from worker.sandbox.messages import ChildSettings, Ended, Failed, SelfTest
from worker.slots import fitness
from worker.slots.fitness import Fitness
from worker.slots.fitness_watch import FitnessWatch
from worker.slots.self_testing import self_test, unwritable

__all__ = ["bench", "store"]  # fixtures

DEAD = Ended(exit_code=1, peak_memory=0, over_memory=False, log="no working directory\n")
DISK = Failed(category=Category.HOST_FAILED, message="scratch cannot be written")


def no_scratch(bench: Bench) -> None:
    bench.supervisor.scratch._folder = Path("/proc/nowhere")


def no_child(bench: Bench) -> None:
    bench.child.messages, bench.child.ended = [], DEAD


def bad_disk(bench: Bench) -> None:
    bench.child.messages = [DISK]


@pytest.mark.provokes(Category.HOST_FAILED)
@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (no_scratch, "no scratch folder can be made"),
        (no_child, "no working directory"),
        (bad_disk, "scratch cannot be written"),
    ],
)
def test_what_fails_before_the_work_costs_the_task_nothing(
    bench: Bench, breaks: Callable[[Bench], None], says: str
) -> None:
    before = bench.supervisor.scratch._folder
    breaks(bench)
    key = bench.attempt()
    bench.supervisor.scratch._folder = before
    task = bench.world.task(key)
    (attempt,) = bench.world.runtime.tasks.attempts(key)
    assert (attempt.category, task.state) == (Category.HOST_FAILED, State.READY)
    assert (task.retries, task.losses, task.not_before) == (0, 0, 0.0)
    assert says in attempt.message


def test_after_such_a_failure_nothing_more_is_begun_or_claimed(bench: Bench) -> None:
    """So that the next try goes to another worker."""
    keys = batch_of(bench, 3)
    by_turn(bench, well(), Pretended(messages=[DISK]), well())
    bench.supervisor.execute(keys)
    assert states(bench, keys) == [State.DONE, State.READY, State.READY]
    assert not bench.supervisor.takes()
    assert len(bench.world.runtime.tasks.attempts(keys[2])) == 0
    heartbeat(bench).beat()
    (row,) = workers.list_workers(bench.world.runtime.store)
    assert row.unfit == "scratch cannot be written"


def test_a_worker_takes_again_when_its_test_passes(bench: Bench) -> None:
    fitness, clock = bench.supervisor.fitness, bench.world.runtime.clock
    found = ["still broken", ""]
    watch = FitnessWatch(fitness=fitness, test=lambda _sandbox: found.pop(0))
    fitness.failed("broken")
    for left in (2, 1, 0):
        assert len(found) == left
        assert bench.supervisor.takes() is (not left)
        watch.look()  # not due yet
        assert len(found) == left
        clock.sleep(4.0)
        watch.look()
    assert fitness.unready == ""


def test_unknown_failures_in_a_row_have_the_machine_tested(bench: Bench) -> None:
    unknown = Failed(category=Category.UNKNOWN, message="no such file")
    keys = batch_of(bench, 7)
    failing = Pretended(messages=[unknown])
    by_turn(bench, failing, failing, well(), failing, failing)
    bench.supervisor.execute(keys[:5])
    assert bench.supervisor.takes(), "a success ends the row"
    bench.supervisor.execute(keys[5:])
    assert states(bench, keys)[6] is State.READY
    assert len(bench.jobs) == 6
    assert not bench.supervisor.takes()
    assert "3 attempts in a row failed for unknown causes" in bench.supervisor.fitness.unready


def test_a_worker_claims_nothing_before_its_first_test(bench: Bench) -> None:
    bench.supervisor.fitness.tested = False
    key = bench.attempt()
    assert (bench.world.task(key).state, bench.jobs) == (State.READY, [])
    assert "not tested" in bench.supervisor.fitness.unready
    tried: list[bool] = []

    def test(sandbox: bool) -> str:
        tried.append(sandbox)
        return ""

    watch = FitnessWatch(fitness=bench.supervisor.fitness, test=test, held=lambda: True)
    watch.look()
    assert bench.supervisor.takes()
    assert tried == [False], "its tier was found by a trial of the sandbox"
    bench.world.runtime.clock.sleep(60.0)
    watch.look()
    assert tried == [False, True]


def test_tests_that_pass_in_vain_come_ever_later() -> None:
    """A fault that the test does not see costs an attempt a minute, not thousands."""
    clock, tests = ManualClock(), 0
    fitness = Fitness(clock)

    def test(_sandbox: bool) -> str:
        nonlocal tests
        tests += 1
        return ""

    watch = FitnessWatch(fitness=fitness, test=test)
    for _ in range(3600):
        watch.look()
        fitness.failed("attempt")
        clock.sleep(1.0)
    assert 60 <= tests <= 70
    fitness.succeeded()
    clock.sleep(60.0)
    watch.look()
    fitness.failed("attempt")
    clock.sleep(1.0)
    assert fitness.is_due(held=False), "a success ends the row"


def test_a_held_worker_tests_itself_each_minute() -> None:
    clock, tests = ManualClock(), list[float]()
    fitness = Fitness(clock)

    def test(_sandbox: bool) -> str:
        tests.append(clock.monotonic())
        return "no sandbox" if len(tests) > 1 else ""

    watch = FitnessWatch(fitness=fitness, test=test, held=lambda: True)
    for _ in range(70):
        watch.look()
        clock.sleep(1.0)
    assert len(tests) >= 2
    assert fitness.unready == "no sandbox"


def given(folder: Path) -> ChildSettings:
    settings = Settings(data_dir=folder, storage=f"file:{folder}/store")
    return ChildSettings(settings=settings, cache=folder / "cache", sandbox=None, reading="none")


def made(folder: Path) -> FileBlobs:
    blobs = FileBlobs(folder / "store" / "blobs")
    blobs.create(CONTAINERS)
    (folder / "scratch").mkdir()
    return blobs


def test_the_self_test_of_a_sound_machine_finds_nothing(tmp_path: Path) -> None:
    blobs = made(tmp_path)
    test = SelfTest(scratch=tmp_path / "scratch")
    assert self_test(test, given(tmp_path), lambda: blobs, str) == ""
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_self_test_names_what_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = made(tmp_path)
    tested = partial(self_test, SelfTest(scratch=tmp_path / "scratch"), maker=str)
    (tmp_path / "store").rename(tmp_path / "moved")
    assert "storage cannot be written" in tested(given(tmp_path), lambda: blobs)
    (tmp_path / "moved").rename(tmp_path / "store")

    def silent() -> MemoryBlobs:
        raise StoreError("nobody answers")

    assert "nobody answers" in tested(given(tmp_path), silent)
    monkeypatch.setattr(sandbox, "fault", lambda tier: f"no {tier}")
    with_tier = ChildSettings(
        settings=given(tmp_path).settings,
        cache=tmp_path / "cache",
        sandbox="bubblewrap",
        reading="none",
    )
    assert tested(with_tier, lambda: blobs) == "the sandbox does not work: no bubblewrap"
    no_maker = partial(self_test, SelfTest(scratch=tmp_path / "scratch"), maker=lambda: "so")
    said = "granules cannot be read, no maker begins: so"
    assert no_maker(given(tmp_path), lambda: blobs) == said
    runner = Settings(data_dir=tmp_path, storage="")
    without = ChildSettings(settings=runner, cache=tmp_path, sandbox=None, reading="none")
    assert no_maker(without, lambda: blobs) == "", "a runner makes nothing by makers"
    (tmp_path / "scratch").rmdir()
    assert "scratch cannot be written" in tested(given(tmp_path), lambda: blobs)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(tmp_path / "disk", "1m") as folder:
        yield folder


def test_a_cache_that_fills_the_disk_is_emptied_and_not_blamed(disk: Path) -> None:
    scratch, cache = disk / "scratch", disk / "cache"
    scratch.mkdir()
    (cache / "entries" / "ab").mkdir(parents=True)
    filled = cache / "entries" / "ab" / ("ab" * 32)
    with filled.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    error = write_error(scratch)
    assert error is not None
    assert error.errno == errno.ENOSPC
    (cache / "entries" / "ab" / ("ac" * 32)).touch()  # the newest entry stays
    os.utime(filled, (0, 0))
    assert unwritable(Settings(data_dir=disk), cache, scratch) == ""


def test_a_program_in_a_sandbox_that_does_not_work_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    places = sandbox.Places(package=tmp_path, inputs=tmp_path, outputs=tmp_path, temporary=tmp_path)
    bounds = sandbox.SandboxLimits(memory=2**30, seconds=10, processes=4, output=2**20)

    def ends(*_: object) -> None:
        raise AttemptError(Category.USER_CODE_FAILED, "ended with exit code 1: bwrap: no")

    monkeypatch.setattr(confined, "_run", ends)
    for why, category in (("", Category.USER_CODE_FAILED), ("no", Category.HOST_FAILED)):
        monkeypatch.setattr(confined, "fault", lambda _tier, why=why: why)
        with pytest.raises(AttemptError) as raised:
            confined.run_confined("limits", ("true",), places, bounds)
        assert raised.value.category is category


def test_the_pause_before_a_test_grows_to_a_minute() -> None:
    clock = ManualClock()
    one, pauses = Fitness(clock), []
    for _ in range(12):
        one._fail("attempt")
        pauses.append(one._due - clock.monotonic())
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[fitness._LONGEST] * 6])
    assert fitness._LONGEST == 60.0
