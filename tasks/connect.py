"""The one place that builds clients: from settings to `Services`.

`SWATHMILL_STORAGE` is a connection string (Azurite, or an account's key), or the account's name
when the process has a managed identity.
"""

import logging
from typing import TypedDict

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueClient, QueueMessage

from tasks import blobs, queues
from tasks.azure_blobs import AzureBlobs
from tasks.azure_tables import AzureTables
from tasks.backup import PARTITIONS
from tasks.clock import SystemClock
from tasks.errors import SwathmillError
from tasks.hints import MemoryHints, RedisHints
from tasks.queues import Ack
from tasks.services import Services
from tasks.settings import Settings
from tasks.transfers import transfer_sizes

TABLES = tuple(PARTITIONS)


class _Transport(TypedDict):
    connection_timeout: int  # seconds
    read_timeout: int
    retry_total: int
    retry_backoff_factor: float


_READS = _Transport(connection_timeout=5, read_timeout=30, retry_total=4, retry_backoff_factor=0.3)
_WRITES = _Transport(connection_timeout=5, read_timeout=30, retry_total=0, retry_backoff_factor=0.3)


class SettingMissingError(SwathmillError):
    """A setting without which the process cannot start is empty."""

    def __init__(self, setting: str, what: str) -> None:
        super().__init__(f"{setting} is empty; set it to {what}")


def connect(settings: Settings, *, create: bool = True) -> Services:
    """Clients for all of a process's work; tables, containers and the queue are created if absent.

    Raises:
        SettingMissingError: no storage account or no Redis is named.
        azure.core.exceptions.AzureError: storage does not answer.
    """
    if not settings.storage.get_secret_value():
        raise SettingMissingError("SWATHMILL_STORAGE", "an Azure Storage connection string")
    if not settings.redis_url.get_secret_value():
        raise SettingMissingError("SWATHMILL_REDIS_URL", "a URL such as redis://host:6379/0")
    store, container, queue = _clients(settings.storage.get_secret_value())
    if create:
        store.create(TABLES)
        container.create(blobs.CONTAINERS)
        queue.create()
    return Services(
        store=store,
        blobs=container,
        queue=queue,
        hints=RedisHints(settings.redis_url.get_secret_value()),
        clock=SystemClock(),
    )


def connect_storage(storage: str) -> Services:
    """Clients of storage alone, for tools that neither hand out work nor take it; tables and
    containers are created if absent. Raises AzureError when storage does not answer."""
    store, container, queue = _clients(storage)
    store.create(TABLES)
    container.create(blobs.CONTAINERS)
    queue.create()
    return Services(
        store=store, blobs=container, queue=queue, hints=MemoryHints(), clock=SystemClock()
    )


class AzureQueue:
    """The request queue on Azure Storage. Hints only, so that failures are logged and no more."""

    def __init__(self, client: QueueClient) -> None:
        self._client = client
        self._log = logging.getLogger("tasks.queue")

    def create(self) -> None:
        """Create the queue if it does not exist."""
        try:
            self._client.create_queue()
        except ResourceExistsError:
            return

    def send(self, request: str) -> None:
        try:
            self._client.send_message(request, time_to_live=3600)
        except AzureError as error:
            self._log.warning("request hint %s not sent: %s", request, error)

    def receive(self) -> list[tuple[str, Ack]]:
        found: list[tuple[str, Ack]] = []
        try:
            for message in self._client.receive_messages(max_messages=32, visibility_timeout=60):
                found.append((str(message.content), self._acknowledge(message)))
                if len(found) >= 32:
                    break
        except AzureError as error:
            self._log.warning("request hints not received: %s", error)
        return found

    def _acknowledge(self, message: QueueMessage) -> Ack:
        def delete() -> None:
            try:
                self._client.delete_message(message)
            except AzureError as error:
                self._log.warning("request hint %s not deleted: %s", message.id, error)

        return delete


def _clients(storage: str) -> tuple[AzureTables, AzureBlobs, AzureQueue]:
    sizes = transfer_sizes()
    if "=" in storage:
        return (
            AzureTables(
                TableServiceClient.from_connection_string(storage, **_READS),
                TableServiceClient.from_connection_string(storage, **_WRITES),
            ),
            AzureBlobs(
                BlobServiceClient.from_connection_string(storage, **_READS, **sizes),
                BlobServiceClient.from_connection_string(storage, **_WRITES, **sizes),
            ),
            AzureQueue(QueueClient.from_connection_string(storage, queues.QUEUE, **_READS)),
        )
    # Only where it is used: it is a third of the time every process takes to start.
    from azure.identity import DefaultAzureCredential

    credential = DefaultAzureCredential()
    tables, blob, queue = (
        f"https://{storage}.{service}.core.windows.net" for service in ("table", "blob", "queue")
    )
    return (
        AzureTables(
            TableServiceClient(tables, credential=credential, **_READS),
            TableServiceClient(tables, credential=credential, **_WRITES),
        ),
        AzureBlobs(
            BlobServiceClient(blob, credential=credential, **_READS, **sizes),
            BlobServiceClient(blob, credential=credential, **_WRITES, **sizes),
        ),
        AzureQueue(QueueClient(queue, queues.QUEUE, credential=credential, **_READS)),
    )
