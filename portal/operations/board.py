"""Cache what the operators' page shows; read the tables only if something may have changed.

The markers lie in sixteen partitions: too many to read for every open page every few seconds.
Markers change when an attempt begins, which its worker reports with its next heartbeat, and when an
attempt ends, which the manager counts in the statistics.

So the workers are read at each look; the cursor of the statistics is read while attempts run, and
rarely otherwise; the markers are read when either of these changes. They are also read at
intervals, because a task can change without an attempt.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from tasks.bag import history, workers
from tasks.bag.history import ClassStatistics
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import LaterMarker, RunningMarker
from tasks.bag.workers import WorkerRow
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow

UNFINISHED_SECONDS = 10.0
"""The unfinished requests are read only this often."""
_NEWEST = 200  # requests among which the unfinished ones are looked for
IDLE_SECONDS = 15.0
"""After so long without an attempt, the statistics are read only this often."""
MARKER_SECONDS = 180.0
_MOST = 500  # markers read per partition


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What the operators' page shows of the tables.

    It has the workers, the markers of running tasks and of tasks to be tried again, and the
    statistics of the task classes.
    """

    workers: tuple[WorkerRow, ...] = ()
    running: tuple[RunningMarker, ...] = ()
    later: tuple[LaterMarker, ...] = ()
    statistics: Mapping[str, ClassStatistics] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Signs:
    """The values that change whenever markers or statistics change."""

    claims: frozenset[str]
    counted: str  # the cursor's ETag


class Board:
    """One portal's view of the tables, shared by all open pages."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._signs: _Signs | None = None
        self._read_at = 0.0
        self._counted_at = 0.0
        self._busy_at = 0.0
        self._sight = Sight()
        self._unfinished: tuple[float, tuple[RequestRow, ...]] | None = None

    def unfinished(self) -> tuple[RequestRow, ...]:
        """Return the requests that have not ended, as they were some seconds ago. StoreError."""
        with self._lock:
            now = self._runtime.clock.monotonic()
            if self._unfinished is None or now - self._unfinished[0] >= UNFINISHED_SECONDS:
                newest = request_operations.list_requests(self._runtime, None, _NEWEST)
                self._unfinished = now, tuple(row for row in newest if not row.state.ended)
            return self._unfinished[1]

    def look(self) -> Sight:
        """Return the current view of the tables.

        Changes that no attempt has made may be missing for some minutes.
        """
        with self._lock:
            store = self._runtime.store
            found = tuple(workers.list_workers(store))
            now = self._runtime.clock.monotonic()
            claims = frozenset(a.claim for worker in found for a in worker.attempts)
            signs = _Signs(claims=claims, counted=self._counted(claims, now))
            old = self._sight
            running, later = old.running, old.later
            if signs != self._signs or now - self._read_at >= MARKER_SECONDS:
                running, later = _markers(self._runtime)
                self._read_at = now
            statistics = old.statistics
            if self._signs is None or signs.counted != self._signs.counted:
                statistics = history.class_statistics(store)
            self._signs = signs
            self._sight = Sight(workers=found, running=running, later=later, statistics=statistics)
            return self._sight

    def _counted(self, claims: frozenset[str], now: float) -> str:
        """Return the cursor's ETag; read it rarely if no worker has had an attempt for a while."""
        if claims or self._signs is None:
            self._busy_at = now
        idle = now - self._busy_at >= IDLE_SECONDS
        if self._signs is not None and idle and now - self._counted_at < IDLE_SECONDS:
            return self._signs.counted
        self._counted_at = now
        return history.load_cursor(self._runtime.store).etag


def _markers(
    runtime: Runtime,
) -> tuple[tuple[RunningMarker, ...], tuple[LaterMarker, ...]]:
    """Markers of running tasks, and of those that are ready later."""
    running: list[RunningMarker] = []
    later: list[LaterMarker] = []
    for shard in SHARDS:
        begun = runtime.tasks.begun(shard, limit=_MOST)
        running += begun[0]
        later += begun[1]
    return tuple(running), tuple(later)
