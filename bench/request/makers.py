"""What makers cost: warm requests with them, beside children that open granules themselves.

Both stacks of a pair do the request at the same time, so that whatever else is on the machine
reaches both alike. Each is new, and has done one date of the same products before. What counts is
the CPU time of all processes of a stack.
"""

import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bench.request import ours
from bench.request.cases import Case
from bench.request.ours import PROBE

IN_CHILD = {"PYTHONPATH": str(PROBE), "SWATHMILL_BENCH_IN_CHILD": "1"}
WAYS: Mapping[str, Mapping[str, str]] = {"makers": {}, "child": IN_CHILD}

Pair = tuple[float, float]
"""CPU seconds with makers, and without."""


def price(case: Case, archive: Path, folder: Path, pairs: int) -> str:
    """Measure pairs of requests below `folder`; return a table of them."""
    found: list[Pair] = []
    for turn in range(pairs):
        names = sorted(WAYS, reverse=bool(turn % 2))
        with ExitStack() as ends, ThreadPoolExecutor(len(names)) as both:
            sides = [_Side(case, archive, folder / name, WAYS[name], ends) for name in names]
            list(both.map(_Side.warm_up, sides))
            spent = dict(zip(names, both.map(_Side.used, sides), strict=True))
        shutil.rmtree(folder)
        found.append((spent["makers"], spent["child"]))
        sys.stdout.write(f"{_row(str(turn + 1), found[-1])}\n")
        sys.stdout.flush()
    return table(found)


class _Side:
    """One side of a pair: a stack of its own, which stops when `ends` does."""

    def __init__(
        self, case: Case, archive: Path, folder: Path, variables: Mapping[str, str], ends: ExitStack
    ) -> None:
        folder.mkdir(parents=True)
        self._case, self._folder = case, folder
        self._stack = ends.enter_context(ours.stack(archive, folder, variables))

    def warm_up(self) -> None:
        self._stack.take(self._case.warm_up, self._folder / "warm-up")

    def used(self) -> float:
        """Do the request; return the CPU seconds of the stack."""
        return sum(self._stack.take(self._case.request, self._folder / "out").roles.values())


def table(found: Sequence[Pair]) -> str:
    """Format pairs as Markdown."""
    lines = ["| pair | CPU s with makers | without | makers add |", "|---|--:|--:|--:|"]
    lines += [_row(str(number), pair) for number, pair in enumerate(found, 1)]
    middle = [statistics.median(pair[side] for pair in found) for side in range(2)]
    share = statistics.median(map(_share, found))
    lines.append(f"| median | {middle[0]:.2f} | {middle[1]:.2f} | {share:+.1f}% |")
    return "\n".join(lines) + "\n"


def _row(number: str, pair: Pair) -> str:
    return f"| {number} | {pair[0]:.2f} | {pair[1]:.2f} | {_share(pair):+.1f}% |"


def _share(pair: Pair) -> float:
    return 100 * (pair[0] / pair[1] - 1)
