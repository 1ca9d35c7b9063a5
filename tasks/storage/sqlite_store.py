"""The store of one machine: tables in an SQLite file."""

import json
import secrets
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence

from tasks.errors import ConflictError
from tasks.storage.limits import check_key, check_transaction
from tasks.storage.sqlite_file import SqliteFile
from tasks.storage.store import (
    Delete,
    Entity,
    Insert,
    MergeEntity,
    Operation,
    Replace,
    Row,
    Upsert,
    Value,
)

MOST_OPERATIONS = 1000  # of one transaction: a large plan waits for the disk a tenth as often
PAGE = 1000  # rows of one read, which is over before the first is handed out
_ROW = 'WHERE "table" = ? AND partition = ? AND row = ?'
_GET = f"SELECT entity, etag FROM rows {_ROW}"
_SCAN = (
    'SELECT row, entity, etag FROM rows WHERE "table" = ? AND partition = ? AND row {} ? '
    "AND row < ? ORDER BY row LIMIT ?"
)
_SCAN_FIRST, _SCAN_NEXT = _SCAN.format(">="), _SCAN.format(">")
_ETAGS = (
    'SELECT etag FROM rows WHERE "table" = ? AND partition = ? AND row >= ? '
    "AND row < ? ORDER BY row LIMIT ?"
)
_INSERT = "INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?)"
_UPSERT = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)"
_REPLACE = f"UPDATE rows SET entity = ?, etag = ? {_ROW}"
_DELETE = f"DELETE FROM rows {_ROW}"
_IF_MATCH = " AND etag = ?"


def _bytes(value: bytes) -> list[str]:
    return [b64encode(value).decode()]


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_bytes, check_circular=False)


class SqliteStore:
    """Tables in a file; a table exists as soon as it is named."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def get(self, table: str, partition: str, row: str) -> Row | None:
        check_key(row)
        with self._file.read(f"reading {table} row {row!r}") as connection:
            found = connection.execute(_GET, (table, partition, row)).fetchone()
        return None if found is None else self._row(partition, row, *found)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        check_transaction(partition, operations, MOST_OPERATIONS)
        # What no row had before; that the rows of a transaction share it does no harm.
        etag = secrets.randbits(63)
        # In order of key, neighbours go into one page while it is at hand.
        new = sorted(
            (table, partition, one.row, _encode(one.entity), etag)
            for one in operations
            if isinstance(one, Insert)
        )
        others = [
            (one, "" if isinstance(one, Delete) else _encode(one.entity))
            for one in operations
            if not isinstance(one, Insert)
        ]
        with self._file.write(f"writing {table} {operations[0].row!r}") as connection:
            _insert(connection, new)
            for operation, text in others:
                key = (table, partition, operation.row)
                self._apply(connection, key, operation, text, etag)
        written = str(etag)
        return tuple("" if isinstance(one, Delete) else written for one in operations)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        query, left = _SCAN_FIRST, limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            with self._file.read(f"reading {table} from {start!r}") as connection:
                values = (table, partition, start, end, size)
                page = connection.execute(query, values).fetchall()
            for name, text, etag in page:
                yield self._row(partition, name, text, etag)
            if len(page) < size:
                return
            query, start = _SCAN_NEXT, page[-1][0]
            left = None if left is None else left - size

    def etags(
        self, table: str, partition: str, start: str, end: str, limit: int
    ) -> tuple[str, ...]:
        with self._file.read(f"reading {table} from {start!r}") as connection:
            found = connection.execute(_ETAGS, (table, partition, start, end, limit)).fetchall()
        return tuple(str(etag) for (etag,) in found)

    def _apply(
        self,
        connection: sqlite3.Connection,
        key: tuple[str, str, str],
        operation: Upsert | Replace | MergeEntity | Delete,
        text: str,
        etag: int,
    ) -> None:
        match operation:
            case Upsert():
                done = connection.execute(_UPSERT, (*key, text, etag))
            case Replace():
                values = (text, etag, *key, _number(operation.etag))
                done = connection.execute(_REPLACE + _IF_MATCH, values)
            case MergeEntity():
                found = connection.execute(_GET, key).fetchone()
                if found is None:
                    raise ConflictError(f"row {operation.row!r} is absent")
                entity = {**self._decode(found[0]), **operation.entity}
                done = connection.execute(_REPLACE, (_encode(entity), etag, *key))
            case Delete(etag=None):
                done = connection.execute(_DELETE, key)
            case Delete():
                done = connection.execute(_DELETE + _IF_MATCH, (*key, _number(operation.etag)))
        if done.rowcount != 1:
            raise ConflictError(f"writing {key[0]}: row {operation.row!r} is absent or was changed")

    def _row(self, partition: str, row: str, text: str, etag: int) -> Row:
        return Row(partition=partition, row=row, entity=self._decode(text), etag=str(etag))

    def _decode(self, text: str) -> Entity:
        try:
            entity: dict[str, Value | list[str]] = json.loads(text)
            return {
                name: b64decode(value[0]) if isinstance(value, list) else value
                for name, value in entity.items()
            }
        except (ValueError, AttributeError) as error:
            raise self._file.damaged(error) from error


def _insert(connection: sqlite3.Connection, rows: Sequence[tuple[str, str, str, str, int]]) -> None:
    if not rows or connection.executemany(_INSERT, rows).rowcount == len(rows):
        return
    for table, partition, row, _, etag in rows:
        found = connection.execute(_GET, (table, partition, row)).fetchone()
        if found[1] != etag:
            raise ConflictError(f"writing {table}: row {row!r} exists")


def _encode(entity: Entity) -> str:
    """Write an entity as JSON; bytes are a list of their base64 text."""
    return _ENCODER.encode(entity)


def _number(etag: str | None) -> int:
    """Return an ETag as it is stored; no row has that of another store."""
    return int(etag) if etag and etag.isdecimal() else -1
