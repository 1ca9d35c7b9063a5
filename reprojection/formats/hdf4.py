"""Read HDF4 files through pyhdf; read values directly if that is possible and faster.

HDF4 is a C library that trusts its files: read in a process that may die. It has no locks, so one
thread at a time is let into it; what is read directly needs no lock.
"""

import ctypes
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pyhdf import hdfext
from pyhdf.error import HDF4Error
from pyhdf.SD import SD, SDC, SDS

from reprojection.errors import UnreadableGranuleError
from reprojection.formats.container import MAX_ELEMENTS, AttributeValue, DataSet, take_from_block
from reprojection.formats.hdf4_data import DamagedStreamError, StoredData
from reprojection.formats.held import Held
from reprojection.formats.own_values import check_hdf4
from reprojection.formats.pieces import Pieces

MAX_ATTRIBUTES = 5000
MAX_DATASETS = 5000  # MOD08 has about 1,000; limits the loop over a damaged count

DTYPES: Mapping[int, str] = {
    SDC.CHAR8: "u1",
    SDC.UCHAR8: "u1",
    SDC.INT8: "i1",
    SDC.UINT8: "u1",
    SDC.INT16: "i2",
    SDC.UINT16: "u2",
    SDC.INT32: "i4",
    SDC.UINT32: "u4",
    SDC.FLOAT32: "f4",
    SDC.FLOAT64: "f8",
}
"""numpy's names of HDF4's types of numbers, in the machine's byte order; text is of bytes."""

_TEXT = (SDC.CHAR8, SDC.UCHAR8)

_SEQUENCE = re.compile(r"^(?P<base>StructMetadata|CoreMetadata|ArchiveMetadata)\.(?P<part>\d+)$")

# pyhdf raises its own error on damaged input, and builtin ones when it unpacks attributes.
_DAMAGE = (HDF4Error, ValueError, TypeError, IndexError, KeyError, OverflowError, UnicodeError)


_LOCKS: dict[int, threading.RLock] = {}


def _library() -> threading.RLock:
    """Return the library's lock in this process: a thread that a fork lacks may hold another."""
    return _LOCKS.setdefault(os.getpid(), threading.RLock())


class Hdf4Container:
    """An open HDF4 file; raises UnreadableGranuleError if its directory cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            held = Held.of(path)
            self._stored = StoredData(path, held)
            self._stored.want_structure()
            check_hdf4(path)
        except (OSError, DamagedStreamError, struct.error) as problem:
            raise self._damaged(str(problem)) from problem
        try:
            with _library():
                self._file = SD(str(path), SDC.READ)
        except _DAMAGE as problem:
            self._stored.close()
            raise self._damaged(str(problem)) from problem
        try:
            with _library():
                self._read_directory()
        except _DAMAGE as problem:
            self.close()
            raise self._damaged(str(problem)) from problem
        except UnreadableGranuleError:
            self.close()
            raise

    def _read_directory(self) -> None:
        count, attribute_count = self._file.info()
        if not (0 <= count <= MAX_DATASETS and 0 <= attribute_count <= MAX_ATTRIBUTES):
            raise self._damaged(f"it claims {count} data sets, {attribute_count} attributes")
        self._attributes = join_metadata(_read_attributes(self._file, attribute_count))
        self._datasets = tuple(
            found for index in range(count) if (found := self._describe(index)) is not None
        )

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """The file's own attributes, metadata texts joined."""
        return self._attributes

    @property
    def datasets(self) -> tuple[DataSet, ...]:
        """Every SDS of a numeric type, dimension scales left out."""
        return self._datasets

    def read(
        self, dataset: DataSet, start: tuple[int, ...], count: tuple[int, ...]
    ) -> npt.NDArray[np.generic]:
        """Read the block of shape `count` that begins at `start`, as stored."""
        if 0 in count:
            # pyhdf fails on a zero-length SDS; fire products often contain one.
            return np.empty(count, dataset.dtype)
        with self._telling(dataset):
            block = self._stored.read(
                self._reference(dataset),
                shape=dataset.shape,
                dtype=dataset.dtype,
                start=start,
                count=count,
            )
            if block is None:
                self._stored.want_all()
                with self._selected(int(dataset.key)) as sds:
                    block = np.asarray(sds.get(list(start), list(count), [1] * len(count)))
        # pyhdf drops axes of length one.
        return block.reshape(count).astype(dataset.dtype, copy=False)

    def take(
        self, dataset: DataSet, at: Sequence[npt.NDArray[np.int64]]
    ) -> npt.NDArray[np.generic]:
        """Read single elements, as stored; `at` has their indexes along each axis."""
        found: npt.NDArray[np.generic] | None = None
        if at[0].size:
            with self._telling(dataset):
                found = self._stored.take(
                    self._reference(dataset), shape=dataset.shape, dtype=dataset.dtype, at=at
                )
        return take_from_block(self, dataset, at) if found is None else found

    def chunk(self, dataset: DataSet) -> tuple[int, ...] | None:
        """Return the shape of the chunks that a data set is stored in; None without chunks."""
        if 0 in dataset.shape:
            return None
        with self._telling(dataset):
            return self._stored.chunk(self._reference(dataset), dataset.shape, dataset.dtype)

    def pieces(self, dataset: DataSet) -> Pieces:
        """Say where a data set's bytes lie, for others to read."""
        with self._telling(dataset):
            return self._stored.pieces(self._reference(dataset), dataset.shape, dataset.dtype)

    def _reference(self, dataset: DataSet) -> int:
        """Return the number by which the file knows a data set."""
        with self._selected(int(dataset.key)) as sds:
            return int(sds.ref())

    @contextmanager
    def _selected(self, index: int) -> Iterator[SDS]:
        """Select a data set in the library, and keep other threads out meanwhile."""
        with _library():
            sds = self._file.select(index)
            try:
                yield sds
            finally:
                sds.endaccess()

    @contextmanager
    def _telling(self, dataset: DataSet) -> Iterator[None]:
        """Tell of damage that is met while a data set is read."""
        try:
            yield
        except (*_DAMAGE, DamagedStreamError, MemoryError) as problem:
            raise UnreadableGranuleError(
                f"{self._path.name}: layer {dataset.name!r} cannot be decoded ({problem}); the "
                "file is truncated or damaged: fetch it again"
            ) from problem

    def close(self) -> None:
        """Release the file."""
        self._stored.close()
        try:
            with _library():
                self._file.end()
        except HDF4Error as problem:
            raise self._damaged(str(problem)) from problem

    def _describe(self, index: int) -> DataSet | None:
        with self._selected(index) as sds:
            name, rank, sizes, number_type, _ = sds.info()
            if sds.iscoordvar() or number_type not in DTYPES:
                return None
            shape = tuple(int(size) for size in (sizes if rank > 1 else [sizes]))
            # An unlimited dimension that was never written has length zero.
            elements = 1
            for size in shape:
                if size < 0:
                    raise self._damaged(f"data set {name!r} has shape {shape}")
                elements *= size
            if elements > MAX_ELEMENTS:
                raise self._damaged(f"data set {name!r} claims {elements} elements")
            labels = [str(sds.dim(axis).info()[0]) for axis in range(rank)]
        pairs = [label.partition(":") for label in labels]
        structures = {structure for _, colon, structure in pairs if colon}
        return DataSet(
            key=str(index),
            name=str(name),
            shape=shape,
            dtype=np.dtype(DTYPES[number_type]),
            dims=tuple(dim for dim, _, _ in pairs),
            structure=structures.pop() if len(structures) == 1 else None,
            attributes=_Attributes(lambda: self._attributes_of(index)),
        )

    def _attributes_of(self, index: int) -> dict[str, AttributeValue]:
        try:
            with self._selected(index) as sds:
                return _read_attributes(sds, min(sds.info()[4], MAX_ATTRIBUTES))
        except _DAMAGE as problem:
            raise self._damaged(str(problem)) from problem

    def _damaged(self, problem: str) -> UnreadableGranuleError:
        return UnreadableGranuleError(
            f"{self._path.name} is an HDF4 file that cannot be read ({problem}); it is truncated "
            "or damaged: fetch it again"
        )


