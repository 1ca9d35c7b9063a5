"""The state machine: every change a task can go through, as pure functions.

A function takes the task row as read and says what one transaction on its partition must write.
It raises `FencedError` when the row no longer allows the change. Nothing here reads, waits or
draws random numbers; `tasks.bag.protocol` does the reading and writing around it.

The markers of a task (ready, later, running) are a function of its row, so that the row and its
markers can never disagree. Completion events (`o|key|name`) are rows of their own: an ended attempt
or a terminal change that the manager has not processed yet.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from tasks.bag import task_table
from tasks.bag.categories import RULES, Category, Retry
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile, Attempt, State, Task, TaskOutcome
from tasks.bag.task_rows import Edge, Interest
from tasks.errors import FencedError
from tasks.settings import Settings, default
from tasks.storage.store import Delete, Insert, Operation, Upsert

_STRIKES = 2  # killed for memory so often, a task is not tried again at the same size


@dataclass(frozen=True, kw_only=True)
class Change:
    """A task as it will be, and the operations of the one transaction that makes it so.

    Without operations nothing changes.
    """

    task: Task
    operations: tuple[Operation, ...] = ()


Decision = Callable[[Task], Change]  # what becomes of a task as read


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often and how late an attempt is repeated. Delays in seconds."""

    budget: int = default("retry_budget")  # attempts in one generation
    losses: int = 10  # attempts lost with their workers in one generation
    base: float = default("retry_base")
    ceiling: float = 0.0  # the largest back-off; 0: 120 times the base
    longest: float = 21_600.0  # that a server may ask for

    @classmethod
    def of(cls, settings: Settings) -> "RetryPolicy":
        """Return the policy that the settings ask for."""
        return cls(budget=settings.retry_budget, base=settings.retry_base)

    def delay(self, retries: int, jitter: float, asked: float = 0.0) -> float:
        """Return the seconds of an exponential back-off.

        The delay is multiplied by 0.5 to 1.5 by `jitter` in [0, 1). It is at least `asked`, as far
        as that is allowed.
        """
        back_off = min(self.largest, self.base * 2.0**retries) * (0.5 + jitter)
        return max(min(asked, self.longest), back_off)

    @property
    def largest(self) -> float:
        """The largest back-off, before chance shortens or lengthens it."""
        return self.ceiling or 120.0 * self.base

    @property
    def most(self) -> float:
        """The longest delay."""
        return max(2 * self.largest, self.longest)


def create(
    spec: Spec, interest: Interest, missing: int, edges: Sequence[Edge] = (), rank: int = 0
) -> Change:
    """Create a task: its row, its specification, its first interest and its dependents.

    No other row can exist without the task's row. `missing` has a bit for each input that is not
    DONE.
    """
    stored, parts = task_table.stored_spec(interest.key, spec)
    task = Task(
        key=interest.key,
        phase=spec.phase,
        task_class=spec.task_class,
        inputs=len(spec.inputs),
        state=State.WAITING if missing else State.READY,
        missing=missing,
        has_dependents=bool(edges),
        interests=(interest.request,),
        sponsor=interest.request,
        rank=rank,
        spec=stored,
    )
    operations = (
        task_table.insert_task(task),
        *parts,
        *map(_inserted, (task_table.put_interest(interest), *_edges(edges))),
        *(Insert(row=m, entity=e) for m, e in task_table.markers(task).items()),
    )
    return Change(task=task, operations=operations)


def add_interest(
    task: Task, interest: Interest, missing: int, edges: Sequence[Edge] = (), rank: int = 0
) -> Change:
    """Add a request's interest to an existing task: reuse it, share it, or revive it.

    `missing` matters only when the task is revived: the inputs that are not DONE now. Of a task
    that is shared the lower rank counts.
    """
    interests = (
        task.interests
        if interest.request in task.interests
        else (*task.interests, interest.request)
    )
    new = replace(
        task,
        interests=interests,
        sponsor=task.sponsor or interest.request,
        has_dependents=task.has_dependents or bool(edges),
    )
    if not (task.state.live or task.state is State.DONE):
        new = replace(
            _fresh(new, missing),
            generation=task.generation + 1,
            sponsor=interest.request,
            rank=rank,
        )
    elif task.state in (State.WAITING, State.READY):
        new = replace(new, rank=min(task.rank, rank))
    ranked = new.state is task.state is State.READY and new.rank != task.rank
    extra = (
        task_table.put_interest(interest),
        *_edges(edges),
        *_waits(task, new),
        *(Upsert(row=m, entity=e) for m, e in task_table.markers(new).items() if ranked),
    )
    return _change(task, new, extra)


