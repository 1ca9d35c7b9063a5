"""Blobs as plain files of one machine."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tasks.errors import BlobExistsError, BlobMissingError, CorruptBlobError
from tasks.storage.blobs import StoredBlob, bytes_digest, file_digest


class FileBlobs:
    """Blobs below a folder, each a file that appears whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put_file(self, container: str, name: str, path: Path) -> StoredBlob:
        return self.put_bytes(container, name, path.read_bytes())

    def put_bytes(self, container: str, name: str, data: bytes) -> StoredBlob:
        path = self._path(container, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        mine = bytes_digest(data)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".put-") as folder:
            draft = Path(folder) / "draft"
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)
            except FileExistsError:
                if file_digest(path) != mine:
                    raise BlobExistsError(f"{container}/{name}") from None
        return mine

    def get_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        data = self.get_bytes(container, name)
        found = bytes_digest(data).sha256
        if sha256 and found != sha256:
            raise CorruptBlobError(f"{container}/{name}", sha256, found)
        to.write_bytes(data)

    def get_bytes(self, container: str, name: str) -> bytes:
        try:
            return self._path(container, name).read_bytes()
        except FileNotFoundError:
            raise BlobMissingError(f"{container}/{name}") from None

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        data = self.get_bytes(container, name)
        return iter([data[start : None if length is None else start + length]])

    def exists(self, container: str, name: str) -> bool:
        return self._path(container, name).exists()

    def size(self, container: str, name: str) -> int:
        return len(self.get_bytes(container, name))

    def delete(self, container: str, name: str) -> None:
        self._path(container, name).unlink(missing_ok=True)

    def names(self, container: str, prefix: str = "") -> Iterator[str]:
        root = self._folder / container
        found = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        return iter(sorted(name for name in found if name.startswith(prefix)))

    def _path(self, container: str, name: str) -> Path:
        return self._folder / container / name
