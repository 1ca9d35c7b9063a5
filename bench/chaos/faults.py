"""Faults, one after another at random: kills, stalls, bad connections, full disks, restarts."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.chaos.journal import Journal
from bench.chaos.proxy import KINDS, Proxy, Weather
from processes import proctree
from swathmill.stack.folder import GIGABYTE, DataFolder
from swathmill.stack.stack import Stack

MEAN_PAUSE = 3.0  # seconds between the begins of two faults
CALM = Weather()
_STRENGTHS = {"reset": 0.2, "lost answer": 0.3, "delay": 0.4}


@dataclass(frozen=True, kw_only=True)
class SmallDisk:
    """A file system of its own for what workers write, which can be filled: needs root."""

    folders: tuple[Path, ...]

    @classmethod
    def mount(cls, data: Path, megabytes: int = 400) -> "SmallDisk | None":
        """A tmpfs on the workers' scratch and cache folders; None where we may not mount."""
        if os.geteuid() != 0 or shutil.which("mount") is None:
            return None
        done: list[Path] = []
        for folder in (data / "scratch", data / "cache"):
            folder.mkdir(parents=True, exist_ok=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "chaos", str(folder)]
            if subprocess.run(command, check=False, capture_output=True).returncode != 0:
                cls(folders=tuple(done)).unmount()
                return None
            done.append(folder)
        return cls(folders=tuple(done))

    def fill(self) -> None:
        """Leave not a byte."""
        for folder in self.folders:
            with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 20))

    def clear(self) -> None:
        """Make room again."""
        for folder in self.folders:
            (folder / "filler").unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take the file systems away."""
        for folder in self.folders:
            subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


@dataclass(kw_only=True)
class Faults:
    """Call `tick` often, from the thread that looks after the stack; `calm` ends them all."""

    stack: Stack
    folder: DataFolder
    proxy: Proxy
    disk: SmallDisk | None
    choose: random.Random
    journal: Journal
    quota_gb: float
    longest: float  # seconds of a stall: well beyond a lease
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
            (2, self._restart_azurite),
            (4, self._kill_azurite),
        ]
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
        blob, queue, table = state.azurite_ports
        servers = {"blobs": blob, "queues": queue, "tables": table, "redis": state.redis_port}
        name = self.choose.choice([*servers, "tables"])
        if f"to {name}" in self._busy:
            return
        kind = self.choose.choice(KINDS)
        seconds = self.choose.uniform(1.0, self.longest if kind in ("refuse", "hole") else 6.0)
        self.journal.note(f"connections: {kind}", server=name, seconds=round(seconds, 1))
        self.proxy.set(servers[name], Weather(kind=kind, strength=_STRENGTHS.get(kind, 1.0)))
        self._lasting(f"to {name}", seconds, lambda: self.proxy.set(servers[name], CALM))

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

    def _kill_azurite(self) -> None:
        child = self.stack.supervisor.child("azurite")
        if child.pid is not None and child.exit_code() is None:
            self.journal.note("azurite is killed")
            os.kill(child.pid, signal.SIGKILL)


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
