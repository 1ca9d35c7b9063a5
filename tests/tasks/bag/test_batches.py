"""Batches in the table: claimed, ended and given back together, each task by its own right."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import pytest

from tasks.bag import (
    batch,
    protocol,
    task_table,
    transitions,
)
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile, State, Task
from tasks.bag.protocol import Claimed, End
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Interest
from tasks.bag.transitions import Change, RetryPolicy
from tasks.errors import ConflictError, StoreError
from tasks.service.memory_runtime import memory_runtime
from tasks.storage import limits
from tasks.storage.limits import operation_size
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import BATCH_BYTES, BATCH_OPERATIONS, Insert, Operation, Row, Upsert

GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)
POLICY = RetryPolicy()
FILE = ArtifactFile(name="g.hdf", blob="granules/k/c/g.hdf", size=3, sha256="0" * 64)


class Counting(MemoryStore):
    """A store that counts calls and holds transactions to the limits; it may fail them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.failures: list[str] = []
        self.operations = self.bytes = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self.calls["get"] += 1
        return super().get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        self.calls["scan"] += 1
        return super().scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self.calls["transact"] += 1
        self.operations = max(self.operations, len(operations))
        self.bytes = max(self.bytes, sum(operation_size(partition, op) for op in operations))
        failure = self.failures.pop() if self.failures else ""
        if failure == "lost answer":
            super().transact(table, partition, operations)
        if failure:
            raise StoreError(failure)
        return super().transact(table, partition, operations)


@dataclass(frozen=True, kw_only=True)
class World:
    """A table with tasks of one family."""

    store: Counting
    runtime: Runtime

    def write(self, spec: Spec) -> str:
        """Write a task that is ready."""
        interest = Interest(request="r", key=spec.key, phase=spec.phase)
        change = transitions.create(spec, interest, missing=0)
        self.runtime.tasks.transact(shard(spec.key), change.operations)
        return spec.key

    def done(self, spec: Spec) -> Input:
        """Write a task that is done."""
        claimed = protocol.claim(self.runtime, self.write(spec), "w", POLICY)
        assert claimed is not None
        assert protocol.commit(self.runtime, ended(claimed).attempt, [FILE])
        return Input(key=spec.key, name="granule")

    def family(self, number: int, granules: int = 3) -> list[str]:
        """Write tasks that read the same granules; return their keys."""
        given = tuple(self.done(granule(i)) for i in range(granules))
        specs = [MosaicSpec(name=f"m{i}", grid=GRID, inputs=given) for i in range(number)]
        return sorted(self.write(spec) for spec in specs)

    def task(self, key: str) -> Task:
        found = self.runtime.tasks.task(key)
        assert found is not None
        return found


@pytest.fixture
def world() -> World:
    store = Counting()
    base = memory_runtime()
    return World(store=store, runtime=replace(base, store=store))


def granule(number: int) -> CollectSpec:
    return CollectSpec(
        product="MOD09A1",
        collection="6",
        granule=f"MOD09A1.A2012001.h{number:02d}v04.006.2015001000000.hdf",
        production="2015001000000",
    )


def ended(claimed: Claimed, category: Category | None = None) -> End:
    attempt = claimed.attempt(
        started=1.0, ended=2.0, duration=1.0, category=category, message="said", log="log"
    )
    return End(attempt=attempt, files=() if category else [FILE], first=claimed.task)


def run(world: World, keys: Sequence[str]) -> list[bool]:
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    return protocol.end_batch(world.runtime, [ended(one) for one in claimed], POLICY)


@pytest.mark.parametrize("number", [2, 20])
def test_a_batch_costs_a_constant_number_of_storage_calls(world: World, number: int) -> None:
    keys = world.family(number)
    world.store.calls.clear()
    assert run(world, keys) == [True] * number
    # Tasks with their specifications, and inputs, each in one range; the claim and the ends.
    assert world.store.calls == {"scan": 2, "transact": 2}
    assert world.store.operations <= BATCH_OPERATIONS


