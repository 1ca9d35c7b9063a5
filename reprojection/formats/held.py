"""Granule files of which only a part is here: what is held of them, and a clear error for the rest.

A layer of a granule takes a few per cent of its bytes, a place in it far less. So a granule may be
held in part: a file of the granule's name in which the bytes that were fetched lie at their own
places and the rest are holes. Behind the granule's last byte it lists what it holds, so that no
reader can take a hole for zeros: whoever needs a byte that is not there raises `NotHeldError`, and
says which bytes the call needs. The caller fetches them, keeps them and calls again. Neither a
reader nor its process needs to know where a granule comes from.

The list: (begin, end) of each part held, the granule's size and the number of parts, as 8-byte
little-endian integers; the CRC-32 of these; 12 bytes that say what this is. Files are replaced
whole, never changed, so a reader sees one state of them.

In storage holes would cost as much as bytes. So there it is packed: the parts one after another,
then the same list.
"""

import io
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from reprojection.errors import NotHeldError, UnreadableGranuleError

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")

Range = tuple[int, int]
"""First byte, and the byte behind the last one."""

PACKED = ".parts"
"""What the name of a packed file ends with, behind the granule's."""

_MAGIC, _PACKED = b"held in part", b"packed parts"
_TAIL = struct.Struct("<qqI12s")
_BLOCK = 1 << 14  # bytes of structure that are asked for at once
_MOST_AHEAD = 1 << 14  # places told ahead between two looks; a hostile file tells millions
_COPIED = 1 << 22
_MOST_PARTS = 1 << 20


@dataclass(frozen=True)
class Held:
    """What a file holds of a granule of `size` bytes.

    `parts` has shape (n, 2): begin and end of each part, in order, none touching the next.
    """

    path: Path
    size: int
    parts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, path: Path) -> "Held | None":
        """Read what a file holds; None of one that is whole.

        Raises:
            UnreadableGranuleError: the list of its parts is damaged.
            OSError: it cannot be read.
        """
        found = _listed(path, _MAGIC)
        if found is None:
            return None
        size, before, parts = found
        if before != size:
            raise _damaged(path)
        return cls(path, size, parts)

    def missing(self, ranges: Iterable[Range]) -> tuple[Range, ...]:
        """Return which bytes of ranges are not held, in order, joined where they touch."""
        found: list[Range] = []
        for begin, end in joined(ranges):
            at = begin
            first = int(np.searchsorted(self.parts[:, 1], begin, side="right"))
            for low, high in self.parts[first:].tolist():
                if low >= end:
                    break
                if low > at:
                    found.append((at, low))
                at = max(at, high)
            if at < end:
                found.append((at, end))
        return tuple(found)

    def want(self, ranges: Iterable[Range], *, values: bool = False) -> None:
        """Raise NotHeldError unless these bytes are held; what lies beyond the end is nobody's.

        `values` says that they are values, and nothing of what tells where values lie.
        """
        within = ((max(begin, 0), min(end, self.size)) for begin, end in ranges)
        lacking = self.missing(one for one in within if one[0] < one[1])
        if lacking:
            raise NotHeldError(self.path, self.size, lacking, values)


class HeldFile(io.RawIOBase):
    """The bytes of a granule that is held in part, for a library that reads a file object.

    A C library must not meet an error in the middle of a call. So bytes that are not held read as
    zeros, and are noted: after each call into the library `look_up` raises what was missed, and
    what `ahead` tells from bytes that were read: where the library will go on.
    """

    def __init__(self, held: Held, ahead: Callable[[memoryview], Iterable[Range]]) -> None:
        self.held = held
        self._file = held.path.open("rb", buffering=0)
        self._at = 0
        self._ahead = ahead
        self._following: list[Range] = []
        self._missed: list[Range] = []

    def look_up(self) -> None:
        """Raise NotHeldError if bytes were read that are not held."""
        missed, self._missed = self._missed, []
        following, self._following = self._following, []
        if missed:
            self.held.want([*missed, *following])

    def fileno(self) -> int:
        """Return the descriptor of the file in which the bytes lie at their own places."""
        return self._file.fileno()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place of the granule; its end is that of the whole granule."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.held.size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def readinto(self, buffer: "Buffer") -> int:
        """Read bytes; those that are not held are zeros and noted."""
        view = memoryview(buffer).cast("B")
        length = max(0, min(len(view), self.held.size - self._at))
        view = view[:length]
        if length and self.held.missing([(self._at, self._at + length)]):
            self._missed.append(around(self._at, self._at + length))
            view[:] = bytes(length)
        elif length:
            length = os.preadv(self.fileno(), [view], self._at)
            if len(self._following) < _MOST_AHEAD:
                self._following += self._ahead(view)
        self._at += length
        return length

    def close(self) -> None:
        """Release the file."""
        self._file.close()
        super().close()


def around(begin: int, end: int) -> Range:
    """Return a range with what lies around it, for structure that is learnt piece by piece."""
    return begin // _BLOCK * _BLOCK, -(-end // _BLOCK) * _BLOCK


def completed(work: Callable[[], T], fetch: Callable[[NotHeldError], None]) -> T:
    """Do some work on files that are held in part; fetch what it finds missing until it is done.

    Args:
        work: Reads the files. It is begun again after each fetch, so it changes nothing.
        fetch: Keeps at least the ranges that an error names, or raises.

    Raises:
        NotHeldError: what was fetched did not help.
    """
    before: set[tuple[Path, tuple[Range, ...]]] = set()
    while True:
        try:
            return work()
        except NotHeldError as error:
            if (error.path, error.ranges) in before:
                raise
            before.add((error.path, error.ranges))
            fetch(error)


