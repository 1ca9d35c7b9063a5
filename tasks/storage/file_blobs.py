"""Blobs as plain files of one machine.

A blob `name` of a container is the file `<folder>/<container>/<first two characters>/<name>`, with
`/` written as `%2F`. Every folder is made once and stays, so that writing a blob races with no
removal of folders, and a power cut is survived by two calls of fsync: of the file before it gets
its name, and of the folder after.

A blob is a read-only file. Writers and readers on the same file system share it by hard links, so
its bytes are copied nowhere. Nobody may write to such a link: code that is not ours gets a copy or
a read-only mount, and so does a user.
"""

import errno
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from tempfile import mkstemp

from tasks.errors import (
    BlobExistsError,
    BlobMissingError,
    BlobNameError,
    CorruptBlobError,
    StorageFullError,
    StoreError,
)
from tasks.storage.blobs import CHUNK, GRANULES, StoredBlob, bytes_digest, file_digest

_FAN_OUT = 2  # leading characters of a name that name its folder
_LONGEST = 255  # bytes of a file name, on all common file systems
_PARTIAL = "partial"  # the folder of files that are being written
_ABANDONED = 3600.0  # seconds without a change after which their writer counts as killed
_REMEMBERED = 10_000  # files whose checksum is remembered
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)

TRUSTED_SECONDS = 30.0
"""How long a process takes a file whose time and size are the same for unchanged."""


@dataclass(frozen=True, kw_only=True)
class _Verified:
    """A file's checksum, its time and size then, and when it was computed."""

    changed_ns: int
    size: int
    digest: str
    at: float

    def holds(self, stat: os.stat_result, trusted: float) -> bool:
        """Tell whether it is the checksum of the file that has these properties now."""
        same = (self.changed_ns, self.size) == (stat.st_mtime_ns, stat.st_size)
        return same and time.monotonic() - self.at < trusted


