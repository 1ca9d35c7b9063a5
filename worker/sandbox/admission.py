"""Admit runs of packages to a machine: what they declare together is never more than it has.

A processor is taken by a lock on its file. Memory and disk are counted: each run that is under way
has a locked file that says what it may use. The kernel releases the locks with the process that
holds them. One run at a time collects what it needs; it waits for runs that have all of theirs, so
none waits for another one that waits. A run that is alone starts in any case, with all there is.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from processes.locks import try_lock

LONGEST_WAIT = 20.0
"""Seconds; less than the least time limit of an attempt, in which its wait counts."""

_LOOK = 0.02
_KEPT = 8  # an eighth of the memory is for all else
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a run may use of its machine: processors, and bytes of memory and disk.

    Without `disk_declared` the disk is a default, of which less is kept for the run on a small one.
    """

    cores: int
    memory: int = 0
    disk: int = 0
    disk_declared: bool = True


class NoRoomError(Exception):
    """The machine had no room for a run in time; says what the run waited for."""


@contextmanager
def admitted(
    folder: Path, share: Share, disk: Path, longest: float | None = None
) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of the processors of a run that has its whole share of the machine.

    Runs that name the same `folder` share the machine; `disk` is a folder on the disk that they
    write to. Where the machine has fewer processors, all of them are taken.

    Raises:
        NoRoomError: the run was not admitted within `longest` seconds.
    """
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + (LONGEST_WAIT if longest is None else longest)
    with ExitStack() as held:
        with ExitStack() as turn:
            _until(lambda: _lock(turn, folder / "turn"), end, "other runs that wait")
            free = sorted(os.sched_getaffinity(0))
            cores = min(share.cores, len(free))
            own: list[int] = []

            def collect() -> bool:
                for number in free:
                    wanted = len(own) < cores and number not in own
                    if wanted and _lock(held, folder / str(number)):
                        own.append(number)
                return len(own) == cores

            _until(collect, end, f"{cores} of {len(free)} processors")
            if not share.disk_declared:
                share = replace(share, disk=min(share.disk, _usual_part(disk, cores, len(free))))
            if share.memory or share.disk:
                what = f"{share.memory / 1e9:g} GB of memory and {share.disk / 1e9:g} GB of disk"
                _until(lambda: _fits(share, tuple(_others(runs)), disk), end, what)
                _note(held, runs / uuid.uuid4().hex, share)
        yield tuple(sorted(own))


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container, if that has less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUPS:
        with suppress(OSError, ValueError):
            total = min(total, int(Path(path).read_text("ascii")))
    return total


def _usual_part(disk: Path, cores: int, processors: int) -> int:
    """Return half of a run's share of the free disk, in bytes: its processors of the machine's.

    As many such runs as there are processors fit beside each other, even when each of them has
    written its whole part, which counts twice then: as written, and as kept.
    """
    return _free(disk) * cores // (2 * processors)


def _free(disk: Path) -> int:
    room = os.statvfs(disk)
    return room.f_bavail * room.f_frsize


def _until(done: Callable[[], bool], end: float, what: str) -> None:
    while not done():
        if time.monotonic() > end:
            raise NoRoomError(f"its machine has no room: it waited for {what}")
        time.sleep(_LOOK)


def _lock(held: ExitStack, path: Path) -> bool:
    """Take a lock, to be kept as long as others of a stack; tell whether it was free."""
    lock = try_lock(path)
    if lock is not None:
        held.enter_context(lock)
    return lock is not None


def _fits(share: Share, others: tuple[Share, ...], disk: Path) -> bool:
    """Tell whether a run fits beside others, as if they had written nothing yet."""
    memory = share.memory + sum(one.memory for one in others)
    wanted = share.disk + sum(one.disk for one in others)
    total = machine_memory()
    return not others or (memory <= total - total // _KEPT and wanted <= _free(disk))


def _others(runs: Path) -> Iterator[Share]:
    """Yield what the runs that are under way may use, and forget those whose process has died."""
    for path in runs.iterdir():
        lock = try_lock(path)
        if lock is not None:
            with lock:
                path.unlink()
            continue
        with suppress(FileNotFoundError):  # it has ended just now
            memory, written = path.read_text("ascii").split()
            yield Share(cores=0, memory=int(memory), disk=int(written))


def _note(held: ExitStack, path: Path, share: Share) -> None:
    """Say what a run may use, in a file that is locked as long as it is under way."""
    if not _lock(held, path):
        raise FileExistsError(path)
    path.write_text(f"{share.memory} {share.disk}", "ascii")
    held.callback(path.unlink, missing_ok=True)
