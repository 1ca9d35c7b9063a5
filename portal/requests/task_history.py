"""The history of a task: each change of its state with its cause, from its rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from portal.serving.quantities import duration_text
from tasks.bag.model import Attempt, State, Task


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a task's state: when, to which, by what. `at` is 0 where the rows do not say."""

    at: float
    to: str
    cause: str


def history_of(task: Task, attempts: Sequence[Attempt]) -> tuple[Change, ...]:
    """List the changes of a task, the earliest first; the last is to its state now.

    `attempts` are those that have ended, the earliest first.
    """
    found = [*_attempts(attempts)]
    now = _now(task, attempts)
    if now is not None and (not found or found[-1].to != now.to):
        found.append(now)
    return tuple(found)


def _attempts(attempts: Sequence[Attempt]) -> Iterator[Change]:
    for before, one in pairwise((None, *attempts)):
        if one is None:
            continue
        waited = one.started - before.ended if before is not None else 0.0
        again = f", {duration_text(waited)} after the one before" if waited > 0 else ""
        yield Change(
            at=one.started, to="running", cause=f"attempt {one.number} on {one.worker}{again}"
        )
        if one.category is None:
            yield Change(at=one.ended, to="done", cause="its artifact is in storage")
        else:
            said = f": {one.message}" if one.message else ""
            yield Change(at=one.ended, to="attempt failed", cause=f"{one.category.value}{said}")


def _now(task: Task, attempts: Sequence[Attempt]) -> Change | None:
    ended = attempts[-1].ended if attempts else 0.0
    match task.state:
        case State.WAITING:
            left = task.missing.bit_count()
            return Change(
                at=0.0, to="waiting", cause=f"{left:,} of {task.inputs:,} inputs are not there yet"
            )
        case State.READY if task.not_before:
            return Change(at=ended, to="ready later", cause="it is tried again after a back-off")
        case State.READY:
            return Change(at=0.0, to="ready", cause="its inputs are there; it waits for a slot")
        case State.RUNNING:
            return Change(
                at=task.claimed_at,
                to="running",
                cause=f"attempt {task.attempt} on {task.worker}",
            )
        case State.FAILED:
            return Change(at=ended, to="failed", cause=_failed(task))
        case State.CANCELLED:
            return Change(at=0.0, to="cancelled", cause="no request wants it any more")
        case State.EXPIRED:
            return Change(
                at=0.0, to="expired", cause="its artifact was not worth keeping, or was lost"
            )
        case _:
            return Change(at=ended, to="done", cause="its artifact is in storage")


def _failed(task: Task) -> str:
    why = task.category.value if task.category else "no further try"
    return f"{why}: {task.reason}" if task.reason and task.reason != why else why
