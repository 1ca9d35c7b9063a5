"""Composed transactions: what the SDK would send, and answers of all kinds."""

import json
import math
import re
from types import TracebackType
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.transport import HttpTransport
from azure.data.tables import (
    EdmType,
    EntityProperty,
    TableServiceClient,
    TransactionOperation,
    UpdateMode,
)

from tasks.bag.categories import Category
from tasks.errors import ConflictError, StoreError
from tasks.service.classify import classify
from tasks.storage import table_batch
from tasks.storage.azure.tables import AzureTables
from tasks.storage.store import Delete, Entity, Insert, MergeEntity, Operation, Replace, Upsert

STORAGE = (
    "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;"
    "TableEndpoint=http://127.0.0.1:1/a;"
)
ENTITY: Entity = {
    "text": 'é"\n',
    "number": 2**40,
    "yes": True,
    "half": 1.5,
    "far": math.inf,
    "none": math.nan,
    "bytes": b"ab\0",
}
OPERATIONS: list[Operation] = [
    Insert(row="t|é'x y", entity=ENTITY),
    Upsert(row="u|1", entity={"a": -math.inf}),
    MergeEntity(row="m|1", entity={"a": 1}),
    Replace(row="r|1", etag="W/\"datetime'2020'\"", entity={"a": ""}),
    Delete(row="d|1"),
    Delete(row="d|2", etag='W/"1"'),
]


class SentError(Exception):
    """The call got as far as the network."""


class Recorder(HttpTransport[Any, Any]):
    """Keeps what is sent, and sends it nowhere."""

    request: Any

    def send(self, request: Any, **_: Any) -> Any:
        self.request = request
        raise SentError

    def open(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Nothing to close."""


def of_the_sdk(operation: Operation) -> tuple[Any, ...]:
    entity: dict[str, object] = {"PartitionKey": "0", "RowKey": operation.row}
    if not isinstance(operation, Delete):
        entity |= {
            name: EntityProperty(value, EdmType.INT64) if type(value) is int else value
            for name, value in operation.entity.items()
        }
    guard = {
        "etag": getattr(operation, "etag", None),
        "match_condition": MatchConditions.IfNotModified,
    }
    match operation:
        case Insert():
            return TransactionOperation.CREATE, entity
        case Upsert():
            return TransactionOperation.UPSERT, entity, {"mode": UpdateMode.REPLACE}
        case MergeEntity():
            return TransactionOperation.UPDATE, entity, {"mode": UpdateMode.MERGE}
        case Replace():
            return TransactionOperation.UPDATE, entity, {"mode": UpdateMode.REPLACE, **guard}
        case Delete(etag=None):
            return TransactionOperation.DELETE, entity
    return TransactionOperation.DELETE, entity, guard


def parts(request: Any) -> tuple[dict[str, str], list[tuple[str, set[str], object]]]:
    """Headers, and each operation's line, headers and entity, without what is new each time."""
    changing = ("Date", "x-ms-date", "Authorization", "x-ms-client-request-id", "Content-Length")
    headers = {n: v for n, v in request.headers.items() if n not in changing}
    (batch,) = re.findall(r"boundary=(batch_\S+)", headers["Content-Type"])
    headers["Content-Type"] = headers["Content-Type"].replace(batch, "batch")
    data = request.content if isinstance(request.content, str) else request.content.decode()
    (change,) = re.findall(r"boundary=(changeset_\S+)", data)
    start, *found, end = data.split(f"--{change}")
    assert start == f"--{batch}\r\nContent-Type: multipart/mixed; boundary={change}\r\n\r\n"
    assert end.split() == ["--", f"--{batch}--"]
    operations = []
    for part in found:
        mime, head, body = part.split("\r\n\r\n", 2)
        line, *lines = head.split("\r\n")
        kept = {one for one in [*mime.split("\r\n"), *lines] if not one.startswith(changing[:2])}
        assert len(lines) - len(kept & set(lines)) == 2
        operations.append((line, kept, json.loads(body) if body.strip() else None))
    return headers, operations


def test_a_transaction_is_what_the_sdk_sends_but_for_the_echo_of_inserts() -> None:
    theirs, ours = Recorder(), Recorder()
    service = TableServiceClient.from_connection_string(STORAGE, transport=theirs)
    with pytest.raises(SentError):
        service.get_table_client("tasks").submit_transaction(map(of_the_sdk, OPERATIONS))
    writer = TableServiceClient.from_connection_string(STORAGE, transport=ours)
    with pytest.raises(SentError):
        AzureTables(writer, writer).transact("tasks", "0", OPERATIONS)
    headers, operations = parts(ours.request)
    assert ours.request.url == theirs.request.url
    operations[0][1].remove("Prefer: return-no-content")
    assert (headers, operations) == parts(theirs.request)
    assert len(operations) == len(OPERATIONS)


class Answer:
    """A response."""

    reason = ""

    def __init__(self, status: int, content: bytes, **headers: str) -> None:
        self.status_code = status
        self.headers = headers
        self._content = content

    def read(self) -> bytes:
        return self._content


def changeset(*answers: str) -> bytes:
    head = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
    both = [f"--c\r\n{head}{answer}\r\n" for answer in answers]
    start = "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
    return f"{start}{''.join(both)}--c--\r\n--b--".encode()


def test_etags_come_in_order_and_deleted_rows_have_none() -> None:
    answers = [
        "HTTP/1.1 204 No Content\r\nETag: W/\"datetime'1'\"\r\nx: y\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
        'HTTP/1.1 201 Created\r\netag:W/"2"\r\n\r\n{"etag": "ETag: 3"}',
    ]
    found = table_batch.etags(Answer(202, changeset(*answers)))  # type: ignore[arg-type]
    assert found == ("W/\"datetime'1'\"", "", 'W/"2"')


@pytest.mark.parametrize(
    ("status", "code", "conflict"),
    [
        ("412 Precondition Failed", "UpdateConditionNotSatisfied", True),
        ("409 Conflict", "EntityAlreadyExists", True),
        ("404 Not Found", "ResourceNotFound", True),
        ("400 Bad Request", "InvalidInput", False),
    ],
)
def test_one_refused_operation_refuses_all(status: str, code: str, conflict: bool) -> None:
    body = f'{{"odata.error":{{"code":"{code}","message":{{"value":"1:no"}}}}}}'
    answer = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n{body}"
    refused = Answer(202, changeset(answer))
    with pytest.raises(HttpResponseError) as caught:
        table_batch.etags(refused)  # type: ignore[arg-type]
    assert caught.value.status_code == int(status[:3])
    assert getattr(caught.value, "error_code", "") == code

    class Client:
        url, api_version = "http://127.0.0.1:1/a", "2019-02-02"

        @property
        def _client(self) -> "Client":
            return self

        def send_request(self, _request: object, **_: object) -> Answer:
            return refused

    store = AzureTables(Client(), Client())  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=code) as raised:
        store.transact("tasks", "0", OPERATIONS)
    assert isinstance(raised.value, ConflictError) is conflict


def test_a_call_that_is_refused_as_a_whole_keeps_its_code_and_delay() -> None:
    body = b'{"odata.error":{"code":"ServerBusy","message":{"value":"later"}}}'
    with pytest.raises(HttpResponseError) as caught:
        table_batch.etags(Answer(503, body, **{"Retry-After": "7"}))  # type: ignore[arg-type]
    found = classify(caught.value)
    assert (found.category, found.asked) == (Category.SERVER_BUSY, 7.0)
