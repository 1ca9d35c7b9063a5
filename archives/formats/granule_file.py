"""Tell a granule from anything else by its bytes: first bytes, structure and end of the file.

The check costs a few reads and no library: the format's first bytes, the tables that say where data
lie, and the end that they say the file has. Pixels are not read. Sources:

- HDF4 Specification and Developer's Guide, "Data Descriptor Blocks": a block is a count of
  descriptors (2 bytes) and the next block's offset (4), then 12 bytes for each descriptor: tag,
  reference, offset, length; all big-endian.
- HDF5 File Format Specification, "Disk Format: Level 0A - Format Signature and Superblock": the
  superblock has the end-of-file address and leads to the object header of the root group.
- "The NetCDF Classic Format Specification": the header has each variable's place and size.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from archives.errors import NotGranuleError
from modis.formats import HDF4_MAGIC, HDF5_MAGIC, NETCDF3_MAGICS

HEAD = 320
"""Bytes from the beginning of a file that tell its format, or what it is instead."""

_SAID = 80  # characters of a body that a message quotes
_SHOWN = 8  # bytes that are shown of what is no text
_NULL_TAG = 1  # DFTAG_NULL: an empty descriptor
_NOWHERE = 0xFFFFFFFF
_MOST_HDF4 = 1 << 31  # bytes: offsets are signed 32-bit numbers to the library
_MOST_ITEMS = 1 << 20  # of one list of a netCDF-3 header
_OBJECT_HEADER = b"OHDR"
_CLASSIC_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}


class _EndsError(Exception):
    """The file ends before its structure does, or the structure is inconsistent."""

    def __init__(self, message: str, kind: str = "damaged") -> None:
        super().__init__(message)
        self.kind = kind


def begins_as_granule(head: bytes) -> bool:
    """Tell whether a file that begins with these bytes may be a granule."""
    return head.startswith((HDF4_MAGIC, HDF5_MAGIC, *NETCDF3_MAGICS))


def check_granule_file(path: Path, name: str, given: str) -> None:
    """Check that a file is a whole granule: its first bytes, its structure, its end.

    `name` is the granule's; `given` begins the message: the place, and "sent" or "holds".

    Raises:
        NotGranuleError: it is something else, or a part of a granule; the message quotes the first
            words of a text.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD)
        if not begins_as_granule(head):
            raise NotGranuleError(instead_of(name, given, head, size))
        try:
            format_name, end = _ends(file, size)
        except _EndsError as problem:
            raise NotGranuleError(
                f"{given} {name} {problem.kind}: {problem}; fetch it again", problem.kind
            ) from None
    if end > size:
        raise NotGranuleError(
            f"{given} {name} truncated: it has {size} bytes, and its {format_name} structure "
            f"says that data reach to byte {end}; fetch it again",
            "truncated",
        )


def instead_of(name: str, given: str, head: bytes, size: int, *, more: bool = False) -> str:
    """Word what came in place of a granule: its size, its kind and its first words.

    `head` has the first bytes of the body and `size` is its number of bytes, or with `more` the
    number read of a longer one.
    """
    if not size:
        return f"{given} nothing: the source answers with 0 bytes instead of the granule {name}"
    kind, said = _words(head)
    told = f"{'more than ' if more else ''}{size} bytes of {kind}"
    return f"{given} {told}: {said} The source answers with this instead of the granule {name}"


def _words(head: bytes) -> tuple[str, str]:
    """Return the kind of a body, and the first words of a text or the first bytes of data."""
    try:
        text = head[:HEAD].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        whole = error.reason == "unexpected end of data" and error.start > 0
        text = head[: error.start].decode("utf-8-sig") if whole else ""
    shown = " ".join(text.split())
    if not shown or any(not (c.isprintable() or c.isspace()) for c in text):
        return "data that is neither HDF nor netCDF", f"{head[:_SHOWN].hex(' ')}."
    quoted = shown[:_SAID] + ("..." if len(shown) > _SAID else "")
    return "text", quoted if quoted.endswith((".", "!", "?")) else f"{quoted}."


def _ends(file: BinaryIO, size: int) -> tuple[str, int]:
    """Return a file's format, and the end in bytes that its structure states."""
    file.seek(0)
    head = file.read(len(HDF5_MAGIC))
    if head.startswith(HDF4_MAGIC):
        return "HDF4", _hdf4_end(file)
    if head.startswith(HDF5_MAGIC):
        return "HDF5", _hdf5_end(file, size)
    return "netCDF-3", _Classic(file).end()


def _hdf4_end(file: BinaryIO) -> int:
    """Return the end of the last data element or descriptor block of an HDF4 file."""
    block, seen, end, elements = len(HDF4_MAGIC), set[int](), 0, 0
    while block and block not in seen:
        seen.add(block)
        file.seek(block)
        head = _exactly(file, 6, block)
        count, following = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:], "big")
        table = file.read(12 * count)
        end = max(end, block + 6 + 12 * count)
        for tag, _, offset, length in struct.iter_unpack(
            ">HHII", table[: len(table) - len(table) % 12]
        ):
            if tag != _NULL_TAG and _NOWHERE not in (offset, length):
                elements += 1
                end = max(end, int(offset) + int(length))
        if len(table) < 12 * count:
            break
        block = following
    if not elements and end <= file.seek(0, 2):
        raise _EndsError("its HDF4 table of data is empty")
    if end > _MOST_HDF4:
        raise _EndsError(f"its HDF4 table names byte {end}, beyond any HDF4 file")
    return end


