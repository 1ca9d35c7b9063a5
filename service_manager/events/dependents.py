"""Tell dependents that their inputs ended, and plan fallback tasks over those that exist."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import Live
from service_manager.events.causes import inherited
from service_manager.events.missing_inputs import absent
from service_manager.plans import write_fence
from tasks.bag import task_table, transitions
from tasks.bag.batch import change_tasks
from tasks.bag.kinds import Spec
from tasks.bag.model import MissingPolicy, RequestState, State, Task, TaskOutcome
from tasks.bag.protocol import change_task
from tasks.bag.runtime import Runtime
from tasks.bag.spec import Input
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import CompletionEvent, Edge, Interest
from tasks.bag.task_table import InputFiles
from tasks.bag.transitions import Change
from tasks.errors import ConflictError, FencedError
from tasks.storage.blobs import split_blob
from tasks.storage.limits import check_transaction
from tasks.storage.store import BATCH_OPERATIONS, Insert, Operation, Replace

log = structlog.get_logger("manager.dependents")

_REMEMBERED = 20_000  # rows of waiting tasks

Find = Callable[[str], Live | None]  # a request that has not ended, by id


@dataclass
class Informed:
    """What informing dependents led to.

    It has the tasks that became ready, the tasks that have events of their own, and the events to
    keep for a dependent that does not exist yet.
    """

    ready: list[Task] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)  # keys
    kept: set[str] = field(default_factory=set)  # keys of inputs

    def add(self, more: "Informed") -> None:
        """Add what examining one task led to; that keeps no event."""
        self.ready += more.ready
        self.ended += more.ended


@dataclass
class _Ends:
    """Bits of one dependent's inputs that were made, and of those that failed."""

    made: int = 0
    lacking: int = 0
    files: list[InputFiles] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)


