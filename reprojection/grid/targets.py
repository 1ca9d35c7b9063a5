"""Compute where the pixel centres of a grid lie on the Earth."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modis.axes import Shape
from modis.sphere import SPHERE_RADIUS
from reprojection.grid.bicubic import BLOCK
from reprojection.grid.blocks import BlockPlan, plan_blocks
from reprojection.grid.coordinates import Coordinates, SourceSpace
from reprojection.grid.crs import (
    MODIS_SINUSOIDAL,
    wrap_longitude,
)
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_coordinates import Chunk, centres

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Latitudes and longitudes of pixel centres in WGS84 degrees; NaN for pixels off the Earth.

    The two arrays broadcast to the grid's shape (height, width): if each row has one latitude,
    `lat` is (height, 1); if each column has one longitude, `lon` is (1, width).
    """

    lat: Floats
    lon: Floats

    @property
    def shape(self) -> Shape:
        """Rows and columns."""
        return Shape(self.lat.shape[0], self.lon.shape[1])

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Elements to the next row and column of `lat`, then of `lon`; 0 if they repeat."""
        return *_strides(self.lat), *_strides(self.lon)


def _strides(array: Floats) -> tuple[int, int]:
    rows, cols = array.shape
    return (cols if rows > 1 else 0), (1 if cols > 1 else 0)


class Centres:
    """The pixel centres of a grid, computed for a range of rows at a time.

    They are computed by formula if one exists. Otherwise they come from the block plan of a warp
    onto sinusoidal pixels of 100 m, to within a metre; where a map is not smooth, this is exact
    (PROJ at each pixel). A pixel's centre depends neither on the range of rows nor, in an upright
    grid, on the grid's bounds.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        by_formula = grid.system.is_plain_lonlat or grid.system.is_modis_sinusoidal
        self._plan = None
        if not (grid.is_upright and by_formula):
            self._plan = plan_blocks(Coordinates(grid=grid, space=_METRES))

    def rows(self, first: int, last: int) -> Targets:
        """Compute the centres of rows [first, last)."""
        if self._plan is not None:
            return _by_plan(self._plan, first, last)
        x, y = _axes(self._grid)
        if self._grid.system.is_plain_lonlat:
            lat = np.where(np.abs(y) <= 90.0, y, np.nan)[first:last]
            return Targets(lat=lat[:, None], lon=wrap_longitude(x)[None, :])
        return _sinusoidal_centres(x, y[first:last])


def pixel_centres(grid: Grid) -> Targets:
    """Compute all pixel centres of a grid."""
    return Centres(grid).rows(0, grid.height)


_METRES = SourceSpace(crs=MODIS_SINUSOIDAL, pixel_width=100.0, pixel_height=-100.0, x0=0.0, y0=0.0)


def _by_plan(plan: BlockPlan, first: int, last: int) -> Targets:
    width = plan.coordinates.grid.width
    lat, lon = np.empty((last - first, width)), np.empty((last - first, width))
    # Take whole rows of blocks, so that no block is evaluated twice.
    ahead = BLOCK - (plan.numbering.row + first) % BLOCK
    edges = [first, *range(first + ahead, last, BLOCK), last]
    for top, bottom in itertools.pairwise(edges):
        places = centres(plan, Chunk(top=top, bottom=bottom, left=0, right=width), quick=False)
        phi = places[..., 1] * (_METRES.pixel_height / SPHERE_RADIUS)
        rows = slice(top - first, bottom - first)
        lat[rows] = np.degrees(phi)
        with np.errstate(divide="ignore", invalid="ignore"):
            lon[rows] = np.degrees(
                places[..., 0] * (_METRES.pixel_width / SPHERE_RADIUS) / np.cos(phi)
            )
    return Targets(lat=lat, lon=lon)


def _sinusoidal_centres(x: Floats, y: Floats) -> Targets:
    """Compute centres by Snyder 1987, 30-6 and 30-7 with longitude 0; each row has one latitude."""
    phi = y / SPHERE_RADIUS
    on_map = np.abs(phi) <= math.pi / 2
    with np.errstate(divide="ignore"):
        per_metre = np.degrees(1.0 / (SPHERE_RADIUS * np.cos(phi)))
    lon = per_metre[:, None] * x[None, :]
    lon[np.abs(lon) > 180.0] = np.nan
    return Targets(lat=np.where(on_map, np.degrees(phi), np.nan)[:, None], lon=lon)


def _axes(grid: Grid) -> tuple[Floats, Floats]:
    """Return x of columns and y of rows of an upright grid, the same in every cell of a lattice."""
    a, _, c, _, e, f = grid.transform
    return _centres(c, a, grid.width), _centres(f, e, grid.height)


def _centres(start: float, step: float, count: int) -> Floats:
    halves = round(2 * start / step)  # centres of pixels, or the corners between them
    if abs(start - halves * step / 2) <= 1e-6 * abs(step):
        return np.asarray((halves / 2 + np.arange(count) + 0.5) * step)
    return np.asarray(start + (np.arange(count) + 0.5) * step)


def pixel_metres(grid: Grid) -> float:
    """Return the side of a grid's pixel in metres; for a degree grid, at the equator."""
    a, b, _, d, e, _ = grid.transform
    crs = grid.system.parsed
    factor = crs.axis_info[0].unit_conversion_factor
    return math.sqrt(abs(a * e - b * d)) * (factor * SPHERE_RADIUS if crs.is_geographic else factor)
