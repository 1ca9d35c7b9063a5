"""The store on Azure Tables (or Azurite), by the Azure SDK.

Reads are repeated by the SDK. Writes are not: a write that was resent after it took effect comes
back as a conflict, so the caller reads the row and decides (`tasks.updates`).
"""

from collections.abc import Iterator, Sequence

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.data.tables import (
    EdmType,
    EntityProperty,
    TableClient,
    TableEntity,
    TableServiceClient,
    TransactionOperation,
    UpdateMode,
)

from tasks.errors import ConflictError, StoreError
from tasks.limits import check_key, check_transaction
from tasks.store import Delete, Entity, Insert, Merge, Operation, Replace, Row, Upsert, Value

PAGE = 1000
_CONFLICTS = (404, 409, 412)
_SYSTEM = ("PartitionKey", "RowKey", "Timestamp")
_Step = tuple[TransactionOperation, dict[str, object], dict[str, object]]


class AzureTables:
    """Tables of one storage account. `reader` may retry, `writer` must have its retries off."""

    def __init__(self, reader: TableServiceClient, writer: TableServiceClient) -> None:
        self._reader = reader
        self._writer = writer
        self._clients: dict[tuple[str, bool], TableClient] = {}

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
        steps = [_step(partition, operation) for operation in operations]
        try:
            written = self._client(table, write=True).submit_transaction(steps)
        except HttpResponseError as error:
            text = f"writing {table} {operations[0].row!r}: {_brief(error)}"
            if error.status_code in _CONFLICTS:
                raise ConflictError(text) from error
            raise StoreError(text) from error
        except AzureError as error:
            text = f"writing {table} {operations[0].row!r}: {_brief(error)}"
            raise StoreError(text) from error
        return tuple(str(one.get("etag", "")) for one in written)

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
            for entity in pages:
                if limit is not None and found >= limit:
                    return
                found += 1
                yield _row(entity)
        except AzureError as error:
            raise StoreError(f"reading {table} from {start!r}: {_brief(error)}") from error

    def _client(self, table: str, write: bool = False) -> TableClient:
        client = self._clients.get((table, write))
        if client is None:
            service = self._writer if write else self._reader
            client = self._clients[(table, write)] = service.get_table_client(table)
        return client


def _step(partition: str, operation: Operation) -> _Step:
    entity: dict[str, object] = {"PartitionKey": partition, "RowKey": operation.row}
    if not isinstance(operation, Delete):
        entity |= {name: _encode(value) for name, value in operation.entity.items()}
    match operation:
        case Insert():
            return TransactionOperation.CREATE, entity, {}
        case Upsert():
            return TransactionOperation.UPSERT, entity, {"mode": UpdateMode.REPLACE}
        case Merge():
            return TransactionOperation.UPDATE, entity, {"mode": UpdateMode.MERGE}
        case Replace():
            return (
                TransactionOperation.UPDATE,
                entity,
                {"mode": UpdateMode.REPLACE, **_guard(operation.etag)},
            )
        case Delete(etag=None):
            return TransactionOperation.DELETE, entity, {}
        case Delete(etag=str(etag)):
            return TransactionOperation.DELETE, entity, _guard(etag)
    raise TypeError(f"not an operation: {operation!r}")


def _guard(etag: str) -> dict[str, object]:
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _encode(value: Value) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return EntityProperty(value, EdmType.INT64)
    return value


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
    raise TypeError(f"a property of type {type(value).__name__} is none of ours")


def _brief(error: AzureError) -> str:
    code = getattr(error, "error_code", None) or getattr(error, "status_code", None)
    first = str(error.message).splitlines()[0] if error.message else type(error).__name__
    return f"{first} ({code})" if code else first
