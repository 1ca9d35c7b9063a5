"""The managers as operators see them: table `operators`, partition `managers`, a row each.

Each manager writes its own row every few seconds. Nobody decides by it: which manager acts is said
by the lease alone.
"""

import urllib.parse
from dataclasses import dataclass

from tasks.bag.model import Phase
from tasks.operators.restrictions import TABLE
from tasks.storage.codec import Codec, in_json
from tasks.storage.store import Delete, Store, Upsert

PARTITION = "managers"
_DAY = 86_400.0
_MOST = 10  # rows that a manager leaves when it starts


@dataclass(frozen=True, kw_only=True)
class PhaseQueue:
    """The ready tasks of a phase that the manager has in hand, and the attempts that run.

    `oldest` is how many seconds the first of them has been ready, as far as this manager knows.
    """

    phase: Phase
    ready: int = 0
    oldest: float = 0.0
    running: int = 0


@dataclass(frozen=True, kw_only=True)
class HostQueue:
    """An archive host all of whose places are taken, and the ready tasks that wait for one.

    Or, with `why`, a package for whose runs there is no more room: what the latest waited for.
    """

    host: str
    places: int
    waiting: int
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class PlaceQueue:
    """A place where workers are: its slots, the slots wanted, the ready tasks, what runs.

    Without workers `requests` are some that wait for one, and `heard` says when the last one beat,
    in POSIX seconds; 0: none since this manager began to act. The place without a name is that of
    all work that has none.
    """

    place: str
    workers: int = 0
    slots: int = 0
    wanted_slots: int = 0
    ready: int = 0
    running: int = 0
    heard: float = 0.0
    requests: tuple[str, ...] = ()

    @property
    def waits(self) -> bool:
        """True if there is work, and no worker."""
        return not self.workers and self.ready > 0

    @property
    def why(self) -> str:
        """The reason why its work waits, in words; empty where only slots are busy."""
        if not self.waits:
            return ""
        whom = f"a worker of place {self.place}" if self.place else "a worker without a place"
        last = (
            "the last one is gone"
            if self.heard
            else "none has been here since the manager began to act"
        )
        return f"waits for {whom}: {last}"


@dataclass(frozen=True, kw_only=True)
class PhaseStore:
    """The artifacts of a phase that are kept, and their bytes."""

    phase: Phase
    artifacts: int = 0
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class RefusedMails:
    """Mails that the mail server has not taken and that are still tried; its answer to the last."""

    count: int = 0
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class ManagerRow:
    """A manager: `rounds` is its longest round since the row before, in seconds.

    `requests` have not ended. `stored` is of the `shards` that it has looked at, of sixteen, since
    it began to act. What only the acting manager knows is empty for the others.
    """

    name: str
    host: str
    version: str
    started: float
    beat_at: float
    acts: bool = False
    epoch: int = 0
    rounds: float = 0.0
    requests: int = 0
    queues: tuple[PhaseQueue, ...] = ()
    stored: tuple[PhaseStore, ...] = ()
    shards: int = 0
    refused: RefusedMails = RefusedMails()
    hosts: tuple[HostQueue, ...] = ()
    places: tuple[PlaceQueue, ...] = ()  # none where no work and no worker has one


_CODEC = Codec(
    ManagerRow,
    "manager",
    {
        "queues": in_json(tuple[PhaseQueue, ...]),
        "stored": in_json(tuple[PhaseStore, ...]),
        "refused": in_json(RefusedMails, sparse=True),
        "hosts": in_json(tuple[HostQueue, ...], sparse=True),
        "places": in_json(tuple[PlaceQueue, ...], sparse=True),
    },
)


def put(store: Store, manager: ManagerRow) -> None:
    """Write a manager's row. Raises StoreError."""
    row = _row(manager.name, manager.host)
    store.transact(TABLE, PARTITION, [Upsert(row=row, entity=_CODEC.dump(manager))])


def leave(store: Store, name: str, host: str) -> None:
    """Delete the row of a manager that ends. Raises StoreError; ConflictError if there is none."""
    store.transact(TABLE, PARTITION, [Delete(row=_row(name, host))])


def drop_old(store: Store, now: float) -> None:
    """Delete the rows of managers that wrote none for a day, and all but the latest ten.

    A manager that ends again and again has another name each time. Raises StoreError.
    """
    rows = [
        (_CODEC.load(row).beat_at, row.row) for row in store.scan(TABLE, PARTITION, "", "\uffff")
    ]
    for place, (beat_at, row) in enumerate(sorted(rows, reverse=True)):
        if place >= _MOST or now - beat_at >= _DAY:
            store.transact(TABLE, PARTITION, [Delete(row=row)])


def managers(store: Store, now: float) -> list[ManagerRow]:
    """Return the managers that wrote their row within a day, the acting one first."""
    found = [_CODEC.load(row) for row in store.scan(TABLE, PARTITION, "", "\uffff")]
    lately = [one for one in found if now - one.beat_at < _DAY]
    return sorted(lately, key=lambda one: (not one.acts, -one.epoch, one.name))


def _row(name: str, host: str) -> str:
    return urllib.parse.quote(f"{name} {host}", safe=" .")
