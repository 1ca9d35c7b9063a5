"""Reductions whose first runs all fail alike: the others are not run, and a retry runs them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from service_manager.dispatch.brake import Brake, Failure, common_failure
from service_manager.dispatch.manager_cache import Live
from tasks.bag import (
    protocol,
    task_table,
    transitions,
    workers,
)
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import Phase, RequestState, TaskOutcome
from tasks.bag.spec import ReduceSpec
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Interest
from tasks.bag.workers import WorkerRow
from tasks.errors import StoreError
from tasks.request.document import dump_request
from tasks.requests import (
    outbox,
    request_operations,
    request_table,
    retrying,
)
from tasks.requests.plan import Plan
from tasks.storage.store import MergeEntity, Operation, Row, Store
from tests.service_manager.scene import Scene, one_place
from tests.service_manager.workbench import (
    Bench,
    collect,
    document,
    mosaic,
    plan_of,
    reduction,
)

GRANULE = collect("g")
LAYER = mosaic("layer", GRANULE)
RUNS = [reduction(n, LAYER) for n in range(60)]
RESULT = mosaic("result", *RUNS)
SPECS: tuple[Spec, ...] = (GRANULE, LAYER, *RUNS, RESULT)
WHOLE = plan_of(*SPECS, outputs={"layer": "MOD/x", "result": "own/x"})
CRASH = "python own.py ended with exit code 1: ModuleNotFoundError: No module named 'scipy'"
REDUCTION = {"package": "own", "group_by": ["cell", "month"]}


def crash(claimed: protocol.Claimed) -> Category | None:
    """Every run of the package fails."""
    return Category.USER_CODE_FAILED if isinstance(claimed.spec, ReduceSpec) else None


def bench(plans: dict[str, Plan] | None = None) -> Bench:
    return Bench(plans=plans or {"whole": WHOLE}, decide=crash, say=lambda _: CRASH)


def runs(found: Bench, *, but: int = 0) -> int:
    """How many attempts at reductions were made, after the first `but` attempts of any kind."""
    keys = {run.key for run in RUNS}
    return sum(key in keys for key in found.ran[but:])


def reductions(found: Bench, request: str) -> list[Interest]:
    keys = {run.key for run in RUNS}
    return [
        interest
        for interest in request_operations.interests(found.runtime, request)
        if interest.key in keys
    ]


def test_sixty_runs_that_fail_alike_cost_a_few() -> None:
    found = bench()
    request = found.submit("whole", reduction=REDUCTION)
    row = found.until_ended(request)
    spent = runs(found)
    assert 3 <= spent < 20, spent
    assert row.state is RequestState.FAILED
    assert f"{CRASH} ({spent} of 60 runs; {60 - spent} were not run" in row.message
    assert "1 other result is there" in row.message
    assert [interest.name for interest in request_operations.results(found.runtime, request)] == [
        "layer"
    ]
    told = reductions(found, request)
    assert {interest.category for interest in told} == {Category.USER_CODE_FAILED}
    assert sum(interest.stopped for interest in told) == 60 - spent
    assert all(
        "mend the package and retry" in interest.message for interest in told if interest.stopped
    )
    (gap,) = [one for one in row.gaps if "not run" in one.reason]  # one for all of them
    assert gap.what == f"{60 - spent} more runs of the reduction"
    assert CRASH in gap.reason, "the cause comes first: a gap's reason is cut off"
    (mail,) = outbox.mails(found.runtime.store, request)
    body = " ".join(mail.body.split())
    assert "No module named 'scipy'" in body
    assert f"user code failed, 60 tasks, {60 - spent} of them not run" in body
    assert f"result: user code failed: {CRASH}" in body
    assert "none of" not in body


def test_one_run_that_ends_well_keeps_the_others_going() -> None:
    found = bench()
    # The second run, as nothing is stopped before three have ended.
    found.decide = lambda claimed: None if runs(found) == 2 else crash(claimed)
    row = found.until_ended(found.submit("whole", reduction=REDUCTION))
    assert runs(found) == 60
    assert row.state is RequestState.GAPS
    assert f"some lack an input: user code failed: {CRASH} (59 of 60 runs)" in row.message


@dataclass
class Answerless:
    """A store that gives no answer to the first write that records how one of some runs ended."""

    inner: Store
    keys: set[str]
    unanswered: int = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        return self.inner.get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        return self.inner.scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        etags = self.inner.transact(table, partition, operations)
        told = {
            operation.row.rpartition("|")[2]
            for operation in operations
            if isinstance(operation, MergeEntity) and operation.row.startswith("w|")
        }
        if told & self.keys and not self.unanswered:
            self.unanswered += 1
            raise StoreError("no answer")
        return etags


def answerless(found: Bench, keys: set[str]) -> Answerless:
    """Have the bench's manager act over such a store."""
    store = Answerless(found.runtime.store, keys)
    found.runtime = replace(found.runtime, store=store)
    found.restart()
    return store


