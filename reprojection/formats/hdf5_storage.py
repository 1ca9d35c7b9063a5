"""Check where an HDF5 data set lies in its file before its values are read.

The library checks neither the index of chunks (of a version 1 B-tree, 40 bytes a chunk without a
checksum) nor what it says of a chunk. With one damaged byte a row of chunks reads as fill or zeros,
or deflated bytes are taken for values. So every chunk of the data set's grid has to be in the index
once, at a multiple of the chunk's shape, within the file, of a size that its filters allow, and not
in the place of another one.

Source: HDF5 File Format Specification version 3, III.A "Disk Format: Level 1A1", IV.A.2.i "Data
Layout", IV.A.2.l "Filter Pipeline".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from reprojection.errors import UnreadableGranuleError
from reprojection.formats.hdf5_chunks import Chunks

_SHUFFLE, _CHECKSUM = h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32
_KEEP_SIZE = (_SHUFFLE, _CHECKSUM)
_CHECKSUM_BYTES = 4
_GROWTH = 1.01  # deflated noise is larger than it was, by a thousandth and a header
_HEADER = 64

Numbers = npt.NDArray[np.int64]


@dataclass(kw_only=True)
class StorageChecks:
    """What has been checked of an open file; each data set is checked once.

    `size` is the file's length in bytes.
    """

    path: Path
    size: int
    _checked: dict[str, Chunks | None] = field(default_factory=dict, init=False)
    _begins: list[Numbers] = field(default_factory=list, init=False)
    _ends: list[Numbers] = field(default_factory=list, init=False)
    _found: Chunks | None = field(default=None, init=False)

    def check(self, item: h5py.Dataset) -> Chunks | None:
        """Check a data set, unless it was checked before; return its chunks, if it has some.

        Raises:
            UnreadableGranuleError: its storage is not what its shape and filters say.
        """
        if item.name in self._checked:
            return self._checked[item.name]
        self._found = None
        problem = self._problem(item)
        if problem:
            raise UnreadableGranuleError(
                f"{self.path.name}: layer {item.name.rsplit('/', 1)[-1]!r} cannot be decoded: "
                f"{problem}; the file is truncated or damaged: fetch it again"
            )
        self._checked[item.name] = self._found
        return self._found

    def _problem(self, item: h5py.Dataset) -> str:
        plist = item.id.get_create_plist()
        if problem := _type_problem(item):
            return problem
        raw = item.size * item.dtype.itemsize
        if not raw or plist.get_layout() == h5py.h5d.COMPACT:
            return ""
        if plist.get_layout() == h5py.h5d.CONTIGUOUS:
            return self._contiguous(item, raw)
        return self._chunked(item, _Filters.of(plist, item.dtype))

    def _contiguous(self, item: h5py.Dataset, raw: int) -> str:
        begin, stored = item.id.get_offset(), item.id.get_storage_size()
        if begin is None:
            return "it has no place in the file"
        if stored != raw:
            return f"it has {stored} bytes where its shape takes {raw}"
        return self._places(np.array([begin], np.int64), np.array([raw], np.int64))

    def _chunked(self, item: h5py.Dataset, filters: "_Filters") -> str:
        listed: list[h5py.h5d.StoreInfo] = []
        item.id.chunk_iter(listed.append)
        across = [-(-size // part) for size, part in zip(item.shape, item.chunks, strict=True)]
        if len(listed) != prod(across):
            return f"its index has {len(listed)} chunks where its shape takes {prod(across)}"
        firsts, left_out, begins, lengths = zip(*listed, strict=True)
        place, rest = np.divmod(np.array(firsts, np.int64), np.array(item.chunks, np.int64))
        if rest.any() or (place < 0).any() or (place >= across).any():
            return "its index places a chunk off the grid of chunks"
        order = np.argsort(np.ravel_multi_index(tuple(place.T), across))
        if (np.diff(np.ravel_multi_index(tuple(place[order].T), across)) == 0).any():
            return "its index has a chunk twice"
        offsets, sizes, masks = (
            np.array(numbers, np.int64)[order] for numbers in (begins, lengths, left_out)
        )
        for mask in np.unique(masks):
            if problem := filters.problem(int(mask), sizes[masks == mask], prod(item.chunks)):
                return problem
        self._found = Chunks(
            offsets=offsets.reshape(across),
            sizes=sizes.reshape(across),
            masks=masks.reshape(across),
            shape=tuple(item.chunks),
            filters=tuple(filters.codes),
        )
        return self._places(offsets, sizes)

    def _places(self, begins: Numbers, sizes: Numbers) -> str:
        ends = begins + sizes
        if (begins < 0).any() or (sizes <= 0).any() or (ends > self.size).any():
            return "a part of it lies beyond the end of the file"
        every = np.concatenate([*self._begins, begins]), np.concatenate([*self._ends, ends])
        order = np.argsort(every[0], kind="stable")
        if (every[0][order][1:] < every[1][order][:-1]).any():
            return "parts of the file's data lie upon one another"
        self._begins.append(begins)
        self._ends.append(ends)
        return ""


@dataclass(frozen=True, kw_only=True)
class _Filters:
    """The filters of a data set's chunks, in order, by their numbers in the format."""

    codes: Sequence[int]
    itemsize: int
    wrong: str = ""

    @classmethod
    def of(cls, plist: h5py.h5p.PropDCID, dtype: np.dtype[np.generic]) -> "_Filters":
        found = [plist.get_filter(number) for number in range(plist.get_nfilters())]
        wrong = next(
            (
                f"its bytes are shuffled by {values[0]} where a value has {dtype.itemsize}"
                for code, _, values, _ in found
                if code == _SHUFFLE and values and values[0] != dtype.itemsize
            ),
            "",
        )
        codes = [code for code, *_ in found]
        return cls(codes=codes, itemsize=dtype.itemsize, wrong=wrong)

    def problem(self, mask: int, sizes: Numbers, elements: int) -> str:
        """Tell what is wrong with chunks from which the filters of `mask` were left out."""
        if self.wrong:
            return self.wrong
        if mask >> len(self.codes):
            return f"a chunk leaves out filters that there are not (mask {mask:#x})"
        applied = [code for number, code in enumerate(self.codes) if not mask >> number & 1]
        plain = elements * self.itemsize + _CHECKSUM_BYTES * (_CHECKSUM in applied)
        if all(code in _KEEP_SIZE for code in applied):
            if (sizes != plain).any():
                return f"a chunk that is not compressed has not its {plain} bytes"
        elif (sizes > plain * _GROWTH + _HEADER).any():
            return f"a compressed chunk is larger than its {plain} bytes"
        return ""


def _type_problem(item: h5py.Dataset) -> str:
    """Tell what is wrong with a number's type: all its bits are used in the files that we read."""
    kind = item.id.get_type()
    if not isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        return ""
    if (kind.get_precision(), kind.get_offset()) != (8 * kind.get_size(), 0):
        return f"its numbers have {kind.get_precision()} of {8 * kind.get_size()} bits"
    if kind.get_pad() != (h5py.h5t.PAD_ZERO, h5py.h5t.PAD_ZERO):
        return "its numbers are described as no file has them"
    return ""
