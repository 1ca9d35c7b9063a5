"""The invariants, checked on each write as it takes effect."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from service_manager.mail import notify
from tasks.bag import task_table, workers
from tasks.bag.categories import Category
from tasks.bag.model import Attempt, Phase, RequestState, State, Task, TaskOutcome
from tasks.bag.task_rows import Interest
from tasks.bag.task_table import RowKind, kind_of
from tasks.request.document import parse_request
from tasks.requests import outbox, request_table
from tasks.requests.request_table import RequestRow
from tasks.requests.retrying import Scope
from tasks.storage.blobs import MemoryBlobs, split_blob
from tasks.storage.store import Operation, Row, Store
from tests.simulation.world import ViolationError, World

_LEGAL = {
    (State.WAITING, State.READY),
    (State.WAITING, State.FAILED),
    (State.WAITING, State.CANCELLED),
    (State.READY, State.RUNNING),
    (State.READY, State.CANCELLED),
    (State.READY, State.FAILED),  # a run that is stopped
    (State.RUNNING, State.DONE),
    (State.RUNNING, State.READY),
    (State.RUNNING, State.WAITING),
    (State.RUNNING, State.FAILED),
    (State.RUNNING, State.CANCELLED),
    (State.DONE, State.READY),  # its blobs were lost
    (State.DONE, State.WAITING),
    (State.DONE, State.EXPIRED),
    (State.EXPIRED, State.READY),
    (State.EXPIRED, State.WAITING),
    (State.FAILED, State.READY),
    (State.FAILED, State.WAITING),
    (State.CANCELLED, State.READY),
    (State.CANCELLED, State.WAITING),
}


_LEGAL_OF_REQUESTS = {  # of requests; each may also end, and stay as it is
    (RequestState.SUBMITTED, RequestState.PLANNING),
    (RequestState.PLANNING, RequestState.HELD),
    (RequestState.PLANNING, RequestState.WRITING),
    (RequestState.HELD, RequestState.WRITING),
    (RequestState.WRITING, RequestState.RUNNING),
    (RequestState.WRITING, RequestState.CANCELLING),
    (RequestState.RUNNING, RequestState.CANCELLING),
}


_UNCHARGED = (Category.WORKER_LOST, Category.HOST_FAILED, Category.DISK_SHARED)
"""What is never a task's own fault."""
_STEADY = 100.0  # seconds of beats without a gap, more than a slow manager takes to give up