def test_runs_are_stopped_though_storage_gave_no_answer_once() -> None:
    found = bench()
    store = answerless(found, {run.key for run in RUNS})
    found.until_ended(found.submit("whole", reduction=REDUCTION))
    assert store.unanswered == 1
    assert runs(found) < 20


def test_a_run_that_ended_well_counts_though_storage_gave_no_answer() -> None:
    """It ends in the round in which three fail alike, and is recorded after them."""
    granules = [collect(f"MOD13A2.A20120{day}.h18v04.006") for day in range(10, 30)]
    layers = [mosaic(f"layer {g.granule}", g) for g in granules]
    layers.sort(key=lambda layer: shard(reduction(0, layer).key))
    bad, late, good = layers[0], layers[1], layers[-1]
    begun = [*(reduction(n, bad) for n in range(3)), reduction(3, good)]
    assert {shard(run.key) for run in begun[:3]} < {shard(run.key) for run in begun}
    assert max(shard(run.key) for run in begun) == shard(begun[3].key)
    waiting = [reduction(n, late) for n in range(4, 60)]
    specs: list[Spec] = [*granules, bad, good, late, *begun, *waiting]
    found = Bench(plans={"whole": plan_of(*specs)}, say=lambda _: CRASH)
    found.decide = lambda claimed: None if claimed.task.key == begun[3].key else crash(claimed)
    store = answerless(found, {begun[3].key})

    def rounds(hold: set[str]) -> None:
        for _ in range(8):
            clock = found.runtime.clock
            wide = WorkerRow(
                name="worker", host="here", slots=100, started=1.0, beat_at=clock.now(), sequence=1
            )
            workers.beat(found.runtime.store, clock, wide)
            found.manager.tick()
            sent, held = list(found.sent), [key for key in found.sent if key in hold]
            found.sent[:] = [key for key in sent if key not in hold]
            found.work()
            found.sent[:] = held
            found.runtime.clock.sleep(1)

    request = found.submit("whole", reduction=REDUCTION)
    runs_of = {run.key for run in (*begun, *waiting)}
    rounds({given.key for given in late.inputs} | runs_of)
    assert {run.key for run in begun} <= set(found.sent)
    rounds(runs_of)
    rounds({run.key for run in waiting})
    found.until_ended(request)
    assert store.unanswered == 1
    assert len(runs_of & set(found.ran)) == 60


def test_runs_that_fail_in_different_words_go_on() -> None:
    found = bench()
    found.say = lambda claimed: f"{CRASH} {claimed.task.key}"
    row = found.until_ended(found.submit("whole", reduction=REDUCTION))
    assert runs(found) == 60
    assert row.state is RequestState.FAILED


def test_runs_that_take_too_long_stop_nothing() -> None:
    """They say nothing of smaller groups."""

    def slow(claimed: protocol.Claimed) -> Category | None:
        return Category.USER_CODE_TIMED_OUT if isinstance(claimed.spec, ReduceSpec) else None

    found = Bench(plans={"whole": WHOLE}, decide=slow, say=lambda _: "it printed nothing")
    found.until_ended(found.submit("whole", reduction=REDUCTION))
    assert runs(found) == 60


