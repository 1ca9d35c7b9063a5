"""Clients of Azure Storage or Azurite, made from the setting `SWATHMILL_STORAGE`.

Only processes that use Azure import this module: the SDK is a third of the time a process takes to
start.
"""

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict
from urllib.request import getproxies

import structlog
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.rest import HttpRequest, HttpResponse
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from tasks.errors import StoreError
from tasks.service.backup import PARTITIONS
from tasks.settings import WrongSettingError
from tasks.storage import blobs, queues
from tasks.storage.azure.blobs import AzureBlobs
from tasks.storage.azure.queue import AzureQueue
from tasks.storage.azure.tables import AzureTables
from tasks.storage.azure.transfer_shapes import Cut
from tasks.storage.azure.transfers import transfer_sizes
from tasks.storage.traffic import METER, Traffic

TABLES = tuple(PARTITIONS)
READ_TRIES = 4
# Parts of a connection string with which no identity is needed.
_KEYS = ("AccountKey=", "SharedAccessSignature=", "UseDevelopmentStorage=")
_READS = ("GET", "HEAD")
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Transport(TypedDict):
    """Arguments of the SDK's clients that say how they call."""

    connection_timeout: int  # seconds
    read_timeout: int
    retry_total: int
    retry_backoff_factor: float
    use_env_settings: bool
    raw_request_hook: Callable[["PipelineRequest[HttpRequest]"], None]
    raw_response_hook: Callable[["PipelineResponse[HttpRequest, HttpResponse]"], None]


def transport(storage: str, *, retries: int) -> Transport:
    """Make the transport of all clients of an account.

    The SDK tries reads again; the callers try writes again.
    """
    return Transport(
        connection_timeout=5,
        read_timeout=30,
        retry_total=retries,
        retry_backoff_factor=0.3,
        use_env_settings=looks_in_environment(storage),
        raw_request_hook=note_call,
        raw_response_hook=note_answer,
    )


def note_call(request: "PipelineRequest[HttpRequest]") -> None:
    """Count a call; have the account's log name the request, or the portal's call, it is for."""
    called = request.http_request
    reads = called.method in _READS
    sent = _length(called.headers.get("Content-Length"))
    METER.add(Traffic(reads=int(reads), writes=int(not reads), sent=sent))
    bound = structlog.contextvars.get_contextvars()
    if cause := bound.get("request") or bound.get("call"):
        name = f"{cause}.{uuid.uuid4().hex[:16]}"
        called.headers["x-ms-client-request-id"] = name


def note_answer(response: "PipelineResponse[HttpRequest, HttpResponse]") -> None:
    """Count the bytes of an answer's body."""
    if response.http_request.method != "HEAD":  # its length is that of what it tells of
        METER.add(Traffic(received=_length(response.http_response.headers.get("Content-Length"))))


def _length(said: str | None) -> int:
    return int(said) if said and said.isdecimal() else 0


def looks_in_environment(storage: str) -> bool:
    """Return whether calls look for proxies and certificates in the environment.

    They look each time, which costs a tenth of a call's CPU time, so they look only where there are
    any that they can use.
    """
    if getproxies().keys() - {"no"}:
        return True
    plain = "EndpointsProtocol=http;" in storage and "https://" not in storage
    return not plain and any(os.environ.get(name) for name in _CERTIFICATES)


def azure_clients(
    storage: str, *, create: bool, cut: Cut
) -> tuple[AzureTables, AzureBlobs, AzureQueue]:
    """Make the clients of an account; tables, containers and the queue too, with `create`.

    Raises:
        WrongSettingError: the connection string is malformed, or the process has no identity that
            storage accepts.
        StoreError: storage does not answer.
    """
    try:
        store, container, queue = _made_clients(storage, cut)
        if create:
            store.create(TABLES)
            container.create(blobs.CONTAINERS)
            queue.create()
    except ValueError as error:
        raise WrongSettingError(
            f"The setting SWATHMILL_STORAGE cannot be used: {error}",
            "Correct it (docs/settings.md).",
        ) from None
    except ClientAuthenticationError as error:
        name = "the connection string" if "=" in storage else f"the storage account {storage!r}"
        raise WrongSettingError(
            f"SWATHMILL_STORAGE names {name}, and this process has no identity for it.",
            "Set it to a valid connection string, or give the process a managed identity "
            "(docs/settings.md).",
        ) from error
    except AzureError as error:
        raise StoreError(f"storage does not answer: {error}") from error
    return store, container, queue


def _made_clients(storage: str, cut: Cut) -> tuple[AzureTables, AzureBlobs, AzureQueue]:
    reads, writes = sdk_clients(storage, retries=READ_TRIES), sdk_clients(storage, retries=0)
    return (
        AzureTables(reads.tables, writes.tables),
        AzureBlobs(reads.blobs, writes.blobs, cut=cut),
        AzureQueue(reads.queues.get_queue_client(queues.QUEUE)),
    )


@dataclass(frozen=True, kw_only=True)
class SdkClients:
    """The SDK's clients of one account."""

    tables: TableServiceClient
    blobs: BlobServiceClient
    queues: QueueServiceClient


def sdk_clients(storage: str, *, retries: int) -> SdkClients:
    """Make the SDK's clients, by the account's key or by this process's identity.

    Raises:
        ValueError: the connection string is malformed.
    """
    calls, sizes = transport(storage, retries=retries), transfer_sizes()
    if any(word in storage for word in _KEYS):
        return SdkClients(
            tables=TableServiceClient.from_connection_string(storage, **calls),
            blobs=BlobServiceClient.from_connection_string(storage, **calls, **sizes),
            queues=QueueServiceClient.from_connection_string(storage, **calls),
        )
    # Only where it is used: it is a third of the time every process takes to start.
    from azure.identity import DefaultAzureCredential

    identity = DefaultAzureCredential()
    tables, blob, queue = (_endpoint(storage, service) for service in ("Table", "Blob", "Queue"))
    return SdkClients(
        tables=TableServiceClient(tables, credential=identity, **calls),
        blobs=BlobServiceClient(blob, credential=identity, **calls, **sizes),
        queues=QueueServiceClient(queue, credential=identity, **calls),
    )


def _endpoint(storage: str, service: str) -> str:
    """Return a service's address: the one named, or that of the account in the public cloud."""
    if "=" not in storage:
        return f"https://{storage}.{service.lower()}.core.windows.net"
    for part in storage.split(";"):
        name, _, address = part.partition("=")
        if name == f"{service}Endpoint":
            return address.rstrip("/")
    raise ValueError(f"it has neither an AccountKey nor a {service}Endpoint")
