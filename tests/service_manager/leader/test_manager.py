"""The manager on the memory store: requests to all their ends, reuse, gaps, orders, crashes."""

import pytest

from service_manager.options import ManagerOptions
from tasks.bag import history, protocol, workers
from tasks.bag.absence import NAMED, Absent, bounded
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestOrder, RequestState, State
from tasks.bag.task_table import MARKERS, RowKind, kind_of
from tasks.bag.transitions import RetryPolicy
from tasks.errors import RequestRefusedError, StoreError
from tasks.request.document import Request
from tasks.requests import outbox, request_operations
from tasks.requests.plan import Gap, Plan
from tasks.storage.blobs import split_blob
from tasks.storage.schema import SCHEMA
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of, scribble

G = [collect(f"g{i}") for i in range(4)]
A, B = mosaic("a", G[0], G[1]), mosaic("b", G[2], G[3])
TOP = mosaic("top", A, B)
PLAN = plan_of(*G, A, B, TOP, outputs={"top": "out", "a": "out"})
SOLE = mosaic("sole", G[3])


def bench(**more: object) -> Bench:
    """A bench with the usual plans."""
    plans = {"p": PLAN, "ab": plan_of(*G[:2], A, outputs={"a": "out"})}
    return Bench(plans=plans, **more)  # type: ignore[arg-type]


def left_over(found: Bench) -> list[str]:
    """Rows that must be gone when nothing is under way."""
    return [
        row.row
        for row in found.runtime.store.tables()["tasks"]  # type: ignore[attr-defined]
        if kind_of(row.row) in (RowKind.COMPLETION_EVENT, *MARKERS)
    ]


def test_a_request_completes_and_says_so() -> None:
    b = bench()
    request = b.submit("p")
    row = b.until_ended(request)
    assert row.state is RequestState.COMPLETE
    assert (row.outputs, row.delivered) == (2, 2)
    assert row.phases[Phase.COLLECTION].done == 4
    assert [w.name for w in request_operations.results(b.runtime, request)] == ["a", "top"]
    (mail,) = outbox.mails(b.runtime.store)
    assert "complete" in mail.subject
    assert left_over(b) == []
    assert sorted(b.ran) == sorted(s.key for s in (*G, A, B, TOP))


def test_the_same_again_runs_nothing_and_says_so() -> None:
    b = bench()
    b.until_ended(b.submit("p"))
    ran = len(b.ran)
    row = b.until_ended(b.submit("p"))
    assert len(b.ran) == ran
    assert row.phases[Phase.COLLECTION].reused == 4
    assert "7 of 7 tasks had been done before" in row.message


def test_an_overlapping_request_shares_what_is_in_flight() -> None:
    b = bench()
    first, second = b.submit("ab"), b.submit("p", owner="other")
    assert b.until_ended(first).state is RequestState.COMPLETE
    assert b.until_ended(second).state is RequestState.COMPLETE
    assert len(b.ran) == len(set(b.ran)) == 7


def test_what_is_missing_is_skipped_named_and_mailed() -> None:
    b = bench(decide=lambda c: Category.SOURCE_NOT_PUBLISHED if c.task.key == G[0].key else None)
    request = b.submit("p")
    row = b.until_ended(request)
    assert row.state is RequestState.GAPS
    assert [g.what for g in row.gaps] == ["g0"]
    assert (row.outputs, row.delivered) == (2, 2)
    outcomes = {w.key: w for w in request_operations.interests(b.runtime, request)}
    assert outcomes[A.key].outcome == "superseded"
    fallback = outcomes[outcomes[A.key].fallback]
    assert fallback.outcome == "done"
    assert fallback.output == "out"
    spec = b.runtime.tasks.spec(fallback.key)
    assert [i.key for i in spec.inputs] == [G[1].key]
    assert [(one.what, one.why) for one in spec.missing] == [("g0", "source not published")]