class Dependents:
    """Satisfies inputs. Only the manager does; every step may be repeated."""

    def __init__(
        self, runtime: Runtime, find: Find, locations: InputLocations | None = None
    ) -> None:
        self._runtime = runtime
        self._locations = locations
        self._tasks = runtime.tasks
        self._find = find
        self._waiting: dict[str, Task] = {}  # rows as last written, still waiting

    def inform(self, events: Sequence[CompletionEvent]) -> Informed:
        """Inform all dependents of ended tasks, those of one shard together."""
        informed = Informed()
        awaited: set[str] | None = None
        found = self._ends(events)
        for number in sorted({shard(dependent) for dependent in found}):
            some = {key: ends for key, ends in found.items() if shard(key) == number}
            for dependent, task in self._change(some).items():
                if task is None:
                    if awaited is None:
                        awaited = {one.key for one in events if self._awaited(one)}
                    informed.kept |= some[dependent].inputs & awaited
                else:
                    self.remember(task)
                    self._settled(task, informed)
        return informed

    def _change(self, found: Mapping[str, _Ends]) -> dict[str, Task | None]:
        """Change dependents of one shard; return their rows, None for one that does not exist."""
        decisions = {key: partial(_inputs_ended, ends) for key, ends in found.items()}
        first: dict[str, Task] = {}
        for key, decide in decisions.items():
            known = self._waiting.pop(key, None)
            if known is not None and decide(known).operations:  # else no ETag would tell its age
                first[key] = known
        return change_tasks(self._runtime, decisions, first=first)

    def _awaited(self, event: CompletionEvent) -> bool:
        """Tell whether dependents may come later, in a plan that is being written."""
        found = [self._find(request) for request in event.interests]
        return any(
            live is not None and not live.leaving and live.row.state is not RequestState.RUNNING
            for live in found
        )

    def remember(self, task: Task) -> None:
        """Keep the row of a task that waits, as it was written, so that its inputs need no read.

        The ETag shows whether the row has changed.
        """
        self._waiting.pop(task.key, None)
        if task.state is State.WAITING and task.missing and task.etag:
            if len(self._waiting) >= _REMEMBERED:
                self._waiting.clear()
            self._waiting[task.key] = task

    def examine(self, key: str, *, look: bool = False, but: Container[str] = ()) -> Informed:
        """Read all inputs a task waits for except `but`, and record what became of them.

        `look` looks into storage, too, for the blobs of inputs that are DONE: one whose blobs are
        gone is made again.
        """
        informed = Informed()
        task = self._tasks.task(key)
        if task is None or task.state is not State.WAITING or not (task.missing or task.lacking):
            return informed
        spec = self._tasks.spec_of(task)
        by_input: dict[str, int] = {}
        for i, given in enumerate(spec.inputs):
            if task.missing >> i & 1 and given.key not in but:
                by_input[given.key] = by_input.get(given.key, 0) | 1 << i
        ends = _Ends()
        for given_key, bits in by_input.items():
            found = self._look(
                given_key, Edge(key=given_key, dependent=key, bits=bits), look, informed
            )
            if found is State.DONE:
                ends.made |= bits
            elif found is State.FAILED:
                ends.lacking |= bits
        after = change_task(self._runtime, key, partial(_inputs_ended, ends))
        if after is not None:
            self._settled(after, informed)
        return informed

    def linked(self, edge: Edge) -> State | None:
        """Return the state of an input; if it is live, write the edge that reports its end."""
        task = self._tasks.task(edge.key)
        if task is not None and task.state not in (State.DONE, State.EXPIRED):
            task = self._link(edge.key, edge)
        return task.state if task else None

    def _look(self, key: str, edge: Edge, look: bool, informed: Informed) -> State | None:
        """Return the state of an input, with the edge that will report its end."""
        task = self._tasks.task(key)
        if task is None:
            return None
        gone = task.state is State.EXPIRED or (
            task.state is State.DONE and look and not self._there(task)
        )
        if gone and self._wanted(task):
            missing = self._not_done(self._tasks.spec_of(task))
            task = change_task(self._runtime, key, lambda t: self._heal(t, task, missing, edge))
            if task is not None and task.state is State.READY:
                informed.ready.append(task)
            elif task is not None and task.state is State.WAITING:
                informed.add(self.examine(key))
        if task is not None and task.state.live:
            task = self._link(key, edge)
        return task.state if task else None

    def _wanted(self, task: Task) -> bool:
        """Tell whether a live request wants it; if not, its dependent is dropped soon."""
        found = [self._find(request) for request in task.interests]
        return any(live is not None and not live.leaving for live in found)

    def _there(self, task: Task) -> bool:
        return all(self._runtime.blobs.exists(*split_blob(file.blob)) for file in task.files)

    def _heal(self, task: Task, seen: Task | None, missing: int, edge: Edge) -> Change:
        changed = seen is None or task.state is not seen.state or task.files != seen.files
        # Whoever met the lost blob, too, may have recorded it since: then nobody has it made again.
        if changed and task.state is not State.EXPIRED:
            return Change(task=task)
        log.warning("blobs are gone; made again", task=task.key)
        return transitions.heal(task, missing, (edge,))

    def _not_done(self, spec: Spec) -> int:
        missing = 0
        for i, given in enumerate(spec.inputs):
            task = self._tasks.task(given.key)
            missing |= (task is None or task.state is not State.DONE) << i
        return missing

    def _ends(self, events: Sequence[CompletionEvent]) -> dict[str, _Ends]:
        ended: dict[str, list[CompletionEvent]] = {}  # a task that was revived may have several
        for one in events:
            if one.has_dependents and one.state in (State.DONE, State.FAILED):
                ended.setdefault(one.key, []).append(one)
        found: dict[str, _Ends] = {}
        for number in sorted(set(map(shard, ended))):
            keys = sorted(key for key in ended if shard(key) == number)
            for edge in self._tasks.edges_of(number, keys):
                ends = found.setdefault(edge.dependent, _Ends())
                ends.inputs.add(edge.key)
                for one in ended[edge.key]:
                    self._add(one, edge, ends)
        return found

    def _add(self, event: CompletionEvent, edge: Edge, ends: _Ends) -> None:
        """Add what an event of an input says to what its dependent is told."""
        if event.state is not State.DONE:
            ends.lacking |= edge.bits
            return
        ends.made |= edge.bits
        ends.files.append((edge.bits, event.files))
        if self._locations is not None:
            size = sum(file.size for file in event.files)
            self._locations.made(edge.dependent, event.key, event.worker, size)

    def _settled(self, task: Task, informed: Informed) -> None:
        if task.state is State.READY and not task.not_before:
            informed.ready.append(task)
        elif task.state is State.WAITING and task.lacking and not task.missing:
            self._supersede(task.key, informed)

    def _supersede(self, key: str, informed: Informed) -> None:
        """All inputs of a task ended and some made nothing: plan it over those that exist.

        The task's requests that skip what is missing get an interest in the fallback task. Inputs
        that have been revived since are waited for again: only here is it looked at, because a
        report of their failure may be late.
        """
        while True:
            task = self._tasks.task(key)
            if task is None or task.state is not State.WAITING:
                return
            if task.missing or not task.lacking:
                return
            if not self._wanted(task):
                return  # about to be dropped; a plan that has it looks at it again
            spec = self._tasks.spec_of(task)
            revived = self._revived(task, spec)
            if revived:
                change_task(self._runtime, key, lambda t: transitions.reconsider(t, revived))  # noqa: B023
                informed.add(self.examine(key))
                return
            try:
                planned = self._plan_fallback(task, spec, informed)
                cause = ""
            except ValueError as error:
                log.exception("fallback task cannot be stored", task=key)
                planned = "", task.etag
                cause = f"it could not be planned without the inputs that failed: {error}"
            if planned is None:
                continue
            fallback, etag = planned
            try:
                cause = cause or self._first_cause(task, spec)
                after = change_task(
                    self._runtime,
                    key,
                    lambda t: _superseded(t, etag, fallback, cause),  # noqa: B023
                )
            except FencedError:
                continue  # it has a new interest, or an input was revived: look again
            if after is not None:
                informed.ended.append(key)
                return

    def _revived(self, task: Task, spec: Spec) -> int:
        """Bits of lacking inputs that are not failures any more."""
        revived = 0
        for i, given in enumerate(spec.inputs):
            if task.lacking >> i & 1:
                found = self._tasks.task(given.key)
                revived |= (found is not None and found.state is not State.FAILED) << i
        return revived

    def _plan_fallback(self, task: Task, spec: Spec, informed: Informed) -> tuple[str, str] | None:
        """Plan the fallback task for all requests that skip failures.

        Returns its key (empty when there is nothing to make) and the ETag of the task's row since;
        None when the task has changed meanwhile.

        Raises:
            ValueError: the fallback task cannot be stored.
        """
        wanting = [self._find(request) for request in task.interests]
        skipping = [
            live
            for live in wanting
            if live is not None and live.policy is MissingPolicy.SKIP and not live.leaving
        ]
        kept = self._kept(task, spec)
        if not kept or not skipping:
            return "", task.etag
        lost = [i for i in range(len(spec.inputs)) if i not in kept]
        new = spec.over(kept, absent(self._tasks, spec, lost))
        # Read before the requests' interests name the fallback task: whoever withdraws it from then
        # on changes the write fence, and what a stalled manager has yet to write is refused.
        guards = {
            live.id: write_fence.passing(self._tasks, shard(new.key), live.id) for live in skipping
        }
        olds = self._wanting(task, skipping)
        if not olds:
            return "", task.etag
        interests = [
            (
                live,
                Interest(
                    request=live.id,
                    key=new.key,
                    phase=new.phase,
                    name=new.title,
                    output=old.output,
                ),
            )
            for live, old in olds
        ]
        for live, interest in interests:
            creation = (
                *transitions.create(new, interest, 0, rank=task.rank).operations,
                guards[live.id],
            )
            check_transaction(shard(new.key), creation)
        try:
            etag = self._name(task, new.key, [old for _, old in olds])
        except ConflictError:
            return None
        missing = self._missing_of(new, {i.key for i in kept.values()} - _keys(spec))
        current: Task | None = None
        for live, interest in interests:
            try:
                guard = guards[live.id]
                current, noted = self._interest(new, interest, missing, guard, task.rank)
            except write_fence.FenceChangedError:
                return None
            live.note(noted)
        if current is not None and current.state is State.READY:
            informed.ready.append(current)
        elif current is not None and current.state is State.WAITING:
            informed.add(self.examine(new.key))
        return new.key, etag

    def _wanting(self, task: Task, among: Sequence[Live]) -> list[tuple[Live, Interest]]:
        """Return the requests with an interest in a task, each with that interest."""
        found: list[tuple[Live, Interest]] = []
        for live in among:
            interest = self._tasks.interest(live.id, task.key)
            if interest is not None:
                found.append((live, interest))
        return found

    def _name(self, task: Task, fallback: str, interests: Sequence[Interest]) -> str:
        """Record the fallback task in a task's interests; return the ETag of its row.

        A later retry then finds the fallback task and drops it. The row is written even when all
        interests name the fallback task: a retry may have dropped it since the row was read.

        Raises:
            ConflictError: the task has changed since it was read; it records nothing.
        """
        named: list[Operation] = []
        for old in interests:
            interest = old.with_fallback(fallback)
            if interest != old:
                named.append(task_table.name_fallbacks(interest))
        etag = task.etag
        for start in range(0, max(1, len(named)), BATCH_OPERATIONS - 1):
            unchanged = task_table.replace_task(task, etag)
            batch = [unchanged, *named[start : start + BATCH_OPERATIONS - 1]]
            etag = self._tasks.transact(shard(task.key), batch)[0]
        return etag

    def _interest(
        self, spec: Spec, interest: Interest, missing: int, guard: Insert | Replace, rank: int
    ) -> tuple[Task, Interest]:
        """Create the fallback task, or add an interest when it exists.

        Raises FenceChangedError when somebody has withdrawn it since the guard was read.
        """
        added: list[Interest] = [interest]

        def guarded(change: Change) -> Change:
            return write_fence.guarded(self._tasks, shard(interest.key), guard, change)

        def decide(task: Task) -> Change:
            added[:] = [interest]
            if interest.request in task.interests:
                added[:] = [self._tasks.interest(interest.request, task.key) or interest]
                return Change(task=task)
            if task.state is State.DONE:
                added[:] = [
                    replace(interest, outcome=TaskOutcome.DONE, reused=True, files=task.files)
                ]
            return guarded(transitions.add_interest(task, added[0], missing, rank=rank))

        task = change_task(
            self._runtime,
            interest.key,
            decide,
            create=lambda: guarded(transitions.create(spec, interest, missing, rank=rank)),
        )
        if task is None:
            raise FencedError(f"task {interest.key} can neither be read nor created")
        return task, added[0]

    def _kept(self, task: Task, spec: Spec) -> dict[int, Input]:
        kept: dict[int, Input] = {}
        for i, given in enumerate(spec.inputs):
            if not task.lacking >> i & 1:
                kept[i] = given
                continue
            fallback = self._last_fallback(given.key)
            if fallback:
                kept[i] = given.model_copy(update={"key": fallback})
        return kept

    def _last_fallback(self, key: str) -> str:
        """Return the key of the last fallback task of a task; empty when that one failed, too."""
        task = self._last(key)
        return task.key if task is not None and task.state is not State.FAILED else ""

    def _last(self, key: str) -> Task | None:
        """Return a task, or the last fallback task in place of one that made nothing."""
        seen = {key, ""}
        task = self._tasks.task(key)
        while task is not None and task.state is State.FAILED and task.fallback not in seen:
            seen.add(task.fallback)
            task = self._tasks.task(task.fallback)
        return task

    def _first_cause(self, task: Task, spec: Spec) -> str:
        """Say why the first missing input of a task could not be made.

        The message is the one of the task that failed itself.
        """
        for i, given in enumerate(spec.inputs):
            failed = self._last(given.key) if task.lacking >> i & 1 else None
            cause = inherited(given, failed) if failed is not None else ""
            if cause:
                return cause
        return ""

    def _missing_of(self, spec: Spec, fallbacks: Container[str]) -> int:
        """Return the bits of a new task's inputs that are not DONE, to be examined afterwards.

        A fallback task among the inputs always has an edge: by it a request that withdraws finds
        what was planned over it.
        """
        bits: dict[str, int] = {}
        for i, given in enumerate(spec.inputs):
            bits[given.key] = bits.get(given.key, 0) | 1 << i
        missing = 0
        for key, own in bits.items():
            if key in fallbacks:
                edges = (Edge(key=key, dependent=spec.key, bits=own),)
                task = change_task(self._runtime, key, lambda t: transitions.link(t, edges))  # noqa: B023
            else:
                task = self._tasks.task(key)
            if task is None or task.state is not State.DONE:
                missing |= own
        return missing

    def _link(self, key: str, edge: Edge) -> Task | None:
        return change_task(self._runtime, key, lambda task: _link(task, edge))


def _inputs_ended(ends: _Ends, task: Task) -> Change:
    return transitions.inputs_ended(task, ends.made | ends.lacking, ends.lacking, ends.files)


def _keys(spec: Spec) -> set[str]:
    return {given.key for given in spec.inputs}


def _link(task: Task, edge: Edge) -> Change:
    if task.state is State.DONE:
        return Change(task=task)
    return transitions.link(task, (edge,))


def _superseded(task: Task, etag: str, fallback: str, cause: str) -> Change:
    if task.state is State.FAILED and task.fallback == fallback:
        return Change(task=task)
    if task.etag != etag:
        raise FencedError(f"task {task.key} has changed")
    return transitions.supersede(task, fallback, cause)
