"""The sweep: reads a shard's markers and events, and so makes up for lost wake-ups."""

import itertools
from dataclasses import dataclass, field

from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import ReadyMarker
from tasks.bag.task_table import TaskTable

_PAGE = 1000  # ready tasks of one request and shard read in a sweep


@dataclass
class Swept:
    """What was found in a shard."""

    later: list[tuple[float, str]] = field(default_factory=list)  # not before, key
    has_events: bool = False


class Sweep:
    """One shard at a time, all of them every `period` seconds."""

    def __init__(
        self, runtime: Runtime, cache: ManagerCache, dispatch: Dispatch, period: float
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._dispatch = dispatch
        self._period = period
        self._due = dict.fromkeys(SHARDS, 0.0)

    def due(self) -> str | None:
        """Return the shard whose turn it is, if one is due."""
        now = self._runtime.clock.monotonic()
        late = min(self._due, key=lambda shard: self._due[shard])
        return late if self._due[late] <= now else None

    def run(self, shard: str) -> Swept:
        """Read a shard's markers. Raises StoreError; it is due again then."""
        now = self._runtime.clock.monotonic()
        ready, until = self._ready(shard)
        running = read_running(self._runtime.tasks, shard, now)
        later = [(one.due, one.key) for one in self._runtime.tasks.later(shard)]
        has_events = bool(self._runtime.tasks.events(shard, limit=1))
        self._dispatch.reconcile(shard, ready, until)
        self._reconcile(shard, running)
        self._due[shard] = now + self._period
        return Swept(later=later, has_events=has_events)

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
    return {
        marker.key: WatchedAttempt(**vars(marker), since=now) for marker in tasks.running(shard)
    }
