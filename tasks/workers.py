"""The table `workers`: one row per worker, its heartbeat, what it runs, and orders to it.

The manager writes kill orders into the row, so that the worker's next beat fails on the ETag and
reads them. An order goes when the worker no longer lists the claim.
"""

import json
from dataclasses import asdict, dataclass, field, replace

from tasks import updates
from tasks.clock import Clock
from tasks.model import SCHEMA, Phase
from tasks.store import Delete, Entity, Insert, Operation, Replace, Row, Store

TABLE = "workers"
PARTITION = "workers"


@dataclass(frozen=True, kw_only=True)
class RunningAttempt:
    """An attempt a worker runs, as of its last beat."""

    key: str
    claim: str
    started_ago: float  # seconds on the worker's monotonic clock
    phase: Phase
    task_class: str
    progress: float = 0.0  # 0 to 1, as the attempt says
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerRow:
    """A worker. `started` tells one incarnation from the next, `sequence` counts its beats."""

    name: str
    host: str
    slots: int
    started: float
    beat_at: float
    sequence: int = 0
    attempts: tuple[RunningAttempt, ...] = ()
    orders: tuple[str, ...] = ()  # claim ids to kill
    draining: bool = False
    sandbox: str = ""
    version: str = ""
    etag: str = field(default="", compare=False)


def beat(store: Store, clock: Clock, worker: WorkerRow) -> tuple[str, ...]:
    """Write the worker's heartbeat, and return the claims it is ordered to kill.

    Raises:
        StoreError: storage does not answer. A worker that gets no beat through for a lease kills
            its own attempts.
    """
    orders: tuple[str, ...] = ()
    mine = {attempt.claim for attempt in worker.attempts}

    def change(found: Row | None) -> tuple[Operation, ...]:
        nonlocal orders
        if found is None:
            orders = ()
            return (Insert(row=worker.name, entity=_dump(replace(worker, orders=()))),)
        old = _load(found)
        orders = tuple(claim for claim in old.orders if claim in mine)
        same = old.started == worker.started  # and not a dead namesake that was on its way out
        new = replace(worker, orders=orders, draining=worker.draining or (same and old.draining))
        if old == new:
            return ()
        return (Replace(row=worker.name, entity=_dump(new), etag=found.etag),)

    updates.update(store, clock, TABLE, PARTITION, worker.name, change)
    return orders


def order_kill(store: Store, clock: Clock, worker: str, claim: str) -> bool:
    """Order a worker to kill an attempt; False when there is no such worker."""
    there = False

    def change(found: Row | None) -> tuple[Operation, ...]:
        nonlocal there
        there = found is not None
        if found is None:
            return ()
        old = _load(found)
        if claim in old.orders:
            return ()
        new = replace(old, orders=(*old.orders, claim))
        return (Replace(row=worker, entity=_dump(new), etag=found.etag),)

    updates.update(store, clock, TABLE, PARTITION, worker, change)
    return there


def list_workers(store: Store) -> list[WorkerRow]:
    """All workers that have not left."""
    return [_load(row) for row in store.scan(TABLE, PARTITION, "", "\uffff")]


def leave(store: Store, clock: Clock, worker: str, started: float) -> None:
    """Remove the row of a worker that ended, unless a later incarnation wrote it."""

    def change(found: Row | None) -> tuple[Operation, ...]:
        if found is None or _load(found).started != started:
            return ()
        return (Delete(row=worker, etag=found.etag),)

    updates.update(store, clock, TABLE, PARTITION, worker, change)


def _dump(worker: WorkerRow) -> Entity:
    attempts = [[*asdict(attempt).values()] for attempt in worker.attempts]
    return {
        "schema": SCHEMA,
        "name": worker.name,
        "host": worker.host,
        "slots": worker.slots,
        "started": worker.started,
        "beat_at": worker.beat_at,
        "sequence": worker.sequence,
        "attempts": json.dumps(attempts).encode(),
        "orders": " ".join(worker.orders),
        "draining": worker.draining,
        "sandbox": worker.sandbox,
        "version": worker.version,
    }


def _load(row: Row) -> WorkerRow:
    e = row.entity
    listed = e["attempts"]
    text = listed if isinstance(listed, bytes) else b"[]"
    return WorkerRow(
        name=str(e["name"]),
        host=str(e["host"]),
        slots=int(e["slots"]),
        started=float(e["started"]),
        beat_at=float(e["beat_at"]),
        sequence=int(e["sequence"]),
        attempts=tuple(
            RunningAttempt(
                key=k, claim=c, started_ago=s, phase=Phase(p), task_class=t, progress=g, note=n
            )
            for k, c, s, p, t, g, n in json.loads(text)
        ),
        orders=tuple(str(e["orders"]).split()),
        draining=bool(e["draining"]),
        sandbox=str(e["sandbox"]),
        version=str(e["version"]),
        etag=row.etag,
    )
