"""The worker's side of the task protocol: claim, commit, fail.

Each write is one ETag-guarded transaction. After a refused or broken call the row is read again,
and the fencing token in it decides: an answer that was lost is never taken for a failure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from tasks.errors import FencedError, StoreError
from tasks.model.categories import Category
from tasks.model.model import ArtifactFile, Attempt, State, Task
from tasks.model.spec import Spec
from tasks.model.task_keys import shard
from tasks.storage.store import Operation, Row
from tasks.tables import task_table, transitions
from tasks.tables.runtime import Runtime, new_id
from tasks.tables.transitions import Change, RetryPolicy

log = structlog.get_logger("tasks.tables.protocol")


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A task this worker may run: `task` is RUNNING under `claim`."""

    task: Task
    spec: Spec
    input_files: Mapping[int, tuple[ArtifactFile, ...]]

    @property
    def claim(self) -> str:
        """The fencing token, which also names the attempt's blobs."""
        return self.task.claim

    def attempt(
        self,
        *,
        started: float,
        ended: float,
        duration: float,
        category: Category | None = None,
        message: str = "",
        log: str = "",
        peak_memory: int = 0,
    ) -> Attempt:
        """Return the record of this attempt, for `commit` or `fail`."""
        return Attempt(
            key=self.task.key,
            number=self.task.attempt,
            claim=self.claim,
            phase=self.task.phase,
            task_class=self.task.task_class,
            worker=self.task.worker,
            started=started,
            ended=ended,
            duration=duration,
            category=category,
            message=message,
            log=log,
            peak_memory=peak_memory,
        )


def claim(
    runtime: Runtime, key: str, worker: str, policy: RetryPolicy, fencing_token: str = ""
) -> Claimed | None:
    """Take a READY task, or None when there is nothing to take: the message was stale or doubled.

    Inputs are read before the claim. One that is not DONE any more (another task found its blobs
    missing) makes this a failed attempt by `policy`, so that the manager sees to it.

    Raises:
        StoreError: storage does not answer; the monitor deals with what may have been claimed.
    """
    task = runtime.tasks.task(key)
    if task is None or not _claimable(task):
        return None
    spec = runtime.tasks.spec(key)
    inputs = {i: runtime.tasks.task(given.key) for i, given in enumerate(spec.inputs)}
    fencing_token = fencing_token or new_id(runtime.random)
    taken = _take(runtime, key, worker, fencing_token, first=task)
    if taken is None:
        return None
    absent = sum(1 << i for i, t in inputs.items() if t is None or t.state is not State.DONE)
    claimed = Claimed(
        task=taken,
        spec=spec,
        input_files={
            i: _wanted(t.files, spec.inputs[i].file) for i, t in inputs.items() if t is not None
        },
    )
    if absent:
        now = runtime.clock.now()
        attempt = claimed.attempt(
            started=now,
            ended=now,
            duration=0.0,
            category=Category.SOURCE_BLOB_MISSING,
            message="an input is being made again",
        )
        fail(runtime, attempt, policy, healing=absent)
        return None
    return claimed


def commit(
    runtime: Runtime,
    attempt: Attempt,
    files: Sequence[ArtifactFile],
    first: Task | None = None,
) -> bool:
    """Change a task from RUNNING to DONE; the blobs of `files` must be stored.

    `first` is the task as claimed. If its row has not changed since, the row is not read again.

    Returns:
        Whether this attempt's artifact is the task's. If False, another attempt holds the task
        under another fencing token: leave the blobs alone, the sweep deletes them.

    Raises:
        StoreError: storage does not answer and the outcome is unknown. Calling again is safe.
        ValueError: there are more files than a row can name (about 200).
    """
    return _end(runtime, attempt, lambda task: transitions.commit(task, attempt, files), first)


def fail(
    runtime: Runtime,
    attempt: Attempt,
    policy: RetryPolicy,
    asked: float = 0.0,
    healing: int = 0,
) -> bool:
    """Change a task from RUNNING to READY (later), WAITING or FAILED, by the attempt's category.

    `asked` is a delay in seconds that the server asked for; `healing` has a bit for each input
    whose blob is missing or damaged. The manager calls this function for a lost worker. It returns
    and raises the same as `commit`.
    """
    jitter = runtime.random.random()
    now = runtime.clock.now()

    def decide(task: Task) -> Change:
        return transitions.fail(
            task, attempt, policy, now=now, jitter=jitter, asked=asked, healing=healing
        )

    return _end(runtime, attempt, decide)


