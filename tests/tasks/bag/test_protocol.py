"""The worker's side of the protocol, the workers' table, requests and history, in memory."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from tasks.bag import (
    history,
    protocol,
    task_table,
    transitions,
    workers,
)
from tasks.bag.categories import Category
from tasks.bag.model import (
    ArtifactFile,
    Attempt,
    Phase,
    RequestOrder,
    RequestState,
    RunUse,
    State,
)
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec
from tasks.bag.task_rows import CompletionEvent, Interest
from tasks.bag.task_table import TaskTable
from tasks.bag.transitions import RetryPolicy
from tasks.errors import ConflictError, FencedError, StoreError
from tasks.request.document import Request, parse_request
from tasks.requests import outbox, request_operations
from tasks.requests.request_table import RequestTable
from tasks.service.memory_runtime import memory_runtime
from tasks.storage import schema
from tasks.storage.store import Operation, Row, Store

GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)
GRANULE = CollectSpec(product="MOD13A2", collection="6", granule="g", production="1")
CELL = MosaicSpec(name="cell", grid=GRID, inputs=(Input(key=GRANULE.key),))
POLICY = RetryPolicy()
FILE = ArtifactFile(name="a.tif", blob="artifacts/k/c/a.tif", size=1, sha256="0")


class Unreliable:
    """A store of which chosen writes fail: `before` they take effect, or `after`; and one read."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.script: list[str] = []
        self.reads = self.writes = 0
        self.unread = 0  # the number of the read that fails

    def _read(self) -> None:
        self.reads += 1
        if self.reads == self.unread:
            raise StoreError("no answer")

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self._read()
        return self.inner.get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self._read()
        return self.inner.scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self.writes += 1
        what = self.script.pop(0) if self.script else ""
        etags: tuple[str, ...] = ()
        if what != "before":
            etags = self.inner.transact(table, partition, operations)
        if what == "conflict":
            raise ConflictError("resent after it took effect")
        if what:
            raise StoreError("no answer")
        return etags


@pytest.fixture
def store() -> Unreliable:
    return Unreliable(memory_runtime().store)


@pytest.fixture
def runtime(store: Unreliable) -> Runtime:
    base = memory_runtime()
    return Runtime(
        store=store,
        blobs=base.blobs,
        queue=base.queue,
        wakeups=base.wakeups,
        clock=base.clock,
        random=base.random,
    )


def put(store: Store, spec: CollectSpec | MosaicSpec, missing: int = 0) -> str:
    first = Interest(request="r", key=spec.key, phase=spec.phase)
    change = transitions.create(spec, first, missing)
    store.transact(task_table.TABLE, spec.key[0], change.operations)
    return spec.key


def told(store: Store) -> str:
    """Put a task that is ready since its input was made."""
    key = put(store, CELL, missing=1)
    waiting = TaskTable(store).task(key)
    assert waiting is not None
    change = transitions.inputs_ended(waiting, 1, 0, [(1, [FILE])])
    store.transact(task_table.TABLE, key[0], change.operations)
    return key


def done(runtime: Runtime, key: str) -> None:
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert protocol.commit(runtime, ended(claimed), [FILE])


def ended(claimed: protocol.Claimed, category: Category | None = None):  # type: ignore[no-untyped-def]
    return claimed.attempt(started=1.0, ended=2.0, duration=1.0, category=category)


def test_a_task_costs_a_read_and_one_for_each_input_of_which_it_has_no_files(
    runtime: Runtime, store: Unreliable
) -> None:
    done(runtime, put(store, GRANULE))
    key = put(store, CELL)
    store.reads = store.writes = 0
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert claimed.input_files == {0: (FILE,)}
    assert protocol.commit(runtime, ended(claimed), [FILE], claimed.task)
    assert (store.reads, store.writes) == (2, 2)


def test_a_task_that_has_the_files_of_its_inputs_costs_one_read(
    runtime: Runtime, store: Unreliable
) -> None:
    key = told(store)
    store.reads = store.writes = 0
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert (claimed.input_files, claimed.absent, claimed.spec) == ({0: (FILE,)}, 0, CELL)
    assert (store.reads, store.writes) == (1, 1)


