"""The stack's own servers: they start, answer, and keep what they were given."""

import os
import sys
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient
from redis import Redis
from redis.exceptions import AuthenticationError

from swathmill.errors import StackError
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.children import ChildSpec
from swathmill.stack.server import Server
from tests.waiting import until

pytestmark = pytest.mark.integration


def test_azurite_keeps_blobs_over_a_restart_on_other_ports(tmp_path: Path) -> None:
    account = Account.new()
    seen_ports = set()
    for name, expected in (("first", ["first"]), ("second", ["first", "second"])):
        server = AzuriteServer.on_free_ports(
            folder=tmp_path / "azurite", log=tmp_path / "azurite.log", account=account
        )
        seen_ports.add(server.ports)
        child = server.start()
        with BlobServiceClient.from_connection_string(server.connection_string) as client:
            container = client.get_container_client("keep")
            if not container.exists():
                container.create_container()
            container.upload_blob(name, name.encode())
            assert sorted(blob.name for blob in container.list_blobs()) == expected
            assert container.download_blob("first").readall() == b"first"
        child.stop()
    assert len(seen_ports) == 2


class DeafServer(Server):
    """Runs, and never answers."""

    ready_seconds = 0.5

    def spec(self) -> ChildSpec:
        program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
        return ChildSpec(name="deaf", argv=(sys.executable, "-c", program), log=self.log)

    def is_ready(self) -> bool:
        until(lambda: bool(self.log.read_text()))  # it has begun
        return False


def test_a_server_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    server = DeafServer(folder=tmp_path / "data", log=tmp_path / "log")
    with pytest.raises(StackError, match="deaf was not ready"):
        server.start()
    with pytest.raises(ProcessLookupError):
        os.kill(int(server.log.read_text()), 0)


def test_redis_answers_only_with_its_password(redis_server: str) -> None:
    with Redis.from_url(redis_server) as client:
        assert client.ping()
    stranger = redis_server.replace("redis://:", "redis://:wrong")
    with Redis.from_url(stranger) as client, pytest.raises(AuthenticationError):
        client.ping()
