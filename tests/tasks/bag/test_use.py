"""What attempts used of processors and storage is counted once, by day, owner, class, request."""

import datetime as dt
from dataclasses import replace

from tasks.bag import history, task_table
from tasks.bag.categories import Category
from tasks.bag.history import RequestUse
from tasks.bag.model import NO_USE, ArtifactFile, Attempt, Phase, State, Task, Use
from tasks.bag.task_rows import CompletionEvent
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.store import Row
from tasks.storage.traffic import Meter, Traffic

DAY = dt.date(2023, 11, 14)
FIRST = Use(cpu=1.5, reads=3, writes=2, received=100, sent=50)
FAILED = Use(cpu=0.25, reads=1)


def event(number: int, use: Use, category: Category | None = None) -> CompletionEvent:
    return CompletionEvent(
        key="0" * 64,
        row=f"o|{number}",
        number=number,
        state=State.DONE,
        category=category,
        duration=2.0,
        ended=1_700_000_000.0,
        phase=Phase.REPROJECTION,
        task_class="reprojection a",
        worker="w",
        has_dependents=False,
        interests=("r1",),
        not_before=0.0,
        fallback="",
        sponsor="r1",
        files=(ArtifactFile(name="a", blob="artifacts/a", size=7, sha256="0"),),
        use=use,
    )


def test_use_is_added_up_however_often_a_batch_is_counted() -> None:
    store = memory_runtime().store
    batch = [event(1, FIRST), event(2, FAILED, Category.SERVER_BUSY), event(3, NO_USE)]
    for _ in range(2):
        history.count(store, batch, epoch=1, owners={"r1": "a@b"})
    both = FIRST + FAILED
    assert history.used_by(store, "r1") == RequestUse(
        request="r1", count=3, failed=1, seconds=6.0, wasted=2.0, made=14, use=both
    )
    assert history.used_by(store, "other") == RequestUse(request="other")
    for said in ({}, {"owner": "a@b"}, {"worker": "w"}):
        counted = history.executions_between(store, DAY, DAY, **said)
        assert sum((one.use for one in counted), NO_USE) == both
    one = history.class_statistics(store)["reprojection a"]
    assert (one.count, one.metered, one.use) == (2, 1, FIRST)  # the third was not measured


def test_a_full_batch_fits_into_one_transaction() -> None:
    store = memory_runtime().store
    batch = [
        replace(
            event(1, FIRST), key=f"{n:064}", sponsor=f"r{n}", task_class=f"c{n}", worker=f"w{n}"
        )
        for n in range(history.BATCH)
    ]
    history.count(store, batch, epoch=1, owners={f"r{n}": f"o{n}" for n in range(history.BATCH)})
    assert len(history.class_statistics(store)) == history.BATCH


def test_a_meter_counts_what_came_after_an_earlier_look() -> None:
    meter = Meter()
    meter.add(Traffic(reads=1, received=10))
    before = meter.read()
    meter.add(Traffic(writes=2, sent=5))
    assert meter.read() - before == Traffic(writes=2, sent=5)


def test_what_an_attempt_used_is_in_its_event() -> None:
    task = Task(
        key="0" * 64, phase=Phase.REDUCTION, task_class="x", inputs=0, state=State.DONE, attempt=1
    )
    attempt = Attempt(
        key=task.key,
        number=1,
        claim="c",
        phase=task.phase,
        task_class="x",
        worker="w",
        started=0.0,
        ended=1.0,
        duration=1.0,
        use=FIRST,
    )
    put = task_table.attempt_event(task, attempt)
    row = Row(partition="0", row=put.row, entity=put.entity, etag="1")
    assert task_table.COMPLETION_EVENT.load(row).use == FIRST
