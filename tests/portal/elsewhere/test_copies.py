"""Results are copied to their owner's own storage; what opens it is neither kept nor told."""

import datetime as dt
import hashlib
import json
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest
import s3fs
import structlog
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas

from portal.elsewhere.copies import (
    CopyFailedError,
    CopyOrder,
    check_host,
    copy,
    open_sink,
    read_order,
)
from portal.elsewhere.state import MOST_COPYING
from portal.results.result_files import ResultFile, ResultIndex, ResultReader
from portal.serving.problems import BadCallError
from swathmill import client as client_of_portal
from swathmill.client import Client
from tasks.bag.model import ArtifactFile
from tasks.bag.runtime import Runtime
from tasks.errors import CorruptBlobError
from tasks.network_hosts import AllowedHosts, read_allowed
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import ARTIFACTS
from tests.portal.scripted import LivePortal, live_portal, put_result, settings
from tests.portal.submissions import submitted

LAYER = "MCD15A2.005/Lai_1km"
DATA = {f"{LAYER}/a.tif": b"a" * 5_000_000, f"{LAYER}/b.tif": b"b" * 10}
KEYS = {"access_key": "KEYID", "secret_key": "SECRET-KEY"}


def filled(runtime: Runtime) -> str:
    request = submitted(runtime)
    for path, data in DATA.items():
        put_result(runtime, request, LAYER, path.rpartition("/")[2], data)
    return request


# --- what is copied, and from where the next call goes on ---


@dataclass
class Kept:
    """A sink in memory."""

    files: dict[str, bytes] = field(default_factory=dict)
    fails: Exception | None = None

    def put(self, path: str, size: int, sha256: str, parts: Iterator[bytes]) -> None:
        if self.fails is not None:
            raise self.fails
        data = b"".join(parts)
        assert (len(data), hashlib.sha256(data).hexdigest()) == (size, sha256)
        self.files[path] = data


def some_results(runtime: Runtime) -> tuple[ResultReader, list[ResultFile]]:
    files = []
    for name in ("c", "a", "b"):
        stored = runtime.blobs.put_bytes(ARTIFACTS, name, name.encode())
        file = ArtifactFile(
            name=name, blob=f"{ARTIFACTS}/{name}", size=stored.size, sha256=stored.sha256
        )
        files.append(ResultFile(path=name, file=file, key="0" * 64))
    return ResultReader(runtime=runtime, index=ResultIndex(), request="r"), files


def test_a_call_ends_in_time_and_the_next_goes_on() -> None:
    reader, files = some_results(memory_runtime())
    sink = Kept()
    answer = copy(reader, files, sink, after="", goes_on=lambda: False)
    assert (answer.copied, answer.left, answer.after, answer.bytes) == (1, 2, "a", 1)
    answer = copy(reader, files, sink, after=answer.after, goes_on=lambda: True)
    assert (answer.copied, answer.left, answer.after) == (2, 0, "c")
    assert list(sink.files) == ["a", "b", "c"]
    assert copy(reader, files, sink, after="c", goes_on=lambda: True).copied == 0


def test_a_damaged_result_is_not_put() -> None:
    runtime = memory_runtime()
    reader, (first, *_) = some_results(runtime)
    wrong = ArtifactFile(name="c", blob=first.file.blob, size=1, sha256="0" * 64)
    sink = Kept()
    with pytest.raises(Exception, match=r"lost|damaged"):
        copy(
            reader,
            [ResultFile(path="c", file=wrong, key=first.key)],
            sink,
            after="",
            goes_on=lambda: True,
        )
    assert not sink.files


@pytest.mark.parametrize(
    "failure",
    [
        ClientAuthenticationError("GET https://x?sig=SIGNATURE was refused"),
        PermissionError("SECRET-KEY does not open it"),
    ],
)
def test_a_refusal_repeats_no_word_of_storage(failure: Exception) -> None:
    reader, files = some_results(memory_runtime())
    with pytest.raises(CopyFailedError) as found:
        copy(reader, files, Kept(fails=failure), after="", goes_on=lambda: True)
    told = "".join(traceback.format_exception(found.value))
    assert "a:" in str(found.value)
    assert "SIGNATURE" not in told
    assert "SECRET" not in told


def test_errors_of_our_own_are_not_taken_for_those_of_the_sink() -> None:
    reader, files = some_results(memory_runtime())
    ours = CorruptBlobError("b", "0", "1")
    with pytest.raises(CorruptBlobError):
        copy(reader, files, Kept(fails=ours), after="", goes_on=lambda: True)


