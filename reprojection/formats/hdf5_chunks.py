"""Read chunks of an HDF5 data set at the places that its checked index lists.

The library looks chunks up in the index, and takes one that it does not find for one that was never
written: it reads as fill or zeros. What is listed is read here instead, and inflated against its
checksum (zlib's Adler-32). Chunks with other filters than shuffling and deflating are left to the
library, after it was seen to find them.

A layer can have thousands of chunks of some kilobytes. What need not be done for each alone is done
for many at once: reading those that lie side by side, and putting shuffled bytes together again.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

import h5py
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

_DEFLATE, _SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE
_InflateError = cast("type[Exception]", isal_zlib.error)
_BATCH = 4_000_000  # bytes of values that are inflated at once
_GAP = 4096  # bytes between two chunks that are read with them
_RUN = 8_000_000  # bytes of a file that are read at once

Index = tuple[int, ...]
Values = npt.NDArray[np.generic]
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """The chunks of a data set, in arrays that have the form of its grid of chunks.

    `offsets` and `sizes` are places and bytes in the file, `masks` the filters that were left out.
    `filters` are the numbers of the data set's filters in order.
    """

    offsets: Numbers
    sizes: Numbers
    masks: Numbers
    shape: Index
    filters: Index

    @property
    def is_read_here(self) -> bool:
        """True if all filters are known here."""
        return set(self.filters) <= {_DEFLATE, _SHUFFLE}

    def read(self, descriptor: int, item: h5py.Dataset, start: Index, count: Index) -> Values:
        """Read the block of shape `count` at `start`.

        Raises:
            ValueError: the bytes of a chunk are not what was stored.
            OSError: they cannot be read.
        """
        out: Values = np.empty(count, item.dtype)
        if 0 not in count:
            self._fill(out, descriptor, start)
        return out

    def places(self, start: Index, count: Index) -> list[tuple[int, int]]:
        """Return begin and end in the file of each chunk that a block touches."""
        if 0 in count:
            return []
        block = tuple(slice(among.start, among.stop) for among in self._touched(start, count))
        begins, sizes = self.offsets[block].ravel(), self.sizes[block].ravel()
        return list(zip(begins.tolist(), (begins + sizes).tolist(), strict=True))

    def look_up(self, item: h5py.Dataset, start: Index, count: Index) -> None:
        """See that the library finds each chunk of a block. Raises ValueError."""
        if 0 in count:
            return
        for at in product(*self._touched(start, count)):
            place = tuple(number * part for number, part in zip(at, self.shape, strict=True))
            found, data = item.id.read_direct_chunk(place)
            if (found, len(data)) != (self.masks[at], self.sizes[at]):
                raise ValueError(
                    f"the chunk at {place} is not found where byte {self.offsets[at]} has it"
                )

    def _touched(self, start: Index, count: Index) -> tuple[range, ...]:
        """Return which chunks a block touches, by their numbers along each axis."""
        axes = zip(start, count, self.shape, strict=True)
        return tuple(range(at // part, -(-(at + size) // part)) for at, size, part in axes)

    def _fill(self, out: Values, descriptor: int, start: Index) -> None:
        """Read the block at `start` into `out`, by halves if it is large."""
        touched = self._touched(start, out.shape)
        size = prod(self.shape) * out.dtype.itemsize
        axis = next((axis for axis, among in enumerate(touched) if len(among) > 1), None)
        if axis is not None and prod(map(len, touched)) * size > _BATCH:
            among = touched[axis]
            middle = among[len(among) // 2] * self.shape[axis]
            first, second = np.split(out, [middle - start[axis]], axis)
            self._fill(first, descriptor, start)
            self._fill(second, descriptor, (*start[:axis], middle, *start[axis + 1 :]))
            return
        plain = self._plain(descriptor, touched, size, out.dtype.itemsize)
        values = plain.view(out.dtype).reshape(*map(len, touched), *self.shape)
        axes = out.ndim
        turned = values.transpose([one for at in range(axes) for one in (at, at + axes)])
        joined = turned.reshape(
            [len(among) * part for among, part in zip(touched, self.shape, strict=True)]
        )
        begins = (at % part for at, part in zip(start, self.shape, strict=True))
        wanted = tuple(slice(at, at + n) for at, n in zip(begins, out.shape, strict=True))
        out[...] = joined[wanted]

    def _plain(
        self, descriptor: int, touched: tuple[range, ...], size: int, itemsize: int
    ) -> Bytes:
        """Return the bytes of chunks as they were before their filters, a row for each."""
        block = tuple(slice(among.start, among.stop) for among in touched)
        masks = self.masks[block].ravel()
        # What was done first is undone last, of all chunks at once.
        at_once = int(self.filters[:1] == (_SHUFFLE,) and itemsize > 1)
        parts: list[bytes | memoryview] = [
            *_stored(descriptor, self.offsets[block].ravel(), self.sizes[block].ravel())
        ]
        single = [
            (1 << number, code) for number, code in enumerate(self.filters) if number >= at_once
        ][::-1]
        if single == [(1 << at_once, _DEFLATE)] and not masks.any():
            parts = [_inflated(part, size) for part in parts]
        elif single:
            parts = [
                _undone(part, [code for bit, code in single if not mask & bit], size, itemsize)
                for part, mask in zip(parts, masks.tolist(), strict=True)
            ]
        if any(len(part) != size for part in parts):
            wrong = next(len(part) for part in parts if len(part) != size)
            raise ValueError(f"a chunk has {wrong} bytes where its shape takes {size}")
        rows = np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), size)
        if not at_once:
            return rows
        shuffled = masks & 1 == 0
        if shuffled.all():
            return _unshuffled(rows, itemsize)
        return np.where(shuffled[:, None], _unshuffled(rows, itemsize), rows)


def _stored(descriptor: int, offsets: Numbers, sizes: Numbers) -> list[memoryview]:
    """Read parts of a file; those that lie close together are read at once."""
    found: dict[int, memoryview] = {}
    for run in _runs(offsets, sizes):
        begin, end = int(offsets[run[0]]), int(offsets[run[-1]] + sizes[run[-1]])
        data = memoryview(os.pread(descriptor, end - begin, begin))
        if len(data) != end - begin:
            raise ValueError("the file breaks off within a chunk")
        ats = (offsets[run] - begin).tolist()
        for number, at, size in zip(run.tolist(), ats, sizes[run].tolist(), strict=True):
            found[number] = data[at : at + size]
    return [found[number] for number in range(len(offsets))]


def _runs(offsets: Numbers, sizes: Numbers) -> Iterator[Numbers]:
    """Yield the numbers of parts that are read at once, in the order of their places."""
    order = np.argsort(offsets)
    begins, ends = offsets[order], offsets[order] + sizes[order]
    apart = begins[1:] - ends[:-1] > _GAP
    further = np.diff((begins - begins[0]) // _RUN) > 0
    yield from np.split(order, np.flatnonzero(apart | further) + 1)


def _undone(
    data: bytes | memoryview, codes: list[int], size: int, itemsize: int
) -> bytes | memoryview:
    """Undo filters of one chunk, in the order given."""
    for code in codes:
        if code == _DEFLATE:
            data = _inflated(data, size)
        elif itemsize > 1:
            # What is left of compressed bytes, less than a value, was not shuffled.
            whole = len(data) - len(data) % itemsize
            rows = np.frombuffer(data, np.uint8)[None, :whole]
            data = _unshuffled(rows, itemsize).tobytes() + bytes(data[whole:])
    return data


def _inflated(data: bytes | memoryview, size: int) -> bytes:
    inflater = isal_zlib.decompressobj()
    try:
        found: bytes = inflater.decompress(data, size + 1)
        if not inflater.eof and len(found) == size:  # the checksum is verified at the end
            found += inflater.decompress(inflater.unconsumed_tail, 1)
    except _InflateError as error:
        raise ValueError(f"deflated bytes are damaged: {error}") from error
    if len(found) != size or not inflater.eof or inflater.unused_data:
        raise ValueError(f"{len(found)} bytes were inflated where {size} were stored")
    return found


def _unshuffled(rows: Bytes, itemsize: int) -> Bytes:
    """Put the bytes of each value together again: in each row the first bytes are stored first."""
    stored = rows.reshape(len(rows), itemsize, -1)
    if itemsize not in (2, 4, 8):
        return np.ascontiguousarray(stored.transpose(0, 2, 1)).reshape(rows.shape)
    # The first byte in memory is the lowest of a number of this type, on every machine.
    numbers = stored[:, -1].astype(f"<u{itemsize}")
    for byte in range(itemsize - 2, -1, -1):
        numbers <<= 8
        numbers |= stored[:, byte]
    return numbers.view(np.uint8).reshape(rows.shape)
