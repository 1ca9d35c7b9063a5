"""What the manager's memory makes of interests and outcomes: progress, failed runs, what runs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from service_manager.dispatch import manager_cache
from service_manager.dispatch.ledger import Entry
from service_manager.dispatch.manager_cache import Live, ManagerCache, WatchedAttempt
from service_manager.requests import ending
from tasks.bag.categories import Category
from tasks.bag.model import MissingPolicy, Phase, RequestState, State, TaskOutcome
from tasks.bag.task_rows import CompletionEvent, Interest, in_effect
from tasks.requests import request_operations
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, RequestRow


def live(name: str = "r", **more: object) -> Live:
    row = RequestRow(id=name, owner="o", state=RequestState.RUNNING, submitted=1.0)
    return Live(row=replace(row, **more), policy=MissingPolicy.SKIP)  # type: ignore[arg-type]


def key(number: int) -> str:
    return f"{number:064x}"


def interest(number: int, phase: Phase = Phase.REPROJECTION, **more: object) -> Interest:
    return Interest(request="r", key=key(number), phase=phase, **more)  # type: ignore[arg-type]


def failure(number: int, message: str, phase: Phase = Phase.REDUCTION) -> CompletionEvent:
    return CompletionEvent(
        key=key(number),
        row="o|1",
        number=1,
        state=State.FAILED,
        category=Category.SERVER_BUSY,
        phase=phase,
        task_class="class",
        has_dependents=False,
        interests=("r",),
        not_before=0.0,
        message=message,
        fallback="",
        sponsor="r",
        files=(),
    )


def noted() -> Live:
    """A request with each outcome, several of some."""
    found = live(outputs=9, phases={Phase.REDUCTION: PhaseCount(total=5)})
    found.note(interest(0, Phase.COLLECTION, outcome=TaskOutcome.DONE, reused=True))
    found.note(interest(1, Phase.COLLECTION, outcome=TaskOutcome.DONE, reused=True))
    found.note(interest(2, Phase.COLLECTION, outcome=TaskOutcome.FAILED))
    found.note(interest(3, Phase.COLLECTION, outcome=TaskOutcome.GAP))
    found.note(interest(4, Phase.COLLECTION, outcome=TaskOutcome.DONE))
    for number in range(5, 7):
        found.note(interest(number, outcome=TaskOutcome.SUPERSEDED, output="out"))
    for number in range(7, 12):
        found.note(interest(number, output="out"))
    for number in range(12, 14):
        found.note(interest(number, Phase.REDUCTION, outcome=TaskOutcome.DONE, output="out"))
    found.note(interest(14, Phase.AGGREGATION, outcome=TaskOutcome.DONE, output="out"))
    return found


COLLECTED = PhaseCount(total=5, done=3, failed=2, reused=2)


def test_progress_counts_each_phase_by_outcome_and_what_runs() -> None:
    row = noted().with_progress([key(n) for n in (0, 7, 8, 9, 99)])
    assert row.phases == {
        Phase.COLLECTION: COLLECTED,
        Phase.REPROJECTION: PhaseCount(total=5, running=3),
        Phase.AGGREGATION: PhaseCount(total=1, done=1),
        Phase.REDUCTION: PhaseCount(total=2, done=2),
    }
    assert (row.id, row.outputs, row.delivered) == ("r", 8, 3)


DONE, FAILED, SUPERSEDED = TaskOutcome.DONE, TaskOutcome.FAILED, TaskOutcome.SUPERSEDED


@pytest.mark.parametrize(
    ("outcomes", "delivered"),
    [
        ((None, None), 0),
        ((SUPERSEDED, DONE), 1),
        ((None, DONE), 1),
        ((DONE, None), 1),
        ((DONE, DONE), 1),
        ((FAILED, DONE), 1),
        ((DONE, FAILED), 1),
        ((DONE, SUPERSEDED, DONE), 1),
        ((SUPERSEDED, DONE, DONE), 1),
        ((SUPERSEDED, SUPERSEDED, DONE), 1),
        ((SUPERSEDED, SUPERSEDED, None), 0),
    ],
)
def test_a_task_and_its_fallback_tasks_are_one_result(
    outcomes: tuple[TaskOutcome | None, ...], delivered: int
) -> None:
    """Another request's retry revives a task whose fallback task is in hand, or made."""
    last = len(outcomes) - 1
    interests = [
        interest(n, outcome=one, output="out", fallback="" if n == last else key(n + 1))
        for n, one in enumerate(outcomes)
    ]
    found = live()
    for one in reversed(interests):
        found.note(one)
    row = found.with_progress([])
    assert (row.outputs, row.delivered) == (1, delivered)
    if all(outcomes):
        assert len(request_operations.results_in(interests)) == delivered
        lacking = [Gap(what="a day", reason="it is not published")]
        verdict = ending.judge(MissingPolicy.SKIP, in_effect(interests), lacking)
        assert verdict.message.startswith(f"{delivered} of 1 results are there")
    for number in range(1, len(outcomes)):
        found.forget(key(number))
    assert not found.in_place