# --- which hosts ---


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Addresses by name, in place of DNS."""
    known: dict[str, str] = {}

    def look(host: str, port: int, **_more: object) -> list[tuple[object, ...]]:
        if host not in known:
            raise OSError("unknown")
        return [(2, 1, 6, "", (known[host], port))]

    monkeypatch.setattr("socket.getaddrinfo", look)
    return known


AZURE = "mine.blob.core.windows.net"


def checked(text: str, allowed: str = "") -> None:
    scheme, _, rest = text.partition("://")
    host, _, port = rest.partition(":")
    check_host(
        scheme,
        host,
        int(port) if port else None,
        (".blob.core.windows.net",),
        read_allowed(allowed),
    )


def test_a_clouds_host_with_a_public_address_is_taken(names: dict[str, str]) -> None:
    names[AZURE] = "20.60.1.1"
    checked(f"https://{AZURE}")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://mine.blob.core.windows.net", "is not one"),
        ("https://mine.blob.core.windows.net:8443", "is not one"),
        ("https://example.org", "is not one"),
        ("https://blob.core.windows.net.example.org", "is not one"),
        ("https://127.0.0.1", "is not a host's name"),
        ("https://other.blob.core.windows.net", "cannot be found"),
        ("https://inner.blob.core.windows.net", "private network"),
        ("https://metadata.blob.core.windows.net", "private network"),
        ("https://wire.blob.core.windows.net", "private network"),
    ],
)
def test_other_hosts_are_refused(names: dict[str, str], address: str, why: str) -> None:
    names[AZURE] = "20.60.1.1"
    names["example.org"] = names["blob.core.windows.net.example.org"] = "93.184.216.34"
    names["inner.blob.core.windows.net"] = "10.0.0.4"
    names["metadata.blob.core.windows.net"] = "169.254.169.254"
    names["wire.blob.core.windows.net"] = "168.63.129.16"
    with pytest.raises(BadCallError, match=why):
        checked(address)


def test_an_operator_allows_further_hosts_and_networks(names: dict[str, str]) -> None:
    names["store.inner"] = "10.0.0.4"
    with pytest.raises(BadCallError, match="private network"):
        checked("http://store.inner:9000", "store.inner:9000")
    checked("http://store.inner:9000", "store.inner:9000, 10.0.0.0/24")
    with pytest.raises(BadCallError, match="is not one"):
        checked("http://store.inner:9001", "store.inner:9000, 10.0.0.0/24")


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"to": "ftp://host/folder"}, "to"),
        ({"to": "s3://bucket"}, "access_key"),
        ({"to": "s3://bucket", "access_key": "KEYID"}, "access_key"),
        ({"to": f"https://{AZURE}/"}, "to"),
        ({"to": f"https://{AZURE}/container"}, "to"),
        ({"to": f"https://{AZURE}:99999/container?sig=SIGNATURE"}, "to"),
        ({"to": "s3://bucket", **KEYS, "endpoint": "http://127.0.0.1:9000"}, "to"),
        ({"to": "s3://bucket", **KEYS, "region": "evil.example.org/"}, "region"),
        ({}, "to"),
        ({"to": "s3://bucket", "secret": "SECRET-KEY"}, "secret"),
    ],
)
def test_an_order_that_cannot_be_is_refused_without_its_secrets(
    names: dict[str, str], document: dict[str, str], field: str
) -> None:
    names[AZURE] = "20.60.1.1"
    with pytest.raises(BadCallError) as found:
        open_sink(read_order(json.dumps(document).encode()), AllowedHosts())
    assert found.value.field == field
    told = "".join(traceback.format_exception(found.value))
    assert "SIGNATURE" not in told
    assert "SECRET-KEY" not in told


def test_an_order_does_not_show_its_secrets() -> None:
    order = read_order(json.dumps({"to": "s3://b?sig=SIGNATURE", **KEYS}).encode())
    assert "SIGNATURE" not in repr(order)
    assert "SECRET-KEY" not in repr(order) + order.model_dump_json()


# --- real storage ---


@pytest.fixture
def runtime() -> Runtime:
    return memory_runtime()


def bearer(portal: LivePortal) -> str:
    with portal.client() as client:
        return client.headers["Authorization"].removeprefix("Bearer ")


def call(portal: LivePortal, request: str, order: dict[str, str]) -> dict[str, object]:
    """Copy everything; return the last answer."""
    with portal.client() as client:
        while True:
            answer = client.post(f"/api/requests/{request}/copies", json=order)
            assert answer.status_code == 200, answer.text
            found: dict[str, object] = answer.json()
            if not found["left"]:
                return found
            order = {**order, "after": str(found["after"])}


@pytest.mark.integration
def test_results_go_to_a_container_by_a_sas_that_only_writes(
    azurite: str, runtime: Runtime
) -> None:
    service = BlobServiceClient.from_connection_string(azurite)
    container = service.create_container("mine")
    signature = generate_container_sas(
        str(service.account_name or service.credential.account_name),
        "mine",
        account_key=service.credential.account_key,
        permission=ContainerSasPermissions(write=True, create=True),
        expiry=dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5),
    )
    address = container.url.replace("127.0.0.1", "localhost")
    host = address.partition("://")[2].partition("/")[0]
    made = settings(copy_hosts=f"{host}, 127.0.0.0/8, ::1/128")
    request = filled(runtime)
    with live_portal(runtime, made) as portal, structlog.testing.capture_logs() as lines:
        last = call(portal, request, {"to": f"{address}/my%20data?{signature}"})
        assert (last["copied"], last["bytes"]) == (2, 5_000_010)
        wrong = {"to": f"{address}?{signature[:-12]}AAAAAAAAA%3D"}
        with portal.client() as client:
            refused = client.post(f"/api/requests/{request}/copies", json=wrong)
            assert client.post("/api/requests/none/copies", json=wrong).status_code == 404
        with portal.client("eve@example.org") as client:
            other = client.post(f"/api/requests/{request}/copies", json=wrong)
        assert other.status_code == 404
    assert refused.status_code == 502
    assert "sig" not in refused.text
    assert f"{LAYER}/a.tif" in refused.json()["detail"]
    assert signature.partition("sig=")[2][:10] not in str(lines)
    found = {blob.name: blob for blob in container.list_blobs(include=["metadata"])}
    assert set(found) == {f"my data/{path}" for path in DATA}
    for path, data in DATA.items():
        assert container.download_blob(f"my data/{path}").readall() == data
        blob = found[f"my data/{path}"]
        assert blob.metadata == {"sha256": hashlib.sha256(data).hexdigest()}


@pytest.mark.integration
def test_results_go_to_a_bucket(runtime: Runtime, s3_port: int) -> None:
    endpoint = f"http://localhost:{s3_port}"
    there = s3fs.S3FileSystem(key="k", secret="s", endpoint_url=endpoint, skip_instance_cache=True)
    there.mkdir("mine")
    made = settings(copy_hosts=f"localhost:{s3_port}, 127.0.0.0/8, ::1/128")
    request = filled(runtime)
    order = {"to": "s3://mine/folder/", **KEYS, "endpoint": endpoint}
    kept = dict(s3fs.S3FileSystem._cache)
    with live_portal(runtime, made) as portal, structlog.testing.capture_logs() as lines:
        last = call(portal, request, order)
        with portal.client() as client:
            refused = client.post(
                f"/api/requests/{request}/copies", json={**order, "to": "s3://absent"}
            )
        by_client = Client(url=portal.url, token=bearer(portal)).copy_results(
            request,
            "s3://mine/again",
            access_key="KEYID",
            secret_key="SECRET-KEY",
            endpoint=endpoint,
        )
    assert by_client == 2
    assert there.cat_file(f"mine/again/{LAYER}/b.tif") == DATA[f"{LAYER}/b.tif"]
    assert dict(s3fs.S3FileSystem._cache) == kept  # none that has the keys
    assert last["copied"] == 2
    assert refused.status_code == 502
    assert "SECRET-KEY" not in refused.text + str(lines)
    for path, data in DATA.items():
        assert there.cat_file(f"mine/folder/{path}") == data


def test_few_copy_at_once(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    began, goes_on = threading.Semaphore(0), threading.Event()

    class Slow:
        def put(self, *_file: object) -> None:
            began.release()
            assert goes_on.wait(20)

    monkeypatch.setattr("portal.elsewhere.copies_api.open_sink", lambda _order, _allowed: Slow())
    request = filled(runtime)
    answers: list[int] = []
    with live_portal(runtime, settings()) as portal:

        def one() -> None:
            with portal.client() as client:
                answers.append(
                    client.post(f"/api/requests/{request}/copies", json={"to": "x"}).status_code
                )

        threads = [threading.Thread(target=one) for _ in range(MOST_COPYING)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert began.acquire(timeout=20)
        one()
        assert answers == [503]
        goes_on.set()
        for thread in threads:
            thread.join(20)
    assert answers == [503, 200, 200]


def test_the_description_has_the_order() -> None:
    assert set(CopyOrder.model_json_schema()["properties"]) >= {"to", "access_key", "after"}


def test_the_client_waits_for_its_turn_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(503, {"detail": "Others copy."})] * 2 + [
        (200, {"copied": 3, "left": 0, "after": ""})
    ]
    monkeypatch.setattr(client_of_portal, "BUSY_SECONDS", 0.0)

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.extensions["timeout"]["read"] >= 1800  # of a large file
        status, said = answers.pop(0)
        return httpx.Response(status, json=said)

    client = Client(url="http://portal", token="t", transport=httpx.MockTransport(answer))
    assert client.copy_results("r", "s3://bucket") == 3
    assert answers == []
