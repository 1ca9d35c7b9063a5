"""The brake: when the first runs of a request's reduction all fail alike, the others are not run.

What it goes by is in the request's interest rows, so that any manager decides the same. A run is
stopped when it is ready, by a transaction on its own row, and counts as failed; retried, it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import Live, ManagerCache
from tasks.bag import transitions
from tasks.bag.categories import Category
from tasks.bag.model import Phase, State, Task, TaskOutcome
from tasks.bag.protocol import change_task
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tasks.bag.transitions import Change
from tasks.errors import FencedError
from tasks.requests import request_operations

log = structlog.get_logger("manager.brake")

FIRST = 3
"""Runs that must have failed alike, with none that has not."""

_REMEMBERED = 20_000  # runs that were asked for


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How all runs of a reduction have failed so far."""

    category: Category
    message: str

    @property
    def told(self) -> str:
        """The reason why no other run is begun, and how to go on."""
        return (
            f"{self.message} (not run, because the first {FIRST} runs failed with this error: mend "
            "the package and retry the request when it has ended)"
        )


def common_failure(live: Live) -> Failure | None:
    """Return how the runs of a request's reduction failed, when enough failed and all are alike.

    It is None as soon as one run succeeded or failed in another way. Runs that took too long are
    not alike: they say nothing about smaller groups. It is None, too, while an outcome is unsure,
    and while a run that had a fallback task is made again: that fallback task may have succeeded,
    and it is withdrawn.
    """
    if live.unsure or live.repeated or len(live.run_failures) != 1:
        return None
    outcomes = dict.fromkeys((None, TaskOutcome.DONE, TaskOutcome.FAILED), 0)
    for entry, number in live.ledger.counts():
        if entry.phase is Phase.REDUCTION and entry.outcome in outcomes:
            outcomes[entry.outcome] += number
    failed, done = outcomes[TaskOutcome.FAILED], outcomes[TaskOutcome.DONE]
    if failed < FIRST or done or not outcomes[None]:
        return None
    ((category, message),) = live.run_failures
    return (
        Failure(category=category, message=message)
        if category is Category.USER_CODE_FAILED
        else None
    )


class Brake:
    """Stops ready runs of a reduction whose first runs all failed alike.

    `find` returns a request that has not ended; `notice` learns of shards that have events by it; a
    request's row of a higher `epoch` ends this manager.
    """

    def __init__(
        self,
        runtime: Runtime,
        cache: ManagerCache,
        dispatch: FleetDispatch,
        find: Callable[[str], Live | None],
        notice: Callable[[Sequence[str]], None],
        epoch: int,
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._dispatch = dispatch
        self._find = find
        self._notice = notice
        self._epoch = epoch
        self._asked: set[str] = set()  # runs that a retry has asked for

    def step(self) -> bool:
        """Stop what is ready and of no use. Raises StoreError, FencedError; may be repeated."""
        failures = {
            live.id: failure
            for live in self._cache.requests.values()
            if live.dispatchable and (failure := common_failure(live))
        }
        if not failures:
            return False
        stopped = [
            key
            for key in self._dispatch.known()
            if key not in self._asked and self._useless(key, failures) and self._stop(key, failures)
        ]
        if stopped:
            log.warning("reduction stopped", requests=sorted(failures), runs=len(stopped))
        return bool(stopped)

    def _useless(self, key: str, failures: Mapping[str, Failure]) -> bool:
        """Tell whether a task is a run of a reduction that would fail for all its requests."""
        entries = [self._cache.requests[request].ledger.get(key) for request in failures]
        if not any(entry is not None and entry.phase is Phase.REDUCTION for entry in entries):
            return False
        return all(
            live.id in failures or live.leaving or key not in live.ledger
            for live in self._cache.requests.values()
        )

    def _stop(self, key: str, failures: Mapping[str, Failure]) -> bool:
        def decide(task: Task) -> Change:
            if task.state is State.READY and (failure := self._failure(task, failures)):
                return transitions.stop(task, failure.category, failure.message, failure.told)
            return Change(task=task)

        task = change_task(self._runtime, key, decide)
        if task is None or task.state is not State.FAILED:
            return False
        self._dispatch.remove(key)
        self._notice([shard(key)])
        return True

    def _failure(self, task: Task, failures: Mapping[str, Failure]) -> Failure | None:
        """Return how a run would fail.

        It is None when one of the requests with an interest in it has not seen that failure, or has
        asked to retry it.
        """
        found: Failure | None = None
        for request in task.interests:
            live = self._find(request)
            if live is None or live.leaving:
                continue
            if request not in failures or self._asked_for(live, task):
                return None
            found = found or failures[request]
        return found

    def _asked_for(self, live: Live, task: Task) -> bool:
        """Tell whether a request asks for a run that failed before.

        The request's row is read after the task, whose row changes when a retry is carried out: a
        manager that stalled meanwhile stops nothing that another one has started again.
        """
        row = request_operations.row_of(self._runtime, live.id)
        if row.epoch > self._epoch:
            raise FencedError(f"manager epoch {self._epoch} is over; {row.epoch} acts")
        if row.retry_orders or row.retried != live.row.retried:
            return True  # this manager has yet to obey, or to hear that another has
        if task.generation > 1 and (row.retried or row.retry_of):
            if len(self._asked) >= _REMEMBERED:
                self._asked.clear()
            self._asked.add(task.key)
            return True
        return False