class _Attributes(Mapping[str, AttributeValue]):
    """The attributes of a data set, read when the first of them is needed."""

    def __init__(self, read: Callable[[], dict[str, AttributeValue]]) -> None:
        self._read = read
        self._found: dict[str, AttributeValue] | None = None

    def _all(self) -> dict[str, AttributeValue]:
        if self._found is None:
            self._found = self._read()
        return self._found

    def __getitem__(self, name: str) -> AttributeValue:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


# Most of a granule's 150 kB of text is documentation: read only short or needed texts.
_SHORT = 256
_LONGEST = 1 << 22  # keeps a damaged length from requesting all memory
_WANTED = re.compile(
    r"^(?:StructMetadata\.\d+|CoreMetadata\.\d+|OldCoreMetadata\.\d+|Slope_and_Offset_Usage"
    r"|long_name|units|valid_range|valid_min|valid_max|_FillValue|scale_factor|add_offset)$"
)


def _read_attributes(holder: SD | SDS, count: int) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for index in range(count):
        status, name, number_type, length = hdfext.SDattrinfo(holder._id, index)
        if status < 0 or length < 0:
            raise HDF4Error(f"attribute {index} cannot be read")
        wanted = _WANTED.match(name) and number_type in _TEXT and length <= _LONGEST
        if length > _SHORT and not wanted:
            continue
        if number_type not in DTYPES:
            raise HDF4Error(f"attribute {name!r} is of an unknown type {number_type}")
        dtype = np.dtype(DTYPES[number_type])
        data = _attribute_bytes(holder, index, length * dtype.itemsize)
        if number_type == SDC.CHAR8 or (number_type in _TEXT and length > _SHORT):
            found[name] = data.decode("latin-1").rstrip("\0")
        else:
            numbers: list[int | float] = np.frombuffer(data, dtype).tolist()
            found[name] = numbers[0] if length == 1 else tuple(numbers)
    return found


def _attribute_bytes(holder: SD | SDS, index: int, size: int) -> bytes:
    """Read an attribute in one copy; pyhdf takes 10 ms for a StructMetadata, byte by byte."""
    buffer = hdfext.array_byte(max(size, 1))
    if hdfext.SDreadattr(holder._id, index, buffer) < 0:
        raise HDF4Error(f"attribute {index} cannot be read")
    return ctypes.string_at(int(buffer.this), size)


def join_metadata(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Join texts that continue in .1, .2, ... under the bare name (`StructMetadata`).

    HDF-EOS splits them at 32,000 bytes, even within a word.
    """
    joined: dict[str, AttributeValue] = {}
    parts: dict[str, dict[int, str]] = {}
    for name, value in attributes.items():
        match = _SEQUENCE.match(name)
        if match and isinstance(value, str):
            parts.setdefault(match["base"], {})[int(match["part"])] = value
        else:
            joined[name] = value
    for base, texts in parts.items():
        joined[base] = "".join(texts[part] for part in sorted(texts))
    return joined
