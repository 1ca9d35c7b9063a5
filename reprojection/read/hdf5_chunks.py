"""Read chunks of an HDF5 data set at the places that its checked index lists.

The library looks chunks up in the index, and takes one that it does not find for one that was never
written: it reads as fill or zeros. What is listed is read here instead, and inflated against its
checksum (zlib's Adler-32). Chunks with other filters than shuffling and deflating are left to the
library, after it was seen to find them.
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

Index = tuple[int, ...]
Values = npt.NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """The chunks of a data set: offset and bytes in the file, and the filters that were left out.

    `listed` has these by the chunk's first element; `filters` are the numbers of the data set's
    filters in order.
    """

    listed: dict[Index, tuple[int, int, int]]
    shape: Index
    filters: Index

    @property
    def is_read_here(self) -> bool:
        """Whether all filters are known here."""
        return set(self.filters) <= {_DEFLATE, _SHUFFLE}

    def touched(self, start: Index, count: Index) -> Iterator[Index]:
        """Yield the first element of each chunk that a block touches."""
        axes = zip(start, count, self.shape, strict=True)
        return product(
            *(range(at // part * part, at + size, part) for at, size, part in axes if size)
        )

    def read(self, descriptor: int, item: h5py.Dataset, start: Index, count: Index) -> Values:
        """Read the block of shape `count` at `start`.

        Raises:
            ValueError: the bytes of a chunk are not what was stored.
            OSError: they cannot be read.
        """
        out: Values = np.empty(count, item.dtype)
        if 0 in count:
            return out
        for place in self.touched(start, count):
            into, out_of = [], []
            for at, part, first, size in zip(place, self.shape, start, count, strict=True):
                low, high = max(at, first), min(at + part, first + size)
                into.append(slice(low - first, high - first))
                out_of.append(slice(low - at, high - at))
            out[tuple(into)] = self._chunk(descriptor, place, item.dtype)[tuple(out_of)]
        return out

    def look_up(self, item: h5py.Dataset, start: Index, count: Index) -> None:
        """See that the library finds each chunk of a block. Raises ValueError."""
        for place in self.touched(start, count):
            offset, size, mask = self.listed[place]
            found, data = item.id.read_direct_chunk(place)
            if (found, len(data)) != (mask, size):
                raise ValueError(f"the chunk at {place} is not found where byte {offset} has it")

    def _chunk(self, descriptor: int, place: Index, dtype: np.dtype[np.generic]) -> Values:
        offset, size, mask = self.listed[place]
        data: bytes | Values = os.pread(descriptor, size, offset)
        if len(data) != size:
            raise ValueError("the file breaks off within a chunk")
        plain = prod(self.shape) * dtype.itemsize
        for number in reversed(range(len(self.filters))):
            if mask >> number & 1:
                continue
            if self.filters[number] == _DEFLATE:
                data = _inflated(cast("bytes", data), plain)
            else:
                data = _unshuffled(data, dtype.itemsize)
        if len(data) != plain:
            raise ValueError(f"a chunk has {len(data)} bytes where its shape takes {plain}")
        return np.frombuffer(data, dtype).reshape(self.shape)


def _inflated(data: bytes, size: int) -> bytes:
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


def _unshuffled(data: bytes | Values, itemsize: int) -> Values:
    """Put the bytes of each value together again: they are stored first bytes first."""
    stored = np.frombuffer(data, np.uint8)
    if itemsize == 1 or len(stored) % itemsize:
        return stored
    return np.ascontiguousarray(stored.reshape(itemsize, -1).T).ravel()
