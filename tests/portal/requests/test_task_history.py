"""The history of a task: each change of its state with its cause."""

from dataclasses import replace

import pytest

from portal.requests.task_history import history_of
from tasks.bag.categories import Category
from tasks.bag.model import Attempt, Phase, State, Task


def attempt(number: int, started: float, category: Category | None, message: str = "") -> Attempt:
    return Attempt(
        key="k",
        number=number,
        claim="c",
        phase=Phase.COLLECTION,
        task_class="c",
        worker=f"worker-{number}",
        started=started,
        ended=started + 5,
        duration=5.0,
        category=category,
        message=message,
    )


def task(state: State, **more: object) -> Task:
    made = Task(key="k", phase=Phase.COLLECTION, task_class="c", inputs=3, state=state)
    return replace(made, **more)  # type: ignore[arg-type]


def test_attempts_and_what_followed_are_told_in_order() -> None:
    busy = attempt(1, 100.0, Category.SERVER_BUSY, "503")
    found = history_of(task(State.DONE), [busy, attempt(2, 117.0, None)])
    assert [(one.at, one.to, one.cause) for one in found] == [
        (100.0, "running", "attempt 1 on worker-1"),
        (105.0, "attempt failed", "server busy: 503"),
        (117.0, "running", "attempt 2 on worker-2, 12 s after the one before"),
        (122.0, "done", "its artifact is in storage"),
    ]


@pytest.mark.parametrize(
    ("now", "to", "cause"),
    [
        (task(State.WAITING, missing=0b101), "waiting", "2 of 3 inputs are not there yet"),
        (task(State.READY), "ready", "its inputs are there; it waits for a slot"),
        (task(State.READY, not_before=9.0), "ready later", "it is tried again after a back-off"),
        (task(State.RUNNING, attempt=1, worker="w"), "running", "attempt 1 on w"),
        (task(State.CANCELLED), "cancelled", "no request wants it any more"),
        (
            task(State.FAILED, category=Category.UPSTREAM_FAILED, reason="a.hdf: cut"),
            "failed",
            "upstream failed: a.hdf: cut",
        ),
        (task(State.EXPIRED), "expired", "its artifact was not worth keeping, or was lost"),
        (task(State.DONE), "done", "its artifact is in storage"),
    ],
)
def test_the_state_now_has_its_cause(now: Task, to: str, cause: str) -> None:
    (found,) = history_of(now, [])
    assert (found.to, found.cause) == (to, cause)