def test_failures_that_may_pass_stop_nothing() -> None:
    found = bench()
    found.decide = lambda claimed: crash(claimed) and Category.UNREADABLE_INPUT_FILE
    found.until_ended(found.submit("whole", reduction=REDUCTION))
    assert runs(found) == 60


def test_a_retry_of_the_ended_request_runs_them_all() -> None:
    found = bench()
    first = found.submit("whole", reduction=REDUCTION)
    found.until_ended(first)
    but = len(found.ran)
    second = retrying.retry(found.runtime, first, retrying.Scope()).id
    assert found.until_ended(second).state is RequestState.FAILED
    assert runs(found, but=but) == 60


def test_another_request_of_the_same_package_is_stopped_again() -> None:
    found = bench()
    found.until_ended(found.submit("whole", reduction=REDUCTION))
    but = len(found.ran)
    row = found.until_ended(found.submit("whole", owner="another", reduction=REDUCTION))
    assert row.state is RequestState.FAILED
    assert 3 <= runs(found, but=but) < 20


def test_a_retry_while_the_request_runs_runs_what_was_stopped() -> None:
    """A granule that never comes keeps the request going."""
    late = collect("late")
    other = mosaic("other", late)
    plan = plan_of(
        *SPECS, late, other, outputs={"layer": "MOD/x", "result": "own/x", "other": "MOD/x"}
    )
    found = bench({"whole": plan})
    holding = [True]

    def decide(claimed: protocol.Claimed) -> Category | None:
        if claimed.task.key == late.key and holding:
            return Category.CANCELLED  # handed back, again and again
        return crash(claimed)

    found.decide = decide
    request = found.submit("whole", reduction=REDUCTION)
    found.rounds(40)
    told = reductions(found, request)
    assert all(interest.outcome == "failed" for interest in told)
    stopped = next(interest for interest in told if interest.stopped)
    but = len(found.ran)
    retrying.retry(found.runtime, request, retrying.Scope(task=stopped.key))
    found.rounds(10)
    assert stopped.key in found.ran[but:]
    assert runs(found, but=but) == 1
    again = next(interest for interest in reductions(found, request) if interest.key == stopped.key)
    assert (again.outcome, again.stopped, again.message) == ("failed", False, CRASH)
    but = len(found.ran)
    retrying.retry(found.runtime, request, retrying.Scope())
    found.rounds(40)
    assert runs(found, but=but) == 60
    holding.clear()
    assert found.until_ended(request).state is RequestState.FAILED


@pytest.mark.parametrize("well", [True, False])
def test_a_run_made_again_in_place_of_its_fallback_is_not_stopped(well: bool) -> None:
    """Another request's retry begins it again; its fallback alone had ended well."""
    absent, late = collect("absent"), collect("late")
    part, last = mosaic("part", absent, GRANULE), mosaic("last", late)
    again, waiting = reduction(3, part), [reduction(n, last) for n in range(4, 8)]
    specs: list[Spec] = [GRANULE, LAYER, *RUNS[:3], absent, part, again, late, last, *waiting]
    plans = {
        "runs": plan_of(*specs),
        "other": plan_of(absent, late, mosaic("other", absent, late)),
    }
    crashing = {run.key for run in (*RUNS[:3], *waiting)} | (set() if well else {again.key})
    held = {LAYER.key, late.key}
    missing = {absent.key}

    def decide(claimed: protocol.Claimed) -> Category | None:
        key = claimed.task.key
        if key in held:
            return Category.CANCELLED  # handed back, again and again
        if key in missing:
            return Category.SOURCE_NOT_PUBLISHED
        return Category.USER_CODE_FAILED if key in crashing else None

    found = Bench(plans=plans, decide=decide, say=lambda _: CRASH)
    request, other = (found.submit(name, reduction=REDUCTION) for name in plans)

    def told() -> list[str]:
        interests = list(request_operations.interests(found.runtime, request))
        of_runs = [one for one in interests if one.phase is Phase.REDUCTION and one.outcome]
        return sorted(str(one.outcome) for one in of_runs)

    found.rounds(200)
    assert told() == ["done", "superseded"]
    held.remove(LAYER.key)
    found.rounds(20)
    assert told() == ["done", *["failed"] * 3, "superseded"]
    missing.clear()
    retrying.retry(found.runtime, other, retrying.Scope())
    found.rounds(20)
    assert again.key in found.ran
    assert told() == (["done", *["failed"] * 3] if well else ["failed"] * 4)
    held.clear()
    found.until_ended(request)
    assert len({run.key for run in waiting} & set(found.ran)) == (4 if well else 0)


