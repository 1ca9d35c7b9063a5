"""Trying failures of a running request again, and all that could not be made without them.

Dependents go first and what failed last, so that a crash anywhere leaves what failed to begin from,
and every step may be repeated. Every running request that needs a revived task waits for it again,
and releases the fallback task that had been made from the inputs available at the time.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import Live, ManagerCache
from service_manager.events.dependents import Dependents, Informed
from service_manager.plans import write_fence
from service_manager.requests.release import Dropping
from tasks.bag import transitions
from tasks.bag.categories import Category
from tasks.bag.model import MissingPolicy, State, Task, TaskOutcome
from tasks.bag.protocol import change_task
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Edge, Interest
from tasks.bag.task_table import replace_task
from tasks.bag.transitions import Change
from tasks.errors import ConflictError, FencedError, StoreError
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow
from tasks.requests.retrying import Scope, covered

log = structlog.get_logger("manager.retrying")

_TRIES = 8
_UPSTREAM = (TaskOutcome.GAP, TaskOutcome.SUPERSEDED)  # an input was lacking
_INCOMPLETE = (TaskOutcome.FAILED, *_UPSTREAM)


class Retrying:
    """Carries out retry orders.

    `find` returns a running request by id; `hear` gets the results of informing dependents.
    """

    def __init__(
        self,
        runtime: Runtime,
        cache: ManagerCache,
        dispatch: FleetDispatch,
        dependents: Dependents,
        find: Callable[[str], Live | None],
        hear: Callable[[Informed], None],
    ) -> None:
        self._runtime = runtime
        self._tasks = runtime.tasks
        self._cache = cache
        self._dispatch = dispatch
        self._dependents = dependents
        self._find = find
        self._hear = hear

    def batches(self, live: Live) -> Generator[None]:
        """Obey the retry orders of a request, a task for each item taken, and strike them out.

        Raises StoreError; may be repeated from the start.
        """
        self._cache.retrying.add(live.id)
        try:
            yield from self._obey(live)
        finally:
            self._cache.retrying.discard(live.id)

    def _obey(self, live: Live) -> Iterator[None]:
        # As they are now: while this manager stalled, another may have obeyed.
        stored = request_operations.load(self._runtime, live.id)
        orders = () if stored.state.ended else stored.retry_orders
        # A request that fails at the first failure has none to try again.
        if orders and live.policy is not MissingPolicy.FAIL:
            interests = {
                interest.key: interest
                for interest in request_operations.interests(self._runtime, live.id)
            }
            order: dict[str, None] = {}
            for text in orders:
                for root in self._roots(interests, Scope.parse(text)):
                    yield from self._visit(root, order)
            members = frozenset(order)
            standing = _Order(runtime=self._runtime, request=live.id, texts=orders)
            for key in order:
                self._revive(key, members, standing)
                yield
            self._hear(Informed(ended=list(order)))
            log.info("tried again", request=live.id, orders=list(orders), tasks=len(order))

        def obeyed(row: RequestRow) -> RequestRow:
            left = tuple(text for text in row.retry_orders if text not in orders)
            return replace(row, retry_orders=left)

        live.row = request_operations.change_request(self._runtime, live.id, obeyed)

    def _roots(self, interests: Mapping[str, Interest], scope: Scope) -> Iterator[str]:
        """Yield the tasks in a scope that failed themselves."""
        seen: set[str] = set()
        todo = covered(self._tasks, interests.values(), scope)
        while todo:
            key = todo.pop()
            interest = interests.get(key)
            if key in seen or interest is None or interest.outcome not in _INCOMPLETE:
                continue
            seen.add(key)
            if interest.outcome is TaskOutcome.FAILED:
                yield key
            else:
                todo += [given.key for given in self._tasks.spec(key).inputs]

    def _visit(self, key: str, order: dict[str, None]) -> Iterator[None]:
        """Add a task and, before it, all that could not be made without it."""
        if key in order:
            return
        for dependent in [edge.dependent for edge in self._tasks.edges(key)]:
            task = self._tasks.task(dependent)
            if task is not None and self._held_up(task):
                yield from self._visit(dependent, order)
            yield
        order[key] = None

    def _held_up(self, task: Task) -> bool:
        """Tell whether a task waits on inputs, or is recorded as lacking one for a running request.

        Another request may have had that input made since, and the task may then have failed
        itself.
        """
        lives = self._lives(task)
        upstream = task.category is Category.UPSTREAM_FAILED
        if task.state is State.WAITING or (task.state is State.FAILED and upstream):
            return bool(lives)
        interests = (self._interest(live, task.key) for live in lives)
        return any(interest is not None and interest.outcome in _UPSTREAM for interest in interests)

    def _lives(self, task: Task) -> list[Live]:
        found = [self._find(request) for request in task.interests]
        return [live for live in found if live is not None and not live.leaving]

    def _revive(self, key: str, members: frozenset[str], order: "_Order") -> None:
        task = self._tasks.task(key)
        if task is None:
            return
        interests = [
            (live, interest.with_fallback(task.fallback))
            for live in self._lives(task)
            if (interest := self._interest(live, key))
        ]
        for live, interest in interests:
            live.note(interest)  # an earlier try may have cleared its outcome and got no further
        # While the completion event of a failure is not processed, the outcome is not recorded.
        failed = (None, *_INCOMPLETE) if task.state is State.FAILED else _INCOMPLETE
        asking = [(live, interest) for live, interest in interests if interest.outcome in failed]
        if asking:
            task = self._retry(key, [live for live, _ in asking], members, order)
        for live, before in interests:
            interest = self._interest(live, key)
            if interest is not None and before.outcome is not TaskOutcome.DONE:
                for fallback in interest.fallbacks:
                    self._drop(live, fallback, key)
        if task is not None and task.state is State.READY and not task.not_before:
            self._hear(Informed(ready=[task]))
        elif task is not None and task.state is State.WAITING:
            if task.lacking:
                again = self._bits(key, members)
                change_task(self._runtime, key, lambda found: transitions.reconsider(found, again))
            self._hear(self._dependents.examine(key, but=members))

    def _retry(
        self, key: str, asking: Sequence[Live], members: frozenset[str], order: "_Order"
    ) -> Task | None:
        missing, lacking = self._inputs(key, members)

        def decide(found: Task) -> Change:
            # Read after the task, whose row changes when another manager obeys, and whenever an
            # interest names another fallback task.
            order.must_stand()
            interests = [interest for live in asking if (interest := self._interest(live, key))]
            return transitions.retry(found, interests, missing, lacking)

        task = change_task(self._runtime, key, decide)
        for live in asking:
            if interest := self._interest(live, key):
                live.note(interest)
        return task

    def _bits(self, key: str, members: frozenset[str]) -> int:
        """Return the bits of a task's inputs that are tried again, too."""
        inputs = self._tasks.spec(key).inputs
        return sum(1 << i for i, given in enumerate(inputs) if given.key in members)

    def _inputs(self, key: str, members: frozenset[str]) -> tuple[int, int]:
        """Return the bits of inputs that may still come, and of those that will not.

        The second are those that made nothing and are not tried again. Each input that may come has
        the edge that reports its end.
        """
        bits: dict[str, int] = {}
        for i, given in enumerate(self._tasks.spec(key).inputs):
            bits[given.key] = bits.get(given.key, 0) | 1 << i
        missing = lacking = 0
        for given_key, own in bits.items():
            edge = Edge(key=given_key, dependent=key, bits=own)
            state = self._dependents.linked(edge)
            if state is State.FAILED and given_key not in members:
                lacking |= own
            elif state is not State.DONE:
                missing |= own
        return missing, lacking

    def _drop(self, live: Live, fallback: str, of: str) -> None:
        """Withdraw the interest in a fallback task, its own fallback, and what was planned over it.

        The last comes first, so that none is forgotten. When the task is superseded again, the
        fallback stays: another manager has planned it since.
        """
        interest = self._interest(live, fallback)
        if interest is not None:
            over = [edge.dependent for edge in self._tasks.edges(fallback)]
            replaced = self._replaced(of) if over else {}
            for after in (*interest.fallbacks, *over):
                self._drop(live, after, replaced.get(after, of))
        for _ in range(_TRIES):
            try:
                guard = write_fence.passing(self._tasks, shard(fallback), live.id)
            except FencedError:
                return  # the request leaves, and all its interests with it
            if self._superseded(of):
                return
            try:
                if self._interest(live, fallback) is None:
                    # A manager that stalled may be about to write it.
                    self._tasks.transact(shard(fallback), [guard])
                    return
                dropping = Dropping(self._runtime, self._cache, self._dispatch, live.id)
                dropping.one(fallback, guard)
            except (ConflictError, write_fence.FenceChangedError):
                continue
            return
        raise StoreError(f"interest of {live.id} in {fallback}: gave up after {_TRIES} tries")

    def _replaced(self, key: str) -> dict[str, str]:
        """Return the dependents of a task that fallback tasks replace, by the fallback task."""
        found = (self._tasks.task(edge.dependent) for edge in self._tasks.edges(key))
        return {task.fallback: task.key for task in found if task is not None and task.fallback}

    def _superseded(self, key: str) -> bool:
        """Tell whether a task is superseded.

        If it is not, its row is changed, so that a manager that is about to supersede it reads the
        present state again.
        """

        def touch(task: Task) -> Change:
            if task.state is State.FAILED and task.fallback:
                return Change(task=task)
            return Change(task=task, operations=(replace_task(task),))

        task = change_task(self._runtime, key, touch)
        return task is not None and task.state is State.FAILED and bool(task.fallback)

    def _interest(self, live: Live, key: str) -> Interest | None:
        return self._tasks.interest(live.id, key)


@dataclass(frozen=True, kw_only=True)
class _Order:
    """Orders of a request that are being obeyed."""

    runtime: Runtime
    request: str
    texts: Sequence[str]

    def must_stand(self) -> None:
        """Raise FencedError when another manager has obeyed them."""
        if not set(self.texts) <= set(
            request_operations.load(self.runtime, self.request).retry_orders
        ):
            raise FencedError(f"another manager has tried again what {self.request} asked for")
