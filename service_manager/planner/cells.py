"""Cells of a target and which granules touch them, by tiles and swath boundaries alone.

A cell is made as far as the request wants it, in blocks; its side is the target's choice. What
counts for granules is its part inside the results' grid: granules beyond it would be fetched for
pixels that nobody gets. Cells of two requests are the same task where their grids and granules
agree.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import shapely
from numpy.typing import NDArray

from archives.model import Ring
from modis.box import LonLatBox
from modis.sphere import METRES_PER_DEGREE
from modis.tile import Tile, tiles_around
from reprojection.grid.covering import lonlat_points
from reprojection.grid.crs import lonlat_to_sinusoidal
from reprojection.grid.grids import Grid, Lattice
from reprojection.grid.sinusoidal import tiles_touching
from tasks.bag.spec import GridSpec
from tasks.request.region.kinds import region_tiles
from tasks.request.region.region import Region
from tasks.request.target import Target, cell_name
from tasks.request.vertices import Area

Floats = NDArray[np.float64]

_MOST = 0.75  # of a cell's pixels: a cell that is wanted as far as that is made whole
_PER_PIXEL = 2  # samples along a pixel's side on a window's outline
_ROUNDING = 0.1  # metres: a pixel centre on a tile's very edge may fall to either side
_AROUND = 4.0  # degrees of longitude are shorter than those of latitude, to 75 degrees north
_WIDE = math.radians(20.0)
_DEPTH = 5
_PIECE = 12.0  # degrees: a ring must bound the smaller part of the sphere, by a margin


@dataclass(frozen=True, kw_only=True)
class WindowCell:
    """A cell: the grid on which it is made, and the window of it inside the grid of the results.

    `clip` is the region where results are clipped to it: nothing beyond it is needed.
    """

    name: str
    grid: Grid
    window: Grid
    clip: Area | None
    _tiles: dict[tuple[float, bool], frozenset[Tile]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _outline: list[LonLatBox | tuple[Ring, ...]] = field(
        default_factory=list, compare=False, repr=False
    )

    def tiles(self, reach: float, whole_pixel: bool) -> frozenset[Tile]:
        """Return the MODIS tiles that a kernel of this reach in metres looks at."""
        if (reach, whole_pixel) not in self._tiles:
            found = _window_tiles(self.window, reach, whole_pixel)
            if self.clip is not None:
                wide = shapely.buffer(self.clip, _AROUND * reach / METRES_PER_DEGREE)
                west, _, east, _ = wide.bounds
                found &= frozenset(tiles_touching(wide & shapely.box(west, -90.0, east, 90.0)))
            self._tiles[reach, whole_pixel] = found
        return self._tiles[reach, whole_pixel]

    def outline(self) -> tuple[LonLatBox | tuple[Ring, ...], ...]:
        """Return the areas that a swath must touch, all of them, to matter here."""
        if not self._outline:
            self._outline.append(_window_area(self.window))
            if self.clip is not None:
                self._outline.append(tuple(_area_rings(self.clip)))
        return tuple(self._outline)


def grid_spec(grid: Grid) -> GridSpec:
    """Return a grid as a specification holds it."""
    return GridSpec(crs=grid.crs, transform=grid.transform, width=grid.width, height=grid.height)


def places(target: Target, region: Region, *, fused: bool = False) -> tuple[WindowCell, ...]:
    """Return the cells that hold pixels of the results, by row, then column.

    A small target is one cell; if `fused`, any is one, on the grid of the results. Of others each
    cell of the lattice is made as far as the widened grid covers it, and whole where that is most
    of it.
    """
    clip = target.area if region.clip else None
    modis = target.modis is not None
    wanted = region_tiles(region) if modis and (region.tiles is not None or region.clip) else None
    cells = target.lattice.cells(target.grid)
    if fused or (target.is_one_cell and len(cells) > 1):
        corners = dict.fromkeys((cells[0], cells[-1]))
        name = "_".join(cell_name(cell, modis=modis) for cell in corners)
        grid = target.grid if fused else target.widened
        return (WindowCell(name=name, grid=grid, window=target.grid, clip=clip),)
    found = []
    for cell in cells:
        if wanted is not None and Tile.at_cell(cell.col, cell.row) not in wanted:
            continue
        whole = target.lattice.cell_grid(cell.col, cell.row)
        window = _overlap(target.lattice, target.grid, whole)
        if clip is not None and not _meets(window, clip):
            continue
        part = _overlap(target.lattice, target.widened, whole)
        grid = whole if target.whole_cells or part.pixels >= _MOST * whole.pixels else part
        found.append(
            WindowCell(name=cell_name(cell, modis=modis), grid=grid, window=window, clip=clip)
        )
    return tuple(found)


def _overlap(lattice: Lattice, one: Grid, other: Grid) -> Grid:
    """Return the pixels that two grids of a lattice share."""
    col, row = lattice.index(one)
    left, top = lattice.index(other)
    first_col, first_row = max(col, left), max(row, top)
    last_col = min(col + one.width, left + other.width)
    last_row = min(row + one.height, top + other.height)
    return lattice.window(first_col, first_row, last_col - first_col, last_row - first_row)


def _points(window: Grid, inset: float) -> tuple[Floats, Floats]:
    side = max(window.width, window.height)
    return lonlat_points(window, side * _PER_PIXEL + 1, inset=inset)


@lru_cache(maxsize=64)
def _sinusoidal_samples(window: Grid, inset: float) -> tuple[Floats, Floats]:
    return lonlat_to_sinusoidal(*_points(window, inset))


def _window_tiles(window: Grid, reach: float, whole_pixel: bool) -> frozenset[Tile]:
    x, y = _sinusoidal_samples(window, 1e-6 if whole_pixel else 0.5)
    return tiles_around(x, y, reach + (0.0 if whole_pixel else _ROUNDING))


def _window_area(window: Grid) -> LonLatBox | tuple[Ring, ...]:
    """Return a window as an area on the sphere: a box, or rings around its pieces."""
    if window.system.is_plain_lonlat:
        west, south, east, north = window.bounds
        return LonLatBox(
            west=west, south=max(south, -90.0), east=min(east, west + 360.0), north=min(north, 90.0)
        )
    return tuple(_block_rings(window, 0.0, 0.0, window.width, window.height))


def _block_rings(
    window: Grid, left: float, top: float, width: float, height: float, depth: int = 0
) -> Iterator[Ring]:
    """Yield rings around a block of a window, cut where it is wide or leaves the map.

    A ring bounds the smaller part of the sphere, and its edges are great circles.
    """
    t = np.linspace(0.0, 1.0, 9)[:-1]
    zero, one = np.zeros_like(t), np.ones_like(t)
    lon, lat = _block_points(
        window,
        left + np.concatenate([t, one, 1 - t, zero]) * width,
        top + np.concatenate([zero, t, one, 1 - t]) * height,
    )
    net_x, net_y = np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 1, 5))
    net = _block_points(window, left + net_x.ravel() * width, top + net_y.ravel() * height)
    there = np.isfinite(lon)
    whole = bool(there.all() and np.isfinite(net[0]).all())
    if (not whole or _spread(*net) > _WIDE) and depth < _DEPTH:
        for right in (0.0, 0.5):
            for down in (0.0, 0.5):
                yield from _block_rings(
                    window,
                    left + right * width,
                    top + down * height,
                    width / 2,
                    height / 2,
                    depth + 1,
                )
    elif there.sum() >= 3:
        yield tuple(zip(lon[there].tolist(), lat[there].tolist(), strict=True))


def _block_points(window: Grid, cols: Floats, rows: Floats) -> tuple[Floats, Floats]:
    a, _, c, _, e, f = window.transform
    return window.system.to_lonlat(a * cols + c, e * rows + f)


def _spread(lon: Floats, lat: Floats) -> float:
    """Return the widest angle in radians between the middle point and any other point."""
    there = np.isfinite(lon)
    if not there.any():
        return 0.0
    lon, lat = np.radians(lon[there]), np.radians(lat[there])
    points = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    middle = points[:, points.shape[1] // 2]
    return float(np.arccos(np.clip(middle @ points, -1.0, 1.0)).max())


def _area_rings(area: Area) -> Iterator[Ring]:
    west, south, east, north = area.bounds
    for low in np.arange(south, north, _PIECE):
        for left in np.arange(west, east, _PIECE):
            box = shapely.box(left, low, left + _PIECE, low + _PIECE)
            for part in shapely.get_parts(shapely.intersection(area, box)):
                if isinstance(part, shapely.Polygon) and not part.is_empty:
                    edge = shapely.segmentize(part.exterior, 0.5)
                    points: Sequence[tuple[float, float]] = shapely.get_coordinates(edge).tolist()
                    yield tuple((float(x), float(y)) for x, y in points[:-1])


def _meets(window: Grid, area: Area) -> bool:
    """Tell whether a window and a region share a point, to about a pixel."""
    lon, lat = _points(window, 0.0)
    inside = shapely.contains_xy(area, lon, lat) | shapely.contains_xy(area, lon + 360.0, lat)
    if inside.any():
        return True
    a, _, c, _, e, f = window.transform
    west, south, east, north = area.bounds
    step = max(max(east - west, north - south) / 8192, 1e-6)
    edge = shapely.get_coordinates(shapely.segmentize(area, step))
    lon = edge[:, 0]
    if window.system.parsed.is_projected:
        lon = np.where(lon > 180.0, lon - 360.0, lon)
    x, y = window.system.from_lonlat(lon, edge[:, 1])
    cols, rows = (x - c) / a, (y - f) / e
    with np.errstate(invalid="ignore"):
        within = (cols >= 0) & (cols <= window.width) & (rows >= 0) & (rows <= window.height)
    return bool(within.any())