def test_a_run_that_another_request_expects_something_of_is_not_stopped() -> None:
    """Of the runs that both share none has ended yet; the other's own have ended well."""
    late = collect("late")
    others = [reduction(n, LAYER) for n in range(100, 104)]
    shared = [reduction(n, late) for n in range(30)]
    one: list[Spec] = [late, *shared, mosaic("one", *shared)]
    both: list[Spec] = [GRANULE, LAYER, late, *others, *shared, mosaic("both", *others, *shared)]
    plans = {
        "one": plan_of(*one, outputs={"one": "own/x"}),
        "both": plan_of(*both, outputs={"both": "own/x"}),
    }
    good, keys = {spec.key for spec in others}, {spec.key for spec in shared}
    for first, expected in (("both", 30), ("", 20)):
        found = bench(plans)
        held = [True]

        def decide(claimed: protocol.Claimed, held: list[bool] = held) -> Category | None:
            if claimed.task.key == late.key and held:
                return Category.CANCELLED
            return None if claimed.task.key in good else crash(claimed)

        found.decide = decide
        if first:
            found.submit(first, reduction=REDUCTION)
            found.rounds(6)
        request = found.submit("one", owner="another", reduction=REDUCTION)
        held.clear()
        found.until_ended(request)
        ran = sum(key in keys for key in found.ran)
        assert ran == expected if first else ran < expected


def test_a_new_manager_stops_what_the_one_before_would_have() -> None:
    found = bench()
    request = found.submit("whole", reduction=REDUCTION)
    while runs(found) < 3:
        found.rounds(1)
    found.restart(epoch=2)
    row = found.until_ended(request)
    assert runs(found) < 20
    found.restart(epoch=3)
    found.rounds(5)
    assert found.row(request).message == row.message


# --- one decision ---


def told(number: int, outcome: TaskOutcome | None = None, **more: object) -> Interest:
    """What became of a run."""
    failed = outcome is TaskOutcome.FAILED
    return Interest(
        **{  # type: ignore[arg-type]
            "request": "r",
            "key": f"{number:064x}",
            "phase": Phase.REDUCTION,
            "outcome": outcome,
            "category": Category.USER_CODE_FAILED if failed else None,
            "message": CRASH if failed else "",
            **more,
        }
    )


LOST = TaskOutcome.FAILED
THREE = [told(0, LOST), told(1, LOST), told(2, LOST, output="own")]


@pytest.mark.parametrize(
    ("interests", "stops"),
    [
        ([*THREE, told(3)], True),
        ([*THREE, told(3), told(4, TaskOutcome.GAP)], True),
        ([*THREE, told(3, phase=Phase.COLLECTION)], False),  # no run is left
        ([*THREE[:2], told(3), told(4, LOST, phase=Phase.COLLECTION)], False),
        ([*THREE[1:], told(3)], False),
        ([*THREE, told(3), told(4, TaskOutcome.DONE)], False),
        ([*THREE, told(3), told(4, LOST, message="odd")], False),
    ],
)
def test_three_runs_that_failed_alike_stop_those_that_are_left(
    interests: list[Interest], stops: bool
) -> None:
    live = Scene().request("r")
    for one in interests:
        live.note(one)
    failure = Failure(category=Category.USER_CODE_FAILED, message=CRASH)
    assert common_failure(live) == (failure if stops else None)


