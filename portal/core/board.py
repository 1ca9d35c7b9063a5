"""What the operators' page shows of the tables, read anew only where something may have changed.

Markers lie in sixteen partitions, too many to read for every open page every few seconds. They
change when an attempt begins, which its worker tells with its next beat, and when one ends, which
the manager counts. So the workers are read each time, the cursor of the count as long as attempts
run and now and then besides, and the markers when either tells of a change; and at times
regardless, as a task may change without an attempt.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tasks.model.keys import SHARDS
from tasks.tables import history, workers
from tasks.tables.history import ClassStatistics
from tasks.tables.rows import LaterMarker, RunningMarker
from tasks.tables.services import Services
from tasks.tables.workers import WorkerRow

IDLE_SECONDS = 15.0
"""Without any attempt, after which the statistics are looked at only this often."""
MARKER_SECONDS = 180.0
_MOST = 500  # markers of one partition


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The workers, the markers of running tasks and of tasks that are to be tried again, and the
    statistics of the task classes."""

    workers: tuple[WorkerRow, ...] = ()
    running: tuple[RunningMarker, ...] = ()
    later: tuple[LaterMarker, ...] = ()
    statistics: Mapping[str, ClassStatistics] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Signs:
    """What changes when markers or statistics do."""

    claims: frozenset[str]
    counted: str  # the cursor's ETag


class Board:
    """One portal's view of the tables, for all pages that are open."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._signs: _Signs | None = None
        self._read_at = 0.0
        self._counted_at = 0.0
        self._busy_at = 0.0
        self._sight = Sight()

    def look(self) -> Sight:
        """The tables as they are, but for changes of the last minutes that no attempt has made."""
        with self._lock:
            store = self._services.store
            found = tuple(workers.list_workers(store))
            now = self._services.clock.monotonic()
            claims = frozenset(a.claim for worker in found for a in worker.attempts)
            signs = _Signs(claims=claims, counted=self._counted(claims, now))
            old = self._sight
            running, later = old.running, old.later
            if signs != self._signs or now - self._read_at >= MARKER_SECONDS:
                running, later = _markers(self._services)
                self._read_at = now
            statistics = old.statistics
            if self._signs is None or signs.counted != self._signs.counted:
                statistics = history.class_statistics(store)
            self._signs = signs
            self._sight = Sight(workers=found, running=running, later=later, statistics=statistics)
            return self._sight

    def _counted(self, claims: frozenset[str], now: float) -> str:
        """The cursor's ETag; read less often while no worker has had an attempt for a while."""
        if claims or self._signs is None:
            self._busy_at = now
        idle = now - self._busy_at >= IDLE_SECONDS
        if self._signs is not None and idle and now - self._counted_at < IDLE_SECONDS:
            return self._signs.counted
        self._counted_at = now
        return history.load_cursor(self._services.store).etag


def _markers(
    services: Services,
) -> tuple[tuple[RunningMarker, ...], tuple[LaterMarker, ...]]:
    """Markers of running tasks, and of those that are ready later."""
    running: list[RunningMarker] = []
    later: list[LaterMarker] = []
    for shard in SHARDS:
        begun = services.tasks.begun(shard, limit=_MOST)
        running += begun[0]
        later += begun[1]
    return tuple(running), tuple(later)