def _hdf5_end(file: BinaryIO, size: int) -> int:
    """Return the end-of-file address of an HDF5 file, after a look at its root group."""
    superblock = file.read(120)
    version = superblock[0] if superblock else 255
    if version > 3:
        raise _EndsError(f"its HDF5 superblock has the unknown version {version}")
    # Sizes of addresses lie behind the versions and, before version 2, after further bytes.
    width_at = 5 if version < 2 else 1
    width = superblock[width_at] if len(superblock) > width_at else 0
    if width not in (2, 4, 8):
        raise _EndsError(f"its HDF5 superblock has addresses of {width} bytes")
    first = {0: 16, 1: 20}.get(version, 4)
    addresses = [
        int.from_bytes(superblock[at : at + width], "little")
        for at in range(first, first + 6 * width, width)
    ]
    if len(superblock) < first + 6 * width:
        return len(HDF5_MAGIC) + first + 6 * width
    # base, (free space or extension), end of file, (driver, name offset,) root object header
    base, end = addresses[0], addresses[2]
    root = base + addresses[5 if version < 2 else 3]
    if end <= size:
        file.seek(min(root, size))
        found = file.read(4)
        if not (found == _OBJECT_HEADER or found[:1] == b"\x01"):
            raise _EndsError(f"its HDF5 root group is not at byte {root}")
    return end


class _Classic:
    """The header of a netCDF-3 file: CDF-1, CDF-2 (64-bit offsets) or CDF-5 (64-bit data)."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.seek(3)
        version = _exactly(file, 1, 3)[0]
        self._count = ">Q" if version == 5 else ">I"
        self._offset = ">I" if version == 1 else ">Q"

    def end(self) -> int:
        """Return the end of the last variable's values."""
        records = self._number(self._count)
        streaming = records in (_NOWHERE, (1 << 64) - 1)
        lengths = [self._dimension() for _ in self._items(10)]
        self._attributes()
        fixed, kept = 0, list[tuple[int, int]]()
        for _ in self._items(11):
            begin, length, is_record = self._variable(lengths)
            if is_record:
                kept.append((begin, length))
            else:
                fixed = max(fixed, begin + length)
        # Records of one variable alone are not padded; those of several are.
        stride = kept[0][1] if len(kept) == 1 else sum(_padded(length) for _, length in kept)
        if streaming or not records or not kept:
            return max(fixed, self._file.tell())
        last = max(begin + length for begin, length in kept)
        return max(fixed, last + (records - 1) * stride)

    def _variable(self, lengths: list[int]) -> tuple[int, int, bool]:
        """Read a variable: where it begins, the bytes it has there, and whether it has records."""
        self._name()
        shape = []
        for _ in range(self._few()):
            number = self._number(self._count)
            if number >= len(lengths):
                raise _EndsError(f"its netCDF-3 header names dimension {number}, which it lacks")
            shape.append(lengths[number])
        self._attributes()
        width = self._width()
        self._number(self._count)  # the size as stated is too small for large variables
        is_record = bool(shape) and shape[0] == 0
        length = width
        for each in shape[1:] if is_record else shape:
            length *= each
        return self._number(self._offset), length, is_record

    def _dimension(self) -> int:
        self._name()
        return self._number(self._count)

    def _attributes(self) -> None:
        for _ in self._items(12):
            self._name()
            width = self._width()
            self._file.seek(_padded(self._number(self._count) * width), 1)

    def _items(self, tag: int) -> Iterator[int]:
        found = self._number(">I")
        count = self._few()
        if found not in (0, tag) or (not found and count):
            raise _EndsError(f"its netCDF-3 header has the list {found} where {tag} belongs")
        yield from range(count)

    def _width(self) -> int:
        kind = self._number(">I")
        if kind not in _CLASSIC_SIZES:
            raise _EndsError(f"its netCDF-3 header has the unknown type {kind}")
        return _CLASSIC_SIZES[kind]

    def _name(self) -> None:
        self._file.seek(_padded(self._few()), 1)

    def _few(self) -> int:
        count = self._number(self._count)
        if count > _MOST_ITEMS:
            raise _EndsError(f"its netCDF-3 header has a list of {count} items")
        return count

    def _number(self, form: str) -> int:
        size = 8 if form == ">Q" else 4
        return int.from_bytes(_exactly(self._file, size, self._file.tell()), "big")


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _exactly(file: BinaryIO, count: int, at: int) -> bytes:
    found = file.read(count)
    if len(found) < count:
        raise _EndsError(f"it ends within its structure, at byte {at + len(found)}", "truncated")
    return found
