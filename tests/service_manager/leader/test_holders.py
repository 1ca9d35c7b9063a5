"""A manager of this machine whose process has ended is followed at once; others by the lease."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service_manager.leader.holders import Holders
from service_manager.leader.leadership import Leadership
from tasks.bag.runtime import Runtime
from tasks.operators import manager_lease
from tasks.service.connect import connect_storage, embedded_folder
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.clock import ManualClock

LEASE = 30.0


@pytest.fixture
def runtime() -> Runtime:
    return memory_runtime(ManualClock())


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Callable[[], Holders]]:
    """Makes managers of this machine, which live until the end of the test."""
    made: list[Holders] = []

    def one() -> Holders:
        made.append(Holders(tmp_path / "managers"))
        return made[-1]

    yield one
    for holders in made:
        holders.leave()
    assert not list((tmp_path / "managers").iterdir())


Living = Callable[[], Holders]


def test_a_manager_that_lives_is_not_followed(runtime: Runtime, living: Living) -> None:
    acting = Leadership(runtime, LEASE, living())
    assert acting.acquire()
    standby = Leadership(runtime, LEASE, living())
    assert not standby.acquire()
    assert not standby.acquire()


def test_one_that_hangs_is_followed_after_its_lease_and_does_not_come_back(
    living: Living,
) -> None:
    clock = ManualClock()
    runtime = memory_runtime(clock)
    hanging = Leadership(runtime, LEASE, living())
    standby = Leadership(runtime, LEASE, living())
    assert hanging.acquire()
    assert not standby.acquire()
    clock.sleep(LEASE + 1.0)
    assert standby.acquire()
    assert not hanging.acquire()


@pytest.mark.parametrize("known", [True, False])
def test_without_its_file_nothing_is_known_of_a_holder(
    runtime: Runtime, tmp_path: Path, living: Living, *, known: bool
) -> None:
    """So it is for a manager of another machine, and of a build without such files."""
    acting = Leadership(runtime, LEASE)
    assert acting.acquire()
    holder = manager_lease.read(runtime).holder
    folder = tmp_path / "managers"
    folder.mkdir()
    if known:
        (folder / holder).touch()  # no process has its lock
    standby = Leadership(runtime, LEASE, living())
    assert standby.acquire() is known
    assert standby.epoch == (2 if known else 0)
    assert not (folder / holder).exists()
    assert len(list(folder.iterdir())) == 1, "the file of a living manager was removed"


def test_a_released_lease_names_nobody(runtime: Runtime, living: Living) -> None:
    acting = Leadership(runtime, LEASE, living())
    assert acting.acquire()
    acting.release()
    assert not living().has_ended("")
    assert Leadership(runtime, LEASE, living()).acquire()


ACTING = """
import sys, signal
from pathlib import Path
from service_manager.leader.holders import Holders
from service_manager.leader.leadership import Leadership
from tasks.service.connect import connect_storage
storage, folder = sys.argv[1:]
acts = Leadership(connect_storage(storage), 30.0, Holders(Path(folder)))
assert acts.acquire()
print("acting", flush=True)
signal.pause()
"""


def test_a_manager_that_is_killed_is_followed_at_once(tmp_path: Path, living: Living) -> None:
    storage = f"file:{tmp_path / 'storage'}"
    folder = tmp_path / "managers"
    root = Path(__file__).parents[3]
    argv = [sys.executable, "-c", ACTING, storage, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=root) as acting:
        try:
            assert acting.stdout is not None
            assert acting.stdout.readline() == "acting\n"
            runtime = replace(connect_storage(storage), clock=ManualClock())
            standby = Leadership(runtime, LEASE, living())
            assert not standby.acquire()
        finally:
            acting.kill()
        acting.wait()
    assert standby.acquire()
    assert standby.epoch == 2


def test_only_embedded_storage_belongs_to_one_machine() -> None:
    assert embedded_folder(Settings(storage="file:/srv/x")) == Path("/srv/x")
    assert embedded_folder(Settings(storage="AccountName=a;AccountKey=b")) is None
