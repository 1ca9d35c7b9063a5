"""The structures of granules in storage: what one machine has learnt serves all of them.

They lie beside the archive's index, in the container of granules. A blob's name begins with the
stretch of days in which it was stored, so its age is known without a look into it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tasks.errors import BlobExistsError, BlobMissingError, StoreError
from tasks.storage.blobs import GRANULES, Blobs

STRETCH = 30 * 86_400.0
"""Seconds; what was stored in the stretch before the last one goes."""

_PLACE = "structures"  # no shard begins so: by tasks, retention leaves these blobs alone


@dataclass(frozen=True)
class StoredStructures:
    """What all machines know of granules. Storage that does not answer is as if it knew nothing."""

    blobs: Blobs
    now: Callable[[], float] = time.time

    def find(self, name: str) -> bytes | None:
        """Return what is stored of a granule, None if nothing is."""
        for before in (0, 1):
            try:
                return self.blobs.get_bytes(GRANULES, self._blob(name, before))
            except BlobMissingError:
                continue
            except StoreError:
                break
        return None

    def put(self, name: str, data: bytes) -> None:
        """Store what is known of a granule, in place of what was."""
        blob = self._blob(name)
        with suppress(StoreError, BlobExistsError):  # another machine was quicker, or will do it
            try:
                self.blobs.put_bytes(GRANULES, blob, data)
            except BlobExistsError:
                self.blobs.delete(GRANULES, blob)
                self.blobs.put_bytes(GRANULES, blob, data)

    def _blob(self, name: str, before: int = 0) -> str:
        return f"{_PLACE}/{_stretch(self.now()) - before:06d}/{name}"


def drop_old(blobs: Blobs, now: float) -> Iterator[bool]:
    """Delete structures that no reader looks for any more; yield after each."""
    for name in blobs.names(GRANULES, f"{_PLACE}/"):
        if int(name.split("/")[1]) >= _stretch(now) - 1:
            return
        blobs.delete(GRANULES, name)
        yield True


def _stretch(now: float) -> int:
    return int(now // STRETCH)
