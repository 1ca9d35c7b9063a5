"""Unpacked packages: each once by its digest, read-only, shared by all attempts on a machine.

A package's folder is sealed when it has been unpacked: its files' sizes, modes and times of change
are noted beside it, and compared before each use. A program cannot set back a time of change
(st_ctime), so a folder that was touched is unpacked again. Those used least recently are dropped
first; one that is in use stays.
"""

import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from processes.folders import remove_folder
from processes.locks import locked, shared, try_lock

_PART = "part-"
_ABANDONED = 3600.0  # seconds after which a folder that is being filled counts as abandoned
_READ, _RUN = 0o444, 0o555


@dataclass(frozen=True, kw_only=True)
class _Seal:
    state: str
    size: int


class Unpacked:
    """Packages in one folder, of at most `bound` bytes (the newest may exceed it).

    `guarded` says that no program can touch them: then a process looks at a package's files before
    its first use only, and not before each.
    """

    def __init__(self, folder: Path, bound: int, *, guarded: bool = False) -> None:
        self._guarded = guarded
        self._looked_at: dict[str, int] = {}  # the folder that a digest had
        self._entries = folder / "entries"
        self._seals = folder / "seals"
        self._locks = folder / "locks"
        self._bound = bound
        for one in (self._entries, self._seals, self._locks):
            one.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def use(self, digest: str, unpack: Callable[[Path], object]) -> Iterator[Path]:
        """Yield the folder of a package, which stays until the block ends.

        `unpack` fills an empty folder if the package is not there as it was unpacked; its errors
        pass through.
        """
        while True:
            with shared(self._locks / digest):
                if self._is_whole(digest):
                    os.utime(self._seals / digest)
                    yield self._entries / digest
                    return
            self._unpack(digest, unpack)

    def size(self) -> int:
        """Count the bytes of all packages."""
        return sum(size for _, size, _ in self._listed())

    def _is_whole(self, digest: str) -> bool:
        entry = self._entries / digest
        try:
            seal = _Seal(**json.loads((self._seals / digest).read_text("ascii")))
            number = entry.stat().st_ino
            if self._guarded and self._looked_at.get(digest) == number:
                return True
            whole = seal == _seal(entry)
        except (OSError, ValueError, TypeError):
            return False
        if whole:
            self._looked_at[digest] = number
        return whole

    def _unpack(self, digest: str, unpack: Callable[[Path], object]) -> None:
        with locked(self._locks / digest):
            if self._is_whole(digest):
                return
            self._clear()
            entry, seal = self._entries / digest, self._seals / digest
            _remove(entry)
            fresh = Path(tempfile.mkdtemp(prefix=_PART, dir=self._entries))
            try:
                unpack(fresh)
                _make_read_only(fresh)
                fresh.rename(entry)
                seal.write_text(json.dumps(vars(_seal(entry))), "ascii")
            finally:
                _remove(fresh)
        self._evict(digest)

    def _evict(self, newest: str) -> None:
        """Drop what was used least recently and is not in use, until the rest fits."""
        with locked(self._locks / "evict"):
            listed = sorted(self._listed())
            total = sum(size for _, size, _ in listed)
            for _, size, digest in listed:
                if total <= self._bound:
                    return
                lock = try_lock(self._locks / digest) if digest != newest else None
                if lock is None:
                    continue
                with lock:
                    (self._seals / digest).unlink(missing_ok=True)
                    _remove(self._entries / digest)
                total -= size

    def _listed(self) -> Iterator[tuple[float, int, str]]:
        """Yield (last use, bytes, digest) of every package."""
        for path in self._seals.iterdir():
            with suppress(OSError, ValueError):
                size = int(json.loads(path.read_text("ascii"))["size"])
                yield path.stat().st_mtime, size, path.name

    def _clear(self) -> None:
        """Remove what killed processes left behind."""
        for path in self._entries.glob(f"{_PART}*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _ABANDONED:
                    _remove(path)


def _seal(folder: Path) -> _Seal:
    """Note the state of all that lies in a folder, and its bytes."""
    state = hashlib.sha256()
    total = 0
    waiting = [(str(folder), "")]
    while waiting:
        place, name = waiting.pop()
        with os.scandir(place) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            at = entry.stat(follow_symlinks=False)
            path = f"{name}/{entry.name}"
            kind = (path, at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)
            state.update(repr(kind).encode())
            if stat.S_ISDIR(at.st_mode):
                waiting.append((entry.path, path))
            else:
                total += at.st_size
    return _Seal(state=state.hexdigest(), size=total)


def _make_read_only(folder: Path) -> None:
    for place, _, files in os.walk(folder, topdown=False):
        for file in files:
            path = Path(place) / file
            path.chmod(_RUN if path.stat().st_mode & 0o100 else _READ)
        if Path(place) != folder:
            Path(place).chmod(_RUN)
    folder.chmod(0o755)


def _remove(folder: Path) -> None:
    """Remove a folder, as far as that can be done now."""
    with suppress(OSError):
        remove_folder(folder)
