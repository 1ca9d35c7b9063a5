"""Wall time and CPU time of whole process trees (Linux)."""

import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from processes import proctree

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one run took, in seconds; CPU time is that of all processes, user and system."""

    wall_s: float
    cpu_s: float


def cpu_seconds() -> float:
    """CPU time of this process and of all that it has started, directly or not, to this moment.

    A living process counts with what it has reaped. This process must be a subreaper, so that what
    an ended process leaves behind stays below it. Each living process is right to a clock tick.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(one.ru_utime + one.ru_stime for one in used)
    return total + sum(map(_with_reaped, proctree.descendants(os.getpid())))


def by_part(stack: int) -> dict[str, float]:
    """CPU time of each part of a running stack, by the name of the program or module."""
    parts = {_name(stack): _of_process(stack)}
    for child in proctree.children(stack):
        tree = (child, *proctree.descendants(child))
        name = _name(child)
        if name == _name(stack):  # a fork of it, which has given itself a name
            name = Path(f"/proc/{child}/comm").read_text().strip()
        parts[name] = parts.get(name, 0.0) + sum(map(_with_reaped, tree))
    return parts


def _name(pid: int) -> str:
    """Name a process by the module that it runs, or its program; a server may add to its name."""
    with suppress(FileNotFoundError, ProcessLookupError):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "-m" in words:
            return words[words.index("-m") + 1]
        scripts = [word for word in words[1:] if word.endswith((".js", "swathmill"))]
        return Path((scripts or words)[0].split(" ")[0]).stem
    return ""


def _of_process(pid: int, reaped: bool = False) -> float:
    """CPU time of a process, with that of the children it has reaped or without."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return sum(map(int, fields[11 : 15 if reaped else 13])) / _TICK
    return 0.0


def _with_reaped(pid: int) -> float:
    return _of_process(pid, reaped=True)


def reap() -> None:
    """Take the CPU time of the ended processes that were left to this one."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def measure(act: Callable[[], object]) -> Spent:
    """Run something to its end."""
    cpu, start = cpu_seconds(), time.perf_counter()
    act()
    wall = time.perf_counter() - start
    reap()
    return Spent(wall_s=wall, cpu_s=cpu_seconds() - cpu)
