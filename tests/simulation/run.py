"""`python -m tests.simulation.run --seeds N`: many simulated histories, in two processes."""

import argparse
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from tasks.storage.sqlite_file import SqliteFile
from tasks.storage.sqlite_store import SqliteStore
from tests.simulation.history import Outcome, simulate
from tests.simulation.mutants import MUTANTS, caught_by, note_seeds, noted_seeds

_TELL = 500  # histories between two lines of progress


def quiet() -> None:
    """No logs: histories have their own."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


def _in_memory(seed: int, *, steps: bool, noisy: bool = False, rasters: bool = False) -> Outcome:
    return simulate(seed, steps=steps, noisy=noisy, rasters=rasters)


def in_a_file(
    seed: int, *, steps: bool = False, noisy: bool = False, rasters: bool = False
) -> Outcome:
    """Run a history on an SQLite file."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(
        prefix="simulation-", dir=memory if memory.is_dir() else None
    ) as folder:
        file = SqliteFile(Path(folder) / "tables.sqlite")
        file.create()
        try:
            store = SqliteStore(file)
            return simulate(seed, store=store, steps=steps, noisy=noisy, rasters=rasters)
        finally:
            file.close()


_STORES: dict[str, Callable[..., Outcome]] = {"memory": _in_memory, "sqlite": in_a_file}


def main() -> int:
    """Run histories and say what came of them; 1 when an invariant did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--replay", type=int, help="one seed, with all its events")
    parser.add_argument("--mutants", action="store_true", help="note a seed that finds each mutant")
    parser.add_argument("--steps", action="store_true", help="all requests have several steps")
    parser.add_argument("--noise", action="store_true", help="no faults but noise on hosts")
    parser.add_argument(
        "--rasters", action="store_true", help="one request of many rasters, whose order is held"
    )
    parser.add_argument("--store", choices=sorted(_STORES), default="memory")
    arguments = parser.parse_args()
    quiet()
    if arguments.mutants:
        return _note_mutants(arguments.processes)
    if arguments.replay is not None:
        return _replay(
            arguments.replay,
            steps=arguments.steps,
            noisy=arguments.noise,
            rasters=arguments.rasters,
        )
    started = time.monotonic()
    faults: Counter[str] = Counter()
    met: Counter[str] = Counter()
    steps = 0
    bad: list[Outcome] = []
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with multiprocessing.get_context("spawn").Pool(arguments.processes, quiet) as pool:
        run = partial(
            _STORES[arguments.store],
            steps=arguments.steps,
            noisy=arguments.noise,
            rasters=arguments.rasters,
        )
        outcomes = pool.imap_unordered(run, seeds, chunksize=4)
        for number, outcome in enumerate(outcomes, 1):
            if number % _TELL == 0:
                print(
                    f"{number} of {len(seeds)}, {len(bad)} violations, {dict(met)}", file=sys.stderr
                )
            faults += outcome.faults
            met += outcome.met
            steps += outcome.steps
            if outcome.violation:
                bad.append(outcome)
                print(f"seed {outcome.seed}: {outcome.violation}", flush=True)
    took = time.monotonic() - started
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(faults.items()))
    print(
        f"{arguments.seeds} histories, {steps} events, {sum(faults.values())} faults ({kinds}), "
        f"{len(bad)} violations, {took:.0f} s"
    )
    print(_listed(met))
    return 1 if bad else 0


def _listed(met: Counter[str]) -> str:
    return "; ".join(f"{what}: {number}" for what, number in sorted(met.items()))


def _seed(number: int) -> int | None:
    mutant = MUTANTS[number]
    return caught_by(mutant, noted_seeds().get(mutant.name, 0))


def _note_mutants(processes: int) -> int:
    with multiprocessing.get_context("spawn").Pool(processes, quiet) as pool:
        found = pool.map(_seed, range(len(MUTANTS)), chunksize=1)
    seeds = {mutant.name: seed for mutant, seed in zip(MUTANTS, found, strict=True)}
    note_seeds({name: seed for name, seed in seeds.items() if seed is not None})
    for name, seed in seeds.items():
        print(f"{name}: {'not found' if seed is None else f'seed {seed}'}")
    return 1 if None in found else 0


def _replay(seed: int, *, steps: bool, noisy: bool, rasters: bool) -> int:
    outcome = simulate(seed, log=True, steps=steps, noisy=noisy, rasters=rasters)
    for line in outcome.log:
        print(line)
    print(outcome.violation or "no violation", outcome.digest)
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
