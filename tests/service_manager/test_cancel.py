"""A cancelled request: told at once, withdrawn soon, its finished results kept, its counts true."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from service_manager.options import ManagerOptions
from tasks.bag import protocol
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import Phase, RequestOrder, RequestState, State, TaskOutcome
from tasks.bag.task_table import RowKind, TaskTable, kind_of
from tasks.bag.transitions import RetryPolicy
from tasks.requests import outbox, request_operations, retrying
from tasks.requests.request_table import RequestRow, RequestTable
from tasks.requests.retrying import Scope
from tasks.setting_values import Confirm
from tasks.storage.memory_store import MemoryStore
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

NUMBER = 150  # granules, and as many results
G = [collect(f"g{i}") for i in range(NUMBER)]
TOPS = [mosaic(f"top{i}", granule) for i, granule in enumerate(G)]
PLAN = plan_of(*G, *TOPS, outputs={spec.name: f"out/{spec.name}" for spec in TOPS})
BROKEN = min(granule.key for granule in G)


def bench(options: ManagerOptions | None = None) -> Bench:
    """A machine on which one granule is damaged."""
    return Bench(
        plans={"p": PLAN},
        options=options or ManagerOptions(window=20),
        decide=lambda c: Category.BAD_IMAGE_FORMAT if c.task.key == BROKEN else None,
    )


def in_the_middle(b: Bench, title: str = "p", **more: object) -> str:
    """A request of which some results are there."""
    request = b.submit(title, **more)  # type: ignore[arg-type]
    while not (b.row(request).delivered > 20 and BROKEN in b.ran):
        b.rounds(1)
    assert b.row(request).delivered < NUMBER - 40
    return request


def slow(b: Bench) -> None:
    """From now on one transaction in each round."""
    b.options = replace(b.options, slice=0.0)
    b.restart(epoch=2)


def results(b: Bench, request: str) -> set[str]:
    return {interest.name for interest in request_operations.results(b.runtime, request)}


def cancel(b: Bench, request: str) -> RequestRow:
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    return b.row(request)


def until(b: Bench, there: Callable[[], bool]) -> None:
    """Manager's rounds, without the worker, until something is so."""
    for _ in range(200):
        if there():
            return
        b.manager.tick()
        b.runtime.clock.sleep(1)
    raise AssertionError("it did not come")


def counts_are_true(b: Bench, request: str) -> None:
    """The row counts what is listed, and all that was planned."""
    row = b.row(request)
    interests = list(request_operations.interests(b.runtime, request))
    made = [interest for interest in interests if interest.output and interest.outcome == "done"]
    assert (row.delivered, row.outputs) == (len(made), NUMBER)
    assert sum(count.total for count in row.phases.values()) == 2 * NUMBER
    for phase, count in row.phases.items():
        told = [interest.outcome for interest in interests if interest.phase is phase]
        assert count.done == told.count(TaskOutcome.DONE)
        assert count.failed == told.count(TaskOutcome.FAILED) + told.count(TaskOutcome.GAP)
        assert (count.left, count.running) == (0, 0)
        assert count.cancelled == count.total - count.done - count.failed


def test_it_is_told_at_once_and_keeps_every_finished_result() -> None:
    b = bench()
    request = in_the_middle(b)
    before, delivered = results(b, request), b.row(request).delivered
    assert len(before) > 20
    row = cancel(b, request)
    assert (row.state, row.delivered) == (RequestState.CANCELLING, delivered)
    until(b, lambda: b.row(request).state.ended)
    assert before <= results(b, request)
    counts_are_true(b, request)
    row = b.row(request)
    assert row.state is RequestState.CANCELLED
    said = f"{row.delivered} of {NUMBER} results were finished and are kept"
    assert said in row.message
    for interest in request_operations.results(b.runtime, request):
        task = b.runtime.tasks.task(interest.key)
        assert task is not None
        assert (task.state, interest.files) == (State.DONE, task.files)
    assert next(request_operations.failures(b.runtime, request)).key == BROKEN
    (mail,) = outbox.mails(b.runtime.store, request)
    assert mail.subject == "p: cancelled"
    text = " ".join(mail.body.split())
    assert said in text
    assert f"{row.delivered} files" in text
    assert "bad image format" in text


def test_nothing_of_it_is_sent_or_begun_any_more() -> None:
    b = bench()
    request = in_the_middle(b)
    b.manager.tick()
    waiting = [*b.sent]  # messages that workers have yet to take
    assert waiting
    cancel(b, request)
    b.runtime.clock.sleep(1)
    b.sent.clear()
    until(b, lambda: b.row(request).state.ended)
    assert b.sent == []
    for key in waiting:
        assert protocol.claim(b.runtime, key, "late", RetryPolicy()) is None
    live = [row for row in _tasks(b) if row["state"] in ("waiting", "ready", "running")]
    assert live == []


