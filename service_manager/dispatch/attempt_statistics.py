"""The usual pace of a class's attempts, learned from those that succeeded.

Two things are learned of each class: how long its attempts take (median and spread of the
logarithm, which a slow minority hardly moves), and how far they are at which part of their time.
The second makes progress usable: 30% alone says nothing, since one part of the work may be slow.
If an attempt has made less progress than its class usually makes in a third of the usual time,
assume that it will take at least three times as long as it has run.

Pure: durations and progress come in, estimates come out. All times in seconds.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from tasks.bag.expectation import GENEROUS, Times
from tasks.bag.history import ClassStatistics

STEPS = 20  # of progress, from 0 to 1
_MEMORY = 101  # successes of a class that are remembered
_LEAST_SPREAD = 0.25  # of the logarithm: no class is taken to be steadier than this
_MAD = 1.4826  # from a median absolute deviation to a standard deviation


@dataclass(frozen=True, slots=True)
class Usual:
    """What a class's attempts take: the median, and the spread of the logarithm."""

    seconds: float
    spread: float

    def deviation(self, seconds: float) -> float:
        """Return the logarithm of a duration divided by the median."""
        return math.log(max(seconds, 1e-3) / self.seconds)


@dataclass(slots=True)
class AttemptProgress:
    """The progress of a running attempt: its age when each step was first seen.

    `reached` steps are done.
    """

    ages: list[float] = field(default_factory=list)

    @property
    def reached(self) -> int:
        return len(self.ages)

    def note(self, progress: float, age: float) -> None:
        """Take a report; progress never goes back."""
        steps = min(STEPS - 1, int(progress * STEPS + 1e-9))
        self.ages.extend([age] * (steps - len(self.ages)))


@dataclass(slots=True)
class _Class:
    logarithms: deque[float] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    # Of each step, the shares of their time in which attempts had taken it; and what is made of
    # both, until there are more.
    shares: list[deque[float]] = field(
        default_factory=lambda: [deque(maxlen=_MEMORY) for _ in range(STEPS - 1)]
    )
    count: int = 0
    seconds: float = 0.0  # of all successes together
    usual: Usual | None = None
    latest: list[tuple[float, float] | None] = field(default_factory=lambda: [None] * (STEPS - 1))

    def share(self, step: int, samples: int) -> tuple[float, float] | None:
        """Return the median and the largest share of time after which a step was taken.

        The latest twentieth is left out; None with fewer than `samples`.
        """
        if len(self.shares[step]) < samples:
            return None
        found = self.latest[step]
        if found is None:
            known = sorted(self.shares[step])
            found = self.latest[step] = (median(known), known[-1 - len(known) // 20])
        return found


class AttemptStatistics:
    """The usual durations and progress, by class.

    A class counts once it has `samples` successes, and as many as it has running attempts: of many
    attempts that began together, the short ones end first.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._classes: dict[str, _Class] = {}
        self._running: Counter[str] = Counter()
        self._guesses: tuple[int, Mapping[str, ClassStatistics], Times] | None = None

    def hear(self, running: Iterable[str]) -> None:
        """Take note of the classes of the running attempts, each as often as it runs."""
        self._running = Counter(running)

    def learn(
        self, task_class: str, duration: float, course: AttemptProgress | None = None
    ) -> None:
        """Take note of an attempt that succeeded."""
        found = self._classes.setdefault(task_class, _Class())
        found.logarithms.append(math.log(max(duration, 1e-3)))
        found.count += 1
        found.seconds += duration
        found.usual = None
        if course is None or duration <= 0:
            return
        for step, age in enumerate(course.ages):
            found.shares[step].append(min(1.0, age / duration))
            found.latest[step] = None

    def usual(self, task_class: str, statistics: ClassStatistics | None) -> Usual | None:
        """Return what is usual for a class, or None while too few successes are known.

        It comes from the successes seen, or from the durable statistics while those are few.
        """
        found = self._classes.get(task_class)
        enough = max(self._samples, self._running[task_class])
        if found is not None and found.count >= enough:
            if found.usual is None:
                found.usual = _usual(found.logarithms)
            return found.usual
        if statistics is None or statistics.count < enough or statistics.mean <= 0:
            return None
        # Of a lognormal distribution with this mean and deviation.
        spread = math.sqrt(math.log1p((statistics.deviation / statistics.mean) ** 2))
        return Usual(
            statistics.mean * math.exp(-(spread**2) / 2), spread=max(_LEAST_SPREAD, spread)
        )

    def guess(self, task_class: str, statistics: Mapping[str, ClassStatistics]) -> float | None:
        """Return a generous guess for a class, by few successes or by those of similar work.

        None while nothing like it has succeeded. It is renewed when a class has its first success,
        or with other `statistics`.
        """
        found = self._classes.get(task_class)
        if found is not None:  # maybe the short ones of many
            return GENEROUS * found.seconds / found.count
        kept = self._guesses
        if kept is None or kept[0] != len(self._classes) or kept[1] is not statistics:
            seen = {
                text: ClassStatistics(
                    task_class=text, count=one.count, mean=one.seconds / one.count
                )
                for text, one in self._classes.items()
            }
            kept = self._guesses = len(seen), statistics, Times({**statistics, **seen})
        return kept[2].limit(task_class)

    def total(self, task_class: str, statistics: ClassStatistics | None) -> float:
        """Return the seconds that the successes of a class have taken together, as far as known."""
        found = self._classes.get(task_class)
        seen = found.seconds if found is not None else 0.0
        return max(seen, statistics.count * statistics.mean if statistics is not None else 0.0)

    def least(self, task_class: str, age: float, course: AttemptProgress) -> float:
        """Return the least time that an attempt will take in all.

        It is the attempt's age divided by the largest share of their time in which earlier attempts
        had taken the step that this one has not. Where too few attempts reported that step, it is
        the age alone.
        """
        found = self._classes.get(task_class)
        if found is None or course.reached >= STEPS - 1:
            return age
        share = found.share(course.reached, self._samples)
        return age / max(share[1], 1.0 / STEPS) if share else age

    def done(self, task_class: str, course: AttemptProgress) -> float | None:
        """Return the share of its work that an attempt has done, measured in usual time.

        It is None where its class has not reported progress often enough.
        """
        found = self._classes.get(task_class)
        if found is None or found.share(0, self._samples) is None:
            return None
        share = found.share(course.reached - 1, self._samples) if course.reached else None
        return share[0] if share else 0.0


def _usual(logarithms: deque[float]) -> Usual:
    middle = median(logarithms)
    spread = _MAD * median(abs(x - middle) for x in logarithms)
    return Usual(math.exp(middle), spread=max(_LEAST_SPREAD, spread))
