"""Keep granules open, and what was read from them, within a call and between calls.

A call opens each granule once. Between calls this process keeps nothing unless it called
`keep_granules`, as a process that makes many rasters does. Then granules stay open (the last
`_MOST_OPEN` used), and decoded layers, geolocation and searches stay in memory within the bound,
the least recently used dropped first.

A granule is known by its file: device, inode, size, time of change, and name. So the paths of hard
links are one granule, and a file that was changed is another. The open file keeps its inode, so the
number is not used again.

HDF4 knows open files by their paths, so a granule that is open under a path is closed before
another file is opened under it. A granule has one user at a time: a second thread opens it again. A
fork starts with nothing: it must not share the position of an open file with its parent.
"""

import os
import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from reprojection.errors import UnreadableGranuleError
from reprojection.read.granule import Granule, open_granule

Value = TypeVar("Value")

KEPT_BYTES = 200_000_000
"""Bytes of decoded layers that `keep_granules` keeps by default."""

_MOST_OPEN = 32
"""Granules held open at most; each takes two file descriptors and about a megabyte."""


@dataclass(frozen=True, kw_only=True)
class FileIdentity:
    """A file, whatever path leads to it; a changed file has another identity."""

    device: int
    inode: int
    size: int
    changed_ns: int
    name: str

    @classmethod
    def of(cls, path: Path) -> "FileIdentity | None":
        """Identify the file at a path; return None if there is none."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(
            device=found.st_dev,
            inode=found.st_ino,
            size=found.st_size,
            changed_ns=found.st_mtime_ns,
            name=path.name,
        )


@dataclass(frozen=True)
class Memory:
    """What is remembered about one file; of a file without identity, nothing."""

    identity: FileIdentity | None

    def recall(
        self, key: Hashable, make: Callable[[], Value], size: Callable[[Value], int]
    ) -> Value:
        """Return what `make` made for this key before, or make it now; `size` is its bytes.

        Callers must not change what they get.
        """
        return _STORE.recall(self.identity, key, make, size)


NO_MEMORY = Memory(None)
"""Remembers nothing."""


def nbytes(array: npt.NDArray[np.generic]) -> int:
    """Return an array's bytes."""
    return array.nbytes


class _Store:
    """The open granules that nobody uses just now, and the values remembered of granules."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bound = 0
        self._keepings: list[int] = []  # the bounds of those that live
        self._making: dict[tuple[FileIdentity, Hashable], threading.Lock] = {}
        self._calls = 0
        self._open: OrderedDict[FileIdentity, Granule] = OrderedDict()
        self._paths: dict[str, FileIdentity] = {}  # of the open granules
        self._values: OrderedDict[tuple[FileIdentity, Hashable], tuple[object, int]] = OrderedDict()
        self._keys: defaultdict[FileIdentity, set[Hashable]] = defaultdict(set)  # of the values
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes of the values remembered."""
        return self._held

    @property
    def open_files(self) -> int:
        """The number of granules held open."""
        return len(self._open)

    def keep(self, memory: int) -> None:
        """Set the bound in bytes, and drop what exceeds it."""
        with self._lock:
            self._bound = memory
            self._shrink()
            closing = self._beyond()
        _close(closing)

    @property
    def _most(self) -> int:
        return max([self._bound, *self._keepings])

    def hold(self, memory: int) -> None:
        """Begin to keep at least so many bytes."""
        self._keepings.append(memory)

    def release(self, memory: int) -> None:
        """End what `hold` began.

        Called wherever garbage is collected, so it waits for no lock: where another call is at
        work, what exceeds the bound goes with the next one.
        """
        self._keepings.remove(memory)
        if self._lock.acquire(blocking=False):
            try:
                self._shrink()
                closing = self._beyond()
            finally:
                self._lock.release()
            _close(closing)

    def forget(self, identity: FileIdentity, layer: str | None) -> None:
        """Forget the decoded values of a granule's layer; without a layer, all, and close it."""
        closing = []
        with self._lock:
            for key in tuple(self._keys.get(identity, ())):
                if layer is None or (isinstance(key, tuple) and key[1:2] == (layer,)):
                    self._forget((identity, key))
            if layer is None and identity in self._open:
                closing = [self._drop(identity)]
        _close(closing)

    def begin(self) -> None:
        """Begin a call, in which granules stay open."""
        with self._lock:
            self._calls += 1

    def end(self) -> None:
        """End a call; close what is not to be kept."""
        with self._lock:
            self._calls -= 1
            closing = self._beyond()
        _close(closing)

    def take(self, identity: FileIdentity, path: Path) -> Granule | None:
        """Hand out the open granule of a file, if there is one."""
        with self._lock:
            found = self._open.pop(identity, None)
            if found is not None:
                del self._paths[str(found.path)]
                return found
            # HDF4 would take the file that it has open under this path for the new one.
            stale = self._paths.get(str(path))
            closing = [self._drop(stale)] if stale is not None else []
        _close(closing)
        return None

    def put(self, identity: FileIdentity, granule: Granule) -> None:
        """Take a granule back; close it if another user brought one back before."""
        with self._lock:
            if identity in self._open:
                closing = [granule]
            else:
                other = self._paths.get(str(granule.path))
                closing = [] if other is None else [self._drop(other)]
                self._open[identity] = granule
                self._paths[str(granule.path)] = identity
                closing += self._beyond()
        _close(closing)

    def recall(
        self,
        identity: FileIdentity | None,
        key: Hashable,
        make: Callable[[], Value],
        size: Callable[[Value], int],
    ) -> Value:
        if identity is None or not self._most:
            return make()
        place = (identity, key)
        with self._lock:
            if place in self._values:
                return cast("Value", self._found(place))
            making = self._making.setdefault(place, threading.Lock())
        # Of several threads that want a value, one makes it.
        with making:
            try:
                with self._lock:
                    if place in self._values:
                        return cast("Value", self._found(place))
                made = make()
                with self._lock:
                    self._values[place] = made, size(made)
                    self._keys[identity].add(key)
                    self._held += size(made)
                    self._shrink()
            finally:
                with self._lock:
                    self._making.pop(place, None)
        return made

    def _found(self, place: tuple[FileIdentity, Hashable]) -> object:
        self._values.move_to_end(place)
        return self._values[place][0]

    def _forget(self, place: tuple[FileIdentity, Hashable]) -> None:
        _, size = self._values.pop(place, (None, 0))
        self._held -= size
        self._keys[place[0]].discard(place[1])

    def _shrink(self) -> None:
        while self._held > self._most:
            self._forget(next(iter(self._values)))

    def _beyond(self) -> list[Granule]:
        """Drop the granules that are not to stay open; return them for closing."""
        most = _MOST_OPEN if self._most or self._calls else 0
        return [self._drop(next(iter(self._open))) for _ in range(len(self._open) - most)]

    def _drop(self, identity: FileIdentity) -> Granule:
        for key in tuple(self._keys[identity]):
            self._forget((identity, key))
        del self._keys[identity]
        granule = self._open.pop(identity)
        del self._paths[str(granule.path)]
        return granule


