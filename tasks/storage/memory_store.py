"""The store in memory: for unit tests and the simulation, under the contract of the real one."""

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tasks.errors import ConflictError
from tasks.storage.limits import check_key, check_transaction
from tasks.storage.store import Delete, Entity, Insert, MergeEntity, Operation, Replace, Row, Upsert

PAGE = 1000  # rows, Azure's own page


@dataclass
class _Partition:
    rows: dict[str, Row] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def put(self, row: Row) -> None:
        if row.row not in self.rows:
            insort(self.order, row.row)
        self.rows[row.row] = row

    def remove(self, name: str) -> None:
        del self.rows[name]
        del self.order[bisect_left(self.order, name)]


class MemoryStore:
    """Tables in this process; a table exists as soon as it is named."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, str], _Partition] = {}
        self._lock = threading.Lock()
        self._version = 0

    def get(self, table: str, partition: str, row: str) -> Row | None:
        check_key(row)
        with self._lock:
            return self._partition(table, partition).rows.get(row)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        check_transaction(partition, operations)
        with self._lock:
            part = self._partition(table, partition)
            for operation in operations:
                _check(part, operation)
            return tuple(self._apply(part, partition, operation) for operation in operations)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        left = limit
        while left is None or left > 0:
            with self._lock:
                part = self._partition(table, partition)
                first, last = bisect_left(part.order, start), bisect_left(part.order, end)
                size = PAGE if left is None else min(PAGE, left)
                page = [part.rows[name] for name in part.order[first : min(last, first + size)]]
            yield from page
            if len(page) < PAGE:
                return
            start = page[-1].row + "\0"
            left = None if left is None else left - len(page)

    def etags(
        self, table: str, partition: str, start: str, end: str, limit: int
    ) -> tuple[str, ...]:
        with self._lock:
            part = self._partition(table, partition)
            first, last = bisect_left(part.order, start), bisect_left(part.order, end)
            found = part.order[first : min(last, first + limit)]
            return tuple(part.rows[name].etag for name in found)

    def tables(self) -> dict[str, list[Row]]:
        """Everything stored, for assertions."""
        found: dict[str, list[Row]] = {}
        for (table, _), part in sorted(self._partitions.items()):
            found.setdefault(table, []).extend(part.rows[name] for name in part.order)
        return found

    def _partition(self, table: str, partition: str) -> _Partition:
        found = self._partitions.get((table, partition))
        if found is None:
            found = self._partitions[table, partition] = _Partition()
        return found

    def _apply(self, part: _Partition, partition: str, operation: Operation) -> str:
        if isinstance(operation, Delete):
            part.remove(operation.row)
            return ""
        entity: Entity = dict(operation.entity)
        if isinstance(operation, MergeEntity):
            entity = {**part.rows[operation.row].entity, **entity}
        self._version += 1
        etag = f'W/"{self._version}"'
        part.put(Row(partition=partition, row=operation.row, entity=entity, etag=etag))
        return etag


def _check(part: _Partition, operation: Operation) -> None:
    found = part.rows.get(operation.row)
    match operation:
        case Insert() if found:
            raise ConflictError(f"row {operation.row!r} exists")
        case Replace() | MergeEntity() | Delete() if not found:
            raise ConflictError(f"row {operation.row!r} is absent")
        case Replace() | Delete() if found and operation.etag not in (None, found.etag):
            raise ConflictError(f"row {operation.row!r} was changed by someone else")
        case Insert() | Replace() | Upsert() | MergeEntity() | Delete():
            return
