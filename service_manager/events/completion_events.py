"""Process completion events: count attempts, notify dependents and requests, delete the events.

The order makes it repeatable: statistics carry the batch's attempts in their own transaction,
notifying a dependent or a request twice changes nothing, and the events are deleted last.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from service_manager.dispatch.ledger import Entry
from service_manager.dispatch.manager_cache import Live, ManagerCache
from service_manager.events.dependents import Dependents, Informed
from tasks.bag import history
from tasks.bag.categories import RULES, Category, Retry
from tasks.bag.model import State, Task, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS, shard
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.task_table import note_counted, record_outcome, replace_task, returned
from tasks.errors import ConflictError
from tasks.requests.request_table import RequestTable
from tasks.storage.own_rows import OwnRows, Together
from tasks.storage.store import BATCH_OPERATIONS, Delete, MergeEntity, Operation, Replace

log = structlog.get_logger("manager.completion_events")

READERS = 8  # rows of statistics read side by side, where storage is not on this machine
ROWS = 200  # events read from one shard at once
_HELD = (State.FAILED, State.WAITING)  # until all that is being revived is
_TOGETHER = 960  # events processed at once: the cursor names them all in one property


@dataclass
class Processed:
    """What processing the events led to."""

    ready: list[Task] = field(default_factory=list)
    later: list[tuple[float, str]] = field(default_factory=list)  # not before, key
    ended: list[CompletionEvent] = field(default_factory=list)  # attempts that ended
    returned: list[CompletionEvent] = field(default_factory=list)  # claimed tasks given back
    more: bool = False  # some shard has more events


_Outcome = tuple[Live, CompletionEvent, TaskOutcome]  # what a cached request learns


class CompletionEvents:
    """Processes the events of shards that wake-ups or the sweep name.

    `epoch` guards the statistics, of which several rows are read `together`.
    """

    def __init__(
        self,
        runtime: Runtime,
        cache: ManagerCache,
        dependents: Dependents,
        epoch: int,
        together: Together = map,
    ) -> None:
        self._runtime = runtime
        self._history = OwnRows(runtime.store, together)
        self._tasks = runtime.tasks
        self._cache = cache
        self._dependents = dependents
        self._epoch = epoch
        self._shards: set[str] = set(SHARDS)  # with events, as far as is known
        self._after: dict[str, CompletionEvent] = {}  # where the next read of a shard begins
        self._again: set[str] = set()  # got events, maybe before that
        # Attempts that are counted but may still have events: an earlier manager's until all
        # events were read, this one's until their events are deleted.
        self._counted = set(history.take_over(runtime.store, epoch))

    def notice(self, shards: Iterable[str]) -> None:
        """Take note that these shards have completion events."""
        self._shards.update(shards)
        self._again.update(self._after.keys() & set(shards))

    def run(self) -> Processed:
        """Process the events that are known to be there, some of each shard.

        Raises:
            StoreError: storage failed; the rest is processed the next time.
            FencedError: a manager of a higher epoch acts.
        """
        self._read_unsure()
        limit = min(ROWS, _TOGETHER // max(1, len(self._shards)))
        events = {
            number: self._tasks.events(number, limit, self._after.get(number))
            for number in sorted(self._shards)
        }
        # All shards' together: a dependent of inputs in many gets one transaction.
        informed = self._inform([one for some in events.values() for one in some])
        result = Processed(ready=informed.ready)
        for number, some in events.items():
            self._settle(number, some, informed)
            self._counted -= {history.attempt_id(n) for n in some}
            result.later += [(n.not_before, n.key) for n in some if n.not_before]
            result.ended += [n for n in some if n.number and not n.counted]
            result.returned += filter(returned, some)
            if len(some) == limit:  # the rest of the shard next time, past what has to be kept
                self._after[number] = some[-1]
                result.more = True
            else:
                self._after.pop(number, None)
                self._shards.discard(number)
        if not result.more:
            self._counted = set()
        again = self._again - self._after.keys()
        self._again -= again
        result.more = result.more or bool(again)
        self.notice(again | set(map(shard, informed.ended)))  # which get events by this round
        return result

    def _read_unsure(self) -> None:
        """Read the interests again whose change got no answer: it may have taken effect."""
        for live in self._cache.requests.values():
            for key in sorted(live.unsure):
                self._ledger(live, key, afresh=True)
                live.unsure.discard(key)

    def _inform(self, events: Sequence[CompletionEvent]) -> Informed:
        attempts = [n for n in events if n.number]
        owners = {name: self._owner(name) for name in dict.fromkeys(n.sponsor for n in attempts)}
        parts = list(history.batches(attempts, owners))
        rows = {name: None for part in parts for name in sorted(part.rows)}
        self._history.read(history.TABLE, history.PARTITION, rows)
        for part in parts:
            # Before the call: its answer may get lost.
            self._counted |= {history.attempt_id(n) for n in part.events}
            self._count(part.events, owners)
        # While tasks are revived, dependents before their inputs, none gets a fallback task
        # over those that exist: what it lacks may be revived after it.
        held = _HELD if self._cache.retrying else ()
        informed = self._dependents.inform([one for one in events if one.state not in held])
        for one in events:
            if one.state in held:
                informed.kept.add(one.key)
                self._again.add(shard(one.key))
            elif one.state is State.WAITING:  # again, or its attempt met an input that is gone
                lost = one.category is not None and RULES[one.category].retry is Retry.HEAL
                informed.add(self._dependents.examine(one.key, look=lost))
        return informed

    def _count(self, batch: Sequence[CompletionEvent], owners: Mapping[str, str]) -> None:
        for left in reversed(range(5)):
            try:
                history.count(
                    self._history, batch, epoch=self._epoch, keep=self._counted, owners=owners
                )
            except ConflictError:
                if not left:
                    raise
            else:
                return

    def _owner(self, request: str) -> str:
        """Return whose request it is on whose account an attempt ran; empty if it is not known."""
        live = self._cache.requests.get(request)
        row = live.row if live is not None else RequestTable(self._runtime.store).request(request)
        return row.owner if row is not None else ""

    def _settle(self, number: str, events: Sequence[CompletionEvent], informed: Informed) -> None:
        """Notify the requests and delete the events, in as few transactions as there can be."""
        batch: list[_Record] = []
        used: set[str] = set()
        for one in events:
            for record in self._records(one, kept=one.key in informed.kept):
                names = {op.row for op in record.operations}
                if used & names or len(used) + len(names) > BATCH_OPERATIONS:
                    self._write(number, batch)
                    batch, used = [], set()
                batch.append(record)
                used |= names
        self._write(number, batch)

    def _records(self, event: CompletionEvent, *, kept: bool) -> Iterator["_Record"]:
        """Yield what a completion event leads to, in parts where many requests are concerned.

        The last part deletes the event if it may.
        """
        merges, outcomes, fence = self._merges(event)
        most = BATCH_OPERATIONS - 2
        parts = [merges[at : at + most] for at in range(0, len(merges), most)] or [[]]
        seen = note_counted(event)
        for part in parts[:-1]:
            yield _Record(event=event, merges=part, fence=fence, end=seen)
        etag = event.etag if len(parts) == 1 else None  # the parts before have changed it
        if merges or not kept or not event.counted:
            end = seen if kept else Delete(row=event.row, etag=etag)
            yield _Record(event=event, merges=parts[-1], fence=fence, end=end, outcomes=outcomes)

    def _merges(
        self, event: CompletionEvent
    ) -> tuple[list[MergeEntity], list[_Outcome], Replace | None]:
        merges: list[MergeEntity] = []
        outcomes: list[_Outcome] = []
        outcome, failed = self._outcome(event)
        if outcome is None:
            return merges, outcomes, None
        for request in event.interests:
            live = self._cache.requests.get(request)
            merge = record_outcome(
                request,
                event.key,
                outcome,
                category=event.category,
                message=event.message,
                files=event.files,
                stopped=outcome is TaskOutcome.FAILED and not event.number,
            )
            if live is None:
                if self._unrecorded(event, request, outcome):
                    merges.append(merge)
                continue
            entry = self._ledger(live, event.key)
            if entry is not None and entry.outcome not in (None, outcome):
                entry = self._ledger(live, event.key, afresh=True)  # cleared by a retry, perhaps
            if entry is not None and entry.outcome in (None, outcome):
                merges.append(merge)
                outcomes.append((live, event, outcome))
        return merges, outcomes, replace_task(failed) if failed and merges else None

    def _ledger(self, live: Live, key: str, *, afresh: bool = False) -> Entry | None:
        """Return what is recorded of a task for the request.

        It is read from the table when another manager, stalled since, wrote the interest.
        """
        if afresh or key not in live.ledger:
            interest = self._tasks.interest(live.id, key)
            if interest is not None:
                live.note(interest)
        return live.ledger.get(key)

    def _outcome(self, event: CompletionEvent) -> tuple[TaskOutcome | None, Task | None]:
        """Return the outcome to record: none while the task goes on, or once it was revived.

        A failure comes with the task as it was read: it may be recorded only while that is so.
        """
        if event.state is State.DONE:
            return TaskOutcome.DONE, None
        task = self._failed(event.key) if event.state is State.FAILED else None
        if task is None:
            return None, None
        if task.fallback:
            return TaskOutcome.SUPERSEDED, task
        upstream = event.category is Category.UPSTREAM_FAILED
        return TaskOutcome.GAP if upstream else TaskOutcome.FAILED, task

    def _failed(self, key: str) -> Task | None:
        """Return a task if it has failed, and was not revived."""
        task = self._tasks.task(key)
        return task if task is not None and task.state is State.FAILED else None

    def _unrecorded(self, event: CompletionEvent, request: str, outcome: TaskOutcome) -> bool:
        """Tell whether an outcome must be recorded for a request that is not in the cache.

        The request is not loaded yet, or it has ended and lists files that were made again since.
        """
        interest = self._tasks.interest(request, event.key)
        if interest is None:
            return False
        if interest.outcome is TaskOutcome.DONE is outcome:
            return interest.files != event.files
        return not interest.outcome

    def _write(self, number: str, batch: Sequence["_Record"]) -> None:
        operations = [op for record in batch for op in record.operations]
        if not operations:
            return
        touched = [(live, event.key) for one in batch for live, event, _ in one.outcomes]
        for live, key in touched:
            live.unsure.add(key)
        if self._accepted(number, operations):
            for record in batch:
                _note(record.outcomes)
        else:
            for record in batch:
                self._write_one(number, record)
        for live, key in touched:
            live.unsure.discard(key)

    def _write_one(self, number: str, record: "_Record") -> None:
        """Write what one event leads to: together, or else each interest by itself.

        Where more has changed than that interests were withdrawn, read them, and process the event
        again if it is still there.
        """
        if self._accepted(number, record.operations) or (
            self._as_read(number, record) and self._apart(number, record)
        ):
            _note(record.outcomes)
            return
        for live, event, _ in record.outcomes:
            self._ledger(live, event.key, afresh=True)
        self._again.add(number)

    def _as_read(self, number: str, record: "_Record") -> bool:
        """Tell whether the event of a record that was refused is there as it was read.

        If not, another manager has processed it, or a call of ours whose answer was lost; a retry
        may have cleared the outcomes since.
        """
        etag = self._tasks.etag(number, record.end.row)
        known = record.end.etag if isinstance(record.end, Delete) else None
        return bool(etag) and known in (None, etag)

    def _apart(self, number: str, record: "_Record") -> bool:
        """Write each interest that is still there, and then the end of the event.

        Return False if a write is refused for another reason: the task was revived.
        """
        seen = note_counted(record.event)
        for merge in record.merges:
            operations: list[Operation] = [merge, seen]
            if record.fence is not None:
                task = self._failed(record.event.key)
                if task is None:
                    return False
                operations.append(replace_task(task))
            if not self._accepted(number, operations) and self._tasks.etag(number, merge.row):
                return False
        # Without its ETag: the writes before have changed it.
        end = Delete(row=record.end.row) if isinstance(record.end, Delete) else seen
        self._accepted(number, [end])
        return True

    def _accepted(self, number: str, operations: Sequence[Operation]) -> bool:
        """Write in one transaction; False if it is refused. Raises StoreError."""
        try:
            self._tasks.transact(number, operations)
        except ConflictError as error:
            log.debug("transaction refused", shard=number, error=str(error))
            return False
        return True


@dataclass(frozen=True, kw_only=True)
class _Record:
    """Part of what a completion event leads to.

    It has the interests to change, in one transaction with the event and, of a failure, with the
    task, which must both be as they were read: a write that arrives late must not undo a retry. And
    it has what the cached requests learn by it.
    """

    event: CompletionEvent
    merges: Sequence[MergeEntity]
    fence: Replace | None  # of the task
    end: MergeEntity | Delete  # of the event
    outcomes: Sequence[_Outcome] = ()

    @property
    def operations(self) -> list[Operation]:
        return [*self.merges, *([self.fence] if self.fence else ()), self.end]


def _note(outcomes: Iterable[_Outcome]) -> None:
    for live, event, outcome in outcomes:
        live.record(event.key, outcome, event)
