"""Headers of real granules (`tests/headers`), and granules that are written of them.

A granule has the header's groups, data sets, types, dimensions and attributes, each attribute byte
by byte as the real file has it. Its values are made up. Scans and tiles are cut to a few lines, so
that writing takes no time: sizes, also those in StructMetadata, are smaller in one proportion.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict
from pyhdf.SD import SD, SDC

FOLDER = Path(__file__).parent.parent / "headers"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))

Array = npt.NDArray[np.generic]
Value = str | list[int | float]

_SCANS = (203, 204, 202, 201, 337)  # of granules; two of them are written
_PER_SCAN = (1, 2, 4, 8, 10, 16, 20, 32, 40)
_CUT = {1233: 9, 1057: 7, 768: 8, 1124660: 7, 3457713: 7}  # of cut-outs and compact lists
_TIMES = 40  # by which tiles and globes are smaller
_ACROSS = (3200, 6400, 4064)  # pixels of VIIRS across, which are all written
_KINDS = {
    "i1": SDC.INT8,
    "u1": SDC.UINT8,
    "i2": SDC.INT16,
    "u2": SDC.UINT16,
    "i4": SDC.INT32,
    "u4": SDC.UINT32,
    "f4": SDC.FLOAT32,
    "f8": SDC.FLOAT64,
}


class DataSet(BaseModel):
    """A data set of a header; `text` is the value of one that is a text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    type: str
    dims: list[tuple[str, int]] = []
    text: str = ""
    attributes: list[tuple[str, str, Value]]

    @property
    def own_name(self) -> str:
        """The name without the groups of HDF5; names of HDF4 may hold a slash."""
        return self.name.rsplit("/", 1)[-1] if self.name.startswith("/") else self.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes that are written."""
        return tuple(written(size) for _, size in self.dims)

    def numbers(self, *names: str) -> list[int | float]:
        """Return the numbers of the first of these attributes that is there, as stated."""
        stated = {name: value for name, kind, value in self.attributes if kind != "text"}
        for name in names:
            if name in stated:
                value = stated[name]
                assert not isinstance(value, str)
                return value
        return []

    @property
    def has_poor_range(self) -> bool:
        """Whether the granule itself states a range of one number, or one that ends too low."""
        ends = self.numbers("valid_range")
        return len(ends) == 1 or (len(ends) == 2 and ends[1] < ends[0])

    def said(self, name: str) -> str:
        """Return an attribute that is a text; "" if it is not there."""
        return next(
            (value for at, _, value in self.attributes if at == name and isinstance(value, str)), ""
        )


class Header(BaseModel):
    """The structure and attributes of one real granule, with its source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    product: str
    collection: str
    file: str
    source: str
    format: str
    attributes_left_out: int
    attributes: list[tuple[str, str, Value]]
    datasets: list[DataSet]


@lru_cache(maxsize=1)
def header(name: str) -> Header:
    """Read a header; raises pydantic's ValidationError for one of another form."""
    return Header.model_validate_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def written(size: int) -> int:
    """Return the size that a dimension of the real granule has in the one that is written."""
    if size in _CUT:
        return _CUT[size]
    for scans in _SCANS:
        if size % scans == 0 and size // scans in _PER_SCAN:
            return 2 * size // scans
    if size >= 200 and size % _TIMES == 0 and size not in _ACROSS:
        return size // _TIMES
    return size


def write(of: Header, folder: Path) -> tuple[Path, Mapping[str, Array]]:
    """Write a granule; return its path, and the values of each data set by its name."""
    path = folder / of.file
    values = {one.name: _values(one) for one in of.datasets if one.type != "text"}
    if of.format == "hdf4":
        _write_hdf4(path, of, values)
    else:
        _write_hdf5(path, of, values)
    return path, values


