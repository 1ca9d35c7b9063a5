"""The one place that builds clients: from settings to `Runtime`.

`SWATHMILL_STORAGE` is `file:` and a folder (the storage of one machine), a connection string of
Azure Storage (Azurite, or an account's key), or the account's name or addresses when the process
has a managed identity.
"""

import os
from pathlib import Path

from tasks.bag.runtime import Runtime
from tasks.errors import SwathmillError
from tasks.messages.wakeups import MemoryWakeUps, RedisWakeUps, WakeUps
from tasks.operators import row_schema
from tasks.secret_settings import EMBEDDED, PREFIX
from tasks.setting_values import Blocks
from tasks.settings import Settings, WrongSettingError
from tasks.storage.azure.transfer_shapes import BY_SIZE, MIB, Cut
from tasks.storage.blobs import CONTAINERS, Blobs
from tasks.storage.clock import SystemClock
from tasks.storage.file_blobs import FileBlobs
from tasks.storage.queues import RequestQueue
from tasks.storage.schema import OtherSchemaError
from tasks.storage.sqlite_file import SqliteFile
from tasks.storage.sqlite_queue import SqliteQueue
from tasks.storage.sqlite_store import MOST_OPERATIONS, SqliteStore
from tasks.storage.store import BATCH_OPERATIONS, Store


class SettingMissingError(SwathmillError):
    """A setting without which the process cannot start is empty."""

    def __init__(self, setting: str, what: str) -> None:
        super().__init__(f"{setting} is empty; set it to {what}")


def connect(settings: Settings, *, create: bool = True) -> Runtime:
    """Clients for all of a process's work; tables, containers and the queue are created if absent.

    Raises:
        SettingMissingError: no storage account or no Redis is named.
        WrongSettingError: the connection string of the storage account is malformed, the process
            has no identity that storage accepts, or a newer build writes its rows.
        StoreError: storage does not answer, or is damaged.
    """
    if not settings.storage.get_secret_value():
        raise SettingMissingError(
            "SWATHMILL_STORAGE", "file:/FOLDER or an Azure Storage connection string"
        )
    if not settings.redis_url.get_secret_value():
        raise SettingMissingError("SWATHMILL_REDIS_URL", "a URL such as redis://host:6379/0")
    wakeups = RedisWakeUps(settings.redis_url.get_secret_value())
    blocks = Blocks.read(settings.blocks)
    cut = Cut(block=blocks.mib * MIB, at_once=blocks.at_once)
    return _runtime(settings.storage.get_secret_value(), wakeups, create=create, cut=cut)


def connect_storage(storage: str) -> Runtime:
    """Connect to storage alone, for tools that neither hand out work nor take it.

    Tables and containers are created if absent. Raises WrongSettingError and StoreError as
    `connect`.
    """
    return _runtime(storage, MemoryWakeUps(), create=True)


def embedded_folder(settings: Settings) -> Path | None:
    """Return the folder of embedded storage, which one machine uses; None for a storage account."""
    named = settings.storage.get_secret_value()
    return Path(named.removeprefix(EMBEDDED)) if named.startswith(EMBEDDED) else None


def storage_modules() -> tuple[str, ...]:
    """Return the modules that `connect` imports only for the storage of this environment."""
    named = [value for name, value in os.environ.items() if name.upper() == f"{PREFIX}STORAGE"]
    embedded = any(value.startswith(EMBEDDED) for value in named)
    return () if embedded else ("tasks.service.azure_clients",)


def _runtime(storage: str, wakeups: WakeUps, *, create: bool, cut: Cut = BY_SIZE) -> Runtime:
    store, blobs, queue = _clients(storage, create=create, cut=cut)
    embedded = storage.startswith(EMBEDDED)
    made = Runtime(
        store=store,
        blobs=blobs,
        queue=queue,
        wakeups=wakeups,
        clock=SystemClock(),
        most_operations=MOST_OPERATIONS if embedded else BATCH_OPERATIONS,
    )
    if create:
        try:
            row_schema.adopt(made)
        except OtherSchemaError as error:
            raise WrongSettingError(
                f"SWATHMILL_STORAGE names storage that this build cannot work with: {error}.",
                "See docs/operations.md, Upgrading.",
            ) from None
    return made


def _clients(storage: str, *, create: bool, cut: Cut) -> tuple[Store, Blobs, RequestQueue]:
    if not storage.startswith(EMBEDDED):
        # Only where it is used: the SDK is a third of the time every process takes to start.
        from tasks.service.azure_clients import azure_clients

        return azure_clients(storage, create=create, cut=cut)
    folder = Path(storage.removeprefix(EMBEDDED))
    if not folder.is_absolute():
        raise WrongSettingError(
            f"The setting SWATHMILL_STORAGE is {storage!r}; its folder should be an absolute path.",
            "Correct it, such as file:/srv/swathmill (docs/settings.md).",
        )
    file, blobs = SqliteFile(folder / "tables.sqlite"), FileBlobs(folder / "blobs")
    if create:
        file.create()
        blobs.create(CONTAINERS)
    return SqliteStore(file), blobs, SqliteQueue(file)
