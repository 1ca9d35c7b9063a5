"""The state machine: every transition from every state, and what no sequence of them may do."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.bag import spec_packing, task_table, transitions
from tasks.bag.categories import RULES, Category, Retry
from tasks.bag.model import ArtifactFile, Attempt, Phase, State, Task, TaskOutcome
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec
from tasks.bag.task_rows import Edge, Interest
from tasks.bag.task_table import MARKERS, RowKind, TaskTable, kind_of
from tasks.bag.transitions import Change, RetryPolicy
from tasks.canonical import digest_of
from tasks.errors import FencedError
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Insert, Operation, Replace, Row

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
        lambda t: transitions.inputs_ended(t, 3, 0),
        {s: State.READY if s is State.WAITING else s for s in State},
    ),
    ("tell some", lambda t: transitions.inputs_ended(t, 1, 0), {s: s for s in State}),
    ("tell lacking", lambda t: transitions.inputs_ended(t, 3, 1), {s: s for s in State}),
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
    for early in (put_off, task(State.READY)):
        with pytest.raises(FencedError):
            transitions.wake(early, 49.0)
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
        Retry.REPAIR: 1,  # no input of it is damaged
        Retry.AT_ONCE: 20,
    }
    assert attempts == expected[RULES[category].retry]


def test_a_task_waits_for_a_damaged_input() -> None:
    """It is charged, so that it ends; without a damaged input it fails at once."""
    damaged = attempt(Category.UNREADABLE_INPUT_FILE)
    found = task(State.RUNNING)
    after = transitions.fail(found, damaged, POLICY, now=1.0, jitter=0.5, healing=1).task
    assert (after.state, after.missing, after.retries) == (State.WAITING, 1, 1)
    spent = replace(found, retries=POLICY.budget - 1)
    for begun, healing in ((spent, 1), (found, 0)):
        last = transitions.fail(begun, damaged, POLICY, now=1.0, jitter=0.5, healing=healing).task
        assert last.state is State.FAILED


def test_a_struck_copy_is_known_until_somebody_asks_for_another_try() -> None:
    made = replace(task(State.DONE), files=FILES)
    lost = transitions.lose(made, FILES[0].blob, strike=True).task
    assert (lost.state, lost.files, lost.struck) == (State.EXPIRED, (), (FILES[0].sha256,))
    again = transitions.heal(lost, 0).task
    assert (again.state, again.struck) == (State.READY, lost.struck)
    other = replace(again, state=State.DONE, files=(replace(FILES[0], sha256="1"),))
    both = transitions.lose(other, FILES[0].blob, strike=True).task
    assert both.struck == (FILES[0].sha256, "1")
    interest = Interest(request="r", key=KEY, phase=SPEC.phase, name="g")
    for state in (State.FAILED, State.EXPIRED):
        ended = replace(both, state=state, interests=("r",))
        assert transitions.retry(ended, [interest], 0).task.struck == ()
        assert transitions.add_interest(ended, interest, 0).task.struck == ()


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
    short = RetryPolicy(base=0.5)
    assert short.delay(0, 0.0) == 0.25
    busy = attempt(Category.SERVER_BUSY)
    again = transitions.fail(task(State.RUNNING), busy, short, now=100.0, jitter=0.0).task
    assert again.not_before == 100.25


def test_a_lacking_input_that_is_revived_is_waited_for_again() -> None:
    told = transitions.inputs_ended(task(State.WAITING), 3, 1).task
    assert (told.missing, told.lacking, told.state) == (0, 1, State.WAITING)
    again = transitions.reconsider(told, 1).task
    assert (again.missing, again.lacking) == (1, 0)
    assert transitions.inputs_ended(again, 1, 0).task.state is State.READY


def test_supersede_only_when_all_ended_and_some_lack() -> None:
    for early in (
        task(State.WAITING),
        task(State.WAITING, lacking=1, missing=2),
        task(State.FAILED, lacking=1),
    ):
        with pytest.raises(FencedError):
            transitions.supersede(early, "next", "")
    told = transitions.inputs_ended(task(State.WAITING), 3, 1).task
    after = transitions.supersede(told, "next", "").task
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


@settings(max_examples=200)
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
        forward = transitions.inputs_ended(forward, ended, without).task
    for ended, without in reversed([*told, *told]):
        backward = transitions.inputs_ended(backward, ended, without).task
    assert (forward.missing, forward.lacking, forward.state) == (
        backward.missing,
        backward.lacking,
        backward.state,
    )


def test_rows_come_back_as_they_were() -> None:
    store = MemoryStore()
    inputs = tuple(Input(key=digest_of(str(i)), name=f"granule {i}") for i in range(2000))
    spec = MosaicSpec(name="wide", grid=GRID, inputs=inputs)
    first = Interest(request="r", key=spec.key, phase=spec.phase, name="wide", output="out")
    edge = Edge(key=spec.key, dependent="d" * 64, bits=2**899 + 1)
    change = transitions.create(spec, first, 2**900 - 1, (edge,))
    store.transact(task_table.TABLE, spec.key[0], change.operations)
    shard = spec.key[0]
    tasks = TaskTable(store)
    assert tasks.task(spec.key) == change.task
    assert len([*tasks.rows(shard, RowKind.SPEC)]) > 1
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


def test_an_input_that_is_made_after_all_is_no_longer_lacking() -> None:
    told = transitions.inputs_ended(task(State.WAITING), 1, 1).task
    assert (told.missing, told.lacking) == (2, 1)
    made = transitions.inputs_ended(told, 1, 0).task
    assert (made.missing, made.lacking, made.state) == (2, 0, State.WAITING)
    assert transitions.inputs_ended(made, 2, 0).task.state is State.READY


def test_a_late_report_does_not_count_against_an_input_that_was_there() -> None:
    told = transitions.inputs_ended(task(State.WAITING), 1, 0).task
    late = transitions.inputs_ended(told, 1, 1).task
    assert (late.missing, late.lacking) == (2, 0)


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED, State.EXPIRED])
def test_who_revives_a_task_sponsors_it(state: State) -> None:
    """The sponsor of before may be paused, or have ended."""
    change = transitions.add_interest(task(state), interest(), 0)
    assert (change.task.sponsor, change.task.generation) == ("r2", 2)


@pytest.mark.parametrize("category", [Category.SERVER_BUSY, Category.CANCELLED, Category.UNKNOWN])
def test_an_attempt_that_failed_holds_nothing_any_more(category: Category) -> None:
    """Whoever reads the task then, and compares claims, is not to take it for its own."""
    after = failing(category)(task(State.RUNNING)).task
    assert (after.claim, after.worker) == ("", "")


def events(change: Change) -> list[str]:
    """What the completion events of a change say."""
    rows = [op.row for op in change.operations if kind_of(op.row) is RowKind.COMPLETION_EVENT]
    return [row.rpartition("|")[2] for row in rows]


WAITS = {
    "reconsidered": lambda: transitions.reconsider(task(State.WAITING, lacking=1, missing=2), 1),
    "revived": lambda: transitions.add_interest(task(State.FAILED), interest(), 1),
    "healed": lambda: transitions.heal(task(State.DONE), 1),
    "retried": lambda: transitions.retry(task(State.FAILED), [interest("r1")], 1),
}


@pytest.mark.parametrize("how", WAITS)
def test_a_task_that_begins_to_wait_again_says_so(how: str) -> None:
    """Its inputs may have ended before, and nobody would look."""
    change = WAITS[how]()
    assert change.task.state is State.WAITING
    assert events(change) == [f"w{change.task.generation:06d}"]


def test_each_end_has_its_event() -> None:
    assert events(transitions.commit(task(State.RUNNING), attempt(), FILES)) == ["000001"]
    assert events(failing(Category.SERVER_BUSY)(task(State.RUNNING))) == ["000001"]
    waiting = task(State.WAITING, missing=0, lacking=1)
    assert events(transitions.supersede(waiting, "next", "")) == ["g000001"]
    assert events(transitions.stop(task(State.READY), Category.UNKNOWN, "x", "y")) == ["g000001"]
    assert events(transitions.give_back(task(State.RUNNING), "c")) == ["b000001"]


@pytest.mark.parametrize("claim", ["other", ""])
def test_only_its_claim_gives_a_task_back(claim: str) -> None:
    with pytest.raises(FencedError):
        transitions.give_back(task(State.RUNNING), claim)
    back = transitions.give_back(task(State.RUNNING), "c", Category.WORKER_LOST).task
    assert (back.state, back.claim, back.retries, back.alone) == (State.READY, "", 0, True)


def test_what_is_revived_begins_with_a_fresh_budget() -> None:
    spent = {"retries": 2, "strikes": 2, "losses": 9, "lacking": 1, "fallback": "f", "reason": "x"}
    fresh = transitions.add_interest(task(State.FAILED, **spent), interest(), 0).task
    for name, value in {"retries": 0, "strikes": 0, "losses": 0, "lacking": 0}.items():
        assert getattr(fresh, name) == value
    assert (fresh.fallback, fresh.reason, fresh.category, fresh.files) == ("", "", None, ())


def test_one_lost_file_of_several_is_enough() -> None:
    files = (*FILES, ArtifactFile(name="b", blob="artifacts/x/c/b", size=1, sha256="0"))
    for file in files:
        lost = transitions.lose(task(State.DONE, files=files), file.blob).task
        assert lost.state is State.EXPIRED


def test_a_task_made_again_keeps_its_dependents() -> None:
    edge = Edge(key=KEY, dependent="d" * 64, bits=1)
    healed = transitions.heal(task(State.DONE), 0, (edge,))
    assert healed.task.has_dependents
    assert [op.row for op in healed.operations if kind_of(op.row) is RowKind.EDGE]
    assert transitions.link(task(State.RUNNING), (edge,)).task.has_dependents


def test_interests_that_are_not_there_are_not_counted_on() -> None:
    for change in (transitions.deliver, transitions.sponsor):
        with pytest.raises(FencedError):
            change(task(State.DONE), "stranger")
    assert transitions.drop(task(State.READY, interests=("r1", "r2")), "stranger").operations == ()


def test_who_needs_nothing_more_keeps_no_task_alive() -> None:
    shared = task(State.RUNNING, interests=("r1", "r2", "r3"))
    past = {"r2", "r3"}.__contains__
    assert transitions.drop(shared, "r1", past).task.state is State.CANCELLED
    assert transitions.drop(shared, "r2", past).task.interests == ("r1", "r3")
    assert transitions.abandon(shared, past).operations == ()
    assert transitions.abandon(shared, lambda _: True).task.state is State.CANCELLED


def test_a_retry_tells_those_who_ask_and_no_others() -> None:
    asking = [interest("r1"), interest("gone")]
    done = transitions.retry(task(State.DONE), asking, 0)
    told = [op for op in done.operations if kind_of(op.row) is RowKind.INTEREST]
    assert [op.row for op in told] == [task_table.interest_row("r1", KEY)]
    row = Row(partition="k", row=told[0].row, etag="1", entity=told[0].entity)  # type: ignore[union-attr]
    assert task_table.INTEREST.load(row).files == FILES
    with pytest.raises(FencedError):
        transitions.retry(task(State.FAILED), [interest("gone")], 0)


def test_a_retried_task_waits_for_what_may_come_only() -> None:
    again = transitions.retry(task(State.FAILED), [interest("r1")], 2, 1).task
    assert (again.state, again.missing, again.lacking) == (State.WAITING, 2, 1)


def test_a_back_off_ends_with_the_state_that_it_was_for() -> None:
    put_off = task(State.READY, not_before=50.0)
    assert transitions.drop(put_off, "r1").task.not_before == 0.0


def test_a_commit_forgets_why_the_attempt_before_failed() -> None:
    running = task(State.RUNNING, category=Category.SERVER_BUSY)
    assert transitions.commit(running, attempt(), FILES).task.category is None


def test_an_input_is_made_again_within_the_budget() -> None:
    lost = failing(Category.CORRUPT_BLOB_READ, healing=1)
    assert lost(task(State.RUNNING, retries=1)).task.state is State.WAITING
    assert lost(task(State.RUNNING, retries=2)).task.state is State.FAILED


def test_a_failure_that_is_tried_once_is_not_tried_after_others() -> None:
    once = Category.STORAGE_CLIENT_ERROR
    assert failing(once)(task(State.RUNNING)).task.state is State.READY
    assert failing(once)(task(State.RUNNING, retries=1)).task.state is State.FAILED
    assert failing(Category.OUT_OF_MEMORY)(task(State.RUNNING, retries=1)).task.state is State.READY


def test_the_first_back_off_is_the_shortest() -> None:
    assert failing(Category.SERVER_BUSY)(task(State.RUNNING)).task.not_before == 110.0
    assert failing(Category.SERVER_BUSY)(task(State.RUNNING, retries=1)).task.not_before == 120.0


# --- exactly what becomes of a task and its rows ---

SPENT = {
    "worker": "w",
    "claim": "c",
    "retries": 2,
    "strikes": 1,
    "losses": 3,
    "not_before": 9.0,
    "lacking": 1,
    "category": Category.UNKNOWN,
    "fallback": "f",
    "reason": "because",
    "files": FILES,
}
FRESH = {
    "worker": "",
    "claim": "",
    "retries": 0,
    "strikes": 0,
    "losses": 0,
    "not_before": 0.0,
    "missing": 0,
    "lacking": 0,
    "category": None,
    "fallback": "",
    "reason": "",
    "files": (),
    "state": State.READY,
    "generation": 2,
}
ENDED = {"interests": (), "sponsor": "", "state": State.CANCELLED, "category": Category.CANCELLED}
BUSY = {"worker": "", "claim": "", "category": Category.SERVER_BUSY, "retries": 1}
HEALING = {"worker": "", "claim": "", "category": Category.CORRUPT_BLOB_READ, "retries": 1}
EDGE = Edge(key=KEY, dependent="d" * 64, bits=1)
BOTH = ("r1", "r2")

EXACT: dict[str, tuple[Task, Callable[[Task], Change], Mapping[str, object]]] = {
    "revived": (
        task(State.FAILED, **SPENT),
        lambda t: transitions.add_interest(t, interest(), 0),
        {**FRESH, "interests": BOTH, "sponsor": "r2"},
    ),
    "wanted by another": (
        task(State.RUNNING, has_dependents=True),
        lambda t: transitions.add_interest(t, interest(), 3),
        {"interests": BOTH},
    ),
    "wanted again": (
        task(State.RUNNING),
        lambda t: transitions.add_interest(t, interest("r1"), 0, (EDGE,)),
        {"has_dependents": True},
    ),
    "wanted after all": (
        task(State.DONE, interests=(), sponsor=""),
        lambda t: transitions.add_interest(t, interest(), 0),
        {"interests": ("r2",), "sponsor": "r2"},
    ),
    "linked": (
        task(State.RUNNING),
        lambda t: transitions.link(t, (EDGE,)),
        {"has_dependents": True},
    ),
    "dropped by its sponsor": (
        task(State.READY, interests=(*BOTH, "r3")),
        lambda t: transitions.drop(t, "r1"),
        {"interests": ("r2", "r3"), "sponsor": "r2"},
    ),
    "dropped by another": (
        task(State.READY, interests=("r0", *BOTH)),
        lambda t: transitions.drop(t, "r2"),
        {"interests": ("r0", "r1")},
    ),
    "dropped by the last": (task(State.READY), lambda t: transitions.drop(t, "r1"), ENDED),
    "dropped when made": (
        task(State.DONE),
        lambda t: transitions.drop(t, "r1"),
        {"interests": (), "sponsor": ""},
    ),
    "abandoned": (
        task(State.WAITING),
        lambda t: transitions.abandon(t, lambda _: True),
        ENDED,
    ),
    "not abandoned": (
        task(State.WAITING),
        lambda t: transitions.abandon(t, lambda _: False),
        {},
    ),
    "delivered": (task(State.DONE), lambda t: transitions.deliver(t, "r1"), {}),
    "under another sponsor": (
        task(State.READY, interests=BOTH),
        lambda t: transitions.sponsor(t, "r2"),
        {"sponsor": "r2"},
    ),
    "claimed": (
        task(State.READY, category=Category.SERVER_BUSY),
        lambda t: transitions.claim(t, "new", "worker", 7.0, 3),
        {
            "state": State.RUNNING,
            "claim": "new",
            "worker": "worker",
            "claimed_at": 7.0,
            "place": 3,
            "attempt": 1,
        },
    ),
    "claimed alone": (
        task(State.READY),
        lambda t: transitions.claim(t, "new", "worker", 7.0),
        {
            "state": State.RUNNING,
            "claim": "new",
            "worker": "worker",
            "claimed_at": 7.0,
            "attempt": 1,
        },
    ),
    "given back": (
        task(State.RUNNING, category=Category.SERVER_BUSY),
        lambda t: transitions.give_back(t, "c"),
        {"state": State.READY, "claim": "", "worker": ""},
    ),
    "made": (
        task(State.RUNNING, category=Category.SERVER_BUSY),
        lambda t: transitions.commit(t, attempt(), FILES),
        {"state": State.DONE, "files": FILES, "category": None},
    ),
    "failed for now": (
        task(State.RUNNING),
        failing(Category.SERVER_BUSY, asked=50.0),
        {**BUSY, "state": State.READY, "not_before": 150.0},
    ),
    "failed for good": (
        task(State.RUNNING),
        lambda t: transitions.fail(
            t,
            replace(attempt(Category.BAD_IMAGE_FORMAT), message="said"),
            POLICY,
            now=1.0,
            jitter=0.5,
        ),
        {
            "state": State.FAILED,
            "worker": "",
            "claim": "",
            "category": Category.BAD_IMAGE_FORMAT,
            "retries": 1,
            "reason": "said",
        },
    ),
    "handed back": (
        task(State.RUNNING),
        failing(Category.CANCELLED),
        {"state": State.READY, "claim": "", "worker": "", "category": Category.CANCELLED},
    ),
    "failed over a damaged input": (
        task(State.RUNNING),
        failing(Category.CORRUPT_BLOB_READ, healing=2),
        {**HEALING, "state": State.WAITING, "missing": 2},
    ),
    "lost with its worker": (
        task(State.RUNNING),
        failing(Category.WORKER_LOST),
        {
            "state": State.READY,
            "claim": "",
            "worker": "",
            "category": Category.WORKER_LOST,
            "losses": 1,
            "not_before": 110.0,
        },
    ),
    "waits for what was lacking": (
        task(State.WAITING, missing=4, lacking=3),
        lambda t: transitions.reconsider(t, 9),
        {"missing": 5, "lacking": 2},
    ),
    "waits for nothing that was lacking": (
        task(State.WAITING, missing=4, lacking=3),
        lambda t: transitions.reconsider(t, 8),
        {},
    ),
    "does not wait": (task(State.FAILED, lacking=1), lambda t: transitions.reconsider(t, 1), {}),
    "superseded": (
        task(State.WAITING, missing=0, lacking=1),
        lambda t: transitions.supersede(t, "next", "because"),
        {
            "state": State.FAILED,
            "category": Category.UPSTREAM_FAILED,
            "fallback": "next",
            "reason": "because",
        },
    ),
    "stopped": (
        task(State.READY),
        lambda t: transitions.stop(t, Category.USER_CODE_FAILED, "because", "said"),
        {"state": State.FAILED, "category": Category.USER_CODE_FAILED, "reason": "because"},
    ),
    "woken": (
        task(State.READY, not_before=0.5),
        lambda t: transitions.wake(t, 0.5),
        {"not_before": 0.0},
    ),
    "made again": (
        task(State.DONE, has_dependents=True),
        lambda t: transitions.heal(t, 1),
        {**FRESH, "state": State.WAITING, "missing": 1},
    ),
    "not made again": (task(State.READY), lambda t: transitions.heal(t, 1), {}),
    "tried again": (
        task(State.FAILED, **SPENT, interests=BOTH),
        lambda t: transitions.retry(t, [interest("r2")], 0),
        {**FRESH, "sponsor": "r2"},
    ),
    "expired": (
        task(State.DONE, interests=()),
        transitions.expire,
        {"state": State.EXPIRED, "files": ()},
    ),
    "lost": (
        task(State.DONE),
        lambda t: transitions.lose(t, FILES[0].blob),
        {"state": State.EXPIRED, "files": ()},
    ),
    "not lost": (task(State.DONE), lambda t: transitions.lose(t, "another"), {}),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_becomes_of_a_task_and_its_markers(name: str) -> None:
    """The whole task, and in the store the row that says so and the markers that follow from it."""
    before, change, differs = EXACT[name]
    store, shard = MemoryStore(), KEY[0]
    tasks = TaskTable(store)
    tasks.transact(
        shard,
        [
            task_table.insert_task(before),
            task_table.put_interest(interest("r1")),
            task_table.put_interest(interest("r2")),
            *(Insert(row=row, entity=made) for row, made in task_table.markers(before).items()),
        ],
    )
    stored = tasks.task(KEY)
    assert stored is not None
    after = change(stored)
    assert after.task == replace(stored, **differs)  # type: ignore[arg-type]
    if after.operations:
        tasks.transact(shard, after.operations)
    assert tasks.task(KEY) == after.task
    kept = store.tables()[task_table.TABLE]
    found = {row.row: row.entity for row in kept if kind_of(row.row) in MARKERS}
    assert found == task_table.markers(after.task)


def files_given(inputs: int, made: int, *files: task_table.InputFiles) -> dict[int, int]:
    """How many files a task's row has of each input when those of some bits have been made."""
    waiting = replace(task(State.WAITING), inputs=inputs, missing=2**inputs - 1, lacking=0)
    change = transitions.inputs_ended(waiting, made, 0, files)
    (row,) = [one for one in change.operations if isinstance(one, Replace)]
    stored = task_table.TASK.load(Row(partition=KEY[0], row=row.row, entity=row.entity, etag=""))
    assert stored == change.task
    return {i: len(some) for i, some in stored.given}


