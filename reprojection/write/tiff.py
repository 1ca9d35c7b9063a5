"""Write the bytes of a Cloud Optimized GeoTIFF; georeferencing tags come from GDAL.

Formats: TIFF 6.0 (sections 2, 8, 14 and 15), its Technical Note 3 (floating point predictor),
BigTIFF, OGC 21-026 (Cloud Optimized GeoTIFF) and GDAL's structural metadata for it. The directories
come first, then the tiles, the smallest overview's first; each tile has its length before it and
its last four bytes repeated after it. Of a stack, which is no such file, the directory comes last.
"""

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import numpy as np
from isal import isal_zlib

from reprojection.kernels import kernels
from reprojection.kernels.kernels import address
from reprojection.read.raster import Pixels
from reprojection.write.sizes import TILE

Packed = bytes | memoryview

STACK_TILE = 256
"""Rows and columns of a tile of a stack."""

CLASSIC_BYTES = 0xF000_0000
"""Bytes of uncompressed pixels beyond which offsets have eight bytes."""

_STRUCTURE = (
    b"LAYOUT=IFDS_BEFORE_DATA\nBLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\n"
    b"BLOCK_TRAILER=LAST_4_BYTES_REPEATED\nKNOWN_INCOMPATIBLE_EDITION=NO\n "
)
_GHOST = b"GDAL_STRUCTURAL_METADATA_SIZE=%06d bytes\n" % len(_STRUCTURE) + _STRUCTURE

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 16: 8}
_LONG, _SHORT, _LONG8 = 4, 3, 16
_DEFLATE, _PLAIN = 8, 1
_LEVEL = 2  # compression level of ISA-L, 0 to 3
_SAMPLED = 32  # one of this many rows of a tile is compressed in both ways
_LARGER = 1.02  # size ratio accepted for the compression that is twice as fast

# Tags that depend on size and layout; they are not copied but written.
_LAYOUT_TAGS = frozenset(
    (254, 256, 257, 259, 266, 273, 274, 278, 279, 284, 317, 322, 323, 324, 325)
)
# Tags that overviews share: sample format, colours, nodata.
_OVERVIEW_TAGS = frozenset((258, 262, 277, 320, 338, 339, 42113))


@dataclass(frozen=True, kw_only=True)
class Tag:
    """One entry of a directory: number, type, count, and its values as little-endian bytes."""

    number: int
    kind: int
    count: int
    data: bytes


def read_tags(blob: bytes) -> list[Tag]:
    """Read the tags of the first directory of a little-endian classic TIFF."""
    (place,) = struct.unpack_from("<I", blob, 4)
    (entries,) = struct.unpack_from("<H", blob, place)
    tags = []
    for entry in range(entries):
        at = place + 2 + 12 * entry
        number, kind, count = struct.unpack_from("<HHI", blob, at)
        size = _SIZES[kind] * count
        start = at + 8 if size <= 4 else struct.unpack_from("<I", blob, at + 8)[0]
        tags.append(Tag(number=number, kind=kind, count=count, data=blob[start : start + size]))
    return tags


def write_tiff(
    file: BinaryIO,
    levels: Sequence[Sequence[Pixels]],
    template: bytes,
    *,
    deflate: bool,
    threads: int = 1,
) -> None:
    """Write levels of planes, full size first, with the georeferencing of a template's bytes.

    Every level has the same number of planes of one dtype; pixels are interleaved. A file that may
    exceed 4 GiB is a BigTIFF.
    """
    with ThreadPoolExecutor(threads) as pool:
        own = pool if threads > 1 else None
        tiles = [partial(_encoded, level, deflate, own, threads) for level in levels]
        _put(file, [_Level.of(level) for level in levels], tiles, template, deflate=deflate)


