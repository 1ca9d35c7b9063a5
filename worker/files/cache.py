"""The local cache of artifact files: addressed by content, bounded, shared by processes.

An entry's name is its SHA-256, so a file that serves many tasks is stored once, survives restarts,
and is verified each time it is used. An attempt gets a hard link in its own folder under the name
it needs; the cache may then drop its own link at any time.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedRandom
from pathlib import Path

from processes.locks import locked
from tasks.bag.model import ArtifactFile
from tasks.storage.blobs import file_digest

_EVICTION = "evict"  # name of the lock for evictions; others are two digits of a name
_PARTIAL = ".part"
_ABANDONED = 3600.0  # seconds without a change after which a download counts as abandoned
_DRAINED = 0.9  # eviction continues down to this share of the bound


class Cache:
    """Files by content in one folder of at most `bound` bytes (the newest entry may exceed it)."""

    def __init__(self, folder: Path, bound: int) -> None:
        self._entries = folder / "entries"
        self._locks = folder / "locks"
        self._bound = bound
        self._entries.mkdir(parents=True, exist_ok=True)
        self._locks.mkdir(parents=True, exist_ok=True)

    def get(self, file: ArtifactFile, to: Path, fetch: Callable[[Path], None]) -> bool:
        """Put the file at `to`, from the cache or by `fetch(path)`; return whether it was cached.

        `fetch` must verify what it writes and raise if it is wrong; its errors pass through. If
        several slots need the same content at once, it is fetched once.
        """
        to.parent.mkdir(parents=True, exist_ok=True)
        if file.size > self._bound:
            fetch(to)
            return False
        entry = self._entry(file)
        with locked(self._locks / file.sha256[:2]):
            held = self._take(entry, file, to)
            if not held:
                self._fetch(entry, to, fetch)
        if not held:
            self._grown(file.size)
        return held

    def put(self, file: ArtifactFile, path: Path) -> None:
        """Add a file that has just been made and will probably be needed here soon."""
        if file.size > self._bound:
            return
        entry = self._entry(file)
        with locked(self._locks / file.sha256[:2]):
            if entry.exists():
                return
            entry.parent.mkdir(exist_ok=True)
            link_or_copy(path, entry)
        self._grown(file.size)

    def size(self) -> int:
        """Count the bytes held."""
        return sum(size for _, size, _ in self._listed())

    def shrink(self, bound: int) -> None:
        """Drop the least recently used entries until the rest fits into `bound` bytes."""
        with locked(self._locks / _EVICTION) as total:
            _write_total(total, self._evict(bound))

    def _grown(self, size: int) -> None:
        """Add to the total, and enforce the bound.

        The total is a number in the lock's file: counting thousands of entries for each new one
        would cost more than fetching some of them. Whenever the total exceeds the bound, the
        entries are counted again, which also corrects any error in it.
        """
        with locked(self._locks / _EVICTION) as total:
            text = total.read(64)
            known = int(text) + size if text.isdigit() else self.size()
            _write_total(total, self._evict(self._bound) if known > self._bound else known)

    def _evict(self, bound: int) -> int:
        """Drop entries if the bound is exceeded, while the caller holds the lock.

        Returns the bytes left.
        """
        entries = sorted(self._listed())
        total = sum(size for _, size, _ in entries)
        if total <= bound:
            return total
        for _, size, path in entries[:-1]:
            if total <= bound * _DRAINED:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total

    def _entry(self, file: ArtifactFile) -> Path:
        return self._entries / file.sha256[:2] / file.sha256

    def _take(self, entry: Path, file: ArtifactFile, to: Path) -> bool:
        try:
            link_or_copy(entry, to)
        except FileNotFoundError:
            return False
        with suppress(FileNotFoundError):  # another slot may have evicted it; `to` stays valid
            # The file's own time stays: readers know by it that the file is unchanged.
            os.utime(entry, ns=(time.time_ns(), entry.stat().st_mtime_ns))
        if file_digest(to).sha256 == file.sha256:
            return True
        with suppress(FileNotFoundError):
            entry.unlink()
        to.unlink()
        return False

    def _fetch(self, entry: Path, to: Path, fetch: Callable[[Path], None]) -> None:
        entry.parent.mkdir(exist_ok=True)
        partial = entry.with_name(f"{entry.name}.{os.getpid()}{_PARTIAL}")
        try:
            try:
                fetch(partial)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                # Only the cache may be deleted from a full disk.
                partial.unlink(missing_ok=True)
                self.shrink(0)
                fetch(partial)
            partial.chmod(0o444)
            link_or_copy(partial, to)
            partial.replace(entry)
        finally:
            partial.unlink(missing_ok=True)

    def _listed(self) -> Iterator[tuple[float, int, Path]]:
        """Yield (last use, bytes, path) of every entry, and of abandoned downloads."""
        abandoned = time.time() - _ABANDONED
        for path in self._entries.glob("*/*"):
            with suppress(FileNotFoundError):
                stat = path.stat()
                under_way = path.name.startswith(".") or path.name.endswith(_PARTIAL)
                if not under_way or stat.st_mtime < abandoned:
                    yield stat.st_atime, stat.st_size, path


def _write_total(file: BufferedRandom, total: int) -> None:
    file.seek(0)
    file.write(str(total).encode("ascii"))
    file.truncate()


def link_or_copy(source: Path, to: Path) -> None:
    """Link a file under a second name, or copy it if the file system has no hard links."""
    try:
        os.link(source, to)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        shutil.copyfile(source, to)
