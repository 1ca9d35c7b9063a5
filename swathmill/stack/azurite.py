"""Azurite: blobs, tables and queues on one machine, with Azure's own protocol."""

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swathmill.stack import ports, programs
from swathmill.stack.children import ChildSpec
from swathmill.stack.server import Server


@dataclass(frozen=True, kw_only=True)
class Account:
    """A storage account that exists only inside one data folder, with its own key."""

    name: str
    key: str

    @classmethod
    def new(cls) -> "Account":
        """Make an account with a random name and a random key of 64 bytes, as Azure's are."""
        return cls(
            name=f"mill{secrets.token_hex(6)}",
            key=base64.b64encode(secrets.token_bytes(64)).decode(),
        )


@dataclass(frozen=True, kw_only=True)
class AzuriteServer(Server):
    """Azurite over one folder, on three loopback ports (blob, queue, table).

    It writes its rows to the disk every five seconds, and when it is asked to stop: a SIGKILL takes
    those since. It holds all rows in memory.
    """

    account: Account
    ports: tuple[int, ...]

    ready_seconds = 180.0  # it takes 10 s for the rows of 100,000 tasks, more on a slow machine

    @classmethod
    def on_free_ports(
        cls, *, folder: Path, log: Path, account: Account, preferred: Sequence[int] = ()
    ) -> "AzuriteServer":
        """Make the server on the preferred ports if they are free, else on other ports."""
        chosen = ports.choose(3, preferred=preferred)
        return cls(folder=folder, log=log, account=account, ports=chosen)

    @property
    def connection_string(self) -> str:
        """The Azure connection string; it contains the key."""
        blob, queue, table = (f"http://{ports.LOOPBACK}:{port}" for port in self.ports)
        name = self.account.name
        return (
            f"DefaultEndpointsProtocol=http;AccountName={name};AccountKey={self.account.key};"
            f"BlobEndpoint={blob}/{name};QueueEndpoint={queue}/{name};TableEndpoint={table}/{name};"
        )

    def spec(self) -> ChildSpec:
        """Return how it is started: Node runs Azurite's script directly, so signals reach Node."""
        blob, queue, table = (str(port) for port in self.ports)
        return ChildSpec(
            name="azurite",
            argv=(
                str(programs.node()),
                str(programs.azurite()),
                *("--silent", "--disableTelemetry", "--skipApiVersionCheck"),
                *("--location", str(self.folder)),
                *("--blobHost", ports.LOOPBACK, "--blobPort", blob),
                *("--queueHost", ports.LOOPBACK, "--queuePort", queue),
                *("--tableHost", ports.LOOPBACK, "--tablePort", table),
            ),
            # The key is in the environment, because arguments appear in the process list.
            env={
                "AZURITE_ACCOUNTS": f"{self.account.name}:{self.account.key}",
                "NODE_OPTIONS": None,
            },
            log=self.log,
            grace_seconds=20.0,
        )

    def is_ready(self) -> bool:
        """Tell whether all three services answer."""
        return all(ports.answers(port) for port in self.ports)