def test_a_successor_names_the_granules_for_want_of_which_its_inputs_were_not_made() -> None:
    whole = mosaic("whole", A, SOLE)
    above = mosaic("above", whole)
    plans = {"p": plan_of(*G, A, SOLE, whole, above, outputs={"above": "out"})}
    b = Bench(
        plans=plans,
        decide=lambda c: Category.UNREADABLE_INPUT_FILE if c.task.key == G[3].key else None,
    )
    request = b.submit("p")
    row = b.until_ended(request)
    assert row.state is RequestState.GAPS
    (made,) = request_operations.results(b.runtime, request)
    over = b.runtime.tasks.spec(made.key)
    assert over.missing == ()
    (given,) = over.inputs
    fallback = b.runtime.tasks.spec(given.key)
    assert [i.key for i in fallback.inputs] == [A.key]
    assert fallback.absent_parts == 1
    assert [(one.part, one.what, one.why) for one in fallback.missing] == [
        (SOLE.key, "g3", "unreadable input file")
    ]


def test_what_a_successor_only_counts_is_counted_once_where_it_fails_too() -> None:
    without = bounded(
        Absent(part=f"p{n:03d}", what=f"granule {n:03d}", why="not in the archive")
        for n in range(NAMED + 50)
    )
    part = mosaic("part", G[0], G[1]).model_copy(update=without.fields)
    top = mosaic("top", part, G[2])
    failed = Category.UNREADABLE_INPUT_FILE
    plans = {"p": plan_of(*G[:3], part, top, outputs={"top": "out"})}
    b = Bench(plans=plans, decide=lambda c: None if c.task.key in (G[1].key, G[2].key) else failed)
    request = b.submit("p")
    for _ in range(400):
        b.rounds(1)
        interests = {
            interest.key: interest for interest in request_operations.interests(b.runtime, request)
        }
        if interests and interests[top.key].fallback:
            break
    over = b.runtime.tasks.spec(interests[top.key].fallback)
    assert over.missing_unnamed is not None
    # The granules, g0 that failed, and the part over what there is, which failed, too.
    assert len(over.missing) + over.missing_unnamed.inputs == NAMED + 50 + 2


@pytest.mark.provokes(Category.UPSTREAM_FAILED)
def test_nothing_left_is_a_gap_and_a_request_without_results_fails() -> None:
    plans = {"sole": plan_of(G[3], SOLE, outputs={"sole": "out"})}
    b = Bench(plans=plans, decide=lambda _c: Category.SOURCE_NOT_PUBLISHED)
    row = b.until_ended(b.submit("sole"))
    assert row.state is RequestState.FAILED
    assert "none of the 1 results" in row.message
    assert [g.what for g in row.gaps] == ["g3", "sole"]
    sole = b.runtime.tasks.task(SOLE.key)
    assert sole is not None
    assert (sole.state, sole.category) == (State.FAILED, Category.UPSTREAM_FAILED)


def test_on_missing_fail_fails_at_the_first_failure() -> None:
    b = bench(decide=lambda c: Category.SOURCE_NOT_PUBLISHED if c.task.key == G[0].key else None)
    request = b.submit("p", on_missing="fail")
    row = b.until_ended(request)
    assert row.state is RequestState.FAILED
    assert "g0" in row.message
    b.rounds(2)
    assert left_over(b) == []
    assert all(w.outcome for w in request_operations.interests(b.runtime, request))


def test_a_failure_is_tried_again_within_its_budget_and_recorded() -> None:
    b = bench(decide=lambda c: Category.SERVER_BUSY if c.task.attempt < 3 else None)
    request = b.submit("ab")
    assert b.until_ended(request).state is RequestState.COMPLETE
    attempts = b.runtime.tasks.attempts(G[0].key)
    assert [a.category for a in attempts] == [Category.SERVER_BUSY, Category.SERVER_BUSY, None]
    means = {c: s.mean for c, s in history.class_statistics(b.runtime.store).items()}
    assert means == {G[0].task_class: 1.0, A.task_class: 1.0}
    counts = history.executions(b.runtime.store, 2, today=_today(b))
    assert sum(c.count for c in counts) == 9


