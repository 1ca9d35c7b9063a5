"""Calls to embedded storage, which one machine's processes share, by the service's own stores.

Tables are a file of SQLite, blobs are files: there is no other way to them. Each client has
connections of its own, as each process of the service has.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Literal

from bench.platform.azure_calls import (
    PARTITION,
    TableOperation,
    blob_name,
    filled_key,
    row_keys,
    row_of,
)
from bench.platform.clients import OneCall, new_names
from tasks.service.connect import connect_storage
from tasks.storage.blobs import ARTIFACTS, Blobs
from tasks.storage.store import Delete, Entity, Insert, Operation, Store, Upsert

TABLE = "study"
_BATCH = 100


@dataclass(frozen=True, kw_only=True)
class StoredBlobCalls:
    """All clients read one blob, or each stores new ones."""

    storage: str
    operation: Literal["download", "upload"]
    size: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        blobs = connect_storage(self.storage).blobs
        if self.operation == "download":
            yield repeat(partial(_download, blobs, blob_name(self.size)))
        else:
            data = os.urandom(self.size)
            yield (partial(_upload, blobs, name, data) for name in new_names(client))


def _download(blobs: Blobs, name: str) -> int:
    return sum(map(len, blobs.stream(ARTIFACTS, name)))


def _upload(blobs: Blobs, name: str, data: bytes) -> int:
    return blobs.put_bytes(ARTIFACTS, name, data).size


@dataclass(frozen=True, kw_only=True)
class RowCalls:
    """Each client works on rows of its own, all in one partition; or all write one that they share.

    `rows` tells how many rows each client has inserted before.
    """

    storage: str
    partition: str
    operation: TableOperation
    size: int
    rows: tuple[int, ...] = ()

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        store = connect_storage(self.storage).store
        keys = row_keys(self.operation, client, self.rows)
        yield (partial(self._call, store, key) for key in keys)

    def _call(self, store: Store, key: str) -> int:
        if self.operation == "query":
            if store.get(TABLE, self.partition, key) is None:
                raise LookupError(f"{key} is not there")
            return self.size
        if self.operation == "delete":
            change: Operation = Delete(row=key)
        elif self.operation == "insert":
            change = Insert(row=key, entity=_entity(key, self.size))
        else:
            change = Upsert(row=key, entity=_entity(key, self.size))
        store.transact(TABLE, self.partition, [change])
        return self.size


def _entity(key: str, size: int, number: int = 0) -> Entity:
    """Return a row as the study has them, without its key."""
    row = row_of(key, size, number)
    return {name: value for name, value in row.items() if name not in ("PartitionKey", "RowKey")}


def fill_rows(storage: str, rows: int, size: int) -> None:
    """Insert rows numbered from 0 into one partition."""
    store = connect_storage(storage).store
    for first in range(0, rows, _BATCH):
        numbers = range(first, min(first + _BATCH, rows))
        some = [
            Upsert(row=filled_key(number), entity=_entity("", size, number)) for number in numbers
        ]
        store.transact(TABLE, PARTITION, some)


@dataclass(frozen=True, kw_only=True)
class ScanCalls:
    """Each client looks for one row of a partition by a property: it reads all rows until then."""

    storage: str
    rows: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        chance = random.Random(client)
        store = connect_storage(self.storage).store

        def look() -> int:
            wanted = chance.randrange(self.rows)
            rows = store.scan(TABLE, PARTITION, "filled", "fillee")
            if not any(row.entity["number"] == wanted for row in rows):
                raise LookupError("the row was not found")
            return 0

        yield repeat(look)
