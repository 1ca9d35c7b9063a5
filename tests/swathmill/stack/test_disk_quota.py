"""Work stops when the disk is full, and goes on when there is room: the rest goes on meanwhile."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from swathmill.diagnosis import Verdict, disk_finding
from swathmill.errors import StackError
from swathmill.stack import folder as folder_module
from swathmill.stack.children import ChildSpec
from swathmill.stack.folder import GIGABYTE, DataFolder, DiskUse
from swathmill.stack.stack import DISK_CHECK_SECONDS, Stack, StackOptions
from tasks.settings import Settings
from tests.waiting import until


@dataclass(frozen=True, kw_only=True)
class FolderOnAFullDisk(DataFolder):
    """A data folder whose size the test sets, in GB."""

    size: list[float] = field(default_factory=lambda: [0.0])

    def disk_use(self, quota_gb: float) -> DiskUse:
        return DiskUse(
            used=int(self.size[0] * GIGABYTE),
            quota=int(quota_gb * GIGABYTE),
            free=100 * GIGABYTE,
        )


@pytest.fixture
def folder(tmp_path: Path) -> FolderOnAFullDisk:
    one = FolderOnAFullDisk(path=tmp_path / "data")
    one.prepare()
    return one


@dataclass
class Watcher:
    """A stack of two idle children, what it said, and its clock."""

    stack: Stack
    said: list[str]
    now: list[float]

    def after_a_check(self) -> bool:
        """Let the next disk check come; whether the worker runs after it."""
        self.now[0] += DISK_CHECK_SECONDS
        self.stack.tick()
        return self.runs("worker-1")

    def runs(self, name: str) -> bool:
        return self.stack.supervisor.child(name).exit_code() is None


def options(folder: DataFolder) -> StackOptions:
    return StackOptions(folder=folder, archive="", settings=Settings(disk_quota_gb=10.0))


@pytest.fixture
def watcher(folder: FolderOnAFullDisk) -> Iterator[Watcher]:
    said: list[str] = []
    now = [1000.0]
    stack = Stack(options(folder), say=said.append, clock=lambda: now[0])
    for name in ("worker-1", "portal"):
        stack.supervisor.start(
            ChildSpec(
                name=name,
                argv=(sys.executable, "-c", "import signal; signal.pause()"),
                log=folder.log(name),
            )
        )
    yield Watcher(stack, said, now)
    stack.kill()


def test_workers_pause_beyond_the_quota_and_resume_well_below_it(
    folder: FolderOnAFullDisk, watcher: Watcher
) -> None:
    folder.size[0] = 9.5
    assert watcher.after_a_check()
    folder.size[0] = 10.5
    assert not watcher.after_a_check()
    assert watcher.runs("portal")
    folder.size[0] = 9.5
    assert not watcher.after_a_check()
    folder.size[0] = 8.9
    assert watcher.after_a_check()
    assert len(watcher.said) == 2
    assert "holds 10.5 GB, its quota is 10.0 GB" in watcher.said[0]
    assert "continues with less than 9.0 GB in the data folder" in watcher.said[0]
    assert "SWATHMILL_DISK_QUOTA_GB holds from the next start" in watcher.said[0]
    assert "continues" in watcher.said[1]
    kept = folder.log("stack").read_text().splitlines()
    assert [line.partition(" ")[2] for line in kept] == watcher.said


def test_the_log_of_a_running_child_is_bounded(
    folder: FolderOnAFullDisk, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "LOG_LIMIT_BYTES", 1000)
    log, earlier = folder.log("writer"), folder.path / "logs" / "writer.log.1"
    writes = "import sys\nfor line in sys.stdin: print(line.strip() * 100, flush=True)"
    with log.open("ab") as output:
        writer = subprocess.Popen(
            (sys.executable, "-c", writes), stdin=subprocess.PIPE, stdout=output, text=True
        )
    assert writer.stdin

    def write(letter: str) -> None:
        before = log.stat().st_size
        print(letter * 11, file=writer.stdin, flush=True)
        until(lambda: log.stat().st_size >= before + 1100)

    try:
        write("a")
        assert watcher.after_a_check()
        assert (log.read_text(), earlier.read_text()) == ("", "a" * 999 + "\n")
        write("b")  # at the file's begin: no hole is left
        assert log.read_text() == "b" * 1100 + "\n"
        assert watcher.after_a_check()
        assert (log.read_text(), earlier.read_text()) == ("", "b" * 999 + "\n")
    finally:
        writer.communicate()


def test_a_long_log_is_emptied_where_its_end_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "LOG_LIMIT_BYTES", 1000)
    folder = DataFolder(path=tmp_path)
    log = folder.log("writer")
    (log.parent / "writer.log.1").mkdir(parents=True)  # writing it fails, as on a full disk
    log.write_text("a" * 1001)
    folder.bound_logs()
    assert log.read_text() == ""


@pytest.mark.parametrize(
    ("used", "free", "verdict", "told"),
    [
        (1, 100, Verdict.GOOD, ""),
        (11, 100, Verdict.FAULT, "less than 9.0 GB in the data folder."),
        (9, 100, Verdict.NOTE, "continues with less than 9.0 GB in the data folder."),
        (1, 0.9, Verdict.FAULT, "continues with more than 2.0 GB left on the disk."),
        (1, 1.5, Verdict.NOTE, "continues with more than 2.0 GB left on the disk."),
        (9.5, 1.5, Verdict.NOTE, "in the data folder and more than 2.0 GB left on the disk."),
        (6, 5, Verdict.GOOD, ""),
        (1, 5, Verdict.NOTE, "lower SWATHMILL_DISK_QUOTA_GB"),
    ],
)
def test_doctor_tells_with_how_much_room_work_continues(
    folder: FolderOnAFullDisk,
    monkeypatch: pytest.MonkeyPatch,
    used: float,
    free: float,
    verdict: Verdict,
    told: str,
) -> None:
    folder.size[0] = used
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free * GIGABYTE))
    finding = disk_finding(folder, Settings(disk_quota_gb=10.0))
    assert finding.verdict is verdict
    assert told in finding.remedy
    assert finding.found.endswith(f"{used:.1f} GB of the quota of 10 GB in use")


def test_doctor_measures_only_the_disk_where_there_is_no_data_folder(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 200_000_000)
    finding = disk_finding(DataFolder(path=tmp_path / "none"), Settings(disk_quota_gb=1.0))
    assert f"at {tmp_path}, 0.0 GB of the quota of 1 GB in use" in finding.found


def test_a_stack_does_not_start_on_a_folder_beyond_its_quota(folder: FolderOnAFullDisk) -> None:
    folder.size[0] = 11.0
    stack = Stack(options(folder), say=lambda _: None)
    with pytest.raises(StackError, match=r"does not start: the data folder holds 11\.0 GB"):
        stack.start()
    assert stack.supervisor.names() == []


def test_a_portal_port_that_is_taken_is_told(folder: FolderOnAFullDisk) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        asked = StackOptions(folder=folder, archive="", portal_port=port, settings=Settings())
        stack = Stack(asked, say=lambda _: None)
        with pytest.raises(StackError, match=f"Port {port} is taken"):
            stack.start()
    assert stack.supervisor.names() == []
