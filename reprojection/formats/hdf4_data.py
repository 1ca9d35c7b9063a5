"""Find and inflate values of HDF4 data sets without the HDF4 library.

This takes half of the library's time (the library inflates through small buffers), and it checks
what the library does not: that deflated bytes match their checksum (zlib's Adler-32). This module
reads the storage forms of most granules: one piece, deflated data, or deflated chunks, each whole
or in linked blocks. Data stored in any other way (another compression, another version of a header)
are left to the library. What is stored in these ways and not exactly as the format prescribes is
damaged, and so is a file whose elements lie upon one another or beyond its end, and a data set that
lacks a chunk: none of the real granules at hand is so. It is never left to the library, which takes
a chunk that it does not find for one that was never written, and returns wrong bytes without an
error.

Source: HDF Specification and Developer's Guide, version 4.2: "Data Descriptor Blocks", "Extended
Tags and Special Elements" (linked blocks, compression, chunking), "Vdata". All numbers are
big-endian.
"""

import struct
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from reprojection.formats.held import Held, Range, around, joined
from reprojection.formats.pieces import INFLATE, NotInPiecesError, Pieces

Index = tuple[int, ...]
Indexes = npt.NDArray[np.int64]
Values = npt.NDArray[np.generic]

_NULL, _LINKED, _DEFLATED, _CHUNK = 1, 20, 40, 61  # tags, like those in the next line
_VALUES, _GROUP, _TABLE_HEAD, _TABLE = 702, 720, 1962, 1963
_SPECIAL = 0x4000  # this bit of a tag means that the element begins with a special code
_IN_BLOCKS, _COMPRESSED, _CHUNKED = 1, 3, 5  # special codes
_DEFLATE = 4  # code of the compression method
_OTHER_CODERS = (0, 1, 2, 3, 5)  # none, RLE, n-bit, Skipping Huffman, szip: left to the library
_NEVER_WRITTEN = 0xFFFFFFFF, 0xFFFFFFFF  # offset and length
_FIRST_BLOCK = 4  # offset in bytes: the first block follows the magic number
_SMALL_CHUNK = 1 << 20  # elements; a larger chunk must not exceed its data set
_REST = 1 << 20  # bytes inflated at a time if they are only checked
_LARGE = 4096  # bytes of a piece of values that is worth leaving out
_PLANS = 8  # lists of elements by chunk that are remembered

_InflateError = cast("type[Exception]", isal_zlib.error)


class DamagedStreamError(Exception):
    """Values are not stored as the format prescribes, or deflated bytes miss their checksum."""


