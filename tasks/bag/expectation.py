"""What an attempt is expected to take, by the means of its class and of similar ones.

This is the one place that decides: the 4x rule, the preview and the worth of artifacts ask here.
What was timed for one amount of work says something about others: more work takes at least as
long, and no longer than in proportion to the amount. So an expectation never falls as the amount
of work grows. Pure.
"""

from collections.abc import Callable, Mapping
from functools import cached_property

from tasks.bag.classes import TaskClass, parse
from tasks.bag.history import ClassStatistics
from tasks.bag.model import NO_USE, Use

GENEROUS = 4.0
"""Times the expectation by similar work that an attempt may take, before the rule's own factor."""

_Means = dict[str, dict[int | None, float]]  # by likeness, then by octave


def at_octave(means: Mapping[int, float], octave: int, margin: float = 1.0) -> float:
    """Estimate the seconds of an amount of work from the means of other amounts.

    `means` has at least one entry, by octave. Between and above the known amounts the mean of the
    nearest smaller one grows with the amount, times `margin` (1 or more), up to the mean of the
    nearest larger one. The estimate is never lower than the mean of a smaller amount, so it never
    falls as the octave grows. Below all known amounts it is the mean of the smallest.
    """
    below = [known for known in means if known <= octave]
    if not below:
        return means[min(means)]
    nearest = max(below)
    longest = max(means[known] for known in below)
    if nearest == octave:
        return longest
    scaled = margin * longest * 2.0 ** min(octave - nearest, 60)
    above = [known for known in means if known > octave]
    return min(scaled, max(longest, means[min(above)])) if above else scaled


class Times:
    """Seconds by task class. A mean counts with `samples` successes."""

    def __init__(self, statistics: Mapping[str, ClassStatistics], samples: int = 1) -> None:
        self._statistics = statistics
        self._samples = samples

    def mean(self, task_class: str) -> float | None:
        """Return the mean of exactly this class; None while it has too few successes."""
        found = self._statistics.get(task_class)
        return found.mean if found is not None and found.count >= self._samples else None

    def seconds(self, task_class: str) -> float | None:
        """Return the seconds that an attempt is expected to take; None when nothing was timed.

        The estimate uses the class itself or the most similar ones: other amounts of the same work,
        then the family, then the kind.
        """
        asked = parse(task_class)
        for means in (
            self._by_work.get(asked.work),
            self._by_family.get(asked.family),
            self._by_kind.get(asked.kind),
        ):
            if means:
                return _of(means, asked.octave)
        return None

    def use(self, task_class: str) -> Use:
        """Return what an attempt is expected to use of processors and storage.

        It is the mean of the class's successes that were metered, else that of a second of such
        work, times the expected seconds. Where nothing like it was metered, its slot's time stands
        for processor time.
        """
        known = self._statistics.get(task_class)
        if known is not None and known.metered:
            return known.use.times(1 / known.metered)
        seconds = self.seconds(task_class) or 0.0
        alike = self._metered.get(parse(task_class).kind)
        if alike is None:
            return Use(cpu=seconds)
        used, took = alike
        return used.times(seconds / took)

    @cached_property
    def _metered(self) -> dict[str, tuple[Use, float]]:
        """Use of the metered successes of each kind, and the seconds that they took."""
        found: dict[str, tuple[Use, float]] = {}
        for text, one in self._statistics.items():
            if one.metered and one.mean:
                used, took = found.get(parse(text).kind, (NO_USE, 0.0))
                found[parse(text).kind] = used + one.use, took + one.metered * one.mean
        return found

    def limit(self, task_class: str) -> float | None:
        """Return the seconds by which an attempt may be judged; None when nothing is known.

        The limit is the expected duration, times `GENEROUS` where it comes from similar work. The
        durations of another product or package are not used, nor those of work of an unknown
        amount.
        """
        asked = parse(task_class)
        if asked.octave is None:
            return self.mean(task_class)
        means = _known(self._by_work.get(asked.work, {}))
        if means:
            return at_octave(means, asked.octave, GENEROUS)
        means = _known(self._by_family.get(asked.family, {}))
        return GENEROUS * at_octave(means, asked.octave) if means else None

    @cached_property
    def _by_work(self) -> _Means:
        return self._grouped(lambda known: known.work)

    @cached_property
    def _by_family(self) -> _Means:
        return self._grouped(lambda known: known.family)

    @cached_property
    def _by_kind(self) -> _Means:
        return self._grouped(lambda known: known.kind)

    def _grouped(self, name: Callable[[TaskClass], str]) -> _Means:
        """Means weighted by successes, by name and octave; those with enough successes."""
        sums: dict[tuple[str, int | None], tuple[int, float]] = {}
        for text, one in self._statistics.items():
            known = parse(text)
            count, seconds = sums.get((name(known), known.octave), (0, 0.0))
            total = count + one.count, seconds + one.count * one.mean
            sums[name(known), known.octave] = total
        found: _Means = {}
        for (group, octave), (count, seconds) in sums.items():
            if count >= self._samples:
                found.setdefault(group, {})[octave] = seconds / count
        return found


def _known(means: Mapping[int | None, float]) -> dict[int, float]:
    return {octave: mean for octave, mean in means.items() if octave is not None}


def _of(means: Mapping[int | None, float], octave: int | None) -> float:
    """By what is known of sized work where the amount asked for is known, else by the rest."""
    known = _known(means)
    if octave is not None and known:
        return at_octave(known, octave)
    return means[None] if None in means else sum(known.values()) / len(known)
