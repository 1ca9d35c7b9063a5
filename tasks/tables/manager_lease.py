"""The row that says which manager acts: managers renew it, others read from it whether one acts.

Clocks of machines may differ by minutes. So a reader does not compare times of day: it notes on
its own monotonic clock when it last saw the row change.
"""

import threading
from dataclasses import dataclass

from tasks.storage.schema import SCHEMA, current
from tasks.storage.store import Entity, Insert, Operation, Replace, Row, Store
from tasks.tables import requests
from tasks.tables.services import Services

ROW = "manager"
SILENCE = 1.5  # leases without a change after which no manager acts; a standby needs one
_KEPT_SECONDS = 2.0  # a reading serves all pages of this time


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Who acts. `holder` is empty after a release, `renewed` the holder's time of day."""

    epoch: int = 0
    holder: str = ""
    beat: int = 0
    renewed: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Acting:
    """Whether a manager acts, as this process sees it.

    `silence` is in seconds since the row last changed or, without a change, since this process
    began to look. `renewed` is the time of day of the last renewal, 0 when there was none.
    """

    acts: bool
    silence: float = 0.0
    epoch: int = 0
    renewed: float = 0.0


def read(store: Store) -> Lease:
    """The lease as it stands; an empty one before the first manager. Raises StoreError."""
    row = store.get(requests.TABLE, requests.PARTITION, ROW)
    return load(row) if row else Lease()


def load(row: Row) -> Lease:
    """The lease in its row."""
    e = current("lease", row)
    return Lease(
        epoch=int(e["epoch"]),
        holder=str(e["holder"]),
        beat=int(e["beat"]),
        renewed=float(e.get("renewed", 0.0)),
    )


def write(row: Row | None, lease: Lease) -> tuple[Operation, ...]:
    """What puts a lease in the place of a row as it was read."""
    entity: Entity = {
        "schema": SCHEMA,
        "epoch": lease.epoch,
        "holder": lease.holder,
        "beat": lease.beat,
        "renewed": lease.renewed,
    }
    if row is None:
        return (Insert(row=ROW, entity=entity),)
    return (Replace(row=ROW, entity=entity, etag=row.etag),)


class ManagerWatch:
    """Tells whether a manager acts. `lease` is in seconds; any thread may look.

    A process that has just begun to look gives managers the same time to show themselves.
    """

    def __init__(self, services: Services, lease: float) -> None:
        self._services = services
        self._lease = lease
        self._lock = threading.Lock()
        self._seen: Lease | None = None
        self._since = services.clock.monotonic()
        self._looked = 0.0

    def look(self) -> Acting:
        """Whether a manager acts. Raises StoreError."""
        with self._lock:
            now = self._services.clock.monotonic()
            if self._seen is None or now - self._looked >= _KEPT_SECONDS:
                found = read(self._services.store)
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
            )
