"""Tile matrix sets: which grid a tile of a map has.

Some of OGC's pyramids are here; an operator adds others by their documents (`read_set`).

Source: OGC 17-083r4, "Two Dimensional Tile Matrix Set and Tile Set Metadata", annexes D and E, and
clause 7.2 for documents.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modis.box import LonLatBox
from modis.sphere import METRES_PER_DEGREE
from portal.serving.problems import NotFoundError
from reprojection.grid.grids import Grid

SIDE = 256
"""Pixels along a side of a tile."""

DEEPEST = 18
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
MOST_SIDE = 1024
"""Pixels along a side of a tile of a document."""

_EPSG = "http://www.opengis.net/def/crs/EPSG/0/"
_OGC = "http://www.opengis.net/def/tilematrixset/OGC/1.0/"
_MERCATOR, _DEGREES = "EPSG:3857", "EPSG:4326"
_RADIUS = 6378137.0  # of its sphere, metres
_SCREEN = 0.00028  # metres of a pixel
_HALF = math.pi * _RADIUS
_POINTS = 33  # along a side of a tile, from which its box in degrees is told
_HALF_TURN = 180.0
_NORTHWARD = ("lat", "y", "n", "northing", "latitude")  # names of axes
_LONGEST_NAME = 64


@dataclass(frozen=True, kw_only=True)
class TileMatrix:
    """A zoom: the side of a pixel in units of the CRS, the corner where counting begins, tiles."""

    cell: float
    left: float
    top: float
    columns: int
    rows: int
    side: int = SIDE


@dataclass(frozen=True, kw_only=True)
class TileMatrixSet:
    """Tiles at all zooms, from `first` on.

    `official` is the CRS as OGC names it, whose axes are `axes` in their order; `uri` is "" for a
    set that OGC does not list.
    """

    name: str
    crs: str
    uri: str
    official: str
    axes: tuple[str, str]
    matrices: tuple[TileMatrix, ...]
    first: int = 0

    @property
    def zooms(self) -> range:
        """The zooms there are."""
        return range(self.first, self.first + len(self.matrices))

    def at(self, zoom: int) -> TileMatrix:
        """Return a zoom of `zooms`."""
        return self.matrices[zoom - self.first]

    @property
    def urn(self) -> str:
        """The CRS as WMTS names it."""
        if self.official == CRS84:
            return "urn:ogc:def:crs:OGC:1.3:CRS84"
        return f"urn:ogc:def:crs:EPSG::{self.crs.rpartition(':')[2]}"

    @property
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The lower and the upper corner of the first zoom, axes in the order of the CRS."""
        one = self.matrices[0]
        tile = one.cell * one.side
        right, bottom = one.left + one.columns * tile, one.top - one.rows * tile
        return self._in_order(one.left, bottom), self._in_order(right, one.top)

    def origin(self, zoom: int) -> tuple[float, float]:
        """Return the corner where counting begins, with the axes in the order of the CRS."""
        matrix = self.at(zoom)
        return self._in_order(matrix.left, matrix.top)

    def _in_order(self, x: float, y: float) -> tuple[float, float]:
        return (y, x) if self.axes[0].lower() in _NORTHWARD else (x, y)

    def grid(self, zoom: int, col: int, row: int, side: int = 0) -> Grid:
        """Return a tile's grid, of `side` pixels. Raises NotFoundError where there is no tile."""
        if zoom not in self.zooms:
            raise NotFoundError(
                f"There is no zoom {zoom}.",
                f"Zooms of {self.name} are {self.first} to {self.zooms[-1]}.",
            )
        matrix = self.at(zoom)
        if not (0 <= col < matrix.columns and 0 <= row < matrix.rows):
            raise NotFoundError(
                f"There is no tile {zoom}/{col}/{row}.",
                f"At zoom {zoom}, columns of {self.name} are 0 to {matrix.columns - 1}, "
                f"rows 0 to {matrix.rows - 1}.",
            )
        tile = matrix.cell * matrix.side
        side = side or matrix.side
        pixel = tile / side
        corner = matrix.left + col * tile, matrix.top - row * tile
        return Grid(
            crs=self.crs,
            transform=(pixel, 0.0, corner[0], 0.0, -pixel, corner[1]),
            width=side,
            height=side,
        )

    def box(self, zoom: int, col: int, row: int) -> LonLatBox:
        """Return a box in degrees around a tile. Raises NotFoundError where there is no tile."""
        grid = self.grid(zoom, col, row)
        west, south, east, north = grid.bounds
        if self.crs == _MERCATOR:
            return LonLatBox(_lon(west), _lat(south), _lon(east), _lat(north))
        return LonLatBox(west, south, east, north) if self.crs == _DEGREES else _box_around(grid)

    def metres(self, zoom: int) -> float:
        """Return the size of a pixel at the equator."""
        cell = self.at(zoom).cell
        return cell * METRES_PER_DEGREE if self.crs == _DEGREES else cell

    def scale(self, zoom: int) -> float:
        """Return the denominator of the scale, by pixels of 0.28 mm, as the standard has it."""
        unit = math.radians(_RADIUS) if self.crs == _DEGREES else 1.0
        return self.at(zoom).cell * unit / _SCREEN


