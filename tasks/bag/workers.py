"""The table `workers`: one row per worker, its heartbeat, what it runs, and orders to it.

The manager writes orders into the row, so that the worker's next beat fails on the ETag and reads
them. An order about a claim goes when the worker no longer lists it. The rows lie in several
partitions, because Azure limits each to 2,000 rows a second: 10,000 workers need three times that.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from zlib import crc32

from pydantic import TypeAdapter

from tasks.bag.model import Phase
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import WORDS, WORDS_IN_BYTES, Codec, Form, in_json
from tasks.storage.store import Delete, Insert, Operation, Replace, Row, Store

TABLE = "workers"
PARTITIONS = tuple("01234567")
WHY = 1000
"""Characters that are kept of a reason."""


def partition_of(worker: str) -> str:
    """Return the partition of a worker's row."""
    return PARTITIONS[crc32(worker.encode()) % len(PARTITIONS)]


class Hold(Enum):
    """What the manager lets a worker take."""

    NONE = ""  # as many attempts as it has slots
    DRAINED = "drained"  # no more: its machine is slow, or fails everything
    PROBE = "probe"  # one at a time: to see whether it still is, or does


class Ask(Enum):
    """What an operator asks the manager to do with a worker."""

    NONE = ""
    DRAIN = "drain"  # until it is released
    RELEASE = "release"


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
    waiting: tuple[str, ...] = ()  # fencing tokens claimed, of tasks not begun or not committed yet
    orders: tuple[str, ...] = ()  # fencing tokens to kill
    moves: tuple[str, ...] = ()  # fencing tokens to kill and hand back, for others to run
    movers: tuple[tuple[str, str], ...] = ()  # of `moves`: fencing token, operator who ordered it
    hold: Hold = Hold.NONE
    hold_why: str = ""  # the evidence in words
    hold_since: float = 0.0  # when it was drained; POSIX seconds, as the next
    hold_until: float = 0.0  # when it is tried again; 0: now
    failing: bool = False  # it is held because attempts fail on its host, and not for slowness
    asked: Ask = Ask.NONE
    asked_why: str = ""  # who asked it, and why
    draining: bool = False
    unfit: str = ""  # what its self-test met: it claims nothing
    sandbox: str = ""
    version: str = ""
    reads: int = 0  # the newest schema that its build reads
    place: str = ""  # whose work alone it takes; empty: all work that has no place
    etag: str = field(default="", compare=False)

    @property
    def able(self) -> bool:
        """True if its machine can work: its self-test passes, and it does not fail everything."""
        return not self.unfit and not self.failing

    def runs_packages(self, tier: str) -> bool:
        """Tell whether packages of others run there in a tier of the sandbox, or a stronger one.

        A worker with a reduction pool has them run in that.
        """
        named = self.sandbox.partition(":")[0]
        return named not in ("", "none") and (named != "limits" or tier == "limits")

    @property
    def needed(self) -> bool:
        """True if it is slow, and takes attempts because too few other slots are free."""
        return self.hold is Hold.NONE and bool(self.hold_why)


_ATTEMPTS = TypeAdapter(tuple[RunningAttempt, ...])
_FIELDS = tuple(each.name for each in fields(RunningAttempt))


def _attempts(some: tuple[RunningAttempt, ...]) -> bytes:
    """Each attempt as the list of its fields."""
    return json.dumps([list(vars(each).values()) for each in some]).encode()


def _load_attempts(data: bytes) -> tuple[RunningAttempt, ...]:
    named = [dict(zip(_FIELDS, values, strict=True)) for values in json.loads(data)]
    return _ATTEMPTS.validate_python(named)


