"""Sides of a benchmark that take turns, their medians, and the memory a process came to."""

import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Took:
    """Medians over the rounds, in seconds: wall clock, and CPU time with that of child processes.

    On a machine that others use, ratios of CPU time hold better.
    """

    wall_s: float
    cpu_s: float


def take_turns(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Took]:
    """Run all sides in turn, `rounds` times each after one that is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, act in sides.items():
            cpu, start = _cpu(), time.perf_counter()
            act()
            if number:
                times[name].append((time.perf_counter() - start, _cpu() - cpu))
    return {
        name: Took(
            wall_s=statistics.median(wall for wall, _ in taken),
            cpu_s=statistics.median(cpu for _, cpu in taken),
        )
        for name, taken in times.items()
    }


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_mib() -> float:
    """The most memory this process has held since it began, in MiB (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