@dataclass
class Braked:
    """Runs of a request of which three failed alike; the others are ready."""

    left: Sequence[Spec] = tuple(RUNS[3:5])
    since: dict[str, object] = field(default_factory=dict)
    """What the request's row says since the manager has read it."""

    def __post_init__(self) -> None:
        self.scene = Scene()
        self.dispatch = one_place(window=8, resend=30.0)
        self.noticed: list[str] = []
        self.live = self.scene.request("r")
        made: list[Spec] = [GRANULE, LAYER, *RUNS[:3]]
        for spec in made:
            self.scene.write(spec)
            self.scene.run(spec, Category.USER_CODE_FAILED if spec in RUNS else None)
        self.scene.process()
        for run in self.left:
            self.scene.write(run)
            self.dispatch.add(run.key, "r")
        self.store(self.live, **self.since)
        self.brake = Brake(
            self.scene.runtime,
            self.scene.cache,
            self.dispatch,
            self.scene.cache.requests.get,
            self.noticed.extend,
            epoch=1,
        )

    def store(self, live: Live, **more: object) -> None:
        """Write a request's row."""
        row = replace(live.row, document=dump_request(document("whole")), **more)  # type: ignore[arg-type]
        operations = request_table.insert_request(row)
        self.scene.store.transact(request_table.TABLE, request_table.PARTITION, operations)

    def other(self, spec: Spec | None, state: RequestState = RequestState.RUNNING) -> None:
        """Another request, which wants a run."""
        self.store(self.scene.request("other", state))
        if spec is not None:
            interest = self.scene.interest("other", spec)
            self.scene.change(spec, lambda task: transitions.add_interest(task, interest, 0))

    def begun_again(self, spec: Spec, generation: int) -> None:
        task = replace(self.scene.task(spec), generation=generation)
        self.scene.tasks.transact(shard(task.key), [task_table.replace_task(task, task.etag)])

    @property
    def stopped(self) -> list[bool]:
        """Which of the runs that were left are stopped."""
        return [self.scene.task(run).state == "failed" for run in self.left]


def test_a_step_of_the_brake_says_whether_it_stopped_a_run() -> None:
    one = Braked()
    assert one.brake.step() is True
    assert one.stopped == [True, True]
    assert one.noticed == [shard(run.key) for run in one.left]
    assert one.dispatch.known() == []
    assert one.brake.step() is False
    one.scene.cache.requests.clear()
    assert one.brake.step() is False


def test_a_run_that_a_worker_has_begun_is_left_to_it() -> None:
    one = Braked()
    one.scene.claim(RUNS[4])
    assert one.brake.step() is True
    assert one.stopped == [True, False]
    assert one.dispatch.known() == [RUNS[4].key]
    assert one.brake.step() is False


def test_a_run_that_is_gone_is_not_stopped() -> None:
    one = Braked()
    one.dispatch.remove(RUNS[3].key)
    gone = reduction(99, LAYER)
    one.scene.interest("r", gone)
    one.dispatch.add(gone.key, "r")
    assert one.brake.step() is True
    assert one.dispatch.known() == [gone.key]


@pytest.mark.parametrize(
    ("wanted", "state", "stops"),
    [
        (False, RequestState.RUNNING, True),
        (True, RequestState.CANCELLING, True),
        (True, RequestState.RUNNING, False),
    ],
)
def test_a_run_is_stopped_unless_another_request_may_see_it_succeed(
    wanted: bool, state: RequestState, stops: bool
) -> None:
    one = Braked()
    one.other(RUNS[3] if wanted else None, state)
    one.brake.step()
    assert one.stopped == [stops, True]


@pytest.mark.parametrize(
    ("since", "generation", "stops"),
    [
        ({"retry_orders": ("all",)}, 1, False),
        ({"retried": True}, 1, False),
        ({"retry_of": "earlier"}, 1, True),
        ({"retry_of": "earlier"}, 2, False),
        ({}, 2, True),
    ],
)
def test_a_run_that_a_retry_asks_for_is_not_stopped(
    since: dict[str, object], generation: int, stops: bool
) -> None:
    """It failed before; or the manager is yet to obey an order, or to hear of one that was."""
    one = Braked(since=since)
    one.begun_again(RUNS[3], generation)
    one.brake.step()
    assert one.stopped[0] == stops


def test_a_run_that_a_retry_asks_for_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Braked(left=RUNS[3:4], since={"retry_of": "earlier"})
    one.begun_again(RUNS[3], 2)
    assert one.brake.step() is False

    def read(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(one.scene.store, "get", read)
    assert one.brake.step() is False