def test_what_was_committed_and_not_told_yet_counts() -> None:
    b = bench()
    request = in_the_middle(b)
    known = results(b, request)
    untold: list[str] = []
    while not untold:
        b.manager.tick()
        b.work()  # committed; no manager has heard of it
        b.runtime.clock.sleep(1)
        untold = [
            interest.name
            for interest in request_operations.interests(b.runtime, request)
            if interest.output and not interest.outcome and _state(b, interest.key) is State.DONE
        ]
    cancel(b, request)
    until(b, lambda: b.row(request).state.ended)
    assert known | set(untold) <= results(b, request)
    counts_are_true(b, request)


@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_manager_that_dies_meanwhile_is_followed_by_one_that_goes_on(after: int) -> None:
    b = bench()
    request = in_the_middle(b)
    slow(b)
    before = results(b, request)
    cancel(b, request)
    for _ in range(after):
        b.manager.tick()
        b.runtime.clock.sleep(1)
    row = b.row(request)
    assert row.state is RequestState.CANCELLING
    assert sum(count.total for count in row.phases.values()) == 2 * NUMBER
    b.restart(epoch=3)
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    until(b, lambda: b.row(request).state.ended)
    assert before <= results(b, request)
    counts_are_true(b, request)
    assert len(list(outbox.mails(b.runtime.store, request))) == 1


def test_its_progress_is_told_meanwhile() -> None:
    b = bench()
    request = in_the_middle(b)
    slow(b)
    cancel(b, request)
    left: list[int] = []
    while not b.row(request).state.ended:
        b.manager.tick()
        b.runtime.clock.sleep(1)
        left.append(sum(count.left for count in b.row(request).phases.values()))
    assert left == sorted(left, reverse=True)
    assert len(set(left)) > 5


def test_other_orders_change_nothing_then() -> None:
    b = bench()
    request = in_the_middle(b)
    slow(b)
    request_operations.order(b.runtime, request, RequestOrder.PAUSE)
    cancel(b, request)
    for order in (RequestOrder.PAUSE, RequestOrder.RESUME, RequestOrder.CONFIRM):
        request_operations.order(b.runtime, request, order)
        b.manager.tick()
        row = b.row(request)
        assert (row.state, row.order, row.paused) == (RequestState.CANCELLING, None, False)


def test_a_retry_afterwards_is_another_request_that_makes_the_rest() -> None:
    b = bench()
    request = in_the_middle(b)
    cancel(b, request)
    until(b, lambda: b.row(request).state.ended)
    ran = set(b.ran) - {BROKEN}
    again = retrying.retry(b.runtime, request, Scope())
    assert (again.retry_of, b.row(request).retried_as) == (request, again.id)
    row = b.until_ended(again.id)
    assert (row.state, row.delivered) == (RequestState.GAPS, NUMBER - 1)
    assert len(b.ran) == len(set(b.ran)) + 1  # the damaged one, twice
    assert ran <= set(b.ran)
    assert results(b, request) <= results(b, again.id)


def test_its_intermediates_are_let_go_and_its_results_kept() -> None:
    b = bench()
    request = in_the_middle(b)
    cancel(b, request)
    until(b, lambda: b.row(request).state.ended)
    row, kept = b.row(request), results(b, request)
    b.rounds(60)
    assert RequestTable(b.runtime.store).unsettled() == []
    interests = list(request_operations.interests(b.runtime, request))
    assert {interest.name for interest in interests if interest.outcome == "done"} == kept
    assert all(interest.output for interest in interests if interest.outcome == "done")
    assert b.row(request) == row


def test_before_its_plan_is_written_it_ends_at_once_without_a_manager_and_is_told() -> None:
    b = bench(ManagerOptions(confirm=Confirm(tasks=1)))
    held = b.submit("p")
    b.rounds(5)
    assert b.row(held).state is RequestState.HELD
    submitted = b.submit("p")
    written = len(list(outbox.mails(b.runtime.store)))
    for request, said in ((held, "before it was confirmed"), (submitted, "before it was planned")):
        row = cancel(b, request)
        assert row.state is RequestState.CANCELLED
        assert said in row.message
        assert row.ended == b.runtime.clock.now()
        assert not any(count.left or count.running for count in row.phases.values())
    assert b.row(held).phases[Phase.COLLECTION].cancelled
    b.rounds(60)
    assert RequestTable(b.runtime.store).live() == []
    assert RequestTable(b.runtime.store).unsettled() == []
    told = [mail for mail in outbox.mails(b.runtime.store) if mail.subject == "p: cancelled"]
    assert {mail.request for mail in told} == {held, submitted}
    assert len(list(outbox.mails(b.runtime.store))) == written + len(told)
    assert b.ran == []


