"""Withdraw a request's interests.

This happens when the request is cancelled, when it fails because something is missing, or when it
has ended and no longer needs its intermediates. Running tasks, and tasks that a worker may take at
any moment, come first; a task in which nobody else has an interest is CANCELLED. What was recorded
for a cancelled or failed request stays, and what was made meanwhile is recorded as well.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from logging import DEBUG, WARNING

import structlog

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import Live, ManagerCache
from service_manager.plans import write_fence
from tasks.bag import transitions, workers
from tasks.bag.model import State, Task, TaskOutcome
from tasks.bag.protocol import change_task
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS, shard
from tasks.bag.task_rows import Interest
from tasks.bag.transitions import Change
from tasks.errors import ConflictError, StoreError
from tasks.requests import request_operations
from tasks.requests.request_table import RequestTable
from tasks.storage.limits import grouped
from tasks.storage.store import Insert, Operation, Replace

log = structlog.get_logger("manager.dropping")

_READ = 200  # tasks read at once
_SLICE = 0.1  # seconds of one round, for ended requests


def nothing(_interest: Interest) -> bool:
    """Keep no interest."""
    return False


def what_ended(interest: Interest) -> bool:
    """Keep results and failures that were recorded for the request; the rest is withdrawn."""
    return bool(interest.outcome)


def what_is_shown(interest: Interest) -> bool:
    """Keep what the pages of an ended request show: results, and what could not be made."""
    made = interest.outcome is TaskOutcome.DONE and bool(interest.output)
    return made or interest.outcome in (TaskOutcome.FAILED, TaskOutcome.GAP)


@dataclass(frozen=True, kw_only=True)
class _Step:
    interest: Interest
    task: Task  # as read
    change: Change


class Dropping:
    """Withdraws a request's interests, except those that `keep` names.

    An interest in a DONE task that `keep` would name once the end is recorded gets its outcome
    recorded instead. A kept interest no longer keeps a task alive that another request has started
    over.
    """

    def __init__(
        self,
        runtime: Runtime,
        cache: ManagerCache,
        dispatch: FleetDispatch,
        request: str,
        keep: Callable[[Interest], bool] = nothing,
    ) -> None:
        self._runtime = runtime
        self._tasks = runtime.tasks
        self._cache = cache
        self._dispatch = dispatch
        self._request = request
        self._keep = keep
        self._ended: set[str] = set()

    def batches(self) -> Generator[None]:
        """Withdraw, a batch for each item taken. Raises StoreError; may be repeated."""
        write_fence.close(self._tasks, self._runtime.clock, self._request)
        live = self._cache.requests.get(self._request)
        if live is not None:
            yield from self._urgent(live)
        for number in SHARDS:
            yield from self._many(number, list(self._tasks.interests(self._request, number)))

    def _urgent(self, live: Live) -> Iterator[None]:
        """Withdraw running tasks first, to free their slots, then tasks sent to workers."""
        keys = [key for key in self._cache.running if key in live.ledger]
        members: dict[str, list[str]] = {}
        for key in sorted({*keys, *self._dispatch.sent(live.id)}):
            members.setdefault(shard(key), []).append(key)
        for number, some in members.items():
            found = (self._tasks.interest(self._request, key) for key in some)
            yield from self._many(number, [interest for interest in found if interest is not None])

    def _many(self, number: str, interests: Sequence[Interest]) -> Iterator[None]:
        """Withdraw interests of one shard, in order of key, in as few transactions as possible."""
        for at in range(0, len(interests), _READ):
            part = interests[at : at + _READ]
            tasks = self._tasks.tasks(number, [interest.key for interest in part])
            steps = [
                _Step(interest=interest, task=task, change=self._decide(task, interest))
                for interest in part
                if (task := tasks.get(interest.key)) is not None
            ]
            for batch in grouped(number, steps, lambda step: step.change.operations):
                self._write(number, batch)
                yield

    def _write(self, number: str, batch: Sequence[_Step]) -> None:
        operations: list[Operation] = [op for step in batch for op in step.change.operations]
        if not operations:
            return
        try:
            self._tasks.transact(number, operations)
        except StoreError as error:
            level = DEBUG if isinstance(error, ConflictError) else WARNING
            log.log(level, "one by one", request=self._request, error=str(error))
            for step in batch:
                self.one(step.interest.key, interest=step.interest)
        else:
            for step in batch:
                self._after(step.task, step.change.task)

    def one(
        self, key: str, guard: Insert | Replace | None = None, interest: Interest | None = None
    ) -> None:
        """Withdraw the interest in one task; may be repeated.

        Raises StoreError. Raises FenceChangedError when there is a guard of the request's write
        fence and it does not hold.
        """
        before: list[Task] = []

        def decide(task: Task) -> Change:
            # The first reading counts: a later one may show this call's own success.
            before[:] = before or [task]
            change = self._decide(task, interest)
            if guard is None or not change.operations:
                return change
            return write_fence.guarded(self._tasks, shard(key), guard, change)

        after = change_task(self._runtime, key, decide)
        if after is not None:
            self._after(before[0], after)

    def _decide(self, task: Task, interest: Interest | None) -> Change:
        past = partial(self._is_past, key=task.key)
        if interest is not None:
            untold = not interest.outcome and self._request in task.interests
            made = replace(interest, outcome=TaskOutcome.DONE)
            if untold and task.state is State.DONE and self._keep(made):
                return transitions.deliver(task, self._request)
            if self._keep(interest):
                return transitions.abandon(task, past)
        return transitions.drop(task, self._request, past)

    def _is_past(self, request: str, key: str) -> bool:
        """Tell whether a request got its end of a task, and needs no other.

        It has ended, or it is being withdrawn and keeps the outcome that was recorded for it.
        """
        live = self._cache.requests.get(request)
        if live is not None:
            entry = live.ledger.get(key)
            return live.leaving and entry is not None and bool(entry.outcome)
        if request not in self._ended:
            try:
                row = request_operations.load(self._runtime, request)
            except request_operations.NoSuchRequestError:
                self._ended.add(request)
            else:
                if row.state.ended:
                    self._ended.add(request)
        return request in self._ended

    def _after(self, before: Task, after: Task) -> None:
        key = after.key
        live = self._cache.requests.get(self._request)
        if live is not None and self._request in after.interests:
            live.record(key, TaskOutcome.DONE)
        elif live is not None:
            live.forget(key)
        if after.state is State.CANCELLED:
            self._dispatch.remove(key)
            running = self._cache.running.pop(key, None)
            claimed = before if before.state is State.RUNNING else running
            if claimed is not None:
                worker, claim = claimed.worker, claimed.claim
                workers.order_kill(self._runtime.store, self._runtime.clock, worker, claim)
        elif after.state is State.READY and not after.not_before:
            self._dispatch.add(
                key, after.sponsor, after.task_class, alone=after.alone, rank=after.rank
            )
        found = self._cache.running.get(key)
        if found is not None:
            found.sponsor = after.sponsor


class Release:
    """Takes back what ended requests need no more, a slice in each round.

    `settled` is told of each request of which all that is taken back.
    """

    def __init__(
        self,
        runtime: Runtime,
        cache: ManagerCache,
        dispatch: FleetDispatch,
        period: float,
        settled: Callable[[str], None] = lambda _request: None,
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._dispatch = dispatch
        self._period = period  # seconds between two looks for such requests
        self._settled = settled
        self._due = 0.0
        self._todo: list[str] = []
        self._work: Iterator[None] = iter(())
        self._request = ""

    def step(self) -> None:
        """Go on for a while. Raises StoreError; the request's turn comes again then."""
        clock = self._runtime.clock
        if not self._request and not self._todo and clock.monotonic() >= self._due:
            self._due = clock.monotonic() + self._period
            self._todo = RequestTable(self._runtime.store).unsettled()
        until = clock.monotonic() + _SLICE
        while self._request or self._todo:
            self._advance()
            if clock.monotonic() >= until:
                break

    def _advance(self) -> None:
        if not self._request:
            self._request = self._todo.pop()
            self._work = Dropping(
                self._runtime, self._cache, self._dispatch, self._request, what_is_shown
            ).batches()
        request, self._request = self._request, ""
        try:
            next(self._work)
        except StopIteration:
            self._settled(request)
            RequestTable(self._runtime.store).settled(self._runtime.clock, request)
        else:
            self._request = request
