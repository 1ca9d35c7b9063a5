"""Ready tasks handed to dispatch, and tasks that are ready later woken when their time has come."""

import heapq
from itertools import islice

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.options import ManagerOptions
from tasks.bag import protocol, transitions
from tasks.bag.model import State, Task
from tasks.bag.runtime import Runtime
from tasks.bag.transitions import Change

_MOVES = 100  # tasks in one call, each a transaction


class ReadyTasks:
    """What is ready, under a sponsor that may be dispatched; what is ready later, by its time."""

    def __init__(
        self,
        runtime: Runtime,
        options: ManagerOptions,
        cache: ManagerCache,
        dispatch: FleetDispatch,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._options = options
        self._cache = cache
        self._dispatch = dispatch
        self._later: list[tuple[float, str]] = []  # by the monotonic clock
        self._known_later: set[str] = set()

    def now(self, task: Task) -> None:
        """Add a ready task. Raises StoreError when it needs another sponsor and storage fails."""
        sponsor = self._cache.requests.get(task.sponsor)
        if sponsor is not None and not sponsor.dispatchable:
            for live in self._cache.interested_in(task):
                if live.dispatchable:
                    moved = self._sponsor(task.key, live.id)
                    self._add(task, moved.sponsor if moved else live.id)
                    return
        self._add(task, task.sponsor)

    def _add(self, task: Task, sponsor: str) -> None:
        self._dispatch.add(task.key, sponsor, task.task_class, alone=task.alone, rank=task.rank)

    def later(self, at: float, key: str) -> None:
        """Add a task that will be ready at a time, in POSIX seconds."""
        if key not in self._known_later:
            # A worker's clock may be far ahead: no wait is longer than the longest delay.
            wait = min(at - self._clock.now(), self._options.retry.most)
            heapq.heappush(self._later, (self._clock.monotonic() + wait, key))
            self._known_later.add(key)

    def wake(self) -> None:
        """Make ready what is due. Raises StoreError; the rest is woken the next time."""
        now = self._clock.now()
        while self._later and self._later[0][0] <= self._clock.monotonic():
            key = self._later[0][1]

            def decide(task: Task) -> Change:
                if task.state is not State.READY or not task.not_before:
                    return Change(task=task)
                return transitions.wake(task, max(now, task.not_before))

            task = protocol.change_task(self._runtime, key, decide)
            heapq.heappop(self._later)
            self._known_later.discard(key)
            if task is not None and task.state is State.READY:
                self.now(task)

    def move(self) -> None:
        """Put tasks that wait for their request or its owner under others that want them, too.

        Not too many at once. Raises StoreError; the rest is moved the next time.
        """
        for key, request in list(islice(self._dispatch.held_up(self._cache), _MOVES)):
            task = self._sponsor(key, request)
            if task is not None and task.state is State.READY and not task.not_before:
                self._add(task, task.sponsor)

    def _sponsor(self, key: str, request: str) -> Task | None:
        def decide(task: Task) -> Change:
            ready = task.state is State.READY and not task.not_before
            if not ready or task.sponsor == request or request not in task.interests:
                return Change(task=task)
            return transitions.sponsor(task, request)

        return protocol.change_task(self._runtime, key, decide)