@dataclass
class Watch:
    """Sees every write that takes effect."""

    world: World
    store: Store
    blobs: MemoryBlobs
    shortest: float  # seconds that an attempt has, before it may be killed for its time
    lease: float
    losses: int  # of one task's attempts, after which it is tried no more
    tasks: dict[str, Task] = field(default_factory=dict)
    requests: dict[str, RequestRow] = field(default_factory=dict)  # that have not ended
    ended: dict[str, RequestRow] = field(default_factory=dict)
    finished: dict[str, set[str]] = field(default_factory=dict)
    """By request, the results that were there when it was ordered to be cancelled."""
    was_done: set[str] = field(default_factory=set)
    made: list[str] = field(default_factory=list)  # keys, in the order in which they were DONE
    lost_blobs: set[str] = field(default_factory=set)  # by the simulation
    asked_blobs: set[str] = field(default_factory=set)  # of them, those that somebody asked for
    lost_tasks: set[str] = field(default_factory=set)  # those whose blobs they were
    failed: set[tuple[str, str]] = field(default_factory=set)  # request, task it wanted then
    interests: dict[str, dict[str, Interest]] = field(default_factory=lambda: defaultdict(dict))
    """By request and key of the task."""
    asked: dict[str, set[str]] = field(default_factory=dict)
    """By request, all tasks that it ever had an interest in."""
    stood_in: set[str] = field(default_factory=set)  # tasks that were fallback tasks of others
    crashed: set[str] = field(default_factory=set)  # requests whose first runs all failed alike
    retries: set[str] = field(default_factory=set)  # requests that are another try of an ended one
    ordered: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """By request and order to try again, what it reaches had failed then: keys, and generations."""
    failing: Callable[[str], None] = lambda _request: None
    """Is told of each request of which a task has failed."""
    released: dict[str, dict[str, Interest]] = field(
        default_factory=dict
    )  # after the request's end
    commits: dict[tuple[str, int], str] = field(default_factory=dict)  # claim by generation
    begun: dict[str, float] = field(default_factory=dict)  # when, by claim
    orders: dict[str, tuple[str, ...]] = field(default_factory=dict)  # claims to kill, by worker
    rows: dict[str, workers.WorkerRow] = field(default_factory=dict)  # by worker
    beats: dict[str, float] = field(default_factory=dict)  # when the latest took effect
    steady: dict[str, float] = field(default_factory=dict)  # since when none came late
    unplaced: set[str] = field(default_factory=set)  # claims for which there was no place
    ran: dict[str, float] = field(default_factory=dict)  # when a task ran last, by key
    uncounted: set[str] = field(default_factory=set)  # claims by messages of an earlier attempt
    one_host: bool = False  # all workers are on it: none of them is drained for slowness
    settled: float = math.inf  # when the manager must know again what each worker does

    def __call__(self, table: str, partition: str, operations: Sequence[Operation]) -> None:
        for operation in operations:
            kind = kind_of(operation.row) if table == task_table.TABLE else None
            if kind is RowKind.TASK:
                row = self.store.get(table, partition, operation.row)
                if row is not None:
                    self._task(task_table.TASK.load(row))
            elif kind is RowKind.INTEREST:
                self._interest(operation.row, self.store.get(table, partition, operation.row))
            elif table == workers.TABLE:
                row = self.store.get(table, partition, operation.row)
                beating = workers.WORKER.load(row) if row is not None else None
                self._orders(operation.row, beating)
                self._beat(operation.row, beating)
            elif table == request_table.TABLE and operation.row.startswith("q|"):
                row = self.store.get(table, partition, operation.row)
                if row is not None:
                    self._request(request_table.REQUEST.load(row))

    def fail(self, text: str) -> None:
        """An invariant does not hold."""
        self.world.note(f"VIOLATION {text}")
        raise ViolationError(text)

    def ends(self, attempts: Sequence[Attempt], ours: Sequence[bool]) -> None:
        """A worker was told which of some ends took effect, and which tasks others have."""
        for attempt, own in zip(attempts, ours, strict=True):
            task = self.tasks[attempt.key]
            if not own and task.state is State.RUNNING and task.claim == attempt.claim:
                self.fail(f"{_name(task)} runs, and its worker thinks that it lost it")

    def begins(self, worker: str, claim: str) -> None:
        """A worker begins an attempt: not without a beat within its lease."""
        self.begun[claim] = self.world.now
        if self.world.now - self.beats.get(worker, -math.inf) > self.lease:
            self.fail(f"{worker} begins an attempt without a lease")

    def claims(self, keys: Collection[str]) -> set[str]:
        """The claims that some tasks are under."""
        return {self.tasks[key].claim for key in keys if key in self.tasks}

    def claims_nothing(self, worker: str, keys: Collection[str], earlier: set[str]) -> None:
        """A worker takes its claims for failed, and each of its writes was answered."""
        for task in filter(None, map(self.tasks.get, keys)):
            if task.state is State.RUNNING and task.worker == worker and task.claim not in earlier:
                self.fail(f"{_name(task)} is claimed by {worker}, which does not know it")

    def finds_place(self, task: Task, sent: float) -> None:
        """A worker begins a task that needs a place; the message was sent at that time.

        What is sent again may be delivered twice. The second message may come when the task is
        ready again: the manager does not count a place for it any more.
        """
        if self._stale(task, sent):
            self.uncounted.add(task.claim)

    def _stale(self, task: Task, sent: float) -> bool:
        """Tell whether a message is older than the end of its task's latest attempt."""
        return sent < self.ran.get(task.key, -math.inf)

    def finds_no_place(self, task: Task, sent: float, holders: Collection[str]) -> None:
        """A worker finds no place for a task that it was sent: once the faults are over, never.

        A message from the time of the faults may lie for longer than they are over: its sender
        is gone, and each slot was busy. One that comes again after its task was given back is
        for an attempt that the manager counts no more. `holders` are the claims that have the
        places.
        """
        self.world.faults["no place"] += 1
        self.unplaced.add(task.claim)
        counted = sent > self.settled and not self._stale(task, sent)
        if counted and self.uncounted.isdisjoint(holders):
            self.fail(f"{_name(task)} waits in a slot for a place at its archive's host")

    def _beat(self, worker: str, new: workers.WorkerRow | None) -> None:
        """Note when a worker's beat takes effect."""
        if new is None:
            self.rows.pop(worker, None)
            return
        self._drained(new)
        now, old = self.world.now, self.rows.get(worker)
        if old is None or (old.started, old.sequence) != (new.started, new.sequence):
            late = (
                old is None or old.started != new.started or now - self.beats[worker] > self.lease
            )
            if late:
                self.steady[worker] = now
            self.beats[worker] = now
        self.rows[worker] = new

    def _drained(self, row: workers.WorkerRow) -> None:
        """Workers that share their host share its load: none is slower than the others."""
        held = row.hold is not workers.Hold.NONE and row.asked is workers.Ask.NONE
        if self.one_host and held and row.hold_why.startswith("Its "):
            self.fail(f"{row.name} is drained, and all workers are on its host")

    def _lost(self, task: Task) -> None:
        """A manager that has not stalled gives up no attempt of a worker that beats steadily and
        lists it."""
        row, writer = self.rows.get(task.worker), self.world.writer
        if row is None or writer is None or not writer.name.startswith("manager"):
            return
        if self.world.now - max(writer.stalled_until, self.steady[row.name]) < _STEADY:
            return
        if self.world.now - self.beats[row.name] > self.lease:
            return
        if task.claim in {*row.waiting, *(attempt.claim for attempt in row.attempts)}:
            self.fail(f"{_name(task)} is given up, and {row.name} runs it and beats")

    def _orders(self, worker: str, row: workers.WorkerRow | None) -> None:
        """An attempt is killed for its time only after it has had some."""
        orders = row.orders if row is not None else ()
        before = {*self.orders.get(worker, ())}
        if row is not None:
            listed = {*row.waiting, *(attempt.claim for attempt in row.attempts)}
            if forgotten := (before & listed) - {*orders}:
                self.fail(f"{worker} has {sorted(forgotten)} still, and is not told to end it")
        new = {*orders} - before
        self.orders[worker] = orders
        for task in self.tasks.values() if new else ():
            if task.claim in new and task.state is State.RUNNING:
                began = self.begun.get(task.claim)
                if began is None or self.world.now - began < self.shortest:
                    self.fail(f"{_name(task)} is to be killed, and began at {began}")

    def _interest(self, name: str, row: Row | None) -> None:
        if row is not None:
            interest = task_table.INTEREST.load(row)
            self.interests[interest.request][interest.key] = interest
            self.asked.setdefault(interest.request, set()).add(interest.key)
            self.stood_in |= {interest.fallback, *interest.fallbacks}
            if interest.outcome is TaskOutcome.FAILED:
                self.failing(interest.request)
            if interest.phase is Phase.REDUCTION:
                self._runs(interest.request)
            return
        _, request, key = name.split("|")
        gone = self.interests[request].pop(key, None)
        self._let_go(request, key)
        if gone is not None and gone.request in self.ended:
            self.released.setdefault(gone.request, {})[gone.key] = gone

    def _let_go(self, request: str, key: str) -> None:
        """A request that goes on keeps its interests, but in what stood in for another task."""
        row = self.requests.get(request)
        if row is None or row.state is not RequestState.RUNNING or key in self.stood_in:
            return
        if _policy(row.document) != "fail":  # else it may have failed, and is being withdrawn
            self.fail(f"request {request} goes on, and its interest in {key[-8:]} is taken away")

    def _runs(self, request: str) -> None:
        """Note whether all runs of a request's reduction have failed alike, three at least."""
        told = [
            interest
            for interest in self.interests[request].values()
            if interest.phase is Phase.REDUCTION and interest.outcome
        ]
        failed = [interest for interest in told if interest.outcome is TaskOutcome.FAILED]
        words = {
            (interest.category, interest.message) for interest in failed if not interest.stopped
        }
        if (
            len(failed) >= 3
            and len(words) == 1
            and all(w.outcome is not TaskOutcome.DONE for w in told)
        ):
            self.crashed.add(request)

    def _stopped(self, task: Task) -> None:
        """A run is stopped only for those who know how such runs fail, and not for who asked for
        it to be tried again."""
        for request in task.interests:
            if (
                request not in self.requests  # it has ended
                or self.requests[request].state is RequestState.CANCELLING
                or self.fails(request)
                or task.key not in self.interests[request]
            ):
                continue
            if request not in self.crashed:
                self.fail(f"{_name(task)} is stopped, and {request} expects it to end well")
            if task.generation > 1 and request in self.retries:
                self.fail(f"{_name(task)} is stopped, and {request} is to try it again")

    def fails(self, request: str) -> bool:
        """Whether a request fails at its first failure, and has one: it is being withdrawn."""
        return _policy(self.requests[request].document) == "fail" and any(
            interest.outcome is TaskOutcome.FAILED for interest in self.interests[request].values()
        )

    def _task(self, new: Task) -> None:
        old = self.tasks.get(new.key)
        self.tasks[new.key] = new
        if new.state is State.DONE and (old is None or old.state is not State.DONE):
            self._done(new)
        if new.state is State.FAILED:
            self.failed |= {(request, new.key) for request in new.interests}
        if old is None:
            if new.state not in (State.WAITING, State.READY):
                self.fail(f"{_name(new)} begins as {new.state}")
            return
        if old.state is State.RUNNING and new.state is not State.RUNNING:
            self.ran[new.key] = self.world.now
        self._change(old, new)
        if old.state is State.DONE:
            self._kept(old, new)
        if new.state is State.READY and new.missing:
            self.fail(f"{_name(new)} is ready with inputs missing")
        if new.state.live and not new.interests:
            self.fail(f"{_name(new)} is {new.state} and no request has an interest in it")

    def _change(self, old: Task, new: Task) -> None:
        if old.state is not new.state and (old.state, new.state) not in _LEGAL:
            self.fail(f"{_name(new)} goes from {old.state} to {new.state}")
        if old.state is State.READY and new.state is State.FAILED:
            self.world.faults["run stopped"] += 1
            self._stopped(new)
        lost = old.state is State.RUNNING and new.category is Category.WORKER_LOST
        free = old.state is State.RUNNING and new.category in _UNCHARGED
        if free and new.retries > old.retries and new.losses < self.losses:
            self.fail(f"{_name(new)} is charged with {new.category}: it is not its fault")
        if lost and new.losses > old.losses:
            self._lost(old)
            self._charged(old, new)
        if new.retries > old.retries and new.category is not Category.SOURCE_BLOB_MISSING:
            self._charged(old, new)
        if new.attempt < old.attempt or new.generation < old.generation:
            self.fail(f"{_name(new)}: attempt or generation goes back")
        if new.state is State.RUNNING and old.state is State.READY:
            if new.attempt != old.attempt + 1 or new.claim == old.claim:
                self.fail(f"{_name(new)}: attempt {old.attempt} is followed by {new.attempt}")
        elif new.attempt != old.attempt:
            self.fail(f"{_name(new)}: its attempt changes without a claim")
        if old.state is State.RUNNING is new.state and old.claim != new.claim:
            self.fail(f"{_name(new)}: claim {old.claim} is replaced while it runs")
        if free and new.state is State.READY and new.losses >= self.losses:
            self.fail(f"{_name(new)} was lost {new.losses} times and is tried again")

    def _kept(self, old: Task, new: Task) -> None:
        """An artifact is given up when a blob of it is lost, or when nobody wants it any more."""
        if new.state is State.DONE and old.files != new.files:
            self.fail(f"{_name(new)}: its artifact is replaced")
        wanted = self.requests.keys() & {*old.interests}
        lost = not self.lost_blobs.isdisjoint(file.blob for file in old.files)
        if new.state is State.EXPIRED and wanted and not lost:
            self.fail(f"{_name(new)}: its artifact is thrown away, and {sorted(wanted)} want it")

    def _charged(self, old: Task, new: Task) -> None:
        """Only what was in hand costs a retry, or counts as lost: what waits in a batch never, and
        what found no place at its host never."""
        if new.retries > old.retries and old.claim in self.unplaced:
            self.fail(f"{_name(new)} is charged with {new.category}, and found no place")
        if old.place and old.claim not in self.begun:
            self.fail(f"{_name(new)} is charged with {new.category}, and was not begun")

    def _done(self, task: Task) -> None:
        known = self.commits.setdefault((task.key, task.generation), task.claim)
        if known != task.claim:
            self.fail(f"{_name(task)} is committed by {task.claim} and by {known}")
        self.was_done.add(task.key)
        self.made.append(task.key)
        if not task.files:
            self.fail(f"{_name(task)} is done without an artifact")
        for file in task.files:
            if task.claim not in file.blob:
                self.fail(f"{_name(task)} under claim {task.claim} is given {file.blob}")
            if file.blob in self.lost_blobs:
                continue
            if not self.blobs.exists(*split_blob(file.blob)):
                self.fail(f"{_name(task)} is done and its blob {file.blob} does not exist")

    def _request(self, row: RequestRow) -> None:
        if row.state is RequestState.CANCELLING and row.id not in self.finished:
            self.finished[row.id] = self._results(row.id)
        old = self.ended.get(row.id)
        if old is not None and (old.state, old.ended, old.message) != (
            row.state,
            row.ended,
            row.message,
        ):
            self.fail(f"request {row.id} ended {old.state} and then {row.state}")
        self._prepared(self.requests.get(row.id), row)
        self._obeyed(self.requests.get(row.id), row)
        if row.retry_of:
            self.retries.add(row.id)
        if row.continued_as and row.continued_as not in {*self.requests, *self.ended}:
            self.fail(f"request {row.id} names {row.continued_as}, which does not exist")
        if row.state.ended:
            self.requests.pop(row.id, None)
            self.ended[row.id] = row
        else:
            self.requests[row.id] = row

    def _prepared(self, old: RequestRow | None, new: RequestRow) -> None:
        """A request goes from state to state as it should, and says only in two how far it is."""
        if old is None:
            if new.id not in self.ended and new.state is not RequestState.SUBMITTED:
                self.fail(f"request {new.id} begins as {new.state}")
        elif (
            old.state is not new.state
            and not new.state.ended
            and (old.state, new.state) not in _LEGAL_OF_REQUESTS
        ):
            self.fail(f"request {new.id} goes from {old.state} to {new.state}")
        units = {RequestState.PLANNING: "days", RequestState.WRITING: "tasks"}
        at = new.preparation
        if (at.unit if at is not None else None) != units.get(new.state):
            self.fail(f"request {new.id} is {new.state} and prepared {at}")
        if at is not None and not 0 <= at.done <= at.total:
            self.fail(f"request {new.id} has prepared {at.text}")

    def _obeyed(self, old: RequestRow | None, new: RequestRow) -> None:
        """An order to try again is struck out once all that had failed by then has begun again."""
        if old is None or old.state is not RequestState.RUNNING:
            return
        failed = [
            interest
            for interest in self.interests[new.id].values()
            if interest.outcome is TaskOutcome.FAILED
        ]
        for order in {*new.retry_orders} - {*old.retry_orders}:
            reached = filter(Scope.parse(order).covers, failed)
            self.ordered[new.id, order] = {
                interest.key: self.tasks[interest.key].generation for interest in reached
            }
        goes_on = (RequestState.RUNNING, RequestState.COMPLETE, RequestState.GAPS)
        for order in {*old.retry_orders} - {*new.retry_orders}:
            ordered = self.ordered.pop((new.id, order), {})
            if _policy(old.document) == "fail" or new.state not in goes_on:
                continue
            for key in {interest.key for interest in failed} & ordered.keys():
                if self.tasks[key].generation == ordered[key]:
                    self.fail(f"request {new.id} did not try {key[-8:]} again: {order}")

    def _results(self, request: str) -> set[str]:
        """The results of a request that are made, whether its interests say so yet or not.

        A result that it was told had failed, and that another request had made since, is not its.
        """
        interests = self.interests[request].values()
        fallbacks = {key for interest in interests for key in interest.fallbacks}
        return {
            interest.key
            for interest in interests
            if interest.output
            and interest.key not in fallbacks
            and (
                interest.outcome is TaskOutcome.DONE
                or (not interest.outcome and self.tasks[interest.key].state is State.DONE)
            )
        }

    def mails(self, request: str) -> int:
        """How many mails a request has, without those that ask for its confirmation."""
        return sum(mail.kind != notify.ASK for mail in outbox.mails(self.store, request))


@lru_cache(maxsize=256)
def _policy(document: str) -> str:
    """What a request does when anything is missing."""
    return parse_request(json.loads(document)).on_missing


def _name(task: Task) -> str:
    return f"task {task.key[:8]}..{task.key[-8:]} attempt {task.attempt}"
