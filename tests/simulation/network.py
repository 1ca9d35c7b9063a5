"""What lies between a simulated process and the rest: storage, blobs, messages, their faults."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from service_manager.leader.manager import SendError
from tasks.bag.runtime import Runtime
from tasks.bag.task_table import MARKERS, kind_of
from tasks.errors import ConflictError, StoreError
from tasks.storage.blobs import MemoryBlobs, StoredBlob
from tasks.storage.queues import FIRST, Ack, address, of_address
from tasks.storage.store import Operation, Row, Store
from tests.simulation.world import Process, World

_LOOK = 0.25  # seconds between two looks for a message, in place of a call that blocks
Watch = Callable[[str, str, Sequence[Operation]], None]


class Rates:
    """How often what goes wrong, per call."""

    def __init__(self, random: Random) -> None:
        scale = random.choice([0.0, 0.3, 1.0, 1.0, 3.0])
        self.read_fails = 0.004 * scale
        self.write_refused = 0.01 * scale
        self.answer_lost = 0.03 * scale
        self.lands_late = 0.006 * scale
        self.message_lost = 0.05 * scale
        self.message_doubled = 0.08 * scale
        self.message_late = 0.08 * scale
        self.blob_lost = 0.8 if random.random() < 0.5 else 0.0  # blobs lost in a run


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Calls of one process (or of all) to one party that fail, for some time.

    `way` is "there" for calls that are not done, "back" for calls whose answer is lost. A `part` of
    them fails: all of them when the network is cut, some when a partition is throttled (429, 503).
    """

    process: str
    party: str  # a table, `table/partition`, or BLOBS, MESSAGES, WAKE_UPS; STORE for all tables
    way: str
    until: float
    part: float = 1.0


STORE, BLOBS, MESSAGES, WAKE_UPS = "store", "blobs", "messages", "wake-ups"
LATEST = 40.0
"""Seconds after which a write under way has landed."""


class Cuts:
    """What is cut now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cuts: list[Cut] = []

    def add(self, cut: Cut) -> None:
        self._world.faults["throttled" if cut.part < 1 else f"cut {cut.way}"] += 1
        self._world.note(f"{cut}")
        self._cuts.append(cut)

    def way(self, process: Process, *parties: str) -> str:
        """Return which way a call to a party by any of its names fails; empty: it does not."""
        if not self._cuts or self._world.calm:
            return ""
        self._cuts = [cut for cut in self._cuts if cut.until > self._world.now]
        host = process.name.partition("#")[0]
        for cut in self._cuts:
            concerns = cut.process in ("", host) and cut.party in parties
            if concerns and self._world.random.random() < cut.part:
                return cut.way
        return ""


class SimClock:
    """A process's clock: wall time with its error, monotonic time from its own start."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._start = world.now

    def now(self) -> float:
        return 1_700_000_000.0 + self._world.now + self._process.skew

    def monotonic(self) -> float:
        return self._world.now - self._start

    def sleep(self, seconds: float) -> None:
        self._world.point(self._process)
        self._world.pause(self._process, seconds)


