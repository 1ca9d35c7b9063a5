"""Interrupted downloads, kept beyond their attempt so that the next one can resume them.

Each task has a folder of its own under the worker's data folder; an attempt locks it while it works
in it. Unlocked folders are deleted when they are old, or when all together are too large.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from processes.locks import try_lock

_OLD = 7 * 86400.0  # seconds


class Partials:
    """Folders of unfinished downloads, at most `bound` bytes together (without those in use)."""

    def __init__(self, folder: Path, bound: int, *, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._bound = bound
        self._now = now
        self._folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def place(self, key: str, instead: Path) -> Iterator[Path]:
        """Yield the folder of a task's download, or `instead` if another attempt uses it.

        Two attempts of one task overlap only if one of them is a zombie that nobody waits for.
        """
        self._sweep()
        lock = try_lock(self._lock_path(key))
        if lock is None:
            yield instead
            return
        folder = self._folder / key
        try:
            folder.mkdir(exist_ok=True)
            yield folder
        finally:
            # A finished download leaves nothing; an interrupted one leaves its bytes.
            with suppress(OSError):
                folder.rmdir()
                self._lock_path(key).unlink()
            lock.close()

    def _sweep(self) -> None:
        found = sorted(self._unfinished())
        total = sum(size for _, size, _ in found)
        for changed, size, key in found:
            if total <= self._bound and self._now() - changed < _OLD:
                return
            lock = try_lock(self._lock_path(key))
            if lock is None:
                continue
            with lock:
                shutil.rmtree(self._folder / key, ignore_errors=True)
                self._lock_path(key).unlink(missing_ok=True)
            total -= size

    def _unfinished(self) -> Iterator[tuple[float, int, str]]:
        """Yield (last change, bytes, task key) of each folder."""
        for folder in self._folder.iterdir():
            with suppress(FileNotFoundError, NotADirectoryError):
                stats = [path.stat() for path in (folder, *folder.iterdir())]
                size = sum(stat.st_size for stat in stats[1:])
                yield max(stat.st_mtime for stat in stats), size, folder.name

    def _lock_path(self, key: str) -> Path:
        return self._folder / f"{key}.lock"