class _UnknownError(Exception):
    """The data are stored in a form that this module does not read."""


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """The part of shape `count` at `start` of a data set of this shape and (native) type."""

    shape: Index
    dtype: np.dtype[np.generic]
    start: Index
    count: Index

    def cut(self, data: bytes | bytearray) -> Values:
        """Cut the part out of a data set's first bytes in row-major order."""
        steps = [prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        first = sum(at * step for at, step in zip(self.start, steps, strict=True))
        stored = np.frombuffer(data, self.dtype.newbyteorder(">"))
        size = self.dtype.itemsize
        part = np.lib.stride_tricks.as_strided(
            stored[first:], self.count, [size * step for step in steps], writeable=False
        )
        return part.astype(self.dtype)

    @property
    def reach(self) -> int:
        """The number of the data set's bytes up to and including the part's last one."""
        last = 0
        for size, at, length in zip(self.shape, self.start, self.count, strict=True):
            last = last * size + at + length - 1
        return (last + 1) * self.dtype.itemsize


class StoredData:
    """The data behind the data descriptors of an HDF4 file, which stays open until `close`."""

    def __init__(self, path: Path, held: Held | None = None) -> None:
        self._file = path.open("rb")
        self._held = held
        weakref.finalize(self, self._file.close)  # as pyhdf does for a granule that nobody closed
        self._directory: dict[tuple[int, int], tuple[int, int]] | None = None

    def read(
        self,
        reference: int,
        *,
        shape: Index,
        dtype: np.dtype[np.generic],
        start: Index,
        count: Index,
    ) -> Values | None:
        """Read the block of shape `count` at `start` of the data set with this reference number.

        `shape` and `dtype` are those of the whole data set; no length in `count` is zero. Returns
        None if there are no stored data, or if they are stored in a form that this module does not
        read.

        Raises:
            DamagedStreamError: the values are damaged, or what says where they lie is.
        """
        wanted = _Wanted(shape=shape, dtype=dtype, start=start, count=count)
        try:
            elements = self._elements()
            number, head = _storage(elements, reference)
            if head is None or _code(head) != _CHUNKED:
                return _unchunked(elements, number, head, wanted)
            return _chunked(elements, _chunk_head(head, shape, dtype), wanted)
        except _UnknownError:
            return None
        except (ValueError, struct.error) as error:
            raise DamagedStreamError(
                f"what says where its values lie is damaged: {error}"
            ) from error

    def take(
        self,
        reference: int,
        *,
        shape: Index,
        dtype: np.dtype[np.generic],
        at: Sequence[Indexes],
    ) -> Values | None:
        """Read single elements of the data set with this reference number.

        `at` has their indexes along each axis. Of a data set in chunks, only those chunks are read
        and inflated, and held to their checksums, that hold such an element. Returns None for
        one that is not in chunks; else returns None, and raises, as `read` does.
        """
        try:
            elements = self._elements()
            _, head = _storage(elements, reference)
            if head is None or _code(head) != _CHUNKED:
                return None
            return _from_chunks(elements, _chunk_head(head, shape, dtype), at)
        except _UnknownError:
            return None
        except (ValueError, struct.error) as error:
            raise DamagedStreamError(
                f"what says where its values lie is damaged: {error}"
            ) from error

    def chunk(self, reference: int, shape: Index, dtype: np.dtype[np.generic]) -> Index | None:
        """Return the shape of the chunks of a data set; None without, or in an unknown form.

        Raises:
            DamagedStreamError: what says where the values lie is damaged.
        """
        try:
            _, head = _storage(self._elements(), reference)
            if head is None or _code(head) != _CHUNKED:
                return None
            return _chunk_head(head, shape, dtype).shape
        except _UnknownError:
            return None
        except (ValueError, struct.error) as error:
            raise DamagedStreamError(
                f"what says where its values lie is damaged: {error}"
            ) from error

    def pieces(self, reference: int, shape: Index, dtype: np.dtype[np.generic]) -> Pieces:
        """Say where the values of a data set lie, for others to read.

        Raises:
            NotInPiecesError: they are no pieces, or in an unknown form.
            DamagedStreamError: what says where the values lie is damaged.
        """
        try:
            elements = self._elements()
            number, head = _storage(elements, reference)
            if head is not None and _code(head) == _CHUNKED:
                return _chunk_pieces(elements, _chunk_head(head, shape, dtype))
            plain = head is None or _code(head) == _IN_BLOCKS
            if head is None or plain:
                place = _one_piece(elements, _VALUES, number)
            else:
                place = _deflated_piece(elements, head)
        except _UnknownError:
            raise NotInPiecesError("its bytes are in a form that is not known") from None
        except (ValueError, struct.error) as error:
            raise DamagedStreamError(
                f"what says where its values lie is damaged: {error}"
            ) from error
        places = {(0,) * len(shape): place}
        codecs = () if plain else (INFLATE,)
        return Pieces(chunk=shape, byte_order=">", places=places, codecs=codecs)

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def want_structure(self) -> None:
        """Raise NotHeldError unless all is here but large pieces of values.

        The library reads what it likes of an open file; values of data sets it is only asked for
        where all of them are here (`want_all`).
        """
        if self._held is not None:
            self._held.want(_between(_large_values(self._file, self._held), self._held.size))

    def want_all(self) -> None:
        """Raise NotHeldError unless the whole file is here."""
        if self._held is not None:
            self._held.want([(0, self._held.size)], values=True)

    def _elements(self) -> "_Elements":
        if self._directory is None:
            found = _descriptors(self._file, self._held)
            _check_places(found, self._held.size if self._held else self._file.seek(0, 2))
            _check_chunks(_Elements(self._file, found, self._held), found)
            self._directory = found
        return _Elements(self._file, self._directory, self._held)


def _storage(elements: "_Elements", reference: int) -> tuple[int, bytes | None]:
    """Return the number of a data set's values, and their header unless they are in one piece."""
    members = struct.iter_unpack(">HH", elements.read(_GROUP, reference))
    (number,) = (number for tag, number in members if tag == _VALUES)
    return number, elements.special(_VALUES, number)


def _unchunked(elements: "_Elements", number: int, head: bytes | None, wanted: _Wanted) -> Values:
    size = prod(wanted.shape) * wanted.dtype.itemsize
    if head is not None:
        elements.want(elements.places(_VALUES, number))
    if head is None or _code(head) == _IN_BLOCKS:
        if elements.length(_VALUES, number) != size:
            raise DamagedStreamError(f"its values do not have the {size} bytes of its shape")
        return wanted.cut(elements.read(_VALUES, number, wanted.reach))
    if _code(head) != _COMPRESSED:
        raise _UnknownError
    return wanted.cut(elements.inflate(head, size, wanted.reach))


def _chunk_pieces(elements: "_Elements", chunks: "_Chunks") -> Pieces:
    places = {}
    for at, tag, number in _chunk_table(elements, chunks):
        if not chunks.deflated:
            places[at] = _one_piece(elements, tag, number)
            continue
        head = elements.special(tag, number)
        if head is None:
            raise DamagedStreamError("a chunk is not deflated as the others are")
        places[at] = _deflated_piece(elements, head)
    codecs = (INFLATE,) if chunks.deflated else ()
    return Pieces(chunk=chunks.shape, byte_order=">", places=places, codecs=codecs)


def _deflated_piece(elements: "_Elements", head: bytes) -> tuple[int, int]:
    code, version, _, number, _, coder = struct.unpack_from(">HHIHHH", head)
    if (code, version, coder) != (_COMPRESSED, 0, _DEFLATE):
        raise NotInPiecesError("its bytes are compressed otherwise than by deflate")
    return _one_piece(elements, _DEFLATED, number)


def _one_piece(elements: "_Elements", tag: int, number: int) -> tuple[int, int]:
    """Return offset and length of an element, which may be one linked block."""
    places = elements.places(tag, number)
    if len(places) != 1:
        raise NotInPiecesError(f"its bytes are scattered over {len(places)} linked blocks")
    return places[0]


def _large_values(file: BinaryIO, held: Held) -> list[Range]:
    """List where large pieces of values lie.

    Raises NotHeldError until the headers are here that tell blocks of values from those of tables.
    """
    directory = _descriptors(file, held)
    large = {
        at: (offset, offset + size)
        for at, (offset, size) in directory.items()
        if at[0] in (_VALUES, _DEFLATED, _CHUNK, _LINKED) and size > _LARGE
    }
    held.want(_between(list(large.values()), held.size))
    elements = _Elements(file, directory, held)
    of_values = {
        (offset, offset + size)
        for tag, number in directory
        if tag in (_VALUES | _SPECIAL, _DEFLATED | _SPECIAL, _CHUNK | _SPECIAL)
        for offset, size in elements.block_places(tag & ~_SPECIAL, number)
    }
    return [place for (tag, _), place in large.items() if tag != _LINKED or place in of_values]


def _between(places: list[Range], size: int) -> list[Range]:
    """Return what lies between places within a file of `size` bytes."""
    begins = [0, *(end for _, end in joined(places))]
    ends = [*(begin for begin, _ in joined(places)), size]
    return list(zip(begins, ends, strict=True))


def _descriptors(
    file: BinaryIO, held: Held | None = None
) -> dict[tuple[int, int], tuple[int, int]]:
    """List offset and length of every element of a file, by tag and reference number.

    Raises NotHeldError where a list is not there.
    """
    limit = (held.size if held else file.seek(0, 2)) // 12
    found: dict[tuple[int, int], tuple[int, int]] = {}
    block, listed = _FIRST_BLOCK, 0
    while block:
        file.seek(block)
        _want_list(held, block, 6)
        start = block + 6
        length, block = struct.unpack(">HI", file.read(6))
        listed += length + 1
        if listed > limit:
            raise DamagedStreamError("the lists of the file's elements overlap or form a cycle")
        _want_list(held, start, 12 * length)
        for tag, number, offset, size in struct.iter_unpack(">HHII", file.read(12 * length)):
            if tag == _NULL:
                continue
            if (tag, number) in found:
                raise DamagedStreamError(f"the file lists element {tag}/{number} twice")
            found[tag, number] = offset, size
    return found


def _want_list(held: Held | None, begin: int, length: int) -> None:
    """Raise NotHeldError unless a list of elements is here, with what lies around it."""
    if held is not None and held.missing([(begin, begin + length)]):
        held.want([around(begin, begin + length)])


def _check_places(directory: dict[tuple[int, int], tuple[int, int]], size: int) -> None:
    """See that every element lies within a file of `size` bytes, and none upon another one."""
    written = [at for at in directory.values() if at != _NEVER_WRITTEN and at[1]]
    places = np.array(sorted(written), np.int64).reshape(-1, 2)
    ends = places.sum(axis=1)
    if (ends > size).any():
        raise DamagedStreamError("an element lies beyond the end of the file")
    if (places[1:, 0] < ends[:-1]).any():
        raise DamagedStreamError("elements of the file lie upon one another")


def _check_chunks(elements: "_Elements", directory: dict[tuple[int, int], tuple[int, int]]) -> None:
    """See that no element is a chunk of two places: in one table of chunks or in two."""
    named: list[npt.NDArray[np.uint32]] = []
    for tag, number in directory:
        if tag != _VALUES | _SPECIAL:
            continue
        head = elements.special(_VALUES, number)
        if head is None or _code(head) != _CHUNKED:
            continue
        try:
            table = struct.unpack_from(_CHUNK_HEAD, head)[8]
            _, rows, width, _ = struct.unpack_from(">HIHH", elements.read(_TABLE_HEAD, table))
            data = elements.read(_TABLE, table, rows * width)
            lines = np.frombuffer(data, np.uint8, rows * width).reshape(rows, width)
            named.append(np.ascontiguousarray(lines[:, -4:]).view(">u4").ravel())
        except (DamagedStreamError, ValueError, struct.error):
            continue  # told when the data set is read
    every = np.concatenate(named) if named else np.empty(0, np.uint32)
    if len(np.unique(every)) != len(every):
        raise DamagedStreamError("two places in its tables of chunks name one chunk")


def deflated_places(path: Path) -> tuple[tuple[int, int], ...]:
    """List offset and length in bytes of every deflated stream of an HDF4 file.

    Of a stream in linked blocks, each block is listed.
    """
    with path.open("rb") as file:
        directory = _descriptors(file)
        elements = _Elements(file, directory)
        places = [at for (tag, _), at in directory.items() if tag == _DEFLATED]
        for tag, number in directory:
            if tag == _DEFLATED | _SPECIAL:
                places += elements.block_places(_DEFLATED, number)
        return tuple(places)


def plain_places(path: Path) -> tuple[tuple[int, int], ...]:
    """List offset and length in bytes of all values of an HDF4 file that are not compressed.

    Values that are the file's own account of itself (attributes are values, too) are among them.
    """
    with path.open("rb") as file:
        directory = _descriptors(file)
        elements = _Elements(file, directory)
        places = [at for (tag, _), at in directory.items() if tag == _VALUES]
        for tag, number in directory:
            if tag == _VALUES | _SPECIAL:
                head = elements.special(_VALUES, number)
                if head is not None and _code(head) == _IN_BLOCKS:
                    places += elements.block_places(_VALUES, number)
            elif tag == _CHUNK:
                places.append(directory[tag, number])
        return tuple(places)


class _Elements:
    """The elements of an open file."""

    def __init__(
        self,
        file: BinaryIO,
        directory: dict[tuple[int, int], tuple[int, int]],
        held: Held | None = None,
    ) -> None:
        self._file = file
        self._directory = directory
        self._held = held

    def want(self, places: Iterable[tuple[int, int]], *, values: bool = True) -> None:
        """Raise NotHeldError unless the bytes of these places (offset, length) are here."""
        if self._held is not None:
            ranges = ((offset, offset + length) for offset, length in places)
            self._held.want(ranges, values=values)

    def places(self, tag: int, number: int) -> list[tuple[int, int]]:
        """Return where the bytes of an element lie: of a deflated one, those of its stream."""
        head = self.special(tag, number)
        if head is None:
            return [self._directory[tag, number]] if (tag, number) in self._directory else []
        if _code(head) == _COMPRESSED:
            return self.places(_DEFLATED, struct.unpack_from(">HHIH", head)[3])
        return self.block_places(tag, number) if _code(head) == _IN_BLOCKS else []

    def special(self, tag: int, number: int) -> bytes | None:
        """Return the header of an element that is not stored in one piece; None if it is."""
        if (tag, number) in self._directory:
            return None
        return self._bytes(tag | _SPECIAL, number)

    def read(self, tag: int, number: int, reach: int | None = None) -> bytes | bytearray:
        """Read an element's bytes, or its first `reach` bytes, from one piece or linked blocks."""
        head = self.special(tag, number)
        data = self._bytes(tag, number, reach) if head is None else self._linked(head, reach)
        if reach is not None and len(data) < reach:
            raise DamagedStreamError(f"element {tag}/{number} has less than {reach} bytes")
        return data

    def length(self, tag: int, number: int) -> int:
        """Return the bytes of an element in one piece or in linked blocks."""
        head = self.special(tag, number)
        if head is None:
            return self._directory[tag, number][1]
        return int(struct.unpack(">HIIIH", head)[1])

    def inflate(self, head: bytes, size: int, reach: int) -> bytes:
        """Inflate the first `reach` bytes of a deflated element of `size` bytes.

        The whole stream is inflated, because its checksum covers the whole.
        """
        code, version, length, number, model, coder = struct.unpack_from(">HHIHHH", head)
        if coder in _OTHER_CODERS:
            raise _UnknownError
        if (code, version, length, model, coder) != (_COMPRESSED, 0, size, 0, _DEFLATE):
            raise DamagedStreamError("the header of deflated bytes is damaged")
        stream = self.read(_DEFLATED, number)
        inflater = isal_zlib.decompressobj()
        try:
            data: bytes = inflater.decompress(stream, reach)
            length = len(data)
            while not inflater.eof:  # the checksum is verified at the end of the stream
                rest = inflater.decompress(inflater.unconsumed_tail, _REST)
                length += len(rest)
                if not rest or length > size:
                    break
        except _InflateError as error:
            raise DamagedStreamError(f"deflated bytes are damaged: {error}") from error
        if length != size or not inflater.eof:
            raise DamagedStreamError(f"{length} bytes were inflated where {size} were stored")
        return data

    def _bytes(self, tag: int, number: int, reach: int | None = None) -> bytes:
        try:
            offset, length = self._directory[tag, number]
        except KeyError:
            raise DamagedStreamError(f"the file has no element {tag}/{number}") from None
        self._file.seek(offset)
        wanted = length if reach is None else min(length, reach)
        self.want([(offset, wanted)], values=tag in (_VALUES, _DEFLATED, _CHUNK))
        data = self._file.read(wanted)
        if len(data) != wanted:
            raise DamagedStreamError(f"the file breaks off within element {tag}/{number}")
        return data

    def _linked(self, head: bytes, reach: int | None) -> bytearray:
        code, length, size, per_table, table = struct.unpack(">HIIIH", head)
        if code != _IN_BLOCKS:
            raise _UnknownError
        end = length if reach is None else min(length, reach)
        data = bytearray()
        for number in self._links(table, per_table):
            block = self._bytes(_LINKED, number)
            if data and len(block) != size:  # only the first block may have a different length
                raise DamagedStreamError("a linked block has not the length of the others")
            data += block
            if len(data) >= end:
                del data[end:]
                return data
        raise DamagedStreamError("linked blocks end too early")

    def block_places(self, tag: int, number: int) -> list[tuple[int, int]]:
        """Return offset and length of each block of an element in linked blocks."""
        head = self.special(tag, number)
        if head is None or _code(head) != _IN_BLOCKS:
            return []
        *_, per_table, table = struct.unpack(">HIIIH", head)
        blocks = ((_LINKED, link) for link in self._links(table, per_table))
        return [self._directory[block] for block in blocks if block in self._directory]

    def _links(self, table: int, per_table: int) -> Iterator[int]:
        seen: set[int] = set()
        while table and table not in seen:
            seen.add(table)
            numbers = struct.unpack(f">{per_table + 1}H", self._bytes(_LINKED, table))
            table = numbers[0]
            yield from numbers[1:]


def _code(head: bytes) -> int:
    return int(struct.unpack_from(">H", head)[0])


@dataclass(frozen=True, kw_only=True)
class _Chunks:
    """How a data set of shape `whole` is cut into chunks; those at far edges extend beyond it."""

    whole: Index
    dtype: np.dtype[np.generic]
    shape: Index
    fill: bytes
    table: int
    deflated: bool

    @property
    def across(self) -> Index:
        """The number of chunks along each axis."""
        return tuple(-(-size // part) for size, part in zip(self.whole, self.shape, strict=True))

    def values(self, elements: "_Elements", tag: int, number: int) -> Values:
        """Read a chunk; its bytes are in the file's order."""
        if tag != _CHUNK:
            raise DamagedStreamError(f"a chunk is an element of another kind ({tag})")
        size = prod(self.shape) * self.dtype.itemsize
        if self.deflated:
            head = elements.special(_CHUNK, number)
            if head is None:
                raise DamagedStreamError("a chunk is not deflated as the others are")
            data: bytes | bytearray = elements.inflate(head, size, size)
        else:
            data = elements.read(_CHUNK, number, size)
        return np.frombuffer(data, self.dtype.newbyteorder(">")).reshape(self.shape)


_CHUNK_HEAD = ">HIBIIIIHHHHI"


def _chunk_head(head: bytes, whole: Index, dtype: np.dtype[np.generic]) -> _Chunks:
    code, _, version, flags, total, elements, size, tag, table, _, _, axes = struct.unpack_from(
        _CHUNK_HEAD, head
    )
    if version:
        raise _UnknownError
    if (code, tag, axes) != (_CHUNKED, _TABLE_HEAD, len(whole)):
        raise DamagedStreamError("the header of its chunks is damaged")
    at = struct.calcsize(_CHUNK_HEAD)
    lengths = struct.unpack_from(f">{3 * axes}I", head, at)
    shape = tuple(lengths[2::3])
    at += 12 * axes
    (fill_size,) = struct.unpack_from(">I", head, at)
    fill, rest = head[at + 4 : at + 4 + fill_size], head[at + 4 + fill_size :]
    if lengths[1::3] != whole or (total, size) != (prod(whole), dtype.itemsize):
        raise DamagedStreamError("the header of its chunks is of another shape or type")
    if not 0 < elements == prod(shape) <= max(total, _SMALL_CHUNK) or len(fill) != size:
        raise DamagedStreamError("the header of its chunks is damaged")
    if flags == _COMPRESSED:
        packed = struct.unpack_from(">HIHH", rest)
        if packed[3] in _OTHER_CODERS:
            raise _UnknownError
        if packed != (_COMPRESSED, 6, 0, _DEFLATE):
            raise DamagedStreamError("the header of its deflated chunks is damaged")
    elif flags or rest:
        raise DamagedStreamError("the header of its chunks is damaged")
    return _Chunks(
        whole=whole, dtype=dtype, shape=shape, fill=fill, table=table, deflated=bool(flags)
    )


def _chunked(elements: _Elements, chunks: _Chunks, wanted: _Wanted) -> Values:
    """Assemble a part of a data set from the chunks it touches."""
    touched = []
    for place, tag, number in list(_chunk_table(elements, chunks)):
        into, out_of = _overlap(place, chunks.shape, wanted)
        if all(part.start < part.stop for part in into):
            touched.append((into, out_of, tag, number))
    elements.want(at for *_, tag, number in touched for at in elements.places(tag, number))
    out = np.empty(wanted.count, wanted.dtype)
    for into, out_of, tag, number in touched:
        out[into] = chunks.values(elements, tag, number)[out_of]
    return out


def _from_chunks(elements: _Elements, chunks: _Chunks, at: Sequence[Indexes]) -> Values:
    """Take single elements from the chunks that hold them, each chunk read once."""
    written = {place: found for place, *found in _chunk_table(elements, chunks)}
    out = np.empty(at[0].shape, chunks.dtype)
    touched = _by_chunk(chunks.shape, chunks.across, tuple(one.tobytes() for one in at))
    elements.want(
        bytes_at for place, *_ in touched for bytes_at in elements.places(*written[place])
    )
    for place, members, inside in touched:
        out[members] = chunks.values(elements, *written[place]).ravel()[inside]
    return out


@lru_cache(maxsize=_PLANS)
def _by_chunk(
    chunk: Index, across: Index, at: tuple[bytes, ...]
) -> tuple[tuple[Index, Indexes, Indexes], ...]:
    """Sort elements by the chunk that holds them: (its position, which ones, where inside it).

    Layers of many granules are read at the same elements.
    """
    places = [np.frombuffer(one, np.int64) for one in at]
    cut = [np.divmod(one, length) for one, length in zip(places, chunk, strict=True)]
    number = np.ravel_multi_index([whole for whole, _ in cut], across)
    inside = np.ravel_multi_index([rest for _, rest in cut], chunk)
    order = np.argsort(number, kind="stable")
    firsts = np.flatnonzero(np.diff(number[order], prepend=-1))
    return tuple(
        (
            tuple(int(one) for one in np.unravel_index(number[members[0]], across)),
            members,
            inside[members],
        )
        for members in np.split(order, firsts[1:])
    )


def _chunk_table(elements: _Elements, chunks: _Chunks) -> Iterator[tuple[Index, int, int]]:
    """Yield (position in units of chunks, tag, number) of every chunk; each is there once."""
    axes = len(chunks.shape)
    interlace, rows, width, fields = struct.unpack_from(
        ">HIHH", elements.read(_TABLE_HEAD, chunks.table)
    )
    across = chunks.across
    if (interlace, width, fields, rows) != (0, 4 * axes + 4, 3, prod(across)):
        raise DamagedStreamError(f"the table of its {prod(across)} chunks is damaged")
    table = elements.read(_TABLE, chunks.table, rows * width)
    seen: set[Index] = set()
    for *place, tag, number in struct.iter_unpack(f">{axes}iHH", table[: rows * width]):
        at = tuple(place)
        if at in seen or any(not 0 <= one < end for one, end in zip(at, across, strict=True)):
            raise DamagedStreamError(f"the table of its chunks has a chunk twice or off it: {at}")
        seen.add(at)
        yield at, tag, number


def _overlap(
    place: Index, chunk: Index, wanted: _Wanted
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where a chunk goes in the wanted part, and which part of the chunk that is."""
    into, out_of = [], []
    for at, length, start, count in zip(place, chunk, wanted.start, wanted.count, strict=True):
        begin, first = at * length, max(at * length, start)
        last = min(begin + length, start + count)
        into.append(slice(first - start, last - start))
        out_of.append(slice(first - begin, last - begin))
    return tuple(into), tuple(out_of)
