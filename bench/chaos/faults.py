"""Faults, one after another at random: kills, stalls, bad connections, full disks, restarts."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos.journal import Journal
from bench.chaos.proxy import KINDS, Proxy, Weather
from processes import proctree
from swathmill.stack.folder import GIGABYTE, DataFolder
from swathmill.stack.stack import Stack
from tasks.bag.runtime import Runtime
from tasks.errors import SwathmillError
from tasks.storage.blobs import ARTIFACTS, GRANULES

MEAN_PAUSE = 3.0  # seconds between the begins of two faults
CALM = Weather()
_STRENGTHS = {"reset": 0.2, "lost answer": 0.3, "delay": 0.4}


@dataclass(frozen=True, kw_only=True)
class SmallDisk:
    """A file system of its own for some folders of the data folder, which can be filled."""

    folder: Path

    @classmethod
    def mount(cls, data: Path, folders: Sequence[str], megabytes: int = 800) -> "SmallDisk | None":
        """Mount a tmpfs for folders that are not there yet; None where we may not mount.

        It takes root.
        """
        disk = data / "small-disk"
        disk.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "chaos", str(disk)]
        if os.geteuid() != 0 or subprocess.run(command, check=False).returncode != 0:
            return None
        for name in folders:
            (disk / name).mkdir()
            (data / name).symlink_to(disk / name)
        return cls(folder=disk)

    def fill(self) -> None:
        """Leave not a byte."""
        with (self.folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20))

    def clear(self) -> None:
        """Make room again."""
        (self.folder / "filler").unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take the file system away."""
        command = ["umount", "--lazy", str(self.folder)]
        subprocess.run(command, check=False, capture_output=True)


