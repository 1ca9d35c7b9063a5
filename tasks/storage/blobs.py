"""Blobs: artifacts, granules, stored plans, packages and rasters of users, checkpoints of runs.

A blob is written once and never overwritten, except a damaged package, which is stored again. The
artifact of an attempt is named by its task key and fencing token (`artifact_name`). So two attempts
never write the same name, and the name and the task row tell whether a blob is of use.
"""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from tasks.errors import BlobExistsError, BlobMissingError, CorruptBlobError

GRANULES, ARTIFACTS, PLANS = "granules", "artifacts", "plans"
PACKAGES, RESULTS, RASTERS, CHECKPOINTS = "packages", "results", "rasters", "checkpoints"
CONTAINERS = (GRANULES, ARTIFACTS, PLANS, PACKAGES, RESULTS, RASTERS, CHECKPOINTS)
CHUNK = 4 * 2**20


@dataclass(frozen=True, kw_only=True)
class StoredBlob:
    """What was written: bytes and the SHA-256 of them in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Served:
    """How storage is to serve a blob: as an attachment of this name, and of this type."""

    disposition: str
    media_type: str


@runtime_checkable
class SigningBlobs(Protocol):
    """Blobs that whoever has a signed link can read straight from storage."""

    @property
    def origin(self) -> str:
        """The origin of signed links, as a browser names it."""
        ...

    def signed_link(self, container: str, name: str, seconds: float, served: Served) -> str:
        """Return a link that is good for some seconds; "" where the account cannot sign."""
        ...


class Blobs(Protocol):
    """Containers of named blobs.

    Calls may raise StoreError besides those named.
    """

    def put_file(self, container: str, name: str, path: Path) -> StoredBlob:
        """Store a file. An existing blob of equal content is success.

        The file may become the blob: nobody may write to it afterwards.

        Raises:
            BlobExistsError: the name is taken by other content.
        """
        ...

    def put_bytes(self, container: str, name: str, data: bytes) -> StoredBlob:
        """Store bytes; as `put_file`."""
        ...

    def get_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        """Fetch a blob into a file, which appears only when it is whole and verified.

        The file may be the blob itself: nobody may write to it.

        Raises:
            BlobMissingError: there is no such blob.
            CorruptBlobError: its content does not match `sha256`.
        """
        ...

    def get_bytes(self, container: str, name: str) -> bytes:
        """Return a blob's content; raises BlobMissingError when there is none."""
        ...

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Yield a blob's content, or `length` bytes of it from `start`.

        Raises BlobMissingError before the first part when there is none.
        """
        ...

    def exists(self, container: str, name: str) -> bool:
        """Tell whether there is such a blob."""
        ...

    def size(self, container: str, name: str) -> int:
        """Its size in bytes; BlobMissingError when there is none."""
        ...

    def delete(self, container: str, name: str) -> None:
        """Delete a blob; an absent one is success."""
        ...

    def names(self, container: str, prefix: str = "") -> Iterator[str]:
        """Yield the names that begin with `prefix`, in order."""
        ...


def stored_digest(blobs: Blobs, blob: str) -> str:
    """Return the SHA-256 of a blob's content as it is stored; empty if storage has lost it."""
    running = hashlib.sha256()
    try:
        for part in blobs.stream(*split_blob(blob)):
            running.update(part)
    except BlobMissingError:
        return ""
    return running.hexdigest()


def is_damaged(blobs: Blobs, read: CorruptBlobError) -> bool:
    """Return whether storage keeps a blob damaged, or has lost it.

    It is read once more: if the checksum is right then, the blob was damaged on its way.
    """
    return stored_digest(blobs, read.blob) in ("", read.found)


def artifact_name(key: str, claim: str, file: str) -> str:
    """Return the blob name of an artifact's file: by task key and fencing token."""
    return f"{key}/{claim}/{file}"


def split_blob(blob: str) -> tuple[str, str]:
    """Container and name of an `ArtifactFile.blob`."""
    container, _, name = blob.partition("/")
    return container, name


def file_digest(path: Path) -> StoredBlob:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return StoredBlob(size=path.stat().st_size, sha256=digest)


def bytes_digest(data: bytes) -> StoredBlob:
    """Size and SHA-256 of bytes."""
    return StoredBlob(size=len(data), sha256=hashlib.sha256(data).hexdigest())


class MemoryBlobs:
    """Blobs in this process, under the contract of the real ones."""

    def __init__(self) -> None:
        self._blobs: dict[tuple[str, str], bytes] = {}
        self._lock = threading.Lock()

    def put_file(self, container: str, name: str, path: Path) -> StoredBlob:
        return self.put_bytes(container, name, path.read_bytes())

    def put_bytes(self, container: str, name: str, data: bytes) -> StoredBlob:
        with self._lock:
            if self._blobs.setdefault((container, name), data) != data:
                raise BlobExistsError(f"{container}/{name}")
        return bytes_digest(data)

    def get_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        data = self.get_bytes(container, name)
        found = bytes_digest(data).sha256
        if sha256 and found != sha256:
            raise CorruptBlobError(f"{container}/{name}", sha256, found)
        to.write_bytes(data)

    def get_bytes(self, container: str, name: str) -> bytes:
        with self._lock:
            data = self._blobs.get((container, name))
        if data is None:
            raise BlobMissingError(f"{container}/{name}")
        return data

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        data = self.get_bytes(container, name)
        return iter([data[start : None if length is None else start + length]])

    def exists(self, container: str, name: str) -> bool:
        return (container, name) in self._blobs

    def size(self, container: str, name: str) -> int:
        return len(self.get_bytes(container, name))

    def delete(self, container: str, name: str) -> None:
        with self._lock:
            self._blobs.pop((container, name), None)

    def names(self, container: str, prefix: str = "") -> Iterator[str]:
        with self._lock:
            found = [n for c, n in self._blobs if c == container and n.startswith(prefix)]
        return iter(sorted(found))