class FileBlobs:
    """Blobs below one folder. A failure of the file system is a StoreError caused by its OSError.

    A file's checksum is computed at its first use in this process, again after it changed, and
    again `trusted` seconds after it was computed: a disk that fails changes no time of a file. That
    of a granule is computed of what is stored, never taken from what was sent.
    """

    def __init__(self, folder: Path, *, trusted: float = TRUSTED_SECONDS) -> None:
        self._folder = folder
        self._partial = folder / _PARTIAL
        self._trusted = trusted
        self._verified: dict[tuple[int, int], _Verified] = {}

    def create(self, containers: Sequence[str]) -> None:
        """Create the folders of containers; remove what killed writers left behind."""
        with _failures("its folder"):
            for folder in (self._partial, *(self._folder / name for name in containers)):
                folder.mkdir(parents=True, exist_ok=True)
            _sync(self._folder)
            _sync(self._folder.parent)
            for path in self._partial.iterdir():
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < time.time() - _ABANDONED:
                        path.unlink()

    def put_file(self, container: str, name: str, path: Path) -> StoredBlob:
        with _failures(f"{container}/{name}"):
            stored = file_digest(path)
            path.chmod(0o444)
            _sync(path)
            try:
                self._publish(container, name, path, stored)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                with path.open("rb") as file:
                    self._write(container, name, file, stored)
            if container != GRANULES:
                self._remember(path.stat(), stored.sha256)
        return stored

    def put_bytes(self, container: str, name: str, data: bytes) -> StoredBlob:
        stored = bytes_digest(data)
        with _failures(f"{container}/{name}"):
            self._write(container, name, data, stored)
        return stored

    def get_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        path = self._path(container, name)
        with self._verified_file(container, name, sha256) as file:
            to.unlink(missing_ok=True)
            try:
                os.link(path, to)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and not path.exists():
                    raise BlobMissingError(f"{container}/{name}") from None
                if error.errno not in _NO_LINK:
                    raise
                _copy(file, to)

    def copy_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        """Fetch a blob as `get_file` does, into a file that may be changed."""
        with self._verified_file(container, name, sha256) as file:
            _copy(file, to)

    def get_bytes(self, container: str, name: str) -> bytes:
        with _failures(f"{container}/{name}"), self._open(container, name) as file:
            return file.read()

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        with _failures(f"{container}/{name}"):
            file = self._open(container, name)
        return _parts(file, f"{container}/{name}", start, length)

    def exists(self, container: str, name: str) -> bool:
        with _failures(f"{container}/{name}"):
            return self._path(container, name).exists()

    def size(self, container: str, name: str) -> int:
        with _failures(f"{container}/{name}"), self._open(container, name) as file:
            return os.fstat(file.fileno()).st_size

    def delete(self, container: str, name: str) -> None:
        with _failures(f"{container}/{name}"):
            self._path(container, name).unlink(missing_ok=True)

    def names(self, container: str, prefix: str = "") -> Iterator[str]:
        with _failures(container):
            for part in _listed(self._folder / container):
                if part.startswith(prefix[:_FAN_OUT]):
                    for name in _listed(self._folder / container / _file_name(part)):
                        if name.startswith(prefix):
                            yield name

    def _path(self, container: str, name: str) -> Path:
        file = _file_name(name)
        if not container.isalnum() or not name or name.startswith(".") or "\0" in name:
            raise BlobNameError(f"{container}/{name}", "it is not one of Swathmill's")
        if len(os.fsencode(file)) > _LONGEST:
            raise BlobNameError(f"{container}/{name}", "it is too long; shorten the file's name")
        return self._folder / container / _file_name(name[:_FAN_OUT]) / file

    def _open(self, container: str, name: str) -> BufferedReader:
        try:
            return self._path(container, name).open("rb")
        except FileNotFoundError:
            raise BlobMissingError(f"{container}/{name}") from None

    @contextmanager
    def _verified_file(self, container: str, name: str, sha256: str) -> Iterator[BufferedReader]:
        blob = f"{container}/{name}"
        with _failures(blob), self._open(container, name) as file:
            found = self._checksum(file) if sha256 else ""
            if found != sha256:
                raise CorruptBlobError(blob, sha256, found)
            yield file

    def _write(
        self, container: str, name: str, content: BufferedReader | bytes, stored: StoredBlob
    ) -> None:
        """Write a new file, and publish it once its content is on the disk."""
        handle, path = mkstemp(dir=self._partial)
        try:
            with os.fdopen(handle, "wb") as out:
                if isinstance(content, bytes):
                    out.write(content)
                else:
                    shutil.copyfileobj(content, out, CHUNK)
                out.flush()
                os.fchmod(handle, 0o444)
                os.fsync(handle)
            self._publish(container, name, Path(path), stored)
        finally:
            Path(path).unlink(missing_ok=True)

    def _publish(self, container: str, name: str, path: Path, stored: StoredBlob) -> None:
        """Give a file on the disk its name, and hand the name to the disk.

        A name that is taken by equal content may be another's, who has not handed it to the disk.
        """
        to = self._path(container, name)
        try:
            try:
                os.link(path, to)
            except FileNotFoundError:
                to.parent.mkdir(exist_ok=True)
                _sync(to.parent.parent)
                os.link(path, to)
        except FileExistsError:
            if file_digest(to) != stored:
                raise BlobExistsError(f"{container}/{name}") from None
        _sync(to.parent)

    def _checksum(self, file: BufferedReader) -> str:
        """Return the SHA-256 of an open file, from memory for as long as it is trusted."""
        stat = os.fstat(file.fileno())
        known = self._verified.get((stat.st_dev, stat.st_ino))
        if known is not None and known.holds(stat, self._trusted):
            return known.digest
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._remember(stat, digest)
        return digest

    def _remember(self, stat: os.stat_result, digest: str) -> None:
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified[stat.st_dev, stat.st_ino] = _Verified(
            changed_ns=stat.st_mtime_ns, size=stat.st_size, digest=digest, at=time.monotonic()
        )


@contextmanager
def _failures(blob: str) -> Iterator[None]:
    """Tell of a failure of the file system as of one of storage."""
    try:
        yield
    except OSError as error:
        said = f"storage failed at {blob}: {error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(f"{said}; make room on the disk of the data folder") from error
        raise StoreError(said) from error


def _parts(file: BufferedReader, blob: str, start: int, length: int | None) -> Iterator[bytes]:
    with file, _failures(blob):
        file.seek(start)
        left = os.fstat(file.fileno()).st_size - start
        left = left if length is None else min(left, length)
        while left > 0 and (part := file.read(min(CHUNK, left))):
            left -= len(part)
            yield part


def _copy(file: BufferedReader, to: Path) -> None:
    """Copy an open file to `to`, which appears when it is whole."""
    partial = to.with_name(f".{to.name[:40]}.{secrets.token_hex(8)}")
    try:
        with partial.open("xb") as out:
            file.seek(0)
            shutil.copyfileobj(file, out, CHUNK)
        partial.replace(to)
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _listed(folder: Path) -> list[str]:
    """Return the names in a folder, in order."""
    try:
        return sorted(_name(entry.name) for entry in os.scandir(folder))
    except FileNotFoundError:
        return []


def _file_name(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _name(file: str) -> str:
    return file.replace("%2F", "/").replace("%25", "%")