def test_a_row_has_files_of_few_inputs_and_small_ones() -> None:
    one = ArtifactFile(name="a.tif", blob="artifacts/k/c/a.tif", size=1, sha256="0" * 64)
    assert files_given(3, 0b101, (0b101, [one]), (0b010, [one])) == {0: 1, 2: 1}
    assert files_given(8, 0b1, (0b1, [one, one])) == {0: 2}
    assert files_given(9, 0b1, (0b1, [one])) == {}
    assert files_given(2, 0b11, (0b1, [one] * 30), (0b10, [one])) == {1: 1}
    assert files_given(1, 0b1, (0b1, [])) == {0: 0}


def test_files_of_inputs_come_one_after_another() -> None:
    one = ArtifactFile(name="a.tif", blob="artifacts/k/c/a.tif", size=1, sha256="0" * 64)
    waiting = replace(task(State.WAITING), missing=0b11, lacking=0)
    first = transitions.inputs_ended(waiting, 0b10, 0, [(0b10, [one])]).task
    late = transitions.inputs_ended(first, 0b10, 0, [(0b10, [replace(one, name="other")])]).task
    ready = transitions.inputs_ended(late, 0b01, 0, [(0b01, [])]).task
    assert (ready.state, ready.given) == (State.READY, ((0, ()), (1, (one,))))
    again = transitions.inputs_ended(waiting, 0b11, 0b10, [(0b10, [one])]).task
    assert again.given == ()


