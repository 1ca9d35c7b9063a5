"""When a simulated machine is slow, and what it gets done meanwhile."""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

HOUR = 3600.0
SLOW_HOURS = (2.0, 6.0)  # the length of a slow spell
FACTORS = (4.0, 12.0)
GOOD_HOURS = 3.9  # mean time between slow spells: 16% of executions are hit under the 4x rule


@dataclass(frozen=True, kw_only=True)
class Spells:
    """How slow a machine is: from `starts[i]` to `starts[i + 1]` by `factors[i]`."""

    starts: list[float]
    factors: list[float]

    @classmethod
    def of(cls, rng: random.Random, *, slow: bool) -> "Spells":
        """Ten days, which may begin in a slow spell."""
        starts, factors, at = [0.0], [1.0], 0.0
        mean_slow = sum(SLOW_HOURS) / 2
        first = rng.random() < mean_slow / (mean_slow + GOOD_HOURS)
        while slow and at < 240 * HOUR:
            if not first:
                at += rng.expovariate(1 / GOOD_HOURS) * HOUR
            first = False
            starts.append(at)
            factors.append(rng.uniform(*FACTORS))
            at += rng.uniform(*SLOW_HOURS) * HOUR
            starts.append(at)
            factors.append(1.0)
        return cls(starts=starts, factors=factors)

    def factor(self, at: float) -> float:
        """Return how many times slower than usual."""
        return self.factors[bisect_right(self.starts, at) - 1]

    def spans(self, start: float) -> Iterator[tuple[float, float, float]]:
        """From a time on: start, end and factor."""
        i = bisect_right(self.starts, start) - 1
        while i < len(self.starts):
            end = self.starts[i + 1] if i + 1 < len(self.starts) else math.inf
            yield max(start, self.starts[i]), end, self.factors[i]
            i += 1

    def slow_between(self, start: float, end: float) -> bool:
        """Tell whether it was slow at some time."""
        return any(factor > 1.0 for begin, _, factor in self.spans(start) if begin < end)

    def ends(self, start: float, work: float) -> float:
        """Return when work begun at `start` ends."""
        for begin, end, factor in self.spans(start):
            if work * factor <= end - begin:
                return begin + work * factor
            work -= (end - begin) / factor
        return math.inf

    def done(self, start: float, until: float) -> float:
        """The seconds of work done between two times."""
        total = 0.0
        for begin, end, factor in self.spans(start):
            if begin >= until:
                break
            total += (min(end, until) - begin) / factor
        return total
