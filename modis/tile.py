"""The MODIS sinusoidal tile grid: 36 x 18 tiles, 10 degrees of the equator wide and high.

A tile (h, v) is h columns from 180 degrees west and v rows from the north pole. Its sides are
straight in the sinusoidal projection: longitude = x / cos(latitude) (MODIS Land, "Grids").
"""

import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from modis.box import LonLatBox
from modis.sphere import SPHERE_RADIUS

TILES_ACROSS = 36
TILES_DOWN = 18

TILE_SIZE = math.pi * SPHERE_RADIUS / TILES_DOWN
"""Side of a tile in metres, 1111950.5197 (MODIS Land, "Grids")."""

TILE_PIXELS = {250: 4800, 500: 2400, 1000: 1200}
"""Pixels along a tile's side by nominal resolution in metres."""

_EQUATOR = TILES_ACROSS // 2  # columns west of Greenwich
_NORTH = TILES_DOWN // 2  # rows north of the equator

_WIDTH = math.degrees(TILE_SIZE / SPHERE_RADIUS)
"""Degrees of the equator along a tile: 10.000000000000002, not 10.0. Outlines of tiles are part of
task keys, and this digit decides at which corner an outline begins."""

_SLACK = 1e-6
"""Degrees by which a box may miss a tile and still count as touching it."""

Floats = NDArray[np.float64]


class Tile(NamedTuple):
    """A sinusoidal tile: column h from the west, row v from the north."""

    h: int
    v: int

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the tile of a name like h18v04.

        Raises ValueError for other text and for a tile off the grid.
        """
        digits = name[1:3] + name[4:6]
        if not (len(name) == 6 and name[0] == "h" and name[3] == "v" and digits.isdecimal()):
            raise ValueError(f"{name!r} is not the name of a tile; write it like h18v04")
        tile = cls(int(name[1:3]), int(name[4:6]))
        if not tile.on_grid:
            raise ValueError(f"{name} is off the tile grid, which is h00..h35 by v00..v17")
        return tile

    @classmethod
    def of_edges(cls, left: float, top: float, right: float, bottom: float) -> Self | None:
        """Return the whole tile within edges in sinusoidal metres; None when they bound no tile.

        The edges may miss the tile's by a millionth of its side: files hold them rounded.
        """
        h, v = left / TILE_SIZE + _EQUATOR, _NORTH - top / TILE_SIZE
        off = (
            h - round(h),
            v - round(v),
            (right - left) / TILE_SIZE - 1,
            (top - bottom) / TILE_SIZE - 1,
        )
        return cls(round(h), round(v)) if max(map(abs, off)) < 1e-6 else None

    @classmethod
    def at_cell(cls, col: int, row: int) -> Self:
        """Return the tile at a cell of the sinusoidal lattice, counted from (0, 0) of its CRS."""
        return cls(col + _EQUATOR, row + _NORTH)

    @property
    def col(self) -> int:
        """Column of the tile counted from longitude 0, eastward."""
        return self.h - _EQUATOR

    @property
    def row(self) -> int:
        """Row of the tile counted from the equator, southward."""
        return self.v - _NORTH

    @property
    def name(self) -> str:
        """The tile's name, like h18v04."""
        return f"h{self.h:02d}v{self.v:02d}"

    @property
    def on_grid(self) -> bool:
        """True if h is 0 to 35 and v is 0 to 17."""
        return 0 <= self.h < TILES_ACROSS and 0 <= self.v < TILES_DOWN

    @property
    def on_earth(self) -> bool:
        """True if a part of the tile is on the Earth: tiles in the map's corners are not."""
        x = 10.0 * min(abs(self.col), abs(self.col + 1))
        cosine = math.cos(math.radians(10.0 * min(abs(self.row), abs(self.row + 1))))
        return self.on_grid and 180.0 - x / max(cosine, 1e-12) > 1e-9

    @property
    def left(self) -> float:
        """The sinusoidal x in metres of the west side."""
        return self.col * TILE_SIZE

    @property
    def top(self) -> float:
        """The sinusoidal y in metres of the north side."""
        return -self.row * TILE_SIZE

    @property
    def north(self) -> float:
        """Latitude in degrees of the north side."""
        return 90.0 - 10.0 * self.v

    @property
    def south(self) -> float:
        """Latitude in degrees of the south side."""
        return 80.0 - 10.0 * self.v

    def sides(self, lat: Floats) -> tuple[Floats, Floats]:
        """Return the longitudes of the west and the east side at some latitudes, in degrees.

        Both are clipped to [-180, 180]: where they are equal, the tile is off the Earth.
        """
        shrink = np.maximum(np.cos(np.radians(lat)), 1e-12)
        west = np.clip(self.col * _WIDTH / shrink, -180.0, 180.0)
        east = np.clip((self.col + 1) * _WIDTH / shrink, -180.0, 180.0)
        return west, east

    def meets(self, box: LonLatBox) -> bool:
        """Return whether the tile shares a point with a box.

        Exact: within a row of tiles longitude * cos(latitude) is extreme in the corners.
        """
        if not self.on_earth:
            return False
        low = max(box.south, self.south - _SLACK, -90.0)
        high = min(box.north, self.north + _SLACK, 90.0)
        if low > high:
            return False
        left, right = self.col * 10.0 - _SLACK, (self.col + 1) * 10.0 + _SLACK
        cosines = (math.cos(math.radians(low)), math.cos(math.radians(high)))
        for west, east in box.spans():
            across = [lon * cosine for lon in (west, east) for cosine in cosines]
            if max(across) >= left and min(across) <= right:
                return True
        return False


def tiles_around(x: Floats, y: Floats, reach: float) -> frozenset[Tile]:
    """Return the tiles in which the corners of squares around points lie.

    `x` and `y` are in sinusoidal metres, and so is `reach`, half a square's side. A square wider
    than a tile may enter more tiles than its corners lie in: give points more densely there.
    """
    half = TILE_SIZE * _EQUATOR
    found = np.zeros((TILES_ACROSS, TILES_DOWN), bool)
    for right, up in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
        h = np.floor((x + half + right * reach) / TILE_SIZE).astype(int)
        v = np.floor((half / 2 - y - up * reach) / TILE_SIZE).astype(int)
        there = (h >= 0) & (h < TILES_ACROSS) & (v >= 0) & (v < TILES_DOWN)
        found[h[there], v[there]] = True
    return frozenset(Tile(int(h), int(v)) for h, v in np.argwhere(found))