def test_the_attempt_after_a_failed_one_reads_the_inputs(
    runtime: Runtime, store: Unreliable
) -> None:
    """What the row has of them was told long ago: they may have been made again since."""
    done(runtime, put(store, GRANULE))
    key = told(store)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert protocol.fail(runtime, ended(claimed, Category.WORKER_LOST), POLICY)
    protocol.change_task(runtime, key, lambda task: transitions.wake(task, 10**12))
    store.reads = 0
    again = protocol.claim(runtime, key, "w", POLICY)
    assert again is not None
    assert (store.reads, again.input_files) == (2, {0: (FILE,)})


def test_a_task_given_back_has_the_files_of_its_inputs_still(
    runtime: Runtime, store: Unreliable
) -> None:
    key = told(store)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    protocol.give_back(runtime, {key: claimed.claim})
    again = protocol.claim(runtime, key, "w", POLICY)
    assert again is not None
    assert again.input_files == {0: (FILE,)}
    assert protocol.commit(runtime, ended(again), [FILE])
    task = runtime.tasks.task(key)
    assert task is not None
    assert (task.state, task.given) == (State.DONE, ())


def test_what_builds_before_wrote_is_claimed_by_three_reads(
    runtime: Runtime, store: Unreliable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema._Written, "number", schema.SPECS_IN_TASKS - 1)
    done(runtime, put(store, GRANULE))
    key = put(store, CELL)
    rows = {row.row[0]: row.entity for row in store.scan(task_table.TABLE, key[0], "s|", "u")}
    assert (sorted(rows), "spec" in rows["t"]) == (["s", "t"], False)
    monkeypatch.undo()
    store.reads = store.writes = 0
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert (claimed.spec, claimed.input_files) == (CELL, {0: (FILE,)})
    assert (store.reads, store.writes) == (3, 1)
    assert runtime.tasks.spec(key) == CELL


@pytest.mark.parametrize("script", [["after"], ["before"], ["conflict"], ["before", "after"]])
def test_answers_that_get_lost_are_not_failures(
    runtime: Runtime, store: Unreliable, script: list[str]
) -> None:
    key = put(store, GRANULE)
    store.script = list(script)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    store.script = list(script)
    assert protocol.commit(runtime, ended(claimed), [FILE])
    task = TaskTable(store).task(key)
    assert task is not None
    assert (task.state, task.claim, task.files) == (State.DONE, claimed.claim, (FILE,))
    (record,) = TaskTable(store).attempts(key)
    assert record.claim == claimed.claim


@pytest.mark.parametrize("script", [["after"], ["before"], ["conflict"]])
def test_a_failure_is_recorded_once(runtime: Runtime, store: Unreliable, script: list[str]) -> None:
    key = put(store, GRANULE)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    store.script = list(script)
    assert protocol.fail(runtime, ended(claimed, Category.SERVER_BUSY), POLICY)
    (record,) = TaskTable(store).attempts(key)
    assert record.category is Category.SERVER_BUSY
    task = TaskTable(store).task(key)
    assert task is not None
    assert (task.state, task.retries) == (State.READY, 1)
    assert task.not_before > 0


def test_a_doubled_or_stale_message_claims_nothing(runtime: Runtime, store: Unreliable) -> None:
    key = put(store, GRANULE)
    assert protocol.claim(runtime, key, "w1", POLICY) is not None
    assert protocol.claim(runtime, key, "w2", POLICY) is None
    assert protocol.claim(runtime, "f" * 64, "w2", POLICY) is None


def test_a_zombie_is_fenced(runtime: Runtime, store: Unreliable) -> None:
    key = put(store, GRANULE)
    zombie = protocol.claim(runtime, key, "w1", POLICY)
    assert zombie is not None
    assert protocol.fail(runtime, ended(zombie, Category.CANCELLED), POLICY)
    second = protocol.claim(runtime, key, "w2", POLICY)
    assert second is not None
    assert not protocol.commit(runtime, ended(zombie), [FILE])
    assert not protocol.fail(runtime, ended(zombie, Category.UNKNOWN), POLICY)
    assert protocol.commit(runtime, ended(second), [FILE])
    task = TaskTable(store).task(key)
    assert task is not None
    assert (task.claim, task.attempt, task.retries) == (second.claim, 2, 0)


