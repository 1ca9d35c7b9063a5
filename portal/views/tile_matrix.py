"""Tile matrix sets: which grid a tile of a map has.

Source: OGC 17-083r4, "Two Dimensional Tile Matrix Set", annexes D.1 (WebMercatorQuad) and D.2
(WorldCRS84Quad).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from modis.box import LonLatBox
from modis.sphere import METRES_PER_DEGREE
from portal.serving.problems import NotFoundError
from reprojection.grid.grids import Grid

SIDE = 256
"""Pixels along a side of a tile."""

DEEPEST = 18


@dataclass(frozen=True, kw_only=True)
class TileMatrixSet:
    """A pyramid of tiles: at zoom 0 `columns` x `rows` of them, twice as many at each next one.

    `left` and `top` are the corner where counting begins, `span` the side of a tile at zoom 0, in
    units of the CRS. `official` is the CRS as OGC names it, with its axes in the order there.
    """

    name: str
    crs: str
    uri: str
    official: str
    axes: tuple[str, str]
    left: float
    top: float
    span: float
    columns: int
    rows: int

    def grid(self, zoom: int, col: int, row: int, side: int = SIDE) -> Grid:
        """Return a tile's grid. Raises NotFoundError for a tile that there is not."""
        if not 0 <= zoom <= DEEPEST:
            raise NotFoundError(
                f"There is no zoom {zoom}.", f"Zooms of {self.name} are 0 to {DEEPEST}."
            )
        if not (0 <= col < self.columns << zoom and 0 <= row < self.rows << zoom):
            raise NotFoundError(
                f"There is no tile {zoom}/{col}/{row}.",
                f"At zoom {zoom}, columns of {self.name} are 0 to {(self.columns << zoom) - 1}, "
                f"rows 0 to {(self.rows << zoom) - 1}.",
            )
        tile = self.span / (1 << zoom)
        pixel = tile / side
        corner = self.left + col * tile, self.top - row * tile
        return Grid(
            crs=self.crs,
            transform=(pixel, 0.0, corner[0], 0.0, -pixel, corner[1]),
            width=side,
            height=side,
        )

    def box(self, zoom: int, col: int, row: int) -> LonLatBox:
        """Return a tile's box in degrees. Raises NotFoundError for a tile that there is not."""
        west, south, east, north = self.grid(zoom, col, row).bounds
        return LonLatBox(self._lon(west), self._lat(south), self._lon(east), self._lat(north))

    def metres(self, zoom: int) -> float:
        """Return the size of a pixel at the equator."""
        pixel = self.span / (1 << zoom) / SIDE
        return pixel if self.crs == _MERCATOR else pixel * METRES_PER_DEGREE

    def scale(self, zoom: int) -> float:
        """Return the denominator of the scale, by pixels of 0.28 mm, as the standard has it."""
        unit = 1.0 if self.crs == _MERCATOR else math.radians(_RADIUS)
        return self.span / (1 << zoom) / SIDE * unit / _SCREEN

    def _lon(self, x: float) -> float:
        return x if self.crs != _MERCATOR else math.degrees(x / _RADIUS)

    def _lat(self, y: float) -> float:
        return y if self.crs != _MERCATOR else math.degrees(math.atan(math.sinh(y / _RADIUS)))


CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_MERCATOR = "EPSG:3857"
_RADIUS = 6378137.0  # of its sphere, metres
_SCREEN = 0.00028  # metres of a pixel
_HALF = math.pi * _RADIUS

WEB_MERCATOR = TileMatrixSet(
    name="WebMercatorQuad",
    crs=_MERCATOR,
    uri="http://www.opengis.net/def/tilematrixset/OGC/1.0/WebMercatorQuad",
    official="http://www.opengis.net/def/crs/EPSG/0/3857",
    axes=("X", "Y"),
    left=-_HALF,
    top=_HALF,
    span=2 * _HALF,
    columns=1,
    rows=1,
)

WORLD_CRS84 = TileMatrixSet(
    name="WorldCRS84Quad",
    crs="EPSG:4326",
    uri="http://www.opengis.net/def/tilematrixset/OGC/1.0/WorldCRS84Quad",
    official=CRS84,
    axes=("Lon", "Lat"),
    left=-180.0,
    top=90.0,
    span=180.0,
    columns=2,
    rows=1,
)

SETS: Mapping[str, TileMatrixSet] = {one.name: one for one in (WEB_MERCATOR, WORLD_CRS84)}


def tile_matrix_set(name: str) -> TileMatrixSet:
    """Find a set by its name. Raises NotFoundError."""
    if name not in SETS:
        raise NotFoundError(f"There is no tile matrix set {name!r}.", f"Name {' or '.join(SETS)}.")
    return SETS[name]