def _pyramid(
    name: str,
    code: int | str,
    axes: tuple[str, str],
    corner: tuple[float, float],
    span: float,
    columns: int = 1,
    deepest: int = DEEPEST,
) -> TileMatrixSet:
    """Make a set whose tiles have half the side at each next zoom; `span` is that at zoom 0."""
    crs = _DEGREES if code == CRS84 else f"EPSG:{code}"
    left, top = corner
    return TileMatrixSet(
        name=name,
        crs=crs,
        uri=_OGC + name,
        official=CRS84 if code == CRS84 else f"{_EPSG}{code}",
        axes=axes,
        matrices=tuple(
            TileMatrix(
                cell=span / (1 << zoom) / SIDE,
                left=left,
                top=top,
                columns=columns << zoom,
                rows=1 << zoom,
            )
            for zoom in range(deepest + 1)
        ),
    )


_POLAR = 14440759.350252  # of the sets around the poles: from their corner to the false origin
_FALSE = 2_000_000.0  # easting and northing of a pole
WEB_MERCATOR = _pyramid("WebMercatorQuad", 3857, ("X", "Y"), (-_HALF, _HALF), 2 * _HALF)
WORLD_CRS84 = _pyramid("WorldCRS84Quad", CRS84, ("Lon", "Lat"), (-180.0, 90.0), 180.0, 2)
SETS: Mapping[str, TileMatrixSet] = {
    one.name: one
    for one in (
        WEB_MERCATOR,
        WORLD_CRS84,
        _pyramid("WGS1984Quad", 4326, ("Lat", "Lon"), (-180.0, 90.0), 180.0, 2),
        _pyramid("WorldMercatorWGS84Quad", 3395, ("E", "N"), (-_HALF, _HALF), 2 * _HALF),
        _pyramid(
            "EuropeanETRS89_LAEAQuad", 3035, ("Y", "X"), (2_000_000.0, 5_500_000.0), 4_500_000.0,
            deepest=15,
        ),
        *(
            _pyramid(
                f"UPS{pole}WGS84Quad", code, ("E", "N"),
                (-_POLAR, _POLAR + 2 * _FALSE), 2 * (_POLAR + _FALSE),
            )
            for pole, code in (("Arctic", 5041), ("Antarctic", 5042))
        ),
    )
}  # fmt: skip
"""Those that need no document."""


