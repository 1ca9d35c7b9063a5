"""Taking a request up: what its planning counts, when it is held, and what its failures come to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import pytest
from structlog.testing import capture_logs

from archives.errors import ArchiveError
from service_manager.dispatch.manager_cache import Live
from service_manager.options import ManagerOptions
from service_manager.plans import stored_plan
from service_manager.plans.plan_writer import Written
from service_manager.requests.intake import Intake, recount
from tasks.bag import task_table
from tasks.bag.categories import Category
from tasks.bag.model import MissingPolicy, Phase, RequestOrder, RequestState, State, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.errors import RequestRefusedError, StoreError
from tasks.operators import prices
from tasks.operators.prices import PriceList, Prices
from tasks.request.document import Request
from tasks.requests import outbox, request_operations
from tasks.requests.plan import Gap, Plan, PlannedTask
from tasks.requests.request_table import (
    PhaseCount,
    Preparation,
    Rehearsal,
    RequestRow,
    RequestTable,
)
from tasks.service import tracing
from tasks.service.memory_runtime import memory_runtime
from tasks.service.tracing import Span
from tasks.setting_values import Confirm
from tasks.storage.clock import ManualClock
from tests.service_manager.plans.test_rehearsal import plan as rehearsed_plan
from tests.service_manager.workbench import collect, document, mosaic, plan_of

GRANULES = [collect(f"g{i}") for i in range(3)]
PLAN = replace(
    plan_of(*GRANULES, mosaic("top", *GRANULES), outputs={"top": "out"}),
    gaps=tuple(Gap(what=f"day {i}", reason="no granule") for i in range(60)),
    notes=("a note",),
)


@dataclass
class Taken:
    """A request that is taken up."""

    options: ManagerOptions = field(default_factory=ManagerOptions)
    plan: Plan | Exception = PLAN
    more: dict[str, object] = field(default_factory=dict)
    runtime: Runtime = field(default_factory=lambda: memory_runtime(ManualClock()))

    def __post_init__(self) -> None:
        self.intake = Intake(self.runtime, self.options, self.made)
        dry = bool(self.more.pop("dry_run", False))
        asked = document("p", **self.more)
        self.id = request_operations.submit(self.runtime, "owner", asked, dry_run=dry)

    def made(self, _request: Request) -> Plan:
        if isinstance(self.plan, Exception):
            raise self.plan
        return self.plan

    @property
    def row(self) -> RequestRow:
        return request_operations.load(self.runtime, self.id)

    def change(self, **more: object) -> RequestRow:
        return request_operations.change_request(
            self.runtime,
            self.id,
            lambda row: replace(row, **more),  # type: ignore[arg-type]
        )

    def begin(self) -> RequestRow:
        return self.intake.begin(self.row)

    def take(self) -> RequestRow:
        assert self.intake.made(0.0) == [self.id]
        return self.intake.take(self.row)

    def planned(self) -> RequestRow:
        self.begin()
        return self.take()

    def live(self) -> Live:
        found = self.intake.load(self.id)
        assert found is not None
        return found

    def mails(self) -> list[str]:
        """The bodies of all mails, in one line each."""
        return [" ".join(mail.body.split()) for mail in outbox.mails(self.runtime.store)]


def test_while_it_is_planned_the_days_are_counted_then_its_tasks(spans: list[Span]) -> None:
    one = Taken()
    row = one.begin()
    assert row.state is RequestState.PLANNING
    assert (row.attempts, row.preparation) == (1, Preparation(total=2, unit="days"))
    assert list(one.intake.planning) == [one.id]
    began = one.runtime.clock.now()
    one.runtime.clock.sleep(9.0)
    row = one.take()
    assert row == one.row
    assert row.state is RequestState.WRITING
    assert row.preparation == Preparation(total=4, unit="tasks")
    assert row.phases == {
        Phase.COLLECTION: PhaseCount(total=3),
        Phase.AGGREGATION: PhaseCount(total=1),
    }
    assert (row.outputs, row.gap_count, row.gaps) == (1, 60, PLAN.gaps[:50])
    assert (row.notes, row.rehearsal) == (("a note",), Rehearsal.NONE)
    assert (row.preview.granules, row.preview.tasks, row.preview.gaps) == (3, 4, 60)
    assert (row.preview.size, row.preview.reused) == (30, 0)
    assert one.intake.planning == ()
    (span,) = [span for span in spans if span.name == "plan"]
    assert (span.began, span.ended, span.failure) == (began, began + 9.0, "")
    assert span.trace == tracing.trace_of(one.id)
    assert span.id == tracing.span_of(span.trace, "plan", "1")
    assert span.attributes["swathmill.tasks"] == 4


def test_a_request_that_is_not_planned_any_more_is_left_as_it_is() -> None:
    one = Taken()
    before = one.row
    one.change(state=RequestState.CANCELLED)
    assert one.intake.begin(before).state is RequestState.CANCELLED
    assert one.intake.planning == ()
    two = Taken()
    two.begin()
    two.change(state=RequestState.CANCELLED)
    assert two.take() == two.row
    assert two.row.state is RequestState.CANCELLED
    assert two.intake.planning == ()


def test_a_plan_that_is_let_go_is_under_way_no_more() -> None:
    one = Taken()
    one.begin()
    one.intake.abandon(one.id)
    assert one.intake.planning == ()
    one.intake.abandon(one.id)


@pytest.mark.parametrize(("parts", "attempts"), [(0, 3), (2, 5)])
def test_planning_is_tried_three_times_without_coming_farther(
    monkeypatch: pytest.MonkeyPatch, parts: int, attempts: int
) -> None:
    monkeypatch.setattr(stored_plan, "begun", lambda *_: parts)
    one = Taken()
    one.change(attempts=attempts - 1)
    assert one.begin().attempts == attempts
    row = one.begin()
    assert row.state is RequestState.FAILED
    assert row.message == "planning was tried 3 times and did not end"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("x"), "planning failed: KeyError: 'x'"),
        (ArchiveError("it is away"), "the archive cannot be searched: it is away"),
    ],
)
def test_planning_that_fails_is_tried_again_then_ends_the_request(
    error: Exception, message: str, spans: list[Span]
) -> None:
    one = Taken(plan=error)
    for _ in range(2):
        one.begin()
        with (
            capture_logs(),  # a traceback takes a second to write
            pytest.raises(StoreError, match=f"planning of {one.id} failed: "),
        ):
            one.take()
        assert one.row.state is RequestState.PLANNING
    with capture_logs() as said:
        row = one.planned()
    assert said[0]["event"] == "planning failed"
    assert row == one.row
    assert (row.state, row.message) == (RequestState.FAILED, message)
    assert len(one.mails()) == 1
    assert [span.failure for span in spans if span.name == "plan"] == [message]


def test_a_request_that_the_planner_refuses_ends_at_once() -> None:
    row = Taken(plan=RequestRefusedError("time", "It is too long.", "Ask for less.")).planned()
    assert row.state is RequestState.REFUSED
    assert row.message == "time: It is too long. Ask for less."


def test_a_try_for_which_storage_was_away_is_not_counted() -> None:
    one = Taken(plan=StoreError("away"))
    for _ in range(5):
        one.begin()
        with pytest.raises(StoreError, match="away"):
            one.take()
        assert one.row.attempts == 1
    one.plan = PLAN
    assert one.planned().state is RequestState.WRITING
    one.change(state=RequestState.PLANNING)
    assert one.begin().attempts == 2  # only the next one is spared


@pytest.mark.parametrize(("most", "state"), [(3, RequestState.REFUSED), (4, RequestState.WRITING)])
def test_a_plan_of_too_many_tasks_is_refused(most: int, state: RequestState) -> None:
    row = Taken(ManagerOptions(max_tasks=most)).planned()
    assert row.state is state
    if state is RequestState.REFUSED:
        assert row.message == (
            "the plan has 4 tasks; SWATHMILL_MAX_TASKS allows 3. Ask for fewer days or a smaller "
            "region."
        )


MUCH = ManagerOptions(confirm=Confirm(tasks=3, gb=1e-9, cost=0.5))
KNOWN = PriceList(currency="EUR", prices=Prices(download=1e9))
SAID = (
    "4 tasks, more than the 3 of SWATHMILL_CONFIRM; 0 GB to fetch, more than the 1e-09 of "
    "SWATHMILL_CONFIRM; an expected cost of {cost} EUR, more than the 0.5 of SWATHMILL_CONFIRM"
)


def test_a_plan_that_takes_much_is_held_until_it_is_confirmed() -> None:
    one = Taken(MUCH)
    prices.put(one.runtime.store, KNOWN)
    row = one.planned()
    assert row.state is RequestState.HELD
    assert row.message == f"confirm it to go on: {SAID.format(cost=f'{row.preview.cost:,.0f}')}"
    assert row.preparation is None
    assert row.preview.tasks == 4
    (mail,) = one.mails()
    assert "SWATHMILL_CONFIRM" in mail
    live = one.live()
    assert one.intake.confirm(live) == row  # nobody has confirmed it
    one.change(order=RequestOrder.CONFIRM)
    row = one.intake.confirm(live)
    assert (row.state, row.order, row.message) == (RequestState.WRITING, None, "")
    assert row.preparation == Preparation(total=4, unit="tasks")
    one.change(order=RequestOrder.CONFIRM)
    assert one.intake.confirm(live).order is RequestOrder.CONFIRM  # it is not held


@pytest.mark.parametrize(
    "options",
    [
        ManagerOptions(confirm=Confirm(tasks=4)),
        ManagerOptions(confirm=Confirm(gb=31e-9)),
        ManagerOptions(confirm=Confirm(cost=1e12)),
    ],
)
def test_within_the_limits_nothing_is_to_be_confirmed(options: ManagerOptions) -> None:
    one = Taken(options)
    prices.put(one.runtime.store, KNOWN)
    assert one.planned().state is RequestState.WRITING


@pytest.mark.parametrize("options", [ManagerOptions(), MUCH])
def test_a_preview_ends_with_its_counts_and_what_would_be_asked(options: ManagerOptions) -> None:
    one = Taken(options, more={"dry_run": True})
    prices.put(one.runtime.store, KNOWN)
    row = one.planned()
    asks = SAID.format(cost=f"{row.preview.cost:,.0f}")
    said = f"It would wait for confirmation: {asks}" if options is MUCH else ""
    assert (row.state, row.message) == (RequestState.PREVIEWED, said)
    assert row.preview.tasks == 4


# --- writing ---


def test_a_plan_is_written_section_by_section_then_the_request_runs(spans: list[Span]) -> None:
    one = Taken()
    one.planned()
    live = one.live()
    began = one.runtime.clock.now()
    written = []
    for each in one.intake.write(live):
        written += [interest.key for _, interest in each.tasks]
        one.runtime.clock.sleep(1.0)
    assert sorted(written) == sorted(task.spec.key for task in PLAN.tasks)
    assert len(live.ledger) == 4
    assert live.row == one.row
    assert (live.row.state, live.row.preparation) == (RequestState.RUNNING, None)
    (span,) = [span for span in spans if span.name == "write"]
    assert (span.began, span.ended) == (began, one.runtime.clock.now())
    assert span.trace == tracing.trace_of(one.id)
    again = list(one.intake.write(live))  # by a manager that did not hear the end of it
    assert not any(each.tasks for each in again)


def test_a_plan_of_which_sections_are_written_goes_on_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = [PLAN.tasks[:1], PLAN.tasks[1:3], PLAN.tasks[3:]]

    class Sections:
        def sections(self, first: int) -> Iterator[Sequence[PlannedTask]]:
            return iter(parts[first:])

    one = Taken()
    one.planned()
    monkeypatch.setattr(stored_plan, "thaw", lambda *_: Sections())

    def written(batches: Iterator[Written]) -> list[str]:
        return [interest.key for batch in batches for _, interest in batch.tasks]

    begun = one.intake.write(one.live())
    first: list[str] = []
    while len(first) < 2:  # of the second section something is written, and not noted
        first += written(islice(begun, 1))
    begun.close()
    assert RequestTable(one.runtime.store).sections_written(one.id) == 1
    rest = written(one.intake.write(one.live()))
    assert sorted(rest) == sorted(task.spec.key for part in parts[1:] for task in part)
    assert RequestTable(one.runtime.store).sections_written(one.id) == 3


def test_what_was_made_before_is_counted_as_done() -> None:
    first = Taken()
    first.planned()
    list(first.intake.write(first.live()))
    for spec in GRANULES[:2]:
        task = first.runtime.tasks.task(spec.key)
        assert task is not None
        made = task_table.replace_task(replace(task, state=State.DONE), task.etag)
        first.runtime.tasks.transact(spec.key[0], [made])
    row = Taken(runtime=first.runtime).planned()
    assert row.phases[Phase.COLLECTION] == PhaseCount(total=3, done=2, reused=2)
    assert row.phases[Phase.AGGREGATION] == PhaseCount(total=1)
    assert row.preview.reused == 2


def test_what_is_written_of_a_request_that_is_being_cancelled_leaves_it_so() -> None:
    one = Taken()
    one.planned()
    live = one.live()
    one.change(state=RequestState.CANCELLING)
    list(one.intake.write(live))
    assert live.row.state is RequestState.CANCELLING


def test_a_plan_that_is_not_in_storage_is_a_failure_of_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Taken()
    one.planned()
    monkeypatch.setattr(stored_plan, "thaw", lambda *_: None)
    with pytest.raises(StoreError, match=f"the plan of {one.id} is not in storage"):
        list(one.intake.write(one.live()))


def rehearsing() -> tuple[Taken, Live]:
    """A request whose rehearsal is written, and nothing else."""
    one = Taken(plan=rehearsed_plan(), more={"reduction": {"package": "own"}})
    assert one.planned().rehearsal is Rehearsal.DUE
    live = one.live()
    list(one.intake.write(live))
    return one, live


def test_of_a_request_with_a_rehearsal_that_is_written_first() -> None:
    one, live = rehearsing()
    assert live.row == one.row
    assert (live.row.state, live.row.preparation) == (RequestState.RUNNING, None)
    assert live.row.rehearsal is Rehearsal.RUNS
    assert len(live.ledger) == 3 == len(list(request_operations.interests(one.runtime, one.id)))


def test_a_rehearsal_of_a_request_that_is_being_cancelled_leaves_it_so() -> None:
    one = Taken(plan=rehearsed_plan(), more={"reduction": {"package": "own"}})
    one.planned()
    live = one.live()
    one.change(state=RequestState.CANCELLING)
    list(one.intake.write(live))
    assert (live.row.state, live.row.rehearsal) == (RequestState.CANCELLING, Rehearsal.DUE)


def test_after_a_rehearsal_the_whole_plan_is_written() -> None:
    one, live = rehearsing()
    row = one.intake.rehearsed(live, "")
    assert row == one.row
    assert (row.state, row.rehearsal) == (RequestState.WRITING, Rehearsal.OVER)
    assert row.preparation == Preparation(total=row.preview.tasks, unit="tasks")
    assert one.mails() == []
    assert one.intake.rehearsed(live, "exit code 1") == row  # it is over


def test_a_rehearsal_that_failed_holds_the_request_and_is_over_when_it_is_told_to_go_on() -> None:
    one, live = rehearsing()
    row = one.intake.rehearsed(live, "exit code 1")
    assert row.state is RequestState.HELD
    assert row.message == (
        "the rehearsal failed, and nothing else was run: exit code 1. Mend the package and go on, "
        "go on anyway, or give up"
    )
    (mail,) = one.mails()
    assert "exit code 1" in mail
    (found,) = outbox.mails(one.runtime.store)
    assert found.kind == "rehearsal"
    one.change(order=RequestOrder.CONFIRM)
    row = one.intake.confirm(live)
    assert (row.state, row.rehearsal) == (RequestState.WRITING, Rehearsal.OVER)


def test_a_rehearsal_of_a_request_that_is_being_cancelled_changes_nothing() -> None:
    one, live = rehearsing()
    one.change(state=RequestState.CANCELLING)
    assert one.intake.rehearsed(live, "").state is RequestState.CANCELLING


# --- loading ---


def test_a_request_is_loaded_as_it_stands_and_not_once_it_has_ended() -> None:
    one = Taken(more={"on_missing": "fail"})
    assert (one.live().policy, len(one.live().ledger)) == (MissingPolicy.FAIL, 0)
    one.planned()
    for _ in one.intake.write(one.live()):
        pass
    live = one.live()
    assert (len(live.ledger), live.row) == (4, one.row)
    one.change(state=RequestState.HELD)
    assert len(one.live().ledger) == 0  # what it has is read when it goes on
    one.change(state=RequestState.COMPLETE)
    assert one.intake.load(one.id) is None


def test_a_recount_returns_what_decides_the_end_and_starts_from_nothing() -> None:
    one = Taken()
    one.planned()
    list(one.intake.write(one.live()))
    live = one.live()
    live.changed = False
    live.run_failures.add((Category.UNKNOWN, "of before"))
    live.repeated.add("of before")
    live.forget(GRANULES[0].key)
    gone = Interest(request=one.id, key=collect("gone").key, phase=Phase.COLLECTION)
    live.note(gone)
    for spec, outcome in zip(GRANULES, (TaskOutcome.DONE, TaskOutcome.FAILED, None), strict=True):
        found = one.runtime.tasks.interest(one.id, spec.key)
        assert found is not None
        put = task_table.put_interest(replace(found, outcome=outcome))
        one.runtime.tasks.transact(spec.key[0], [put])
    telling = recount(one.runtime, live)
    assert sorted(interest.name for interest in telling) == ["g1", "top"]
    assert len(live.ledger) == 4
    assert gone.key not in live.ledger
    assert (live.run_failures, live.repeated, live.changed) == (set(), set(), True)


def test_a_recount_that_storage_breaks_off_leaves_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Taken()
    one.planned()
    list(one.intake.write(one.live()))
    live = one.live()
    before = live.ledger

    def broken(*_: object) -> Iterator[object]:
        raise StoreError("away")

    monkeypatch.setattr(request_operations, "interests", broken)
    with pytest.raises(StoreError):
        recount(one.runtime, live)
    assert live.ledger is before
    assert len(before) == 4
