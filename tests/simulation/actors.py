"""The processes of the simulation: managers, workers, a client. Only the worker is written for
it, as it has no child processes; all else is the product's own code."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.leader import service
from service_manager.leader.manager import Manager, Recall
from service_manager.options import ManagerOptions
from service_manager.storage.retention import NOTHING, Retention
from service_manager.storage.worth import Policy
from tasks.bag import (
    protocol,
    task_table,
    transitions,
    workers,
)
from tasks.bag.categories import Category
from tasks.bag.classes import archive_host
from tasks.bag.model import ArtifactFile, Phase, RequestOrder, Task
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS, shard
from tasks.bag.workers import Hold, RunningAttempt, WorkerRow
from tasks.errors import BlobMissingError, ConflictError, FencedError, StoreError
from tasks.request.document import Request
from tasks.requests import request_operations, request_table, retrying
from tasks.requests.plan import Plan
from tasks.storage import blobs
from tasks.storage.own_rows import OwnRows
from tests.simulation.broken import TOOK, BrokenHosts
from tests.simulation.disks import TOLD, SharedDisk
from tests.simulation.network import Broker, SimStore
from tests.simulation.noise import Noise
from tests.simulation.places import Places
from tests.simulation.watch import Watch
from tests.simulation.world import DiedError, Process, ViolationError, World
from worker.slots.fitness import Fitness
from worker.slots.fitness_watch import FitnessWatch
from worker.slots.lease import Lease

ALL = retrying.Scope()
PATIENCE = 6.0  # seconds for a place at the archive host
SOON_OVER = (
    Category.CONNECTION_FAILURE,
    Category.SERVER_BUSY,
    Category.OUT_OF_MEMORY,
    Category.STORAGE_CLIENT_ERROR,
    Category.UNKNOWN,
)


@dataclass(frozen=True, kw_only=True)
class Script:
    """What attempts come to: `never` can be made by nobody yet, `crashes` fail by themselves; rates
    per attempt."""

    never: set[str]
    crashes: dict[str, str]  # what runs of reductions say that fail
    fails: float
    hangs: float
    slow: float  # seconds, the longest ordinary attempt
    machines: Mapping[str, tuple[float, float, float]]  # slow ones: from, until, how many times
    quick: float = 0.2  # seconds, the shortest


def content(key: str) -> bytes:
    """The bytes of a task's artifact: equal keys give equal bytes."""
    return hashlib.sha256(key.encode()).digest()


class Beside:
    """Runs calls in other threads of a process, as the manager does beside its rounds."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._busy = False

    def submit(self, call: Callable[[], None]) -> "Future[None]":
        """Run a call in a thread of its own, as an executor does."""
        future: Future[None] = Future()

        def run() -> None:
            call()
            future.set_result(None)

        self._world.spawn(self._process, run)
        return future

    def tick(self, call: Callable[[], object]) -> None:
        """Run a call unless it runs; storage that fails is tried in the next round."""
        if self._busy:
            return
        self._busy = True

        def run() -> None:
            with suppress(StoreError):
                call()
            self._busy = False

        self._world.spawn(self._process, run)


class _Stop:
    """In place of a `threading.Event`: never set, and waiting takes simulated time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:  # an end without a limit never comes
            self._runtime.clock.sleep(timeout)
        return False


class Starving:
    """Whether a manager lets workers beat and holds nearly all of them, look after look."""

    LOOKS = 4  # those before it may be of workers that have just left, or of orders of another

    def __init__(self, runtime: Runtime, options: ManagerOptions) -> None:
        self._clock = runtime.clock
        self._apart = options.heartbeat
        self._work = options.work_places
        self.begin(ManagerCache())

    def begin(self, cache: ManagerCache, slots: int = 1) -> None:
        """A manager acts."""
        self._cache = cache
        self._slots = slots
        self._looks = 0
        self._due = 0.0
        self._heard: object = None

    def look(self) -> None:
        """Count looks at which workers beat and too few are free; ViolationError after some."""
        now = self._clock.monotonic()
        if now < self._due or self._cache.workers is self._heard:
            return  # a manager that cannot read the beats can hold and release nobody
        self._due, self._heard = now + self._apart, self._cache.workers
        places = ("", *self._work.names)
        starved = [place for place in places if self._starves(self._cache.view(place, self._work))]
        self._looks = self._looks + 1 if starved else 0
        if self._looks > self.LOOKS:
            raise ViolationError(f"too few slots are free at {starved}")

    def _starves(self, here: ManagerCache) -> bool:
        all_slots = self._slots * len(here.workers)
        return here.slots < max(1, all_slots / 4) if all_slots else False


