"""Read HDF5-EOS files (VIIRS land tiles) and netCDF-4 files (VIIRS, ocean colour) through h5py."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from reprojection.errors import BadFormatError, NotHeldError, UnreadableGranuleError
from reprojection.formats.bins import GROUP, BinnedFile, open_bins
from reprojection.formats.container import (
    LATITUDES,
    LONGITUDES,
    MAX_ELEMENTS,
    NETCDF,
    AttributeValue,
    DataSet,
    coordinate,
    take_from_block,
)
from reprojection.formats.hdf4 import join_metadata
from reprojection.formats.hdf5_ahead import pointed_at
from reprojection.formats.hdf5_chunks import Chunks
from reprojection.formats.hdf5_pieces import pieces_of
from reprojection.formats.hdf5_storage import StorageChecks
from reprojection.formats.held import Held, HeldFile
from reprojection.formats.own_values import open_hdf5
from reprojection.formats.pieces import NotInPiecesError, Pieces

_ROWS = "YDim"
_LEVELS = 4  # of groups within groups, in which variables of netCDF-4 files may lie
_DAMAGE = (OSError, ValueError, TypeError, KeyError, RuntimeError, UnicodeError, OverflowError)


Indexes = npt.NDArray[np.int64]


class Hdf5Container:
    """An open HDF5-EOS file; raises UnreadableGranuleError if its directory cannot be read.

    Raises BadFormatError for a file whose values form no raster.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bins: BinnedFile | None = None
        self._northward = False  # whether row 0 of the file's grid is its southernmost
        self._part: HeldFile | None = None
        try:
            held = Held.of(path)
            self._part = None if held is None else HeldFile(held, pointed_at)
            with self._all_held():
                self._file = open_hdf5(path, self._part)
            if self._part is None:
                self._descriptor = self._file.id.get_vfd_handle()
            else:
                self._descriptor = self._part.fileno()
            size = held.size if held is not None else os.fstat(self._descriptor).st_size
            self._checks = StorageChecks(path=path, size=size)
        except _DAMAGE as problem:
            raise self._damaged(str(problem)) from problem
        try:
            with self._all_held():
                self._attributes = self._metadata()
                self._datasets = tuple(self._walk())
        except _DAMAGE as problem:
            self.close()
            raise self._damaged(str(problem)) from problem
        except (NotHeldError, UnreadableGranuleError, BadFormatError):
            self.close()
            raise

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """The file's own attributes and the texts of /HDFEOS INFORMATION, joined."""
        return self._attributes

    @property
    def datasets(self) -> tuple[DataSet, ...]:
        """Every numeric field of every grid and swath under /HDFEOS."""
        return self._datasets

    def read(
        self, dataset: DataSet, start: tuple[int, ...], count: tuple[int, ...]
    ) -> npt.NDArray[np.generic]:
        """Read the block of shape `count` that begins at `start`, as stored.

        Rows of a grid that are stored from south to north are given, and counted, from the north.
        """
        upward = dataset.dims.index(_ROWS) if self._northward and _ROWS in dataset.dims else None
        if upward is not None:
            first = dataset.shape[upward] - start[upward] - count[upward]
            start = (*start[:upward], first, *start[upward + 1 :])
        block = tuple(slice(at, at + size) for at, size in zip(start, count, strict=True))
        try:
            with self._all_held():
                if self._bins is not None:
                    for item in self._bins.behind(dataset.name):
                        self._want(self._checks.check(item), (0,) * item.ndim, item.shape)
                    return self._bins.read(dataset.name, start, count)
                item = self._file[dataset.key]
                chunks = self._checks.check(item)
                self._want(chunks, start, count)
                if chunks is not None and chunks.is_read_here:
                    stored = chunks.read(self._descriptor, item, start, count)
                else:
                    if chunks is not None:
                        chunks.look_up(item, start, count)
                    stored = np.asarray(item[block])
            values = stored.astype(dataset.dtype, copy=False)
            return values if upward is None else np.flip(values, upward)
        except (*_DAMAGE, MemoryError) as problem:
            raise UnreadableGranuleError(
                f"{self._path.name}: layer {dataset.name!r} cannot be decoded ({problem}); the "
                "file is truncated or damaged: fetch it again"
            ) from problem

    def take(
        self, dataset: DataSet, at: Sequence[npt.NDArray[np.int64]]
    ) -> npt.NDArray[np.generic]:
        """Read single elements, as stored; `at` has their indexes along each axis.

        Of each chunk that holds some the block around them is read.
        """
        sides = None if self._northward else self.chunk(dataset)
        if sides is None or not at[0].size:
            return take_from_block(self, dataset, at)
        chunks = np.stack([one // side for one, side in zip(at, sides, strict=True)])
        _, which = np.unique(chunks, axis=1, return_inverse=True)
        groups = [np.flatnonzero(which.ravel() == n) for n in range(int(which.max()) + 1)]
        self._want_each(dataset, [[one[group] for one in at] for group in groups])
        found = np.empty(at[0].shape, dataset.dtype)
        for group in groups:
            found[group] = take_from_block(self, dataset, [one[group] for one in at])
        return found

    def _want_each(self, dataset: DataSet, groups: Sequence[Sequence[Indexes]]) -> None:
        """Raise NotHeldError, for all at once, unless the chunks of some elements are here."""
        if self._part is None:
            return
        with self._all_held():
            chunks = self._checks.check(self._file[dataset.key])
        if chunks is not None:
            once = [(tuple(int(one[0]) for one in group), (1,) * len(group)) for group in groups]
            places = (place for start, count in once for place in chunks.places(start, count))
            self._part.held.want(places, values=True)

    def chunk(self, dataset: DataSet) -> tuple[int, ...] | None:
        """Return the shape of the chunks that a data set is stored in; None without chunks."""
        if self._bins is not None:
            return None
        try:
            with self._all_held():
                chunks = self._file[dataset.key].chunks
        except _DAMAGE as problem:
            raise self._damaged(str(problem)) from problem
        return None if chunks is None else tuple(map(int, chunks))

    def pieces(self, dataset: DataSet) -> Pieces:
        """Say where a data set's bytes lie, for others to read."""
        if self._bins is not None:
            raise NotInPiecesError("its values are bins, which make a raster together")
        if self._northward and _ROWS in dataset.dims:
            raise NotInPiecesError("its rows run from south to north")
        try:
            with self._all_held():
                return pieces_of(self._file[dataset.key])
        except _DAMAGE as problem:
            raise self._damaged(str(problem)) from problem

    def close(self) -> None:
        """Release the file."""
        self._file.close()
        if self._part is not None:
            self._part.close()

    @contextmanager
    def _all_held(self) -> Iterator[None]:
        """Raise NotHeldError, whatever the library says, where it met bytes that are not here."""
        try:
            yield
        except NotHeldError:
            raise
        except Exception:
            if self._part is not None:
                self._part.look_up()
            raise
        if self._part is not None:
            self._part.look_up()

    def _want(self, chunks: Chunks | None, start: tuple[int, ...], count: tuple[int, ...]) -> None:
        """Raise NotHeldError unless all chunks are here that a block touches."""
        if self._part is not None:
            self._part.look_up()
            if chunks is not None:
                self._part.held.want(chunks.places(start, count), values=True)

    def _metadata(self) -> dict[str, AttributeValue]:
        found = _attributes(self._file.attrs)
        information = self._file.get("HDFEOS INFORMATION")
        if isinstance(information, h5py.Group):
            found |= _attributes(information.attrs)
            for name, item in information.items():
                if isinstance(item, h5py.Dataset) and item.shape == ():
                    text = item[()]
                    if isinstance(text, bytes):
                        found[name.replace("coremetadata", "CoreMetadata")] = text.decode(
                            "ascii", "replace"
                        ).rstrip("\0")
        return join_metadata(found)

    def _walk(self) -> list[DataSet]:
        found: list[DataSet] = []
        for kind in ("GRIDS", "SWATHS"):
            structures = self._file.get(f"HDFEOS/{kind}")
            if not isinstance(structures, h5py.Group):
                continue
            for structure, group in structures.items():
                for fields in ("Geolocation Fields", "Data Fields"):
                    inner = group.get(fields) if isinstance(group, h5py.Group) else None
                    if isinstance(inner, h5py.Group):
                        found += self._fields(str(structure), inner, kind == "GRIDS")
        if GROUP in self._file:
            self._bins = open_bins(self._file)
            if self._bins is None:
                raise BadFormatError(
                    f"{self._path.name} holds ocean colour in bins on rings of the sphere (level 3 "
                    "binned, L3b), but not the tables that place them; take the mapped product "
                    "(L3m) of the same day"
                )
            return list(self._bins.datasets)
        if "HDFEOS" not in self._file:
            found += self._netcdf_fields()
        return found

    def _netcdf_fields(self) -> list[DataSet]:
        """Return the variables of a netCDF-4 file, those of its groups and of its root.

        There are none in a file that neither has coordinates nor says what product it is.

        Rows and columns of a grid, whose coordinates are the root's variables lat and lon, are
        named as HDF-EOS does. Where groups have variables of one name (CLDPROP_D3: Mean), a
        variable bears its group's name, too: Cloud_Fraction_Mean.
        """
        root = self._fields(NETCDF, self._file, False)
        inner = list(self._fields_of_groups(self._file))
        times = Counter(one.name for one in (*root, *(one for _, one in inner)))
        found = root + [
            replace(one, name=f"{group}_{one.name}") if times[one.name] > 1 else one
            for group, one in inner
        ]
        axes = [
            next((one for one in root if len(one.shape) == 1 and one.name.lower() in names), None)
            for names in (LATITUDES, LONGITUDES)
        ]
        lat, lon = axes
        if lat is None or lon is None:
            placed = {"latitude", "longitude"} <= {coordinate(one.name) for one in found}
            return found if placed or "ShortName" in self._attributes else []
        self._checks.check(self._file[lat.key])
        south, north = self._file[lat.key][[0, -1]] if lat.shape[0] > 1 else (0.0, 0.0)
        self._northward = bool(south < north)
        # A variable that is a dimension's scale bears the dimension's name.
        words = {
            axis.name if axis.dims[0].startswith("axis") else axis.dims[0]: word
            for axis, word in ((lat, _ROWS), (lon, "XDim"))
        }
        own = {lat.key: (_ROWS,), lon.key: ("XDim",)}
        return [
            replace(one, dims=own.get(one.key) or tuple(words.get(dim, dim) for dim in one.dims))
            for one in found
        ]

    def _fields_of_groups(
        self, group: h5py.Group, levels: int = _LEVELS
    ) -> Iterator[tuple[str, DataSet]]:
        """Yield the variables of groups within a group, and in theirs (VNP21: two levels)."""
        for name, item in group.items():
            if isinstance(item, h5py.Group):
                for one in self._fields(NETCDF, item, False):
                    yield str(name), one
                if levels > 1:
                    yield from self._fields_of_groups(item, levels - 1)

    def _fields(self, structure: str, group: h5py.Group, on_grid: bool) -> list[DataSet]:
        found = []
        for name, item in group.items():
            if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "iuf":
                continue
            if item.size > MAX_ELEMENTS:
                raise self._damaged(f"data set {name!r} claims {item.size} elements")
            found.append(
                DataSet(
                    key=str(item.name),
                    name=str(name),
                    shape=tuple(map(int, item.shape)),
                    dtype=item.dtype.newbyteorder("="),
                    dims=_dims(item, on_grid),
                    structure=structure,
                    attributes=_attributes(item.attrs),
                )
            )
        return found

    def _damaged(self, problem: str) -> UnreadableGranuleError:
        return UnreadableGranuleError(
            f"{self._path.name} is an HDF5 file that cannot be read ({problem}); it is truncated "
            "or damaged: fetch it again"
        )


def _dims(item: h5py.Dataset, on_grid: bool) -> tuple[str, ...]:
    """Return dimension names from the attached scales; grids without scales have (YDim, XDim)."""
    names = []
    for axis, dim in enumerate(item.dims):
        # A scale's object bears the dimension's name; its NAME text need not (netCDF-4 writes there
        # that a dimension has no variable, the same text for dimensions of one length).
        scale = str(dim[0].name) if len(dim) else ""
        names.append(str(dim.label or scale).rsplit("/", 1)[-1] or f"axis {axis}")
    if on_grid and len(names) == 2 and not {"YDim", "XDim"} <= set(names):
        return ("YDim", "XDim")
    return tuple(names)


def _attributes(attrs: h5py.AttributeManager) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for name, value in attrs.items():
        if isinstance(value, bytes):
            found[name] = value.decode("utf-8", "replace").rstrip("\0")
        elif isinstance(value, str):
            found[name] = value
        elif isinstance(value, np.ndarray | np.generic):
            converted = _numbers(np.asarray(value))
            if converted is not None:  # 0 is a value, too
                found[name] = converted
    return found


def _numbers(value: npt.NDArray[np.generic]) -> AttributeValue | None:
    if value.dtype.kind in "SU":
        items = [
            item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
            for item in value.ravel().tolist()
        ]
        return "".join(items).rstrip("\0")
    if value.dtype.kind not in "iuf":
        return None
    numbers = value.ravel().tolist()
    return numbers[0] if len(numbers) == 1 else tuple(numbers)
