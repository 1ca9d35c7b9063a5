"""A copy of the folder's index in storage, for managers whose disk does not outlive them.

In a cloud a manager starts on an empty disk, and reading each granule of a large archive again
takes hours. What the copy lacks is read when it is refreshed.
"""

import hashlib
import sqlite3
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import structlog

from archives.kinds.folder import INDEX_SCHEMA
from tasks.errors import BlobMissingError, StoreError
from tasks.storage.blobs import GRANULES, Blobs
from tasks.storage.clock import Clock

EVERY = 600.0  # seconds between two copies

log = structlog.get_logger("manager.index")


class KeptIndex:
    """The copies of one archive's index in this build's schema, of which the newest counts.

    `path` is the index, `archive` its folder as the setting names it. `beside` runs a job outside
    the manager's rounds.
    """

    def __init__(
        self,
        blobs: Blobs,
        archive: str,
        path: Path,
        clock: Clock,
        beside: Callable[[Callable[[], None]], "Future[None]"],
    ) -> None:
        self._blobs = blobs
        self._path = path
        self._clock = clock
        self._beside = beside
        # No shard begins so: retention leaves these blobs alone.
        digest = hashlib.sha256(f"{INDEX_SCHEMA} {archive}".encode()).hexdigest()
        self._prefix = f"index/{digest[:16]}/"
        self._running: Future[None] | None = None
        self._next = clock.monotonic() + EVERY
        self._kept = self._stamp()

    def restore(self) -> None:
        """Fetch the newest copy, unless this disk has the index; without one it is made anew."""
        if self._path.exists():
            return
        try:
            names = [*self._blobs.names(GRANULES, self._prefix)]
            if names:
                self._blobs.get_file(GRANULES, names[-1], self._path)
                self._kept = self._stamp()
                log.info("index restored", bytes=self._path.stat().st_size)
        except (StoreError, BlobMissingError) as error:
            log.warning("index not restored", error=str(error))

    def tick(self) -> None:
        """Begin to copy the index if it is time and it has changed. Never waits, never raises."""
        now = self._clock.monotonic()
        if now < self._next or (self._running is not None and not self._running.done()):
            return
        self._next = now + EVERY
        if self._stamp() != self._kept:
            self._running = self._beside(self.keep)

    def keep(self) -> None:
        """Store a copy of the index, and delete those before it."""
        stamp = self._stamp()
        try:
            with tempfile.TemporaryDirectory(dir=self._path.parent) as folder:
                copy = Path(folder) / "index.sqlite"
                with (
                    closing(sqlite3.connect(self._path)) as index,
                    closing(sqlite3.connect(copy)) as to,
                ):
                    index.backup(to)
                name = f"{self._prefix}{int(self._clock.now() * 1000):014d}.sqlite"
                self._blobs.put_file(GRANULES, name, copy)
            for old in [*self._blobs.names(GRANULES, self._prefix)]:
                if old < name:
                    self._blobs.delete(GRANULES, old)
            self._kept = stamp
        except (StoreError, sqlite3.Error, OSError) as error:
            log.warning("index not kept", error=str(error))

    def _stamp(self) -> tuple[int, ...]:
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        return tuple(one.stat().st_mtime_ns for one in files if one.exists())