def test_a_large_specification_has_rows_of_its_own() -> None:
    for inputs, apart in ((10, 0), (40, 1)):
        some = tuple(Input(key=digest_of(str(i)), name=f"granule {i}") for i in range(inputs))
        spec = MosaicSpec(name="wide", grid=GRID, inputs=some)
        first = Interest(request="r", key=spec.key, phase=spec.phase)
        made = transitions.create(spec, first, 1)
        kinds = [kind_of(one.row) for one in made.operations]
        assert (kinds.count(RowKind.SPEC), bool(made.task.spec)) == (apart, not apart)
        store = MemoryStore()
        store.transact(task_table.TABLE, spec.key[0], made.operations)
        assert TaskTable(store).spec(spec.key) == spec


def test_what_is_written_for_a_new_task() -> None:
    made = transitions.create(SPEC, interest(), 0, (EDGE,))
    expected = Task(
        key=KEY,
        phase=Phase.COLLECTION,
        task_class=SPEC.task_class,
        inputs=0,
        state=State.READY,
        has_dependents=True,
        interests=("r2",),
        sponsor="r2",
        spec=spec_packing.pack(SPEC.model_dump_json().encode()),
    )
    assert made.task == expected
    tasks = TaskTable(MemoryStore())
    tasks.transact(KEY[0], made.operations)
    assert tasks.task(KEY) == expected
    assert [(one.key, one.request) for one in tasks.ready(KEY[0], 9)] == [(KEY, "r2")]
    assert [*tasks.edges(KEY)] == [EDGE]
    waiting = transitions.create(SPEC, interest(), 1).task
    assert waiting == replace(expected, state=State.WAITING, missing=1, has_dependents=False)


