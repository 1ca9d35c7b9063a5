"""Blobs on Azure Storage (or Azurite), by the Azure SDK."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TypedDict

from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobClient, BlobServiceClient

from tasks.blobs import CHUNK, Stored, bytes_digest, file_digest
from tasks.errors import BlobExistsError, BlobMissingError, CorruptBlobError

_DIGEST = "sha256"  # metadata key


class AzureBlobs:
    """Blobs of one storage account. Errors that are not ours are the SDK's own."""

    def __init__(self, service: BlobServiceClient) -> None:
        self._service = service

    def create(self, containers: Sequence[str]) -> None:
        """Create the containers that do not exist."""
        for container in containers:
            client = self._service.get_container_client(container)
            try:
                client.create_container()
            except ResourceExistsError:
                continue

    def put_file(self, container: str, name: str, path: Path) -> Stored:
        stored = file_digest(path)
        with path.open("rb") as file:
            self._put(container, name, file, stored)
        return stored

    def put_bytes(self, container: str, name: str, data: bytes) -> Stored:
        stored = bytes_digest(data)
        self._put(container, name, data, stored)
        return stored

    def get_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        digest = hashlib.sha256()
        handle, partial = tempfile.mkstemp(dir=to.parent, prefix=f".{to.name[:40]}.")
        try:
            with os.fdopen(handle, "wb") as file:
                for part in self.stream(container, name):
                    digest.update(part)
                    file.write(part)
            found = digest.hexdigest()
            if sha256 and found != sha256:
                raise CorruptBlobError(f"{container}/{name}", sha256, found)
            Path(partial).replace(to)
        finally:
            Path(partial).unlink(missing_ok=True)

    def get_bytes(self, container: str, name: str) -> bytes:
        return b"".join(self.stream(container, name))

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        client = self._blob(container, name)
        try:
            if client.get_blob_properties().size <= start:
                return iter(())
            return client.download_blob(offset=start, length=length).chunks()
        except ResourceNotFoundError:
            raise BlobMissingError(f"{container}/{name}") from None

    def exists(self, container: str, name: str) -> bool:
        return self._blob(container, name).exists()

    def size(self, container: str, name: str) -> int:
        try:
            return self._blob(container, name).get_blob_properties().size
        except ResourceNotFoundError:
            raise BlobMissingError(f"{container}/{name}") from None

    def delete(self, container: str, name: str) -> None:
        try:
            self._blob(container, name).delete_blob(delete_snapshots="include")
        except ResourceNotFoundError:
            return

    def names(self, container: str, prefix: str = "") -> Iterator[str]:
        client = self._service.get_container_client(container)
        yield from client.list_blob_names(name_starts_with=prefix or None)

    def _blob(self, container: str, name: str) -> BlobClient:
        return self._service.get_blob_client(container, name)

    def _put(self, container: str, name: str, data: bytes | IO[bytes], stored: Stored) -> None:
        client = self._blob(container, name)
        try:
            client.upload_blob(
                data,
                length=stored.size,
                overwrite=False,
                metadata={_DIGEST: stored.sha256},
                max_concurrency=1,
            )
        except (ResourceExistsError, ResourceModifiedError):
            found = client.get_blob_properties()
            if found.size != stored.size or (found.metadata or {}).get(_DIGEST) != stored.sha256:
                raise BlobExistsError(f"{container}/{name}") from None


class TransferSizes(TypedDict):
    """Arguments of the client that say when a transfer is split; bytes."""

    max_single_put_size: int
    max_block_size: int
    max_single_get_size: int
    max_chunk_get_size: int


def transfer_sizes() -> TransferSizes:
    """One call for most files, parts for the largest."""
    return TransferSizes(
        max_single_put_size=16 * CHUNK,
        max_block_size=2 * CHUNK,
        max_single_get_size=8 * CHUNK,
        max_chunk_get_size=CHUNK,
    )
