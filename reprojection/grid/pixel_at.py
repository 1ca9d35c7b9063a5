"""Find the pixel at a place: one rule for values, series, tables, explanations and sites."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from rasterio.transform import Affine, rowcol

from modis.axes import Pixel
from reprojection.grid.crs import from_lonlat
from reprojection.grid.grids import Grid

_TURNS = (0.0, 360.0, -360.0)
_NOWHERE = -(2**40)  # the row and column of a place that the map does not have
_EDGE = 1e-6  # pixels: so near to an edge the last bit may decide

Whole = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def pixel_at(grid: Grid, lon: float, lat: float) -> Pixel | None:
    """Return the pixel that holds a place in WGS84 degrees; None outside the grid.

    A place on an edge or corner belongs to the pixel that begins there, counted from the first
    corner: to the one below and to the right of it in a raster with north up. This is GDAL's rule,
    the floor of the coordinates in pixels (`gdallocationinfo`), computed as rasterio does for
    `DatasetReader.index` and `sample`, to the last bit. Longitudes may be off by a turn.
    """
    (row,), (col,) = pixels_at(grid, np.array([lon]), np.array([lat]))
    inside = 0 <= row < grid.height and 0 <= col < grid.width
    return Pixel(int(row), int(col)) if inside else None


def pixels_at(grid: Grid, lon: Floats, lat: Floats) -> tuple[Whole, Whole]:
    """Return rows and columns of the pixels that hold places, by the rule of `pixel_at`.

    A place outside the grid has the numbers that its pixel would have if the grid went on there.

    Args:
        grid: The grid.
        lon: Longitudes in WGS84 degrees, shape (n,).
        lat: Latitudes, shape (n,).

    Returns:
        Rows and columns, shape (n,); very negative where the map has no such place.
    """
    rows = np.full(lon.shape, _NOWHERE)
    cols = rows.copy()
    for row, col in _by_turns(grid, lon, lat):
        inside = (row >= 0) & (row < grid.height) & (col >= 0) & (col < grid.width)
        better = inside | (rows == _NOWHERE)
        better &= ~((rows >= 0) & (rows < grid.height) & (cols >= 0) & (cols < grid.width))
        rows, cols = np.where(better, row, rows), np.where(better, col, cols)
    return rows, cols


def _by_turns(grid: Grid, lon: Floats, lat: Floats) -> Iterator[tuple[Whole, Whole]]:
    for turn in _TURNS:
        x, y = from_lonlat(grid.crs, lon + turn, lat)
        yield _floors(Affine(*grid.transform), x, y)


def _floors(transform: Affine, x: Floats, y: Floats) -> tuple[Whole, Whole]:
    """Return what rasterio's `rowcol` does; only where the last bit may matter it is asked."""
    known = np.isfinite(x) & np.isfinite(y)
    inverse = ~transform
    x, y = np.where(known, x, 0.0), np.where(known, y, 0.0)
    places = (
        inverse.d * x + inverse.e * y + inverse.f,
        inverse.a * x + inverse.b * y + inverse.c,
    )
    rows, cols = (np.floor(one).astype(np.int64) for one in places)
    close = [np.abs(one - np.rint(one)) < _EDGE for one in places]
    for index in np.flatnonzero(known & (close[0] | close[1])).tolist():
        rows[index], cols[index] = rowcol(transform, float(x[index]), float(y[index]))
    rows[~known], cols[~known] = _NOWHERE, _NOWHERE
    return rows, cols
