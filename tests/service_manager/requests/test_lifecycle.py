"""What becomes of a request from round to round: taken up, planned, obeyed, counted, ended."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import Mock

import pytest
from structlog.contextvars import get_contextvars
from structlog.testing import capture_logs

from service_manager.dispatch import manager_cache
from service_manager.dispatch.manager_cache import Live, WatchedAttempt
from service_manager.plans import write_fence
from service_manager.plans.plan_writer import PlanWriter, Written
from service_manager.requests import ending, lifecycle
from service_manager.requests.intake import Intake
from service_manager.requests.lifecycle import Lifecycle
from tasks.bag import protocol
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import Phase, RequestOrder, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS
from tasks.errors import FencedError, StoreError
from tasks.operators.restrictions import Kind, Restriction, Restrictions
from tasks.requests import request_operations
from tasks.requests.request_table import PhaseCount, Preparation, RequestRow
from tests.service_manager.plans.test_rehearsal import plan as rehearsed_plan
from tests.service_manager.workbench import Bench, Beside, collect, mosaic, plan_of

G = [collect(f"g{i}") for i in range(3)]
TOP = mosaic("top", *G)
PLAN = plan_of(*G, TOP, outputs={"top": "out"})


class Stepped(Bench):
    """A bench whose manager's steps for requests are called one by one."""

    @property
    def cycle(self) -> Lifecycle:
        return self.manager._lifecycle

    def live(self, request: str) -> Live:
        return self.manager.cache.requests[request]

    def running(self, title: str = "p", **more: object) -> str:
        """A request whose plan is written; nothing of it has run."""
        request = self.submit(title, **more)  # type: ignore[arg-type]
        self.cycle.take_up()
        self.cycle.plan()
        while self.cycle.work():
            pass
        assert self.row(request).state is RequestState.RUNNING
        return request

    def run_all(self, *but: Spec) -> None:
        """All is run but these tasks, and the manager has heard of it."""
        done = -1
        while done < len(self.ran):
            done = len(self.ran)
            self.manager._dispatching()
            self.sent[:] = [key for key in self.sent if key not in {spec.key for spec in but}]
            self.work()
            self.manager._events.notice(SHARDS)
            self.manager._process_events()

    def change(self, request: str, **more: object) -> None:
        request_operations.change_request(
            self.runtime,
            request,
            lambda row: replace(row, **more),  # type: ignore[arg-type]
        )


@pytest.fixture
def b() -> Stepped:
    return Stepped({"p": PLAN})


# --- taken up ---


def test_a_request_is_looked_at_when_it_is_told_of_and_all_are_now_and_then(b: Stepped) -> None:
    request = b.running()
    b.cycle.take_up()
    b.change(request, paused=True)
    b.cycle.take_up()
    assert not b.live(request).row.paused
    request_operations.wake(b.runtime, request)
    b.cycle.take_up()
    assert b.live(request).row.paused
    assert list(b.runtime.queue.receive()) == []  # it is acknowledged
    b.change(request, paused=False)
    b.runtime.clock.sleep(b.options.sweep - 1.0)
    b.cycle.take_up()
    assert b.live(request).row.paused
    b.runtime.clock.sleep(1.0)
    b.cycle.take_up()
    assert not b.live(request).row.paused


def test_a_request_that_storage_did_not_show_is_looked_at_again(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = b.running()
    request_operations.order(b.runtime, request, RequestOrder.PAUSE)

    def away(*_: object) -> RequestRow:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(request_operations, "row_of", away)
        with pytest.raises(StoreError):
            b.cycle.take_up()
    b.cycle.take_up()
    assert b.row(request).paused


def test_what_is_heard_of_a_request_that_is_not_known_or_has_ended_is_nothing(b: Stepped) -> None:
    assert b.cycle.find("no such request") is None
    request = b.submit("p")
    b.change(request, state=RequestState.COMPLETE)
    assert b.cycle.find(request) is None
    b.cycle.take_up()
    assert b.manager.cache.requests == {}


def test_what_is_logged_while_something_is_done_for_a_request_names_it(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, object]] = []

    def watch(of: object, name: str) -> None:
        original = getattr(of, name)

        def watched(*given: object, **named: object) -> object:
            seen.append((name, get_contextvars().get("request")))
            return original(*given, **named)

        monkeypatch.setattr(of, name, watched)

    for name in ("load", "begin", "take"):
        watch(Intake, name)
    watch(PlanWriter, "batches")
    watch(ending, "end")
    request = b.submit("p")
    b.until_ended(request)
    assert seen == [(name, request) for name in ("load", "begin", "take", "batches", "end")]


