"""The row that says which manager acts: managers renew it, others read from it whether one acts.

Clocks of machines may differ by minutes. So a reader does not compare times of day: it notes on
its own monotonic clock when it last saw the row change.
"""

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tasks.bag import workers
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.operators.worker_beats import Beats
from tasks.requests.request_table import MANAGER, RequestTable
from tasks.storage import updates
from tasks.storage.codec import Codec
from tasks.storage.schema import OtherSchemaError
from tasks.storage.store import Operation, Row

SILENCE = 1.5  # leases without a change after which no manager acts; a standby needs one
PATIENCE = 300.0
"""Seconds for which work may wait without any worker: a fleet that begins from none takes some."""
_WORKERS_SECONDS = 15.0  # between two looks for workers, while slots are wanted
_KEPT_SECONDS = 2.0  # a reading serves all pages of this time


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Who acts. `holder` is empty after a release, `renewed` the holder's time of day.

    `wanted_slots` is how many slots the fleet should have.
    """

    epoch: int = 0
    holder: str = ""
    beat: int = 0
    renewed: float = 0.0
    wanted_slots: int = 0


@dataclass(frozen=True, kw_only=True)
class Acting:
    """Whether a manager acts, as this process sees it.

    `silence` is in seconds since the row last changed or, without a change, since this process
    began to look. `renewed` is the time of day of the last renewal, 0 when there was none.
    `wanted_slots` is how many slots the manager wanted then, `starved` for how many seconds it has
    wanted some and no worker that is able has beaten. `unfit` is why one of the others is not able.
    All of it is of workers without a place.
    """

    acts: bool
    silence: float = 0.0
    epoch: int = 0
    renewed: float = 0.0
    wanted_slots: int = 0
    starved: float = 0.0
    unfit: str = ""

    @property
    def without_workers(self) -> bool:
        """True if work waits and no worker comes, for longer than a fleet takes to begin."""
        return self.acts and self.starved >= PATIENCE


_LEASE = Codec(Lease, "lease")


def read(runtime: Runtime) -> Lease:
    """Read the lease; it is empty before the first manager. Raises StoreError."""
    row = RequestTable(runtime.store).get(MANAGER)
    return _LEASE.load(row) if row else Lease()


def change(runtime: Runtime, decide: Callable[[Lease], Lease]) -> None:
    """Change the lease under its ETag; `decide` sees each reading, and may raise or leave it.

    Raises:
        StoreError: storage failed on each of several tries.
    """

    def once(row: Row | None) -> tuple[Operation, ...]:
        old = _LEASE.load(row) if row else Lease()
        new = decide(old)
        return () if new == old else (updates.write(row, MANAGER, _LEASE.dump(new)),)

    RequestTable(runtime.store).update(runtime.clock, MANAGER, once)


class ManagerWatch:
    """Tells whether a manager acts, and workers are there. Any thread may look.

    `lease` is in seconds: so long, and half as long again, a manager or a worker may be silent.

    A process that has just begun to look gives managers the same time to show themselves.
    """

    def __init__(self, runtime: Runtime, lease: float) -> None:
        self._runtime = runtime
        self._lease = lease
        self._lock = threading.Lock()
        self._seen: Lease | None = None
        self._since = runtime.clock.monotonic()
        self._looked = 0.0
        self._counted = -_WORKERS_SECONDS
        self._beats = Beats()
        self._wanted_since: float | None = None
        self._able_at = -math.inf  # when a worker that is able was last heard
        self._unfit = ""

    def keep_looking(self, stopping: threading.Event) -> None:
        """Look now and then until `stopping`, so that each look knows since when the row is old.

        Otherwise a change since the last look would count as one of this moment, however long ago
        it was, and a manager that died while nobody looked would seem to act.
        """
        while not stopping.wait(self._lease / 2):
            with suppress(StoreError, OtherSchemaError):
                self.look()

    def look(self) -> Acting:
        """Tell whether a manager acts. Raises StoreError."""
        with self._lock:
            now = self._runtime.clock.monotonic()
            if self._seen is None or now - self._looked >= _KEPT_SECONDS:
                found = read(self._runtime)
                # What the first reading finds may be old or new: it has the same time to change.
                if found != (self._seen or Lease()):
                    self._since = now
                self._seen, self._looked = found, now
            silence = now - self._since
            return Acting(
                acts=silence <= SILENCE * self._lease,
                silence=silence,
                epoch=self._seen.epoch,
                renewed=self._seen.renewed,
                wanted_slots=self._seen.wanted_slots,
                starved=self._starved(now, self._seen.wanted_slots),
                unfit=self._unfit,
            )

    def _starved(self, now: float, wanted: int) -> float:
        """Return for how long slots have been wanted and no able worker was heard, in seconds."""
        silence = SILENCE * self._lease
        if not wanted:
            self._wanted_since, self._unfit = None, ""
            return 0.0
        if self._wanted_since is None or now - self._counted >= _WORKERS_SECONDS:
            self._counted = now
            found = workers.list_workers(self._runtime.store)
            self._beats.hear(found, now)
            self._unfit = ""
            for one in found:
                if one.place:
                    continue  # it takes the work of its place alone
                heard = self._beats.at(one.name) or 0.0
                if one.able:
                    self._able_at = max(self._able_at, heard)
                elif now - heard <= silence and not self._unfit:
                    self._unfit = f"{one.name}: {one.unfit or one.hold_why}"
        self._wanted_since = now if self._wanted_since is None else self._wanted_since
        if now - self._able_at <= silence:
            return 0.0
        return now - max(self._wanted_since, self._able_at)