def test_a_commit_is_known_after_the_task_went_on(runtime: Runtime, store: Unreliable) -> None:
    """The answer was lost, the blobs were lost too and are being made again: it did commit."""
    key = put(store, GRANULE)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert protocol.commit(runtime, ended(claimed), [FILE])
    protocol.change_task(runtime, key, lambda task: transitions.heal(task, 0))
    assert protocol.commit(runtime, ended(claimed), [FILE])


def test_an_input_that_is_not_done_any_more_stops_the_claim(
    runtime: Runtime, store: Unreliable
) -> None:
    done(runtime, put(store, GRANULE))
    key = put(store, CELL)
    protocol.change_task(runtime, GRANULE.key, lambda task: transitions.heal(task, 0))
    assert protocol.claim(runtime, key, "w", POLICY) is None
    task = TaskTable(store).task(key)
    assert task is not None
    assert (task.state, task.missing) == (State.WAITING, 1)
    (record,) = TaskTable(store).attempts(key)
    now = runtime.clock.now()
    assert record == Attempt(
        key=key,
        number=1,
        claim=record.claim,
        phase=CELL.phase,
        task_class=CELL.task_class,
        worker="w",
        started=now,
        ended=now,
        duration=0.0,
        category=Category.SOURCE_BLOB_MISSING,
        message="an input is being made again",
    )


def test_a_claim_whose_end_is_not_taken_is_its_workers_to_end(
    runtime: Runtime, store: Unreliable
) -> None:
    done(runtime, put(store, GRANULE))
    key = put(store, CELL)
    protocol.change_task(runtime, GRANULE.key, lambda task: transitions.heal(task, 0))
    store.script = ["", *["before"] * 10]
    claimed = protocol.claim(runtime, key, "w", POLICY)
    store.script = []
    assert claimed is not None
    assert claimed.absent == 1
    now = runtime.clock.now()
    category = Category.SOURCE_BLOB_MISSING
    attempt = claimed.attempt(started=now, ended=now, duration=0.0, category=category)
    end = protocol.End(attempt=attempt, healing=claimed.absent, first=claimed.task)
    assert protocol.end_batch(runtime, [end], POLICY) == [True]
    task = TaskTable(store).task(key)
    assert task is not None
    assert (task.state, task.missing, task.attempt) == (State.WAITING, 1, 1)


def test_a_claim_over_an_input_that_is_gone_reads_the_task_once(
    runtime: Runtime, store: Unreliable
) -> None:
    done(runtime, put(store, GRANULE))
    key = put(store, CELL)
    protocol.lose(runtime, GRANULE.key, FILE.blob)
    store.reads = store.writes = 0
    assert protocol.claim(runtime, key, "w", POLICY) is None
    assert (store.reads, store.writes) == (2, 2)


def test_a_claim_of_which_a_read_fails_takes_nothing(runtime: Runtime, store: Unreliable) -> None:
    """Whichever it is: of the task, of its input."""
    done(runtime, put(store, GRANULE))
    key = put(store, CELL)
    for number in (1, 2):
        store.reads, store.unread = 0, number
        with pytest.raises(StoreError):
            protocol.claim(runtime, key, "w", POLICY)
        store.unread = 0
        task = TaskTable(store).task(key)
        assert task is not None
        assert task.state is State.READY
    assert protocol.claim(runtime, key, "w", POLICY) is not None


