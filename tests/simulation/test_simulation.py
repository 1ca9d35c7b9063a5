"""Simulated histories keep the invariants, replay to the same event, and find every mutant."""

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.history import Mutant, Outcome, simulate
from tests.simulation.mutants import MUTANTS, caught_by, noted_seeds
from tests.simulation.run import in_a_file, quiet

pytestmark = pytest.mark.slow

SEEDS = 30
CHUNK = 6
STEPS = 8
REPLAYED = (5,)


def first_of(*seeds: int) -> list[Any]:
    """The first seed, and the others as proofs."""
    return [seeds[0], *(pytest.param(seed, marks=pytest.mark.proof) for seed in seeds[1:])]


NOISY = first_of(5, 4, 6)
ON_A_FILE = first_of(3, 77)
ORDERED = first_of(0, 1, 2)

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> None:
    quiet()


@cache
def history(seed: int) -> Outcome:
    """The history of a seed, simulated once for all tests."""
    return simulate(seed)


@pytest.mark.parametrize(
    "first",
    first_of(*range(0, SEEDS, CHUNK)),
)
def test_the_invariants_hold_in_every_history(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = history(seed)
        assert not outcome.violation, (
            f"{outcome.violation}; python -m tests.simulation.run --replay {seed}"
        )


def test_requests_of_several_steps_meet_all_that_may_happen_to_them() -> None:
    """A failed run of step 1 under each policy; cancelling, trying again, sharing step 1."""
    met: Counter[str] = Counter()
    for seed in range(STEPS):
        outcome = simulate(seed, steps=True)
        assert not outcome.violation, (
            f"{outcome.violation}; python -m tests.simulation.run --steps --replay {seed}"
        )
        met += outcome.met
    for what in (
        "requests with a failed run of step 1, policy skip",
        "requests with a failed run of step 1, policy fail",
        "requests cancelled",
        "requests retried",
        "pairs that share a run of step 1",
    ):
        assert met[what] > 0, what


@pytest.mark.parametrize("seed", NOISY)
def test_no_task_waits_beside_an_idle_slot_on_noisy_hosts(seed: int) -> None:
    outcome = simulate(seed, noisy=True)
    assert not outcome.violation, (
        f"{outcome.violation}; python -m tests.simulation.run --noise --replay {seed}"
    )


@pytest.mark.parametrize("seed", ORDERED)
def test_of_one_request_of_many_rasters_a_quarter_is_there_at_30_percent_of_the_cells(
    seed: int,
) -> None:
    outcome = simulate(seed, rasters=True)
    assert not outcome.violation, (
        f"{outcome.violation}; python -m tests.simulation.run --rasters --replay {seed}"
    )


@pytest.mark.parametrize("seed", ON_A_FILE)
def test_a_history_on_an_sqlite_file_is_the_one_in_memory(seed: int) -> None:
    outcome = in_a_file(seed)
    assert not outcome.violation
    assert outcome.digest == history(seed).digest


def test_histories_are_full_of_faults() -> None:
    faults = sum((history(seed).faults for seed in range(1, CHUNK)), start=history(0).faults)
    for kind in ("crash", "kill", "stall", "answer lost", "write lands late", "message doubled"):
        assert faults[kind] > 0, kind


def test_a_seed_replays_to_the_same_event() -> None:
    """In another process, too, where sets and dictionaries of text have another order."""
    script = (
        "from tests.simulation.run import quiet; quiet();"
        "from tests.simulation.history import simulate;"
        f"print([simulate(seed).digest for seed in {REPLAYED}])"
    )
    here = [history(seed).digest for seed in REPLAYED]
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert done.stdout.strip() == str(here)


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.proof] if number not in (0, 9) else [])
        for number, one in enumerate(MUTANTS)
    ],
)
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    assert caught_by(mutant, noted_seeds().get(mutant.name, 0)) is not None
