"""The worker's side of the task protocol: claim, commit, fail, give back.

A batch is claimed and ended together: the changes of its tasks share transactions. Each task still
has its own row, fencing token and attempt. After a refused or broken call the rows are read again,
and the fencing token in each decides: an answer that was lost is never taken for a failure, and a
task that has moved on costs the others of its batch nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from tasks.bag import task_table, transitions
from tasks.bag.batch import change_tasks, tagged
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import NO_USE, ArtifactFile, Attempt, RunUse, State, Task, Use
from tasks.bag.runtime import Runtime, new_id
from tasks.bag.task_keys import shard
from tasks.bag.transitions import Change, RetryPolicy
from tasks.errors import FencedError, StoreError
from tasks.storage.store import Operation, Row

log = structlog.get_logger("tasks.bag.protocol")


INPUT_ABSENT = "an input is being made again"
"""What is said of an attempt that failed for want of an input."""
NOT_HERE = "not here: "
"""How the reason begins of a task that was given back because its host cannot run it."""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A task this worker may run: `task` is RUNNING under `claim`.

    Bit i of `absent`: input i is not DONE any more, and the attempt fails for it at once.
    """

    task: Task
    spec: Spec
    input_files: Mapping[int, tuple[ArtifactFile, ...]]
    absent: int = 0

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
        used: RunUse | None = None,
        reading: str = "",
        use: Use = NO_USE,
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
            used=used,
            reading=reading,
            use=use,
        )


@dataclass(frozen=True, kw_only=True)
class End:
    """How an attempt ended: with the artifact's files, or with the attempt's failure category.

    The blobs of `files` must be stored. `asked` is a delay in seconds that the server asked for;
    `healing` has a bit for each input that is missing or damaged. `first` is the task as
    claimed: if its row has not changed since, the row is not read again.
    """

    attempt: Attempt
    files: Sequence[ArtifactFile] = ()
    asked: float = 0.0
    healing: int = 0
    first: Task | None = None


def claim(runtime: Runtime, key: str, worker: str, policy: RetryPolicy) -> Claimed | None:
    """Claim a batch of one task, as `claim_batch`; None when there is nothing to take."""
    return next(iter(claim_batch(runtime, [key], worker, policy)), None)


def claim_batch(
    runtime: Runtime, keys: Sequence[str], worker: str, policy: RetryPolicy
) -> list[Claimed]:
    """Take those of some tasks that are READY, in the order of `keys`.

    All keys are of one shard. A message that was stale or doubled takes nothing.

    Inputs of which a task's row does not have the files are read before the claim. A task with one
    that is not DONE any more (another task found its blobs missing) has a failed attempt by
    `policy`, so that the manager sees to it. If storage does not take that end, the task is
    returned with what is `absent`, and its worker ends it.

    Raises:
        StoreError: storage does not answer; the monitor deals with what may have been claimed.
    """
    number = shard(keys[0])
    seen = runtime.tasks.tasks(number, sorted(set(keys)))
    found = {key: seen[key] for key in keys if key in seen and _claimable(seen[key])}
    if not found:
        return []
    specs = runtime.tasks.specs(number, found)
    given = {key: dict(task.given) for key, task in found.items()}
    read = runtime.tasks.tasks_of_all(
        one.key
        for key, spec in specs.items()
        for i, one in enumerate(spec.inputs)
        if i not in given[key]
    )
    taken = _take(runtime, found, worker)
    claimed, lacking = list[Claimed](), list[Claimed]()
    for key, task in taken.items():
        files, absent = dict[int, tuple[ArtifactFile, ...]](), 0
        for i, wanted in enumerate(specs[key].inputs):
            known = given[key].get(i)
            if known is None:
                made = read.get(wanted.key)
                absent |= (made is None or made.state is not State.DONE) << i
                known = made.files if made is not None else ()
            files[i] = _wanted(known, wanted.file)
        one = Claimed(task=task, spec=specs[key], input_files=files, absent=absent)
        (lacking if absent else claimed).append(one)
    if lacking:
        try:
            end_batch(runtime, [_without_input(runtime, one) for one in lacking], policy)
        except StoreError:
            claimed += lacking
    return claimed


def end_batch(runtime: Runtime, ends: Sequence[End], policy: RetryPolicy) -> list[bool]:
    """Change tasks of one shard from RUNNING to what their attempts' ends make of them.

    With files that is DONE; else READY (later), WAITING or FAILED, by the attempt's category. The
    manager calls this function for the attempts of a lost worker.

    Returns:
        For each end, whether it took effect. If not, another attempt holds the task under another
        fencing token: leave the blobs alone, the sweep deletes them.

    Raises:
        StoreError: storage does not answer and some outcome is unknown. Calling again is safe.
        ValueError: a task has more files than a row can name (about 200). All others are written.
    """
    now = runtime.clock.now()
    decisions: dict[str, transitions.Decision] = {}
    for end in ends:
        decisions[end.attempt.key] = _once(runtime, end, policy, now)
    first = {end.attempt.key: end.first for end in ends if end.first is not None}
    after = change_tasks(runtime, decisions, first=first)
    ours = [key for key in decisions if after[key] is not None]
    if ours:
        runtime.wakeups.publish(*ours)
    return [end.attempt.key in ours for end in ends]


