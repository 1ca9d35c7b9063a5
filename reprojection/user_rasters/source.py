"""What a user's raster file is read through, whatever its format, and what is refused in all."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyproj

from reprojection.catalogue.user_raster import RasterLayer
from reprojection.errors import GridError, ReprojectionError
from reprojection.grid.crs import Crs
from reprojection.grid.grids import Grid

MOST_DAYS = 4000
_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")

Block = npt.NDArray[np.generic]


class RasterRefusedError(ReprojectionError):
    """The file cannot be taken as a raster; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class RasterFile:
    """A file to read: its path, the name that its owner gave it, and its date, if it is told."""

    path: Path
    name: str
    day: date | None = None


@dataclass(frozen=True, kw_only=True)
class RasterChoices:
    """What its owner says of a raster, beyond its files.

    `layers` are names for the layers in their order, `classes` names the layers whose values must
    not be blended, `units` gives units by layer. `period` is how many days each date stands for; 0
    takes the most frequent distance of two dates.
    """

    name: str
    layers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    period: int = 0


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """An opened file: its grid, its layers each with the key to read it by, and its own dates."""

    grid: Grid
    layers: tuple[tuple[RasterLayer, int | str], ...]
    days: tuple[date, ...]

    @abstractmethod
    def read(self, key: int | str, number: int, first: int, rows: int) -> Block:
        """Read rows of a layer on one of the dates, as stored, counted from the north."""


def plain_crs(name: str, crs: pyproj.CRS) -> str:
    """Return the text of a CRS: a code where there is one; raise RasterRefusedError."""
    if crs.is_compound:
        crs = crs.sub_crs_list[0]
    code = crs.to_epsg()
    text = f"EPSG:{code}" if code else crs.to_wkt()
    try:
        return "EPSG:4326" if Crs.of(text).is_plain_lonlat else text
    except GridError as error:
        raise RasterRefusedError(f"{name}: {error}.") from None


def check_type(name: str, layer: str, dtype: np.dtype[np.generic]) -> str:
    """Return the name of a type of values that is taken; raise RasterRefusedError for others."""
    if dtype.name not in _TYPES:
        raise RasterRefusedError(
            f"{name}: the values of {layer} are of the type {dtype.name}. Store them as one of "
            f"{', '.join(_TYPES)}."
        )
    return dtype.name


def finite(value: float | None) -> int | float | None:
    """Return a number that JSON can hold, a whole one as int; None for one that is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else float(value)
