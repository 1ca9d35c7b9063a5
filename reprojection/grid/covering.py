"""The grid of a lattice that covers a region of the Earth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from shapely import MultiPolygon, Polygon

from modis.tile import Tile
from reprojection.errors import GridError
from reprojection.grid.crs import Crs
from reprojection.grid.grids import Extent, Grid, Lattice, points_on_map, project_bounds

Area = Polygon | MultiPolygon

_MOST = 2.0**40  # pixels that a grid may have at all
_FAR = 20.0
"""Degrees beyond a CRS's area of use at which its coordinates mean little."""


class TooManyPixelsError(GridError):
    """The pixel is so small that the region has more pixels than can be counted."""

    def __init__(self, wide: float, high: float) -> None:
        super().__init__(f"the grid would have {wide:,.0f} x {high:,.0f} pixels")
        self.wide = wide
        self.high = high


@dataclass(frozen=True, kw_only=True)
class Covering:
    """The smallest grid that covers a region; `widened` is the smallest of whole blocks."""

    grid: Grid
    widened: Grid


def cover(
    lattice: Lattice,
    area: Area,
    *,
    box: Sequence[float] | None = None,
    tiles: Sequence[Tile] = (),
    block: int,
    everywhere: bool = False,
) -> Covering:
    """Cover a region, in degrees with longitudes that may pass 180.

    Args:
        lattice: That of the grids.
        area: The region.
        box: The region as west, south, east and north, if it is a box.
        tiles: The region as tiles of the lattice's cells, if it is tiles.
        block: Side of a block in pixels.
        everywhere: Whether the CRS serves wherever the region lies.

    Raises:
        TooManyPixelsError: the region has more pixels than can be counted.
        GridError: the region lies off the CRS's domain, or in part where it becomes infinite.
    """
    bounds = tile_bounds(lattice, tiles) if tiles else _bounds(lattice, area, box)
    west, south, east, north = bounds
    wide, high = (east - west) / lattice.resolution, (north - south) / lattice.resolution
    if wide * high > _MOST:
        raise TooManyPixelsError(wide, high)
    grid = lattice.snap(bounds)
    found = Covering(grid=grid, widened=_widened(lattice, grid, block))
    if not everywhere:
        _check_domain(lattice.system, area)
    return found


def tile_bounds(lattice: Lattice, tiles: Iterable[Tile]) -> Extent:
    """Return the box that holds tiles, which are cells of the lattice."""
    boxes = [lattice.cell_grid(tile.col, tile.row).bounds for tile in tiles]
    west, south, east, north = zip(*boxes, strict=True)
    return Extent(min(west), min(south), max(east), max(north))


def _check_domain(crs: Crs, area: Area) -> None:
    """Raise GridError for a region where the CRS's coordinates do not lead back, or far from use.

    The error has no subject.
    """
    west, south, east, north = area.bounds
    lon, lat = (
        part.ravel()
        for part in np.meshgrid(np.linspace(west, east, 33), np.linspace(south, north, 33))
    )
    lon = np.where(lon > 180.0, lon - 360.0, lon)
    back_lon, back_lat = crs.to_lonlat(*crs.from_lonlat(lon, lat))
    turn = np.abs((back_lon - lon + 180.0) % 360.0 - 180.0) * np.cos(np.radians(lat))
    with np.errstate(invalid="ignore"):
        there = (turn < 1e-3) & (np.abs(back_lat - lat) < 1e-3)
    use = crs.parsed.area_of_use
    if use is not None:
        width = (use.east - use.west) % 360.0 or 360.0
        beyond = (lon - use.west) % 360.0
        there &= np.minimum(beyond - width, 360.0 - beyond) <= _FAR
        there &= (lat >= use.south - _FAR) & (lat <= use.north + _FAR)
    if not there.any():
        name = crs.parsed.name
        raise GridError(
            f"lies outside the domain of CRS {name!r}; choose a CRS made for that region"
        )


def _bounds(lattice: Lattice, area: Area, box: Sequence[float] | None) -> Extent:
    """Return the box in CRS units that holds the region."""
    if lattice.system.is_plain_lonlat:
        return Extent(*area.bounds)
    if box is not None:
        return project_bounds(box, lattice.crs)
    return _area_bounds(area, lattice.system)


def _area_bounds(area: Area, crs: Crs) -> Extent:
    """Return the box that holds a polygon.

    The polygon's edge is sampled densely. A net of points inside is sampled too, for maps that are
    cut or folded there.
    """
    west, south, east, north = area.bounds
    step = max(east - west, north - south) / 2048
    edge = shapely.get_coordinates(shapely.segmentize(area, step))
    across, up = np.meshgrid(np.linspace(west, east, 129), np.linspace(south, north, 129))
    inside = shapely.contains_xy(area, across, up)
    points = np.concatenate([edge, np.stack([across[inside], up[inside]], axis=1)])
    lon = points[:, 0]
    if crs.parsed.is_projected:
        lon = np.where(lon > 180.0, lon - 360.0, lon)
    x, y = points_on_map("the region", lon, points[:, 1], crs)
    low, high = (np.nanmin(x), np.nanmin(y)), (np.nanmax(x), np.nanmax(y))
    return Extent(float(low[0]), float(low[1]), float(high[0]), float(high[1]))


def _widened(lattice: Lattice, grid: Grid, block: int) -> Grid:
    """Return the smallest grid of whole blocks of the lattice that holds a grid."""
    col, row = lattice.index(grid)
    left, top = col // block * block, row // block * block
    right = -(-(col + grid.width) // block) * block
    bottom = -(-(row + grid.height) // block) * block
    return lattice.window(left, top, right - left, bottom - top)