def commit(
    runtime: Runtime,
    attempt: Attempt,
    files: Sequence[ArtifactFile],
    first: Task | None = None,
) -> bool:
    """Change a task from RUNNING to DONE, as `end_batch`."""
    end = End(attempt=attempt, files=files, first=first)
    return end_batch(runtime, [end], RetryPolicy())[0]


def fail(
    runtime: Runtime,
    attempt: Attempt,
    policy: RetryPolicy,
    asked: float = 0.0,
    healing: int = 0,
) -> bool:
    """Change a task from RUNNING to what its failed attempt makes of it, as `end_batch`."""
    return end_batch(runtime, [End(attempt=attempt, asked=asked, healing=healing)], policy)[0]


def give_back(
    runtime: Runtime,
    claims: Mapping[str, str],
    category: Category | None = None,
    why: str = "",
) -> None:
    """Change claimed tasks of one shard that were not begun from RUNNING to READY.

    `claims` has their fencing tokens by key. No attempt is recorded and no budget spent. With a
    `category`, each goes into no batch the next time. `why` says for what there was no room.
    Raises StoreError as `change_tasks` does.
    """

    def decision(token: str) -> transitions.Decision:
        return lambda task: transitions.give_back(task, token, category, why)

    change_tasks(runtime, {key: decision(token) for key, token in claims.items()})
    runtime.wakeups.publish(*claims)


def lose_damaged_inputs(runtime: Runtime, claimed: Claimed, end: End) -> None:
    """Record that an attempt found inputs damaged, before the attempt fails.

    They were damaged in storage (corrupt blob read), or storage keeps well what was damaged when it
    came (unreadable input file). `lose` is called for each. Raises StoreError as `lose` does. The
    call may be repeated.
    """
    category = end.attempt.category
    if category not in (Category.CORRUPT_BLOB_READ, Category.UNREADABLE_INPUT_FILE):
        return
    strike = category is Category.UNREADABLE_INPUT_FILE
    for i, given in enumerate(claimed.spec.inputs):
        if end.healing >> i & 1:
            for file in claimed.input_files[i]:
                lose(runtime, given.key, file.blob, strike=strike)


def lose(runtime: Runtime, key: str, blob: str, *, strike: bool = False) -> None:
    """Record that this blob of an artifact is missing or damaged.

    The artifact is made again for whoever needs it, unless it has been made again already; with
    `strike`, of other bytes.

    Raises:
        StoreError: storage failed on each of several tries.
    """
    change_task(runtime, key, lambda task: transitions.lose(task, blob, strike=strike))


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
                return tagged(result.task, etags)
        except StoreError as error:
            log.debug("read again", task=key, error=str(error))
    etags = runtime.tasks.update(runtime.clock, key, change)
    return tagged(found[0], etags) if found else None


def _take(runtime: Runtime, found: Mapping[str, Task], worker: str) -> dict[str, Task]:
    """Claim tasks as they were read; return those that are ours then."""
    now = runtime.clock.now()

    def decision(place: int) -> transitions.Decision:
        token = new_id(runtime.random)

        def decide(task: Task) -> Change:
            if task.claim == token:
                return Change(task=task)
            return transitions.claim(task, token, worker, now, place)

        return decide

    decisions = {key: decision(place) for place, key in enumerate(found)}
    after = change_tasks(runtime, decisions, first=found)
    return {
        key: task
        for key in found
        if (task := after[key]) is not None and task.state is State.RUNNING
    }


def _without_input(runtime: Runtime, claimed: Claimed) -> End:
    now = runtime.clock.now()
    attempt = claimed.attempt(
        started=now,
        ended=now,
        duration=0.0,
        category=Category.SOURCE_BLOB_MISSING,
        message=INPUT_ABSENT,
    )
    return End(attempt=attempt, healing=claimed.absent, first=claimed.task)


def _once(runtime: Runtime, end: End, policy: RetryPolicy, now: float) -> transitions.Decision:
    """Decide an attempt's end once.

    The attempt's row, written in the same transaction, tells whether the end took effect: the task
    itself may have moved on since.
    """
    attempt = end.attempt
    jitter = runtime.random.random()

    def decide(task: Task) -> Change:
        try:
            if attempt.category is None:
                return transitions.commit(task, attempt, end.files)
            return transitions.fail(
                task, attempt, policy, now=now, jitter=jitter, asked=end.asked, healing=end.healing
            )
        except FencedError:
            ended = runtime.tasks.attempt(attempt.key, attempt.number)
            if ended is None or ended.claim != attempt.claim:
                raise
            if ended.category != attempt.category:
                raise
            return Change(task=task)

    return decide


def _claimable(task: Task) -> bool:
    return task.state is State.READY and not task.not_before


def _wanted(files: tuple[ArtifactFile, ...], name: str) -> tuple[ArtifactFile, ...]:
    return tuple(f for f in files if not name or f.name == name)
