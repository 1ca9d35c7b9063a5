"""Transfers in parts: whole or not at all, verified, and stubborn within limits (on Azurite)."""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from azure.core.exceptions import (
    HttpResponseError,
    IncompleteReadError,
    ResourceExistsError,
    ServiceResponseError,
)
from azure.core.pipeline import Pipeline, PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import HTTPPolicy
from azure.core.pipeline.transport import HttpRequest, HttpResponse
from azure.storage.blob import BlobClient, BlobServiceClient, ContentSettings

from tasks.errors import BlobExistsError, CorruptBlobError
from tasks.storage.azure.blobs import AzureBlobs
from tasks.storage.azure.transfer_shapes import DOWN, MIB, UP, Shape
from tasks.storage.azure.transfers import download, upload
from tasks.storage.blobs import ARTIFACTS, bytes_digest, is_damaged

pytestmark = pytest.mark.integration
SMALL = Shape(single=1000, parts=4, least=1000, most=5000, parallel=3)
DATA = os.urandom(23_456)

Asked = PipelineRequest[HttpRequest]
Answered = PipelineResponse[HttpRequest, HttpResponse]
Fault = Callable[[Asked, Callable[[], Answered]], Answered]


class Wire(HTTPPolicy[HttpRequest, HttpResponse]):
    """What lies between the client and storage; counts calls, and has faults for the next ones."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.faults: dict[str, list[Fault]] = {}

    def send(self, request: Asked) -> Answered:
        http = request.http_request
        what = next((w for w in ("blocklist", "block") if f"comp={w}" in http.url), http.method)
        self.calls.append(what)
        if faults := self.faults.get(what):
            return faults.pop(0)(request, lambda: self.next.send(request))
        return self.next.send(request)


def lost(_request: Asked, send: Callable[[], Answered]) -> Answered:
    """The request arrives and takes effect, its answer does not come back."""
    send()
    raise ServiceResponseError("connection reset")


def unsent(_request: Asked, _send: Callable[[], Answered]) -> Answered:
    """The request does not arrive."""
    raise ServiceResponseError("connection reset")


def mangled(request: Asked, send: Callable[[], Answered]) -> Answered:
    """A byte changes on the way."""
    body = request.http_request.body
    assert isinstance(body, bytes)
    request.http_request.set_bytes_body(bytes([body[0] ^ 1]) + body[1:])
    return send()


def cut(after: int) -> Fault:
    """The stream of the answer breaks after so many bytes."""

    def fault(_request: Asked, send: Callable[[], Answered]) -> Answered:
        answer = send()
        whole = answer.http_response.stream_download

        def stream(pipeline: Pipeline[HttpRequest, HttpResponse], **more: bool) -> Iterator[bytes]:
            data = b"".join(whole(pipeline, **more))
            yield data[:after]
            raise IncompleteReadError("the connection was closed")

        answer.http_response.stream_download = stream  # type: ignore[method-assign]
        return answer

    return fault


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def blobs(azurite: str, wire: Wire) -> Iterator[AzureBlobs]:
    with (
        BlobServiceClient.from_connection_string(azurite) as reads,
        BlobServiceClient.from_connection_string(
            azurite, retry_total=0, _additional_pipeline_policies=[wire]
        ) as writes,
    ):
        found = AzureBlobs(reads, writes, sleep=lambda _seconds: None)
        found.create([ARTIFACTS])
        yield found


@pytest.fixture
def client(blobs: AzureBlobs) -> BlobClient:
    """A blob of the test's own."""
    return blobs._writes.get_blob_client(ARTIFACTS, uuid.uuid4().hex)


def put(client: BlobClient, data: bytes, shape: Shape = SMALL) -> str:
    stored = upload(
        client,
        BytesIO(data),
        len(data),
        metadata=lambda digest: {"sha256": digest},
        sleep=lambda _seconds: None,
        shape=shape,
    )
    assert stored == bytes_digest(data)
    return stored.sha256


def got(client: BlobClient, shape: Shape = SMALL) -> bytes:
    parts: list[bytes] = []
    known = download(client, parts.append, sleep=lambda _seconds: None, shape=shape)
    data = b"".join(parts)
    if len(data) > shape.single:
        assert known.metadata["sha256"] == hashlib.sha256(data).hexdigest()
    else:
        assert known.md5 == hashlib.md5(data, usedforsecurity=False).digest()
    return data


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 5000, 23_456])
def test_every_size_comes_back(client: BlobClient, size: int) -> None:
    put(client, DATA[:size])
    assert got(client) == DATA[:size]