@dataclass(frozen=True, kw_only=True)
class _Level:
    """What the directory of a level says of its pixels."""

    height: int
    width: int
    bands: int
    dtype: np.dtype[np.generic]

    @classmethod
    def of(cls, planes: Sequence[Pixels]) -> "_Level":
        height, width = planes[0].shape
        return cls(height=height, width=width, bands=len(planes), dtype=planes[0].dtype)

    def tiles(self, side: int = TILE) -> int:
        return -(-self.height // side) * -(-self.width // side)

    def halved(self) -> "_Level":
        return replace(self, height=(self.height + 1) // 2, width=(self.width + 1) // 2)


class StripedTiles:
    """The encoded tiles of a raster and its overviews, whose rows come stripe by stripe.

    They wait in files of the folder `scratch`, a level in each, because the smallest overview comes
    first in a file. `halve` makes of a plane of each band that of half its size.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype[np.generic],
        halve: Sequence[Callable[[Pixels], Pixels]],
        scratch: Path,
    ) -> None:
        self._halve = halve
        levels = [_Level(height=shape[0], width=shape[1], bands=len(halve), dtype=dtype)]
        while max(levels[-1].height, levels[-1].width) > TILE:
            levels.append(levels[-1].halved())
        self._levels = levels
        with ExitStack() as files:
            self._files = [files.enter_context(TemporaryFile(dir=scratch)) for _ in levels]
            self._open = files.pop_all()
        self._lengths: list[list[int]] = [[] for _ in levels]
        self._waiting: list[list[Pixels]] = [[] for _ in levels]

    def __enter__(self) -> "StripedTiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, planes: Sequence[Pixels], level: int = 0) -> None:
        """Take the next rows of each band: as many as a tile has, or the last ones."""
        for tile in _encoded(planes, True, None, 1):
            self._files[level].write(tile)
            self._lengths[level].append(len(tile))
        if level + 1 < len(self._levels):
            self._wait(
                [half(one) for half, one in zip(self._halve, planes, strict=True)], level + 1
            )

    def _wait(self, planes: list[Pixels], level: int) -> None:
        """Keep half a tile's rows of an overview until there are those of a tile."""
        if not self._waiting[level]:
            self._waiting[level] = planes
            return
        both = zip(self._waiting[level], planes, strict=True)
        self._waiting[level] = []
        self.add([np.concatenate(pair) for pair in both], level)

    def write(self, file: BinaryIO, template: bytes) -> None:
        """Write the file, once all rows were added; as `write_tiff` compressed."""
        for level, planes in enumerate(self._waiting):
            if planes:
                self._waiting[level] = []
                self.add(planes, level)
        tiles = [partial(self._read, number) for number in range(len(self._levels))]
        _put(file, self._levels, tiles, template, deflate=True)

    def _read(self, level: int) -> Iterator[bytes]:
        self._files[level].seek(0)
        for length in self._lengths[level]:
            yield self._files[level].read(length)


def _put(
    file: BinaryIO,
    levels: Sequence[_Level],
    tiles: Sequence[Callable[[], Iterable[Packed]]],
    template: bytes,
    *,
    deflate: bool,
) -> None:
    """Write the directories of levels and their encoded tiles, those of a level in row order."""
    tags = [tag for tag in read_tags(template) if tag.number not in _LAYOUT_TAGS]
    bits = levels[0].dtype.itemsize * levels[0].bands
    layout = _Layout(big=sum(level.tiles() for level in levels) * TILE**2 * bits > CLASSIC_BYTES)
    head = layout.header(layout.first + len(_GHOST)) + _GHOST
    directories = [
        _directory_tags(level, tags, is_overview=number > 0, deflate=deflate)
        for number, level in enumerate(levels)
    ]
    # The length of a directory does not depend on the tiles' offsets, so its offset is known.
    blank = [[(0, 0)] * level.tiles() for level in levels]
    sizes = [
        len(layout.directory(found, where, 0, last=False))
        for found, where in zip(directories, blank, strict=True)
    ]
    starts = [len(head) + sum(sizes[:number]) for number in range(len(sizes))]
    file.write(head + bytes(sum(sizes)))
    at = len(head) + sum(sizes)
    places: list[list[tuple[int, int]]] = [[] for _ in levels]
    for number in reversed(range(len(levels))):
        for tile in tiles[number]():
            file.writelines((struct.pack("<I", len(tile)), tile, tile[-4:]))
            places[number].append((at + 4, len(tile)))
            at += len(tile) + 8
    file.seek(len(head))
    for number, (found, where) in enumerate(zip(directories, places, strict=True)):
        file.write(layout.directory(found, where, starts[number], last=number == len(levels) - 1))


def write_planes(file: BinaryIO, planes: Iterable[Pixels], count: int, template: bytes) -> None:
    """Write planes one after the other, so that each can be read without the others.

    There are `count`, of one shape and type; each is let go before the next one is taken. The
    georeferencing is that of a template's bytes, which has as many bands.

    Raises:
        ValueError: the planes differ in shape or type.
    """
    tags = [tag for tag in read_tags(template) if tag.number not in _LAYOUT_TAGS]
    places: list[tuple[int, int]] = []
    layout, own, at, like = _Layout(big=False), list[Tag](), 0, None
    for plane in planes:
        if like not in (None, (plane.shape, plane.dtype)):
            raise ValueError(f"a plane has {(plane.shape, plane.dtype)}, the first one {like}")
        if like is None:
            like = plane.shape, plane.dtype
            level = _Level.of([plane])
            bound = count * level.tiles(STACK_TILE) * STACK_TILE**2 * plane.dtype.itemsize
            layout = _Layout(big=bound > CLASSIC_BYTES)
            own = _directory_tags(level, tags, deflate=True, side=STACK_TILE, planar=True)
            at = file.write(bytes(layout.first))
        for tile in _encoded([plane], True, None, 1, STACK_TILE):
            places.append((at, len(tile)))
            at += file.write(tile)
    at += file.write(bytes(-at % 16))
    file.write(layout.directory(own, places, at, last=True))
    file.seek(0)
    file.write(layout.header(at))


def _directory_tags(
    level: _Level,
    tags: Sequence[Tag],
    *,
    deflate: bool,
    is_overview: bool = False,
    side: int = TILE,
    planar: bool = False,
) -> list[Tag]:
    kept = [tag for tag in tags if not is_overview or tag.number in _OVERVIEW_TAGS]
    predictor = 1 if not deflate else 3 if level.dtype.kind == "f" else 2
    own = {256: level.width, 257: level.height, 259: _DEFLATE if deflate else _PLAIN}
    own |= {284: 2 if planar else 1, 317: predictor, 322: side, 323: side}
    if is_overview:
        own[254] = 1
    made = [_long(number, value) for number, value in own.items()]
    return sorted(kept + made, key=lambda tag: tag.number)


def _long(number: int, value: int) -> Tag:
    short = number in (259, 284, 317)
    data = struct.pack("<H" if short else "<I", value)
    return Tag(number=number, kind=_SHORT if short else _LONG, count=1, data=data)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Classic TIFF with offsets of 4 bytes, or BigTIFF with offsets of 8."""

    big: bool

    @property
    def first(self) -> int:
        """The length of the header."""
        return 16 if self.big else 8

    def header(self, directory: int) -> bytes:
        """Return the file's first bytes, by the place of its first directory."""
        if self.big:
            return struct.pack("<2sHHHQ", b"II", 43, 8, 0, directory)
        return struct.pack("<2sHI", b"II", 42, directory)

    def directory(
        self, tags: Sequence[Tag], tiles: Sequence[tuple[int, int]], start: int, *, last: bool
    ) -> bytes:
        """Encode a directory with its values behind it, padded to a multiple of 16 bytes."""
        offset = "Q" if self.big else "I"
        places = struct.pack(f"<{len(tiles)}{offset}", *(place for place, _ in tiles))
        lengths = struct.pack(f"<{len(tiles)}I", *(length for _, length in tiles))
        place_kind = _LONG8 if self.big else _LONG
        entries = [
            *tags,
            Tag(number=324, kind=place_kind, count=len(tiles), data=places),
            Tag(number=325, kind=_LONG, count=len(tiles), data=lengths),
        ]
        entries.sort(key=lambda tag: tag.number)
        inline = 8 if self.big else 4
        table = (8 if self.big else 2) + len(entries) * (20 if self.big else 12) + inline
        head = struct.pack("<Q" if self.big else "<H", len(entries))
        values = b""
        for tag in entries:
            head += struct.pack("<HHQ" if self.big else "<HHI", tag.number, tag.kind, tag.count)
            if len(tag.data) <= inline:
                head += tag.data.ljust(inline, b"\0")
            else:
                head += struct.pack(f"<{offset}", start + table + len(values))
                values += tag.data + b"\0" * (-len(tag.data) % 8)
        size = -(-(table + len(values)) // 16) * 16
        following = 0 if last else start + size
        return (head + struct.pack(f"<{offset}", following) + values).ljust(size, b"\0")


def _encoded(
    level: Sequence[Pixels],
    deflate: bool,
    pool: ThreadPoolExecutor | None,
    threads: int,
    side: int = TILE,
) -> Iterator[Packed]:
    """Yield the encoded tiles of a level in row-major order."""
    height, width = level[0].shape
    corners = [(row, col) for row in range(0, height, side) for col in range(0, width, side)]
    if pool is None:
        for corner in corners:
            yield _encode(level, corner, deflate, side)
        return
    # Encode a few at a time, so that memory never holds a whole level of encoded tiles.
    for first in range(0, len(corners), 4 * threads):
        part = corners[first : first + 4 * threads]
        yield from pool.map(lambda corner: _encode(level, corner, deflate), part)


def _encode(
    level: Sequence[Pixels], corner: tuple[int, int], deflate: bool, side: int = TILE
) -> Packed:
    rows, cols = (slice(start, start + side) for start in corner)
    tile = _samples([plane[rows, cols] for plane in level], deflate=deflate, side=side)
    return _deflate(tile) if deflate else tile.tobytes()


def _samples(
    planes: Sequence[Pixels], *, deflate: bool, side: int = TILE, rows: int | None = None
) -> Pixels:
    """Return a tile of `side` rows, or its first ones, ready to be compressed if `deflate`."""
    whole_numbers = planes[0].dtype.kind != "f"
    tile = _interleaved(planes, predict=deflate and whole_numbers, side=side)[:rows]
    return tile if whole_numbers or not deflate else _predicted_float(tile)


def deflate_halves(level: Sequence[Pixels]) -> bool:
    """Tell whether DEFLATE at least halves planes, by one of 32 rows of each tile."""
    height, width = level[0].shape
    before = after = 0
    for row in range(0, height, TILE):
        middle = (row + min(row + TILE, height)) // 2
        rows = slice(middle, middle + TILE // _SAMPLED)
        for col in range(0, width, TILE):
            planes = [plane[rows, col : col + TILE] for plane in level]
            samples = _samples(planes, deflate=True, rows=planes[0].shape[0])
            before += samples.nbytes
            after += len(_deflate(samples))
    return 2 * after <= before


def _interleaved(planes: Sequence[Pixels], *, predict: bool, side: int = TILE) -> Pixels:
    """Interleave the planes' parts into a tile (side, side, bands), as differences if `predict`."""
    dtype = planes[0].dtype
    tile = np.empty((side, side, len(planes)), dtype)
    put = kernels.function("interleave_band", _INTERLEAVE, ctypes.c_int32)
    down, across = planes[0].shape
    for band, plane in enumerate(planes):
        # A part of a plane is a view: pass its address and the plane's row step.
        held = plane if plane.strides[1] == dtype.itemsize else np.ascontiguousarray(plane)
        step = held.strides[0] // dtype.itemsize
        about = (step, down, across, side, band, len(planes), int(predict))
        put(dtype.itemsize, address(held), *about, address(tile))
    return tile


_LONGS = [ctypes.c_int64] * 6
_INTERLEAVE: list[kernels.CType] = [
    *(ctypes.c_int32, ctypes.c_void_p),
    *_LONGS,
    *(ctypes.c_int32, ctypes.c_void_p),
]


def _predicted_float(tile: Pixels) -> Pixels:
    """Sort the bytes of a row by significance, then take differences (TIFF Technical Note 3)."""
    rows, cols, bands = tile.shape
    size = tile.dtype.itemsize
    parts = tile.reshape(rows, -1).view(np.uint8).reshape(rows, cols * bands, size)
    ordered = np.empty((rows, size, cols * bands), np.uint8)
    for place in range(size):
        ordered[:, place] = parts[:, :, size - 1 - place]  # from little-endian samples
    flat = ordered.reshape(rows, -1)
    out = np.empty_like(flat)
    out[:, :bands] = flat[:, :bands]
    np.subtract(flat[:, bands:], flat[:, :-bands], out=out[:, bands:])
    return out


def _deflate(samples: Pixels) -> Packed:
    """Compress a tile into a zlib stream (RFC 1950): the same bytes on every CPU.

    The kernel looks for repeats only of the byte before and the row above. It is twice as fast as
    ISA-L and mostly compresses better, except where samples hardly vary. A part of the tile is
    compressed with both to choose.
    """
    held = np.ascontiguousarray(samples)
    rows = len(held)
    some = held[rows // 2 : rows // 2 + max(1, rows // _SAMPLED)]
    if len(_deflate_by_kernel(some)) > _LARGER * len(_deflate_by_isal(some)):
        return _deflate_by_isal(held)
    return _deflate_by_kernel(held)


def _deflate_by_isal(samples: Pixels) -> bytes:
    compressed: bytes = isal_zlib.compress(samples, _LEVEL)
    return compressed


def _deflate_by_kernel(samples: Pixels) -> Packed:
    pack = kernels.function("deflate_tile", _DEFLATE_TILE, ctypes.c_int64)
    head = len(_ZLIB_HEAD)
    room = samples.nbytes + samples.nbytes // 4096 + 1024
    stream = np.empty(head + room + 4, np.uint8)
    about = (address(samples), samples.nbytes, samples.strides[0])
    size = pack(*about, address(stream[head:]), room)
    if size < 0:
        raise MemoryError(f"no memory to compress {samples.nbytes} bytes")
    check: int = isal_zlib.adler32(samples)
    whole = stream[: head + size + 4].data
    whole[:head] = _ZLIB_HEAD
    whole[head + size :] = check.to_bytes(4, "big")
    return whole


_DEFLATE_TILE: list[kernels.CType] = [
    *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
    *(ctypes.c_void_p, ctypes.c_int64),
]
_ZLIB_HEAD = b"\x78\x01"