def test_in_the_middle_of_its_plan_nothing_more_is_written() -> None:
    b = bench(ManagerOptions(window=20, slice=0.0))
    request = b.submit("p")
    until(b, lambda: len(list(request_operations.interests(b.runtime, request))) > 20)
    assert b.row(request).state is RequestState.WRITING
    cancel(b, request)
    most = len(list(request_operations.interests(b.runtime, request)))
    until(b, lambda: b.row(request).state.ended)
    assert len(_tasks(b)) <= most
    assert not any(row["state"] in ("waiting", "ready", "running") for row in _tasks(b))
    counts_are_true(b, request)


def test_no_completion_event_waits_for_dependents_that_were_never_written() -> None:
    b = bench(ManagerOptions(window=20, slice=0.0))
    request = b.submit("p")
    while not b.ran:
        b.rounds(1)
    assert b.row(request).state is RequestState.WRITING
    cancel(b, request)
    b.rounds(60)
    assert b.row(request).state.ended
    assert _rows(b, RowKind.COMPLETION_EVENT) == []


def test_a_request_that_fails_counts_truly_too() -> None:
    b = bench(ManagerOptions(window=20))
    request = b.submit("p", on_missing="fail")
    row = b.until_ended(request)
    assert row.state is RequestState.FAILED
    counts_are_true(b, request)
    assert row.phases[Phase.AGGREGATION].cancelled > 0


def test_the_tasks_of_a_shard_are_read_wherever_they_lie() -> None:
    b = bench()
    b.submit("p")
    b.rounds(3)
    store = b.runtime.store
    some: tuple[list[Spec], ...] = ([*G, *TOPS], [*G[::40]], [*G[:2], *TOPS[-1:]])
    for wanted in some:
        for number in "05af":
            keys = sorted(_keys(wanted, number))
            found = TaskTable(store).tasks(number, [*keys, number + "f" * 63])
            assert sorted(found) == keys
            assert all(found[key] == TaskTable(store).task(key) for key in keys)
    assert TaskTable(store).tasks("0", []) == {}


def _keys(specs: Sequence[Spec], number: str) -> list[str]:
    return [spec.key for spec in specs if spec.key[0] == number]


def _rows(b: Bench, kind: RowKind) -> list[dict[str, object]]:
    store = b.runtime.store
    assert isinstance(store, MemoryStore)
    return [dict(row.entity) for row in store.tables()["tasks"] if kind_of(row.row) is kind]


def _tasks(b: Bench) -> list[dict[str, object]]:
    return _rows(b, RowKind.TASK)


def _state(b: Bench, key: str) -> State | None:
    task = b.runtime.tasks.task(key)
    return task.state if task else None


@pytest.mark.parametrize("order", ["whole, again", "again, whole", "again; whole ends"])
def test_a_task_started_over_ends_with_the_last_request_that_waits_for_it(order: str) -> None:
    """One request got its end of a task, which another has started over; both leave."""
    broken, other = collect("broken"), collect("other")
    top, rest = mosaic("top", broken), mosaic("rest", other)
    outputs = {"top": "top", "rest": "rest"}
    b = Bench(
        plans={
            "whole": plan_of(broken, other, top, rest, outputs=outputs),
            "top": plan_of(broken, top, outputs=outputs),
        },
        decide=lambda c: Category.BAD_IMAGE_FORMAT if c.task.key == broken.key else None,
    )

    def rounds(number: int, *held: Spec) -> None:
        for _ in range(number):
            b.manager.tick()
            b.sent[:] = [key for key in b.sent if key not in {spec.key for spec in held}]
            b.work()
            b.runtime.clock.sleep(1)

    whole = b.submit("whole")
    rounds(120, other)
    interest = b.runtime.tasks.interest(whole, top.key)
    assert interest is not None
    assert interest.outcome is TaskOutcome.GAP
    again = b.submit("top")
    rounds(20, other, broken)
    assert _state(b, top.key) is State.WAITING
    if order == "again; whole ends":
        cancel(b, again)
        rounds(60, other, broken)
        b.restart()  # sends again what is held
        rounds(60, broken)
        ends = [RequestState.GAPS, RequestState.CANCELLED]
    else:
        for request in (whole, again) if order == "whole, again" else (again, whole):
            cancel(b, request)
        rounds(60, other, broken)
        ends = [RequestState.CANCELLED] * 2
    assert [b.row(request).state for request in (whole, again)] == ends
    assert [row for row in _tasks(b) if row["state"] in ("waiting", "ready", "running")] == []