def test_a_record_has_all_that_is_known_of_an_attempt(runtime: Runtime, store: Unreliable) -> None:
    claimed = protocol.claim(runtime, put(store, GRANULE), "w", POLICY)
    assert claimed is not None
    own = Attempt(
        key=GRANULE.key,
        number=1,
        claim=claimed.claim,
        phase=GRANULE.phase,
        task_class=GRANULE.task_class,
        worker="w",
        started=1.0,
        ended=2.0,
        duration=0.5,
    )
    assert claimed.attempt(started=1.0, ended=2.0, duration=0.5) == own
    more = {
        "category": Category.USER_CODE_FAILED,
        "message": "said",
        "log": "printed",
        "peak_memory": 5,
        "used": RunUse(
            seconds=1.0,
            cpu_seconds=2.0,
            written=3,
            cores=4,
            waited=5.0,
            most_seconds=6.0,
            most_written=7,
            most_memory=8,
        ),
    }
    full = claimed.attempt(started=1.0, ended=2.0, duration=0.5, **more)  # type: ignore[arg-type]
    assert full == replace(own, **more)  # type: ignore[arg-type]


def test_a_failure_waits_as_long_as_the_server_asks(runtime: Runtime, store: Unreliable) -> None:
    for spec, asked in ((GRANULE, 0.0), (CELL.model_copy(update={"inputs": ()}), 900.0)):
        key = put(store, spec)
        claimed = protocol.claim(runtime, key, "w", POLICY)
        assert claimed is not None
        busy = ended(claimed, Category.SERVER_BUSY)
        assert protocol.fail(runtime, busy, RetryPolicy(base=0.25), asked=asked)
        task = TaskTable(store).task(key)
        assert task is not None
        wait = task.not_before - runtime.clock.now()
        assert wait == 900.0 if asked else wait < 0.5


def test_a_blob_that_is_missing_for_no_named_input_is_tried_again_later(
    runtime: Runtime, store: Unreliable
) -> None:
    key = put(store, GRANULE)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert protocol.fail(runtime, ended(claimed, Category.SOURCE_BLOB_MISSING), POLICY)
    task = TaskTable(store).task(key)
    assert task is not None
    assert (task.state, task.missing) == (State.READY, 0)


def test_a_decision_that_changes_nothing_returns_the_task_as_it_is(
    runtime: Runtime, store: Unreliable
) -> None:
    key = put(store, GRANULE)
    found = TaskTable(store).task(key)
    unchanged = protocol.change_task(runtime, key, lambda task: transitions.Change(task=task))
    assert unchanged == found
    assert unchanged is not None
    assert (
        protocol.change_task(runtime, "f" * 64, lambda task: transitions.Change(task=task)) is None
    )
    first = protocol.change_task(
        runtime, key, lambda task: transitions.drop(task, "r"), first=unchanged
    )
    assert first == TaskTable(store).task(key)
    assert (store.reads, store.writes) == (4, 2)


def test_storage_that_stays_away_is_said(runtime: Runtime, store: Unreliable) -> None:
    key = put(store, GRANULE)
    store.script = ["before"] * 50
    with pytest.raises(StoreError):
        protocol.claim(runtime, key, "w", POLICY)


# --- workers ---


def row(*claims: str, sequence: int = 1) -> workers.WorkerRow:
    return workers.WorkerRow(
        name="w",
        host="h",
        slots=2,
        started=5.0,
        beat_at=6.0,
        sequence=sequence,
        attempts=tuple(
            workers.RunningAttempt(
                key="k" * 64,
                claim=claim,
                started_ago=1.5,
                phase=Phase.REDUCTION,
                task_class="class",
                progress=0.5,
                note="half",
            )
            for claim in claims
        ),
    )


@pytest.mark.parametrize("script", [[], ["after"], ["before"], ["conflict"]])
def test_kill_orders_reach_the_next_beat_and_go_with_the_claim(
    runtime: Runtime, store: Unreliable, script: list[str]
) -> None:
    def beat(found: workers.WorkerRow) -> tuple[str, ...]:
        return workers.beat(store, runtime.clock, found).kill

    assert beat(row("a", "b")) == ()
    store.script = list(script)
    assert workers.order_kill(store, runtime.clock, "w", "a")
    assert workers.order_kill(store, runtime.clock, "w", "gone")
    store.script = list(script)
    assert beat(row("a", "b", sequence=2)) == ("a",)
    assert beat(row("a", "b", sequence=3)) == ("a",)
    assert beat(row("b", sequence=4)) == ()
    (found,) = workers.list_workers(store)
    assert (found.orders, found.sequence) == ((), 4)
    assert found.attempts[0].note == "half"
    assert not workers.order_kill(store, runtime.clock, "nobody", "a")