def lose_inputs(runtime: Runtime, claimed: Claimed, damaged: int) -> None:
    """Record that an attempt found inputs damaged in storage, before the attempt fails.

    `damaged` has a bit for each such input; `lose` is called for each. Raises StoreError as `lose`
    does. The call may be repeated.
    """
    for i, given in enumerate(claimed.spec.inputs):
        for file in claimed.input_files.get(i, ()) if damaged >> i & 1 else ():
            lose(runtime, given.key, file.blob)


def lose(runtime: Runtime, key: str, blob: str) -> None:
    """Record that this blob of an artifact is missing or damaged.

    The artifact is made again for whoever needs it, unless it has been made again already.

    Raises:
        StoreError: storage failed on each of several tries.
    """
    change_task(runtime, key, lambda task: transitions.lose(task, blob))


def change_task(
    runtime: Runtime,
    key: str,
    decide: transitions.Decision,
    *,
    first: Task | None = None,
    create: Callable[[], Change] | None = None,
) -> Task | None:
    """Apply a transition under its ETag, reading again after each refused or broken call.

    `decide` sees each reading and must recognise its own earlier success (by changing nothing).
    `first` is a reading to begin with, however old; `create` makes the task when there is none.
    Returns the task as it is then, with its ETag where the store told it, or None when there is no
    such task.

    Raises:
        FencedError: `decide` raised it.
        StoreError: storage failed on each of several tries.
    """
    found: list[Task] = []

    def change(row: Row | None) -> tuple[Operation, ...]:
        if row is None:
            if create is None:
                found.clear()
                return ()
            result = create()
            found[:] = [result.task]
            return result.operations
        result = decide(task_table.TASK.load(row))
        found[:] = [result.task]
        return result.operations

    if first is not None:
        try:
            result = decide(first)
            if result.operations:
                etags = runtime.tasks.transact(shard(key), result.operations)
                return _tagged(result.task, etags)
        except StoreError as error:
            log.debug("read again", task=key, error=str(error))
    etags = runtime.tasks.update(runtime.clock, key, change)
    return _tagged(found[0], etags) if found else None


def _tagged(task: Task, etags: Sequence[str]) -> Task:
    """Return a task with its ETag after a transaction, whose first row is always the task's own."""
    return replace(task, etag=etags[0]) if etags else task


def _take(runtime: Runtime, key: str, worker: str, fencing_token: str, first: Task) -> Task | None:
    now = runtime.clock.now()

    def decide(task: Task) -> Change:
        if task.claim == fencing_token:
            return Change(task=task, operations=())
        return transitions.claim(task, fencing_token, worker, now)

    try:
        taken = change_task(runtime, key, decide, first=first)
    except FencedError:
        return None
    if taken is None or taken.state is not State.RUNNING or taken.claim != fencing_token:
        return None
    return taken


def _end(
    runtime: Runtime,
    attempt: Attempt,
    decide: transitions.Decision,
    first: Task | None = None,
) -> bool:
    """End an attempt once.

    The attempt's row, written in the same transaction, tells whether the end took effect: the task
    itself may have moved on since.
    """
    key = attempt.key

    def once(task: Task) -> Change:
        try:
            return decide(task)
        except FencedError:
            ended = runtime.tasks.attempt(key, attempt.number)
            if ended is None or ended.claim != attempt.claim:
                raise
            if ended.category != attempt.category:
                raise
            return Change(task=task, operations=())

    try:
        task = change_task(runtime, key, once, first=first)
    except FencedError:
        return False
    runtime.wakeups.publish(key)
    return task is not None


def _claimable(task: Task) -> bool:
    return task.state is State.READY and not task.not_before


def _wanted(files: tuple[ArtifactFile, ...], name: str) -> tuple[ArtifactFile, ...]:
    return tuple(f for f in files if not name or f.name == name)
