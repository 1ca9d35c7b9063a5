"""Find the pixel of a raster at a place: one rule for values, series, tables and explanations."""

import numpy as np
from rasterio.transform import Affine, rowcol

from modis.axes import Pixel
from reprojection.grid.crs import from_lonlat
from reprojection.grid.grids import Grid

_TURNS = (0.0, 360.0, -360.0)


def pixel_at(grid: Grid, lon: float, lat: float) -> Pixel | None:
    """Return the pixel that holds a place in WGS84 degrees; None outside the grid.

    A place on an edge or corner belongs to the pixel that begins there, counted from the first
    corner: to the one below and to the right of it in a raster with north up. This is GDAL's rule,
    the floor of the coordinates in pixels (`gdallocationinfo`), computed as rasterio does for
    `DatasetReader.index` and `sample`, to the last bit. Longitudes may be off by a turn.
    """
    for turn in _TURNS:
        (x,), (y,) = from_lonlat(grid.crs, np.array([lon + turn]), np.array([lat]))
        if not (np.isfinite(x) and np.isfinite(y)):
            continue
        row, col = rowcol(Affine(*grid.transform), x, y)
        if 0 <= row < grid.height and 0 <= col < grid.width:
            return Pixel(int(row), int(col))
    return None