def test_a_worker_leaves_and_a_later_incarnation_stays(runtime: Runtime, store: Unreliable) -> None:
    workers.beat(store, runtime.clock, row("a"))
    workers.leave(store, runtime.clock, "w", started=4.0)
    assert len(workers.list_workers(store)) == 1
    workers.leave(store, runtime.clock, "w", started=5.0)
    assert workers.list_workers(store) == []


def test_beats_of_a_large_fleet_lie_in_all_partitions_alike() -> None:
    """Azure lets a partition have 2,000 rows a second; a beat reads one and writes one."""
    names = [f"worker-{host:04d}-{slot}" for host in range(2500) for slot in range(4)]
    found = Counter(map(workers.partition_of, names))
    assert set(found) == set(workers.PARTITIONS)
    assert max(found.values()) < 1.1 * len(names) / len(workers.PARTITIONS)


# --- requests ---


def document(title: str = "", tiles: int = 1) -> Request:
    names = [f"h{h:02d}v{v:02d}" for h in range(36) for v in range(18)]
    return parse_request(
        {
            "title": title,
            "products": [{"name": "MOD13A2", "collection": "6", "layers": ["x"]}],
            "region": {"tiles": (names * 20)[:tiles]},
            "time": {"start": "2012-01-01", "end": "2012-01-02"},
            "grid": {"modis": 1000},
        }
    )


@pytest.mark.parametrize("script", [[], ["after"], ["before"], ["conflict"]])
def test_a_submission_is_stored_once(
    runtime: Runtime, store: Unreliable, script: list[str]
) -> None:
    store.script = list(script)
    name = request_operations.submit(runtime, "me", document("one"), request_id="one")
    assert request_operations.load(runtime, name).title == "one"
    assert RequestTable(runtime.store).live() == ["one"]
    assert [r.id for r in request_operations.list_requests(runtime)] == ["one"]


def test_requests_are_listed_newest_first_by_owner(runtime: Runtime) -> None:
    for i in range(4):
        request_operations.submit(runtime, f"owner{i % 2}", document(f"t{i}"))
        runtime.clock.sleep(1)
    assert [r.title for r in request_operations.list_requests(runtime)] == ["t3", "t2", "t1", "t0"]
    mine = request_operations.list_requests(runtime, owner="owner0", limit=1)
    assert [r.title for r in mine] == ["t2"]


def test_a_large_document_is_kept_beside_the_row(runtime: Runtime) -> None:
    large = document("large", tiles=9000)
    name = request_operations.submit(runtime, "me", large)
    assert request_operations.document_of(request_operations.load(runtime, name)) == large


def test_an_id_of_another_owner_is_refused(runtime: Runtime) -> None:
    request_operations.submit(runtime, "me", document(), request_id="mine")
    with pytest.raises(FencedError, match="taken"):
        request_operations.submit(runtime, "you", document(), request_id="mine")
    with pytest.raises(ValueError, match="letters"):
        request_operations.submit(runtime, "me", document(), request_id="a|b")


def test_orders_are_obeyed_until_the_end_only(runtime: Runtime) -> None:
    name = request_operations.submit(runtime, "me", document())
    request_operations.order(runtime, name, RequestOrder.PAUSE)
    assert request_operations.load(runtime, name).order == "pause"
    request_operations.order(runtime, name, RequestOrder.CANCEL)
    request_operations.order(runtime, name, RequestOrder.RESUME)
    ended = request_operations.load(runtime, name)
    assert (ended.state, ended.order) == (RequestState.CANCELLED, None)
    with pytest.raises(request_operations.NoSuchRequestError):
        request_operations.order(runtime, "nothing", RequestOrder.CANCEL)


# --- history and outbox ---


def event(number: int, category: Category | None = None, duration: float = 1.0) -> CompletionEvent:
    return CompletionEvent(
        key=f"{number:064x}",
        row="o",
        number=1,
        state=State.DONE,
        category=category,
        duration=duration,
        ended=1_700_000_000.0,
        phase=Phase.COLLECTION,
        task_class="collection MOD13A2.6",
        worker="w",
        has_dependents=False,
        interests=(),
        not_before=0.0,
        message="",
        fallback="",
        sponsor="",
        files=(),
        counted=False,
    )


