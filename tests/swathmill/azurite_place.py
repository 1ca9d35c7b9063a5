"""A data folder of Azurite, which is killed again and again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from azure.data.tables import TableClient, TableServiceClient
from azure.storage.blob import BlobServiceClient, ContainerClient
from azure.storage.queue import QueueClient, QueueServiceClient

from swathmill.stack.azurite import JOURNAL, Account, AzuriteServer
from swathmill.stack.children import Child

TABLES = "__azurite_db_table__.json"
NAME = "things"


@dataclass(frozen=True, kw_only=True)
class Storage:
    """A running Azurite and clients that do not try again."""

    child: Child
    table: TableClient
    container: ContainerClient
    queue: QueueClient

    def rows(self) -> dict[str, object]:
        return {row["RowKey"]: row["n"] for row in self.table.list_entities()}

    def blobs(self) -> dict[str, bytes]:
        names = [blob.name for blob in self.container.list_blobs()]
        return {name: self.container.download_blob(name).readall() for name in names}

    def messages(self) -> set[str]:
        return {message.content for message in self.queue.receive_messages(messages_per_page=32)}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A data folder of Azurite."""

    folder: Path
    account: Account = field(default_factory=Account.new)

    @property
    def log(self) -> Path:
        return self.folder / "azurite.log"

    @property
    def tables(self) -> Path:
        return self.folder / "data" / TABLES

    @contextmanager
    def killed(self, *, journal: bool = True) -> Iterator[Storage]:
        """Azurite over the folder; SIGKILL at the end. Without the journal it is asked to stop."""
        server = AzuriteServer.on_free_ports(
            folder=self.folder / "data", log=self.log, account=self.account
        )
        child = server.start() if journal else self._plain(server)
        text = server.connection_string
        with (
            TableServiceClient.from_connection_string(text, retry_total=0) as tables,
            BlobServiceClient.from_connection_string(text, retry_total=0) as blobs,
            QueueServiceClient.from_connection_string(text, retry_total=0) as queues,
        ):
            container, queue = blobs.get_container_client(NAME), queues.get_queue_client(NAME)
            try:
                table = tables.create_table_if_not_exists(NAME)
                if not container.exists():
                    container.create_container()
                    queue.create_queue()
                yield Storage(child=child, table=table, container=container, queue=queue)
            finally:
                if journal:
                    child.kill()
                else:
                    child.stop()

    def _plain(self, server: AzuriteServer) -> Child:
        spec = server.spec()
        at = spec.argv.index(str(JOURNAL))
        child = Child(replace(spec, argv=spec.argv[: at - 1] + spec.argv[at + 1 :]))
        server.folder.mkdir()
        child.start()
        child.wait_until(server.is_ready, limit_seconds=60.0)
        return child


def row(key: str, n: int, partition: str = "a") -> dict[str, object]:
    return {"PartitionKey": partition, "RowKey": key, "n": n, "text": "ü" * 100}
