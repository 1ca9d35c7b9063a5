"""One contract for every place blobs are kept: memory, files, Azure Storage (Azurite)."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from tasks.errors import BlobExistsError, BlobMissingError, CorruptBlobError
from tasks.storage.azure.blobs import AzureBlobs
from tasks.storage.azure.transfers import transfer_sizes
from tasks.storage.blobs import (
    ARTIFACTS,
    Blobs,
    MemoryBlobs,
    artifact_name,
    bytes_digest,
    is_damaged,
    split_blob,
)
from tasks.storage.file_blobs import FileBlobs


@pytest.fixture(params=["memory", "files", pytest.param("azurite", marks=pytest.mark.integration)])
def blobs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Blobs]:
    """Each implementation in turn."""
    if request.param == "memory":
        yield MemoryBlobs()
        return
    if request.param == "files":
        files = FileBlobs(tmp_path_factory.mktemp("blobs") / "blobs")
        files.create([ARTIFACTS])
        files.create([ARTIFACTS])
        yield files
        return
    connection = request.getfixturevalue("azurite")
    with BlobServiceClient.from_connection_string(connection, **transfer_sizes()) as service:
        found = AzureBlobs(service)
        found.create([ARTIFACTS])
        found.create([ARTIFACTS])
        yield found


@pytest.fixture
def name() -> str:
    """A name of the test's own."""
    return artifact_name(uuid.uuid4().hex, "claim", "cell.tif")


def test_what_is_put_comes_back(blobs: Blobs, name: str, tmp_path: Path) -> None:
    stored = blobs.put_bytes(ARTIFACTS, name, b"hello")
    assert stored == bytes_digest(b"hello")
    assert blobs.get_bytes(ARTIFACTS, name) == b"hello"
    assert blobs.size(ARTIFACTS, name) == 5
    assert blobs.exists(ARTIFACTS, name)
    blobs.get_file(ARTIFACTS, name, tmp_path / "copy", stored.sha256)
    assert (tmp_path / "copy").read_bytes() == b"hello"
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


def test_files_and_empty_blobs(blobs: Blobs, name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1_000_000)
    assert blobs.put_file(ARTIFACTS, name, path).size == 1_000_000
    blobs.put_bytes(ARTIFACTS, name + ".empty", b"")
    assert blobs.get_bytes(ARTIFACTS, name + ".empty") == b""
    assert blobs.get_bytes(ARTIFACTS, name) == path.read_bytes()


def test_nothing_is_overwritten_and_the_same_again_is_success(blobs: Blobs, name: str) -> None:
    first = blobs.put_bytes(ARTIFACTS, name, b"one")
    assert blobs.put_bytes(ARTIFACTS, name, b"one") == first
    with pytest.raises(BlobExistsError, match=r"cell\.tif"):
        blobs.put_bytes(ARTIFACTS, name, b"two")
    assert blobs.get_bytes(ARTIFACTS, name) == b"one"


def test_a_missing_blob_is_named(blobs: Blobs, name: str, tmp_path: Path) -> None:
    for call in (
        lambda: blobs.get_bytes(ARTIFACTS, name),
        lambda: blobs.size(ARTIFACTS, name),
        lambda: next(blobs.stream(ARTIFACTS, name)),
        lambda: blobs.get_file(ARTIFACTS, name, tmp_path / "copy"),
    ):
        with pytest.raises(BlobMissingError) as caught:
            call()
        assert split_blob(caught.value.blob) == (ARTIFACTS, name)
    assert not blobs.exists(ARTIFACTS, name)
    assert list(tmp_path.iterdir()) == []


def test_other_content_than_recorded_leaves_no_file(
    blobs: Blobs, name: str, tmp_path: Path
) -> None:
    blobs.put_bytes(ARTIFACTS, name, b"hello")
    with pytest.raises(CorruptBlobError, match="checksum"):
        blobs.get_file(ARTIFACTS, name, tmp_path / "copy", bytes_digest(b"other").sha256)
    assert list(tmp_path.iterdir()) == []


def test_a_blob_is_damaged_when_it_reads_so_twice(blobs: Blobs, name: str) -> None:
    stored = blobs.put_bytes(ARTIFACTS, name, b"damaged")
    blob = f"{ARTIFACTS}/{name}"
    assert not is_damaged(blobs, CorruptBlobError(blob, "recorded", "read on the way"))
    assert is_damaged(blobs, CorruptBlobError(blob, "recorded", stored.sha256))
    blobs.delete(ARTIFACTS, name)
    assert is_damaged(blobs, CorruptBlobError(blob, "recorded", stored.sha256))


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [(0, None, b"0123456789"), (3, None, b"3456789"), (3, 4, b"3456"), (8, 10, b"89")],
)
def test_parts_are_streamed(
    blobs: Blobs, name: str, start: int, length: int | None, expected: bytes
) -> None:
    blobs.put_bytes(ARTIFACTS, name, b"0123456789")
    assert b"".join(blobs.stream(ARTIFACTS, name, start, length)) == expected


def test_names_by_prefix_in_order_and_deletion_twice(blobs: Blobs) -> None:
    key = uuid.uuid4().hex
    for file in ("b", "a", "c"):
        blobs.put_bytes(ARTIFACTS, artifact_name(key, "claim", file), b"x")
    prefix = f"{key}/"
    assert list(blobs.names(ARTIFACTS, prefix)) == [f"{key}/claim/{n}" for n in "abc"]
    blobs.delete(ARTIFACTS, f"{key}/claim/b")
    blobs.delete(ARTIFACTS, f"{key}/claim/b")
    assert list(blobs.names(ARTIFACTS, prefix)) == [f"{key}/claim/{n}" for n in "ac"]
