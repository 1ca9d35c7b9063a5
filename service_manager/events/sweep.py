"""The sweep: reads a shard's markers and events, and so makes up for lost wake-ups."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import ReadyMarker, RunningMarker
from tasks.bag.task_table import TaskTable

AT_REST = 10  # periods between two sweeps while there is nothing to make up for
_PAGE = 1000  # ready tasks of one request and shard read in a sweep


@dataclass
class Swept:
    """What was found in a shard."""

    later: list[tuple[float, str]] = field(default_factory=list)  # not before, key
    has_events: bool = False


class Sweep:
    """One shard at a time, all of them every `period` seconds, at rest more seldom."""

    def __init__(
        self, runtime: Runtime, cache: ManagerCache, dispatch: FleetDispatch, period: float
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._dispatch = dispatch
        self._period = period
        self._swept = dict.fromkeys(SHARDS, -math.inf)

    def due(self) -> str | None:
        """Return the shard whose turn it is, if one is due."""
        now = self._runtime.clock.monotonic()
        late = min(self._swept, key=lambda shard: self._swept[shard])
        period = self._period * (AT_REST if self._cache.at_rest else 1)
        return late if self._swept[late] + period <= now else None

    def run(self, shard: str) -> Swept:
        """Read a shard's markers. Raises StoreError; it is due again then."""
        now = self._runtime.clock.monotonic()
        ready, until = self._ready(shard)
        running, later = self._runtime.tasks.begun(shard)
        has_events = bool(self._runtime.tasks.events(shard, limit=1))
        self._dispatch.reconcile(shard, ready, until)
        self._reconcile(shard, _watched(running, now))
        self._swept[shard] = now
        return Swept(later=[(one.due, one.key) for one in later], has_events=has_events)

    def feed(self, request: str) -> None:
        """Read more of a large request's ready tasks, some of each shard. Raises StoreError.

        They are read in order of key, and those of the lowest ranks are remembered.
        """
        limit = max(_PAGE, self._dispatch.most // len(SHARDS) + self._dispatch.wide)
        shards = [self._runtime.tasks.ready(shard, limit, request) for shard in SHARDS]
        more = any(len(found) == limit for found in shards)
        self._dispatch.feed(request, itertools.chain.from_iterable(shards), more=more)

    def _ready(self, shard: str) -> tuple[dict[str, ReadyMarker], dict[str, str]]:
        """Read a shard's ready tasks by key, and the last key read of large requests.

        Of a large request only the first tasks are read.
        """
        found: dict[str, ReadyMarker] = {}
        until: dict[str, str] = {}
        last: ReadyMarker | None = None
        skip = False  # all of its request
        while True:
            page = self._runtime.tasks.ready(shard, _PAGE, after=last, skip=skip)
            found |= {marker.key: marker for marker in page}
            if len(page) < _PAGE:
                return found, until
            last = page[-1]
            skip = page[0].request == last.request
            if skip:
                until[last.request] = last.key

    def _reconcile(self, shard: str, found: dict[str, WatchedAttempt]) -> None:
        known = self._cache.running
        for key in [k for k in known if k[0] == shard and k not in found]:
            del known[key]
        for key, running in found.items():
            old = known.get(key)
            if old is None or old.claim != running.claim:  # a marker stays as its claim wrote it
                known[key] = running


def read_running(tasks: TaskTable, shard: str, now: float) -> dict[str, WatchedAttempt]:
    """Read a shard's running attempts by key, as if they began now. Raises StoreError."""
    return _watched(tasks.running(shard), now)


def _watched(markers: Iterable[RunningMarker], now: float) -> dict[str, WatchedAttempt]:
    return {marker.key: WatchedAttempt(**vars(marker), since=now) for marker in markers}
