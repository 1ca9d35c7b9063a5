"""A store that reads no second time the rows which this process alone writes."""

from collections.abc import Iterator, Sequence

from tasks.storage.store import Insert, Operation, Replace, Row, Store

MOST = 1000  # rows remembered


class OwnRows:
    """A store, as `Store`, for rows of which this process is the only writer while all goes well.

    What was written under an ETag is answered from memory. Every change must be such a write: where
    somebody else has changed a row it is refused, and after a refused or broken call all rows are
    forgotten. Rows that are written without an ETag, and ranges, are not remembered.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str, str], Row] = {}

    def get(self, table: str, partition: str, row: str) -> Row | None:
        """Read a row as `Store.get`, or return it as it was written."""
        return self._known.get((table, partition, row)) or self._store.get(table, partition, row)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        """Write as `Store.transact`, and remember what is written under an ETag."""
        known, self._known = self._known, {}  # whatever this call comes to
        etags = self._store.transact(table, partition, operations)
        self._known = known if len(known) < MOST else {}
        for one in operations:
            self._known.pop((table, partition, one.row), None)
        for one, etag in zip(operations, etags, strict=False):
            if isinstance(one, Insert | Replace):
                row = Row(partition=partition, row=one.row, entity=one.entity, etag=etag)
                self._known[table, partition, one.row] = row
        return etags

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        """Read rows as `Store.scan`."""
        return self._store.scan(table, partition, start, end, limit)
