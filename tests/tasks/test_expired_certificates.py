"""Whatever calls a server over TLS: one whose certificate has expired is refused, and it says so.

Nothing is sent before: no password, no token, no row.
"""

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from archives.fetch.download import Downloader
from archives.fetch.limits import LocalLimits
from bench.chaos.certificates import Authority
from swathmill.client import Client
from swathmill.commands.fleet.rest import Rest
from tasks.messages.celery_app import make_app
from tasks.messages.redis_watch import RedisWatch
from tasks.service.azure_clients import sdk_clients
from tests.archives.downloads import NO_CREDENTIALS, QUICK, Fetch

HOST = "localhost"


@dataclass
class Server:
    """Takes connections with an expired certificate; whatever is sent to it counts."""

    port: int
    trusted: Path
    sent: bytes = b""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    authority = Authority(folder=tmp_path / "authority")
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.give(inside, "127.0.0.1", HOST, seconds=-dt.timedelta(minutes=5).total_seconds())
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(authority.file))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Server(listener.getsockname()[1], authority.file)

        def answer() -> None:
            while True:
                try:
                    plain, _ = listener.accept()
                except OSError:
                    return
                try:
                    with inside.wrap_socket(plain, server_side=True) as one:
                        made.sent += one.recv(2**16)
                except OSError:
                    plain.close()

        threading.Thread(target=answer, daemon=True).start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)


def by_portal_client(server: Server) -> None:
    Client(url=f"https://{HOST}:{server.port}", token="secret", timeout=5.0).status("r")


def by_download(server: Server) -> None:
    trusted = ssl.create_default_context(cafile=str(server.trusted))
    downloader = Downloader(NO_CREDENTIALS, LocalLimits(), timing=QUICK, context=trusted)
    Fetch(downloader, server.trusted.parent / "f.hdf")(f"https://{HOST}:{server.port}/f.hdf")


def by_celery(server: Server) -> None:
    app = make_app(f"rediss://:secret@{HOST}:{server.port}/0")
    with app.connection() as connection:
        connection.default_channel.client.ping()


def by_redis_watch(server: Server) -> None:
    watch = RedisWatch(f"rediss://:secret@{HOST}:{server.port}/0", lambda: 0.0)
    watch.look()
    raise OSError(watch.why)


def by_storage(server: Server) -> None:
    at = f"https://{HOST}:{server.port}/mill"
    text = f"AccountName=mill;AccountKey=c2VjcmV0;BlobEndpoint={at};QueueEndpoint={at};"
    clients = sdk_clients(f"{text}TableEndpoint={at}", retries=0)
    clients.tables.get_table_client("workers").get_entity("p", "r")


def by_engine(server: Server) -> None:
    trusted = ssl.create_default_context(cafile=str(server.trusted))
    base = f"https://{HOST}:{server.port}"
    Rest(base=base, permission=lambda: "secret", context=trusted).call("GET", "/pods")


@pytest.mark.parametrize(
    "call",
    [by_portal_client, by_download, by_celery, by_redis_watch, by_storage, by_engine],
    ids=lambda call: call.__name__,
)
def test_a_server_whose_certificate_has_expired_is_told_nothing(
    call: Callable[[Server], None], server: Server
) -> None:
    with pytest.raises(Exception, match="certificate has expired"):
        call(server)
    assert server.sent == b""
