"""The MODIS sinusoidal tile grid of 36 x 18 tiles, and the tiles that a region touches."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modis.box import LonLatBox
from modis.tile import TILES_ACROSS, TILES_DOWN, Tile
from reprojection.errors import GridError

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

_TOUCH = 1e-9
"""Degrees by which a region must enter a tile to touch it; far less than half a pixel."""

_STRIP = 0.25
"""Height in degrees of the strips into which a polygon is cut, to bound x in each."""


def tiles_touching(region: "Sequence[float] | BaseGeometry") -> list[Tile]:
    """List the MODIS tiles (h, v) that a region enters, by v, then h.

    `region` is a longitude-latitude box (west, south, east, north; west > east crosses the
    antimeridian, as east > 180 does) or a shapely polygon in degrees. No tile with a pixel centre
    in the region is missed; near a polygon's slanted edge a tile more may be named. Raises
    GridError for a box that is not on the Earth.
    """
    spans = _box_spans(region) if isinstance(region, Sequence) else _polygon_spans(region)
    found: set[Tile] = set()
    for west, south, east, north in spans:
        for part_west, part_east in _within_180(west, east):
            found.update(_tiles_of_span(part_west, south, part_east, north))
    return sorted(found, key=lambda tile: (tile.v, tile.h))


def _box_spans(box: Sequence[float]) -> Iterator[tuple[float, float, float, float]]:
    west, south, east, north = box
    finite = all(map(math.isfinite, box))
    if not finite or not -90.0 <= south <= north <= 90.0 or abs(west) > 540 or abs(east) > 540:
        raise GridError(
            f"box {tuple(box)} is not on the Earth; give west, south, east, north in degrees"
        )
    yield west, south, LonLatBox(west, south, east, north).unwrapped_east, north


def _polygon_spans(polygon: "BaseGeometry") -> Iterator[tuple[float, float, float, float]]:
    import shapely  # only here: who asks with a polygon has it, and others start without it

    west, south, east, north = polygon.bounds
    if not (-90.0 <= south <= north <= 90.0 and -540.0 <= west <= east <= 540.0):
        raise GridError(
            f"polygon with bounds {polygon.bounds} is not on the Earth; give longitude and "
            "latitude in degrees"
        )
    for strip in range(math.floor(south / _STRIP), math.floor(north / _STRIP) + 1):
        box = shapely.box(west - 1, strip * _STRIP, east + 1, (strip + 1) * _STRIP)
        part = shapely.intersection(polygon, box)
        for piece in getattr(part, "geoms", [part]):
            if not piece.is_empty:
                yield piece.bounds


def _within_180(west: float, east: float) -> Iterator[tuple[float, float]]:
    """Cut the span at odd multiples of 180 degrees, and shift each part into [-180, 180].

    A single meridian at the cut lies on both rims.
    """
    if east - west >= 360.0:
        yield -180.0, 180.0
        return
    turns = (west + 180.0) / 360.0
    turn = math.ceil(turns) - 1 if west == east else math.floor(turns)
    while turn * 360.0 - 180.0 <= east:
        low = max(west, turn * 360.0 - 180.0) - turn * 360.0
        high = min(east, turn * 360.0 + 180.0) - turn * 360.0
        if low <= high:
            yield low, high
        turn += 1


def _tiles_of_span(west: float, south: float, east: float, north: float) -> Iterator[Tile]:
    thin = north - south <= 2 * _TOUCH
    margin = -_TOUCH if thin else _TOUCH
    first = max(0, math.floor((90.0 - north + margin) / 10.0))
    last = min(TILES_DOWN - 1, math.floor((90.0 - south - margin) / 10.0))
    for v in range(first, last + 1):
        low = max(south, 80.0 - 10.0 * v)
        high = min(north, 90.0 - 10.0 * v)
        # In a row of tiles latitude keeps its sign, so cos is monotone: extremes are at the ends.
        cosines = (math.cos(math.radians(low)), math.cos(math.radians(high)))
        left = min(west * c for c in cosines)
        right = max(east * c for c in cosines)
        for h in _columns(left, right):
            yield Tile(h, v)


def _columns(left: float, right: float) -> range:
    """Return the tile columns that [left, right], in degrees at the equator, enters."""
    margin = _TOUCH if right - left > 2 * _TOUCH else -_TOUCH
    first = max(0, math.floor((left + 180.0 + margin) / 10.0))
    last = min(TILES_ACROSS - 1, math.floor((right + 180.0 - margin) / 10.0))
    return range(first, last + 1)
