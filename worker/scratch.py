"""Scratch folders: one per attempt, under one per worker, removed whatever happens."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path

_LOCK = ".alive"


class Scratch:
    """The scratch folder of one worker, held by a lock as long as the worker lives."""

    def __init__(self, data_dir: Path, worker: str) -> None:
        self._root = data_dir / "scratch"
        self._folder = self._root / worker
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock: BufferedWriter = (self._folder / _LOCK).open("ab")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def clean(self) -> tuple[str, ...]:
        """Remove what dead workers left, and leftovers of our own name; returns their names."""
        removed = []
        for folder in sorted(self._root.iterdir()):
            if folder == self._folder:
                for leftover in folder.iterdir():
                    if leftover.name != _LOCK:
                        _remove(leftover)
            elif not _is_held(folder):
                _remove(folder)
                removed.append(folder.name)
        return tuple(removed)

    @contextmanager
    def attempt(self, claim: str) -> Iterator[Path]:
        """An empty folder for one attempt, gone afterwards."""
        folder = self._folder / claim
        folder.mkdir()
        try:
            yield folder
        finally:
            _remove(folder)

    def close(self) -> None:
        """Remove the worker's folder and let go of it."""
        _remove(self._folder)
        self._lock.close()


def _is_held(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _remove(path: Path) -> None:
    """Remove a folder even where user code took away its own permissions."""
    if path.is_dir() and not path.is_symlink():
        for folder in (path, *(p for p in path.rglob("*") if p.is_dir() and not p.is_symlink())):
            folder.chmod(0o700)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
