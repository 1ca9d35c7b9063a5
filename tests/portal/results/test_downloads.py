"""Ranges, archives and names of downloads."""

import io
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.results.downloads import (
    Span,
    UnsatisfiableError,
    manifest_text,
    packed_parts,
    parse_range,
    zip_chunks,
)
from portal.results.result_files import TAIL, ResultFile, ResultIndex, ResultReader
from portal.serving.attachments import attachment
from portal.serving.problems import GoneError
from tasks.bag.model import ArtifactFile
from tasks.errors import CorruptBlobError
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.blobs import Blobs, MemoryBlobs, bytes_digest


class EndlessBlobs(MemoryBlobs):
    """Blobs of a given size whose content is made as it is read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bytes = size

    def stream(
        self,
        _container: str,
        _name: str,
        start: int = 0,
        length: int | None = None,
    ) -> Iterator[bytes]:
        assert (start, length) == (0, None)
        for _ in range(self.bytes >> 20):
            yield bytes(1 << 20)


PART = 6_000_000


class PartedBlobs(MemoryBlobs):
    """Blobs that come in parts, as large ones do."""

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        (whole,) = super().stream(container, name, start, length)
        return (whole[n : n + PART] for n in range(0, len(whole), PART))


def result(path: str, blob: str, size: int, sha256: str) -> ResultFile:
    file = ArtifactFile(name=path, blob=blob, size=size, sha256=sha256)
    return ResultFile(path=path, file=file, key="ab" * 32)


def reader(blobs: Blobs) -> ResultReader:
    """Reads results whose tasks are unknown."""
    runtime = replace(memory_runtime(), blobs=blobs)
    return ResultReader(runtime=runtime, index=ResultIndex(), request="r")


@pytest.mark.parametrize(
    ("header", "span"),
    [
        ("bytes=0-0", Span(start=0, length=1)),
        ("bytes=10-19", Span(start=10, length=10)),
        ("bytes=90-", Span(start=90, length=10)),
        ("bytes=-5", Span(start=95, length=5)),
        ("bytes=-500", Span(start=0, length=100)),
        ("bytes=50-900", Span(start=50, length=50)),
        ("bytes=20-10", None),
        ("bytes=0-1,5-6", None),
        ("items=0-1", None),
        ("bytes=-", None),
        pytest.param(f"bytes={'9' * 5000}-", None, id="thousands of digits"),
        ("", None),
    ],
)
def test_a_range_is_read_as_the_standard_says(header: str, span: Span | None) -> None:
    assert parse_range(header, 100) == span


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=500-600", "bytes=-0"])
def test_a_range_beyond_the_end_cannot_be_sent(header: str) -> None:
    with pytest.raises(UnsatisfiableError):
        parse_range(header, 100)


@given(st.text(alphabet="bytes=-0123456789, ", max_size=30), st.integers(0, 1000))
def test_a_span_always_lies_in_the_file(header: str, size: int) -> None:
    try:
        span = parse_range(header, size)
    except UnsatisfiableError:
        return
    if span is not None:
        assert span.length > 0
        assert span.start >= 0
        assert span.start + span.length <= size


def test_an_archive_holds_the_files_as_they_are() -> None:
    blobs = MemoryBlobs()
    contents = {"a/one.tif": b"one" * 1000, "b/zwei ü.json": b"{}", "c/empty.txt": b""}
    files = []
    for number, (path, data) in enumerate(contents.items()):
        blobs.put_bytes("artifacts", f"{number}", data)
        files.append(result(path, f"artifacts/{number}", len(data), bytes_digest(data).sha256))
    archive = zipfile.ZipFile(io.BytesIO(b"".join(zip_chunks(reader(blobs), files))))
    assert archive.testzip() is None
    assert {name: archive.read(name) for name in archive.namelist()} == contents
    assert all(item.compress_type == zipfile.ZIP_STORED for item in archive.infolist())


def test_an_archive_takes_no_more_memory_for_more_bytes() -> None:
    blobs = EndlessBlobs(64 << 20)
    digest = bytes_digest(bytes(blobs.bytes)).sha256
    files = [result(f"{n}.tif", f"artifacts/{n}", blobs.bytes, digest) for n in range(2)]
    tracemalloc.start()
    sent = sum(len(chunk) for chunk in zip_chunks(reader(blobs), files))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sent > 128 << 20
    assert peak < 16 << 20


@pytest.mark.parametrize("at", [5, 7_000_000, 16_999_999])
def test_what_storage_has_damaged_breaks_off_before_its_end(at: int) -> None:
    blobs = PartedBlobs()
    good = bytes(17_000_000)
    blobs.put_bytes("artifacts", "it", good[:at] + b"x" + good[at + 1 :])
    file = result("it.tif", "artifacts/it", len(good), bytes_digest(good).sha256)
    sent: list[bytes] = []
    with pytest.raises(GoneError, match=r"it\.tif, or damaged it.*Submit the request again"):
        sent.extend(reader(blobs).whole(file))
    assert sum(map(len, sent)) == len(good) - TAIL
    with pytest.raises(GoneError):
        list(zip_chunks(reader(blobs), [file]))
    packed: list[bytes] = []
    with pytest.raises(GoneError):
        packed.extend(packed_parts(reader(blobs).whole(file)))
    unpacking = zlib.decompressobj(wbits=31)
    unpacking.decompress(b"".join(packed))
    assert not unpacking.eof
    blobs.delete("artifacts", "it")
    with pytest.raises(GoneError):
        reader(blobs).whole(file)
    blobs.put_bytes("artifacts", "it", good)
    assert b"".join(reader(blobs).whole(file)) == good


def test_what_was_damaged_on_its_way_is_not_given_up() -> None:
    class Glitch(MemoryBlobs):
        readings = 0

        def stream(
            self, container: str, name: str, start: int = 0, length: int | None = None
        ) -> Iterator[bytes]:
            self.readings += 1
            good = super().stream(container, name, start, length)
            return iter([b"glitch"]) if self.readings == 1 else good

    blobs = Glitch()
    stored = blobs.put_bytes("artifacts", "it", b"good")
    with pytest.raises(CorruptBlobError):
        list(reader(blobs).whole(result("it.tif", "artifacts/it", 4, stored.sha256)))


def test_the_manifest_is_what_sha256sum_reads() -> None:
    lines = b"".join(manifest_text([result("a/b.tif", "x/y", 1, "0f" * 32)]))
    assert lines == b"0f" * 32 + b"  a/b.tif\n"


def test_a_name_cannot_break_out_of_its_header() -> None:
    header = attachment('ev"il\r\nX: y ü.tif')
    assert "\r" not in header
    assert "\n" not in header
    assert header.count('"') == 2
    assert "%C3%BC" in header
