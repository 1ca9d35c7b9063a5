"""Writing a plan into the table: in batches per shard, inputs before dependents, repeatable.

A plan is written section by section, in memory bounded by one. A task's transaction holds its row,
its interest and the edges to its dependents, so that its state seen there is exact: either it is
DONE and no dependent waits for it, or its end comes later and finds the edges. A plan written again
after a crash leaves alone the tasks in which the request already has an interest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from service_manager.plans import write_fence
from service_manager.plans.result_ranks import result_ranks
from tasks.bag import transitions
from tasks.bag.batch import tagged
from tasks.bag.model import State, Task, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Edge, Interest
from tasks.bag.task_table import put_edges, wait_event
from tasks.errors import ConflictError, StoreError, SwathmillError
from tasks.request.document import First
from tasks.requests.plan import PlannedTask
from tasks.storage.limits import grouped
from tasks.storage.store import Operation

_TOGETHER = 60  # edges written in the transaction of their input; more go before it
_TRIES = 8


@dataclass
class Written:
    """What one batch came to: tasks as they are now, with the request's interests."""

    tasks: list[tuple[Task, Interest]] = field(default_factory=list)
    rows: list[Task] = field(default_factory=list)  # what was written of tasks, with its ETags
    waiting: list[str] = field(default_factory=list)  # their inputs must be looked at
    made: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Of tasks that are ready, for each input: task, input, the worker that made it, bytes."""


@dataclass
class _Step:
    key: str
    planned: PlannedTask
    edges: tuple[Edge, ...]
    created: tuple[transitions.Change, Interest] | None = None  # if it is new


@dataclass
class _Link:
    """A task of a section before that has more dependents now."""

    key: str
    edges: tuple[Edge, ...]


_Item = _Step | _Link


class _TooManyError(SwathmillError):
    """Rows that exist need more operations than new ones: the batch does not fit a transaction."""


class PlanWriter:
    """Writes the plan of one request, a batch for each item taken from `batches`.

    `sections` are tasks, inputs first; an input may be of a section before. `first` says which
    results are made first.
    """

    def __init__(
        self,
        runtime: Runtime,
        request: str,
        sections: Iterable[Sequence[PlannedTask]],
        first: First = "oldest",
    ) -> None:
        self._runtime = runtime
        self._request = request
        self._sections = sections
        self._first = first
        self._ranks: dict[str, int] = {}  # of the tasks of a section
        self._fences: dict[str, str] = {}  # by shard: the ETag that the last pass left
        self._states: dict[str, State] = {}
        self._makers: dict[str, tuple[str, int]] = {}  # of what was there: worker, bytes
        self._fresh = True  # the last batch was all new: the next may be, too

    def batches(self) -> Iterator[Written]:
        """Write; raises StoreError when storage fails, and ValueError on a plan out of order."""
        for section in self._sections:
            self._states.clear()
            self._makers.clear()
            self._ranks = result_ranks(section, self._first)
            for level in _levels(section):
                members: dict[str, list[_Item]] = {}
                for step in level:
                    members.setdefault(shard(step.key), []).append(step)
                for number in sorted(members):
                    yield from self._shard(number, members[number])

    def _shard(self, number: str, steps: Sequence[_Item]) -> Iterator[Written]:
        most = self._runtime.most_operations
        for step in steps:
            early = put_edges(step.edges[_TOGETHER:])
            for some in grouped(number, early, lambda one: (one,), most=most):
                self._put(some, number)
        for batch in grouped(number, steps, self._expected, most=most - 1):  # and the fence
            yield self._write(number, batch)

    def _write(self, number: str, batch: Sequence[_Item]) -> Written:
        """Write a batch, whatever of it exists, until it holds."""
        last: StoreError | None = None
        for tries in range(_TRIES):
            if tries > 1 and len(batch) > 1:  # someone changes these rows: one by one
                return self._parts(number, [[step] for step in batch])
            try:
                return self._attempt(number, batch, fresh=self._fresh and not tries)
            except _TooManyError:
                half = len(batch) // 2
                return self._parts(number, [batch[:half], batch[half:]])
            except ConflictError as error:
                last = error
            except StoreError as error:
                last = error
                self._runtime.clock.sleep(0.05 * 2**tries)
            self._fences.pop(number, None)
        raise StoreError(f"plan of {self._request}: gave up: {last}") from last

    def _parts(self, number: str, parts: Sequence[Sequence[_Item]]) -> Written:
        """Write the parts of a batch one after another."""
        written = Written()
        for part in parts:
            one = self._write(number, part)
            written.tasks += one.tasks
            written.rows += one.rows
            written.waiting += one.waiting
            written.made += one.made
        return written

    def _attempt(self, number: str, batch: Sequence[_Item], *, fresh: bool) -> Written:
        written = Written()
        operations: list[Operation] = []
        rows: list[tuple[Task, int]] = []  # of tasks, with their places among the operations
        absent = 0
        known = {} if fresh else self._runtime.tasks.tasks(number, sorted(one.key for one in batch))
        for step in batch:
            if isinstance(step, _Link):
                change = self._link(step)
                if change.operations:
                    rows.append((change.task, len(operations)))
                operations += change.operations
                continue
            task = known.get(step.key)
            if task is None:
                absent += 1
                change, interest = self._create(step)
            else:
                interest = self._interest_in(step, task)
                change = self._existing(step, task, interest)
            if change.operations:
                rows.append((change.task, len(operations)))
            operations += change.operations
            written.tasks.append((change.task, interest))
            if change.task.state is State.WAITING and self._stale(step, task):
                written.waiting.append(step.key)
                if task is None or task.state.live:  # else its revival writes the event
                    operations.append(wait_event(change.task))
        if len(batch) > 1 and len(operations) >= self._runtime.most_operations:
            raise _TooManyError
        if operations:
            tasks, fence = self._runtime.tasks, self._fences.get(number, "")
            operations.append(write_fence.passing(tasks, number, self._request, fence))
            etags = tasks.transact(number, operations)
            self._fences[number] = etags[-1] if etags else ""
            written.rows = [tagged(task, etags[at:]) for task, at in rows]
        self._fresh = absent == sum(isinstance(step, _Step) for step in batch)
        for step, (task, _) in zip(_steps(batch), written.tasks, strict=True):
            self._see(task)
            if task.state is State.READY:
                written.made += [
                    (task.key, given.key, *self._makers[given.key])
                    for given in step.planned.spec.inputs
                    if given.key in self._makers
                ]
        return written

    def _see(self, task: Task) -> None:
        """Remember a task for those that need it."""
        self._states[task.key] = task.state
        if task.state is State.DONE and task.worker:
            self._makers[task.key] = task.worker, sum(file.size for file in task.files)

    def _expected(self, step: _Item) -> tuple[Operation, ...]:
        """Return the operations of a step that is new, by which batches are sized."""
        if isinstance(step, _Step):
            return self._create(step)[0].operations
        return put_edges(step.edges[:_TOGETHER])

    def _link(self, step: _Link) -> transitions.Change:
        """Add dependents to a task in which this request already has an interest."""
        task = self._runtime.tasks.task(step.key)
        if task is None or self._request not in task.interests:
            raise ValueError(f"task {step.key} is needed, but no section before has it")
        self._see(task)
        if task.state is State.DONE:
            return transitions.Change(task=task)
        return transitions.link(task, step.edges[:_TOGETHER])

    def _create(self, step: _Step) -> tuple[transitions.Change, Interest]:
        """Return the step as a new task; its inputs are written, so its state is final."""
        if step.created is None:
            interest = self._interest(step)
            change = transitions.create(
                step.planned.spec,
                interest,
                self._missing(step),
                step.edges[:_TOGETHER],
                self._ranks[step.key],
            )
            step.created = change, interest
        return step.created

    def _existing(self, step: _Step, task: Task, interest: Interest) -> transitions.Change:
        if self._request in task.interests:
            if task.state is State.DONE or not step.edges:
                return transitions.Change(task=task)
            return transitions.link(task, step.edges[:_TOGETHER])
        return transitions.add_interest(
            task, interest, self._missing(step), step.edges[:_TOGETHER], self._ranks[step.key]
        )

    def _interest_in(self, step: _Step, task: Task) -> Interest:
        """Return the interest row for an existing task, with its outcome when the task is DONE."""
        if self._request in task.interests:
            return self._runtime.tasks.interest(self._request, task.key) or self._interest(step)
        if task.state is not State.DONE:
            return self._interest(step)
        return Interest(
            request=self._request,
            key=task.key,
            phase=task.phase,
            name=step.planned.spec.title,
            output=step.planned.output,
            outcome=TaskOutcome.DONE,
            reused=True,
            files=task.files,
        )

    def _interest(self, step: _Step) -> Interest:
        spec = step.planned.spec
        return Interest(
            request=self._request,
            key=step.key,
            phase=spec.phase,
            name=spec.title,
            output=step.planned.output,
        )

    def _missing(self, step: _Step) -> int:
        return sum(
            1 << i
            for i, given in enumerate(step.planned.spec.inputs)
            if self._states.get(given.key) is not State.DONE
        )

    def _stale(self, step: _Step, before: Task | None) -> bool:
        """Tell whether an input's event may have been processed before this task could be notified.

        A task that waits for no input any more was left as it is, while nobody wanted it.
        """
        revived = before is not None and not (before.state.live and before.missing)
        ended = any(
            self._states[i.key] not in (State.DONE, State.READY, State.WAITING, State.RUNNING)
            for i in step.planned.spec.inputs
        )
        return revived or ended

    def _put(self, operations: Sequence[Operation], number: str) -> None:
        for tries in range(_TRIES):
            try:
                self._runtime.tasks.transact(number, operations)
            except StoreError:
                if tries == _TRIES - 1:
                    raise
                self._runtime.clock.sleep(0.05 * 2**tries)
            else:
                return


def _steps(batch: Sequence[_Item]) -> list[_Step]:
    return [item for item in batch if isinstance(item, _Step)]


def _levels(section: Sequence[PlannedTask]) -> list[list[_Item]]:
    """Group the tasks of a section by the length of the chain of tasks they wait for.

    Tasks of earlier sections that they wait for come first.
    """
    tasks: dict[str, PlannedTask] = {}
    for planned in section:
        tasks.setdefault(planned.key, planned)
    edges: dict[str, dict[str, int]] = {}
    depth: dict[str, int] = {}
    for key, planned in tasks.items():
        for i, given in enumerate(planned.spec.inputs):
            if given.key in tasks and given.key not in depth:
                raise ValueError(f"task {key} comes before its input {given.key}")
            bits = edges.setdefault(given.key, {})
            bits[key] = bits.get(key, 0) | 1 << i
            depth.setdefault(given.key, 0)
        depth[key] = 1 + max((depth[i.key] for i in planned.spec.inputs), default=-1)
    levels: list[list[_Item]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for key, level in depth.items():
        own = tuple(Edge(key=key, dependent=d, bits=b) for d, b in edges.get(key, {}).items())
        found = tasks.get(key)
        step = _Step(key=key, planned=found, edges=own) if found else _Link(key=key, edges=own)
        levels[level].append(step)
    return levels