def test_progress_of_a_cancelled_request_counts_as_cancelled_what_was_withdrawn() -> None:
    found = noted()
    found.row = replace(found.row, state=RequestState.CANCELLING)
    for number in range(7, 12):
        found.forget(key(number))
    row = found.with_progress([])
    assert row.phases == {
        Phase.COLLECTION: COLLECTED,
        Phase.AGGREGATION: PhaseCount(total=1, done=1),
        Phase.REDUCTION: PhaseCount(total=5, done=2, cancelled=3),
    }
    assert (row.outputs, row.delivered) == (9, 3)


def test_progress_is_written_again_after_each_change_of_the_ledger() -> None:
    found = live()
    changes: list[Callable[[], None]] = [
        lambda: found.note(interest(1)),
        lambda: found.record(key(1), TaskOutcome.DONE),
        lambda: found.forget(key(1)),
    ]
    for change in changes:
        found.changed, found.quiet = False, 3
        change()
        assert found.changed
    assert found.pending == len(found.ledger) == 0


def test_only_the_first_outcome_of_a_task_in_the_ledger_is_recorded() -> None:
    found = live()
    found.note(interest(1, outcome=TaskOutcome.GAP))
    found.changed, found.quiet = False, 3
    for number in (1, 2):
        found.record(key(number), TaskOutcome.DONE)
    entry = found.ledger.get(key(1))
    assert entry is not None
    assert entry.outcome is TaskOutcome.GAP
    assert (len(found.ledger), found.changed, found.quiet) == (1, False, 3)
    found.note(interest(3))
    found.record(key(3), TaskOutcome.DONE)
    assert found.quiet == -1
    assert found.ledger.get(key(3)) == Entry(Phase.REPROJECTION, TaskOutcome.DONE)


def test_a_run_that_had_a_fallback_task_is_repeated_until_it_has_an_outcome() -> None:
    found = live()
    again = interest(1, Phase.REDUCTION, fallback="f")
    for other in (
        replace(again, phase=Phase.AGGREGATION),
        replace(again, fallback=""),
        replace(again, outcome=TaskOutcome.SUPERSEDED),
    ):
        found.note(again)
        assert found.repeated == {key(1)}
        found.note(other)
        assert found.repeated == set()
    found.note(again)
    found.record(key(1), TaskOutcome.DONE)
    assert found.repeated == set()
    found.note(again)
    found.forget(key(1))
    assert found.repeated == set()


def test_the_ways_in_which_runs_failed_are_known_up_to_two() -> None:
    found = live()
    failed = interest(
        1,
        Phase.REDUCTION,
        outcome=TaskOutcome.FAILED,
        category=Category.SERVER_BUSY,
        message="a",
    )
    for other in (
        replace(failed, phase=Phase.REPROJECTION),
        replace(failed, stopped=True),
        replace(failed, outcome=TaskOutcome.GAP),
    ):
        found.note(other)
        assert found.run_failures == set()
    found.note(failed)
    assert found.run_failures == {(Category.SERVER_BUSY, "a")}
    found.note(replace(failed, category=None, message="b"))
    found.note(replace(failed, message="c"))
    assert found.run_failures == {(Category.SERVER_BUSY, "a"), (Category.UNKNOWN, "b")}


def test_a_run_that_has_failed_now_is_known_by_its_event() -> None:
    found = live()
    for number in range(6):
        found.note(interest(number, Phase.REDUCTION))
    found.record(key(0), TaskOutcome.FAILED)
    found.record(key(1), TaskOutcome.FAILED, replace(failure(1, "no attempt"), number=0))
    found.record(key(2), TaskOutcome.SUPERSEDED, failure(2, "not failed"))
    found.record(key(3), TaskOutcome.FAILED, failure(3, "no run", Phase.REPROJECTION))
    assert found.run_failures == set()
    found.record(key(4), TaskOutcome.FAILED, failure(4, "wrong"))
    assert found.run_failures == {(Category.SERVER_BUSY, "wrong")}


def attempt(number: int, sponsor: str) -> WatchedAttempt:
    return WatchedAttempt(
        key=key(number),
        claim="c",
        worker="w",
        attempt=1,
        retries=0,
        phase=Phase.REPROJECTION,
        task_class="class",
        sponsor=sponsor,
        claimed_at=0.0,
        since=0.0,
    )


def test_a_manager_is_at_rest_once_no_request_goes_on_and_no_attempt_runs() -> None:
    cache, request, running = ManagerCache(), live(), attempt(1, "r")
    assert cache.at_rest
    cache.requests[request.id] = request
    assert not cache.at_rest
    cache.running[running.key] = running
    del cache.requests[request.id]
    assert not cache.at_rest


@pytest.mark.parametrize(("number", "all_of_them"), [(4, True), (5, False)])
def test_of_many_running_tasks_those_on_a_request_s_account_are_its_own(
    number: int, all_of_them: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_cache, "_FEW", 4)
    found = ManagerCache()
    found.running = {key(n): attempt(n, "r" if n < 2 else "other") for n in range(number)}
    own = range(number) if all_of_them else range(2)
    assert found.running_of(live()) == [key(n) for n in own]
