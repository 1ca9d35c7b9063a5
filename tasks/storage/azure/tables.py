"""The store on Azure Tables (or Azurite), by the Azure SDK.

Reads are repeated by the SDK. Writes are not: a write that was resent after it took effect comes
back as a conflict, so the caller reads the row and decides (`tasks.storage.updates`).
"""

from collections.abc import Iterator, Sequence
from email.utils import formatdate
from uuid import uuid4

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.data.tables import EntityProperty, TableClient, TableEntity, TableServiceClient

from tasks.errors import ConflictError, StoreError
from tasks.storage import table_batch
from tasks.storage.limits import check_key, check_transaction
from tasks.storage.store import Entity, Operation, Row, Value

PAGE = 1000
_CONFLICTS = (404, 409, 412)
_SYSTEM = ("PartitionKey", "RowKey", "Timestamp")


class AzureTables:
    """Tables of one storage account. `reader` may retry, `writer` must have its retries off."""

    def __init__(self, reader: TableServiceClient, writer: TableServiceClient) -> None:
        self._reader = reader
        self._writer = writer
        self._clients: dict[str, TableClient] = {}

    def create(self, tables: Sequence[str]) -> None:
        """Create the tables that do not exist."""
        for table in tables:
            self._reader.create_table_if_not_exists(table)

    def get(self, table: str, partition: str, row: str) -> Row | None:
        check_key(row)
        try:
            return _row(self._client(table).get_entity(partition, row))
        except ResourceNotFoundError:
            return None
        except AzureError as error:
            raise StoreError(f"reading {table} row {row!r}: {_brief(error)}") from error

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        check_transaction(partition, operations)
        request = table_batch.compose(
            self._writer.url,
            table,
            partition,
            operations,
            version=self._writer.api_version,
            date=formatdate(usegmt=True),
            unique=str(uuid4()),
        )
        try:
            # The generated client below the SDK's: it signs and sends what is not composed by it.
            return table_batch.etags(self._writer._client.send_request(request, stream=True))
        except HttpResponseError as error:
            text = f"writing {table} {operations[0].row!r}: {_brief(error)}"
            if error.status_code in _CONFLICTS:
                raise ConflictError(text) from error
            raise StoreError(text) from error
        except AzureError as error:
            text = f"writing {table} {operations[0].row!r}: {_brief(error)}"
            raise StoreError(text) from error

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        pages = self._client(table).query_entities(
            "PartitionKey eq @partition and RowKey ge @start and RowKey lt @end",
            parameters={"partition": partition, "start": start, "end": end},
            results_per_page=PAGE if limit is None else min(PAGE, limit),
        )
        found = 0
        try:
            for entity in pages if limit is None or limit > 0 else ():
                found += 1
                yield _row(entity)
                if found == limit:
                    return  # and do not ask for one more
        except AzureError as error:
            raise StoreError(f"reading {table} from {start!r}: {_brief(error)}") from error

    def _client(self, table: str) -> TableClient:
        client = self._clients.get(table)
        if client is None:
            client = self._clients[table] = self._reader.get_table_client(table)
        return client


def _row(entity: TableEntity) -> Row:
    values: Entity = {name: _decode(value) for name, value in entity.items() if name not in _SYSTEM}
    return Row(
        partition=str(entity["PartitionKey"]),
        row=str(entity["RowKey"]),
        entity=values,
        etag=str(entity.metadata["etag"]),
    )


def _decode(value: object) -> Value:
    if isinstance(value, EntityProperty):
        value = value.value
    if isinstance(value, str | int | float | bool | bytes):
        return value
    raise TypeError(f"a property of type {type(value).__name__} is not one that this build stores")


def _brief(error: AzureError) -> str:
    code = getattr(error, "error_code", None) or getattr(error, "status_code", None)
    first = str(error.message).splitlines()[0] if error.message else type(error).__name__
    return f"{first} ({code})" if code else first