def test_a_batch_leaves_the_rows_that_single_tasks_leave(world: World) -> None:
    keys = world.family(4)
    run(world, keys)
    together = {row.row: row.entity for row in world.store.tables()["tasks"]}
    store = Counting()
    other = World(store=store, runtime=replace(memory_runtime(), store=store))
    assert other.family(4) == keys
    for key in keys:
        run(other, [key])
    alone = {row.row: row.entity for row in store.tables()["tasks"]}
    assert together.keys() == alone.keys()
    own = ("claim", "place", "blob")  # drawn for each attempt; the place in its batch
    for name, entity in together.items():
        mine = {k: v for k, v in entity.items() if k not in own}
        assert mine == {k: v for k, v in alone[name].items() if k not in own}, name


def test_large_rows_are_written_in_several_transactions(world: World) -> None:
    keys = world.family(20)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    many = [replace(FILE, name=f"{i}.tif") for i in range(400)]
    ends = [ended(one) for one in claimed]
    ends = [replace(e, files=many, attempt=replace(e.attempt, log="é" * 20_000)) for e in ends]
    world.store.calls.clear()
    world.store.operations = world.store.bytes = 0
    assert protocol.end_batch(world.runtime, ends, POLICY) == [True] * 20
    assert world.store.calls["transact"] == 2
    assert world.store.bytes <= BATCH_BYTES
    assert world.store.operations <= BATCH_OPERATIONS
    assert all(world.task(key).files == tuple(many) for key in keys)


def test_long_specifications_and_many_inputs_are_read_whole(world: World) -> None:
    given = tuple(world.done(granule(i)) for i in range(40))
    specs = [
        MosaicSpec(name=f"m{i}", grid=GRID, clip="c" * 150_000, inputs=given[i:] + given[:i])
        for i in range(6)
    ]
    for spec in specs:
        world.write(spec)
    claimed = protocol.claim_batch(world.runtime, sorted(s.key for s in specs), "w", POLICY)
    assert {one.task.key: one.spec for one in claimed} == {spec.key: spec for spec in specs}
    assert all([*one.input_files] == [*range(40)] for one in claimed)


@pytest.mark.parametrize("failure", ["no answer", "lost answer"])
def test_a_broken_call_loses_nothing_and_repeats_nothing(world: World, failure: str) -> None:
    keys = world.family(5)
    world.store.failures = [failure]
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    assert [one.task.key for one in claimed] == keys
    world.store.failures = [failure]
    ends = [ended(one) for one in claimed]
    assert protocol.end_batch(world.runtime, ends, POLICY) == [True] * 5
    assert protocol.end_batch(world.runtime, ends, POLICY) == [True] * 5
    assert all(len(world.runtime.tasks.attempts(key)) == 1 for key in keys)


def test_a_task_cancelled_meanwhile_costs_the_others_of_its_batch_nothing(world: World) -> None:
    keys = world.family(5)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    protocol.change_task(world.runtime, keys[2], lambda task: transitions.drop(task, "r"))
    ours = protocol.end_batch(world.runtime, [ended(one) for one in claimed], POLICY)
    assert ours == [True, True, False, True, True]
    states = [world.task(key).state for key in keys]
    assert states == [State.DONE, State.DONE, State.CANCELLED, State.DONE, State.DONE]


def test_what_others_took_is_not_claimed_and_the_rest_is(world: World) -> None:
    keys = world.family(5)
    assert protocol.claim(world.runtime, keys[1], "other", POLICY) is not None
    claimed = protocol.claim_batch(world.runtime, [*keys, keys[0], "f" * 64], "w", POLICY)
    assert [one.task.key for one in claimed] == [keys[0], *keys[2:]]
    assert [one.task.place for one in claimed] == [0, 1, 2, 3]
    assert world.task(keys[1]).worker == "other"


