"""A store that reads no second time the rows which this process alone writes."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from tasks.storage.store import Insert, Operation, Replace, Row, Store

Together = Callable[[Callable[[str], Row | None], Iterable[str]], Iterable[Row | None]]
"""Has several rows read and returns them in order: one after another as `map`, or side by side."""

MOST = 50_000  # rows remembered: some 50 MB, with counts of 10,000 workers for some classes


class OwnRows:
    """A store, as `Store`, for rows of which this process is the only writer while all goes well.

    What was written under an ETag is answered from memory. Every change must be such a write: where
    somebody else has changed a row it is refused, and the rows of a refused or broken call are
    forgotten. Rows that are written without an ETag, and ranges, are not remembered. Bounded: what
    was written longest ago is dropped first.
    """

    def __init__(self, store: Store, together: Together = map) -> None:
        self._store = store
        self._together = together
        self._known: dict[tuple[str, str, str], Row | None] = {}

    def get(self, table: str, partition: str, row: str) -> Row | None:
        """Read a row as `Store.get`, or return it as it was written."""
        name = table, partition, row
        return self._known[name] if name in self._known else self._store.get(*name)

    def read(self, table: str, partition: str, rows: Iterable[str]) -> None:
        """Read those rows that are not remembered, and remember them, those that are absent, too.

        Raises StoreError.
        """
        new = [row for row in rows if (table, partition, row) not in self._known]
        found = self._together(lambda row: self._store.get(table, partition, row), new)
        for name, one in zip(new, found, strict=True):
            self._known[table, partition, name] = one

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        """Write as `Store.transact`, and remember what is written under an ETag."""
        for one in operations:  # whatever this call comes to
            self._known.pop((table, partition, one.row), None)
        etags = self._store.transact(table, partition, operations)
        for one, etag in zip(operations, etags, strict=False):
            if isinstance(one, Insert | Replace):
                row = Row(partition=partition, row=one.row, entity=one.entity, etag=etag)
                self._known[table, partition, one.row] = row
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        return etags

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        """Read rows as `Store.scan`."""
        return self._store.scan(table, partition, start, end, limit)
