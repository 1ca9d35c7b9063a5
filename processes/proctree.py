"""Process trees from /proc (Linux): who descends from whom, and their memory."""

import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_HELD = re.compile(rb"^(?:RssAnon|RssShmem|VmPTE|VmSwap|HugetlbPages):\s+(\d+) kB$", re.MULTILINE)


def descendants(root: int) -> list[int]:
    """List the living processes below `root` without itself, parents before children.

    A process that changes parents during the walk may be missed: walk again until none is left.
    """
    return [child for below in tree(root).values() for child in below]


def tree(root: int) -> dict[int, list[int]]:
    """List the children of `root` and of each process below it, by parent, parents first."""
    found: dict[int, list[int]] = {}
    queue = [root]
    while queue:
        parent = queue.pop(0)
        found[parent] = children(parent)
        queue += found[parent]
    return found


def children(pid: int) -> list[int]:
    """List the processes whose parent is `pid`, including those that ended but are not reaped."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a Path costs more than the call
    except (FileNotFoundError, ProcessLookupError):
        return []
    children: list[int] = []
    for thread in threads:
        try:
            children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        except ProcessLookupError:
            continue
        except FileNotFoundError:
            # The thread has ended, or the kernel is built without CONFIG_PROC_CHILDREN.
            if (_PROC / str(pid) / "task" / thread).exists():
                return [child for child, parent in _parents() if parent == pid]
    return children


def _read(path: str) -> bytes:
    """Read a file of /proc: guards do so for each attempt and ten times a second."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read = bytearray()
        while part := os.read(file, 2**14):
            read += part
        return bytes(read)
    finally:
        os.close(file)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text("utf-8", "replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            # The command name is in parentheses and may contain any character (proc(5)).
            yield int(entry.name), int(stat.rpartition(")")[2].split()[1])


def memory(pid: int) -> int:
    """Return the bytes a process holds itself: anonymous and shared memory, no mapped files.

    What was swapped out and the tables of its pages count, too.
    """
    try:
        held = _HELD.findall(_read(f"/proc/{pid}/status"))
        if not held:  # its first thread has ended, or all have
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as in `children`
            found = (_HELD.findall(_read(f"/proc/{pid}/task/{one}/status")) for one in threads)
            held = next(filter(None, found), [])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 1024 * sum(map(int, held))


def cpu(pids: Iterable[int]) -> float:
    """Return the processor seconds of processes and of their children that were reaped."""
    ticks = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            # Times follow the name in parentheses, which may contain any character (proc(5)).
            said = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            ticks += sum(map(int, said[11:15]))  # utime, stime, cutime, cstime
    return ticks / _TICKS


def kill(pid: int) -> None:
    """Send SIGKILL to a process; nothing when it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_and_reap(pid: int) -> None:
    """Send SIGKILL to a process, and reap it if it is a child of this one and has ended."""
    kill(pid)
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def kill_group(group: int) -> None:
    """Send SIGKILL to every process of a process group; nothing when none is left."""
    signal_group(group, signal.SIGKILL)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to every process of a process group; nothing when none is left."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def kill_descendants(root: int) -> None:
    """Send SIGKILL to every process below `root`."""
    for pid in descendants(root):
        kill(pid)


def alive(pid: int) -> bool:
    """Tell whether a process exists and is not a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