def test_a_failure_in_a_batch_is_that_task_s_alone(world: World) -> None:
    keys = world.family(3)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    ends = [ended(claimed[0]), ended(claimed[1], Category.SERVER_BUSY), ended(claimed[2])]
    assert protocol.end_batch(world.runtime, ends, POLICY) == [True] * 3
    assert [world.task(key).state for key in keys] == [State.DONE, State.READY, State.DONE]
    assert [world.task(key).retries for key in keys] == [0, 1, 0]
    assert world.task(keys[1]).alone


def test_a_task_whose_input_is_gone_fails_and_the_others_are_claimed(world: World) -> None:
    keys = world.family(2)
    lost = world.done(granule(9))
    key = world.write(MosaicSpec(name="over lost", grid=GRID, inputs=(lost,)))
    protocol.lose(world.runtime, lost.key, FILE.blob)
    claimed = protocol.claim_batch(world.runtime, sorted([*keys, key]), "w", POLICY)
    assert sorted(one.task.key for one in claimed) == keys
    assert (world.task(key).state, world.task(key).missing) == (State.WAITING, 1)


@pytest.mark.parametrize("category", [None, Category.WORKER_LOST])
def test_what_is_given_back_is_ready_and_not_charged(
    world: World, category: Category | None
) -> None:
    keys = world.family(3)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    other = {keys[0]: "token of nobody"}
    protocol.give_back(world.runtime, {**{c.task.key: c.claim for c in claimed}, **other}, category)
    tasks = [world.task(key) for key in keys]
    assert [t.state for t in tasks] == [State.RUNNING, State.READY, State.READY]
    assert [t.retries for t in tasks] == [0, 0, 0]
    assert [t.alone for t in tasks[1:]] == [category is not None] * 2
    ready = world.runtime.tasks.ready(shard(keys[0]), 10)
    assert [(m.key, m.alone) for m in ready] == [(key, category is not None) for key in keys[1:]]
    assert [m.key for m in world.runtime.tasks.running(shard(keys[0]))] == keys[:1]
    events = world.runtime.tasks.events(shard(keys[0]), 100)
    assert {e.key for e in events if task_table.returned(e)} == {*keys[1:]}
    assert world.runtime.tasks.attempts(keys[1]) == []
    assert run(world, keys[1:]) == [True, True]


def test_files_that_no_row_can_name_cost_the_others_nothing(world: World) -> None:
    keys = world.family(3)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    many = [replace(FILE, name=f"{i}.tif") for i in range(2000)]
    ends = [ended(one) for one in claimed]
    assert not task_table.holds(many)
    began = world.runtime.clock.monotonic()
    with pytest.raises(ValueError, match="larger than 64 KiB"):
        protocol.end_batch(world.runtime, [ends[0], replace(ends[1], files=many), ends[2]], POLICY)
    assert world.runtime.clock.monotonic() == began
    assert [world.task(key).state for key in keys] == [State.DONE, State.RUNNING, State.DONE]


def test_each_task_of_a_batch_has_its_own_etag(world: World) -> None:
    """With it the next change of the task needs no reading."""
    keys = world.family(3)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    assert [one.task.etag for one in claimed] == [world.task(key).etag for key in keys]


def test_a_task_that_is_always_changed_by_others_does_not_keep_its_batch_waiting(
    world: World,
) -> None:
    keys = world.family(3)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    transact, own = world.store.transact, task_table.task_row(keys[1])

    def refused(table: str, partition: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        if any(one.row == own for one in operations):
            raise ConflictError("somebody has changed it")
        return transact(table, partition, operations)

    world.store.transact = refused  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="1 tasks: gave up after 8 tries: somebody has changed it"):
        protocol.end_batch(world.runtime, [ended(one) for one in claimed], POLICY)
    states = [world.task(key).state for key in keys]
    assert states == [State.DONE, State.RUNNING, State.DONE]