def test_a_dry_run_counts_and_plans_nothing() -> None:
    b = bench()
    b.until_ended(b.submit("ab"))
    request = request_operations.submit(b.runtime, "owner", _document(b, "p"), dry_run=True)
    row = b.until_ended(request)
    assert row.state is RequestState.PREVIEWED
    assert (row.preview.granules, row.preview.tasks, row.preview.reused) == (4, 7, 3)
    assert row.preview.size == 20
    assert list(request_operations.interests(b.runtime, request)) == []
    assert list(outbox.mails(b.runtime.store, request)) == []


def test_a_plan_above_the_limit_is_refused_naming_the_setting() -> None:
    b = bench(options=ManagerOptions(max_tasks=6))
    row = b.until_ended(b.submit("p"))
    assert row.state is RequestState.REFUSED
    assert "SWATHMILL_MAX_TASKS allows 6" in row.message


def test_a_planner_that_refuses_and_one_that_breaks_end_the_request() -> None:
    b = bench()
    tries: list[str] = []

    def plan(request: Request) -> Plan:
        tries.append(request.title)
        if request.title == "refused":
            raise RequestRefusedError("grid.crs", "is unknown.", "Choose another.")
        raise ZeroDivisionError("broken")

    b.plans = _Planner(plan)
    refused, broken = b.submit("refused"), b.submit("broken")
    assert "grid.crs" in b.until_ended(refused).message
    row = b.until_ended(broken)
    assert row.state is RequestState.FAILED
    assert "ZeroDivisionError" in row.message
    assert tries.count("broken") == 3


def test_cancel_withdraws_what_is_unfinished_and_leaves_shared_tasks_to_others() -> None:
    b = bench(options=ManagerOptions(window=1))
    first, second = b.submit("p"), b.submit("ab", owner="other")
    b.manager.tick()
    b.manager.tick()
    request_operations.order(b.runtime, first, RequestOrder.CANCEL)
    assert b.until_ended(first).state is RequestState.CANCELLED
    assert all(
        interest.outcome == "done" for interest in request_operations.interests(b.runtime, first)
    )
    assert b.until_ended(second).state is RequestState.COMPLETE
    task = b.runtime.tasks.task(TOP.key)
    assert task is not None
    assert task.state is State.CANCELLED
    again = b.submit("p")
    assert b.until_ended(again).state is RequestState.COMPLETE


def test_cancel_orders_the_kill_of_what_runs() -> None:
    b = bench()
    request = b.submit("ab")
    b.manager.tick()
    b.manager.tick()
    claimed = protocol.claim(b.runtime, G[0].key, "worker", RetryPolicy())
    assert claimed is not None
    _beat(b, claimed)
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    for _ in range(3):
        b.manager.tick()
        b.runtime.clock.sleep(1)
    assert _beat(b, claimed) == (claimed.claim,)


def test_pause_stops_dispatch_and_resume_goes_on() -> None:
    b = bench()
    request = b.submit("p")
    request_operations.order(b.runtime, request, RequestOrder.PAUSE)
    b.rounds(20)
    b.ran.clear()
    b.rounds(5)
    assert b.ran == []
    assert b.row(request).paused
    request_operations.order(b.runtime, request, RequestOrder.RESUME)
    assert b.until_ended(request).state is RequestState.COMPLETE


def test_a_client_given_id_makes_submission_idempotent() -> None:
    b = bench()
    document = _document(b, "p")
    first = request_operations.submit(b.runtime, "me", document, request_id="mine")
    assert (
        request_operations.submit(b.runtime, "me", document, request_id="mine") == first == "mine"
    )
    assert len(list(request_operations.list_requests(b.runtime))) == 1


@pytest.mark.parametrize("rounds", range(1, 12))
def test_a_new_manager_goes_on_where_the_old_one_died(rounds: int) -> None:
    b = bench()
    request = b.submit("p")
    for epoch in range(2, 40):
        b.rounds(rounds, seconds=0.5)
        if b.row(request).state.ended:
            break
        b.restart(epoch)
    assert b.until_ended(request).state is RequestState.COMPLETE
    assert len(list(outbox.mails(b.runtime.store))) == 1


