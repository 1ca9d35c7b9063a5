"""Send results in constant memory: whole files, byte ranges, and an archive of many files.

Texts go compressed to callers that accept gzip: a table of values at sites shrinks to less than a
twentieth. Rasters are compressed already. A range is always one of the stored file.
"""

import base64
import io
import itertools
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import PurePosixPath

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from isal import isal_zlib

from portal.results.result_files import ResultFile, ResultReader
from portal.serving.attachments import attachment
from portal.serving.caller_limits import CountedResponse
from tasks.storage.blobs import Served

MEDIA_TYPES = {
    ".tif": "image/tiff; application=geotiff; profile=cloud-optimized",
    ".json": "application/geo+json",
    ".csv": "text/csv; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".nc": "application/x-netcdf",
}
_TEXTS = ("text/", "application/geo+json")
_LEAST_BYTES = 500
_LEVEL = 1  # of ISA-L's 0 to 3: 2 and 3 take longer by far and save little
_GZIP = 31  # zlib's code for a gzip stream of the largest window
_UNWANTED = re.compile(r";\s*q=0(\.0*)?$")
_RANGE = re.compile(r"^bytes=(\d{0,18})-(\d{0,18})$", re.ASCII)
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A byte range of a file: its first byte and its length."""

    start: int
    length: int


class UnsatisfiableError(ValueError):
    """The range contains no byte of the file."""


def parse_range(header: str, size: int) -> Span | None:
    """Parse a `Range` header (RFC 9110, 14.2); return None if the whole file is to be sent.

    Several ranges and malformed headers give the whole file, as the standard allows. Raises
    UnsatisfiableError if the range begins beyond the end of the file.
    """
    match = _RANGE.match(header.replace(" ", ""))
    if match is None or match.group() == "bytes=-":
        return None
    first, last = match.groups()
    if not first:
        length = min(int(last), size)
        if length == 0:
            raise UnsatisfiableError(header)
        return Span(start=size - length, length=length)
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        raise UnsatisfiableError(header)
    end = min(int(last), size - 1) if last else size - 1
    return Span(start=start, length=end - start + 1)


def send_file(
    request: Request, reader: ResultReader, result: ResultFile, *, link_seconds: float = 0.0
) -> Response:
    """Send a result as an attachment with its length, ETag (its SHA-256) and byte ranges.

    A whole text goes compressed to callers that accept gzip, with an ETag of its own.
    With `link_seconds`, and where storage can sign, the answer leads to the file in storage, where
    the reader has to check it. If storage has damaged the file, a response of the portal breaks off
    before the end of the file.
    """
    file = result.file
    etag = f'"{file.sha256}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=31536000, immutable",
        "Content-Disposition": attachment(PurePosixPath(result.path).name),
        "Repr-Digest": f"sha-256=:{_base64_of_hex(file.sha256)}:",
    }
    media = MEDIA_TYPES.get(PurePosixPath(result.path).suffix.lower(), "application/octet-stream")
    shrinks = media.startswith(_TEXTS) and file.size >= _LEAST_BYTES
    if shrinks:
        headers["Vary"] = "Accept-Encoding"
    packed = shrinks and _accepts_gzip(request.headers.get("accept-encoding", ""))
    packed_etag = f'"{file.sha256}-gzip"'
    had = request.headers.get("if-none-match", "")
    if etag in had or packed_etag in had:
        headers["ETag"] = etag if etag in had else packed_etag
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    served = Served(disposition=headers["Content-Disposition"], media_type=media)
    if link := reader.link(result, link_seconds, served):
        kept = {name: headers[name] for name in ("ETag", "Repr-Digest")}
        # Each answer has a link of its own, which ends.
        return RedirectResponse(link, headers={**kept, "Cache-Control": "no-store"})
    span = None
    if request.headers.get("if-range", etag) == etag:
        try:
            span = parse_range(request.headers.get("range", ""), file.size)
        except UnsatisfiableError:
            return Response(
                status_code=HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
                headers={"Content-Range": f"bytes */{file.size}"},
            )
    if span is None and packed:
        # Length and digest would be those of the compressed bytes, which are not known yet.
        del headers["Accept-Ranges"], headers["Repr-Digest"]
        headers |= {"ETag": packed_etag, "Content-Encoding": "gzip"}
        body = _body(request, packed_parts(reader.whole(result)))
        return _streaming(body, HTTPStatus.OK, headers, media)
    if span is None:
        headers["Content-Length"] = str(file.size)
        body = _body(request, reader.whole(result))
        return _streaming(body, HTTPStatus.OK, headers, media)
    headers["Content-Length"] = str(span.length)
    headers["Content-Range"] = f"bytes {span.start}-{span.start + span.length - 1}/{file.size}"
    return _streaming(
        _body(request, reader.part(result, span.start, span.length)),
        HTTPStatus.PARTIAL_CONTENT,
        headers,
        media,
    )


def packed_parts(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a gzip file while its content is read from storage."""
    packing = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
    for part in parts:
        if some := packing.compress(part):
            yield some
    yield packing.flush()


def _accepts_gzip(header: str) -> bool:
    """Tell whether an `Accept-Encoding` names gzip (RFC 9110, 12.5.3)."""
    names = (one.strip().lower() for one in header.split(","))
    return any(one.split(";")[0] == "gzip" and not _UNWANTED.search(one) for one in names)


def send_archive(
    reader: ResultReader,
    files: Iterable[ResultFile],
    name: str,
    texts: Mapping[str, str] | None = None,
) -> Response:
    """Send all files, and `texts` by name, as one ZIP.

    It is not compressed, because COGs already are.
    """
    headers = {"Content-Disposition": attachment(name), "Cache-Control": "no-store"}
    chunks = zip_chunks(reader, files, texts)
    return _streaming(chunks, HTTPStatus.OK, headers, "application/zip")


def zip_chunks(
    reader: ResultReader,
    files: Iterable[ResultFile],
    texts: Mapping[str, str] | None = None,
) -> Iterator[bytes]:
    """Yield the bytes of a ZIP archive while its files are read from storage.

    Entries have a fixed time stamp. A blob that ends early or is damaged breaks the stream off, so
    that such an archive does not look complete.
    """
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, text in (texts or {}).items():
            archive.writestr(zipfile.ZipInfo(name, date_time=_ZIP_EPOCH), text)
        for result in files:
            entry = zipfile.ZipInfo(result.path, date_time=_ZIP_EPOCH)
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=result.file.size > 2**31) as out:
                for chunk in reader.whole(reader.current(result)):
                    out.write(chunk)
                    yield sink.drain()
            yield sink.drain()
    yield sink.drain()


def manifest_text(files: Iterable[ResultFile]) -> Iterator[bytes]:
    """Yield one line per file in the format that `sha256sum --check` reads."""
    for result in files:
        yield f"{result.file.sha256}  {result.path}\n".encode()


class _Sink(io.RawIOBase):
    """A write-only stream that keeps what has been written until it is drained."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        self._parts.append(bytes(data))
        return len(data)

    def drain(self) -> bytes:
        content = b"".join(self._parts)
        self._parts.clear()
        return content


def _body(request: Request, stream: Iterator[bytes]) -> Iterable[bytes]:
    """Read the first part of the stream early, so that a missing blob changes the status code."""
    if request.method == "HEAD":
        return ()
    return itertools.chain([next(stream, b"")], stream)


def _streaming(
    body: Iterable[bytes], status: HTTPStatus, headers: dict[str, str], media: str
) -> Response:
    return CountedResponse(body, status, headers, media)


def _base64_of_hex(digest: str) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode("ascii")