def test_blocks_grow_with_the_file() -> None:
    assert [UP.block(n * MIB) // MIB for n in (5, 33, 200, 201, 2000)] == [4, 5, 25, 26, 32]
    assert DOWN.block(2**40) == DOWN.most


def test_what_a_call_brought_is_checked_and_sent_again(client: BlobClient, wire: Wire) -> None:
    wire.faults["block"] = [mangled]
    put(client, DATA)
    assert got(client) == DATA
    assert wire.calls.count("block") == 1 + 5  # 23,456 bytes by 5,000, one of them twice
    assert wire.calls.count("blocklist") == 1


def test_a_small_file_that_arrived_changed_is_told_by_its_reader(
    client: BlobClient, wire: Wire, blobs: AzureBlobs, tmp_path: Path
) -> None:
    wire.faults["PUT"] = [mangled]
    recorded = put(client, DATA[:500])
    with pytest.raises(CorruptBlobError) as caught:
        blobs.get_file(ARTIFACTS, client.blob_name, tmp_path / "file", recorded)
    assert is_damaged(blobs, caught.value)


@pytest.mark.parametrize(("call", "size"), [("PUT", 500), ("block", 9000), ("blocklist", 9000)])
@pytest.mark.parametrize("fault", [lost, unsent])
def test_a_broken_call_is_made_again(
    blobs: AzureBlobs, wire: Wire, tmp_path: Path, call: str, size: int, fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("tasks.storage.azure.blobs.transfers.upload", _small_upload)
    wire.faults[call] = [fault]
    name = uuid.uuid4().hex
    path = tmp_path / "file"
    path.write_bytes(DATA[:size])
    assert blobs.put_file(ARTIFACTS, name, path) == bytes_digest(DATA[:size])
    assert blobs.get_bytes(ARTIFACTS, name) == DATA[:size]


def _small_upload(*args: object, **more: object) -> object:
    return upload(*args, **{**more, "shape": SMALL})  # type: ignore[arg-type]


def test_an_upload_that_ends_in_the_middle_shows_nothing(client: BlobClient, wire: Wire) -> None:
    wire.faults["block"] = [unsent] * 50
    with pytest.raises(ServiceResponseError):
        put(client, DATA)
    assert not client.exists()
    assert wire.calls.count("block") <= 4 * 5
    wire.faults.clear()
    wire.faults["blocklist"] = [unsent] * 4
    with pytest.raises(ServiceResponseError):
        put(client, DATA)
    assert not client.exists()


def test_a_name_that_is_taken_stays_as_it_is(
    client: BlobClient, blobs: AzureBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, DATA)
    for data in (DATA[:10], DATA[::-1]):
        with pytest.raises(ResourceExistsError):
            put(client, data)
    assert got(client) == DATA
    monkeypatch.setattr("tasks.storage.azure.blobs.transfers.upload", _small_upload)
    assert blobs.put_bytes(ARTIFACTS, client.blob_name, DATA) == bytes_digest(DATA)
    with pytest.raises(BlobExistsError):
        blobs.put_bytes(ARTIFACTS, client.blob_name, DATA[::-1])


def test_what_does_not_pass_is_not_tried_again(client: BlobClient, wire: Wire) -> None:
    elsewhere = BlobClient(
        client.url.split(ARTIFACTS)[0], "no-such-container", "x", credential=client.credential,
        retry_total=0, _additional_pipeline_policies=[wire],
    )  # fmt: skip
    with elsewhere, pytest.raises(HttpResponseError):
        put(elsewhere, DATA[:10])
    assert wire.calls.count("PUT") == 1


def test_a_blob_that_rotted_is_noticed_without_being_told_its_checksum(
    client: BlobClient, blobs: AzureBlobs, tmp_path: Path
) -> None:
    put(client, DATA)
    client.upload_blob(DATA[::-1], overwrite=True, metadata={"sha256": bytes_digest(DATA).sha256})
    with pytest.raises(CorruptBlobError):
        blobs.get_file(ARTIFACTS, client.blob_name, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_small_blob_that_rotted_is_noticed_by_the_md5_that_storage_keeps(
    client: BlobClient, blobs: AzureBlobs, tmp_path: Path
) -> None:
    put(client, DATA[:500])
    blobs.get_file(ARTIFACTS, client.blob_name, tmp_path / "file")
    other = bytearray(hashlib.md5(b"other", usedforsecurity=False).digest())
    client.set_http_headers(ContentSettings(content_md5=other))
    with pytest.raises(CorruptBlobError):
        blobs.get_file(ARTIFACTS, client.blob_name, tmp_path / "again")
    blobs.get_file(ARTIFACTS, client.blob_name, tmp_path / "told", bytes_digest(DATA[:500]).sha256)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "told"]


@pytest.mark.parametrize("size", [900, 9000])
def test_a_stream_that_breaks_goes_on_where_it_broke(
    client: BlobClient, wire: Wire, size: int
) -> None:
    put(client, DATA[:size])
    wire.calls.clear()
    wire.faults["GET"] = [cut(300), cut(0)]
    assert got(client) == DATA[:size]
    assert wire.calls.count("GET") == (1 if size == 900 else 3) + 2


def test_a_stream_that_goes_on_breaking_is_given_up(client: BlobClient, wire: Wire) -> None:
    put(client, DATA[:900])
    wire.faults["GET"] = [cut(10)] * 20
    parts: list[bytes] = []
    with pytest.raises(IncompleteReadError):
        download(client, parts.append, sleep=lambda _seconds: None, shape=SMALL)
    assert wire.calls.count("GET") == 4
    assert b"".join(parts) == DATA[:40]


@pytest.mark.parametrize("size", [3 * MIB, 9 * MIB])
def test_on_a_bad_line_smaller_pieces_go_through(client: BlobClient, wire: Wire, size: int) -> None:
    sent: list[int] = []

    def bad_line(request: Asked, send: Callable[[], Answered]) -> Answered:
        body = request.http_request.body
        assert isinstance(body, bytes)
        sent.append(len(body))
        if len(body) > 300_000:
            raise ServiceResponseError("timed out")
        return send()

    data = os.urandom(size)
    wire.faults = {"PUT": [bad_line] * 99, "block": [bad_line] * 99}
    put(client, data, UP)
    parts: list[bytes] = []
    download(client, parts.append, sleep=lambda _seconds: None)
    assert b"".join(parts) == data
    arrived = [one for one in sent if one <= 300_000]
    assert sum(arrived) == size
    # Calls that broke: at most two of each size, for each of the blocks sent at once.
    assert len(sent) - len(arrived) <= 3 * 2 * UP.parallel
