"""Where the pixel centres of a grid lie on the Earth."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reprojection.crs import (
    SPHERE_RADIUS,
    is_modis_sinusoidal,
    is_plain_lonlat,
    parse_crs,
    to_lonlat,
    wrap_longitude,
)
from reprojection.grids import Grid

Floats = npt.NDArray[np.float64]

_ROWS_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Latitudes and longitudes of pixel centres in WGS84 degrees, NaN where there is no Earth.

    The two arrays broadcast to the grid's shape (height, width): where a row has one latitude,
    `lat` is (height, 1), and where a column has one longitude, `lon` is (1, width).
    """

    lat: Floats
    lon: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.lat.shape[0], self.lon.shape[1]

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Elements to the next row and column of `lat`, then of `lon`; 0 where they repeat."""
        return *_strides(self.lat), *_strides(self.lon)


def _strides(array: Floats) -> tuple[int, int]:
    rows, cols = array.shape
    return (cols if rows > 1 else 0), (1 if cols > 1 else 0)


def pixel_centres(grid: Grid) -> Targets:
    """The pixel centres of a grid, exactly: by formula, else by PROJ at each pixel."""
    if grid.is_upright and is_plain_lonlat(grid.crs):
        lon, lat = _axes(grid)
        lat = np.where(np.abs(lat) <= 90.0, lat, np.nan)
        return Targets(lat=lat[:, None], lon=wrap_longitude(lon)[None, :])
    if grid.is_upright and is_modis_sinusoidal(grid.crs):
        return _sinusoidal_centres(grid)
    lat = np.empty(grid.shape)
    lon = np.empty(grid.shape)
    for first in range(0, grid.height, _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, grid.height))
        x, y = _plane(grid, rows)
        lon[rows], lat[rows] = to_lonlat(grid.crs, x, y)
    return Targets(lat=lat, lon=lon)


def _sinusoidal_centres(grid: Grid) -> Targets:
    """Snyder 1987, eqs. 30-6 and 30-7 with longitude 0: a row is one latitude, evenly divided."""
    x, y = _axes(grid)
    phi = y / SPHERE_RADIUS
    on_map = np.abs(phi) <= math.pi / 2
    with np.errstate(divide="ignore"):
        per_metre = np.degrees(1.0 / (SPHERE_RADIUS * np.cos(phi)))
    lon = per_metre[:, None] * x[None, :]
    lon[np.abs(lon) > 180.0] = np.nan
    return Targets(lat=np.where(on_map, np.degrees(phi), np.nan)[:, None], lon=lon)


def _axes(grid: Grid) -> tuple[Floats, Floats]:
    """x of columns and y of rows of an upright grid, the same in every cell of a lattice."""
    a, _, c, _, e, f = grid.transform
    return _centres(c, a, grid.width), _centres(f, e, grid.height)


def _centres(start: float, step: float, count: int) -> Floats:
    first = round(start / step)
    if abs(start - first * step) <= 1e-6 * abs(step):
        return np.asarray((first + np.arange(count) + 0.5) * step)
    return np.asarray(start + (np.arange(count) + 0.5) * step)


def _plane(grid: Grid, rows: slice) -> tuple[Floats, Floats]:
    if grid.is_upright:
        xs, ys = _axes(grid)
        x, y = np.broadcast_arrays(xs[None, :], ys[rows, None])
        return x, y
    a, b, c, d, e, f = grid.transform
    col = np.arange(grid.width)[None, :] + 0.5
    row = np.arange(rows.start, rows.stop)[:, None] + 0.5
    return a * col + b * row + c, d * col + e * row + f


def pixel_metres(grid: Grid) -> float:
    """The side of a grid's pixel in metres: of the plane, or of the equator for a degree grid."""
    a, b, _, d, e, _ = grid.transform
    crs = parse_crs(grid.crs)
    factor = crs.axis_info[0].unit_conversion_factor
    return math.sqrt(abs(a * e - b * d)) * (factor * SPHERE_RADIUS if crs.is_geographic else factor)
