"""Find the pixel at a place: one rule for values, series, tables, explanations and sites."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rasterio.transform import Affine, rowcol

from modis.axes import Pixel
from reprojection.grid.coordinates import SourceSpace
from reprojection.grid.grids import Grid

_TURNS = (0.0, 360.0, -360.0)
NOWHERE = -(2**40)
"""Row and column of a place that is in no pixel: those of its neighbours are none either."""

Whole = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def pixel_at(grid: Grid, lon: float, lat: float) -> Pixel | None:
    """Return the pixel that holds a place in WGS84 degrees; None outside the grid.

    A place on an edge or corner belongs to the pixel that begins there, counted from the first
    corner: to the one below and to the right of it in a raster with north up. This is GDAL's rule,
    the floor of the coordinates in pixels (`gdallocationinfo`), computed as rasterio does for
    `DatasetReader.index` and `sample`, to the last bit. Longitudes may be off by a turn.
    """
    rows, cols = pixels_at(grid, np.array([lon]), np.array([lat]))
    return Pixel(int(rows[0]), int(cols[0])) if rows[0] != NOWHERE else None


def pixels_at(grid: Grid, lon: Floats, lat: Floats) -> tuple[Whole, Whole]:
    """Return rows and columns of the pixels that hold places, by the rule of `pixel_at`.

    Args:
        grid: The grid.
        lon: Longitudes in WGS84 degrees, shape (n,).
        lat: Latitudes, shape (n,).

    Returns:
        Rows and columns, shape (n,); NOWHERE outside the grid.
    """
    rows = np.full(lon.shape, NOWHERE)
    cols = rows.copy()
    for turn in _TURNS:
        x, y = grid.system.from_lonlat(lon + turn, lat)
        row, col = rowcol(Affine(*grid.transform), x, y, op=np.floor)
        inside = (row >= 0) & (row < grid.height) & (col >= 0) & (col < grid.width)
        inside &= rows == NOWHERE
        rows[inside], cols[inside] = row[inside], col[inside]
    return rows, cols


def pixels_in(
    space: SourceSpace, wholes: Sequence[Grid], lon: Floats, lat: Floats
) -> tuple[Whole, Whole]:
    """Return rows and columns in a space of the pixels that hold places, by the rule of `pixel_at`.

    Args:
        space: The pixel space of the grids.
        wholes: Grids; a place has the pixel of the first that holds it.
        lon: Longitudes in WGS84 degrees, shape (n,).
        lat: Latitudes, shape (n,).

    Returns:
        Rows and columns, shape (n,); NOWHERE outside all grids.
    """
    rows = np.full(lon.shape, NOWHERE)
    columns = rows.copy()
    for whole in wholes:
        left, top = space.offset(whole)
        row, column = pixels_at(whole, lon, lat)
        mine = (row != NOWHERE) & (rows == NOWHERE)
        rows[mine], columns[mine] = row[mine] + top, column[mine] + left
    return rows, columns
