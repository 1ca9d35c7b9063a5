"""Measure what a tier of the sandbox adds to the start of a program.

`python -m bench.sandbox`. A program that does nothing is started bare and in each tier, by turns,
so that other load reaches all alike; medians are compared. Each start gets what a reduction gets:
its bounds, folders and watching. With `--cpu` it is processor time that counts, for busy machines.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from worker.sandbox import sandbox
from worker.sandbox.confined import run_confined
from worker.sandbox.sandbox import Places, SandboxLimits, Tier

MOST_MILLISECONDS = 30.0
BOUNDS = SandboxLimits(memory=10**9, seconds=20.0, processes=16, output=10**8)
COMMANDS = {"true": ("true",), "python": ("python", "-c", "pass")}


def main() -> int:
    """Print the medians; return 1 if a tier adds more than it may."""
    parser = argparse.ArgumentParser(prog="bench.sandbox")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    rounds: int = given.rounds
    clock = _cpu if given.cpu else time.perf_counter
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    tiers: list[Tier] = ["limits"]
    if problem := sandbox.probe_bubblewrap():
        print(f"bubblewrap does not work here: {problem}")
    else:
        tiers.append("bubblewrap")
    late = False
    for name, command in COMMANDS.items():
        bare, added = measure(command, tiers, rounds, clock)
        print(f"{name:7} bare        {bare:6.1f} ms")
        for tier, more in added.items():
            late |= more > MOST_MILLISECONDS
            print(f"{name:7} {tier:10} +{more:6.1f} ms ({MOST_MILLISECONDS:g} ms are the most)")
    return int(late)


def _cpu() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(
    command: tuple[str, ...], tiers: list[Tier], rounds: int, clock: Callable[[], float]
) -> tuple[float, dict[Tier, float]]:
    """Return the median of a bare start, and what each tier adds to it, in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        names = ("package", "inputs", "outputs", "temporary")
        for one in names:
            (folder / one).mkdir()
        places = Places(
            package=folder / "package",
            inputs=folder / "inputs",
            outputs=folder / "outputs",
            temporary=folder / "temporary",
        )
        ways: dict[str, Callable[[], object]] = {
            "bare": lambda: subprocess.run([*command], check=True)
        }
        for tier in tiers:
            ways[tier] = lambda tier=tier: run_confined(tier, command, places, BOUNDS)  # type: ignore[misc]
        took: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, start in ways.items():
                begin = clock()
                start()
                took[way].append(1000 * (clock() - begin))
    medians = {way: statistics.median(times) for way, times in took.items()}
    return medians["bare"], {tier: medians[tier] - medians["bare"] for tier in tiers}


if __name__ == "__main__":
    sys.exit(main())
