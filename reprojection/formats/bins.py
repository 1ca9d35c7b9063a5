"""Read ocean colour in bins (level 3 binned, L3b) as a grid of latitude and longitude.

Bins lie on rings of equal height from south to north; the rings nearer to the poles have fewer. A
file holds sums and weights of the bins that were seen, in the order of their numbers, and a table
of the rings. The grid has a row for each ring and twice as many columns; a pixel takes the mean,
sum / weights, of the bin that its centre lies in. Source: Ocean Level-3 Binned Data Products
(NASA OB.DAAC), "Binned Data Structure"; Campbell et al. 1995 (NASA TM 104566, volume 32).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import h5py
import numpy as np
import numpy.typing as npt

from reprojection.formats.container import NETCDF, AttributeValue, DataSet

GROUP = "level-3_binned_data"
FILL = -32767.0
COUNTS = "nobs"
"""The layer with the number of observations in each bin."""

_RINGS = ("start_num", "begin", "extent", "max")
_ROWS_AT_ONCE = 256

Values = npt.NDArray[np.generic]


@dataclass(frozen=True, kw_only=True)
class BinnedFile:
    """The rings and bins of a file: for each ring its first bin and number of bins.

    `first` is the place in the list of bins of the first one of each ring that was seen, `seen` how
    many of the ring's bins were.
    """

    group: h5py.Group
    start: npt.NDArray[np.int64]
    bins: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    seen: npt.NDArray[np.int64]

    @property
    def datasets(self) -> tuple[DataSet, ...]:
        """The layers, and the coordinates of the grid."""
        rows = len(self.start)
        both = ("YDim", "XDim")
        plain: Mapping[str, AttributeValue] = {}
        found = [
            _dataset("lat", (rows,), ("YDim",), np.float64, plain),
            _dataset("lon", (2 * rows,), ("XDim",), np.float64, plain),
            _dataset(COUNTS, (rows, 2 * rows), both, np.int32, {"_FillValue": 0}),
        ]
        for name, item in self.group.items():
            if isinstance(item, h5py.Dataset) and "sum" in (item.dtype.names or ()):
                about: dict[str, AttributeValue] = {"_FillValue": FILL, "long_name": f"mean {name}"}
                found.append(_dataset(str(name), (rows, 2 * rows), both, np.float32, about))
        return tuple(found)

    def read(self, name: str, start: tuple[int, ...], count: tuple[int, ...]) -> Values:
        """Read a block of a layer or of coordinates; rows count from the north."""
        rows = len(self.start)
        if name in ("lat", "lon"):
            step = 180.0 / rows
            at = (np.arange(start[0], start[0] + count[0]) + 0.5) * step
            return 90.0 - at if name == "lat" else at - 180.0
        counts = name == COUNTS
        out = np.full(count, 0 if counts else FILL, np.int32 if counts else np.float32)
        columns = (np.arange(start[1], start[1] + count[1]) + 0.5) / (2 * rows)
        for top in range(0, count[0], _ROWS_AT_ONCE):
            height = min(_ROWS_AT_ONCE, count[0] - top)
            rings = rows - 1 - np.arange(start[0] + top, start[0] + top + height)
            self._fill(name, rings, columns, out[top : top + height])
        return out

    def behind(self, name: str) -> tuple[h5py.Dataset, ...]:
        """Return the data sets of the file from which a layer is read."""
        if name in ("lat", "lon"):
            return ()
        own = () if name == COUNTS else (self.group[name],)
        return (self.group["BinIndex"], self.group["BinList"], *own)

    def _fill(
        self,
        name: str,
        rings: npt.NDArray[np.int64],
        columns: npt.NDArray[np.float64],
        out: Values,
    ) -> None:
        low, high = int(rings[-1]), int(rings[0])
        part = slice(int(self.first[low]), int(self.first[high] + self.seen[high]))
        listed = self.group["BinList"][part]
        numbers = listed["bin_num"].astype(np.int64)
        if not len(numbers):
            return
        if name == COUNTS:
            values = listed["nobs"].astype(np.int32)
        else:
            values = (self.group[name][part]["sum"] / listed["weights"]).astype(np.float32)
        wanted = self.start[rings][:, None] + (columns * self.bins[rings][:, None]).astype(np.int64)
        at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        there = numbers[at] == wanted
        out[there] = values[at[there]]


def open_bins(file: h5py.File) -> BinnedFile | None:
    """Return the bins of a file; None if it lacks the tables that place them.

    Raises ValueError for tables that do not agree.
    """
    group = file.get(GROUP)
    index = group.get("BinIndex") if isinstance(group, h5py.Group) else None
    listed = group.get("BinList") if isinstance(group, h5py.Group) else None
    if not isinstance(index, h5py.Dataset) or not isinstance(listed, h5py.Dataset):
        return None
    if not set(_RINGS) <= set(index.dtype.names or ()) or "bin_num" not in (
        listed.dtype.names or ()
    ):
        return None
    table = index[...]
    start, seen, bins = (table[word].astype(np.int64) for word in ("start_num", "extent", "max"))
    first = np.concatenate([[0], np.cumsum(seen)[:-1]])
    if int(seen.sum()) != len(listed) or (seen < 0).any() or (bins < 1).any():
        raise ValueError("the table of rings does not count the bins that the file holds")
    return BinnedFile(group=group, start=start, bins=bins, first=first, seen=seen)


def _dataset(
    name: str,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    dtype: type[np.generic],
    attributes: Mapping[str, AttributeValue],
) -> DataSet:
    return DataSet(
        key=f"/{GROUP}/{name}",
        name=name,
        shape=shape,
        dtype=np.dtype(dtype),
        dims=dims,
        structure=NETCDF,
        attributes=attributes,
    )