def test_a_request_of_a_paused_owner_is_found_stopped(b: Stepped) -> None:
    stop = Restriction(kind=Kind.PAUSE_OWNER, subject="owner")
    b.manager.cache.restrictions = Restrictions.of([stop])
    mine, other = b.cycle.find(b.submit("p")), b.cycle.find(b.submit("p", owner="other"))
    assert mine is not None
    assert other is not None
    assert (mine.stopped, other.stopped) == (True, False)


def test_a_request_that_another_manager_ended_is_forgotten(b: Stepped) -> None:
    request = b.running()
    b.change(request, state=RequestState.COMPLETE)
    request_operations.wake(b.runtime, request)
    b.cycle.take_up()
    assert b.manager.cache.requests == {}


def test_a_quiet_request_is_counted_again_less_and_less_often(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its tasks are ready or run there are events to come, however long they take."""
    request = b.running()
    counted: list[int] = []
    sweep = 0
    ready = b.manager._dispatch.known()
    assert ready

    def recount(runtime: Runtime, live: Live) -> None:
        assert (runtime, live) == (b.runtime, b.live(request))
        counted.append(sweep)

    monkeypatch.setattr(lifecycle, "recount", recount)
    b.manager.cache.running["k"] = WatchedAttempt(
        key="k",
        claim="c",
        worker="w",
        attempt=1,
        retries=0,
        phase=Phase.COLLECTION,
        task_class="class",
        sponsor=request,
        claimed_at=0.0,
        since=0.0,
    )
    for sweep in range(9):
        if sweep == 3:
            for key in ready:
                b.manager._dispatch.remove(key)
        if sweep == 6:
            b.manager._dispatch.add(ready[0], request)
            b.manager.cache.running.clear()
        b.runtime.clock.sleep(b.options.sweep)
        b.cycle.take_up()
    b.manager._dispatch.remove(ready[0])
    assert counted == []
    for sweep in range(20):
        b.runtime.clock.sleep(b.options.sweep)
        b.cycle.take_up()
        if sweep == 10:
            b.live(request).record(G[0].key, TaskOutcome.DONE)
    assert counted == [1, 2, 4, 8, 12, 13, 15, 19]


# --- planned ---


def test_a_few_plans_are_taken_in_a_round_and_two_are_made_at_once() -> None:
    b = Stepped({"p": PLAN})
    requests = [b.submit("p", owner=f"owner {i}") for i in range(6)]
    b.cycle.take_up()
    assert {b.row(request).state for request in requests} == {RequestState.SUBMITTED}
    assert b.cycle.plan() is True
    states = [b.row(request).state for request in requests]
    assert states.count(RequestState.WRITING) == lifecycle.PLANS
    assert b.cycle.plan() is False
    assert {b.row(request).state for request in requests} == {RequestState.WRITING}
    assert b.cycle.plan() is False


class Planned(Stepped):
    """Plans are made when the test says so; `patience` has how long the manager waits for one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.beside = Beside()
        self.patience: list[float] = []
        made = Intake.made

        def waited(intake: Intake, seconds: float) -> list[str]:
            self.patience.append(seconds)
            return made(intake, 0.0)

        monkeypatch.setattr(Intake, "made", waited)
        super().__init__({"p": PLAN}, run=self.beside.run)

    @property
    def planning(self) -> list[str]:
        return [*self.cycle._intake.planning]

    def states(self, *requests: str) -> list[RequestState]:
        return [self.row(request).state for request in requests]


def test_there_is_more_to_do_when_a_plan_was_taken_while_others_are_made_or_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Planned(monkeypatch)
    requests = sorted(b.submit("p", owner=f"owner {i}") for i in range(3))  # as their turns come
    b.cycle.take_up()
    assert b.cycle.plan() is False
    planning = RequestState.PLANNING
    assert b.states(*requests) == [planning, planning, RequestState.SUBMITTED]
    b.beside.end(1)
    assert b.cycle.plan() is True
    assert b.states(*requests) == [planning, RequestState.WRITING, planning]
    assert b.cycle.plan() is False
    b.beside.end(0)
    b.beside.end(2)
    assert b.cycle.plan() is False


def test_a_plan_is_waited_for_only_a_moment_while_there_is_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Planned(monkeypatch)
    b.submit("p", owner="a")
    b.submit("p", owner="b")
    b.cycle.take_up()
    b.runtime.clock.sleep(9.0)
    b.cycle.plan()
    assert b.patience == [b.options.slice]
    b.beside.end(0)
    b.cycle.plan()
    assert b.patience[1:] == [b.options.slice, lifecycle._GLANCE]  # the plan is to be written
    assert b.cycle.work() is False
    b.cycle.plan()
    assert b.patience[3:] == [b.options.slice]
    assert protocol.claim(b.runtime, G[0].key, "w", b.options.retry)
    b.manager.tick()
    b.cycle.plan()
    assert b.patience[-1] == lifecycle._GLANCE  # a task runs


def test_plans_are_let_go_of_with_their_requests_and_with_the_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Planned(monkeypatch)
    first, second = sorted(b.submit("p", owner=owner) for owner in "ab")
    b.cycle.take_up()
    b.cycle.plan()
    assert b.planning == [first, second]
    request_operations.order(b.runtime, first, RequestOrder.CANCEL)
    b.cycle.take_up()
    assert b.planning == [second]
    b.manager.close()
    assert b.planning == []


def test_a_plan_of_a_request_that_another_manager_planned_is_let_go_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Planned(monkeypatch)
    request = b.submit("p")
    b.cycle.take_up()
    b.cycle.plan()
    b.change(request, state=RequestState.HELD)
    b.beside.end()
    b.cycle.plan()
    assert (b.planning, b.row(request).state) == ([], RequestState.HELD)


def test_a_request_whose_planning_storage_did_not_let_begin_waits_for_its_next_turn(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = b.submit("p")
    b.cycle.take_up()
    with monkeypatch.context() as patch:
        patch.setattr(Intake, "begin", Mock(side_effect=StoreError("away")))
        with pytest.raises(StoreError):
            b.cycle.plan()
    b.cycle.take_up()
    b.cycle.plan()
    assert b.row(request).state is RequestState.WRITING


@pytest.mark.parametrize("heard", [True, False])
def test_a_request_that_was_cancelled_while_it_waited_is_not_planned(
    b: Stepped, heard: bool
) -> None:
    request = b.submit("p")
    b.cycle.take_up()
    b.change(request, state=RequestState.CANCELLED)
    if heard:
        request_operations.wake(b.runtime, request)
        b.cycle.take_up()
    b.cycle.plan()
    assert b.row(request).state is RequestState.CANCELLED
    assert b.manager.cache.requests == {}


def test_a_refused_request_is_forgotten(b: Stepped) -> None:
    b.options = replace(b.options, max_tasks=1)
    b.restart()
    request = b.submit("p")
    b.cycle.take_up()
    b.cycle.plan()
    assert b.row(request).state is RequestState.REFUSED
    assert b.manager.cache.requests == {}


def test_plans_are_written_in_turns_and_broken_off_in_slices(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    b.options = replace(b.options, slice=0.0)
    b.restart()
    order: list[str] = []

    def write(_: Intake, live: Live) -> Iterator[Written | None]:
        for _number in range(2):
            order.append(live.row.owner)
            yield None

    monkeypatch.setattr(Intake, "write", write)
    for owner in "ab":
        b.submit("p", owner=owner)
        b.cycle.take_up()
        b.cycle.plan()
    steps = [b.cycle.work() for _ in range(6)]
    assert order == ["a", "b", "a", "b"]
    assert steps == [True] * 5 + [False]


def test_a_slice_of_a_round_has_as_many_steps_as_its_time_allows(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def write(*_: object) -> Iterator[None]:
        for step in range(4):
            steps.append(step)
            b.runtime.clock.sleep(b.options.slice * 0.6)
            yield None

    monkeypatch.setattr(Intake, "write", write)
    b.submit("p")
    b.cycle.take_up()
    b.cycle.plan()
    assert b.cycle.work() is True
    assert steps == [0, 1]


def test_what_is_written_for_a_request_that_another_manager_ended_is_left(b: Stepped) -> None:
    b.options = replace(b.options, slice=0.0)
    b.restart()
    request = b.submit("p")
    b.cycle.take_up()
    b.cycle.plan()
    assert b.cycle.work() is True
    b.change(request, state=RequestState.FAILED)
    request_operations.wake(b.runtime, request)
    b.cycle.take_up()
    assert b.cycle.work() is False


def test_a_plan_that_cannot_be_stored_ends_its_request(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> Iterator[Written]:
        raise ValueError("too large")
        yield Written()

    monkeypatch.setattr(Intake, "write", write)
    request = b.submit("p")
    b.cycle.take_up()
    b.cycle.plan()
    with capture_logs():
        assert b.cycle.work() is False
    row = b.row(request)
    assert row.state is RequestState.FAILED
    assert row.message == (
        "its plan could not be stored: too large. Ask for fewer days or a smaller region."
    )
    assert b.manager.cache.requests == {}


def test_a_plan_for_which_storage_was_away_is_written_from_the_start(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> Iterator[Written]:
        raise StoreError("away")
        yield Written()

    request = b.submit("p")
    with monkeypatch.context() as patch:
        patch.setattr(Intake, "write", write)
        b.cycle.take_up()
        b.cycle.plan()
        with pytest.raises(StoreError):
            b.cycle.work()
    assert b.cycle.work() is False
    b.cycle.take_up()
    while b.cycle.work():
        pass
    assert b.row(request).state is RequestState.RUNNING


def test_of_what_is_written_the_ready_tasks_are_sent(b: Stepped) -> None:
    b.running()
    assert sorted(b.manager._dispatch.known()) == sorted(spec.key for spec in G)


# --- obeyed ---


def test_a_pause_and_its_end_are_carried_out_once(b: Stepped) -> None:
    request = b.running()
    for order, paused in ((RequestOrder.PAUSE, True), (RequestOrder.RESUME, False)):
        request_operations.order(b.runtime, request, order)
        b.cycle.take_up()
        row = b.row(request)
        assert (row.paused, row.order) == (paused, None)
        assert b.live(request).row == row


def test_of_two_orders_the_later_one_stands(b: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    request = b.running()
    request_operations.order(b.runtime, request, RequestOrder.PAUSE)
    original = request_operations.change_request

    def later_order(*given: object) -> RequestRow:
        monkeypatch.setattr(request_operations, "change_request", original)
        b.change(request, order=RequestOrder.RESUME)
        return original(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(request_operations, "change_request", later_order)
    b.cycle.take_up()
    assert (b.row(request).paused, b.row(request).order) == (False, RequestOrder.RESUME)
    b.cycle.take_up()
    assert (b.row(request).paused, b.row(request).order) == (False, None)


def test_a_request_that_is_cancelled_while_its_plan_is_written_ends(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Mock(side_effect=write_fence.close)
    monkeypatch.setattr(write_fence, "close", begun)
    b.options = replace(b.options, slice=0.0)
    b.restart()
    request = b.submit("p")
    b.cycle.take_up()
    b.cycle.plan()
    b.cycle.work()
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    b.cycle.take_up()
    assert b.cycle.work() is True
    b.runtime.clock.sleep(b.options.sweep)
    b.cycle.take_up()  # it goes on where it was
    while b.cycle.work():
        pass
    assert begun.call_count == 1
    assert b.row(request).state is RequestState.CANCELLED
    assert list(request_operations.interests(b.runtime, request)) == []
    assert b.manager.cache.requests == {}


def test_a_cancelled_request_keeps_what_it_has_and_is_withdrawn_again_after_a_failure(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = b.running()
    b.run_all(TOP)
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    b.cycle.take_up()
    with monkeypatch.context() as patch:
        patch.setattr(write_fence, "close", Mock(side_effect=StoreError("away")))
        with pytest.raises(StoreError):
            b.cycle.work()
    b.cycle.take_up()
    while b.cycle.work():
        pass
    assert b.row(request).state is RequestState.CANCELLED
    left = request_operations.interests(b.runtime, request)
    assert {interest.key for interest in left} == {granule.key for granule in G}


# --- counted ---


def test_counts_are_written_when_they_have_changed(b: Stepped) -> None:
    request = b.running()
    b.cycle.progress()
    first = b.row(request)
    assert first.phases == {
        Phase.COLLECTION: PhaseCount(total=3),
        Phase.AGGREGATION: PhaseCount(total=1),
    }
    assert (first.outputs, first.delivered, first.epoch) == (1, 0, 1)
    b.change(request, outputs=9)
    b.cycle.progress()
    assert b.row(request).outputs == 9
    b.live(request).changed = True
    b.cycle.progress()
    assert b.row(request).outputs == 1
    assert b.live(request).row.document


def test_counts_that_could_not_be_written_are_written_at_the_next_time(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = b.running()
    b.change(request, outputs=9)
    b.live(request).changed = True
    with monkeypatch.context() as patch:
        patch.setattr(request_operations, "change_request", Mock(side_effect=StoreError("away")))
        with pytest.raises(StoreError):
            b.cycle.progress()
    b.cycle.progress()
    assert b.row(request).outputs == 1


def test_counts_are_written_of_every_request_that_runs(
    b: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    b.change(b.submit("p"), state=RequestState.HELD)
    request = b.running()
    b.run_all(TOP)
    claimed = protocol.claim(b.runtime, TOP.key, "w", b.options.retry)
    assert claimed is not None
    b.manager._sweeping()
    monkeypatch.setattr(manager_cache, "_FEW", 0)
    b.cycle.progress()
    assert b.row(request).phases == {
        Phase.COLLECTION: PhaseCount(total=3, done=3),
        Phase.AGGREGATION: PhaseCount(total=1, running=1),
    }
    b.live(request).record(TOP.key, TaskOutcome.DONE)
    b.cycle.progress()
    assert b.row(request).delivered == 1


@pytest.mark.parametrize(
    ("order", "looks"),
    [
        ({"order": RequestOrder.PAUSE}, True),
        ({"retry_orders": ("all",)}, True),
        ({"state": RequestState.CANCELLING}, True),
        ({"outputs": 9}, False),
    ],
)
def test_an_order_that_is_met_when_counts_are_written_is_looked_at(
    b: Stepped, monkeypatch: pytest.MonkeyPatch, order: dict[str, object], looks: bool
) -> None:
    request = b.running()
    b.cycle.take_up()
    b.change(request, **order)
    b.cycle.progress()
    looked: list[str] = []
    monkeypatch.setattr(b.cycle, "_look", looked.append)
    b.cycle.take_up()
    assert looked == [request] * looks


def test_counts_of_another_state_are_not_written_and_an_order_is_heard(b: Stepped) -> None:
    request = b.running()
    b.cycle.progress()
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    b.runtime.queue.receive()
    b.change(request, outputs=9)
    b.live(request).changed = True
    b.cycle.progress()
    assert b.row(request).outputs == 9
    for _, acknowledge in b.runtime.queue.receive():
        acknowledge()
    b.cycle.take_up()
    while b.cycle.work():
        pass
    assert b.row(request).state is RequestState.CANCELLED


def test_a_manager_that_is_over_writes_no_counts(b: Stepped) -> None:
    request = b.running()
    b.change(request, epoch=2)
    b.live(request).changed = True
    with pytest.raises(FencedError, match="manager epoch 1 is over; 2 acts"):
        b.cycle.progress()


def test_what_is_written_of_a_plan_is_counted_up_to_all_of_it(b: Stepped) -> None:
    b.options = replace(b.options, slice=0.0)
    b.restart()
    request = b.submit("p")
    b.cycle.take_up()
    b.cycle.plan()
    b.cycle.prepare()
    assert b.row(request).preparation == Preparation(done=0, total=4, unit="tasks")
    b.cycle.work()
    written = len(b.live(request).ledger)
    assert written
    b.cycle.prepare()
    assert b.row(request).preparation == Preparation(done=written, total=4, unit="tasks")
    b.change(request, preparation=Preparation(done=3, total=4, unit="tasks"))
    b.cycle.prepare()
    row = b.row(request)
    assert row.preparation is not None
    assert row.preparation.done == 3, "it is written when it has changed"


def test_the_days_that_were_searched_are_written_while_others_are_planned_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Planned(monkeypatch)
    written, planned = sorted(b.submit("p", owner=owner) for owner in "ab")
    b.cycle.take_up()
    b.cycle.plan()
    b.beside.end(0)
    b.cycle.plan()
    assert b.cycle.work() is False
    assert b.live(written).row.preparation is None
    searched = {planned: 1}
    monkeypatch.setattr(b.cycle._intake, "days_searched", searched.__getitem__)
    b.cycle.prepare()
    assert b.row(planned).preparation == Preparation(done=1, total=2, unit="days")


# --- ended ---


def test_a_request_ends_when_all_of_it_has_and_no_order_waits(b: Stepped) -> None:
    request = b.running()
    b.cycle.ends()
    assert b.row(request).state is RequestState.RUNNING
    b.run_all()
    live = b.live(request)
    assert not live.pending
    live.row = replace(live.row, retry_orders=("all",))
    b.cycle.ends()
    assert not b.row(request).state.ended
    live.row = replace(live.row, retry_orders=())
    b.cycle.ends()
    assert b.row(request).state is RequestState.COMPLETE
    assert b.manager.cache.requests == {}
    assert b.row(request).epoch == 1


def test_a_request_ends_beside_others_that_do_not_run(b: Stepped) -> None:
    b.change(b.submit("p"), state=RequestState.HELD)
    request = b.running()
    b.run_all()
    b.cycle.ends()
    assert b.row(request).state is RequestState.COMPLETE


def failing(b: Stepped) -> str:
    """A request that is to fail when anything is missing, and something is."""
    last = max(spec.key for spec in G)  # so that the others have been run
    b.decide = lambda claimed: Category.BAD_IMAGE_FORMAT if claimed.task.key == last else None
    request = b.running(on_missing="fail")
    b.run_all(TOP)
    return request


def test_a_request_that_fails_by_what_is_missing_keeps_what_it_has(b: Stepped) -> None:
    request = failing(b)
    b.cycle.ends()
    b.cycle.ends()  # it is withdrawn once
    while b.cycle.work():
        pass
    assert b.row(request).state is RequestState.FAILED
    left = request_operations.interests(b.runtime, request)
    assert {interest.key for interest in left} == {spec.key for spec in (*G, TOP)}


def test_a_request_that_is_cancelled_while_it_fails_is_withdrawn_as_cancelled(b: Stepped) -> None:
    request = failing(b)
    b.cycle.ends()
    b.change(request, state=RequestState.CANCELLING)
    while b.cycle.work():
        pass
    assert b.row(request).state is RequestState.CANCELLING
    assert b.live(request).row.state is RequestState.CANCELLING
    b.cycle.take_up()
    while b.cycle.work():
        pass
    assert b.row(request).state is RequestState.CANCELLED


def test_a_rehearsal_that_failed_is_tried_again_before_its_request_is_held() -> None:
    b = Stepped({"p": rehearsed_plan()})
    b.decide = lambda claimed: (
        Category.USER_CODE_FAILED if claimed.task.phase is Phase.REDUCTION else None
    )
    request = b.running(reduction={"package": "own"})
    b.run_all()
    live = b.live(request)
    live.row = replace(live.row, retry_orders=("all",))
    b.cycle.ends()
    assert b.row(request).state is RequestState.RUNNING
    live.row = replace(live.row, retry_orders=())
    b.cycle.ends()
    assert b.row(request).state is RequestState.HELD