def manager(
    runtime: Runtime,
    options: ManagerOptions,
    plan: Callable[[Request], Plan],
    send: Callable[..., None],
    recall: Recall,
    *,
    slots: int,
    retention: Policy | None,
    expected: float | None,
    beside: Sequence[Callable[[], None]] = (),
) -> None:
    """A manager's process, with retention beside it when it acts; `slots` are those of a worker.

    `beside` is called in each round as well: mails are sent, standing requests go on.

    `expected` seconds are what it takes all tasks for, in place of what is known of their classes:
    so batches come about in short histories, and some take much longer than they should. They take
    all that is ready then, whatever slots are idle.
    """
    cleaners: list[Retention] = []
    starving = Starving(runtime, options)
    due = [120.0]

    def make(epoch: int) -> Manager:
        made = Manager(runtime, options, plan, send, epoch, send_to=send, recall=recall)
        if expected is not None:
            for one in made._dispatch:
                one.turns, one.expected = 0, lambda _: expected
        cleaners[:] = [Retention(runtime, wait=60.0, policy=retention or NOTHING)]
        starving.begin(made.cache, slots)
        return made

    def each() -> None:
        starving.look()
        for call in beside:
            call()
        if retention is None or runtime.clock.monotonic() < due[0]:
            return
        due[0] = runtime.clock.monotonic() + 100.0
        for number in SHARDS:
            for _ in cleaners[0].passing(number):
                pass

    service.serve(runtime, options, make, cast(threading.Event, _Stop(runtime)), each)


@dataclass
class _Slot:
    claimed: protocol.Claimed
    started: float
    length: float = 1.0
    order: Category | None = None  # what its end is, by an order


@dataclass
class _Batch:
    """What a slot has claimed: one task in hand, others that wait or have ended."""

    waiting: list[protocol.Claimed]
    since: float
    in_hand: _Slot | None = None
    begun: int = 0
    stopped: bool = False
    ended: list[tuple[float, protocol.Claimed, protocol.End]] = field(default_factory=list)
    writing: bool = False