def test_a_batch_counted_twice_counts_once(store: Unreliable) -> None:
    batch = [event(i, duration=float(i)) for i in range(1, 6)]
    batch.append(event(9, Category.SERVER_BUSY, duration=100.0))
    history.take_over(store, 1)
    store.script = ["", "after"]  # the failure is listed; the counts are written, not answered
    with pytest.raises(StoreError):
        history.count(store, batch, epoch=1)
    history.count(store, batch, epoch=1)
    (found,) = history.class_statistics(store).values()
    assert (found.count, found.mean) == (5, 3.0)
    assert found.deviation == pytest.approx(1.5811388)
    today = dt.date(2023, 11, 14)
    counts = {c.category: c.count for c in history.executions(store, 1, today)}
    assert counts == {None: 5, Category.SERVER_BUSY: 1}
    assert list(history.executions(store, 1, today + dt.timedelta(days=2))) == []


def test_a_batch_of_attempts_without_anything_in_common_fits_one_transaction(
    store: Unreliable,
) -> None:
    owners = {f"r{n}": f"owner/{n}" for n in range(history.BATCH)}
    batch = [
        replace(event(n), task_class=f"collection P{n}.6", worker=f"w#{n}", sponsor=f"r{n}")
        for n in range(history.BATCH)
    ]
    history.count(store, batch, epoch=1, owners=owners)
    day = dt.date(2023, 11, 14)
    for owner, worker in (("owner/3", ""), ("", "w#3")):
        (found,) = history.executions_between(store, day, day, owner=owner, worker=worker)
        assert (found.task_class, found.count) == ("collection P3.6", 1)
    assert sum(one.count for one in history.executions(store, 1, day)) == history.BATCH


def test_as_many_attempts_as_fit_are_counted_in_one_transaction(store: Unreliable) -> None:
    alike = [replace(event(n), sponsor="r") for n in range(220)]
    apart = [
        replace(event(n), task_class=f"c{n}", worker=f"w{n}", sponsor=f"r{n}") for n in range(60)
    ]
    owners = {one.sponsor: f"owner of {one.sponsor}" for one in (*alike, *apart)}
    for events, sizes in ((alike, [100, 100, 20]), (apart, [19, 19, 19, 3])):
        batches = list(history.batches(events, owners))
        assert [len(batch.events) for batch in batches] == sizes
        assert [one for batch in batches for one in batch.events] == events
    before: set[str] = set()
    for batch in batches:
        history.count(store, batch.events, epoch=1, owners=owners)
        after = {row.row for row in store.scan(history.TABLE, history.PARTITION, "", "~")}
        assert after - before - {history.CURSOR} == batch.rows
        before = after


def test_failures_are_listed_by_category_and_time_and_listed_once(store: Unreliable) -> None:
    early = replace(event(1, Category.SERVER_BUSY), ended=1_000.0)
    late = replace(event(2, Category.SERVER_BUSY), ended=2_000.0)
    other = replace(event(3, Category.UNKNOWN), ended=1_500.0)
    store.script = ["", "after"]  # the failures are written, the counts are and are not answered
    with pytest.raises(StoreError):
        history.count(store, [early, late, other, event(4)], epoch=1)
    history.count(store, [early, late, other, event(4)], epoch=1)

    def numbers(first: float, last: float, *categories: Category) -> list[int]:
        return [int(one.key, 16) for one in history.failures(store, first, last, categories)]

    assert numbers(0.0, 9_000.0, Category.SERVER_BUSY, Category.UNKNOWN) == [2, 3, 1]
    assert numbers(0.0, 9_000.0, Category.UNKNOWN) == [3]
    assert numbers(1_000.0, 1_500.0, *Category) == [3, 1]


def test_a_manager_of_a_lower_epoch_counts_no_more(store: Unreliable) -> None:
    history.take_over(store, 1)
    history.take_over(store, 2)
    with pytest.raises(FencedError):
        history.count(store, [event(1)], epoch=1)
    with pytest.raises(FencedError):
        history.take_over(store, 1)
    assert history.class_statistics(store) == {}


