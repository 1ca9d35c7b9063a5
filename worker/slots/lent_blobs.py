"""The storage of an attempt on a runner: blobs that a worker lends it, and a folder for results.

A runner has no account. What it reads comes by a signed link for one blob, or was sent with the
order where storage signs none. What it makes lies in a folder, from which the worker gets it.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tasks.errors import BlobMissingError, CorruptBlobError, StoreError
from tasks.storage.blobs import CHUNK, Blobs, StoredBlob, file_digest
from worker.files.cache import link_or_copy
from worker.sandbox.messages import LentFile

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient

LENT, MADE = "lent", "made"  # folders of an attempt


def lent_path(folder: Path, number: int) -> Path:
    """Return where the lent file of a number lies when it came with the order."""
    return folder / LENT / str(number)


class LentBlobs:
    """Blobs of one attempt, under the contract of `Blobs`, in the attempt's `folder`."""

    def __init__(self, lent: Sequence[LentFile], folder: Path) -> None:
        self._links = {one.blob: one.link for one in lent if one.link}
        self._paths = {
            one.blob: lent_path(folder, number) for number, one in enumerate(lent) if not one.link
        }
        self._made = folder / MADE
        self._made.mkdir(exist_ok=True)

    def put_file(self, container: str, name: str, path: Path) -> StoredBlob:  # noqa: ARG002
        to = self._made / Path(name).name
        to.unlink(missing_ok=True)
        link_or_copy(path, to)
        return file_digest(to)

    def put_bytes(self, container: str, name: str, data: bytes) -> StoredBlob:  # noqa: ARG002
        to = self._made / Path(name).name
        to.write_bytes(data)
        return file_digest(to)

    def get_file(self, container: str, name: str, to: Path, sha256: str = "") -> None:
        path = self._paths.get(f"{container}/{name}")
        if path is None:
            self._linked(container, name).get_file(container, name, to, sha256)
            return
        found = file_digest(path).sha256
        if sha256 and found != sha256:
            raise CorruptBlobError(f"{container}/{name}", sha256, found)
        to.unlink(missing_ok=True)
        link_or_copy(path, to)  # `path` stays for one that asks again

    def get_bytes(self, container: str, name: str) -> bytes:
        return b"".join(self.stream(container, name))

    def stream(
        self, container: str, name: str, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        path = self._paths.get(f"{container}/{name}")
        if path is None:
            return self._linked(container, name).stream(container, name, start, length)
        return _parts(path, start, length)

    def exists(self, container: str, name: str) -> bool:
        path = self._paths.get(f"{container}/{name}")
        return path is not None or self._linked(container, name).exists(container, name)

    def size(self, container: str, name: str) -> int:
        path = self._paths.get(f"{container}/{name}")
        if path is not None:
            return path.stat().st_size
        return self._linked(container, name).size(container, name)

    def delete(self, container: str, name: str) -> NoReturn:
        raise StoreError(f"{container}/{name}: a runner deletes nothing")

    def names(self, container: str, prefix: str = "") -> NoReturn:  # noqa: ARG002
        raise StoreError(f"{container}: a runner lists nothing")

    def _linked(self, container: str, name: str) -> Blobs:
        """Return the blobs with links. Raises BlobMissingError if this one was not lent."""
        if f"{container}/{name}" not in self._links:
            raise BlobMissingError(f"{container}/{name}")
        return self._by_links

    @cached_property
    def _by_links(self) -> Blobs:
        # Only where there are links: the SDK takes part of the time in which a process starts.
        from azure.storage.blob import BlobClient, BlobServiceClient

        from tasks.service.azure_clients import READ_TRIES, transport
        from tasks.storage.azure.blobs import AzureBlobs

        links = self._links

        class Linked(BlobServiceClient):
            def get_blob_client(self, container: str, blob: str, **_: object) -> "BlobClient":  # type: ignore[override]
                link = links[f"{container}/{blob}"]
                return BlobClient.from_blob_url(link, **transport(link, retries=READ_TRIES))

        return AzureBlobs(Linked("https://no-account.invalid"))


def _parts(path: Path, start: int, length: int | None) -> Iterator[bytes]:
    left = path.stat().st_size if length is None else length
    with path.open("rb") as file:
        file.seek(start)
        while left > 0 and (data := file.read(min(CHUNK, left))):
            left -= len(data)
            yield data
