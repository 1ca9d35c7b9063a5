"""What Swathmill needs of a table store: Azure Tables' semantics, no more and no less.

Three implementations: `sqlite_store.SqliteStore` on one machine, `azure.tables.AzureTables`, and
`memory_store.MemoryStore` for the simulation and unit tests. One contract suite holds all
(tests/tasks/storage/test_store_contract.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Value = str | int | float | bool | bytes
Entity = dict[str, Value]

BATCH_OPERATIONS = 100  # Azure Tables: entities in one entity-group transaction
BATCH_BYTES = 4 * 2**20
ENTITY_BYTES = 2**20
PROPERTY_BYTES = 64 * 2**10


@dataclass(frozen=True, kw_only=True)
class Row:
    """An entity as read: its key, its properties and the ETag that guards its next change."""

    partition: str
    row: str
    entity: Entity
    etag: str


@dataclass(frozen=True, kw_only=True)
class Insert:
    """Add a row; the transaction is refused if it exists."""

    row: str
    entity: Entity


@dataclass(frozen=True, kw_only=True)
class Replace:
    """Replace a row whole; the transaction is refused if the row is absent or `etag` is stale."""

    row: str
    entity: Entity
    etag: str


@dataclass(frozen=True, kw_only=True)
class Upsert:
    """Write a row, whether it exists or not.

    Use it only for rows whose content their key determines, or for a row that the same transaction
    replaces under its ETag.
    """

    row: str
    entity: Entity


@dataclass(frozen=True, kw_only=True)
class MergeEntity:
    """Change some properties of a row and leave the others; refused if the row is absent."""

    row: str
    entity: Entity


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Remove a row; the transaction is refused if it is absent, or if `etag` is stale."""

    row: str
    etag: str | None = None


Operation = Insert | Replace | Upsert | MergeEntity | Delete


class Store(Protocol):
    """Tables of rows in partitions. Every call may raise `StoreError`.

    `StoreError` after a write says nothing about whether it took effect; `ConflictError` says
    that this call did not, though an earlier, resent one may have.
    """

    def get(self, table: str, partition: str, row: str) -> Row | None:
        """Read one row, or None when it is absent."""
        ...

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        """Apply all operations or none; at most 100, on distinct rows, of one partition.

        Returns:
            The ETag of each row written, in order, empty for a deleted one; or nothing at all.

        Raises:
            ConflictError: a precondition failed; nothing was written by this call.
            StoreError: the outcome is unknown.
            ValueError: the transaction breaks a limit of Azure Tables.
        """
        ...

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        """Rows with start <= RowKey < end, in RowKey order, paged as they are consumed."""
        ...


@runtime_checkable
class LocalStore(Store, Protocol):
    """A store on this machine, where a short read takes less than a change of threads."""

    def etags(
        self, table: str, partition: str, start: str, end: str, limit: int
    ) -> tuple[str, ...]:
        """Return the ETags of the rows with start <= RowKey < end, at most so many, in order."""
        ...
