"""The sweep: reads a shard's markers and events, and so makes up for lost wake-ups."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from service_manager.dispatch.dispatch import BEHIND_ALL, Unread
from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import ReadyMarker, RunningMarker
from tasks.bag.task_table import TaskTable

AT_REST = 10  # periods between two sweeps while there is nothing to make up for
_PAGE = 1000  # ready tasks of one request and shard read in a sweep
_BESIDE = 2  # pages at most read beyond what dispatch remembers
_BEHIND = 16  # pages at most read at once behind one of which nothing may be sent


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
        # By shard and request, where to read on behind what waits and may not be sent.
        self._behind: dict[str, dict[str, ReadyMarker]] = {number: {} for number in SHARDS}

    def due(self) -> str | None:
        """Return the shard whose turn it is, if one is due."""
        now = self._runtime.clock.monotonic()
        late = min(self._swept, key=lambda shard: self._swept[shard])
        period = self._period * (AT_REST if self._cache.at_rest else 1)
        return late if self._swept[late] + period <= now else None

    def run(self, shard: str) -> Swept:
        """Read a shard's markers. Raises StoreError; it is due again then."""
        now = self._runtime.clock.monotonic()
        ready, unread = self._ready(shard)
        running, later = self._runtime.tasks.begun(shard)
        has_events = bool(self._runtime.tasks.events(shard, limit=1))
        self._dispatch.reconcile(shard, ready, unread)
        _reconcile(self._cache.running, shard, _watched(running, now))
        self._swept[shard] = now
        return Swept(later=[(one.due, one.key) for one in later], has_events=has_events)

    def feed(self, request: str) -> None:
        """Read more of a large request's ready tasks, some of each shard. Raises StoreError.

        They are read in order of key, and those of the lowest ranks are remembered. Behind tasks
        of which none may be sent now, it is read on.
        """
        beside = min(self._dispatch.wide, _BESIDE * _PAGE)  # sent, and not claimed yet
        pages = max(1, math.ceil((self._dispatch.most // len(SHARDS) + beside) / _PAGE))
        found: list[ReadyMarker] = []
        more = False
        for shard, first in self._first(request, pages).items():
            found += first
            if len(first) == pages * _PAGE:
                behind, _, ends = self._read_behind(shard, first, len(first))
                found += behind
                more = more or not ends
        self._dispatch.feed(request, found, more=more)

    def _first(self, request: str, pages: int) -> dict[str, list[ReadyMarker]]:
        """Read the first ready tasks of a request in each shard, a page of each in turn.

        So no partition gives all its rows of a second at once.
        """
        found: dict[str, list[ReadyMarker]] = {shard: [] for shard in SHARDS}
        for number in range(pages):
            for shard, before in found.items():
                if len(before) == number * _PAGE:
                    last = before[-1] if before else None
                    before += self._runtime.tasks.ready(shard, _PAGE, request, last)
        return found

    def _ready(self, shard: str) -> tuple[dict[str, ReadyMarker], Unread]:
        """Read a shard's ready tasks by key, and say what was not read of large requests.

        Of a large request the first tasks are read, and if none of these may be sent now, some
        behind them.
        """
        found: dict[str, ReadyMarker] = {}
        unread: dict[str, list[tuple[str, str]]] = {}
        last: ReadyMarker | None = None
        skip = False  # all of its request
        while True:
            page = self._runtime.tasks.ready(shard, _PAGE, after=last, skip=skip)
            found |= {marker.key: marker for marker in page}
            if len(page) < _PAGE:
                break
            last = page[-1]
            skip = page[0].request == last.request
            if skip:
                behind, since, ends = self._read_behind(shard, page, _PAGE)
                found |= {marker.key: marker for marker in behind}
                unread[last.request] = [(last.key, since.key)]
                if not ends:
                    unread[last.request].append(((behind or page)[-1].key, BEHIND_ALL))
        behind_of = self._behind[shard]
        self._behind[shard] = {name: at for name, at in behind_of.items() if name in unread}
        return found, unread

    def _read_behind(
        self, shard: str, first: Sequence[ReadyMarker], limit: int
    ) -> tuple[list[ReadyMarker], ReadyMarker, bool]:
        """Read on behind the first page of a request if none of its tasks may be sent now.

        At first some pages are read, until one has a task that may be sent. Each further call
        reads one page: the same as long as it has such a task, else the next one; after the last
        it begins again.

        Returns:
            What was read; the marker behind which it begins; whether it reaches the last task.
        """
        request, cursors = first[-1].request, self._behind[shard]
        may = self._dispatch.sendable(self._cache)
        if any(map(may, first)):
            cursors.pop(request, None)
            return [], first[-1], False
        pages = 1 if request in cursors else _BEHIND
        since = at = cursors.get(request, first[-1])
        found: list[ReadyMarker] = []
        for _ in range(pages):
            page = self._runtime.tasks.ready(shard, limit, request, after=at)
            found += page
            if any(map(may, page)):
                break
            if len(page) < limit:
                cursors[request] = first[-1]
                return found, since, True
            at = page[-1]
        cursors[request] = at
        return found, since, len(page) < limit


def read_running(tasks: TaskTable, shard: str, now: float) -> dict[str, WatchedAttempt]:
    """Read a shard's running attempts by key, as if they began now. Raises StoreError."""
    return _watched(tasks.running(shard), now)


def _watched(markers: Iterable[RunningMarker], now: float) -> dict[str, WatchedAttempt]:
    return {marker.key: WatchedAttempt(**vars(marker), since=now) for marker in markers}


def look_again(tasks: TaskTable, shard: str, known: dict[str, WatchedAttempt], now: float) -> None:
    """Make the attempts of a shard that are known to run those that its markers name.

    Raises StoreError.
    """
    _reconcile(known, shard, read_running(tasks, shard, now))


def _reconcile(
    known: dict[str, WatchedAttempt], shard: str, found: dict[str, WatchedAttempt]
) -> None:
    for key in [k for k in known if k[0] == shard and k not in found]:
        del known[key]
    for key, running in found.items():
        old = known.get(key)
        if old is None or old.claim != running.claim:  # a marker stays as its claim wrote it
            known[key] = running