def link(task: Task, edges: Sequence[Edge]) -> Change:
    """Add dependents that wait for the task.

    The state of the task in this transaction is exact: an end that comes later finds the
    dependents.
    """
    return _change(task, replace(task, has_dependents=True), _edges(edges))


def drop(task: Task, request: str, past: Callable[[str], bool] = lambda _: False) -> Change:
    """Remove a request's interest in the task; a live task without interests is CANCELLED.

    `past` says whether another request got an earlier end of the task, which a further request has
    started over, and needs no other; its interest no longer keeps the task alive. The caller orders
    the kill of a running attempt by its worker and fencing token, after the change.
    """
    interests = tuple(w for w in task.interests if w != request)
    if task.state.live and all(map(past, interests)):
        interests = ()
    new = replace(task, interests=interests, sponsor=_sponsor(task, interests))
    extra: tuple[Operation, ...] = (Delete(row=task_table.interest_row(request, task.key)),)
    if not interests and task.state.live:
        new = replace(new, state=State.CANCELLED, category=Category.CANCELLED)
    return _change(task, new, extra if request in task.interests else ())


def leave(task: Task, requests: Container[str]) -> Task:
    """Return a task as it is when these requests alone have asked for it.

    A live one is CANCELLED: whoever asks for it later revives it.
    """
    interests = tuple(one for one in task.interests if one in requests)
    new = replace(task, interests=interests, sponsor=_sponsor(task, interests))
    if not task.state.live:
        return new
    return replace(
        new, state=State.CANCELLED, category=Category.CANCELLED, not_before=0.0, given=()
    )


def abandon(task: Task, past: Callable[[str], bool]) -> Change:
    """Change a live task to CANCELLED if all its requests are past; see `drop`.

    Their interests stay in their rows.
    """
    if not (task.state.live and all(map(past, task.interests))):
        return Change(task=task)
    new = replace(
        task, interests=(), sponsor="", state=State.CANCELLED, category=Category.CANCELLED
    )
    return _change(task, new)


def deliver(task: Task, request: str) -> Change:
    """Record a DONE task for a request that is about to end.

    This is done before the completion event of the task is processed, in one transaction with the
    task's row as it was read.
    """
    if task.state is not State.DONE or request not in task.interests:
        raise FencedError(f"task {task.key} is {task.state}, or not of request {request}")
    recorded = task_table.record_outcome(request, task.key, TaskOutcome.DONE, files=task.files)
    return _change(task, task, (recorded,))


def sponsor(task: Task, request: str) -> Change:
    """Put a task under another request with an interest in it (the sponsor was paused, say)."""
    if request not in task.interests:
        raise FencedError(f"task {task.key} has no interest of request {request}")
    return _change(task, replace(task, sponsor=request))


def claim(task: Task, fencing_token: str, worker: str, now: float, place: int = 0) -> Change:
    """READY -> RUNNING: a worker takes the task as attempt k + 1.

    `place` is the task's place in the batch that is claimed together.
    """
    if task.state is not State.READY or task.not_before:
        raise FencedError(f"task {task.key} is {task.state}, not ready")
    new = replace(
        task,
        state=State.RUNNING,
        claim=fencing_token,
        worker=worker,
        claimed_at=now,
        place=place,
        attempt=task.attempt + 1,
    )
    return _change(task, new)


def give_back(
    task: Task, fencing_token: str, category: Category | None = None, why: str = ""
) -> Change:
    """Change RUNNING to READY without an attempt: its worker did not begin what it had claimed.

    With a `category`, it goes into no batch the next time. The event says `why`, if there was no
    room for it, or, after `NOT_HERE`, why its host cannot run it.
    """
    _fence(task, fencing_token)
    new = replace(task, state=State.READY, claim="", worker="", category=category or task.category)
    return _change(task, new, (task_table.return_event(new, task.worker, why),))


def commit(task: Task, attempt: Attempt, files: Sequence[ArtifactFile]) -> Change:
    """Change RUNNING to DONE with the artifact, by the attempt that holds the claim.

    The row keeps the worker's name, because that worker's host has the artifact at hand.
    """
    _fence(task, attempt.claim)
    new = replace(task, state=State.DONE, files=tuple(files), category=None)
    return _change(task, new, _ended(new, attempt))


