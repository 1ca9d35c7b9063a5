"""Blobs on Azure Storage (or Azurite), by the Azure SDK."""

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeVar

from azure.core.exceptions import (
    AzureError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobClient, BlobServiceClient

from tasks.errors import BlobExistsError, BlobMissingError, CorruptBlobError, StoreError
from tasks.storage.azure import transfers
from tasks.storage.azure.transfer_shapes import BY_SIZE, DOWN, UP, Cut
from tasks.storage.blobs import CHUNK, Served, StoredBlob
from tasks.storage.signed_links import LinkSigner

T = TypeVar("T")
_DIGEST = "sha256"  # metadata key


class AzureBlobs:
    """Blobs of one storage account. A failure is a StoreError caused by the SDK's error.

    `writes` is the client that blobs are written by, whose own retries are off: what is tried again
    is known here. `cut` says how files are cut into blocks.
    """

    def __init__(
        self,
        service: BlobServiceClient,
        writes: BlobServiceClient | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        cut: Cut = BY_SIZE,
    ) -> None:
        self._service = service
        self._writes = writes or service
        self._signer = LinkSigner(service)
        self._sleep = sleep
        self._up, self._down = cut.shape(UP), cut.shape(DOWN)

    def create(self, containers: Sequence[str]) -> None:
        """Create the containers that do not exist. Raises AzureError."""
        for container in containers:
            client = self._service.get_container_client(container)
            with suppress(ResourceExistsError):
                client.create_container()

    def put_file(self, container: str, name: str, path: Path) -> StoredBlob:
        with path.open("rb") as file:
            return self._put(container, name, file, path.stat().st_size)

    def put_bytes(self, container: str, name: str, data: bytes) -> StoredBlob:
        return self._put(container, name, BytesIO(data), len(data))

    def get_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        digest = hashlib.sha256()
        handle, path = tempfile.mkstemp(dir=to.parent, prefix=f".{to.name[:40]}.")
        try:
            with os.fdopen(handle, "wb") as file:

                def write(part: bytes) -> None:
                    file.write(part)
                    digest.update(part)

                known = self._download(container, name, write)
            found, expected = digest.hexdigest(), sha256 or known.metadata.get(_DIGEST, "")
            if not expected and known.md5:
                found, expected = _md5(Path(path)), known.md5.hex()
            if expected and found != expected:
                raise CorruptBlobError(f"{container}/{name}", expected, found)
            Path(path).replace(to)
        finally:
            Path(path).unlink(missing_ok=True)

    def get_bytes(self, container: str, name: str) -> bytes:
        parts: list[bytes] = []
        self._download(container, name, parts.append)
        return b"".join(parts)

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        client = self._blob(container, name)
        with _failures(f"{container}/{name}"):
            if client.get_blob_properties().size <= start:
                return iter(())
            parts = client.download_blob(offset=start, length=length).chunks()
        return _each(parts, f"{container}/{name}")

    def exists(self, container: str, name: str) -> bool:
        with _failures(f"{container}/{name}"):
            return self._blob(container, name).exists()

    def size(self, container: str, name: str) -> int:
        with _failures(f"{container}/{name}"):
            return self._blob(container, name).get_blob_properties().size

    def delete(self, container: str, name: str) -> None:
        with _failures(f"{container}/{name}"), suppress(ResourceNotFoundError):
            self._blob(container, name).delete_blob(delete_snapshots="include")

    def names(self, container: str, prefix: str = "") -> Iterator[str]:
        client = self._service.get_container_client(container)
        return _each(client.list_blob_names(name_starts_with=prefix or None), container)

    @property
    def origin(self) -> str:
        """The origin of signed links, as a browser names it."""
        return self._signer.origin

    def signed_link(self, container: str, name: str, seconds: float, served: Served) -> str:
        """Return a link by which whoever has it reads a blob for some seconds.

        It is "" where the account cannot sign. Raises StoreError.
        """
        with _failures(f"{container}/{name}"):
            return self._signer.link(self._blob(container, name), seconds, served)

    def _blob(self, container: str, name: str) -> BlobClient:
        return self._service.get_blob_client(container, name)

    def _download(
        self, container: str, name: str, write: Callable[[bytes], object]
    ) -> transfers.Recorded:
        """Give a blob's content to `write`; returns what is recorded with it."""
        with _failures(f"{container}/{name}"):
            blob = self._blob(container, name)
            return transfers.download(blob, write, sleep=self._sleep, shape=self._down)

    def _put(self, container: str, name: str, file: BinaryIO, size: int) -> StoredBlob:
        client = self._writes.get_blob_client(container, name)
        with _failures(f"{container}/{name}"):
            try:
                return transfers.upload(
                    client,
                    file,
                    size,
                    metadata=lambda digest: {_DIGEST: digest},
                    sleep=self._sleep,
                    shape=self._up,
                )
            except (ResourceExistsError, ResourceModifiedError):
                file.seek(0)
                mine, md5 = _digests(file)
                found = client.get_blob_properties()
                known = transfers.recorded(found)
                same = known.metadata.get(_DIGEST) == mine.sha256
                if _DIGEST not in known.metadata:
                    same = known.md5 == md5
                if found.size != mine.size or not same:
                    raise BlobExistsError(f"{container}/{name}") from None
                return mine


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Raise the SDK's errors as ours."""
    try:
        yield
    except ResourceNotFoundError:
        raise BlobMissingError(what) from None
    except AzureError as error:
        raise StoreError(f"blob {what}: {str(error).partition(chr(10))[0]}") from error


def _each(parts: Iterable[T], what: str) -> Iterator[T]:
    with _failures(what):
        yield from parts


def _digests(file: BinaryIO) -> tuple[StoredBlob, bytes]:
    """Size and SHA-256 of a file, and its MD5."""
    running, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    while data := file.read(CHUNK):
        running.update(data)
        md5.update(data)
        size += len(data)
    return StoredBlob(size=size, sha256=running.hexdigest()), md5.digest()


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
