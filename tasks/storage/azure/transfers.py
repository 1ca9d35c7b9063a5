"""Files to and from blob storage: small ones in one call, large ones in parts sent side by side.

What transfer studies of Azure storage found (Hill et al. 2010; Gillen's measurements): one client
on one connection gets a fraction of its network, so parts go in parallel, each with an MD5 that
the service checks; and fewer, larger calls are better than many small ones. A blob appears by the
commit of its list of blocks, or by its one call: never in half. Digests are computed while bytes
are on their way, not before or after. On a bad line, where large calls break and small ones still
go through (Gillen), what broke is sent again in smaller pieces.
"""

import base64
import hashlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import islice
from typing import BinaryIO, Generic, TypedDict, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.storage.blob import BlobBlock, BlobClient, BlobProperties
from azure.storage.blob._generated.models import ModifiedAccessConditions
from azure.storage.blob._shared.response_handlers import process_storage_error

from tasks.storage.azure.transfer_shapes import DOWN, MIB, UP, Shape
from tasks.storage.blobs import StoredBlob

Part = TypeVar("Part")
Answer = TypeVar("Answer")

_BESIDE = MIB // 2  # bytes whose digests are worth a thread
SMALLEST_PIECE = MIB // 4  # bytes
_TRIES = 4
_TRIES_BEFORE_CUT = 2
_BROKEN = (ServiceRequestError, ServiceResponseError)
_PAUSE = 0.3  # seconds before the second try; it doubles
_BAD, _NO_RANGE = 400, 416
_METADATA = "x-ms-meta-"
_PASSING = (408, 429, 500, 502, 503, 504)


class TransferSizes(TypedDict):
    """Arguments of the SDK's client that say when it splits a transfer by itself; bytes."""

    max_single_put_size: int
    max_block_size: int
    max_single_get_size: int
    max_chunk_get_size: int


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What storage knows of a blob's content: our metadata, and its MD5.

    Azure stores an MD5 only for blobs uploaded in a single call; blobs uploaded in blocks have
    none.
    """

    metadata: Mapping[str, str]
    md5: bytes | None


def transfer_sizes() -> TransferSizes:
    """Return sizes that switch off the SDK's own splitting."""
    return TransferSizes(
        max_single_put_size=64 * MIB,
        max_block_size=UP.most,
        max_single_get_size=DOWN.most,
        max_chunk_get_size=DOWN.most,
    )


def upload(
    client: BlobClient,
    file: BinaryIO,
    size: int,
    *,
    metadata: Callable[[str], Mapping[str, str]],
    sleep: Callable[[float], None],
    shape: Shape = UP,
) -> StoredBlob:
    """Store `size` bytes read from `file` under a new name.

    A blob that is sent in blocks gets the metadata made from its SHA-256. Each call is tried again
    when its failure passes; that one which took effect though its answer was lost then finds the
    name taken. What breaks twice is cut into pieces of a quarter, down to `SMALLEST_PIECE`, and so
    is the rest of the file.

    Raises:
        azure.core.exceptions.ResourceExistsError: the name is taken, perhaps by this very call.
        azure.core.exceptions.AzureError: storage failed, and went on failing.
    """
    pieces = _Pieces(max(size, 1) if size <= shape.single else shape.block(size))
    if size <= shape.single:
        data = file.read()
        try:
            return _upload_whole(client, data, pieces, sleep)
        except _BROKEN:
            if not pieces.cut(size):
                raise
        file = BytesIO(data)
    running, blocks, total = hashlib.sha256(), list[BlobBlock](), 0
    prefix = uuid.uuid4().hex[:12]
    with ThreadPoolExecutor(shape.parallel, thread_name_prefix="block") as pool:
        window = _Window[list[BlobBlock]](shape.parallel)
        try:
            for data in _blocks(file, pieces.size):
                name = f"{prefix}-{total:015d}"
                call = pool.submit(_stage, client, name, data, pieces, sleep)
                for staged in window.add(call):
                    blocks += staged
                running.update(data)
                total += len(data)
            for staged in window.rest():
                blocks += staged
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    digest = running.hexdigest()
    steadily(
        lambda: client.commit_block_list(
            blocks, metadata=dict(metadata(digest)), match_condition=MatchConditions.IfMissing
        ),
        sleep,
    )
    return StoredBlob(size=total, sha256=digest)