@dataclass
class SimWorker:
    """A worker's process: a heartbeat, and slots that share its fate.

    `delete_on_conflict` and `lost_is_failure` are mutants: what workers did that lost artifacts.
    """

    world: World
    process: Process
    runtime: Runtime
    options: ManagerOptions
    broker: Broker
    script: Script
    watch: Watch
    slots: int
    places: Places
    noise: Noise
    host: str
    broken: BrokenHosts
    disk: SharedDisk
    place: str = ""
    sandbox: str = "bubblewrap"
    gone: Callable[[str], bool] = lambda _name: False
    delete_on_conflict: bool = False
    lost_is_failure: bool = False
    batches: list[_Batch] = field(default_factory=list)
    known: set[str] = field(default_factory=set)  # claims that it was answered
    sequence: int = 0
    hold: Hold = Hold.NONE
    leaving: bool = False

    @property
    def name(self) -> str:
        """Its name, whichever its process is."""
        return self.process.name.partition("#")[0]

    def start(self) -> None:
        """Start the heartbeat, the slots, and who tends their batches."""
        self.started = self.runtime.clock.now()
        self.lease = Lease(self.runtime.clock, self.options.lease)
        self.own = OwnRows(self.runtime.store)
        self.fitness = Fitness(self.runtime.clock, tested=False)
        self.watching = FitnessWatch(
            fitness=self.fitness,
            test=lambda _sandbox: self.broken.test(self.name),
            held=lambda: self.hold is not Hold.NONE,
        )
        self.broken.starts(self.name)
        self.watching.look()
        self.world.spawn(self.process, self._heart)
        self.world.spawn(self.process, self._lease_watch)
        self.world.spawn(self.process, self._tend)
        for _ in range(self.slots):
            self.world.spawn(self.process, self._slot)

    def _running(self) -> dict[str, _Slot]:
        slots = (batch.in_hand for batch in self.batches)
        return {slot.claimed.claim: slot for slot in slots if slot is not None}

    def _waiting(self) -> tuple[str, ...]:
        return tuple(
            one.claim
            for batch in self.batches
            for one in (*batch.waiting, *(claimed for _, claimed, _ in batch.ended))
        )

    def _heart(self) -> None:
        clock = self.runtime.clock
        while True:
            self.sequence += 1
            now = clock.monotonic()
            row = WorkerRow(
                name=self.name,
                host=self.host,
                slots=self.slots,
                started=self.started,
                beat_at=clock.now(),
                sequence=self.sequence,
                attempts=tuple(
                    RunningAttempt(
                        key=slot.claimed.task.key,
                        claim=claim,
                        started_ago=now - slot.started,
                        phase=slot.claimed.task.phase,
                        task_class=slot.claimed.task.task_class,
                        progress=min(1.0, (now - slot.started) / slot.length),
                    )
                    for claim, slot in self._running().items()
                ),
                waiting=self._waiting(),
                draining=self.leaving,
                unfit=self.fitness.why,
                place=self.place,
                sandbox=self.sandbox,
            )
            try:
                orders = workers.beat(self.own, clock, row, now + self.lease.deadline)
            except StoreError:
                self.world.faults["beat failed"] += 1
            else:
                self.lease.renew(now)
                self._obey(orders)
            if self.leaving and not self.batches:
                with suppress(StoreError):  # its row stays behind
                    workers.leave(self.runtime.store, clock, self.name, self.started)
                self.world.kill(self.process)
            clock.sleep(self.options.heartbeat)

    def _lease_watch(self) -> None:
        while True:
            self.runtime.clock.sleep(1.0)
            if not self.lease.over:
                continue
            for batch in self.batches:
                batch.stopped = True
            for slot in self._running().values():
                if slot.order is None:
                    slot.order = Category.WORKER_LOST
                    self.world.faults["attempt fenced"] += 1

    def _obey(self, orders: workers.Orders) -> None:
        if orders.hold is not self.hold:
            self.hold = orders.hold
            self.world.faults[f"worker {self.hold.value or 'released'}"] += 1
        if orders.leave and not self.leaving:
            self.leaving = True
            self.world.faults["worker asked to leave"] += 1
        running = self._running()
        for claim in orders.kill:
            if claim in running:
                running[claim].order = Category.EXECUTION_TIMEOUT
        for claim in orders.move:
            if claim in running and running[claim].order is None:
                running[claim].order = Category.CANCELLED
                self.world.faults["attempt moved"] += 1
        for claim in (*orders.kill, *orders.move):
            for batch in tuple(self.batches):
                self._give_back(batch, claim)

    def _tend(self) -> None:
        clock = self.runtime.clock
        while True:
            clock.sleep(1.0)
            self.watching.look()
            for batch in tuple(self.batches):
                if self._stops(batch) or clock.monotonic() - batch.since > 10.0:
                    self._give_back(batch)
                if batch.ended and clock.monotonic() - batch.ended[0][0] > 1.0:
                    self._write(batch)

    def _takes(self) -> bool:
        if self.leaving or not self.lease.fresh or not self.fitness.fit:
            return False
        return self.hold is Hold.NONE or (self.hold is Hold.PROBE and not self.batches)

    def _stops(self, batch: _Batch) -> bool:
        if batch.stopped or self.leaving or self.hold is Hold.DRAINED:
            return True
        if not self.lease.fresh or not self.fitness.fit:
            return True
        return self.hold is Hold.PROBE and batch.begun > 0

    def _slot(self) -> None:
        while True:
            takes = self._takes()
            keys: list[str] = []
            sent = 0.0
            if takes:
                keys, sent = self.broker.take(self.process, self.host, self.place)
            if not keys:
                self.runtime.clock.sleep(self.world.random.uniform(0.5, 1.5))
                continue
            try:
                self._run(keys, sent)
            except StoreError:
                self.world.note(f"{self.process.name} gives up {keys[0][-8:]} +{len(keys) - 1}")

    def _run(self, keys: list[str], sent: float) -> None:
        clock = self.runtime.clock
        store = cast(SimStore, self.runtime.store)
        unanswered, earlier = store.unanswered, self.watch.claims(keys)
        try:
            claimed = protocol.claim_batch(self.runtime, keys, self.name, self.options.retry)
        except StoreError:
            if store.unanswered == unanswered and self.world.now > store.late_until:
                # Another slot may have had the same message.
                self.watch.claims_nothing(self.name, keys, earlier | self.known)
            raise
        self.known |= {one.claim for one in claimed}
        if not claimed:
            return
        for given in (given for one in claimed for given in one.spec.inputs):
            if given.key not in self.watch.was_done:
                raise ViolationError(f"a task starts before input {given.key[-8:]} was done")
        batch = _Batch(waiting=claimed, since=clock.monotonic())
        self.batches.append(batch)
        try:
            while batch.waiting and not self._stops(batch):
                slot = _Slot(claimed=batch.waiting.pop(0), started=clock.monotonic())
                batch.in_hand = slot
                batch.begun += 1
                self.watch.begins(self.name, slot.claimed.claim)
                self._here(slot.claimed.task)
                self.broken.begins(self.name)
                if not self._placed(slot, sent):
                    batch.in_hand = None
                    batch.waiting.insert(0, slot.claimed)
                    self._give_back(batch, slot.claimed.claim)
                    continue
                if why := self._lacks(slot.claimed.task):
                    batch.in_hand = None
                    batch.waiting.insert(0, slot.claimed)
                    self._give_back(batch, slot.claimed.claim, why)
                    continue
                try:
                    end = self._attempt(slot)
                finally:
                    self.places.leave(slot.claimed.claim)
                    self.disk.ends(slot.claimed.claim)
                self._judge(end.attempt.category)
                batch.in_hand = None
                batch.ended.append((clock.monotonic(), slot.claimed, end))
            self._give_back(batch)
            while batch.ended:
                self._write(batch)
                clock.sleep(0.1)
        finally:
            self.batches.remove(batch)

    def _here(self, task: Task) -> None:
        """A worker runs the work of its own place alone."""
        if self.options.work_places.of(task.task_class) != self.place:
            where = self.place or "of all other work"
            raise ViolationError(f"a worker {where} runs {task.task_class}")

    def _judge(self, category: Category | None) -> None:
        """Take note of what the end of an attempt says of this machine."""
        if category is None:
            self.fitness.succeeded()
        elif category is Category.HOST_FAILED:
            self.fitness.failed("attempt")
            self.broken.failed(self.name)
        elif category is Category.UNKNOWN:
            self.fitness.unknown("attempt")

    def _lacks(self, task: Task) -> str:
        """Say why this machine cannot run a package that another one can; "" where it can.

        Where none can it runs it all the same: the real one refuses it. Of one that is gone for
        good the row stays a day, and one that is broken is not mended: what waits for either
        would not end here.
        """
        if task.phase is not Phase.REDUCTION or self.sandbox != "none":
            return ""
        self.runtime.clock.sleep(0.2)
        with suppress(StoreError):
            rows = workers.list_workers(self.runtime.store)
            if any(
                row.runs_packages("limits")
                and not (row.draining or row.unfit or self.gone(row.name))
                for row in rows
                if (row.host != self.host, row.place) == (True, self.place)
            ):
                self.world.faults["no sandbox"] += 1
                return f"{protocol.NOT_HERE}no sandbox"
        return ""

    def _give_back(self, batch: _Batch, claim: str = "", why: str = "") -> None:
        back = [one for one in batch.waiting if claim in ("", one.claim)]
        batch.waiting[:] = [one for one in batch.waiting if one not in back]
        if not back:
            return
        self.world.faults["given back"] += len(back)
        try:
            protocol.give_back(self.runtime, {one.task.key: one.claim for one in back}, why=why)
        except StoreError:
            self.world.note(f"{self.process.name} does not give back {len(back)} tasks")

    def _write(self, batch: _Batch) -> None:
        if batch.writing:
            return
        batch.writing = True
        some = tuple(batch.ended)
        try:
            for tries in range(4):
                try:
                    self._end([(claimed, end) for _, claimed, end in some])
                except StoreError:
                    self.runtime.clock.sleep(1.0 + tries)
                else:
                    break
        finally:
            del batch.ended[: len(some)]
            batch.writing = False

    def _placed(self, slot: _Slot, sent: float) -> bool:
        """Wait for a place at the archive's host, if the attempt needs one; not for ever."""
        task, clock = slot.claimed.task, self.runtime.clock
        until = clock.monotonic() + PATIENCE
        slot.length = PATIENCE
        while archive_host(task.task_class) and slot.order is None:
            if self.places.take(task.claim, self.process):
                self.watch.finds_place(task, sent)
                break
            if clock.monotonic() > until:
                self.watch.finds_no_place(task, sent, self.places.held)
                return False
            clock.sleep(0.5)
        return True

    def _attempt(self, slot: _Slot) -> protocol.End:
        clock, random = self.runtime.clock, self.world.random
        claimed = slot.claimed
        started, began = clock.now(), clock.monotonic()
        category, length = self._fate(claimed.task.key)
        length = self.noise.seconds(self.host, self.world.now, length * self._slowness())
        broken = self.broken.broken(self.name)
        if broken is not None:
            category, length = broken, TOOK
        healing = claimed.absent or self._missing(claimed)
        if healing and broken is None:
            category = random.choice([Category.SOURCE_BLOB_MISSING, Category.CORRUPT_BLOB_READ])
            length = 0.1
        slot.length = length
        self.disk.begins(claimed.claim, self.process)
        while clock.monotonic() - began < length and slot.order is None:
            clock.sleep(min(3.0, length, random.uniform(0.5, 3.0)))
        if broken is not None:
            healing = 0
        if slot.order is not None:
            category, healing = slot.order, 0
        if category is None and not self.disk.has_room(claimed.claim):
            self.world.faults["no room on disk"] += 1
            category = Category.DISK_SHARED
        files = [] if category else [self._store(claimed)]
        attempt = claimed.attempt(
            started=started,
            ended=clock.now(),
            duration=clock.monotonic() - began,
            category=category,
            message=self._said(claimed.task.key, category),
        )
        return protocol.End(attempt=attempt, files=files, healing=healing, first=claimed.task)

    def _end(self, some: list[tuple[protocol.Claimed, protocol.End]]) -> None:
        for claimed, end in some:
            protocol.lose_damaged_inputs(self.runtime, claimed, end)
        if self.delete_on_conflict or self.lost_is_failure:
            for _, end in some:
                self._end_carelessly(end)
            return
        ends = [end for _, end in some]
        ours = protocol.end_batch(self.runtime, ends, self.options.retry)
        self.watch.ends([end.attempt for end in ends], ours)

    def _end_carelessly(self, end: protocol.End) -> None:
        """Write as careless workers did."""
        if end.attempt.category is not None:
            protocol.end_batch(self.runtime, [end], self.options.retry)
            return
        task = self.runtime.tasks.task(end.attempt.key)
        try:
            if task is None:
                return
            change = transitions.commit(task, end.attempt, end.files)
            self.runtime.store.transact(task_table.TABLE, shard(task.key), change.operations)
        except FencedError:
            return
        except ConflictError:
            if self.delete_on_conflict:
                self._delete(end.files)
        except StoreError:
            if self.lost_is_failure:
                self._delete(end.files)

    def _delete(self, files: Sequence[ArtifactFile]) -> None:
        for file in files:
            self.runtime.blobs.delete(*blobs.split_blob(file.blob))

    def _fate(self, key: str) -> tuple[Category | None, float]:
        random = self.world.random
        length = random.uniform(self.script.quick, self.script.slow)
        if key in self.script.never:
            return Category.SOURCE_NOT_PUBLISHED, 0.2
        if key in self.script.crashes:
            return Category.USER_CODE_FAILED, length
        if self.world.calm:
            return None, length
        if random.random() < self.script.hangs:
            self.world.faults["hang"] += 1
            return None, 1e6
        if random.random() < self.script.fails:
            return random.choice(SOON_OVER), length
        return None, length

    def _said(self, key: str, category: Category | None) -> str:
        if category is Category.DISK_SHARED:
            return TOLD
        if category is Category.USER_CODE_FAILED:
            return self.script.crashes.get(key, "mended since")
        return "simulated"

    def _slowness(self) -> float:
        """How many times slower this machine is now."""
        start, end, factor = self.script.machines.get(self.name, (0.0, 0.0, 1.0))
        if self.world.calm or not start <= self.world.now < end:
            return 1.0
        self.world.faults["slow machine"] += 1
        return factor

    def _missing(self, claimed: protocol.Claimed) -> int:
        healing = 0
        for i, files in claimed.input_files.items():
            for file in files:
                try:
                    self.runtime.blobs.get_bytes(*blobs.split_blob(file.blob))
                except BlobMissingError:
                    healing |= 1 << i
        return healing

    def _store(self, claimed: protocol.Claimed) -> ArtifactFile:
        data = content(claimed.task.key)
        name = blobs.artifact_name(claimed.task.key, claimed.claim, "cell.tif")
        stored = self.runtime.blobs.put_bytes(blobs.ARTIFACTS, name, data)
        return ArtifactFile(
            name="cell.tif",
            blob=f"{blobs.ARTIFACTS}/{name}",
            size=stored.size,
            sha256=stored.sha256,
        )


