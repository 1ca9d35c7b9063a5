"""A transaction of Azure Tables as the multipart body that the service takes, and its answer read.

The SDK's own composer starts a pool of threads for every transaction and has the body and the
answer pass through the standard library's e-mail classes: two thirds of a small transaction's
processor time. The body here is the SDK's, header for header, but that inserted entities are not
sent back ("Performing entity group transactions" and "Insert Entity", Microsoft Learn). It is sent
by the SDK, which signs it.
"""

import base64
import json
import math
import re
from collections.abc import Sequence
from urllib.parse import quote

from azure.core.exceptions import HttpResponseError
from azure.core.rest import HttpRequest, HttpResponse

from tasks.storage.store import Delete, Entity, Insert, MergeEntity, Operation, Upsert, Value

_CODE = re.compile(rb'"code"\s*:\s*"(\w+)"')
_ETAG = re.compile(rb"^etag:[ \t]*(.*?)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_PART = re.compile(rb"^HTTP/1\.1 (?=\d{3})", re.MULTILINE)
_DONE = 202


def compose(
    url: str,
    table: str,
    partition: str,
    operations: Sequence[Operation],
    *,
    version: str,
    date: str,
    unique: str,
) -> HttpRequest:
    """Compose the call for a transaction.

    `url` is the account's, `date` is written as HTTP does, `unique` is a text that no entity
    contains.
    """
    url = url.rstrip("/")
    common = f"x-ms-version: {version}\r\nDataServiceVersion: 3.0\r\n"
    dated = f"x-ms-date: {date}\r\nDate: {date}\r\n"
    lines = [
        f"--batch_{unique}\r\nContent-Type: multipart/mixed; boundary=changeset_{unique}\r\n\r\n"
    ]
    for number, operation in enumerate(operations):
        lines.append(
            f"--changeset_{unique}\r\nContent-Type: application/http\r\n"
            f"Content-Transfer-Encoding: binary\r\nContent-ID: {number}\r\n\r\n"
        )
        lines.append(_request(f"{url}/{table}", partition, operation, common, dated))
    lines.append(f"--changeset_{unique}--\r\n\r\n--batch_{unique}--\r\n")
    return HttpRequest(
        method="POST",
        url=f"{url}/$batch",
        headers={
            "x-ms-version": version,
            "DataServiceVersion": "3.0",
            "MaxDataServiceVersion": "3.0;NetFx",
            "Content-Type": f"multipart/mixed; boundary=batch_{unique}",
            "Accept": "application/json",
        },
        content="".join(lines).encode(),
    )


def etags(response: HttpResponse) -> tuple[str, ...]:
    """Return the new ETags of a transaction that took effect, in order; empty for deleted rows.

    Raises:
        HttpResponseError: it was refused, with the service's status and error code.
    """
    content = response.read()
    if response.status_code != _DONE:
        raise _refused(response, response.status_code, content)
    parts = _PART.split(content)[1:]
    for part in parts:
        status = int(part[:3])
        if not 200 <= status < 300:
            raise _refused(response, status, part)
    return tuple(_etag(part) for part in parts)


def _etag(part: bytes) -> str:
    head = part.partition(b"\r\n\r\n")[0]
    found = _ETAG.search(head)
    return found[1].decode() if found else ""


def _refused(response: HttpResponse, status: int, content: bytes) -> HttpResponseError:
    code = _CODE.search(content)
    named = code[1].decode() if code else response.headers.get("x-ms-error-code", "")
    error = HttpResponseError(message=f"the transaction was refused with status {status}")
    error.response = response
    error.status_code = status
    error.error_code = named  # type: ignore[attr-defined]
    return error


def _request(table: str, partition: str, operation: Operation, common: str, dated: str) -> str:
    address = f"{table}(PartitionKey='{_quoted(partition)}',RowKey='{_quoted(operation.row)}')"
    if isinstance(operation, Delete):
        return (
            f"DELETE {address} HTTP/1.1\r\n{common}"
            f"Accept: application/json;odata=minimalmetadata\r\n"
            f"If-Match: {operation.etag or '*'}\r\n{dated}\r\n\r\n"
        )
    body = _json(partition, operation.row, operation.entity)
    sized = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{common}"
    if isinstance(operation, Insert):
        return (
            f"POST {table} HTTP/1.1\r\n{sized}Accept: application/json;odata=minimalmetadata\r\n"
            f"Prefer: return-no-content\r\n{dated}\r\n{body}\r\n"
        )
    method = "PATCH" if isinstance(operation, MergeEntity) else "PUT"
    match = ""
    if not isinstance(operation, Upsert):
        match = f"If-Match: {'*' if isinstance(operation, MergeEntity) else operation.etag}\r\n"
    return (
        f"{method} {address} HTTP/1.1\r\n{sized}Accept: application/json\r\n"
        f"{match}{dated}\r\n{body}\r\n"
    )


def _quoted(key: str) -> str:
    return quote(key.replace("'", "''"), safe="")


def _json(partition: str, row: str, entity: Entity) -> str:
    """Write an entity in ASCII, so that its length in characters is its length in bytes."""
    values: dict[str, object] = {}
    for name, value in {"PartitionKey": partition, "RowKey": row, **entity}.items():
        values[name], kind = _typed(value)
        if kind:
            values[f"{name}@odata.type"] = kind
    return json.dumps(values)


def _typed(value: Value) -> tuple[object, str]:
    match value:
        case str():
            return value, "Edm.String"
        case bool():
            return value, ""
        case int():
            return str(value), "Edm.Int64"
        case float():
            if math.isnan(value):
                return "NaN", "Edm.Double"
            if math.isinf(value):
                return "Infinity" if value > 0 else "-Infinity", "Edm.Double"
            return value, "Edm.Double"
        case bytes():
            return base64.b64encode(value).decode(), "Edm.Binary"
    raise TypeError(f"a property of type {type(value).__name__} is not one that this build stores")
