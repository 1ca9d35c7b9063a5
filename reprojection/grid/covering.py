"""The grid of a lattice that covers a region of the Earth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon

from modis.box import LonLatBox
from reprojection.errors import GridError
from reprojection.grid.crs import Crs, Floats
from reprojection.grid.grids import Cell, Extent, Grid, Lattice

Area = Polygon | MultiPolygon

_MOST = 2.0**40  # pixels that a grid may have at all
_FARTHEST = 1e8
"""Metres from a CRS's origin beyond which no map has valid points: over two circumferences."""

_INSIDE = 65  # points across a grid: no whole tile slips through, 36 span the Earth

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
    cells: Sequence[Cell] = (),
    block: int,
    everywhere: bool = False,
) -> Covering:
    """Cover a region, in degrees with longitudes that may pass 180.

    Args:
        lattice: That of the grids.
        area: The region.
        box: The region as west, south, east and north, if it is a box.
        cells: The region as cells of the lattice, if it is cells.
        block: Side of a block in pixels.
        everywhere: Whether the CRS serves wherever the region lies.

    Raises:
        TooManyPixelsError: the region has more pixels than can be counted.
        GridError: the region lies off the CRS's domain, or in part where it becomes infinite.
    """
    bounds = lattice.cell_bounds(cells) if cells else _bounds(lattice, area, box)
    west, south, east, north = bounds
    wide, high = (east - west) / lattice.resolution, (north - south) / lattice.resolution
    if wide * high > _MOST:
        raise TooManyPixelsError(wide, high)
    if not everywhere:
        _check_domain(lattice.system, area)
    grid = lattice.snap(bounds)
    return Covering(grid=grid, widened=lattice.widened(grid, block))


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


def project_bounds(lonlat_bbox: Sequence[float], crs: str) -> Extent:
    """Compute the box in a CRS that holds a longitude-latitude box (west, south, east, north).

    The box is sampled densely, at its edges and inside, and padded by the curvature between
    samples; the part outside the CRS's domain is left out. West > east crosses the antimeridian.
    Raises GridError for a box off the Earth, an unusable CRS, or a box that lies wholly outside its
    domain or reaches where map coordinates become infinite, such as the far pole of a polar CRS.
    """
    west, south, east, north = _check_lonlat(lonlat_bbox)
    system = Crs.of(crs)
    system.check()
    lon, lat = np.meshgrid(np.linspace(west, east, 257), np.linspace(south, north, 257))
    if system.parsed.is_projected:
        lon = np.where(lon > 180.0, lon - 360.0, lon)
    x, y = points_on_map(f"box {tuple(lonlat_bbox)}", lon.ravel(), lat.ravel(), system)
    west_x, east_x = _padded_span(x.reshape(lon.shape))
    south_y, north_y = _padded_span(y.reshape(lon.shape))
    return Extent(west_x, south_y, east_x, north_y)


def points_on_map(what: str, lon: Floats, lat: Floats, crs: Crs) -> tuple[Floats, Floats]:
    """Convert points (n,) of a region to a CRS; points off its domain are NaN.

    Raises GridError, which names the region by `what`, if all points are off the domain, or if one
    lies where map coordinates become infinite.
    """
    x, y = crs.from_lonlat(lon, lat)
    remedy = "choose a CRS made for that region"
    name = crs.parsed.name
    if not np.isfinite(x).any():
        raise GridError(f"{what} lies outside the domain of CRS {name!r}; {remedy}")
    away = np.hypot(x, y) * crs.metres
    farthest = int(np.nanargmax(away))
    if away[farthest] > _FARTHEST:
        raise GridError(
            f"a part of {what}, at longitude {lon[farthest]:g} and latitude {lat[farthest]:g}, "
            f"lies outside the domain of CRS {name!r}; {remedy}, or narrow it"
        )
    return x, y


def _check_lonlat(box: Sequence[float]) -> LonLatBox:
    west, south, east, north = box
    on_earth = -90.0 <= south <= north <= 90.0 and -180.0 <= west <= 180.0
    if not (all(map(math.isfinite, box)) and on_earth and -180.0 <= east <= 540.0):
        raise GridError(
            f"box {tuple(box)} is not on the Earth; give west, south, east, north in degrees, "
            "south <= north, longitudes from -180 to 180"
        )
    return LonLatBox(west, south, LonLatBox(west, south, east, north).unwrapped_east, north)


def lonlat_points(grid: Grid, along: int, *, inset: float = 0.0) -> tuple[Floats, Floats]:
    """Return longitude and latitude of points (n,) of an upright grid, in degrees.

    `along` points lie on each side of a line `inset` pixels inside the edge, and a net within.
    Points that are nowhere on the Earth are left out.
    """
    width, height = grid.width - 2 * inset, grid.height - 2 * inset
    side = np.linspace(0.0, 1.0, along)
    net_x, net_y = np.meshgrid(np.linspace(0, 1, _INSIDE), np.linspace(0, 1, _INSIDE))
    zero, one = np.zeros_like(side), np.ones_like(side)
    cols = np.concatenate([side, side, zero, one, net_x.ravel()]) * width + inset
    rows = np.concatenate([zero, one, side, side, net_y.ravel()]) * height + inset
    a, _, c, _, e, f = grid.transform
    lon, lat = grid.system.to_lonlat(a * cols + c, e * rows + f)
    there = np.isfinite(lon) & np.isfinite(lat)
    return lon[there], lat[there]


def _padded_span(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    step = (high - low) / 64
    bends = [0.0]
    for axis in (0, 1):
        bend = np.abs(np.diff(values, n=2, axis=axis))
        bend = bend[np.isfinite(bend) & (bend < step)]
        bends.append(float(bend.max(initial=0.0)) / 4)
    noise = 1e-9 * max(abs(low), abs(high))
    pad = max(bends)
    return (low - pad, high + pad) if pad > noise else (low, high)