def fail(
    task: Task,
    attempt: Attempt,
    policy: RetryPolicy,
    *,
    now: float,
    jitter: float,
    asked: float = 0.0,
    healing: int = 0,
) -> Change:
    """Change RUNNING to READY (later), WAITING or FAILED, by the category.

    It is WAITING while an input is made again. `asked` is the delay in seconds that a server asked
    for; `healing` has the bits of the inputs that are missing or damaged. The manager also
    calls this function, with the same claim, for a lost worker.
    """
    _fence(task, attempt.claim)
    if attempt.category is None:
        raise ValueError("a failed attempt has a category")
    strikes = task.strikes + (attempt.category is Category.OUT_OF_MEMORY)
    losses = task.losses + (RULES[attempt.category].retry is Retry.ELSEWHERE)
    # What it was given may be gone, or damaged: the next attempt reads its inputs.
    base = replace(task, worker="", claim="", strikes=strikes, losses=losses, given=())
    spent = replace(base, retries=task.retries + 1)
    again = replace(
        spent,
        state=State.READY,
        not_before=now + policy.delay(task.retries, jitter, asked),
        category=attempt.category,
    )
    left = spent.retries < policy.budget and strikes < _STRIKES
    first = not task.retries
    match RULES[attempt.category].retry:
        case Retry.AT_ONCE:
            new = replace(base, state=State.READY, category=attempt.category)
        case Retry.ELSEWHERE if losses < policy.losses:
            delay = policy.delay(task.losses, jitter)
            new = replace(
                base, state=State.READY, not_before=now + delay, category=attempt.category
            )
        case Retry.HEAL | Retry.REPAIR if healing and left:
            new = replace(spent, state=State.WAITING, missing=healing, category=attempt.category)
        case Retry.BACK_OFF | Retry.HEAL if left:
            new = again
        case Retry.ONCE if left and (attempt.category is Category.OUT_OF_MEMORY or first):
            new = again
        case _:
            new = replace(
                spent, state=State.FAILED, category=attempt.category, reason=attempt.message
            )
    return _change(task, new, _ended(new, attempt))


def inputs_ended(
    task: Task,
    ended: int,
    lacking: int,
    files: Sequence[task_table.InputFiles] = (),
) -> Change:
    """Record that inputs have ended.

    `ended` and `lacking` (a subset of it) are bits of input indices; `files` are those of inputs
    that were made. WAITING becomes READY when all
    inputs exist. When all have ended and some are lacking, the task stays WAITING with `missing` 0,
    and the manager plans its fallback task, see `supersede`.
    """
    if task.state is not State.WAITING:
        return Change(task=task)
    new = replace(
        task,
        missing=task.missing & ~ended,
        lacking=(task.lacking | (lacking & task.missing)) & ~(ended & ~lacking),
    )
    new = task_table.with_inputs(new, task.missing & ended & ~lacking, files)
    if not new.missing and not new.lacking:
        new = replace(new, state=State.READY)
    return _change(task, new)


def reconsider(task: Task, inputs: int) -> Change:
    """Wait again for inputs that were lacking: they have been revived, and may come."""
    again = task.lacking & inputs
    if task.state is not State.WAITING or not again:
        return Change(task=task)
    new = replace(task, lacking=task.lacking & ~again, missing=task.missing | again)
    return _change(task, new, (task_table.wait_event(new),))


def supersede(task: Task, fallback: str, reason: str) -> Change:
    """Change WAITING with lacking inputs to FAILED, with the category of an upstream failure.

    `fallback` is the key of the fallback task, planned over the inputs that exist, or empty when
    none does; then `reason` is the first cause.
    """
    if task.state is not State.WAITING or task.missing or not task.lacking:
        raise FencedError(f"task {task.key} is not waiting with lacking inputs")
    new = replace(
        task,
        state=State.FAILED,
        category=Category.UPSTREAM_FAILED,
        fallback=fallback,
        reason=reason,
    )
    return _change(task, new, (task_table.end_event(new),))


def stop(task: Task, category: Category, reason: str, said: str) -> Change:
    """Change READY to FAILED without an attempt.

    Other tasks have failed for this `reason`, and this one would fail in the same way. `said` is
    what is reported to its requests.
    """
    if task.state is not State.READY:
        raise FencedError(f"task {task.key} is {task.state}, not ready")
    new = replace(task, state=State.FAILED, category=category, reason=reason)
    return _change(task, new, (task_table.end_event(new, said),))


def wake(task: Task, now: float) -> Change:
    """Make the task ready now that its back-off is over."""
    if task.state is not State.READY or not 0 < task.not_before <= now:
        raise FencedError(f"task {task.key} is not due")
    return _change(task, replace(task, not_before=0.0))


