"""A disk that fills up while a file on it is mapped is the machine's fault, and costs no try."""

import mmap
import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from tasks.bag.categories import Category
from tasks.bag.spec import GroupSpec
from tasks.service.classify import AttemptError
from tasks.settings import Settings
from tests.worker.disks import disk_of
from tests.worker.sandbox.test_children import do_work
from worker.phases.context import Context
from worker.sandbox.guard import JOB, guard, order
from worker.sandbox.makers import MakerEndedError, Makers
from worker.sandbox.messages import Ended, Job, decode
from worker.slots.apart import Apart

MB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes, with the folder of a guard's makers."""
    with disk_of(tmp_path / "disk", "4m") as folder:
        (folder / "home").mkdir()
        yield folder


def write_mapped(folder: str, least: int, reports: Connection) -> int:
    """Map a file of 8 MB without blocks, leave it so many bytes, and write all of it."""
    del reports
    with Path(folder, "mapped").open("w+b") as file:
        file.truncate(8 * MB)
        mapped = mmap.mmap(file.fileno(), 8 * MB)
        file.truncate(least)
        for place in range(0, 8 * MB, 4096):
            mapped[place] = 1
    return 0


@pytest.mark.parametrize(("least", "no_room"), [(8 * MB, True), (MB, False)])
def test_a_guard_says_whether_the_disk_was_full_when_a_child_ended_by_sigbus(
    disk: Path, least: int, no_room: bool
) -> None:
    """A mapped file that is shorter than it was ends a process so, too."""
    ours, theirs = Pipe()
    guards = os.fork()
    if guards == 0:
        with suppress(BaseException):
            ours.close()
            guard(theirs, 2**32, disk / "home")
        os._exit(0)
    theirs.close()
    try:
        ours.send_bytes(pickle.dumps(do_work))
        job = pickle.dumps(partial(write_mapped, str(disk), least))
        ours.send_bytes(order(JOB, 1, job))
        said = decode(ours.recv_bytes())
        assert isinstance(said, Ended)
        assert (said.exit_code, said.no_room) == (-signal.SIGBUS, no_room)
    finally:
        ours.close()
        os.waitpid(guards, 0)


class Ending(Makers):
    """Makers of which each ends by a signal."""

    def __init__(self, home: Path, by: signal.Signals) -> None:
        self.home = home
        self.by = by

    def begin(self, request: str, order: object) -> None: ...

    def ask(self, question: bytes) -> None: ...

    def hear(self) -> bytes:
        raise MakerEndedError(-self.by)

    def clear(self) -> None:
        for path in self.home.iterdir():
            path.unlink()


def made(home: Path, by: signal.Signals) -> None:
    """Have a maker make something that ends so."""
    apart = Apart(Ending(home, by), Settings(), "none")
    spec = GroupSpec(group="g", cell="c", window="all", grid=None, bands=())
    job = Job(key="k", claim="c", spec=spec, inputs={}, scratch=home)
    apart.make(job, cast("Context", Mock()))


def test_a_maker_that_ended_by_sigbus_on_a_full_disk_costs_its_task_nothing(disk: Path) -> None:
    home = disk / "home"
    with pytest.raises(MakerEndedError):
        made(home, signal.SIGBUS)
    (home / "made").write_bytes(bytes(7 * MB // 2))
    with pytest.raises(MakerEndedError):
        made(home, signal.SIGSEGV)
    (home / "made").write_bytes(bytes(7 * MB // 2))
    with pytest.raises(AttemptError, match="mapped in memory") as caught:
        made(home, signal.SIGBUS)
    assert caught.value.category is Category.DISK_SHARED
    assert not (home / "made").exists(), "seen before it was removed"
