"""Find the source pixel of a granule that a target pixel comes from."""

import math

import numpy as np
import numpy.typing as npt

from modis.axes import Pixel
from modis.sphere import SPHERE_RADIUS
from reprojection.grid.coordinates import Coordinates, SourceSpace, exact_coordinates
from reprojection.grid.grids import Grid
from reprojection.grid.sphere import unit_vectors
from reprojection.grid.targets import pixel_centres, pixel_metres
from reprojection.read.granule import Granule
from reprojection.read.granule_layer import GranuleHeader, located
from reprojection.read.qa import Reason
from reprojection.warp.from_swaths import corners_grid, squares_along
from reprojection.warp.swath import Swath, nearest

Why = npt.NDArray[np.uint8]

_KERNEL = 3.0
"""Reach of the widest kernel, in source pixels or in target pixels, whichever are larger."""


def nearest_pixel(
    granule: Granule, place: GranuleHeader, pixel: Grid, why: Why, *, search_valid: bool
) -> Pixel | None:
    """Return the source pixel nearest to a grid of one pixel; None beyond the granule.

    `why` holds a Reason for each source pixel. For swaths the footprint must reach the pixel.
    Returns None if the granule does not reach the pixel.
    """
    if place.grid is not None:
        column, row = _tile_position(place.grid, pixel)
        if not (math.isfinite(column) and math.isfinite(row)):
            return None
        at = Pixel(math.floor(row), math.floor(column))
        return at if 0 <= at.row < place.grid.height and 0 <= at.col < place.grid.width else None
    swath = Swath.of(located(granule, place))
    candidates = why == Reason.VALID if search_valid else None
    index = int(nearest(swath, pixel_centres(pixel), candidates=candidates).item())
    return None if index < 0 else Pixel(*divmod(index, swath.lat.shape[1]))


def counting_pixel(
    granule: Granule, place: GranuleHeader, pixel: Grid, why: Why
) -> tuple[float, Pixel] | None:
    """Find the nearest source pixel with a value, of those a kernel may count.

    Returns its distance in metres and the pixel; None where there is none.
    """
    if place.grid is not None:
        return _counting_in_tile(place.grid, pixel, why)
    swath = Swath.of(located(granule, place))
    finer = corners_grid(pixel, squares_along(swath, pixel))
    seen = np.unique(nearest(swath, pixel_centres(finer)))
    seen = seen[(seen >= 0) & (why.ravel()[seen] == Reason.VALID)]
    if not seen.size:
        return None
    middle = pixel_centres(pixel)
    here = np.stack(unit_vectors(middle.lat, middle.lon)).reshape(3, 1)
    there = np.stack(unit_vectors(swath.lat.ravel()[seen], swath.lon.ravel()[seen]))
    away = np.linalg.norm(there - here, axis=0) * SPHERE_RADIUS
    best = int(np.argmin(away))
    return float(away[best]), Pixel(*divmod(int(seen[best]), swath.lat.shape[1]))


def _counting_in_tile(tile: Grid, pixel: Grid, why: Why) -> tuple[float, Pixel] | None:
    column, row = _tile_position(tile, pixel)
    if not (math.isfinite(column) and math.isfinite(row)):
        return None
    side = pixel_metres(tile)
    reach = math.ceil(_KERNEL * max(1.0, pixel_metres(pixel) / side))
    top, left = max(math.floor(row) - reach, 0), max(math.floor(column) - reach, 0)
    bottom, right = math.floor(row) + reach + 1, math.floor(column) + reach + 1
    if bottom <= 0 or right <= 0:
        return None
    down, across = np.nonzero(why[top:bottom, left:right] == Reason.VALID)
    if not down.size:
        return None
    away = np.hypot(down + (top + 0.5) - row, across + (left + 0.5) - column)
    best = int(np.argmin(away))
    found = Pixel(int(down[best]) + top, int(across[best]) + left)
    return float(away[best]) * side, found


def _tile_position(tile: Grid, pixel: Grid) -> tuple[float, float]:
    """Return the fractional column and row of a pixel's centre in a tile; NaN off the map.

    Pixels of the tile's own lattice have a place in it beyond the map's rim, too.
    """
    space = SourceSpace.of(tile)
    left, top = space.offset(tile)
    if Coordinates(grid=pixel, space=space).shares_lattice:
        column, row = space.offset(pixel)
        return column + 0.5 - left, row + 0.5 - top
    x, y = exact_coordinates(pixel, space, np.array([[0]]), np.array([[0]]))
    return x.item() - left, y.item() - top
