"""Whether one way is faster than another, by paired rounds: a confidence interval of the ratio.

Of each round the logarithm of the ratio of both times is taken; the mean of these has a t interval
(Student 1908). Several candidates share the probability of error (Bonferroni), so that the best of
many by chance is not recommended.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
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
    logs = [math.log(one / other) for one, other in pairs if one > 0 and other > 0]
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
        rounds=len(logs),
    )


def compare_cuts(timed: Iterable[Timed]) -> list[Compared]:
    """Compare each cut with today's, by the rounds in which both went well, up and down."""
    rounds: dict[int, dict[Cut, dict[int, dict[str, float]]]] = defaultdict(dict)
    for one in timed:
        if one.trial.service is Service.AZURE and not one.call.failure:
            of_cut = rounds[one.trial.size].setdefault(one.trial.cut, {})
            of_cut.setdefault(one.trial.round, {})[one.trial.direction] = one.seconds
    found = []
    for size, by_cut in sorted(rounds.items()):
        today = by_cut.get(BY_SIZE, {})
        others = [cut for cut in by_cut if cut != BY_SIZE]
        for cut in others:
            pairs = [
                (sum(by_cut[cut][number].values()), sum(today[number].values()))
                for number in by_cut[cut].keys() & today.keys()
                if by_cut[cut][number].keys() == today[number].keys() == _BOTH
            ]
            known = ratio(pairs, len(others)) if len(pairs) >= LEAST_ROUNDS else None
            if known is not None:
                found.append(Compared(size=size, cut=cut, ratio=known))
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
        f"{CONFIDENCE:.0%} sure to be {said.low:.2f} to {said.high:.2f}, by {said.rounds} pairs",
        f"SWATHMILL_BLOCKS={best.cut.block // MIB}x{best.cut.at_once}",
    ]
