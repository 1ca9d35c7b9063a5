"""Taking back what a request wants: when it is cancelled, or fails because something is missing.

Running attempts first, so that slots become free; a task nobody else wants is CANCELLED.
"""

from collections.abc import Iterator, Sequence

import structlog

from service_manager import gate
from service_manager.dispatch import Dispatch
from service_manager.view import Live, View
from tasks import rows, transitions, workers
from tasks.errors import ConflictError, StoreError
from tasks.keys import SHARDS
from tasks.model import State, Task
from tasks.protocol import change_task, read_task
from tasks.services import Services
from tasks.store import BATCH_OPERATIONS, Operation
from tasks.transitions import Change

log = structlog.get_logger("manager.dropping")

_TOGETHER = 20  # tasks in one transaction


class Dropping:
    """Drops a request's wants. With `keep_ended`, those it was told of stay: results, failures."""

    def __init__(
        self,
        services: Services,
        view: View,
        dispatch: Dispatch,
        live: Live,
        *,
        keep_ended: bool = False,
    ) -> None:
        self._services = services
        self._view = view
        self._dispatch = dispatch
        self._live = live
        self._keep = keep_ended

    def batches(self) -> Iterator[None]:
        """Drop, a batch for each item taken. Raises StoreError; may be repeated from the start."""
        gate.close(self._services.store, self._services.clock, self._live.id)
        ledger = self._live.ledger
        running = [
            key
            for key in self._view.running
            if key in ledger and not (self._keep and ledger[key].outcome)
        ]
        for key in running:
            self.one(key)
            yield
        for number in SHARDS:
            start, end = rows.prefix_range(f"w|{self._live.id}|")
            found = [
                row.row.split("|")[2]
                for row in self._services.store.scan(rows.TABLE, number, start, end)
                if not (self._keep and row.entity["outcome"])
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
                log.debug("one by one", request=self._live.id, error=str(error))
            except StoreError as error:
                log.warning("one by one", request=self._live.id, error=str(error))
            else:
                for task, change in changes:
                    self._after(task, change.task)
                return
        for key in keys:
            self.one(key)

    def one(self, key: str) -> None:
        """Take back the want of one task. Raises StoreError; may be repeated."""
        before: list[Task] = []

        def decide(task: Task) -> Change:
            # The first reading counts: a later one may show this call's own success.
            before[:] = before or [task]
            return self._decide(task)

        after = change_task(self._services, key, decide)
        if after is not None:
            self._after(before[0], after)

    def _decide(self, task: Task) -> Change:
        return transitions.drop(task, self._live.id)

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
