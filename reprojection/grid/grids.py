"""Grids: a CRS, an affine transform and a shape; lattices, and the cells of a lattice."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from modis.axes import Shape
from modis.tile import TILE_PIXELS, TILE_SIZE, Tile
from reprojection.errors import GridError
from reprojection.grid.crs import (
    MODIS_SINUSOIDAL,
    Crs,
)
from reprojection.grid.sinusoidal import tiles_touching

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

__all__ = [
    "CELL_SIZE",
    "MODIS_SINUSOIDAL",
    "Cell",
    "Extent",
    "Grid",
    "Lattice",
    "modis_lattice",
    "modis_tile_grid",
    "tiles_touching",
]

CELL_SIZE = 1024
"""Rows and columns of a cell of a user's grid."""

_SNAP = 1e-6
"""Largest distance, in pixels, at which bounds count as lying on a lattice line."""

_MAX_PIXELS = 2**40


class Extent(NamedTuple):
    """A box in CRS units (or degrees): west, south, east, north.

    In longitude and latitude, west > east means that the box crosses 180 degrees.
    """

    west: float
    south: float
    east: float
    north: float


class Cell(NamedTuple):
    """Column and row of a cell in its lattice, counted from CRS (0, 0), rows downward."""

    col: int
    row: int


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Say where a raster lies: CRS, affine transform and shape.

    Attributes:
        crs: Coordinate reference system, as WKT, authority code ("EPSG:4326") or PROJ string.
        transform: (a, b, c, d, e, f) in CRS units: x = a col + b row + c, y = d col + e row + f,
            where (col, row) = (0, 0) is the outer corner of the first pixel. The order is that of
            the package affine, not of GDAL.
        width: Columns, at least 1.
        height: Rows, at least 1; width times height is at most 2**40.

    Raises:
        GridError: the transform has no inverse, or the shape is empty or too large.
    """

    crs: str
    transform: tuple[float, float, float, float, float, float]
    width: int
    height: int

    def __post_init__(self) -> None:
        a, b, _, d, e, _ = self.transform
        if not all(map(math.isfinite, self.transform)) or a * e - b * d == 0.0:
            raise GridError(f"grid transform {self.transform} has no inverse; give a pixel size")
        if self.width < 1 or self.height < 1 or self.width * self.height > _MAX_PIXELS:
            raise GridError(
                f"grid of {self.width} x {self.height} pixels; both sides must be at least 1 and "
                f"the whole at most 2**40 pixels"
            )

    @cached_property
    def system(self) -> Crs:
        """The CRS, parsed. Raises GridError for text that names none."""
        return Crs.of(self.crs)

    @property
    def shape(self) -> Shape:
        """Rows and columns, as numpy orders them."""
        return Shape(self.height, self.width)

    @property
    def pixels(self) -> int:
        """Columns times rows."""
        return self.width * self.height

    @property
    def is_upright(self) -> bool:
        """True if rows and columns run along the CRS axes."""
        return self.transform[1] == 0.0 and self.transform[3] == 0.0

    @property
    def bounds(self) -> Extent:
        """The box of the outer pixel edges in CRS units."""
        a, b, c, d, e, f = self.transform
        xs = [c, c + a * self.width, c + b * self.height, c + a * self.width + b * self.height]
        ys = [f, f + d * self.width, f + e * self.height, f + d * self.width + e * self.height]
        return Extent(min(xs), min(ys), max(xs), max(ys))

    @property
    def geobox(self) -> "GeoBox":
        """The grid as odc-geo has it (the extra `swathmill[xarray]`)."""
        from affine import Affine
        from odc.geo.geobox import GeoBox

        return GeoBox(self.shape, Affine(*self.transform), self.crs)

    @classmethod
    def of_geobox(cls, geobox: "GeoBox") -> "Grid":
        """Make the grid of odc-geo's GeoBox.

        Args:
            geobox: One with a CRS, whose pixels are not bent.

        Raises:
            GridError: it has no CRS.
        """
        if geobox.crs is None:
            raise GridError("the GeoBox has no CRS, so it lies nowhere; give it one")
        height, width = geobox.shape
        a, b, c, d, e, f = tuple(geobox.affine)[:6]
        return cls(
            crs=geobox.crs.to_wkt(), transform=(a, b, c, d, e, f), width=width, height=height
        )

    def lonlat_outline(self, points_per_edge: int = 33) -> NDArray[np.float64]:
        """Return the outer edge as an array (n, 2) of WGS84 longitude and latitude in degrees.

        Clockwise from the first corner; NaN where the edge lies outside the projection's domain.

        Args:
            points_per_edge: Points along each of the four edges, both corners among them.
        """
        t = np.linspace(0.0, 1.0, points_per_edge)[:-1]
        zero, one = np.zeros_like(t), np.ones_like(t)
        cols = np.concatenate([t, one, 1 - t, zero]) * self.width
        rows = np.concatenate([zero, t, one, 1 - t]) * self.height
        a, b, c, d, e, f = self.transform
        lon, lat = self.system.to_lonlat(a * cols + b * rows + c, d * cols + e * rows + f)
        return np.stack([lon, lat], axis=1)


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """All grids of one CRS and pixel size whose pixel edges meet CRS coordinate (0, 0).

    `Lattice(crs="EPSG:4326", resolution=0.01).snap((west, south, east, north))` is a `Grid`.

    Attributes:
        crs: Coordinate reference system, as WKT, authority code or PROJ string.
        resolution: Side of a pixel in CRS units.
        cell_size: Rows and columns of the cells that a request's work is divided into, 1024 by
            default.

    Raises:
        GridError: the CRS cannot be a target, or the resolution is not positive.
    """

    crs: str
    resolution: float
    cell_size: int = CELL_SIZE

    def __post_init__(self) -> None:
        self.system.check()
        if not (math.isfinite(self.resolution) and self.resolution > 0):
            raise GridError(f"resolution {self.resolution} must be a positive number of CRS units")

    @classmethod
    def normal(cls, crs: str, resolution: float) -> Self:
        """Return the lattice of a CRS by the text that all its spellings have in common.

        Args:
            crs: Any text that names a CRS, as "EPSG:4326", WKT or PROJ.
            resolution: Pixel size in CRS units.

        Raises:
            GridError: the text names no CRS, or the resolution is not positive.
        """
        return cls(crs=Crs.of(crs).normal_text, resolution=resolution)

    @cached_property
    def system(self) -> Crs:
        """The CRS, parsed. Raises GridError for text that names none."""
        return Crs.of(self.crs)

    def window(self, col: int, row: int, width: int, height: int) -> Grid:
        """Return the grid whose first pixel has a lattice index.

        Args:
            col: Column of the first pixel, counted from CRS x = 0.
            row: Row of the first pixel, counted downward from CRS y = 0.
            width: Columns.
            height: Rows.
        """
        size = self.resolution
        return Grid(
            crs=self.crs,
            transform=(size, 0.0, col * size, 0.0, -size, -row * size),
            width=width,
            height=height,
        )

    def snap(self, bounds: Sequence[float]) -> Grid:
        """Return the smallest grid that covers a box.

        Args:
            bounds: West, south, east, north in CRS units.

        Raises:
            GridError: the bounds are not finite, or reversed.
        """
        west, south, east, north = bounds
        if not all(map(math.isfinite, bounds)) or west > east or south > north:
            raise GridError(
                f"bounds {tuple(bounds)} must be finite with west <= east and south <= north"
            )
        left, right = self._span(west, east)
        top, bottom = self._span(-north, -south)
        return self.window(left, top, right - left, bottom - top)

    def widened(self, grid: Grid, block: int) -> Grid:
        """Return the smallest grid of whole blocks that holds a grid.

        Args:
            grid: A grid of this lattice.
            block: Side of a block in pixels, counted from CRS (0, 0).

        Raises:
            GridError: the grid is not on the lattice.
        """
        col, row = self.index(grid)
        left, top = col // block * block, row // block * block
        right = -(-(col + grid.width) // block) * block
        bottom = -(-(row + grid.height) // block) * block
        return self.window(left, top, right - left, bottom - top)

    def geobox(self, bounds: Sequence[float]) -> "GeoBox":
        """Return the smallest grid that covers a box, as odc-geo has it.

        It needs the extra `swathmill[xarray]`.

        Args:
            bounds: West, south, east, north in CRS units.

        Raises:
            GridError: the bounds are not finite, or reversed.
        """
        return self.snap(bounds).geobox

    def _span(self, low: float, high: float) -> tuple[int, int]:
        first = math.floor(low / self.resolution + _SNAP)
        last = math.ceil(high / self.resolution - _SNAP)
        return first, max(last, first + 1)

    def index(self, grid: Grid) -> tuple[int, int]:
        """Return lattice column and row of a grid's first pixel.

        Args:
            grid: A grid of this lattice.

        Raises:
            GridError: the grid is not on the lattice.
        """
        a, b, c, d, e, f = grid.transform
        size = self.resolution
        col, row = round(c / size), round(-f / size)
        aligned = (
            (a, b, d, e) == (size, 0.0, 0.0, -size)
            and abs(c - col * size) <= _SNAP * size
            and abs(f + row * size) <= _SNAP * size
        )
        if not aligned or (grid.crs != self.crs and grid.system.parsed != self.system.parsed):
            raise GridError(
                f"the grid at {grid.bounds} is not of the lattice of {size} units; snap it first"
            )
        return col, row

    def cells(self, grid: Grid) -> list[Cell]:
        """Return the cells that share a pixel with a grid, by row, then column.

        Args:
            grid: A grid of this lattice.

        Raises:
            GridError: the grid is not on the lattice.
        """
        col, row = self.index(grid)
        size = self.cell_size
        rows = range(row // size, (row + grid.height - 1) // size + 1)
        cols = range(col // size, (col + grid.width - 1) // size + 1)
        return [Cell(c, r) for r in rows for c in cols]

    def cell_bounds(self, cells: Iterable[Cell]) -> Extent:
        """Return the box in CRS units that holds cells.

        Args:
            cells: One or more.
        """
        boxes = [self.cell_grid(*cell).bounds for cell in cells]
        west, south, east, north = zip(*boxes, strict=True)
        return Extent(min(west), min(south), max(east), max(north))

    def cell_grid(self, col: int, row: int) -> Grid:
        """Return the grid of one whole cell.

        Args:
            col: Column of the cell, counted from CRS x = 0.
            row: Row of the cell, counted downward from CRS y = 0.
        """
        size = self.cell_size
        return self.window(col * size, row * size, size, size)


def modis_lattice(resolution_m: int) -> Lattice:
    """Make the MODIS sinusoidal lattice at 250, 500 or 1000 m; its cells are the MODIS tiles.

    Cell (col, row) is tile (h - 18, v - 9). The true pixel sides are 231.66, 463.31 and 926.63 m.
    """
    pixels = _pixels(resolution_m)
    return Lattice(crs=MODIS_SINUSOIDAL, resolution=TILE_SIZE / pixels, cell_size=pixels)


def modis_tile_grid(h: int, v: int, resolution_m: int) -> Grid:
    """Make the grid of MODIS tile (h, v) at 250, 500 or 1000 m: 4800, 2400 or 1200 pixels.

    Raises GridError for a tile outside h 0-35, v 0-17.
    """
    tile = Tile(h, v)
    if not tile.on_grid:
        raise GridError(f"tile {tile.name} does not exist; h is 0 to 35 and v is 0 to 17")
    return modis_lattice(resolution_m).cell_grid(tile.col, tile.row)


def _pixels(resolution_m: int) -> int:
    try:
        return TILE_PIXELS[resolution_m]
    except KeyError:
        raise GridError(f"MODIS resolution {resolution_m} m; choose 250, 500 or 1000") from None
