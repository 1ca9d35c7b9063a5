"""Deleting artifacts in which no request has an interest, and nothing else."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from service_manager.storage import retention
from service_manager.storage.retention import Retention
from service_manager.storage.worth import Policy
from tasks.bag import history, protocol, transitions
from tasks.bag.categories import Category
from tasks.bag.checkpoints import state_name
from tasks.bag.model import Phase, RequestOrder, RequestState, State
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import CompletionEvent
from tasks.holdings.stored_structures import StoredStructures
from tasks.operators.manager_rows import PhaseStore
from tasks.requests import outbox, request_operations
from tasks.storage.blobs import ARTIFACTS, CHECKPOINTS, GRANULES, artifact_name, split_blob
from tasks.storage.store import Operation
from tests.service_manager.scene import Scene
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

DAY = 86_400.0
G = collect("g")
TOP = mosaic("top", G)


def test_blobs_of_no_use_go_in_the_second_look_and_artifacts_stay() -> None:
    b = Bench(plans={"p": plan_of(G, TOP, outputs={"top": "out"})})
    request = b.submit("p")
    b.until_ended(request)
    stray = artifact_name(G.key, "fenced", "cell.tif")
    b.runtime.blobs.put_bytes(ARTIFACTS, stray, b"of an attempt that was fenced")
    keeper = Retention(b.runtime, wait=60)
    assert sum(keeper.collect(shard) for shard in SHARDS) == 0
    b.runtime.clock.sleep(61)
    assert sum(keeper.collect(shard) for shard in SHARDS) == 1
    assert not b.runtime.blobs.exists(ARTIFACTS, stray)
    for interest in request_operations.interests(b.runtime, request):
        assert all(b.runtime.blobs.exists(*split_blob(f.blob)) for f in interest.files)


def test_the_blobs_of_a_running_attempt_stay() -> None:
    b = Bench(plans={"p": plan_of(G, TOP)})
    b.submit("p")
    b.manager.tick()
    b.manager.tick()
    claimed = protocol.claim(b.runtime, G.key, "w", b.options.retry)
    assert claimed is not None
    b.runtime.blobs.put_bytes(ARTIFACTS, artifact_name(G.key, claimed.claim, "a"), b"half")
    keeper = Retention(b.runtime, wait=0)
    assert [keeper.collect(shard) for _ in range(3) for shard in SHARDS] == [0] * 48


def test_the_states_of_a_run_stay_while_its_task_lives_and_go_when_it_has_ended() -> None:
    b = Bench(plans={"p": plan_of(G, TOP)})
    request = b.submit("p")
    b.manager.tick()
    b.manager.tick()
    claimed = protocol.claim(b.runtime, G.key, "w", b.options.retry)
    assert claimed is not None
    b.runtime.blobs.put_bytes(CHECKPOINTS, state_name(claimed.task, 1, "c" * 64), b"state")
    keeper = Retention(b.runtime, wait=0)
    assert sum(keeper.collect(shard) for _ in range(3) for shard in SHARDS) == 0
    protocol.give_back(b.runtime, {G.key: claimed.claim})
    assert sum(keeper.collect(shard) for _ in range(3) for shard in SHARDS) == 0
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    b.until_ended(request)
    assert sum(keeper.collect(shard) for _ in range(3) for shard in SHARDS) == 1
    assert not [*b.runtime.blobs.names(CHECKPOINTS)]


def test_what_no_request_wants_expires_and_is_made_again_when_wanted() -> None:
    b = Bench(plans={"p": plan_of(G, TOP, outputs={"top": "out"})})
    request = b.submit("p")
    while not b.ran:
        b.rounds(1)
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    assert b.until_ended(request).state is RequestState.CANCELLED
    b.rounds(40)
    keeper = Retention(b.runtime, wait=10)
    assert sum(keeper.expire(shard) for shard in SHARDS) >= 1
    task = b.runtime.tasks.task(G.key)
    assert task is not None
    assert task.state is State.EXPIRED
    for _ in range(2):
        for shard in SHARDS:
            keeper.collect(shard)
        b.runtime.clock.sleep(11)
    assert list(b.runtime.blobs.names(ARTIFACTS)) == []
    again = b.submit("p")
    assert b.until_ended(again).state is RequestState.COMPLETE


def test_a_quota_takes_no_more_than_it_must_and_nothing_that_is_needed() -> None:
    b = Bench(plans={"p": plan_of(G, TOP, outputs={"top": "out"})})
    request = b.submit("p")
    while not b.ran:
        b.rounds(1)
    free = Policy(storage=0.0, results=0.0)  # keeping costs nothing, results are not kept
    strict = Retention(b.runtime, wait=10, policy=replace(free, quota=1))
    assert sum(strict.expire(shard) for shard in SHARDS) == 0
    b.until_ended(request)
    size = sum(
        f.size
        for interest in request_operations.interests(b.runtime, request)
        for f in interest.files
    )
    for quota, goes in ((size, 0), (size - 1, 1), (1, 1), (1, 0)):
        policy = replace(free, quota=quota)
        keeper = Retention(b.runtime, wait=10, policy=policy)
        assert sum(keeper.expire(shard) for shard in SHARDS) == goes


def test_mails_go_sixty_days_after_they_were_written() -> None:
    b = Bench(plans={"p": plan_of(G, TOP, outputs={"top": "out"})})
    store = b.runtime.store
    b.until_ended(b.submit("p"))
    (first,) = outbox.mails(store)
    b.runtime.clock.sleep(50 * 86_400)
    for number in range(200):
        outbox.put(store, b.runtime.clock, replace(first, kind=f"{number}"))
    second = replace(first, kind="later", written=b.runtime.clock.now())
    outbox.put(store, b.runtime.clock, second)
    keeper = Retention(b.runtime, wait=10)
    for days, left in ((9, 202), (2, 1)):
        b.runtime.clock.sleep(days * 86_400)
        for shard in SHARDS:
            for _ in keeper.passing(shard):
                pass
        assert len([*outbox.mails(store)]) == left
    assert [mail.id for mail in outbox.mails(store)] == [second.id]


def test_failures_and_counts_by_worker_go_after_a_year_and_the_rest_stays() -> None:
    b = Bench(plans={})
    store, clock = b.runtime.store, b.runtime.clock
    stored = StoredStructures(b.runtime.blobs, clock.now)
    stored.put("a", b"old")
    for days in range(3):
        for number in range(0, 6 * history.BATCH, history.BATCH):
            history.count(
                store,
                [failure(n, clock.now()) for n in range(number, number + history.BATCH)],
                epoch=1,
                owners={"r": "ada@example.org"},
            )
        clock.sleep(200 * DAY if days < 2 else 0)

    def kept() -> tuple[int, int, int, int]:
        failures = history.failures(store, 0, clock.now() + 1, Category)
        today = dt.datetime.fromtimestamp(clock.now(), dt.UTC).date()
        first = today - dt.timedelta(days=3650)
        return (
            len([*failures]),
            len([*history.executions_between(store, first, today, worker="w-1")]),
            len([*history.executions_between(store, first, today, owner="ada@example.org")]),
            len([*history.executions_between(store, first, today)]),
        )

    assert kept() == (18 * history.BATCH, 3, 3, 3)
    stored.put("a", b"new")
    keeper = Retention(b.runtime, wait=10, policy=Policy(history=300 * DAY))
    for _ in keeper.passing(SHARDS[-1]):
        pass
    assert kept() == (12 * history.BATCH, 2, 3, 3)
    assert len([*b.runtime.blobs.names(GRANULES, "structures/")]) == 1
    clock.sleep(DAY - 1)  # it is looked at once a day
    history.count(store, [failure(1, clock.now() - 301 * DAY)], epoch=1)
    for seconds, left in ((0, 12 * history.BATCH + 1), (1, 12 * history.BATCH)):
        clock.sleep(seconds)
        for _ in keeper.passing(SHARDS[-1]):
            pass
        assert kept()[0] == left


@pytest.mark.parametrize("hour", [0, 23])
def test_the_day_in_which_the_history_s_days_begin_is_kept_whole(hour: int) -> None:
    """Counts go by whole days, failures by the moment."""
    b = Bench(plans={})
    store = b.runtime.store
    day = 19_000 * DAY
    moments = [day - 1, day, day + DAY - 1]
    batch = [failure(2 * number, moment) for number, moment in enumerate(moments)]
    history.count(store, batch, epoch=1)
    before = day + hour * 3600.0 + 1.0
    assert sum(history.forgetting(store, before)) > 0
    first = dt.datetime.fromtimestamp(day, dt.UTC).date()
    (left,) = history.executions_between(store, dt.date.min, dt.date.max, worker="w-0")
    assert (left.day, left.count) == (first, 2)
    failed = history.failures(store, 0, 2 * day, Category)
    assert sorted(one.ended for one in failed) == [one for one in moments if one >= before]


@pytest.mark.parametrize("before", [1e9, 1e9 + 0.25, 1.7e9 + 0.0004])
def test_a_failure_that_ended_at_the_limit_stays(before: float) -> None:
    """To the millisecond, which its row has."""
    store = Bench(plans={}).runtime.store
    moments = [before - 0.002, before, before + 0.002]
    for number, moment in enumerate(moments):
        history.count(store, [failure(number, moment)], epoch=1)
    assert sum(history.forgetting(store, before)) >= 1
    failed = history.failures(store, 0, before + DAY, Category)
    assert sorted(one.ended for one in failed) == moments[1:]
    for _ in history.forgetting(store, before + 0.004):
        pass
    assert [*history.failures(store, 0, before + DAY, Category)] == []


def failure(number: int, ended: float) -> CompletionEvent:
    return CompletionEvent(
        key=f"{number:064x}",
        row="o|1",
        number=1,
        state=State.READY,
        category=Category.WORKER_LOST,
        duration=1.0,
        ended=ended,
        phase=Phase.REPROJECTION,
        task_class="reprojection a/b 6, x2",
        worker=f"w-{number % 2}",
        has_dependents=False,
        interests=("r",),
        not_before=0.0,
        fallback="",
        sponsor="r",
        files=(),
    )


# Keeping costs much, and making again nothing.
DEAR = Policy(storage=1e12, core_hour=0.0, results=60.0)


def made(scene: Scene, names: str, request: str = "ended") -> list[str]:
    """Granules made for a request, by name; return their keys."""
    specs = [collect(name) for name in names]
    for spec in specs:
        scene.write(spec, request)
        scene.run(spec)
    return [spec.key for spec in specs]


def looked_at(keeper: Retention) -> int:
    return sum(keeper.expire(shard) for shard in SHARDS)


def test_what_is_kept_is_counted_by_phase_and_by_shards_looked_at() -> None:
    scene = Scene()
    keys = made(scene, "abc")
    for spec, category in (
        (mosaic("top", collect("a")), None),
        (collect("failed"), Category.BAD_IMAGE_FORMAT),
    ):
        scene.write(spec, "ended")
        scene.run(spec, category)
    keeper = Retention(scene.runtime, wait=10)
    assert keeper.stored() == (tuple(PhaseStore(phase=phase) for phase in Phase), 0)
    assert looked_at(keeper) == 0
    size = sum(file.size for key in keys for file in scene.task(key).files)
    stores, shards = keeper.stored()
    assert (stores[0], shards) == (PhaseStore(phase=Phase.COLLECTION, artifacts=3, size=size), 16)
    assert sum(store.artifacts for store in stores) == 4


def shared(scene: Scene) -> str:
    """An artifact that two requests have, of which nothing is known any more."""
    scene.write(G, "first", "second")
    scene.run(G)
    return G.key


def test_an_artifact_expires_when_all_who_have_it_ended_long_ago() -> None:
    scene = Scene()
    key = shared(scene)
    near = next(one for i in count() if (one := collect(f"n{i}")).key[0] == key[0])
    scene.write(near, "first")
    scene.run(near)
    keeper = Retention(scene.runtime, wait=10, policy=DEAR)
    assert looked_at(keeper) == 2
    assert (scene.task(key).state, scene.task(key).interests) == (State.EXPIRED, ())
    assert looked_at(keeper) == 0
    assert keeper.stored()[0][0].artifacts == 0


def test_what_was_needed_at_one_look_is_let_go_at_a_later_one() -> None:
    """When requests ended is read anew for each shard: a request that ran does so for a time."""
    b = Bench(plans={"p": plan_of(G, TOP, outputs={"top": "out"})})
    request = b.submit("p")
    while not b.ran:
        b.rounds(1)
    dear = Policy(storage=1e12, results=10 * DAY)
    keeper = Retention(b.runtime, wait=10, policy=dear)
    assert sum(keeper.expire(shard) for shard in SHARDS) == 0
    b.until_ended(request)
    b.rounds(40)
    b.runtime.clock.sleep(9 * DAY)
    assert sum(keeper.expire(shard) for shard in SHARDS) == 1  # what it was made of
    b.runtime.clock.sleep(2 * DAY)
    assert sum(keeper.expire(shard) for shard in SHARDS) == 1


def test_an_artifact_that_is_wanted_anew_meanwhile_stays() -> None:
    scene = Scene()
    key = shared(scene)

    def before(_table: str, _operations: Sequence[Operation]) -> None:
        scene.store.before = lambda _table, _operations: None
        interest = scene.interest("third", G)
        scene.change(key, lambda task: transitions.add_interest(task, interest, 0))

    scene.store.before = before
    assert looked_at(Retention(scene.runtime, wait=10, policy=DEAR)) == 0
    assert scene.task(key).state is State.DONE
    assert scene.task(key).interests == ("first", "second", "third")


def test_a_quota_is_met_once_all_shards_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each shard a few artifacts are remembered for that."""
    monkeypatch.setattr(retention, "_CANDIDATES", 1)
    scene = Scene()
    keys = made(scene, "abcdefghijklmnop")
    size = sum(file.size for key in keys for file in scene.task(key).files)
    policy = Policy(storage=0.0, core_hour=1.0, results=60.0, quota=size - 1)
    keeper = Retention(scene.runtime, wait=10, policy=policy)
    assert sum(keeper.expire(shard) for shard in SHARDS[:-1]) == 0
    assert keeper.expire(SHARDS[-1]) == 1
    (gone,) = [key for key in keys if scene.task(key).state is State.EXPIRED]
    for shard in [*SHARDS.replace(gone[0], ""), gone[0]]:
        assert keeper.expire(shard) == 0
    strict = Retention(scene.runtime, wait=10, policy=replace(policy, quota=1))
    assert sum(strict.expire(shard) for shard in SHARDS[:-1]) == 0