class _Matrix(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    id: int = Field(ge=0, le=99)
    cell: float = Field(alias="cellSize", gt=0)
    origin: tuple[float, float] = Field(alias="pointOfOrigin")
    corner: str = Field("topLeft", alias="cornerOfOrigin", pattern="^topLeft$")
    width: int = Field(alias="tileWidth", ge=1, le=MOST_SIDE)
    height: int = Field(alias="tileHeight", ge=1, le=MOST_SIDE)
    columns: int = Field(alias="matrixWidth", ge=1)
    rows: int = Field(alias="matrixHeight", ge=1)
    varying: None = Field(None, alias="variableMatrixWidths")


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str = Field(pattern=rf"^[A-Za-z0-9_]{{1,{_LONGEST_NAME}}}$")
    uri: str = ""
    crs: str
    axes: tuple[str, str] = Field(alias="orderedAxes")
    matrices: list[_Matrix] = Field(alias="tileMatrices", min_length=1, max_length=40)


def read_set(text: str | bytes) -> TileMatrixSet:
    """Read a set from its document as JSON; its zooms are the identifiers of its matrices.

    Raises ValueError for another document, identifiers that are no consecutive numbers, a CRS that
    is not of EPSG or CRS84, tiles that are not square or counted from below, and rows of different
    widths.
    """
    try:
        said = _Document.model_validate_json(text)
    except ValidationError as error:
        wrong = error.errors()[0]
        at = ".".join(map(str, wrong["loc"]))
        raise ValueError(f"{at}: {wrong['msg']}") from None
    code = re.search(r"EPSG(?:/[^/]*/|:[^:]*:)(\d+)$", said.crs)
    if code is None and not said.crs.endswith("CRS84"):
        raise ValueError(f"crs: {said.crs} is neither of EPSG nor CRS84")
    if any(one.width != one.height for one in said.matrices):
        raise ValueError("tileMatrices: tiles are not square")
    first = said.matrices[0].id
    if any(one.id != first + number for number, one in enumerate(said.matrices)):
        raise ValueError("tileMatrices: identifiers are no consecutive numbers")
    crs = f"EPSG:{code[1]}" if code else _DEGREES
    northward = said.axes[0].lower() in _NORTHWARD
    return TileMatrixSet(
        name=said.id,
        crs=crs,
        uri=said.uri,
        official=f"{_EPSG}{code[1]}" if code else CRS84,
        axes=said.axes,
        matrices=tuple(
            TileMatrix(
                cell=one.cell,
                left=one.origin[northward],
                top=one.origin[not northward],
                columns=one.columns,
                rows=one.rows,
                side=one.width,
            )
            for one in said.matrices
        ),
        first=first,
    )


def _box_around(grid: Grid) -> LonLatBox:
    """Return a box around a grid, from points on it and as much more as lies between two of them.

    It goes once round where the grid does, or crosses 180 degrees. Raises NotFoundError where the
    grid lies off the Earth.
    """
    a, _, left, _, e, top = grid.transform
    x, y = np.meshgrid(
        left + a * np.linspace(0, grid.width, _POINTS),
        top + e * np.linspace(0, grid.height, _POINTS),
    )
    lon, lat = grid.system.to_lonlat(x.ravel(), y.ravel())
    known = np.isfinite(lon) & np.isfinite(lat)
    if not known.any():
        raise NotFoundError("The tile lies off the Earth.", "Choose another one.")
    down = _gap(lat.reshape(x.shape))
    across = _gap(lon.reshape(x.shape))
    south = max(-90.0, float(lat[known].min()) - down)
    north = min(90.0, float(lat[known].max()) + down)
    west, east = float(lon[known].min()) - across, float(lon[known].max()) + across
    round_ = not known.all() or east - west > _HALF_TURN or max(-south, north) >= 90.0
    return LonLatBox(-180.0, south, 180.0, north) if round_ else LonLatBox(west, south, east, north)


def _gap(values: npt.NDArray[np.float64]) -> float:
    """Return the largest step between neighbours."""
    steps = [np.abs(np.diff(values, axis=axis)) for axis in (0, 1)]
    return max((float(one[np.isfinite(one)].max(initial=0.0)) for one in steps), default=0.0)


def _lon(x: float) -> float:
    return math.degrees(x / _RADIUS)


def _lat(y: float) -> float:
    return math.degrees(math.atan(math.sinh(y / _RADIUS)))