def heal(task: Task, missing: int, edges: Sequence[Edge] = ()) -> Change:
    """Change DONE or EXPIRED to READY or WAITING, because the artifact's blobs are missing.

    The artifact must be made again for the dependents of `edges`, which wait for it.
    """
    if task.state not in (State.DONE, State.EXPIRED):
        return Change(task=task)
    fresh = replace(
        _fresh(task, missing),
        struck=task.struck,
        generation=task.generation + 1,
        has_dependents=task.has_dependents or bool(edges),
    )
    return _change(task, fresh, (*_edges(edges), *_waits(task, fresh)))


def retry(task: Task, interests: Sequence[Interest], missing: int, lacking: int = 0) -> Change:
    """Somebody asks for another try: a task that is not live begins again with a fresh budget.

    `interests` get the outcome when it ends; they get it at once when it is DONE
    meanwhile. `missing` has a bit for each input that may still come, `lacking` for each that
    ended without an artifact and is not tried again.
    """
    asking = [interest for interest in interests if interest.request in task.interests]
    if not asking:
        raise FencedError(f"task {task.key} has no interest of those who ask for another try")
    new = task
    if not (task.state.live or task.state is State.DONE):
        new = replace(
            _fresh(task, missing | lacking),
            missing=missing,
            lacking=lacking,
            generation=task.generation + 1,
            sponsor=asking[0].request,
        )
    done = new.state is State.DONE
    cleared = [
        replace(
            interest,
            outcome=TaskOutcome.DONE if done else None,
            category=None,
            message="",
            stopped=False,
            reused=done,
            files=new.files,
        )
        for interest in asking
    ]
    extra = map(task_table.put_interest, cleared)
    return _change(task, new, (*extra, *_waits(task, new)))


def expire(task: Task) -> Change:
    """DONE -> EXPIRED, before its blobs are deleted; refused while the task has interests."""
    if task.state is not State.DONE or task.interests:
        raise FencedError(f"task {task.key} is {task.state}, with {len(task.interests)} interests")
    return _change(task, replace(task, state=State.EXPIRED, files=()))


def lose(task: Task, blob: str, *, strike: bool = False) -> Change:
    """Change DONE to EXPIRED: this blob of the artifact is no longer in storage, or of no use.

    The requests that received the artifact keep their interests, and are notified when the artifact
    has been made again. With `strike` its content is damaged though storage kept it well: the
    artifact is not made of the same bytes again.
    """
    lost = next((file for file in task.files if file.blob == blob), None)
    if lost is None:
        return Change(task=task)
    struck = task.struck
    if strike and lost.sha256 not in struck:
        struck = (*struck, lost.sha256)
    return _change(task, replace(task, state=State.EXPIRED, files=(), struck=struck))


def _sponsor(task: Task, interests: Sequence[str]) -> str:
    """Return the sponsor of a task that has these interests left."""
    return task.sponsor if task.sponsor in interests else (interests[0] if interests else "")


def _fresh(task: Task, missing: int) -> Task:
    return replace(
        task,
        state=State.WAITING if missing else State.READY,
        claim="",
        worker="",
        retries=0,
        strikes=0,
        losses=0,
        not_before=0.0,
        missing=missing,
        lacking=0,
        category=None,
        fallback="",
        reason="",
        files=(),
        struck=(),
        given=(),
    )


def _fence(task: Task, fencing_token: str) -> None:
    if task.state is not State.RUNNING or task.claim != fencing_token:
        raise FencedError(
            f"task {task.key} is {task.state} under claim {task.claim or 'none'}, "
            f"not {fencing_token}"
        )


def _edges(edges: Sequence[Edge]) -> tuple[Upsert, ...]:
    return task_table.put_edges(edges)


def _inserted(operation: Upsert) -> Insert:
    return Insert(row=operation.row, entity=operation.entity)


def _waits(before: Task, after: Task) -> tuple[Operation, ...]:
    """Return the completion event of a task that starts over and is waiting on inputs."""
    begun = after.generation != before.generation and after.state is State.WAITING
    return (task_table.wait_event(after),) if begun else ()


def _ended(task: Task, attempt: Attempt) -> tuple[Operation, ...]:
    """Return an attempt's end: its permanent row and the completion event for the manager."""
    return task_table.insert_attempt(attempt), task_table.attempt_event(task, attempt)


def _change(old: Task, new: Task, extra: Sequence[Operation] = ()) -> Change:
    if new.state is not State.READY and new.not_before:
        new = replace(new, not_before=0.0)
    if not new.state.live and new.given:
        new = replace(new, given=())
    if new == old and not extra:
        return Change(task=old)
    before, after = task_table.markers(old), task_table.markers(new)
    operations = (
        task_table.replace_task(new),
        *(Delete(row=m) for m in before if m not in after),
        *(Insert(row=m, entity=e) for m, e in after.items() if m not in before),
        *extra,
    )
    return Change(task=new, operations=operations)