@dataclass
class _Pieces:
    """The bytes that one call of an upload sends; fewer after calls that broke."""

    size: int

    @property
    def tries(self) -> int:
        """The number of tries of a call before it is cut or given up."""
        return _TRIES_BEFORE_CUT if self.size > SMALLEST_PIECE else _TRIES

    def cut(self, broke: int) -> bool:
        """Make pieces a quarter of the `broke` bytes that did not go through, if they can be.

        Return False where they are as small as can be. Another thread may have cut meanwhile.
        """
        if broke <= SMALLEST_PIECE:
            return False
        self.size = min(self.size, max(broke // 4, SMALLEST_PIECE))
        return True


def _upload_whole(
    client: BlobClient, data: bytes, pieces: _Pieces, sleep: Callable[[float], None]
) -> StoredBlob:
    """Upload in one call.

    TLS protects the bytes on their way and readers compare the SHA-256, so the service computes the
    MD5: computing it here costs more than twice as much time.
    """

    def send() -> None:
        client.upload_blob(data, length=len(data), overwrite=False, max_concurrency=1)

    digests: list[str] = []

    def digest() -> None:
        digests.append(hashlib.sha256(data).hexdigest())

    if len(data) < _BESIDE:
        steadily(send, sleep, pieces.tries)
        digest()
    else:
        beside = threading.Thread(target=digest, name="digest")
        beside.start()
        try:
            steadily(send, sleep, pieces.tries)
        finally:
            beside.join()
    return StoredBlob(size=len(data), sha256=digests[0])


def download(
    client: BlobClient,
    write: Callable[[bytes], object],
    *,
    sleep: Callable[[float], None] = time.sleep,
    shape: Shape = DOWN,
) -> Recorded:
    """Give a blob's content to `write` in order, as it comes.

    The first call brings as much as a small file has, and says how much more there is; that comes
    in ranges side by side. A stream that breaks is taken up where it broke.

    Raises:
        azure.core.exceptions.ResourceNotFoundError: there is no such blob.
        azure.core.exceptions.AzureError: storage failed, and went on failing.
    """
    try:
        first = _Stream.open(client, 0, shape.single)
    except HttpResponseError as error:
        if error.status_code != _NO_RANGE:
            raise
        return recorded(client.get_blob_properties())  # it is empty
    size = first.of
    if size <= shape.single:
        first.pour(write, sleep)
        return first.recorded
    step = shape.block(size)
    with ThreadPoolExecutor(shape.parallel, thread_name_prefix="range") as pool:
        window = _Window[bytes](shape.parallel)
        starts = iter(range(shape.single, size, step))

        def ask(start: int) -> list[bytes]:
            length = min(step, size - start)
            return window.add(pool.submit(_range, client, start, length, sleep))

        try:
            for start in islice(starts, shape.parallel - 1):
                ask(start)
            first.pour(write, sleep)
            for start in starts:
                for data in ask(start):
                    write(data)
            for data in window.rest():
                write(data)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return first.recorded


def recorded(properties: BlobProperties) -> Recorded:
    """Return what a blob's properties say of its content."""
    md5 = properties.content_settings.content_md5
    return Recorded(metadata=dict(properties.metadata or {}), md5=bytes(md5) if md5 else None)


@dataclass(kw_only=True)
class _Stream:
    """A range of a blob on its way: what is left of it, and how large the blob is."""

    client: BlobClient
    start: int
    end: int  # exclusive
    of: int
    etag: str
    recorded: Recorded
    parts: Iterator[bytes]

    @classmethod
    def open(cls, client: BlobClient, start: int, length: int, etag: str = "") -> "_Stream":
        """Ask for a range.

        The generated client below the SDK's gives the bytes as they come; the SDK's own client
        reads them all before it answers.
        """
        condition = ModifiedAccessConditions(if_match=etag) if etag else None
        try:
            response, parts = client._client.blob.download(
                range=f"bytes={start}-{start + length - 1}",
                modified_access_conditions=condition,
                cls=lambda answer, body, _headers: (answer.http_response, body),
            )
        except HttpResponseError as error:
            process_storage_error(error)
        headers = response.headers
        span, _, whole = headers["Content-Range"].removeprefix("bytes ").partition("/")
        md5 = headers.get("x-ms-blob-content-md5") or headers.get("Content-MD5")
        return cls(
            client=client,
            start=start,
            end=int(span.partition("-")[2]) + 1,
            of=int(whole),
            etag=headers["ETag"],
            recorded=Recorded(
                metadata={
                    name[len(_METADATA) :]: value
                    for name, value in headers.items()
                    if name.lower().startswith(_METADATA)
                },
                md5=base64.b64decode(md5) if md5 else None,
            ),
            parts=parts,
        )

    def pour(self, write: Callable[[bytes], object], sleep: Callable[[float], None]) -> None:
        """Give the bytes to `write`; where the stream breaks, ask for the rest of it."""
        for number in range(_TRIES):
            try:
                for part in self.parts:
                    write(part)
                    self.start += len(part)
            except (ServiceResponseError, IncompleteReadError, HttpResponseError):
                if number == _TRIES - 1:
                    raise
            if self.start >= self.end:
                return
            sleep(_PAUSE * 2.0**number)
            rest = self.open(self.client, self.start, self.end - self.start, self.etag)
            self.parts = rest.parts
        raise IncompleteReadError(f"{self.client.blob_name} ends after {self.start} bytes")


def steadily(
    call: Callable[[], Answer], sleep: Callable[[float], None], tries: int = _TRIES
) -> Answer:
    """Make a call, and again after failures that pass; never more often than the limit."""
    for number in range(tries - 1):
        try:
            return call()
        except _BROKEN:
            pass
        except HttpResponseError as error:
            # Azure's code is Md5Mismatch; Azurite has InvalidOperation and says it in words.
            mangled = error.status_code == _BAD and "md5" in str(error).lower()
            if error.status_code not in _PASSING and not mangled:
                raise
        sleep(_PAUSE * 2.0**number)
    return call()


class _Window(Generic[Part]):
    """Calls under way, oldest first: as many as run at once and one more, to bound memory."""

    def __init__(self, parallel: int) -> None:
        self._parallel = parallel
        self._calls: deque[Future[Part]] = deque()

    def add(self, call: Future[Part]) -> list[Part]:
        """Take in a call; the results of those that had to be waited for."""
        self._calls.append(call)
        done: list[Part] = []
        while len(self._calls) > self._parallel + 1:
            done.append(self._calls.popleft().result())
        return done

    def rest(self) -> Iterator[Part]:
        """Yield the results of all other parts."""
        while self._calls:
            yield self._calls.popleft().result()


def _blocks(file: BinaryIO, block: int) -> Iterator[bytes]:
    while data := file.read(block):
        yield data


def _stage(
    client: BlobClient, name: str, data: bytes, pieces: _Pieces, sleep: Callable[[float], None]
) -> list[BlobBlock]:
    """Stage a block, in pieces where the line is bad; return the blocks in order."""
    staged: list[BlobBlock] = []
    start = 0
    while start < len(data):
        piece = data[start : start + pieces.size]
        # The service wants names of equal length.
        block = base64.b64encode(f"{name}-{start:09d}".encode()).decode()
        try:
            steadily(partial(_stage_piece, client, block, piece), sleep, pieces.tries)
        except _BROKEN:
            if not pieces.cut(len(piece)):
                raise
            continue
        staged.append(BlobBlock(block))
        start += len(piece)
    return staged


def _stage_piece(client: BlobClient, name: str, data: bytes) -> None:
    client.stage_block(name, data, length=len(data), validate_content=True)


def _range(client: BlobClient, start: int, length: int, sleep: Callable[[float], None]) -> bytes:
    parts: list[bytes] = []
    _Stream.open(client, start, length).pour(parts.append, sleep)
    return b"".join(parts)
