"""Change several tasks of one shard together, in as few transactions as the limits allow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from tasks.bag.model import Task
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tasks.bag.transitions import Change, Decision
from tasks.errors import ConflictError, FencedError, StoreError
from tasks.storage.limits import grouped
from tasks.storage.store import BATCH_OPERATIONS
from tasks.storage.updates import FIRST_WAIT, TRIES

log = structlog.get_logger("tasks.bag.batch")

_TOGETHER = 2  # transactions refused, before each task is written by itself


def change_tasks(
    runtime: Runtime, decisions: Mapping[str, Decision], first: Mapping[str, Task] | None = None
) -> dict[str, Task | None]:
    """Apply a transition to each of some tasks of one shard.

    Each decision is as in `protocol.change_task`. What a refused or broken transaction was to
    change is read again and decided again. `first` has readings to begin with.

    Returns the tasks as they are then: None for one that does not exist, or whose decision raised
    FencedError.

    Raises:
        StoreError: storage failed on each of several tries, for some of the tasks.
        ValueError: storage can never take what one of the tasks would become; the others are
            written.
    """
    work = _Work(runtime=runtime, left=dict(decisions), known=dict(first or {}))
    for tries in range(TRIES):
        if not work.left:
            break
        if not work.round():
            runtime.clock.sleep(FIRST_WAIT * 2**tries)
    if work.left:
        raise StoreError(
            f"{len(work.left)} tasks: gave up after {TRIES} tries: {work.last}"
        ) from work.last
    if work.impossible:
        raise work.impossible[0]
    return work.found


@dataclass
class _Work:
    """What is left to decide and to write; `known` are readings, `found` what is settled."""

    runtime: Runtime
    left: dict[str, Decision]
    known: dict[str, Task]
    found: dict[str, Task | None] = field(default_factory=dict)
    impossible: list[ValueError] = field(default_factory=list)
    last: StoreError | None = None
    refused: int = 0

    def round(self) -> bool:
        """Decide and write once; return whether each call was answered."""
        changes: dict[str, Change] = {}
        answered = True
        try:
            self._decide(changes)
        except StoreError as error:
            self.last, answered = error, False
        together = self.refused < _TOGETHER
        for keys in grouped(
            shard(next(iter(changes), "0")),
            changes,
            lambda key: changes[key].operations,
            most=BATCH_OPERATIONS if together else 1,
        ):
            answered = self._write({key: changes[key] for key in keys}) and answered
        return answered

    def _decide(self, changes: dict[str, Change]) -> None:
        """Read what is not known, and note what is to be written."""
        if unread := sorted(self.left.keys() - self.known.keys()):
            self.known |= self.runtime.tasks.tasks(shard(unread[0]), unread)
        for key, decide in list(self.left.items()):
            change = None
            if key in self.known:
                try:
                    change = decide(self.known[key])
                except FencedError as error:
                    log.debug("fenced", task=key, error=str(error))
            if change is not None and change.operations:
                changes[key] = change
            else:
                self.found[key] = change.task if change is not None else None
                del self.left[key]

    def _write(self, part: Mapping[str, Change]) -> bool:
        number = shard(next(iter(part)))
        operations = [operation for change in part.values() for operation in change.operations]
        try:
            etags = self.runtime.tasks.transact(number, operations)
        except ValueError as error:
            self.refused = _TOGETHER
            if len(part) == 1:
                self.impossible.append(error)
                self.left = {key: one for key, one in self.left.items() if key not in part}
            return True
        except StoreError as error:
            log.debug("read again", shard=number, tasks=len(part), error=str(error))
            self.last = error
            self.known = {key: one for key, one in self.known.items() if key not in part}
            if not isinstance(error, ConflictError):
                return False
            self.refused += 1
            return True
        at = 0
        for key, change in part.items():
            self.found[key] = tagged(change.task, etags[at:])
            at += len(change.operations)
            del self.left[key]
        return True


def tagged(task: Task, etags: Sequence[str]) -> Task:
    """Return a task with its ETag after a transaction, whose first row is always the task's own."""
    if not etags:
        return task
    # `replace` takes many times as long, and this is done for each task of a plan.
    found = object.__new__(Task)
    vars(found).update(vars(task), etag=etags[0])
    return found