class SimStore:
    """The store as one process reaches it. `split` (a mutant) writes markers apart."""

    def __init__(
        self,
        world: World,
        process: Process,
        store: Store,
        rates: Rates,
        watch: Watch,
        cuts: Cuts,
        *,
        split: bool = False,
    ) -> None:
        self._world = world
        self._process = process
        self._store = store
        self._rates = rates
        self._watch = watch
        self._cuts = cuts
        self._split = split
        self.lost_answers = True
        self.unanswered = 0  # writes that took effect, or may yet, and did not answer
        self.late_until = 0.0  # when all of them have landed

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self._travel(f"get {table} {row}")
        self._maybe_broken(table, partition)
        return self._store.get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self._travel(f"scan {table} {partition} {start}")
        self._maybe_broken(table, partition)
        found = list(self._store.scan(table, partition, start, end, limit))
        return iter(found)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        if self._split and table == "tasks":
            markers = [op for op in operations if kind_of(op.row) in MARKERS]
            rest = [op for op in operations if op not in markers]
            if markers and rest:
                etags = self._transact(table, partition, rest)
                self._transact(table, partition, markers)
                return etags
        return self._transact(table, partition, operations)

    def _transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        world, random = self._world, self._world.random
        self._travel(f"write {table} {operations[0].row} +{len(operations) - 1}")
        if world.calm:
            return self._apply(table, partition, operations)
        way = self._cuts.way(self._process, STORE, table, f"{table}/{partition}")
        if way == "back":
            self.unanswered += 1
            self._apply(table, partition, operations)
        if way:
            self._hang()
            raise StoreError(f"simulated: cut {way}")
        chance = random.random()
        if chance < self._rates.write_refused:
            world.faults["write failed"] += 1
            raise StoreError("simulated: no answer, nothing done")
        chance -= self._rates.write_refused
        if chance < self._rates.answer_lost:
            world.faults["answer lost"] += 1
            self.unanswered += 1
            self._apply(table, partition, operations)
            self._travel("answer lost")
            if random.random() < 0.3:  # a client library that resends by itself sees a conflict
                raise ConflictError("simulated: resent after it took effect")
            raise StoreError("simulated: done, answer lost")
        chance -= self._rates.answer_lost
        if chance < self._rates.lands_late:
            world.faults["write lands late"] += 1
            self.unanswered += 1
            self.late_until = world.now + LATEST
            world.at(random.uniform(0.1, LATEST), lambda: self._land(table, partition, operations))
            raise StoreError("simulated: under way, no answer")
        etags = self._apply(table, partition, operations)
        self._travel("answer")
        return etags

    def _apply(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        etags = self._store.transact(table, partition, operations)
        self._world.writer = self._process
        self._watch(table, partition, operations)
        return etags

    def _land(self, table: str, partition: str, operations: Sequence[Operation]) -> None:
        try:
            self._store.transact(table, partition, operations)
            self._world.writer = None
            self._watch(table, partition, operations)
        except ConflictError:
            self._world.note("late write refused")
        else:
            self._world.note("late write took effect")

    def _travel(self, what: str) -> None:
        self._world.point(self._process)
        self._world.note(f"{self._process.name} {what}")
        self._world.pause(self._process, self._world.random.uniform(0.001, 0.02))

    def _hang(self) -> None:
        self._world.pause(self._process, self._world.random.choice([0.01, 1.0, 6.0]))

    def _maybe_broken(self, table: str, partition: str) -> None:
        if self._cuts.way(self._process, STORE, table, f"{table}/{partition}"):
            self._hang()
            raise StoreError("simulated: cut")
        if not self._world.calm and self._world.random.random() < self._rates.read_fails:
            self._world.faults["read failed"] += 1
            raise StoreError("simulated: no answer to a read")


class SimBlobs:
    """Blobs as one process reaches them."""

    def __init__(self, world: World, process: Process, blobs: MemoryBlobs, cuts: Cuts) -> None:
        self._world = world
        self._process = process
        self._blobs = blobs
        self._cuts = cuts

    def put_file(self, container: str, name: str, path: Path) -> StoredBlob:
        return self.put_bytes(container, name, path.read_bytes())

    def put_bytes(self, container: str, name: str, data: bytes) -> StoredBlob:
        self._travel(f"put {container}/{name}")
        stored = self._blobs.put_bytes(container, name, data)
        self._world.point(self._process)
        return stored

    def get_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        self._travel(f"fetch {container}/{name}")
        self._blobs.get_file(container, name, to, sha256)

    def get_bytes(self, container: str, name: str) -> bytes:
        self._travel(f"read {container}/{name}")
        return self._blobs.get_bytes(container, name)

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        self._travel(f"read {container}/{name}")
        return self._blobs.stream(container, name, start, length)

    def exists(self, container: str, name: str) -> bool:
        self._travel(f"look for {container}/{name}")
        return self._blobs.exists(container, name)

    def size(self, container: str, name: str) -> int:
        self._travel(f"look at {container}/{name}")
        return self._blobs.size(container, name)

    def delete(self, container: str, name: str) -> None:
        self._travel(f"delete {container}/{name}")
        self._blobs.delete(container, name)

    def names(self, container: str, prefix: str = "") -> Iterator[str]:
        self._travel(f"list {container}/{prefix}")
        return iter(list(self._blobs.names(container, prefix)))

    def _travel(self, what: str) -> None:
        self._world.point(self._process)
        self._world.note(f"{self._process.name} {what}")
        self._world.pause(self._process, self._world.random.uniform(0.002, 0.05))
        if self._cuts.way(self._process, BLOBS):
            raise StoreError("simulated: cut from the blobs")


class Mailbox:
    """Messages under way: lost, doubled, late, and so out of order."""

    def __init__(self, world: World, rates: Rates, name: str) -> None:
        self._world = world
        self._rates = rates
        self._name = name
        self._arrived: list[str] = []

    def send(self, text: str) -> None:
        world, random = self._world, self._world.random
        copies = 1
        if not world.calm:
            if random.random() < self._rates.message_lost:
                world.faults[f"{self._name} lost"] += 1
                return
            if random.random() < self._rates.message_doubled:
                world.faults[f"{self._name} doubled"] += 1
                copies = 2
        for _ in range(copies):
            delay = random.uniform(0.001, 0.05)
            if not world.calm and random.random() < self._rates.message_late:
                world.faults[f"{self._name} late"] += 1
                delay = random.uniform(1, 120)
            world.at(delay, lambda: self._arrived.append(text))

    @property
    def waiting(self) -> bool:
        """Whether a message has arrived."""
        return bool(self._arrived)

    def take(self) -> str | None:
        return self._arrived.pop(0) if self._arrived else None

    def take_all(self) -> list[str]:
        found, self._arrived = self._arrived, []
        return found

    def lose_all(self) -> None:
        """The broker lost everything."""
        self._arrived.clear()


class Broker:
    """The queue of all workers, and one of each host's; of each place the same."""

    def __init__(self, world: World, rates: Rates, cuts: Cuts) -> None:
        self._world = world
        self._rates = rates
        self._cuts = cuts
        self._queues: dict[str, Mailbox] = {}

    def send(self, process: Process, keys: Sequence[str], whom: str = "") -> None:
        """Send a message; SendError when the process is cut off, whether it arrives or not."""
        way = self._cuts.way(process, MESSAGES)
        if way != "there":
            self._send(keys, whom)
        if way:
            raise SendError("simulated: cut")

    def _send(self, keys: Sequence[str], whom: str) -> None:
        host, place = of_address(whom)
        if place:
            self._world.faults["sent to a place"] += 1
        if host:
            kind = "sent first" if host == FIRST else "host preferred"
            self._world.faults[kind] += 1
        if len(keys) > 1:
            self._world.faults["batch"] += 1
        self._queue(whom).send(" ".join((f"{self._world.now}", *keys)))

    def recall(self, process: Process) -> list[str]:
        """Take back what no slot has taken; none when the process is cut off."""
        way = self._cuts.way(process, MESSAGES)
        if way == "there":
            return []
        found = [text for queue in self._queues.values() for text in queue.take_all()]
        self._world.faults["message recalled"] += len(found)
        return [] if way else [key for text in found for key in text.split()[1:]]

    def take(self, process: Process, host: str, place: str) -> tuple[list[str], float]:
        """Take a message's keys, and when it was sent; none: there is none, or it is lost."""
        way = self._cuts.way(process, MESSAGES)
        if way == "there":
            return [], 0.0
        texts = (self._queue(address(name, place)).take() for name in (FIRST, host, ""))
        sent, *keys = next(filter(None, texts), "0.0").split()
        return [] if way else keys, float(sent)

    def lose_all(self) -> None:
        """The broker lost everything."""
        for queue in self._queues.values():
            queue.lose_all()

    def _queue(self, whom: str) -> Mailbox:
        if whom not in self._queues:
            self._queues[whom] = Mailbox(self._world, self._rates, "message")
        return self._queues[whom]


class SimQueue:
    """The request queue as a process reaches it."""

    def __init__(self, world: World, process: Process, mailbox: Mailbox) -> None:
        self._world = world
        self._process = process
        self._mailbox = mailbox

    def send(self, request: str) -> None:
        self._world.point(self._process)
        self._mailbox.send(request)

    def receive(self) -> list[tuple[str, Ack]]:
        self._world.point(self._process)
        return [(request, lambda: None) for request in self._mailbox.take_all()]


class SimWakeUps:
    """The wake-ups as a process reaches them."""

    def __init__(self, world: World, process: Process, mailbox: Mailbox, cuts: Cuts) -> None:
        self._world = world
        self._process = process
        self._mailbox = mailbox
        self._cuts = cuts

    def publish(self, *keys: str) -> None:
        self._world.point(self._process)
        if self._cuts.way(self._process, WAKE_UPS) != "there":
            for key in keys:
                self._mailbox.send(key)

    def drain(self) -> list[str]:
        self._world.point(self._process)
        way = self._cuts.way(self._process, WAKE_UPS)
        found = [] if way == "there" else self._mailbox.take_all()
        return [] if way else found

    def wait(self, stop: threading.Event, seconds: float) -> None:
        until = self._world.now + seconds
        cut = self._cuts.way(self._process, WAKE_UPS)
        while (cut or not self._mailbox.waiting) and self._world.now < until:
            stop.wait(min(_LOOK, seconds))


def runtime_of(
    world: World,
    process: Process,
    store: SimStore,
    blobs: MemoryBlobs,
    queue: Mailbox,
    wakeups: Mailbox,
    cuts: Cuts,
) -> Runtime:
    """The outside world of one process."""
    return Runtime(
        store=store,
        blobs=SimBlobs(world, process, blobs, cuts),
        queue=SimQueue(world, process, queue),
        wakeups=SimWakeUps(world, process, wakeups, cuts),
        clock=SimClock(world, process),
        random=Random(world.random.getrandbits(64)),
    )
