"""Tables with millions of tasks that are not there: rows of one large request, made when read.

All its tasks are collections that are ready when they are not in `gone` or `running`. What is
written is kept in a store in memory, over the rows that are made.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice

from tasks.bag import task_table
from tasks.bag.model import Phase, State, Task
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import Interest
from tasks.bag.task_table import RowKind, interest_row, kind_of, ready_row
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.schema import SCHEMA
from tasks.storage.store import Insert, Operation, Row

BIG = "big"
READY, WANTED = ready_row(BIG, ""), interest_row(BIG, "")  # the prefixes of its rows
CLASS = "collection MOD13A2 6"
PAGE = 1000  # rows of one answer
_SPAN = 1 << 44


@dataclass(frozen=True, slots=True)
class Claim:
    """A task that runs."""

    worker: str
    claim: str
    started: float  # monotonic
    attempt: int = 1


@dataclass
class GeneratedStore:
    """The store as the manager reaches it: each call takes `latency` seconds of the clock, and one
    more for each further page."""

    tasks: int
    clock: ManualClock
    latency: float
    inner: MemoryStore = field(default_factory=MemoryStore)
    gone: bytearray = field(init=False)
    running: dict[str, Claim] = field(default_factory=dict)
    calls: int = 0
    written: list[str] = field(default_factory=list)  # rows, when somebody wants to know
    watching: bool = False

    def __post_init__(self) -> None:
        self.each = self.tasks // len(SHARDS)  # in a shard
        self.gone = bytearray(self.tasks)

    # --- keys: in order of their number within a shard, and as varied as hashes in the rest ---

    def key(self, shard: str, i: int) -> str:
        """The key of a shard's i-th task."""
        rest = sha256(f"{shard}{i}".encode()).hexdigest()[:52]
        return f"{shard}{i * _SPAN // self.each:011x}{rest}"

    def number(self, key: str) -> int | None:
        """Return which of the large request's tasks a key names."""
        shard = key[:1]
        if shard not in SHARDS:
            return None
        i = -(-int(key[1:12], 16) * self.each // _SPAN)
        if i >= self.each or self.key(shard, i) != key:
            return None
        return SHARDS.index(shard) * self.each + i

    def _from(self, shard: str, text: str) -> int:
        """The first of a shard's tasks whose key is not before a text."""
        head = (text[1:12] + "0" * 11)[:11]
        if not text or text[0] < shard:
            return 0
        if text[0] > shard or any(c not in "0123456789abcdef" for c in head):
            return self.each
        i = -(-int(head, 16) * self.each // _SPAN)
        while i < self.each and self.key(shard, i) < text:
            i += 1
        return i

    # --- the store ---

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self._travel()
        found = self.inner.get(table, partition, row)
        if found is None and table == task_table.TABLE:
            found = self._made(partition, row)
        return found

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        found = self.inner.scan(table, partition, start, end)
        if table == task_table.TABLE:
            found = heapq.merge(
                found, *self._ranges(partition, start, end), key=lambda row: row.row
            )
        return self._paged(islice(found, limit))

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        self._travel()
        if self.watching:
            self.written += [op.row for op in operations]
        if table == task_table.TABLE:
            for operation in operations:
                name = operation.row
                if name.startswith(WANTED) and not self.inner.get(table, partition, name):
                    made = self._made(partition, name)
                    if made is not None:
                        self.inner.transact(
                            table, partition, [Insert(row=name, entity=made.entity)]
                        )
        return self.inner.transact(table, partition, operations)

    def _travel(self) -> None:
        self.calls += 1
        self.clock.sleep(self.latency)

    def _paged(self, found: Iterator[Row]) -> Iterator[Row]:
        self._travel()
        for number, row in enumerate(found, 1):
            if number % PAGE == 0:
                self._travel()
            yield row

    def _ranges(self, shard: str, start: str, end: str) -> Iterator[Iterator[Row]]:
        for prefix in (READY, WANTED):
            if start < prefix[:-1] + "}" and end > prefix:
                first = self._from(shard, start[len(prefix) :]) if start > prefix else 0
                yield self._many(shard, prefix, first, end)
        if start <= task_table.running_row("") < end:
            mine = sorted(key for key in self.running if key[0] == shard)
            yield (
                self._row(shard, name, entity)
                for key in mine
                for name, entity in task_table.markers(self._task(key)).items()
            )

    def _many(self, shard: str, prefix: str, first: int, end: str) -> Iterator[Row]:
        base = SHARDS.index(shard) * self.each
        ready = prefix == READY
        for i in range(first, self.each):
            if ready and self.gone[base + i]:
                continue
            name = prefix + self.key(shard, i)
            if name >= end:
                return
            if ready or not self.inner.get(task_table.TABLE, shard, name):
                made = self._made(shard, name)
                if made is not None:
                    yield made

    def _made(self, shard: str, name: str) -> Row | None:
        kind = kind_of(name)
        key = name.rpartition("|")[2]
        if kind is RowKind.TASK and key in self.running:
            return self._row(shard, name, task_table.TASK.dump(self._task(key)))
        number = self.number(key)
        if number is None or kind not in (RowKind.READY, RowKind.INTEREST, RowKind.TASK):
            return None
        if kind is RowKind.READY:
            return self._row(shard, name, {"schema": SCHEMA, "key": key})
        if kind is RowKind.INTEREST:
            interest = Interest(
                request=BIG, key=key, phase=Phase.COLLECTION, name=f"granule {number}"
            )
            return self._row(shard, name, task_table.INTEREST.dump(interest))
        return self._row(shard, name, task_table.TASK.dump(self._task(key)))

    def _task(self, key: str) -> Task:
        claim = self.running.get(key)
        mine = self.number(key) is not None
        return Task(
            key=key,
            phase=Phase.COLLECTION,
            task_class=CLASS,
            inputs=0,
            state=State.RUNNING if claim else State.READY,
            attempt=1 if claim else 0,
            claim=claim.claim if claim else "",
            worker=claim.worker if claim else "",
            claimed_at=self.clock.now(),
            interests=(BIG if mine else "small",),
            sponsor=BIG if mine else "small",
        )

    def _row(
        self, shard: str, name: str, entity: dict[str, str | int | float | bool | bytes]
    ) -> Row:
        return Row(partition=shard, row=name, entity=entity, etag='W/"made"')