_STORE = _Store()


def _close(granules: list[Granule]) -> None:
    for granule in granules:
        # What was read from it was checked; a reader that fails to end harms nobody.
        with suppress(UnreadableGranuleError):
            granule.close()


def _start_empty() -> None:
    """Start a fork with nothing; this closes its copies of open files."""
    global _STORE
    copies = list(_STORE._open.values())
    _STORE = _Store()
    _close(copies)


os.register_at_fork(after_in_child=_start_empty)


def keep_granules(memory: int = KEPT_BYTES) -> None:
    """Keep granules open and decoded layers in memory between calls, in this process.

    Args:
        memory: Bytes of decoded layers to keep at most, 200 MB by default. 0 keeps nothing, which
            is how a process begins, and gives back at once what was kept.
    """
    _STORE.keep(memory)


class Keeping:
    """Keeps granules open and decoded layers in memory as long as it lives.

    One that comes to another process keeps them there until that ends: a worker gets it anew with
    each task.
    """

    def __init__(self, memory: int = KEPT_BYTES) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._made: defaultdict[tuple[Path, str | None], set[Hashable]] = defaultdict(set)
        _STORE.hold(memory)
        weakref.finalize(self, _STORE.release, memory)

    def made(self, path: Path, layer: str | None, part: Hashable, parts: int) -> None:
        """Say that a part of what needs a granule's layer was made; after all parts, forget it.

        Without a layer: of what needs the granule, which is closed, too. What is made once more
        later is read again.
        """
        with self._lock:
            seen = self._made[path, layer]
            seen.add(part)
            if len(seen) < parts:
                return
            del self._made[path, layer]
        identity = FileIdentity.of(path)
        if identity is not None:
            _STORE.forget(identity, layer)

    def __reduce__(self) -> "tuple[Callable[[int, int], Keeping], tuple[int, int]]":
        """Pickle by the bytes to keep, and the process."""
        return _unpickled, (self._memory, os.getpid())


def _unpickled(memory: int, process: int) -> Keeping:
    return Keeping(memory) if process == os.getpid() else _of_process(memory)


@lru_cache(maxsize=1)
def _of_process(memory: int) -> Keeping:
    """Return the keeping of this process."""
    return Keeping(memory)


@contextmanager
def one_call() -> Iterator[None]:
    """Hold granules open until the end of a call, so that each is opened once."""
    _STORE.begin()
    try:
        yield
    finally:
        _STORE.end()


@contextmanager
def opened(path: Path) -> Iterator[tuple[Granule, Memory]]:
    """Open a granule, or hand out one that is held open, with what is remembered of it.

    The metadata of its data sets are read as they are needed. Raises what `open_granule` raises. A
    granule in whose use an error is raised is closed.
    """
    identity = FileIdentity.of(path)
    granule = _STORE.take(identity, path) if identity else None
    if granule is None:
        granule = open_granule(path, check=False)
    try:
        yield granule, Memory(identity)
    except BaseException:
        with suppress(UnreadableGranuleError):
            granule.close()
        raise
    if identity is None:
        granule.close()
    else:
        _STORE.put(identity, granule)
