"""Calls to Azure Storage: blobs, tables and queues, as the study made them.

The SDK is used without retries, so that each failure is seen.
"""

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle, repeat
from typing import Literal

from azure.data.tables import TableClient, UpdateMode
from azure.storage.blob import BlobClient, ContainerClient
from azure.storage.queue import QueueClient

from bench.platform.clients import NothingLeftError, OneCall, new_names
from tasks.service.azure_clients import SdkClients, sdk_clients

PARTITION = "study"
_BATCH = 100  # operations of a transaction


@contextmanager
def connected(storage: str) -> Iterator[SdkClients]:
    """Connect to an account; the connections are closed at the end."""
    clients = sdk_clients(storage, retries=0)
    with clients.tables, clients.blobs, clients.queues:
        yield clients


@dataclass(frozen=True, kw_only=True)
class BlobCalls:
    """All clients download one blob, or each uploads new blobs into one container."""

    storage: str
    container: str
    operation: Literal["download", "upload"]
    size: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        with connected(self.storage) as clients:
            container = clients.blobs.get_container_client(self.container)
            if self.operation == "download":
                yield repeat(partial(_download, container.get_blob_client(blob_name(self.size))))
            else:
                data = os.urandom(self.size)
                yield (partial(_upload, container, name, data) for name in new_names(client))


def blob_name(size: int) -> str:
    """Return the name of the blob that all clients download."""
    return f"blob-{size}"


def _download(blob: BlobClient) -> int:
    size = 0
    for part in blob.download_blob(max_concurrency=1).chunks():
        size += len(part)
    return size


def _upload(container: ContainerClient, name: str, data: bytes) -> int:
    container.upload_blob(name, data, max_concurrency=1)
    return len(data)


TableOperation = Literal["insert", "query", "update", "update shared", "delete"]
SHARED = "shared"


@dataclass(frozen=True, kw_only=True)
class TableCalls:
    """Each client works on rows of its own, all in one partition of one table.

    Or all update one row that they share. `rows` tells how many rows each client has inserted
    before.
    """

    storage: str
    table: str
    operation: TableOperation
    size: int
    rows: tuple[int, ...] = ()

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        with connected(self.storage) as clients:
            table = clients.tables.get_table_client(self.table)
            keys = row_keys(self.operation, client, self.rows)
            yield (partial(self._call, table, key) for key in keys)

    def _call(self, table: TableClient, key: str) -> int:
        if self.operation == "query":
            table.get_entity(PARTITION, key)
        elif self.operation == "delete":
            table.delete_entity(PARTITION, key)
        elif self.operation == "insert":
            table.create_entity(row_of(key, self.size))
        else:
            table.update_entity(row_of(key, self.size), mode=UpdateMode.REPLACE)
        return self.size


def row_keys(operation: TableOperation, client: int, rows: tuple[int, ...]) -> Iterator[str]:
    """Yield the key of each call: of the shared row, of new rows, or of those inserted before."""
    if operation == "update shared":
        yield from repeat(SHARED)
    numbers: Iterable[int] = count()
    if operation != "insert":
        inserted = range(rows[client])
        numbers = inserted if operation == "delete" else cycle(inserted)
    for number in numbers:
        yield f"{client:04d}-{number:08d}"


def filled_key(number: int) -> str:
    """Return the key of a row that is there before clients come."""
    return f"filled-{number:09d}"


def row_of(key: str, size: int, number: int = 0) -> dict[str, str | int]:
    """Return a row as the study had them: two numbers, and two texts that fill `size` bytes.

    Azure stores a text as UTF-16, so it counts two bytes for each of its characters.
    """
    text = "x" * max(1, size // 4)
    return {
        "PartitionKey": PARTITION,
        "RowKey": key,
        "number": number,
        "other": len(text),
        "text": text,
        "more": text,
    }


def put_shared(table: TableClient, size: int) -> None:
    """Insert the row that all clients update."""
    table.upsert_entity(row_of(SHARED, size), mode=UpdateMode.REPLACE)


def fill(table: TableClient, rows: int, size: int) -> None:
    """Insert rows numbered from 0 into one partition, a hundred in a transaction."""
    for first in range(0, rows, _BATCH):
        table.submit_transaction(
            ("upsert", row_of(filled_key(number), size, number))
            for number in range(first, min(first + _BATCH, rows))
        )


@dataclass(frozen=True, kw_only=True)
class FilterCalls:
    """Each client looks for one row of a partition by a property, which no index helps."""

    storage: str
    table: str
    rows: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        chance = random.Random(client)
        with connected(self.storage) as clients:
            table = clients.tables.get_table_client(self.table)

            def look() -> int:
                wanted = (
                    f"PartitionKey eq '{PARTITION}' and number eq {chance.randrange(self.rows)}"
                )
                if not list(table.query_entities(wanted)):
                    raise LookupError("the row was not found")
                return 0

            yield repeat(look)


QueueOperation = Literal["add", "peek", "receive"]


@dataclass(frozen=True, kw_only=True)
class QueueCalls:
    """All clients add to, peek at or receive from one queue."""

    storage: str
    queue: str
    operation: QueueOperation
    size: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        del client
        with connected(self.storage) as clients:
            queue = clients.queues.get_queue_client(self.queue)
            yield repeat(partial(self._call, queue))

    def _call(self, queue: QueueClient) -> int:
        if self.operation == "add":
            queue.send_message("x" * self.size)
        elif self.operation == "peek":
            return sum(len(str(one.content)) for one in queue.peek_messages(max_messages=1))
        elif queue.receive_message() is None:
            raise NothingLeftError
        return self.size
