"""Files to and from blob storage: small ones in one call, large ones in parts sent side by side.

What transfer studies of Azure storage found (Hill et al. 2010; Gillen's measurements): one client
on one connection gets a fraction of its network, so parts go in parallel, each with an MD5 that
the service checks; and fewer, larger calls are better than many small ones. A blob appears by the
commit of its list of blocks, or by its one call: never in half.
"""

import base64
import hashlib
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Generic, TypedDict, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.storage.blob import BlobBlock, BlobClient

from tasks.blobs import Stored
from tasks.errors import CorruptBlobError

Part = TypeVar("Part")
Answer = TypeVar("Answer")

MIB = 2**20
_BESIDE = MIB  # bytes whose digest is worth a thread
_TRIES = 4
_PAUSE = 0.3  # seconds before the second try; it doubles
_BAD, _NO_RANGE = 400, 416
_PASSING = (408, 429, 500, 502, 503, 504)


class TransferSizes(TypedDict):
    """Arguments of the SDK's client that say when it splits a transfer by itself; bytes."""

    max_single_put_size: int
    max_block_size: int
    max_single_get_size: int
    max_chunk_get_size: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How files are cut: whole up to `single` bytes, then into about `parts` blocks of between
    `least` and `most` bytes, `parallel` of them under way at once."""

    single: int
    parts: int
    least: int
    most: int
    parallel: int

    def block(self, size: int) -> int:
        """The block size for a file of `size` bytes, in whole MiB."""
        wanted = -(-size // self.parts)
        return min(max(self.least, -(-wanted // MIB) * MIB), self.most)


UP = Shape(single=32 * MIB, parts=16, least=8 * MIB, most=32 * MIB, parallel=4)
DOWN = Shape(single=32 * MIB, parts=16, least=16 * MIB, most=32 * MIB, parallel=4)


def transfer_sizes() -> TransferSizes:
    """The SDK's own splitting, out of the way of ours."""
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
) -> Stored:
    """Store `size` bytes read from `file` under a new name.

    The blob gets the metadata made from its SHA-256. Each call is tried again when its failure
    passes; that one which took effect though its answer was lost then finds the name taken.

    Raises:
        azure.core.exceptions.ResourceExistsError: the name is taken, perhaps by this very call.
        azure.core.exceptions.AzureError: storage failed, and went on failing.
        CorruptBlobError: storage has other bytes than were sent.
    """
    if size <= shape.single:
        return _upload_whole(client, file.read(), metadata, sleep)
    running, blocks, total = hashlib.sha256(), list[BlobBlock](), 0
    prefix = uuid.uuid4().hex[:12]
    with ThreadPoolExecutor(shape.parallel, thread_name_prefix="block") as pool:
        window = _Window[None](shape.parallel)
        try:
            for number, data in enumerate(_blocks(file, shape.block(size))):
                name = base64.b64encode(f"{prefix}-{number:06d}".encode()).decode()
                window.add(pool.submit(_stage, client, name, data, sleep))
                blocks.append(BlobBlock(name))
                running.update(data)
                total += len(data)
            for _ in window.rest():
                continue
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
    return Stored(size=total, sha256=digest)


def _upload_whole(
    client: BlobClient,
    data: bytes,
    metadata: Callable[[str], Mapping[str, str]],
    sleep: Callable[[float], None],
) -> Stored:
    """One call. The service answers with the MD5 of what it got (Put Blob, response headers), so
    that ours of much data is computed while the bytes are on their way."""
    digest = hashlib.sha256(data).hexdigest()

    def send() -> Mapping[str, object]:
        return client.upload_blob(
            data,
            length=len(data),
            overwrite=False,
            metadata=dict(metadata(digest)),
            max_concurrency=1,
        )

    if len(data) < _BESIDE:
        stored, mine = steadily(send, sleep).get("content_md5"), _md5(data)
    else:
        with ThreadPoolExecutor(1, thread_name_prefix="md5") as pool:
            beside = pool.submit(_md5, data)
            stored, mine = steadily(send, sleep).get("content_md5"), beside.result()
    if isinstance(stored, bytes | bytearray) and bytes(stored) != mine:
        raise CorruptBlobError(client.blob_name, mine.hex(), bytes(stored).hex())
    return Stored(size=len(data), sha256=digest)


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def download(
    client: BlobClient, write: Callable[[bytes], object], *, shape: Shape = DOWN
) -> Mapping[str, str]:
    """Give a blob's content to `write` in order; returns the blob's metadata.

    The first call brings as much as a small file has, and says how much more there is; that comes
    in ranges side by side.

    Raises:
        azure.core.exceptions.ResourceNotFoundError: there is no such blob.
        azure.core.exceptions.AzureError: storage failed, and went on failing.
    """
    try:
        first = client.download_blob(offset=0, length=shape.single, max_concurrency=1)
    except HttpResponseError as error:
        if error.status_code != _NO_RANGE:
            raise
        return client.get_blob_properties().metadata or {}  # it is empty
    # Its `size` is that of the range asked for; "bytes 0-9/10" has the whole one.
    size = int(str(first.properties.content_range).rpartition("/")[2])
    metadata = dict(first.properties.metadata or {})
    if size <= shape.single:
        write(first.readall())
        return metadata
    step = shape.block(size)
    with ThreadPoolExecutor(shape.parallel, thread_name_prefix="range") as pool:
        window = _Window[bytes](shape.parallel)
        try:
            window.add(pool.submit(first.readall))
            for start in range(shape.single, size, step):
                future = pool.submit(_range, client, start, min(step, size - start))
                for data in window.add(future):
                    write(data)
            for data in window.rest():
                write(data)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return metadata


def steadily(call: Callable[[], Answer], sleep: Callable[[float], None]) -> Answer:
    """Make a call, and again after failures that pass; never more often than the limit."""
    for number in range(_TRIES - 1):
        try:
            return call()
        except (ServiceRequestError, ServiceResponseError):
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
        """The results of all others."""
        while self._calls:
            yield self._calls.popleft().result()


def _blocks(file: BinaryIO, block: int) -> Iterator[bytes]:
    while data := file.read(block):
        yield data


def _stage(client: BlobClient, name: str, data: bytes, sleep: Callable[[float], None]) -> None:
    steadily(lambda: client.stage_block(name, data, length=len(data), validate_content=True), sleep)


def _range(client: BlobClient, start: int, length: int) -> bytes:
    return client.download_blob(offset=start, length=length, max_concurrency=1).readall()