@pytest.mark.parametrize("how", [Category.SOURCE_BLOB_MISSING, Category.CORRUPT_BLOB_READ])
def test_a_lost_blob_is_made_again_for_who_needs_it(how: Category) -> None:
    b = bench()
    b.until_ended(b.submit("ab"))
    task = b.runtime.tasks.task(A.key)
    assert task is not None
    b.runtime.blobs.delete(*split_blob(task.files[0].blob))

    request = b.submit("p")
    for _ in range(100):
        b.manager.tick()
        for key in list(b.sent):
            claimed = protocol.claim(b.runtime, key, "worker", b.options.retry)
            b.sent.remove(key)
            if claimed is None:
                continue
            lost = sum(
                1 << i
                for i, files in claimed.input_files.items()
                if not all(b.runtime.blobs.exists(*split_blob(f.blob)) for f in files)
            )
            now = b.runtime.clock.now()
            category = how if lost else None
            attempt = claimed.attempt(started=now, ended=now, duration=1, category=category)
            if lost:
                protocol.fail(b.runtime, attempt, b.options.retry, healing=lost)
            else:
                protocol.commit(b.runtime, attempt, [b._store(claimed)])
        b.runtime.clock.sleep(1)
        if b.row(request).state.ended:
            break
    assert b.row(request).state is RequestState.COMPLETE
    healed = b.runtime.tasks.task(A.key)
    assert healed is not None
    assert healed.generation == 2
    for interest in request_operations.results(b.runtime, request):
        for file in interest.files:
            assert b.runtime.blobs.exists(*split_blob(file.blob))


def test_a_result_known_to_be_lost_is_made_again_for_all_who_have_it() -> None:
    b = bench()
    request = b.submit("ab")
    b.until_ended(request)
    ((lost,),) = (interest.files for interest in request_operations.results(b.runtime, request))
    b.runtime.blobs.delete(*split_blob(lost.blob))
    b.ran.clear()
    for _ in range(2):
        protocol.lose(b.runtime, A.key, lost.blob)
    protocol.lose(b.runtime, TOP.key, lost.blob)  # there is no such task yet
    row = b.until_ended(b.submit("p"))
    assert row.state is RequestState.COMPLETE
    assert sorted(b.ran) == sorted(s.key for s in (G[2], G[3], A, B, TOP))
    for name in (request, row.id):
        for interest in request_operations.results(b.runtime, name):
            for file in interest.files:
                assert b.runtime.blobs.exists(*split_blob(file.blob)), (name, interest)
    assert len(list(outbox.mails(b.runtime.store))) == 2
    assert left_over(b) == []


def test_a_result_known_to_be_lost_is_made_again_for_who_needs_it_now() -> None:
    """It is an input, too, of a task that is about to run."""
    b = bench()
    request = b.submit("p")
    b.manager.tick()
    while (task := b.runtime.tasks.task(TOP.key)) is None or task.missing:
        b.work()
        b.runtime.clock.sleep(1)
        b.manager.tick()
    (lost,) = next(
        w.files for w in request_operations.results(b.runtime, request) if w.key == A.key
    )
    b.runtime.blobs.delete(*split_blob(lost.blob))
    protocol.lose(b.runtime, A.key, lost.blob)
    assert b.until_ended(request).state is RequestState.COMPLETE
    assert b.ran.count(A.key) == 2
    for interest in request_operations.results(b.runtime, request):
        for file in interest.files:
            assert b.runtime.blobs.exists(*split_blob(file.blob))
    assert left_over(b) == []


def test_many_gaps_are_all_listed() -> None:
    plan = Plan(
        tasks=PLAN.tasks, gaps=tuple(Gap(what=f"day {i}", reason="no granule") for i in range(80))
    )
    b = Bench(plans={"p": plan})
    row = b.until_ended(b.submit("p"))
    assert row.state is RequestState.GAPS
    assert (len(row.gaps), row.gap_count) == (50, 80)
    assert request_operations.gaps(b.runtime, row) == plan.gaps