def _values(of: DataSet) -> Array:
    """Make values: each fill, both ends of the range, what lies between; places for coordinates."""
    word, shape = of.own_name.lower(), of.shape
    dtype = np.dtype(of.type)
    for names, middle, extent in (
        (("latitude", "lat"), 45.0, 2.0),
        (("longitude", "lon"), 10.0, 8.0),
    ):
        if word in names and len(shape) >= 2:
            axis = -2 if names[1] == "lat" else -1
            ramp = np.linspace(-0.5, 0.5, shape[axis]) * extent
            ramp = -ramp[:, None] if axis == -2 else ramp[None, :]
            return np.broadcast_to(middle + ramp, shape).astype(dtype)
        if word in names and len(shape) == 1:
            half, count = (90.0, shape[0]) if names[1] == "lat" else (-180.0, shape[0])
            centres = half - 2 * half * (np.arange(count) + 0.5) / count
            return centres.astype(dtype)
    fills = of.numbers("_FillValue", "Fill", "FILL_VALUE")
    low, high = _ends(of)
    between = [low + (high - low) * part for part in (0.25, 0.5, 0.75)]
    some = [*([*fills] if dtype.kind != "u" or min(fills, default=0) >= 0 else []), low, high]
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize - (dtype.kind == "i")
        least = -(2**bits) if dtype.kind == "i" else 0
        some = [one for one in [*some, *between] if least <= one < 2**bits]
    else:
        some += between
    return np.resize(np.array(some).astype(dtype), shape)


def _ends(of: DataSet) -> tuple[float, float]:
    stated = of.numbers("valid_range")
    if len(stated) != 2:
        stated = [*of.numbers("valid_min"), *of.numbers("valid_max")]
    if len(stated) == 2 and stated[0] <= stated[1]:
        return stated[0], stated[1]
    return 1, 5


def _write_hdf4(path: Path, of: Header, values: Mapping[str, Array]) -> None:
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for one in of.datasets:
        sds = file.create(one.name, _KINDS[one.type], one.shape)
        for axis, (dim, _) in enumerate(one.dims):
            sds.dim(axis).setname(dim)
        if values[one.name].size:
            sds.setcompress(SDC.COMP_DEFLATE, 1)
        _set_hdf4(sds, one.attributes)
        if values[one.name].size:
            sds.set(values[one.name])
        sds.endaccess()
    _set_hdf4(file, of.attributes)
    file.end()


def _set_hdf4(holder: SD, attributes: Sequence[tuple[str, str, Value]]) -> None:
    for name, kind, value in attributes:
        if isinstance(value, str):
            holder.attr(name).set(SDC.CHAR8, _resized(name, value) or "\0")
        else:
            holder.attr(name).set(_KINDS[kind], value)


def _resized(name: str, value: str) -> str:
    """Give StructMetadata the sizes that are written."""
    if not name.rsplit("/", 1)[-1].startswith("StructMetadata"):
        return value
    return re.sub(r"(XDim|YDim|Size)=(\d+)", lambda at: f"{at[1]}={written(int(at[2]))}", value)


def _write_hdf5(path: Path, of: Header, values: Mapping[str, Array]) -> None:
    with h5py.File(path, "w", track_order=True) as file:
        _set_hdf5(file.attrs, of.attributes)
        for one in of.datasets:
            if one.type == "text":
                file[one.name] = np.bytes_(_resized(one.name, one.text))
                continue
            whole = one.shape and math.prod(one.shape) > 0
            made = file.create_dataset(
                one.name, data=values[one.name], compression="gzip" if whole else None
            )
            _set_hdf5(made.attrs, one.attributes)
        sizes = {dim: written(size) for one in of.datasets for dim, size in one.dims if dim}
        for dim, size in sizes.items():
            if dim not in file:
                file[dim] = np.zeros(size, np.float32)
            if isinstance(file[dim], h5py.Dataset) and file[dim].ndim == 1:
                file[dim].make_scale("This is a netCDF dimension but not a netCDF variable.")
        for one in of.datasets:
            for axis, (dim, _) in enumerate(one.dims):
                if dim and dim != one.name.lstrip("/") and isinstance(file[dim], h5py.Dataset):
                    file[one.name].dims[axis].attach_scale(file[dim])


def _set_hdf5(attrs: h5py.AttributeManager, attributes: Sequence[tuple[str, str, Value]]) -> None:
    for name, kind, value in attributes:
        attrs[name] = np.bytes_(value) if isinstance(value, str) else np.array(value, kind)