def applied(before: Task, change: Callable[[Task], Change]) -> TaskTable:
    """A table after a change of its only task."""
    tasks = TaskTable(MemoryStore())
    markers = (Insert(row=row, entity=made) for row, made in task_table.markers(before).items())
    rows: list[Operation] = [task_table.insert_task(before), *markers]
    tasks.transact(KEY[0], [*rows, task_table.put_interest(interest("r1"))])
    stored = tasks.task(KEY)
    assert stored is not None
    tasks.transact(KEY[0], change(stored).operations)
    return tasks


def test_what_is_written_for_requests_and_dependents() -> None:
    assert [*applied(task(State.RUNNING), lambda t: transitions.link(t, (EDGE,))).edges(KEY)] == [
        EDGE
    ]
    dropped = applied(task(State.READY), lambda t: transitions.drop(t, "r1"))
    assert dropped.interest("r1", KEY) is None
    delivered = applied(task(State.DONE), lambda t: transitions.deliver(t, "r1"))
    assert delivered.interest("r1", KEY) == replace(
        interest("r1"), outcome=TaskOutcome.DONE, files=FILES
    )
    told = replace(
        interest("r1"),
        outcome=TaskOutcome.FAILED,
        category=Category.UNKNOWN,
        message="said",
        stopped=True,
    )
    again = applied(task(State.FAILED), lambda t: transitions.retry(t, [told], 0))
    assert again.interest("r1", KEY) == interest("r1")
    made = applied(task(State.DONE), lambda t: transitions.retry(t, [told], 0))
    assert made.interest("r1", KEY) == replace(
        interest("r1"), outcome=TaskOutcome.DONE, reused=True, files=FILES
    )
    stopped = applied(
        task(State.READY),
        lambda t: transitions.stop(t, Category.USER_CODE_FAILED, "because", "said"),
    )
    (event,) = stopped.events(KEY[0], 9)
    assert (event.message, event.category) == ("said", Category.USER_CODE_FAILED)
    waiting = applied(task(State.WAITING), lambda t: transitions.add_interest(t, interest(), 1))
    assert waiting.events(KEY[0], 9) == []
