"""How many slots the fleet should have, as one number for whatever starts and stops workers.

The queue says nothing of the backlog: dispatch keeps only some seconds of work on it. So the
manager itself says what it wants: the slots at work, and as many more as finish the ready tasks
within the time of `SWATHMILL_SCALE_SECONDS`.
"""

import math
from collections.abc import Mapping

from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.options import ManagerOptions
from tasks.bag.task_rows import CompletionEvent

UNKNOWN = 60.0
"""Seconds that a ready task counts for while no attempt of its request, or of any, has ended."""

_NEWEST = 0.1  # weight of the newest attempt in a request's mean


class WantedSlots:
    """Counts the slots wanted, from the durations of ended attempts and the tasks left."""

    def __init__(self, options: ManagerOptions) -> None:
        self._options = options
        self._means: dict[str, float] = {}  # seconds of an attempt, by request
        self._mean: float | None = None  # of all requests

    def ended(self, event: CompletionEvent) -> None:
        """Learn how long an attempt took."""
        if not event.number:
            return
        self._mean = _follow(self._mean, event.duration)
        self._means[event.sponsor] = _follow(self._means.get(event.sponsor), event.duration)

    def count(self, cache: ManagerCache, ready: Mapping[str, int], now: float) -> int:
        """Return slots at work + min(ready, seconds of ready work / scale_seconds), in the limits.

        `ready` counts the ready tasks that a slot may take, by request. Where the attempts of a
        request that run at `now` (monotonic) have taken longer than its mean, its ready tasks count
        for as long: else an hour would pass before attempts of an hour are known to take one.
        """
        for request in self._means.keys() - cache.requests.keys():
            del self._means[request]
        known = UNKNOWN if self._mean is None else self._mean
        ages = _ages(cache, ready, now)
        seconds = sum(
            number * max(self._means.get(request, known), ages.get(request, 0.0))
            for request, number in ready.items()
        )
        more = min(sum(ready.values()), math.ceil(seconds / self._options.scale_seconds))
        slots = self._options.scale_slots
        wanted = max(slots.least, cache.busy + more)
        return min(wanted, slots.most) if slots.most else wanted


def _ages(cache: ManagerCache, ready: Mapping[str, int], now: float) -> dict[str, float]:
    """Return how long the attempts in hand have run on average, by request with ready tasks."""
    found: dict[str, list[float]] = {request: [] for request, number in ready.items() if number}
    for one in cache.running.values() if found else ():
        if one.sponsor in found and one.in_hand:
            found[one.sponsor].append(now - one.since)
    return {request: sum(ages) / len(ages) for request, ages in found.items() if ages}


def _follow(mean: float | None, seconds: float) -> float:
    return seconds if mean is None else mean + _NEWEST * (seconds - mean)