WORKER = Codec(
    WorkerRow,
    "worker",
    {
        "attempts": Form(write=_attempts, read=_load_attempts),
        "waiting": WORDS_IN_BYTES,
        "orders": WORDS,
        "moves": WORDS,
        "movers": in_json(tuple[tuple[str, str], ...], sparse=True),
        "asked": Form(write=lambda ask: ask.value, read=Ask, sparse=True),
        "asked_why": Form(sparse=True),
        "unfit": Form(sparse=True),
        "failing": Form(sparse=True),
        "place": Form(sparse=True),
    },
)


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a worker reads with its beat: claims to kill or hand back, its hold, its leave."""

    kill: tuple[str, ...] = ()
    move: tuple[str, ...] = ()
    movers: tuple[tuple[str, str], ...] = ()
    hold: Hold = Hold.NONE
    leave: bool = False


def beat(
    store: Store,
    clock: Clock,
    worker: WorkerRow,
    until: float = math.inf,
    *,
    left: Callable[[], bool] = lambda: False,
) -> Orders:
    """Write the worker's heartbeat, and return what it is ordered to do.

    It is not tried again after `until`, on the monotonic clock. `left` says whether the worker has
    begun to delete its row: a beat that is under way then does not write the row anew.

    Raises:
        StoreError: storage does not answer. A worker that gets no beat through for a lease kills
            its own attempts.
    """
    orders = Orders()
    mine = {attempt.claim for attempt in worker.attempts} | {*worker.waiting}

    def change(found: Row | None) -> tuple[Operation, ...]:
        nonlocal orders
        orders = Orders()
        if found is None:
            if left():
                return ()
            new = replace(worker, orders=(), moves=(), movers=(), hold=Hold.NONE)
            return (Insert(row=worker.name, entity=WORKER.dump(new)),)
        old = WORKER.load(found)
        same = old.started == worker.started  # and not a dead namesake that was on its way out
        orders = Orders(
            kill=tuple(claim for claim in old.orders if claim in mine),
            move=tuple(claim for claim in old.moves if claim in mine),
            movers=tuple(one for one in old.movers if one[0] in mine),
            hold=old.hold if same else Hold.NONE,
            leave=same and old.draining,
        )
        new = replace(
            worker,
            orders=orders.kill,
            moves=orders.move,
            movers=orders.movers,
            hold=orders.hold,
            hold_why=old.hold_why if same else "",
            hold_since=old.hold_since if same else 0.0,
            hold_until=old.hold_until if same else 0.0,
            failing=same and old.failing,
            asked=old.asked,
            asked_why=old.asked_why,
            draining=worker.draining or orders.leave,
        )
        if old == new:
            return ()
        return (Replace(row=worker.name, entity=WORKER.dump(new), etag=found.etag),)

    updates.update(store, clock, TABLE, partition_of(worker.name), worker.name, change, until)
    return orders


def order_kill(store: Store, clock: Clock, worker: str, claim: str) -> bool:
    """Order a worker to kill an attempt; False when there is no such worker."""

    def change(old: WorkerRow) -> WorkerRow:
        return old if claim in old.orders else replace(old, orders=(*old.orders, claim))

    return _order(store, clock, worker, change)


def order_move(store: Store, clock: Clock, worker: str, claim: str, by: str = "") -> bool:
    """Order a worker to kill an attempt and hand its task back; False when there is none.

    `by` is the operator who wants it; without one it is the manager.
    """

    def change(old: WorkerRow) -> WorkerRow:
        if claim in old.moves:
            return old
        movers = (*old.movers, (claim, by)) if by else old.movers
        return replace(old, moves=(*old.moves, claim), movers=movers)

    return _order(store, clock, worker, change)


def order_hold(
    store: Store,
    clock: Clock,
    worker: str,
    started: float,
    hold: Hold,
    *,
    why: str = "",
    wait: float = 0.0,
    failing: bool = False,
) -> bool:
    """Order what a worker may take, why, and in how many seconds it is tried again.

    `failing`: attempts fail on its host. NONE with a reason is for a worker that is slow and
    needed. Nothing changes for a later incarnation of the worker.
    """
    now = clock.now()

    def change(old: WorkerRow) -> WorkerRow:
        if old.started != started:
            return old
        if hold is Hold.NONE and not why:
            new = replace(
                old, hold=hold, hold_why="", hold_since=0.0, hold_until=0.0, failing=False
            )
            return replace(new, asked=Ask.NONE) if new.asked is Ask.RELEASE else new
        since = old.hold_since or now
        until = now + wait if wait else 0.0
        return replace(
            old,
            hold=hold,
            hold_why=why[:WHY],
            hold_since=since,
            hold_until=until,
            failing=failing,
        )

    return _order(store, clock, worker, change)


def ask(store: Store, clock: Clock, worker: str, what: Ask, why: str) -> bool:
    """Ask the manager to drain or release a worker; False when there is no such worker.

    A worker that was drained so stays drained when it starts again under its name.
    """

    def change(old: WorkerRow) -> WorkerRow:
        return replace(old, asked=what, asked_why=why[:WHY])

    return _order(store, clock, worker, change)


def order_leave(store: Store, clock: Clock, worker: str, started: float) -> bool:
    """Order this incarnation of a worker to take no more, and to end when it has none."""

    def change(old: WorkerRow) -> WorkerRow:
        return replace(old, draining=True) if old.started == started else old

    return _order(store, clock, worker, change)


def _order(
    store: Store, clock: Clock, worker: str, decide: Callable[[WorkerRow], WorkerRow]
) -> bool:
    there = False

    def change(found: Row | None) -> tuple[Operation, ...]:
        nonlocal there
        there = found is not None
        if found is None:
            return ()
        old = WORKER.load(found)
        new = decide(old)
        if new == old:
            return ()
        return (Replace(row=worker, entity=WORKER.dump(new), etag=found.etag),)

    updates.update(store, clock, TABLE, partition_of(worker), worker, change)
    return there


def list_workers(store: Store) -> list[WorkerRow]:
    """All workers that have not left."""
    return [
        WORKER.load(row)
        for partition in PARTITIONS
        for row in store.scan(TABLE, partition, "", "\uffff")
    ]


def leave(store: Store, clock: Clock, worker: str, started: float) -> None:
    """Remove the row of a worker that ended, unless a later incarnation wrote it."""

    def change(found: Row | None) -> tuple[Operation, ...]:
        if found is None or WORKER.load(found).started != started:
            return ()
        return (Delete(row=worker, etag=found.etag),)

    updates.update(store, clock, TABLE, partition_of(worker), worker, change)