@dataclass
class Client:
    """Submits, orders and submits again, as people do."""

    world: World
    runtime: Runtime
    submitted: dict[str, str] = field(default_factory=dict)  # title by id
    cancelled: set[str] = field(default_factory=set)
    retried: set[str] = field(default_factory=set)
    finished: bool = False

    def submit(self, owner: str, request: Request, request_id: str) -> None:
        """Submit until it is known to be stored."""
        self.submitted[request_id] = request.title
        self._insist(
            lambda: request_operations.submit(self.runtime, owner, request, request_id=request_id)
        )

    def order(self, request_id: str, order: RequestOrder) -> None:
        """Give an order until it is known to be stored."""
        if order is RequestOrder.CANCEL:
            self.cancelled.add(request_id)
        self._insist(lambda: request_operations.order(self.runtime, request_id, order))

    def retry(self, request_id: str, scope: retrying.Scope = ALL) -> None:
        """Ask for another try of what failed, until it is known to be stored."""
        rows: list[request_table.RequestRow] = []

        def ask() -> None:
            try:
                rows[:] = [retrying.retry(self.runtime, request_id, scope)]
            except (retrying.NothingToRetryError, request_operations.NoSuchRequestError):
                return

        self._insist(ask)
        for row in rows:
            self.retried.add(request_id)
            self.submitted.setdefault(row.id, self.submitted[request_id])

    def describe(self, request_id: str, labels: tuple[str, ...], group: str) -> None:
        """Put a request under labels and share it with a group, until that is known to be stored.

        One that is not submitted yet is left.
        """

        def change(row: request_table.RequestRow) -> request_table.RequestRow:
            return replace(row, labels=labels, group=group)

        def ask() -> None:
            with suppress(request_operations.NoSuchRequestError):
                request_operations.change_request(self.runtime, request_id, change)

        self._insist(ask)

    def _insist(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except StoreError:
                self.runtime.clock.sleep(2.0)
            else:
                return


__all__ = ["Beside", "Client", "DiedError", "Script", "SimWorker", "content", "manager"]
