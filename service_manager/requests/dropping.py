"""Taking back what a request wants: when it is cancelled, fails because something is missing, or
has ended and needs its intermediates no more.

Running attempts first, so that slots become free; a task nobody else wants is CANCELLED.
"""

from collections.abc import Callable, Iterator, Sequence

import structlog

from service_manager.plans import gate
from service_manager.tasks.dispatch import Dispatch
from service_manager.tasks.view import View
from tasks.errors import ConflictError, StoreError
from tasks.model.keys import SHARDS, shard
from tasks.model.model import State, Task
from tasks.storage.store import BATCH_OPERATIONS, Insert, Operation, Replace
from tasks.tables import requests, rows, transitions, workers
from tasks.tables.protocol import change_task, read_task
from tasks.tables.rows import Want
from tasks.tables.services import Services
from tasks.tables.transitions import Change

log = structlog.get_logger("manager.dropping")

_TOGETHER = 20  # tasks in one transaction
_SLICE = 0.1  # seconds of one round, for ended requests


def nothing(_want: Want) -> bool:
    """Keeps no want: the request is cancelled."""
    return False


def what_ended(want: Want) -> bool:
    """Keeps what a request was told of, results and failures: it fails for want of the rest."""
    return bool(want.outcome)


def what_is_shown(want: Want) -> bool:
    """Keeps what the pages of an ended request show: results, and what could not be made."""
    return want.outcome in ("failed", "gap") or (want.outcome == "done" and bool(want.output))


class Dropping:
    """Drops a request's wants, except those that `keep` says."""

    def __init__(
        self,
        services: Services,
        view: View,
        dispatch: Dispatch,
        request: str,
        keep: Callable[[Want], bool] = nothing,
    ) -> None:
        self._services = services
        self._view = view
        self._dispatch = dispatch
        self._request = request
        self._keep = keep
        self._ended: set[str] = set()

    def batches(self) -> Iterator[None]:
        """Drop, a batch for each item taken. Raises StoreError; may be repeated from the start."""
        gate.close(self._services.store, self._services.clock, self._request)
        live = self._view.requests.get(self._request)
        for key in [key for key in self._view.running if live is not None and key in live.ledger]:
            row = self._services.store.get(
                rows.TABLE, shard(key), rows.want_row(self._request, key)
            )
            if row is not None and not self._keep(rows.load_want(row)):
                self.one(key)
            yield
        for number in SHARDS:
            start, end = rows.prefix_range(f"w|{self._request}|")
            found = [
                row.row.split("|")[2]
                for row in self._services.store.scan(rows.TABLE, number, start, end)
                if not self._keep(rows.load_want(row))
            ]
            for at in range(0, len(found), _TOGETHER):
                self._many(number, found[at : at + _TOGETHER])
                yield

    def _many(self, number: str, keys: Sequence[str]) -> None:
        tasks = [read_task(self._services.store, key) for key in keys]
        changes = [(task, self._decide(task)) for task in tasks if task is not None]
        operations: list[Operation] = [op for _, change in changes for op in change.operations]
        if not operations:
            return
        if len(operations) <= BATCH_OPERATIONS:
            try:
                self._services.store.transact(rows.TABLE, number, operations)
            except ConflictError as error:
                log.debug("one by one", request=self._request, error=str(error))
            except StoreError as error:
                log.warning("one by one", request=self._request, error=str(error))
            else:
                for task, change in changes:
                    self._after(task, change.task)
                return
        for key in keys:
            self.one(key)

    def one(self, key: str, guard: Insert | Replace | None = None) -> None:
        """Take back the want of one task. Raises StoreError, and TurnedError when there is a guard
        of the request's gate and it does not hold; may be repeated."""
        before: list[Task] = []

        def decide(task: Task) -> Change:
            # The first reading counts: a later one may show this call's own success.
            before[:] = before or [task]
            change = self._decide(task)
            if guard is None or not change.operations:
                return change
            return gate.guarded(self._services.store, shard(key), guard, change)

        after = change_task(self._services, key, decide)
        if after is not None:
            self._after(before[0], after)

    def _decide(self, task: Task) -> Change:
        return transitions.drop(task, self._request, self._has_ended)

    def _has_ended(self, request: str) -> bool:
        if request in self._view.requests:
            return False
        if request not in self._ended:
            try:
                row = requests.load(self._services, request)
            except requests.NoSuchRequestError:
                self._ended.add(request)
            else:
                if row.state.ended:
                    self._ended.add(request)
        return request in self._ended

    def _after(self, before: Task, after: Task) -> None:
        key = after.key
        if after.state is State.CANCELLED:
            self._dispatch.remove(key)
            running = self._view.running.pop(key, None)
            if before.state is State.RUNNING or running is not None:
                worker = running.worker if running else before.worker
                claim = running.claim if running else before.claim
                workers.order_kill(self._services.store, self._services.clock, worker, claim)
        elif after.state is State.READY and not after.not_before:
            self._dispatch.add(key, after.sponsor)
        found = self._view.running.get(key)
        if found is not None:
            found.sponsor = after.sponsor


class Release:
    """Takes back what ended requests need no more, a slice in each round."""

    def __init__(self, services: Services, view: View, dispatch: Dispatch, period: float) -> None:
        self._services = services
        self._view = view
        self._dispatch = dispatch
        self._period = period  # seconds between two looks for such requests
        self._due = 0.0
        self._todo: list[str] = []
        self._work: Iterator[None] = iter(())
        self._request = ""

    def step(self) -> bool:
        """Go on for a while. Raises StoreError; the request's turn comes again then."""
        clock = self._services.clock
        if not self._request and not self._todo and clock.monotonic() >= self._due:
            self._due = clock.monotonic() + self._period
            self._todo = requests.ended_requests(self._services.store)
        until = clock.monotonic() + _SLICE
        while self._request or self._todo:
            self._advance()
            if clock.monotonic() >= until:
                break
        return False

    def _advance(self) -> None:
        if not self._request:
            self._request = self._todo.pop()
            self._work = Dropping(
                self._services, self._view, self._dispatch, self._request, what_is_shown
            ).batches()
        request, self._request = self._request, ""
        try:
            next(self._work)
        except StopIteration:
            requests.settled(self._services, request)
        else:
            self._request = request