def test_a_transaction_that_is_refused_once_is_tried_as_a_whole_again(world: World) -> None:
    keys = world.family(3)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    transact, refusals = world.store.transact, [ConflictError("changed")]

    def refused(table: str, partition: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        if refusals:
            raise refusals.pop()
        return transact(table, partition, operations)

    world.store.transact = refused  # type: ignore[method-assign]
    world.store.calls.clear()
    began = world.runtime.clock.monotonic()
    assert protocol.end_batch(world.runtime, [ended(one) for one in claimed], POLICY) == [True] * 3
    assert world.store.calls["transact"] == 1
    assert world.runtime.clock.monotonic() == began, "a refusal is an answer"


@pytest.mark.parametrize("call", ["transact", "scan"])
def test_the_wait_doubles_with_each_call_that_gets_no_answer(world: World, call: str) -> None:
    keys = world.family(2)
    claimed = protocol.claim_batch(world.runtime, keys, "w", POLICY)
    done, broken = getattr(world.store, call), [1, 2, 3]

    def breaks(*arguments: object, **more: object) -> object:
        if broken:
            broken.pop()
            raise StoreError("no answer")
        return done(*arguments, **more)

    setattr(world.store, call, breaks)
    began = world.runtime.clock.monotonic()
    ends = [replace(ended(one), first=None) for one in claimed]
    assert protocol.end_batch(world.runtime, ends, POLICY) == [True] * 2
    assert world.runtime.clock.monotonic() - began == pytest.approx(0.05 + 0.1 + 0.2)


def test_what_was_read_before_is_joined_by_what_was_not(world: World) -> None:
    claimed = protocol.claim_batch(world.runtime, world.family(2), "w", POLICY)
    ends = [ended(claimed[0]), replace(ended(claimed[1]), first=None)]
    assert protocol.end_batch(world.runtime, ends, POLICY) == [True, True]


def test_a_part_that_gets_no_answer_is_waited_for_although_another_gets_one(world: World) -> None:
    assert parts(world, [60, 60], failures=["", "no answer"]) == [60, 60, 60]
    assert world.runtime.clock.monotonic() == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([40, 60], [100]),
        ([41, 60], [41, 60]),
        ([60, 40, 61, 39, 1], [100, 100, 1]),
        ([1, 98, 1, 99, 1, 1], [100, 100, 1]),
    ],
)
def test_a_transaction_has_as_many_operations_as_it_may(
    world: World, sizes: list[int], expected: list[int]
) -> None:
    assert parts(world, sizes) == expected


@pytest.mark.parametrize(("more", "expected"), [(0, [3, 3, 1]), (-1, [2, 2, 2, 1])])
def test_a_transaction_has_as_many_bytes_as_it_may(
    world: World, monkeypatch: pytest.MonkeyPatch, more: int, expected: list[int]
) -> None:
    one = operation_size("0", Upsert(row="x|000", entity={"data": "x"}))
    monkeypatch.setattr(limits, "_GROUP", 3 * one + more)
    assert parts(world, [1] * 7) == expected


def parts(world: World, sizes: Sequence[int], failures: Sequence[str] = ()) -> list[int]:
    """Change tasks by so many operations each; return the sizes of the transactions."""
    task = world.task(world.family(1)[0])
    rows = (Upsert(row=f"x|{number:03d}", entity={"data": "x"}) for number in range(1000))
    changes = [Change(task=task, operations=tuple(islice(rows, size))) for size in sizes]
    keys = [f"0{number:063d}" for number in range(len(sizes))]
    found: list[int] = []
    transact, left = world.store.transact, [*failures]

    def noted(table: str, partition: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        found.append(len(operations))
        if left and left.pop():
            raise StoreError("no answer")
        return transact(table, partition, operations)

    world.store.transact = noted  # type: ignore[method-assign]
    for key in keys:
        row = task_table.replace_task(replace(task, key=key), etag="").entity
        MemoryStore.transact(
            world.store, "tasks", "0", [Insert(row=task_table.task_row(key), entity=row)]
        )
    decisions = {key: partial(_as, change) for key, change in zip(keys, changes, strict=True)}
    batch.change_tasks(world.runtime, decisions, first=dict.fromkeys(keys, task))
    return found


def _as(change: Change, _task: Task) -> Change:
    return change
