"""What the protocol costs, counted at the store: writes and reads for each task, and planning."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from service_manager.options import ManagerOptions
from tasks.bag import protocol, task_table
from tasks.bag.kinds import Spec
from tasks.bag.model import RequestState
from tasks.bag.task_table import RowKind, kind_of
from tasks.requests import request_operations
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.store import Operation, Row, Store
from tests.service_manager.workbench import Bench, collect, document, mosaic, plan_of


class Counting:
    """A store that counts calls by what they are about. A transaction that changes one task row is
    a write of that task; one that changes several rows of many tasks is a batch."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.writes: Counter[str] = Counter()  # of single tasks, by key
        self.reads: Counter[str] = Counter()
        self.batches = 0
        self.scans = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        if table == task_table.TABLE:
            self.reads[row.split("|")[1]] += 1
        return self._inner.get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        if table == task_table.TABLE and kind_of(start) is RowKind.SPEC:
            self.reads[start.split("|")[1]] += 1
        elif table == task_table.TABLE:
            self.scans += 1
        return self._inner.scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        if table == task_table.TABLE:
            changed = [op.row[2:] for op in operations if kind_of(op.row) is RowKind.TASK]
            if len(changed) == 1:
                self.writes[changed[0]] += 1
            else:
                self.batches += 1
        return self._inner.transact(table, partition, operations)


class Worked(Bench):
    """A bench that sends at once, and lets a slow worker do some of it each round."""

    each = 7

    def work(self) -> None:
        later = self.sent[self.each :]
        del self.sent[self.each :]
        super().work()
        self.sent += later


def counted(*tasks: Spec, outputs: dict[str, str]) -> tuple[Worked, Counting]:
    runtime = memory_runtime(ManualClock())
    store = Counting(runtime.store)
    b = Worked(
        plans={"p": plan_of(*tasks, outputs=outputs)},
        options=ManagerOptions(sweep=1e6, window=10_000, tick=0.5),
        runtime=replace(runtime, store=store),
    )
    return b, store


def planned(b: Worked, store: Counting) -> str:
    """A request whose plan is written; what that took is forgotten."""
    request = b.submit("p")
    while b.row(request).state is not RequestState.RUNNING:
        b.manager.tick()
    store.writes.clear()
    store.reads.clear()
    store.batches = store.scans = 0
    return request


def test_a_task_takes_three_writes_and_one_more_for_each_input_not_done_at_planning() -> None:
    granules = [collect(f"g{i}") for i in range(60)]
    cells = [mosaic(f"c{i}", *granules[3 * i : 3 * i + 3]) for i in range(20)]
    tops = [mosaic(f"t{i}", *cells[4 * i : 4 * i + 4]) for i in range(5)]
    b, store = counted(*granules, *cells, *tops, outputs={t.name: "out" for t in tops})
    request = planned(b, store)
    assert b.until_ended(request).state is RequestState.COMPLETE
    every: list[Spec] = [*granules, *cells, *tops]
    for spec in every:
        inputs = len(spec.inputs)  # none of them DONE at planning
        assert store.writes[spec.key] <= 2 + inputs, spec
        own = store.reads[spec.key] - _as_an_input(spec, cells, tops)
        assert own <= 2, (spec, own)  # row and specification, by the claim
    tasks = len(granules) + len(cells) + len(tops)
    # Settling: the completion events of a shard in one transaction for each round that has some.
    assert store.batches <= tasks
    assert sum(store.writes.values()) + store.batches <= 3 * tasks + 60 + 20


def _as_an_input(spec: Spec, *levels: Sequence[Spec]) -> int:
    """How often a task is read by the claims of those it is an input of."""
    return sum(given.key == spec.key for level in levels for one in level for given in one.inputs)


def test_tasks_without_inputs_take_two_writes_and_settle_together() -> None:
    granules = [collect(f"g{i}") for i in range(200)]
    b, store = counted(*granules, outputs={})
    b.each = 100
    request = planned(b, store)
    b.until_ended(request)
    assert max(store.writes.values()) == 2  # claim and commit
    assert max(store.reads.values()) <= 2  # row and specification, by the claim
    assert store.batches <= 16 * 4


def test_a_commit_reads_again_only_when_its_row_has_changed() -> None:
    granules = [collect("g")]
    b, store = counted(*granules, outputs={})
    b.submit("p")
    b.manager.tick()
    b.manager.tick()
    claimed = protocol.claim(b.runtime, granules[0].key, "w", b.options.retry)
    assert claimed is not None
    second = request_operations.submit(b.runtime, "other", document("p"))
    b.rounds(3)  # the second request has an interest in it, too: another ETag
    store.reads.clear()
    done = claimed.attempt(started=0, ended=1, duration=1)
    assert protocol.commit(b.runtime, done, [b._store(claimed)], claimed.task)
    assert store.reads[granules[0].key] == 1
    assert b.until_ended(second).state is RequestState.COMPLETE


def test_planning_is_batched() -> None:
    """At most (1 + edges + interests) / 20 writes for each task above 1,000 tasks."""
    tasks = 1200
    granules = [collect(f"g{i}") for i in range(tasks * 3 // 4)]
    cells = [mosaic(f"c{i}", *granules[3 * i : 3 * i + 3]) for i in range(tasks // 4)]
    b, store = counted(*granules, *cells, outputs={})
    request = b.submit("p")
    while b.row(request).state is not RequestState.RUNNING:
        b.manager.tick()
    total = len(granules) + len(cells)
    edges = sum(len(cell.inputs) for cell in cells) / total
    writes = store.batches + sum(store.writes.values())
    assert writes <= total * (1 + edges + 1) / 20
    assert max(store.reads[spec.key] for spec in (*granules, *cells)) <= 1  # is it there already?


@pytest.mark.slow
@pytest.mark.proof
def test_five_thousand_inputs_take_one_write_of_their_dependent_a_tick() -> None:
    granules = [collect(f"g{i}") for i in range(5000)]
    top = mosaic("top", *granules)
    b, store = counted(*granules, top, outputs={"top": "out"})
    b.each = 500
    request = planned(b, store)
    told: list[int] = []
    while not b.row(request).state.ended:
        b.work()
        before = store.writes[top.key]
        b.manager.tick()
        told.append(store.writes[top.key] - before)
        b.runtime.clock.sleep(1.0)
        assert len(told) < 30
    assert b.row(request).state is RequestState.COMPLETE
    assert max(told) == 1
    assert store.writes[top.key] - sum(told) == 2  # claim and commit
