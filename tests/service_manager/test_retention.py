"""Deleting artifacts in which no request has an interest, and nothing else."""

import datetime as dt
from dataclasses import replace

from service_manager.storage.retention import Retention
from service_manager.storage.worth import Policy
from tasks.model.categories import Category
from tasks.model.model import Phase, RequestOrder, RequestState, State
from tasks.model.task_keys import SHARDS
from tasks.storage.blobs import ARTIFACTS, artifact_name, split_blob
from tasks.tables import history, outbox, protocol, request_operations
from tasks.tables.task_rows import CompletionEvent
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
    keeper = Retention(b.runtime, b.manager.cache, wait=60)
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
    keeper = Retention(b.runtime, b.manager.cache, wait=0)
    assert [keeper.collect(shard) for _ in range(3) for shard in SHARDS] == [0] * 48


def test_what_no_request_wants_expires_and_is_made_again_when_wanted() -> None:
    b = Bench(plans={"p": plan_of(G, TOP, outputs={"top": "out"})})
    request = b.submit("p")
    while not b.ran:
        b.rounds(1)
    request_operations.order(b.runtime, request, RequestOrder.CANCEL)
    assert b.until_ended(request).state is RequestState.CANCELLED
    b.rounds(40)
    keeper = Retention(b.runtime, b.manager.cache, wait=10)
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
    strict = Retention(b.runtime, b.manager.cache, wait=10, policy=replace(free, quota=1))
    assert sum(strict.expire(shard) for shard in SHARDS) == 0
    b.until_ended(request)
    size = sum(
        f.size
        for interest in request_operations.interests(b.runtime, request)
        for f in interest.files
    )
    for quota, goes in ((size, 0), (size - 1, 1), (1, 1), (1, 0)):
        policy = replace(free, quota=quota)
        keeper = Retention(b.runtime, b.manager.cache, wait=10, policy=policy)
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
    keeper = Retention(b.runtime, b.manager.cache, wait=10)
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
    for days in range(3):
        for number in range(0, 120, history.BATCH):
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

    assert kept() == (360, 3, 3, 3)
    keeper = Retention(b.runtime, b.manager.cache, wait=10, policy=Policy(history=300 * DAY))
    for _ in keeper.passing(SHARDS[-1]):
        pass
    assert kept() == (240, 2, 3, 3)
    clock.sleep(DAY / 2)  # it is looked at once a day
    history.count(store, [failure(1, clock.now() - 301 * DAY)], epoch=1)
    for days, left in ((0, 241), (1, 240)):
        clock.sleep(days * DAY)
        for _ in keeper.passing(SHARDS[-1]):
            pass
        assert kept()[0] == left


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