STRAY = f"{G.key}/claim/cell.tif"


@pytest.mark.parametrize("container", [ARTIFACTS, GRANULES])
def test_a_blob_is_useless_for_the_whole_wait_before_it_goes(container: str) -> None:
    scene = Scene()
    blobs, clock = scene.runtime.blobs, scene.runtime.clock
    keeper = Retention(scene.runtime, wait=10)

    def gone(after: float) -> int:
        clock.sleep(after)
        return keeper.collect(G.key[0])

    blobs.put_bytes(container, STRAY, b"1")
    assert [gone(0), gone(9)] == [0, 0]
    blobs.delete(container, STRAY)
    assert gone(1) == 0
    blobs.put_bytes(container, STRAY, b"2")  # another blob of that name
    assert [gone(5), gone(9), gone(1), gone(20)] == [0, 0, 1, 0]


def test_blobs_of_ended_attempts_of_a_running_task_are_useless_and_other_names_are_not_judged() -> (
    None
):
    scene = Scene()
    scene.write(G, "r")
    claimed = scene.claim(G)
    own = artifact_name(G.key, claimed.claim, "cell.tif")
    left = {own, G.key, f"{G.key}/cell.tif", f"other{STRAY}"}  # that is of another shard
    for name in (*left, f"{G.key}/!/a", f"{G.key}/~/a/b"):
        scene.runtime.blobs.put_bytes(ARTIFACTS, name, b"x")
    keeper = Retention(scene.runtime, wait=0)
    assert keeper.collect(G.key[0]) == 2
    assert {*scene.runtime.blobs.names(ARTIFACTS)} == left


def test_a_pass_may_pause_between_tasks_and_between_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PAUSE", 2)
    scene = Scene()
    (key,) = made(scene, "a")
    for number in range(4):
        scene.runtime.blobs.put_bytes(ARTIFACTS, f"{key}/{number}/a", b"x")
    keeper = Retention(scene.runtime, wait=0)
    assert [*keeper.passing(key[0])].count(False) == 4  # of one task, and of five blobs
