"""Whether one way is faster than another, by paired rounds: a confidence interval of the ratio.

Of each round the logarithm of the ratio of both times is taken; the mean of these has a t interval
(Student 1908). Of several runs, each is one observation: the mean of its rounds. Rounds of one day
are alike, so many of them say little of another day. Several candidates share the probability of
error (Bonferroni), so that the best of many by chance is not recommended.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.stats import t as student

from bench.platform.trials import Service, Timed
from tasks.storage.azure.transfer_shapes import BY_SIZE, MIB, Cut

CONFIDENCE = 0.95
LEAST_ROUNDS = 5
WORTH = 0.9  # of today's time: a change that saves less is not worth its setting


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The time of one way over that of another: the estimate, and the interval it is within."""

    estimate: float
    low: float
    high: float
    rounds: int
    runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A cut against today's, which goes by the size, for files of one size, up and down."""

    size: int
    cut: Cut
    ratio: Ratio

    @property
    def recommended(self) -> bool:
        """True if it is surely faster by as much as is worth a setting."""
        return self.ratio.high < WORTH


def ratio(pairs: Iterable[tuple[float, float]], candidates: int = 1) -> Ratio | None:
    """Return the ratio of first to second of pairs of times; None of fewer than two pairs.

    `candidates` are compared at once: all their intervals hold together with `CONFIDENCE`.
    """
    logs = _logs(pairs)
    return _interval(logs, candidates, rounds=len(logs), runs=1)


def ratio_of_runs(
    runs: Iterable[Iterable[tuple[float, float]]], candidates: int = 1
) -> Ratio | None:
    """Return the same of the pairs of several runs, each of which is one observation.

    Runs with fewer than `LEAST_ROUNDS` pairs do not count. None of no run; of one run its pairs are
    the observations.
    """
    found = [logs for pairs in runs if len(logs := _logs(pairs)) >= LEAST_ROUNDS]
    if not found:
        return None
    observed = [statistics.fmean(logs) for logs in found] if len(found) > 1 else found[0]
    return _interval(observed, candidates, rounds=sum(map(len, found)), runs=len(found))


def mean(times: Sequence[float], candidates: int = 1) -> Ratio | None:
    """Return the geometric mean of repeated times in seconds; None of fewer than `LEAST_ROUNDS`."""
    if len(times) < LEAST_ROUNDS:
        return None
    return ratio([(one, 1.0) for one in times], candidates)


def _logs(pairs: Iterable[tuple[float, float]]) -> list[float]:
    return [math.log(one / other) for one, other in pairs if one > 0 and other > 0]


def _interval(logs: Sequence[float], candidates: int, *, rounds: int, runs: int) -> Ratio | None:
    if len(logs) < 2:
        return None
    mean = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    at = 1 - (1 - CONFIDENCE) / 2 / max(1, candidates)
    reach = float(student.ppf(at, len(logs) - 1)) * error
    return Ratio(
        estimate=math.exp(mean),
        low=math.exp(mean - reach),
        high=math.exp(mean + reach),
        rounds=rounds,
        runs=runs,
    )


def compare_cuts(runs: Iterable[Iterable[Timed]]) -> list[Compared]:
    """Compare each cut with today's, by the rounds of each run in which both went well."""
    found = []
    by_size: dict[int, dict[Cut, list[list[tuple[float, float]]]]] = defaultdict(dict)
    for timed in runs:
        for size, of_run in _pairs(timed).items():
            for cut, pairs in of_run.items():
                by_size[size].setdefault(cut, []).append(pairs)
    for size, by_cut in sorted(by_size.items()):
        for cut, every in by_cut.items():
            known = ratio_of_runs(every, len(by_cut))
            if known is not None:
                found.append(Compared(size=size, cut=cut, ratio=known))
    return found


def _pairs(timed: Iterable[Timed]) -> dict[int, dict[Cut, list[tuple[float, float]]]]:
    """Return the times of each cut and today's in the same round of a run, up and down together."""
    rounds: dict[int, dict[Cut, dict[int, dict[str, float]]]] = defaultdict(dict)
    for one in timed:
        if one.trial.service is Service.AZURE and not one.call.failure:
            of_cut = rounds[one.trial.size].setdefault(one.trial.cut, {})
            of_cut.setdefault(one.trial.round, {})[one.trial.direction] = one.seconds
    found: dict[int, dict[Cut, list[tuple[float, float]]]] = {}
    for size, by_cut in rounds.items():
        today = by_cut.get(BY_SIZE, {})
        found[size] = {
            cut: [
                (sum(of_cut[number].values()), sum(today[number].values()))
                for number in of_cut.keys() & today.keys()
                if of_cut[number].keys() == today[number].keys() == _BOTH
            ]
            for cut, of_cut in by_cut.items()
            if cut != BY_SIZE
        }
    return found


_BOTH = {"upload", "download"}


def lines(compared: Iterable[Compared]) -> list[str]:
    """Return the setting to be recommended by the largest size, as an environment file has it."""
    kept = list(compared)
    largest = max((one.size for one in kept), default=0)
    better = [one for one in kept if one.size == largest and one.recommended]
    if not better:
        return []
    best = min(better, key=lambda one: one.ratio.high)
    said = best.ratio
    return [
        f"# {largest / 1e6:g} MB up and down: {said.estimate:.2f} of today's time, "
        f"{CONFIDENCE:.0%} sure to be {said.low:.2f} to {said.high:.2f}, by {said.rounds} pairs of "
        f"{said.runs} {'run' if said.runs == 1 else 'runs'}",
        f"SWATHMILL_BLOCKS={best.cut.block // MIB}x{best.cut.at_once}",
    ]
