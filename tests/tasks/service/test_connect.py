"""Clients go through a proxy that the environment names, and do not look for one that is not."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.core.pipeline import PipelineResponse
from azure.storage.blob import BlobServiceClient
from structlog.contextvars import bound_contextvars

from tasks.errors import StoreError
from tasks.service import azure_clients
from tasks.service.azure_clients import looks_in_environment, sdk_clients, transport
from tasks.service.connect import connect_storage
from tasks.settings import WrongSettingError
from tasks.storage.blobs import RESULTS
from tasks.storage.store import Delete, Upsert
from tasks.storage.traffic import METER, Traffic

PLAIN = "DefaultEndpointsProtocol=http;AccountName=mill;AccountKey=a2V5;"
STORAGE = f"{PLAIN}BlobEndpoint=http://storage.invalid/mill;"
SECURE = "DefaultEndpointsProtocol=https;AccountName=mill;AccountKey=a2V5;"
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *(name.lower() for name in NAMES), "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def test_a_bare_environment_is_not_looked_at() -> None:
    assert not looks_in_environment(STORAGE)
    assert not looks_in_environment(SECURE)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy"])
def test_an_environment_with_a_proxy_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert looks_in_environment(STORAGE)
    assert looks_in_environment(SECURE)


def test_hosts_without_a_proxy_alone_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")
    assert not looks_in_environment(SECURE)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_are_for_secure_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/etc/ssl/certs/ca-certificates.crt")
    assert not looks_in_environment(STORAGE)
    assert looks_in_environment(SECURE)
    assert looks_in_environment("swathmill")  # an account's name


def test_calls_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(4096).split(b"\r\n")[0])
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        proxy = threading.Thread(target=answer)
        proxy.start()
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.getsockname()[1]}")
        client = BlobServiceClient.from_connection_string(STORAGE, **transport(STORAGE, retries=0))
        with client, pytest.raises(AzureError, match="Forbidden"):
            client.get_service_properties()
        proxy.join()
    assert asked[0].startswith(b"GET http://storage.invalid/mill")


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    ["portal.app", "service_manager.__main__", "worker.slots.service", "worker.slots.child"],
)
def test_no_process_imports_the_sdk_without_need(module: str, tmp_path: Path) -> None:
    script = f"""
import sys, {module}
from tasks.service.connect import connect_storage
from tasks.requests.request_table import RequestTable
RequestTable(connect_storage("file:{tmp_path}").store).live()
print([name for name in sys.modules if name.split(".")[0] == "azure"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_relative_folder_is_a_wrong_setting() -> None:
    with pytest.raises(WrongSettingError, match=r"'file:storage'.* absolute"):
        connect_storage("file:storage")


def test_storage_that_does_not_answer_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure_clients, "READ_TRIES", 0)
    nowhere = "http://127.0.0.1:1/mill"
    storage = f"{PLAIN}BlobEndpoint={nowhere};TableEndpoint={nowhere};QueueEndpoint={nowhere};"
    with pytest.raises(StoreError, match="does not answer"):
        connect_storage(storage)


def test_an_account_that_the_process_has_no_identity_for_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Else the SDK looks for ten others, over the network, too.
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WrongSettingError, match=r"SWATHMILL_STORAGE .*'nonsense'.* no identity"):
        connect_storage("nonsense")


@pytest.mark.integration
def test_calls_name_what_they_are_made_for(azurite: str) -> None:
    """The account's log keeps the id that a call names, and answers with it."""
    clients = sdk_clients(azurite, retries=0)
    named: list[str] = []

    def note(answer: PipelineResponse[Any, Any]) -> None:
        sent = answer.http_request.headers["x-ms-client-request-id"]
        assert answer.http_response.headers.get("x-ms-client-request-id", sent) == sent
        named.append(sent)

    with bound_contextvars(call="the-call"):
        clients.blobs.get_service_properties(raw_response_hook=note)
        with bound_contextvars(request="r-1"):
            clients.blobs.get_service_properties(raw_response_hook=note)
            clients.tables.get_service_properties(raw_response_hook=note)
            clients.queues.get_service_properties(raw_response_hook=note)
    clients.blobs.get_service_properties(raw_response_hook=note)
    assert [name.partition(".")[0] for name in named[:4]] == ["the-call", "r-1", "r-1", "r-1"]
    assert len(set(named)) == 5
    assert "." not in named[4]


@pytest.mark.integration
def test_calls_and_bytes_are_counted(azurite: str) -> None:
    runtime = connect_storage(azurite)

    def traffic(act: Callable[[], object]) -> Traffic:
        before = METER.read()
        act()
        return METER.read() - before

    blobs, row = runtime.blobs, Upsert(row="r", entity={"a": 1})
    up = traffic(lambda: blobs.put_bytes(RESULTS, "metered", bytes(1000)))
    assert (up.reads, up.writes) == (0, 1)
    assert 1000 <= up.sent < 1500
    down = traffic(lambda: blobs.get_bytes(RESULTS, "metered"))
    assert (down.reads, down.writes, down.received) == (1, 0, 1000)
    assert traffic(lambda: runtime.store.transact("history", "metered", [row])).writes == 1
    assert traffic(lambda: runtime.store.get("history", "metered", "r")).reads == 1
    runtime.blobs.delete(RESULTS, "metered")
    runtime.store.transact("history", "metered", [Delete(row="r")])