def test_a_mail_is_written_once_and_marked_when_sent(runtime: Runtime, store: Unreliable) -> None:
    mail = outbox.Mail(request="r", to="a@b", kind="end", subject="s", body="Grüße", written=1.0)
    outbox.put(store, runtime.clock, mail)
    outbox.put(store, runtime.clock, mail)
    (found,) = outbox.unsent(store)
    assert (found.body, found.message_id) == ("Grüße", mail.message_id)
    outbox.mark_failed(store, runtime.clock, found, "refused")
    (again,) = outbox.unsent(store)
    assert (again.tries, again.error) == (1, "refused")
    outbox.mark_sent(store, runtime.clock, again, 5.0)
    assert list(outbox.unsent(store)) == []
    assert len(list(outbox.mails(store, "r"))) == 1


def test_a_task_that_was_cancelled_while_the_answer_to_its_claim_was_lost_is_not_run(
    runtime: Runtime, store: Unreliable
) -> None:
    """A cancelled task keeps its claim."""
    key = put(store, GRANULE)
    lost = store.transact

    def transact(table: str, partition: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        store.transact = lost  # type: ignore[method-assign]
        lost(table, partition, operations)
        protocol.change_task(runtime, key, lambda task: transitions.drop(task, "r"))
        raise StoreError("no answer")

    store.transact = transact  # type: ignore[method-assign]
    assert protocol.claim(runtime, key, "w", POLICY) is None


@pytest.mark.parametrize(
    ("category", "struck"),
    [
        (Category.CORRUPT_BLOB_READ, ()),  # storage damaged it: the same bytes will do
        (Category.UNREADABLE_INPUT_FILE, (FILE.sha256,)),
    ],
)
def test_a_damaged_input_is_lost_by_its_own_bit(
    runtime: Runtime, store: Unreliable, category: Category, struck: tuple[str, ...]
) -> None:
    other = CollectSpec(product="MOD13A2", collection="6", granule="h", production="1")
    for spec in (GRANULE, other):
        done(runtime, put(store, spec))
    inputs = (Input(key=other.key), Input(key=GRANULE.key, file="a.tif"))
    key = put(store, MosaicSpec(name="two", grid=GRID, inputs=inputs))
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    attempt = ended(claimed, category)
    protocol.lose_damaged_inputs(runtime, claimed, protocol.End(attempt=attempt, healing=2))
    tasks = [TaskTable(store).task(one.key) for one in inputs]
    assert [task.state for task in tasks if task] == [State.DONE, State.EXPIRED]
    assert [task.struck for task in tasks if task] == [(), struck]


def test_an_attempt_gets_the_file_that_it_names(runtime: Runtime, store: Unreliable) -> None:
    key = put(store, GRANULE)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    other = ArtifactFile(name="b.tif", blob="artifacts/k/c/b.tif", size=1, sha256="0")
    assert protocol.commit(runtime, ended(claimed), [FILE, other])
    over = MosaicSpec(name="b", grid=GRID, inputs=(Input(key=key, file="b.tif"), Input(key=key)))
    found = protocol.claim(runtime, put(store, over), "w", POLICY)
    assert found is not None
    assert found.input_files == {0: (other,), 1: (FILE, other)}


@pytest.mark.parametrize("state", [State.EXPIRED, State.WAITING])
def test_an_input_that_is_lost_is_named_by_its_bit(
    runtime: Runtime, store: Unreliable, state: State
) -> None:
    other = CollectSpec(product="MOD13A2", collection="6", granule="h", production="1")
    for spec in (GRANULE, other):
        done(runtime, put(store, spec))
    key = put(
        store,
        MosaicSpec(name="two", grid=GRID, inputs=(Input(key=other.key), Input(key=GRANULE.key))),
    )
    protocol.lose(runtime, GRANULE.key, FILE.blob)
    if state is State.WAITING:
        protocol.change_task(runtime, GRANULE.key, lambda task: transitions.heal(task, 1))
    assert protocol.claim(runtime, key, "w", POLICY) is None
    task = TaskTable(store).task(key)
    assert task is not None
    assert (task.state, task.missing) == (State.WAITING, 2)


def test_the_manager_is_woken_by_ends_and_by_what_is_given_back(
    runtime: Runtime, store: Unreliable
) -> None:
    key = put(store, GRANULE)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    protocol.give_back(runtime, {key: claimed.claim})
    assert runtime.wakeups.drain() == [key]
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert protocol.commit(runtime, ended(claimed), [FILE])
    assert runtime.wakeups.drain() == [key]
    assert not protocol.commit(runtime, replace(ended(claimed), claim="another's"), [FILE])
    assert runtime.wakeups.drain() == []


def test_another_end_of_the_same_number_is_not_ours(runtime: Runtime, store: Unreliable) -> None:
    """The manager gave the attempt up, and its worker commits it."""
    key = put(store, GRANULE)
    claimed = protocol.claim(runtime, key, "w", POLICY)
    assert claimed is not None
    assert protocol.fail(runtime, ended(claimed, Category.WORKER_LOST), POLICY)
    assert not protocol.commit(runtime, ended(claimed), [FILE])
    assert not protocol.fail(runtime, ended(claimed, Category.UNKNOWN), POLICY)
    stranger = replace(ended(claimed, Category.WORKER_LOST), claim="another's")
    assert not protocol.fail(runtime, stranger, POLICY)
    assert protocol.fail(runtime, ended(claimed, Category.WORKER_LOST), POLICY)


def test_a_worker_gets_its_own_orders_only(runtime: Runtime, store: Unreliable) -> None:
    clock = runtime.clock
    workers.beat(store, clock, row("a"))
    for claim in ("a", "b"):
        assert workers.order_kill(store, clock, "w", claim)
        assert workers.order_move(store, clock, "w", claim)
    found = workers.beat(store, clock, row("a", "b", sequence=2))
    assert (found.kill, found.move) == (("a", "b"), ("a", "b"))
    assert workers.beat(store, clock, row("b", sequence=3)).kill == ("b",)
    assert workers.order_hold(store, clock, "w", 4.0, workers.Hold.DRAINED)
    assert workers.list_workers(store)[0].hold is workers.Hold.NONE
    assert workers.order_hold(store, clock, "w", 5.0, workers.Hold.DRAINED)
    assert workers.beat(store, clock, row(sequence=4)).hold is workers.Hold.DRAINED
    again = replace(row(), started=6.0)
    assert workers.beat(store, clock, again).hold is workers.Hold.NONE


def test_a_worker_told_to_leave_stays_told_and_its_next_incarnation_is_not(
    runtime: Runtime, store: Unreliable
) -> None:
    clock = runtime.clock
    assert not workers.order_leave(store, clock, "w", 5.0), "there is no such worker"
    assert not workers.beat(store, clock, row()).leave
    workers.order_leave(store, clock, "w", 4.0)
    assert not workers.beat(store, clock, row(sequence=2)).leave
    workers.order_leave(store, clock, "w", 5.0)
    assert workers.list_workers(store)[0].draining
    for sequence in (3, 4):
        assert workers.beat(store, clock, row(sequence=sequence)).leave
        assert workers.list_workers(store)[0].draining
    assert not workers.beat(store, clock, replace(row(), started=6.0)).leave


def test_the_cursor_names_what_may_still_have_events(store: Unreliable) -> None:
    history.take_over(store, 1)
    first, second = [event(1)], [event(2)]
    history.count(store, first, epoch=1)
    history.count(store, second, epoch=1, keep=[history.attempt_id(one) for one in first])
    history.count(store, first, epoch=1)
    (found,) = history.class_statistics(store).values()
    assert found.count == 2
    assert history.take_over(store, 2) == {history.attempt_id(one) for one in (*first, *second)}


def test_failures_do_not_count_in_the_mean(store: Unreliable) -> None:
    history.take_over(store, 1)
    history.count(store, [event(1), event(2, Category.UNKNOWN, 100.0)], epoch=1)
    (found,) = history.class_statistics(store).values()
    assert (found.count, found.mean) == (1, 1.0)
