"""What HDF4 and HDF5 files look like to the reader above them: data sets with attributes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

AttributeValue = str | int | float | tuple[int | float, ...]

MAX_ELEMENTS = 1 << 29
"""No MODIS or VIIRS layer comes near; a damaged header must not ask for all memory."""


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """One stored array.

    `key` identifies it inside its container, `dims` are its dimension names without the structure
    (grid or swath) they belong to, which is `structure` when the file says so.
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
        """The file's own attributes, metadata texts joined (`StructMetadata` and the like)."""

    @property
    def datasets(self) -> tuple[DataSet, ...]:
        """Everything stored, in file order."""

    def read(
        self, dataset: DataSet, start: tuple[int, ...], count: tuple[int, ...]
    ) -> npt.NDArray[np.generic]:
        """The block of that shape from `start`, as stored.

        Raises UnreadableGranuleError when the bytes cannot be decoded.
        """

    def close(self) -> None:
        """Release the file."""
