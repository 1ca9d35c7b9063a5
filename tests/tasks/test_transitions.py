"""The state machine: every transition from every state, and what no sequence of them may do."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import FencedError
from tasks.model.categories import RULES, Category, Retry
from tasks.model.model import ArtifactFile, Attempt, Phase, State, Task
from tasks.model.spec import CollectSpec, GridSpec, Input, MosaicSpec
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Row
from tasks.tables import task_table, transitions
from tasks.tables.task_rows import Edge, Interest
from tasks.tables.task_table import MARKERS, RowKind, TaskTable, kind_of
from tasks.tables.transitions import Change, RetryPolicy

GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)
SPEC = CollectSpec(product="MOD13A2", collection="6", granule="g", production="1")
KEY = SPEC.key
FILES = (ArtifactFile(name="a", blob="artifacts/x/c/a", size=1, sha256="0"),)
POLICY = RetryPolicy(budget=3, base=10.0, ceiling=100.0)


def task(state: State, **more: object) -> Task:
    """A task in a state, with what goes with it."""
    fields: dict[str, object] = {
        "key": KEY,
        "phase": Phase.COLLECTION,
        "task_class": "class",
        "inputs": 2,
        "state": state,
        "interests": ("r1",),
        "sponsor": "r1",
        "etag": "1",
    }
    if state is State.RUNNING:
        fields |= {"claim": "c", "worker": "w", "attempt": 1}
    if state is State.WAITING:
        fields |= {"missing": 3}
    if state is State.DONE:
        fields |= {"files": FILES, "claim": "c", "attempt": 1}
    if state is State.FAILED:
        fields |= {"category": Category.BAD_IMAGE_FORMAT, "attempt": 1}
    return Task(**{**fields, **more})  # type: ignore[arg-type]


def attempt(category: Category | None = None, claim: str = "c", number: int = 1) -> Attempt:
    return Attempt(
        key=KEY,
        number=number,
        claim=claim,
        phase=Phase.COLLECTION,
        task_class="class",
        worker="w",
        started=1.0,
        ended=2.0,
        duration=1.0,
        category=category,
    )


def interest(request: str = "r2") -> Interest:
    return Interest(request=request, key=KEY, phase=Phase.COLLECTION)


def failing(category: Category, **more: object) -> Callable[[Task], Change]:
    return lambda t: transitions.fail(
        t,
        attempt(category),
        POLICY,
        now=100.0,
        jitter=0.5,
        **more,  # type: ignore[arg-type]
    )


CASES: list[tuple[str, Callable[[Task], Change], dict[State, State]]] = [
    (
        "add an interest",
        lambda t: transitions.add_interest(t, interest(), 0),
        {
            **{s: s for s in State if s.live or s is State.DONE},
            State.FAILED: State.READY,
            State.CANCELLED: State.READY,
            State.EXPIRED: State.READY,
        },
    ),
    (
        "add an interest with inputs missing",
        lambda t: transitions.add_interest(t, interest(), 1),
        {
            **{s: s for s in State if s.live or s is State.DONE},
            State.FAILED: State.WAITING,
            State.CANCELLED: State.WAITING,
            State.EXPIRED: State.WAITING,
        },
    ),
    (
        "drop the last interest",
        lambda t: transitions.drop(t, "r1"),
        {s: State.CANCELLED if s.live else s for s in State},
    ),
    ("claim", lambda t: transitions.claim(t, "new", "w", 1.0), {State.READY: State.RUNNING}),
    (
        "commit",
        lambda t: transitions.commit(t, attempt(), FILES),
        {State.RUNNING: State.DONE},
    ),
    ("fail for good", failing(Category.BAD_IMAGE_FORMAT), {State.RUNNING: State.FAILED}),
    (
        "stop",
        lambda t: transitions.stop(t, Category.USER_CODE_FAILED, "no scipy", "not run"),
        {State.READY: State.FAILED},
    ),
    ("fail for now", failing(Category.SERVER_BUSY), {State.RUNNING: State.READY}),
    ("hand back", failing(Category.CANCELLED), {State.RUNNING: State.READY}),
    (
        "fail for a lost input",
        failing(Category.SOURCE_BLOB_MISSING, healing=1),
        {State.RUNNING: State.WAITING},
    ),
    (
        "fail for a damaged input",
        failing(Category.CORRUPT_BLOB_READ, healing=1),
        {State.RUNNING: State.WAITING},
    ),
    (
        "tell all",
        lambda t: transitions.tell(t, 3, 0),
        {s: State.READY if s is State.WAITING else s for s in State},
    ),
    ("tell some", lambda t: transitions.tell(t, 1, 0), {s: s for s in State}),
    ("tell lacking", lambda t: transitions.tell(t, 3, 1), {s: s for s in State}),
    (
        "heal",
        lambda t: transitions.heal(t, 0),
        {s: State.READY if s in (State.DONE, State.EXPIRED) else s for s in State},
    ),
    (
        "lose",
        lambda t: transitions.lose(t, FILES[0].blob),
        {s: State.EXPIRED if s is State.DONE else s for s in State},
    ),
    ("lose what is not its own", lambda t: transitions.lose(t, "x/y"), {s: s for s in State}),
    (
        "retry",
        lambda t: transitions.retry(t, [interest("r1")], 0),
        {s: s if s.live or s is State.DONE else State.READY for s in State},
    ),
    (
        "retry without inputs",
        lambda t: transitions.retry(t, [interest("r1")], 0, 1),
        {s: s if s.live or s is State.DONE else State.WAITING for s in State},
    ),
]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("change", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_every_transition_from_every_state(
    change: Callable[[Task], Change], expected: dict[State, State], state: State
) -> None:
    """A transition leads where it should, or is refused; and its transaction fits its task."""
    before = task(state)
    if state not in expected:
        with pytest.raises(FencedError):
            change(before)
        return
    after = change(before)
    assert after.task.state is expected[state]
    _check_operations(before, after)


def _check_operations(before: Task, change: Change) -> None:
    """One transaction: the row under its ETag, and exactly the markers that differ."""
    if not change.operations:
        assert change.task == before
        return
    first = change.operations[0]
    assert first.row == task_table.task_row(KEY)
    assert first.etag == before.etag  # type: ignore[union-attr]
    store = MemoryStore()
    names = [op.row for op in change.operations]
    assert len(names) == len(set(names))
    old, new = task_table.markers(before), task_table.markers(change.task)
    touched = {n for n in names if kind_of(n) in MARKERS}
    assert touched == set(old) ^ set(new)
    assert store.tables() == {}


@pytest.mark.parametrize("claim", ["other", ""])
def test_another_claim_commits_and_fails_nothing(claim: str) -> None:
    with pytest.raises(FencedError):
        transitions.commit(task(State.RUNNING), attempt(claim=claim), FILES)
    with pytest.raises(FencedError):
        transitions.fail(
            task(State.RUNNING),
            attempt(Category.WORKER_LOST, claim=claim),
            POLICY,
            now=1.0,
            jitter=0.0,
        )


def test_a_task_put_off_is_not_claimed_before_it_is_woken() -> None:
    put_off = task(State.READY, not_before=50.0)
    with pytest.raises(FencedError):
        transitions.claim(put_off, "c", "w", 60.0)
    with pytest.raises(FencedError):
        transitions.wake(put_off, 49.0)
    woken = transitions.wake(put_off, 50.0).task
    assert transitions.claim(woken, "c", "w", 60.0).task.attempt == 1


@pytest.mark.parametrize("category", Category)
def test_each_category_is_retried_by_its_rule(category: Category) -> None:
    """How many attempts are made of a task that always fails the same way."""
    found = task(State.READY)
    attempts = 0
    while found.state is State.READY and attempts < 20:
        if found.not_before:
            found = transitions.wake(found, found.not_before).task
        found = transitions.claim(found, f"c{attempts}", "w", 1.0).task
        attempts += 1
        found = transitions.fail(
            found,
            attempt(category, claim=f"c{attempts - 1}", number=attempts),
            POLICY,
            now=1.0,
            jitter=0.5,
        ).task
    expected = {
        Retry.NEVER: 1,
        Retry.ONCE: 2,
        Retry.BACK_OFF: 3,
        Retry.ELSEWHERE: 10,
        Retry.HEAL: 3,
        Retry.AT_ONCE: 20,
    }
    assert attempts == expected[RULES[category].retry]


def test_killed_for_memory_twice_is_enough_whatever_else_failed_between() -> None:
    policy = RetryPolicy(budget=10)
    found = task(State.RUNNING)
    for number, category in enumerate(
        [Category.SERVER_BUSY, Category.OUT_OF_MEMORY, Category.WORKER_LOST], start=1
    ):
        claimed = transitions.fail(
            found, attempt(category, claim=found.claim, number=number), policy, now=1.0, jitter=0.5
        ).task
        assert claimed.state is State.READY
        woken = transitions.wake(claimed, 1e9).task
        found = transitions.claim(woken, f"c{number}", "w", 1.0).task
    last = transitions.fail(
        found,
        attempt(Category.OUT_OF_MEMORY, claim=found.claim, number=4),
        policy,
        now=1.0,
        jitter=0.5,
    ).task
    assert last.state is State.FAILED
    assert last.strikes == 2


def test_a_loss_with_the_worker_costs_no_try_and_ends_after_ten() -> None:
    found = task(State.RUNNING)
    for number in range(1, 10):
        found = transitions.fail(
            found,
            attempt(Category.WORKER_LOST, claim=found.claim, number=number),
            POLICY,
            now=1.0,
            jitter=0.5,
        ).task
        assert (found.state, found.retries, found.losses) == (State.READY, 0, number)
        assert found.alone
        assert found.not_before == 1.0 + POLICY.delay(number - 1, 0.5)
        found = transitions.claim(transitions.wake(found, 1e9).task, f"c{number}", "w", 1.0).task
    last = attempt(Category.WORKER_LOST, claim=found.claim, number=10)
    failed = transitions.fail(found, last, POLICY, now=1.0, jitter=0.5).task
    assert (failed.state, failed.category) == (State.FAILED, Category.WORKER_LOST)


def test_back_off_doubles_with_jitter_and_heeds_the_server() -> None:
    assert [POLICY.delay(n, 0.5) for n in range(5)] == [10, 20, 40, 80, 100]
    assert POLICY.delay(0, 0.0) == 5
    assert POLICY.delay(0, 0.0, asked=30) == 30
    assert POLICY.delay(0, 0.0, asked=1e9) == POLICY.longest


def test_a_lacking_input_that_is_revived_is_waited_for_again() -> None:
    told = transitions.tell(task(State.WAITING), 3, 1).task
    assert (told.missing, told.lacking, told.state) == (0, 1, State.WAITING)
    again = transitions.reconsider(told, 1).task
    assert (again.missing, again.lacking) == (1, 0)
    assert transitions.tell(again, 1, 0).task.state is State.READY


def test_supersede_only_when_all_ended_and_some_lack() -> None:
    with pytest.raises(FencedError):
        transitions.supersede(task(State.WAITING), "next")
    told = transitions.tell(task(State.WAITING), 3, 1).task
    after = transitions.supersede(told, "next").task
    assert (after.state, after.category, after.fallback) == (
        State.FAILED,
        Category.UPSTREAM_FAILED,
        "next",
    )


def test_expire_refuses_what_is_wanted() -> None:
    with pytest.raises(FencedError):
        transitions.expire(task(State.DONE))
    after = transitions.expire(task(State.DONE, interests=())).task
    assert (after.state, after.files) == (State.EXPIRED, ())


def test_a_want_of_another_request_keeps_a_shared_task_alive() -> None:
    shared = transitions.add_interest(task(State.READY), interest("r2"), 0).task
    left = transitions.drop(shared, "r1").task
    assert (left.state, left.interests, left.sponsor) == (State.READY, ("r2",), "r2")
    assert transitions.drop(left, "r2").task.state is State.CANCELLED


@settings(max_examples=200, deadline=None)
@given(
    ends=st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 15)).map(lambda p: (p[0] | p[1], p[1])),
        max_size=8,
    )
)
def test_telling_in_any_order_and_twice_comes_to_the_same(ends: list[tuple[int, int]]) -> None:
    """Each input ends one way; how its end is told does not matter."""
    lacking = 0b0101
    told = [(ended, ended & lacking) for ended, _ in ends]
    waiting = task(State.WAITING, missing=15, inputs=4)
    forward, backward = waiting, waiting
    for ended, without in told:
        forward = transitions.tell(forward, ended, without).task
    for ended, without in reversed([*told, *told]):
        backward = transitions.tell(backward, ended, without).task
    assert (forward.missing, forward.lacking, forward.state) == (
        backward.missing,
        backward.lacking,
        backward.state,
    )


def test_rows_come_back_as_they_were() -> None:
    store = MemoryStore()
    inputs = tuple(Input(key=f"{i:064x}", name=f"granule {i}") for i in range(900))
    spec = MosaicSpec(name="wide", grid=GRID, inputs=inputs)
    first = Interest(request="r", key=spec.key, phase=spec.phase, name="wide", output="out")
    edge = Edge(key=spec.key, dependent="d" * 64, bits=2**899 + 1)
    change = transitions.create(spec, first, 2**900 - 1, (edge,))
    store.transact(task_table.TABLE, spec.key[0], change.operations)
    shard = spec.key[0]
    tasks = TaskTable(store)
    assert tasks.task(spec.key) == change.task
    kinds = [kind_of(row.row) for row in tasks.other_rows(shard)]
    assert kinds.count(RowKind.SPEC) > 1
    assert tasks.spec(spec.key) == spec
    assert list(tasks.edges(spec.key)) == [edge]
    assert list(tasks.interests("r", shard)) == [first]


def test_a_want_remembers_every_stand_in() -> None:
    interest = Interest(request="r", key="k", phase=Phase.AGGREGATION)
    assert interest.fallbacks == ()
    again = interest
    for fallback in ("a", "a", "b", "a", ""):
        again = again.with_fallback(fallback)
    assert (again.fallback, again.earlier, again.fallbacks) == ("a", ("b",), ("b", "a"))
    for one in (interest, again):
        row = Row(partition="k", row="w|r|k", etag="1", entity=task_table.INTEREST.dump(one))
        assert task_table.INTEREST.load(row) == one


def test_an_attempt_keeps_the_end_of_a_long_log() -> None:
    log = "x" * 50_000 + "Traceback: the end"
    record = Attempt(**{**attempt(Category.UNKNOWN).__dict__, "log": log})
    store = MemoryStore()
    change = transitions.fail(task(State.RUNNING), record, POLICY, now=1.0, jitter=0.0)
    row = next(op for op in change.operations if kind_of(op.row) is RowKind.ATTEMPT)
    tasks = TaskTable(store)
    tasks.transact(record.key[0], [row])
    kept = tasks.attempts(record.key)[0]
    assert kept.log.endswith("Traceback: the end")
    assert len(kept.log) == 16_384
