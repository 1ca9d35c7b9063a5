"""Process trees from /proc (Linux): who descends from whom, and their memory."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def descendants(root: int) -> list[int]:
    """List the living processes below `root` without itself, parents before children.

    A process that changes parents during the walk may be missed: walk again until none is left.
    """
    found: list[int] = []
    queue = [root]
    while queue:
        for child in children(queue.pop(0)):
            found.append(child)
            queue.append(child)
    return found


def children(pid: int) -> list[int]:
    """List the processes whose parent is `pid`, including those that ended but are not reaped."""
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
    children: list[int] = []
    for thread in threads:
        path = thread / "children"
        try:
            children += [int(child) for child in path.read_text("ascii").split()]
        except ProcessLookupError:
            continue
        except FileNotFoundError:
            # The thread has ended, or the kernel is built without CONFIG_PROC_CHILDREN.
            if thread.exists():
                return [child for child, parent in _parents() if parent == pid]
    return children


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
    """Return the bytes a process holds itself: anonymous and shared memory, no mapped files."""
    try:
        status = (_PROC / str(pid) / "status").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(
        int(line.split()[1]) * 1024
        for line in status.splitlines()
        if line.startswith(("RssAnon:", "RssShmem:"))
    )


def tree_memory(root: int) -> int:
    """Sum the bytes held by all processes below `root`."""
    return sum(memory(pid) for pid in descendants(root))


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
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


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