def joined(ranges: Iterable[Range], gap: int = 0) -> list[Range]:
    """Join ranges that touch or lie not more than `gap` bytes apart; return them in order."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1] + gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end:
            found.append((begin, end))
    return found


def keep(path: Path, size: int, pieces: Mapping[int, bytes]) -> None:
    """Add bytes to what a file holds of a granule; the file is made if it is not there.

    A file that holds everything becomes the granule itself.

    Args:
        path: The file, in a folder that is there.
        size: Bytes of the whole granule.
        pieces: Bytes by the place of their first one.

    Raises:
        ValueError: a piece reaches beyond the granule, or the file is of another size.
        OSError: the file cannot be written.
    """
    before = Held.of(path) if path.exists() else None
    if before is None and path.exists():
        return  # it is whole
    if before is not None and before.size != size:
        raise ValueError(f"{path.name} is held of {before.size} bytes, not {size}")
    parts = [(int(low), int(high)) for low, high in before.parts] if before is not None else []
    added = [(at, at + len(data)) for at, data in pieces.items()]
    if any(begin < 0 or end > size for begin, end in added):
        raise ValueError(f"a piece lies beyond the {size} bytes of {path.name}")
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "wb") as file:
            if before is not None:
                _copy(path, parts, file)
            for at, data in pieces.items():
                file.seek(at)
                file.write(data)
            file.truncate(size)
            _list(file, size, joined([*parts, *added]))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def pack(path: Path, to: Path) -> None:
    """Write what a file holds of a granule without its holes.

    Raises:
        ValueError: it holds all of the granule.
        UnreadableGranuleError: the list of its parts is damaged.
        OSError: it cannot be read or written.
    """
    held = Held.of(path)
    if held is None:
        raise ValueError(f"{path.name} is whole")
    parts = [(int(low), int(high)) for low, high in held.parts]
    with path.open("rb") as source, to.open("wb") as file:
        for low, high in parts:
            source.seek(low)
            _copy_bytes(source, file, high - low)
        _list(file, held.size, parts, _PACKED)


def unpack(packed: Path, to: Path) -> None:
    """Write the granule that is held in part from what `pack` wrote.

    Raises:
        UnreadableGranuleError: it is damaged.
        OSError: it cannot be read or written.
    """
    found = _listed(packed, _PACKED)
    if found is None:
        raise _damaged(packed)
    size, before, parts = found
    lengths = parts[:, 1] - parts[:, 0]
    ordered = bool((lengths > 0).all()) and bool((parts[1:, 0] > parts[:-1, 1]).all())
    inside = not parts.size or (parts[0, 0] >= 0 and parts[-1, 1] <= size)
    if not ordered or not inside or int(lengths.sum()) != before:
        raise _damaged(packed)
    with packed.open("rb") as source, to.open("wb") as file:
        for low, high in parts.tolist():
            file.seek(low)
            _copy_bytes(source, file, high - low)
        file.truncate(size)
        _list(file, size, [(int(low), int(high)) for low, high in parts])


def _listed(path: Path, magic: bytes) -> tuple[int, int, npt.NDArray[np.int64]] | None:
    """Read the list at the end of a file: the granule's size, the bytes before the list, the parts.

    None of a file that ends otherwise.
    """
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        if length < _TAIL.size:
            return None
        file.seek(length - _TAIL.size)
        size, count, crc, said = _TAIL.unpack(file.read(_TAIL.size))
        if said != magic:
            return None
        before = length - _TAIL.size - 16 * count
        fits = before >= 0 <= size and 0 <= count <= _MOST_PARTS
        file.seek(before if fits else 0)
        data = file.read(16 * count) if fits else b""
    if not fits or zlib.crc32(data + struct.pack("<qq", size, count)) != crc:
        raise _damaged(path)
    return size, before, np.frombuffer(data, "<i8").reshape(-1, 2).astype(np.int64)


def _damaged(path: Path) -> UnreadableGranuleError:
    return UnreadableGranuleError(
        f"{path.name} is held in part, and the list of its parts is damaged: delete the "
        "file, and fetch the granule again"
    )


def _copy(source: Path, parts: Iterable[Range], file: io.BufferedIOBase) -> None:
    with source.open("rb") as old:
        for begin, end in parts:
            old.seek(begin)
            file.seek(begin)
            _copy_bytes(old, file, end - begin)


def _copy_bytes(source: BinaryIO, to: io.BufferedIOBase | BinaryIO, count: int) -> None:
    for at in range(0, count, _COPIED):
        to.write(source.read(min(_COPIED, count - at)))


def _list(
    file: io.BufferedIOBase | BinaryIO, size: int, parts: list[Range], magic: bytes = _MAGIC
) -> None:
    """Write the list behind all that the file holds, unless it holds the granule."""
    if parts == [(0, size)]:
        return
    listed = np.array(parts, "<i8").reshape(-1, 2).tobytes()
    head = struct.pack("<qq", size, len(parts))
    file.seek(0, os.SEEK_END)
    file.write(listed + head + struct.pack("<I12s", zlib.crc32(listed + head), magic))