@dataclass(kw_only=True)
class Faults:
    """Call `tick` often, from the thread that looks after the stack; `calm` ends them all.

    `harmed` are the blobs that were damaged or deleted, as `container/name`.
    """

    stack: Stack
    folder: DataFolder
    runtime: Runtime
    proxy: Proxy
    disk: SmallDisk | None
    choose: random.Random
    journal: Journal
    quota_gb: float
    longest: float  # seconds of a stall: well beyond a lease
    harmed: set[str] = field(default_factory=set)
    _next: float = 0.0
    _ends: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _busy: set[str] = field(default_factory=set)

    def tick(self) -> None:
        """End what is over, and begin another fault when its time has come."""
        now = time.monotonic()
        for end in [end for end in self._ends if end[0] <= now]:
            self._ends.remove(end)
            end[1]()
        if now >= self._next:
            self._next = now + self.choose.expovariate(1.0 / MEAN_PAUSE)
            self._begin()

    def calm(self) -> None:
        """End all faults that last."""
        for _, end in self._ends:
            end()
        self._ends.clear()

    def _begin(self) -> None:
        kinds: list[tuple[int, Callable[[], None]]] = [
            (30, self._kill),
            (8, self._kill_inside),
            (25, self._stall),
            (35, self._bad_connections),
            (8 if self.disk else 0, self._full_disk),
            (1, self._full_quota),
            (15, self._harm_blob),
        ]
        if self.folder.state().azurite_ports:
            kinds.append((6, self._restart_azurite))
        self.choose.choices([k for _, k in kinds], weights=[w for w, _ in kinds])[0]()

    def _lasting(self, name: str, seconds: float, end: Callable[[], None]) -> None:
        """Have a fault end after so many seconds; none begins on the same thing meanwhile."""

        def over() -> None:
            self._busy.discard(name)
            end()

        self._busy.add(name)
        self._ends.append((time.monotonic() + seconds, over))

    def _process(self) -> tuple[str, int] | None:
        """One of our own processes that runs, or Redis."""
        often = [*self.stack.worker_names, *self.stack.manager_names]
        names = [*often, *often, "portal", "redis", "redis"]
        name = self.choose.choice(names)
        child = self.stack.supervisor.child(name)
        if name in self._busy or child.pid is None or child.exit_code() is not None:
            return None
        return name, child.pid

    def _kill(self) -> None:
        found = self._process()
        if found is not None:
            self.journal.note("kill", process=found[0])
            os.kill(found[1], signal.SIGKILL)

    def _kill_inside(self) -> None:
        """A worker's forkserver, or the guard of an attempt."""
        child = self.stack.supervisor.child(self.choose.choice(self.stack.worker_names))
        if child.pid is None or child.exit_code() is not None:
            return
        servers = [pid for pid in proctree.children(child.pid) if proctree.children(pid)]
        guards = [guard for server in servers for guard in proctree.children(server)]
        if servers:
            self.journal.note("kill inside a worker")
            _signal([self.choose.choice([*servers, *guards, *guards])], signal.SIGKILL)

    def _stall(self) -> None:
        found = self._process()
        if found is None:
            return
        name, pid = found
        whole = name.startswith("worker") and self.choose.random() < 0.5
        stopped = [pid, *(proctree.descendants(pid) if whole else [])]
        seconds = self.choose.choice((0.5, 2.0, self.longest))
        self.journal.note("stall", process=name, seconds=seconds, tree=whole)
        _signal(stopped, signal.SIGSTOP)
        self._lasting(name, seconds, lambda: _signal(stopped, signal.SIGCONT))

    def _bad_connections(self) -> None:
        state = self.folder.state()
        servers = dict(zip(("blobs", "queues", "tables"), state.azurite_ports, strict=False))
        servers["redis"] = state.redis_port
        name = self.choose.choice([*servers])
        if f"to {name}" in self._busy:
            return
        kind = self.choose.choice(KINDS)
        seconds = self.choose.uniform(1.0, self.longest if kind in ("refuse", "hole") else 6.0)
        self.journal.note(f"connections: {kind}", server=name, seconds=round(seconds, 1))
        self.proxy.set(servers[name], Weather(kind=kind, strength=_STRENGTHS.get(kind, 1.0)))
        self._lasting(f"to {name}", seconds, lambda: self.proxy.set(servers[name], CALM))

    def _harm_blob(self) -> None:
        """Delete a granule or an artifact, or replace it by one with another byte.

        The file that attempts may have links to is not changed: they have verified it.
        """
        blobs = self.runtime.blobs
        container = self.choose.choice((GRANULES, ARTIFACTS))
        try:
            name = self.choose.choice([*blobs.names(container)])
            data = bytearray(blobs.get_bytes(container, name))
            self.harmed.add(f"{container}/{name}")
            blobs.delete(container, name)
            damaged = bool(data) and self.choose.random() < 0.5
            if damaged:
                data[self.choose.randrange(len(data))] ^= 1
                blobs.put_bytes(container, name, bytes(data))
        except (IndexError, SwathmillError):  # none yet, or storage has its own trouble
            return
        self.journal.note(f"blob {'damaged' if damaged else 'deleted'}", blob=f"{container}/{name}")

    def _full_disk(self) -> None:
        disk = self.disk
        if disk is None or "disk" in self._busy:
            return
        seconds = self.choose.uniform(2.0, self.longest)
        self.journal.note("full disk", seconds=round(seconds, 1))
        disk.fill()
        self._lasting("disk", seconds, disk.clear)

    def _full_quota(self) -> None:
        filler = self.folder.path / "filler"
        size = int((self.quota_gb + 1) * GIGABYTE)
        if "quota" in self._busy or shutil.disk_usage(self.folder.path).free < 2 * size:
            return
        self.journal.note("full quota", seconds=35.0)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        self._lasting("quota", 35.0, filler.unlink)

    def _restart_azurite(self) -> None:
        child = self.stack.supervisor.child("azurite")
        if child.exit_code() is None:
            self.journal.note("azurite restarts")
            child.ask_to_stop()


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
