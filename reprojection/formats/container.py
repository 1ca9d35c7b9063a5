"""The common view of HDF4 and HDF5 files for the reader: data sets with attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reprojection.formats.pieces import Pieces

AttributeValue = str | int | float | tuple[int | float, ...]

MAX_ELEMENTS = 1 << 30
"""Above any MODIS or VIIRS layer (MCD43D has 933 million values); a header with more is damaged."""


NETCDF = "netCDF"
"""The one structure of a netCDF-4 file, which names none."""


LATITUDES = ("lat", "latitude", "latitude_1d")
LONGITUDES = ("lon", "longitude", "longitude_1d")
"""Names, in lower case, of the coordinates of a netCDF-4 grid's rows and columns: mapped ocean
colour, continuity clouds (CLDPROP), Deep Blue aerosol (AERDB)."""


def coordinate(name: str) -> str:
    """Return "latitude" or "longitude" if a name is of a swath's coordinates, else ""."""
    word = name.rsplit("/", 1)[-1].lower()
    return {"lat": "latitude", "lon": "longitude"}.get(word, word if word in _WORDS else "")


_WORDS = ("latitude", "longitude")


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """One stored array.

    `key` identifies it in its container. `dims` are its dimension names without the name of the
    structure (grid or swath) they belong to; `structure` is that name if the file gives it.
    """

    key: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    dims: tuple[str, ...]
    structure: str | None
    attributes: Mapping[str, AttributeValue] = field(repr=False)


class Container(Protocol):
    """An open HDF file. Not thread-safe: one reader per process."""

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """The file's own attributes; metadata in several parts is joined (`StructMetadata`)."""

    @property
    def datasets(self) -> tuple[DataSet, ...]:
        """All data sets, in file order."""

    def read(
        self, dataset: DataSet, start: tuple[int, ...], count: tuple[int, ...]
    ) -> npt.NDArray[np.generic]:
        """Read the block of shape `count` that begins at `start`, as stored.

        Raises UnreadableGranuleError if the bytes cannot be decoded.
        """

    def take(
        self, dataset: DataSet, at: Sequence[npt.NDArray[np.int64]]
    ) -> npt.NDArray[np.generic]:
        """Read single elements, as stored; `at` has their indexes along each axis.

        Only what holds them is read and held to its checksums. Raises UnreadableGranuleError as
        `read` does.
        """

    def chunk(self, dataset: DataSet) -> tuple[int, ...] | None:
        """Return the shape of the chunks that a data set is stored in; None without chunks."""

    def pieces(self, dataset: DataSet) -> Pieces:
        """Say where a data set's bytes lie, for others to read.

        Raises NotInPiecesError where they are no pieces that others could read by themselves.
        """

    def close(self) -> None:
        """Release the file."""


def take_from_block(
    container: Container, dataset: DataSet, at: Sequence[npt.NDArray[np.int64]]
) -> npt.NDArray[np.generic]:
    """Take single elements from the block that holds all of them."""
    if not at[0].size:
        return np.empty(0, dataset.dtype)
    start = tuple(int(one.min()) for one in at)
    count = tuple(int(one.max()) + 1 - low for one, low in zip(at, start, strict=True))
    block = container.read(dataset, start, count)
    return block[tuple(one - low for one, low in zip(at, start, strict=True))]