def test_a_wide_plan_is_written_in_batches() -> None:
    """A reduction over many inputs, an input of many dependents: more than a transaction holds."""
    many = [collect(f"m{i}") for i in range(150)]
    tops = [mosaic(f"t{i}", many[0]) for i in range(150)]
    every = mosaic("every", *many)
    plan = plan_of(*many, *tops, every, outputs={"every": "out"})
    b = Bench(plans={"wide": plan}, options=ManagerOptions(window=1000))
    assert b.until_ended(b.submit("wide"), limit=2000).state is RequestState.COMPLETE
    assert len(b.ran) == 301


def test_storage_that_fails_now_and_then_only_costs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench()
    store = b.runtime.store
    original = store.scan
    calls = [0]

    def scan(*args: object, **kwargs: object) -> object:
        calls[0] += 1
        if calls[0] % 37 == 0:
            raise StoreError("no answer")
        return original(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "scan", scan)
    request = b.submit("p")
    for _ in range(200):
        b.manager.tick()
        try:
            b.work()
        except StoreError:
            continue
        b.runtime.clock.sleep(1)
    assert b.row(request).state is RequestState.COMPLETE


def test_every_row_carries_a_schema_number() -> None:
    b = bench()
    b.until_ended(b.submit("p"))
    stored = b.runtime.store.tables()  # type: ignore[attr-defined]
    assert {row.entity["schema"] for found in stored.values() for row in found} == {SCHEMA}


class _Planner(dict[str, Plan]):
    def __init__(self, plan: object) -> None:
        self._plan = plan

    def __getitem__(self, title: str) -> Plan:
        return self._plan(_titled(title))  # type: ignore[no-any-return, operator]


def _titled(title: str) -> Request:
    from tests.service_manager.workbench import document

    return document(title)


def _document(_bench: Bench, title: str) -> Request:
    return _titled(title)


def _today(b: Bench):  # type: ignore[no-untyped-def]
    import datetime as dt

    return dt.datetime.fromtimestamp(b.runtime.clock.now(), dt.UTC).date()


def _beat(b: Bench, claimed: protocol.Claimed) -> tuple[str, ...]:
    row = workers.WorkerRow(
        name="worker",
        host="here",
        slots=2,
        started=1.0,
        beat_at=b.runtime.clock.now(),
        sequence=int(b.runtime.clock.monotonic() * 1000) + 1,
        attempts=(
            workers.RunningAttempt(
                key=claimed.task.key,
                claim=claimed.claim,
                started_ago=1.0,
                phase=claimed.task.phase,
                task_class=claimed.task.task_class,
            ),
        ),
    )
    return workers.beat(b.runtime.store, b.runtime.clock, row).kill


@pytest.mark.provokes(Category.UPSTREAM_FAILED)
def test_a_successor_that_cannot_be_stored_is_a_gap_and_the_manager_goes_on() -> None:
    long = collect(scribble(30_000))
    big = mosaic("big", G[0], long).model_copy(update={"clip": scribble(4_104_000)})
    plans = {"big": plan_of(*G, long, big, A, outputs={"big": "out", "ab": "out"})}
    b = Bench(
        plans=plans,
        decide=lambda c: Category.UNREADABLE_INPUT_FILE if c.task.key == long.key else None,
    )
    row = b.until_ended(b.submit("big"))
    assert row.state in (RequestState.GAPS, RequestState.FAILED)
    failed = b.runtime.tasks.task(big.key)
    assert failed is not None
    assert (failed.state, failed.category) == (State.FAILED, Category.UPSTREAM_FAILED)
    assert failed.fallback == ""
    assert "could not be planned without the inputs that failed: a transaction of" in failed.reason
    assert [
        w.fallbacks for w in request_operations.interests(b.runtime, row.id) if w.key == big.key
    ] == [()]


def test_a_plan_that_cannot_be_stored_says_so() -> None:
    big = mosaic("big", G[0]).model_copy(update={"clip": scribble(6_000_000)})
    b = Bench(plans={"big": plan_of(G[0], big, outputs={"big": "out"})})
    row = b.until_ended(b.submit("big"))
    assert row.state is RequestState.FAILED
    assert row.message.startswith("its plan could not be stored: a transaction of ")
    assert row.message.endswith(". Ask for fewer days or a smaller region.")
