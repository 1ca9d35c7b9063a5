"""Compute where a target pixel lies in the source: exactly, or fast to within 0.01 pixels.

The path is target CRS -> EPSG:4326 -> source CRS (for MODIS the sinusoidal formula). Pixel
coordinates are fractional: pixel (col, row) covers [col, col + 1) x [row, row + 1), both counted
from the corner of the source space, not of one tile.

Nothing here depends on a grid's bounds: if a grid's pixel edges meet CRS (0, 0), its pixels are
numbered from there, and control points lie at multiples of 128 of those numbers.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from modis.sphere import SPHERE_RADIUS
from modis.tile import TILE_PIXELS, TILE_SIZE
from reprojection.errors import GridError
from reprojection.grid.crs import (
    Crs,
    Floats,
    Operation,
    wrap_longitude,
)
from reprojection.grid.grids import Grid

Points = tuple[Floats, Floats]

_SAME = 1e-8
"""Share by which the sides of two pixels of one lattice differ, as files round them."""

_ON_EDGE = 1e-3
"""Pixels by which edges of one lattice differ, as files round their corners."""

PLANS = 32
"""Plans that are remembered; that of a cell takes about 100 kB."""


@dataclass(frozen=True, kw_only=True)
class SourceSpace:
    """The pixel space that all sources of one warp share: CRS, pixel sides, and its corner.

    `pixel_height` is negative for rows that run southward.
    """

    crs: str
    pixel_width: float
    pixel_height: float
    x0: float
    y0: float

    @cached_property
    def system(self) -> Crs:
        """The CRS, parsed. Raises GridError for text that names none."""
        return Crs.of(self.crs)

    @classmethod
    def of(cls, grid: Grid) -> "SourceSpace":
        """Make the space that a source grid belongs to; raise GridError for a rotated grid.

        A grid of MODIS sinusoidal tiles gets the exact lattice: the corners that files give for one
        tile differ by 0.4 mm between products.
        """
        if not grid.is_upright:
            raise GridError(f"source grid {grid.transform} is rotated; only upright ones are read")
        a, _, c, _, e, f = grid.transform
        if grid.system.is_modis_sinusoidal:
            for pixels in (*TILE_PIXELS.values(), 200, 600, 9600):
                size = TILE_SIZE / pixels
                if abs(a - size) < 1e-6 * size and abs(e + size) < 1e-6 * size:
                    a, e = size, -size
        x0, y0 = c - round(c / a) * a, f - round(f / e) * e
        x0 = 0.0 if abs(x0) < 1e-3 * abs(a) else x0
        y0 = 0.0 if abs(y0) < 1e-3 * abs(e) else y0
        return cls(crs=grid.crs, pixel_width=a, pixel_height=e, x0=x0, y0=y0)

    def offset(self, grid: Grid) -> tuple[int, int]:
        """Return the column and row in this space of a grid's first pixel.

        Raises GridError if the grid's pixels do not coincide with this space's (to a hundredth of a
        pixel over the whole grid).
        """
        a, b, c, d, e, f = grid.transform
        col, row = (c - self.x0) / self.pixel_width, (f - self.y0) / self.pixel_height
        stretch = max(
            abs(a - self.pixel_width) * grid.width / abs(self.pixel_width),
            abs(e - self.pixel_height) * grid.height / abs(self.pixel_height),
        )
        astray = max(abs(col - round(col)), abs(row - round(row)), stretch)
        same_crs = grid.crs == self.crs or (
            grid.system.is_modis_sinusoidal and self.system.is_modis_sinusoidal
        )
        if astray > 0.01 or b or d or not same_crs:
            raise GridError(
                f"source grids do not share one lattice: transform {grid.transform} against "
                f"pixels of {self.pixel_width} x {self.pixel_height}; warp them apart"
            )
        return round(col), round(row)

    def pixels(self, lon: Floats, lat: Floats) -> Points:
        """Compute fractional columns and rows of WGS84 longitudes and latitudes in degrees."""
        x, y = self.system.from_lonlat(lon, lat)
        return (x - self.x0) / self.pixel_width, (y - self.y0) / self.pixel_height

    def near(self, grid: Grid, columns: Floats) -> Floats:
        """Return columns by whole turns of longitude, those nearest to a grid's middle.

        A grid of degrees may pass 180: its columns go on there, and longitudes begin at -180.
        """
        if not self.system.parsed.is_geographic:
            return columns
        turn = 360.0 / self.pixel_width
        middle = self.offset(grid)[0] + grid.width / 2
        return np.asarray(columns + turn * np.round((middle - columns) / turn), np.float64)


@dataclass(frozen=True, kw_only=True)
class Numbering:
    """The pixel edges of a target grid, numbered from CRS (0, 0) so that its windows agree.

    Edge (row, col) is at x = a (col + px) + b row + c, y = d col + e (row + py) + f, where b, c, d
    and f are zero for an upright grid.
    """

    grid: Grid
    col: int
    row: int
    px: float
    py: float

    @classmethod
    def of(cls, grid: Grid) -> "Numbering":
        """Assign numbers to a grid's edges; a rotated grid is numbered from its own corner."""
        if not grid.is_upright:
            return cls(grid=grid, col=0, row=0, px=0.0, py=0.0)
        a, _, c, _, e, f = grid.transform
        col, row = _number(c / a), _number(f / e)
        return cls(grid=grid, col=col, row=row, px=_phase(c / a - col), py=_phase(f / e - row))

    def xy(self, rows: Floats, cols: Floats) -> Points:
        """Compute CRS coordinates of edge numbers (pixel centres are half-integers)."""
        a, b, c, d, e, f = self.grid.transform
        if self.grid.is_upright:
            return a * (cols + self.px), e * (rows + self.py)
        return a * cols + b * rows + c, d * cols + e * rows + f


def _number(edge: float) -> int:
    """Return the whole pixel next to an edge; halves go one way, whatever their rounding error.

    Rounded to even, they would go both ways, and windows of one lattice would differ in numbers.
    """
    return math.floor(edge + 0.5 + 1e-6)


def _phase(part: float) -> float:
    """Remove from a fraction of a pixel the rounding error of the bounds it was computed from."""
    return 0.0 if abs(part) < 1e-6 else round(part * 2**20) / 2**20


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """The positions of a target grid's pixels in a source space."""

    grid: Grid
    space: SourceSpace
    numbering: Numbering = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbering", Numbering.of(self.grid))

    @property
    def operation(self) -> Operation:
        """The operation between the target CRS and EPSG:4326, with its accuracy in metres."""
        return self.grid.system.operation

    def exact(self, rows: Floats, cols: Floats) -> Points:
        """Compute source columns and rows of edge numbers by PROJ, float64; NaN off the domain."""
        x, y = self.numbering.xy(np.asarray(rows, float), np.asarray(cols, float))
        shape = np.broadcast(x, y).shape
        lon, lat = self.grid.system.to_lonlat(
            np.broadcast_to(x, shape).ravel(), np.broadcast_to(y, shape).ravel()
        )
        col, row = self.space.pixels(lon, lat)
        return col.reshape(shape), row.reshape(shape)

    @cached_property
    def shares_lattice(self) -> bool:
        """True if the target's pixels are pixels of MODIS tiles, the sources of this space."""
        grid, space = self.grid, self.space
        if not (space.system.is_modis_sinusoidal and grid.system.is_modis_sinusoidal):
            return False
        a, _, c, _, e, f = grid.transform
        sides = a / space.pixel_width, e / space.pixel_height
        same = all(abs(side - 1.0) < _SAME for side in sides)
        col, row = (c - space.x0) / space.pixel_width, (f - space.y0) / space.pixel_height
        astray = max(abs(col - round(col)), abs(row - round(row)))
        return grid.is_upright and same and astray < _ON_EDGE

    @cached_property
    def is_rowwise(self) -> bool:
        """True if each target row is a straight line along one source row."""
        upright = self.grid.is_upright and self.grid.transform[0] > 0
        source_round = self.space.system.is_modis_sinusoidal
        lonlat = self.grid.system.is_plain_lonlat and (
            source_round or self.space.system.is_plain_lonlat
        )
        return upright and (lonlat or (source_round and self.grid.system.is_modis_sinusoidal))


def exact_coordinates(
    grid: Grid, space: SourceSpace, rows: NDArray[np.integer], cols: NDArray[np.integer]
) -> Points:
    """Compute source columns and rows of the centres of a grid's pixels, by PROJ in float64.

    `rows` and `cols` are pixel indices of the grid that broadcast together. Pixels off the domain
    of the target's or the source's projection give NaN.
    """
    coordinates = Coordinates(grid=grid, space=space)
    numbering = coordinates.numbering
    return coordinates.exact(
        np.asarray(rows) + (numbering.row + 0.5), np.asarray(cols) + (numbering.col + 0.5)
    )


@dataclass(frozen=True, kw_only=True)
class Span:
    """Columns [start, stop) of a grid in which source column = `at` + `step` * edge number.

    `at` and `step` are arrays with one value per target row.
    """

    start: int
    stop: int
    at: Floats
    step: Floats


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """Coordinates of a grid in which every row is a straight line along one source row.

    `rows` holds the source row of each target row (NaN off the domain), `first` and `last` the
    columns [first, last) of each target row that are on the domain.
    """

    numbering: Numbering
    rows: Floats
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    spans: tuple[Span, ...]


@lru_cache(maxsize=PLANS)
def plan_rows(coordinates: Coordinates, shift: float = 0.5) -> RowPlan:
    """Make the row plan of a grid for which `is_rowwise` holds, once for all layers of a cell.

    With `shift` 0.5 it holds the pixels' centres; with 0 the pixels' first edges, and one row and
    one column more.
    """
    numbering, grid, space = coordinates.numbering, coordinates.grid, coordinates.space
    extra = 0 if shift else 1
    rows = np.arange(grid.height + extra, dtype=np.float64) + (numbering.row + shift)
    a, e = grid.transform[0], grid.transform[4]
    y = e * (rows + numbering.py)
    width = grid.width + extra
    first = np.zeros(len(rows), np.int64)
    last = np.full(len(rows), width, np.int64)
    if grid.system.is_modis_sinusoidal:
        lat = np.degrees(y / SPHERE_RADIUS)
        source_rows = (y - space.y0) / space.pixel_height
        step = np.full(len(rows), a / space.pixel_width)
        at = np.full(len(rows), (numbering.px * a - space.x0) / space.pixel_width)
        spans = [Span(start=0, stop=width, at=at, step=step)]
        x = a * (np.arange(width) + (numbering.col + shift) + numbering.px)
        rim = SPHERE_RADIUS * np.radians(180.0) * np.cos(np.radians(np.minimum(np.abs(lat), 90.0)))
        on_map = (np.searchsorted(x, -rim, "left"), np.searchsorted(x, rim, "right"))
        first, last = np.minimum(on_map[0], width), on_map[1]
    else:
        lat = y
        lon = a * (np.arange(width, dtype=np.float64) + (numbering.col + shift) + numbering.px)
        unit, source_rows = _lonlat_lines(space, lat)
        spans = [
            Span(
                start=start,
                stop=stop,
                at=(unit * (numbering.px * a - 360.0 * turn) - space.x0) / space.pixel_width,
                step=unit * a / space.pixel_width,
            )
            for start, stop, turn in _turns(lon)
        ]
    source_rows = np.where(np.abs(lat) > 90.0, np.nan, source_rows)
    return RowPlan(
        numbering=numbering,
        rows=source_rows,
        first=first.astype(np.int64),
        last=last.astype(np.int64),
        spans=tuple(spans),
    )


def _lonlat_lines(space: SourceSpace, lat: Floats) -> tuple[Floats, Floats]:
    """Return, for each latitude, source CRS units per degree of longitude and the source row."""
    if space.system.is_modis_sinusoidal:
        unit = SPHERE_RADIUS * np.radians(1.0) * np.cos(np.radians(lat))
        y = SPHERE_RADIUS * np.radians(lat)
    else:
        unit, y = np.ones_like(lat), lat
    return unit, (y - space.y0) / space.pixel_height


def _turns(lon: Floats) -> Iterator[tuple[int, int, int]]:
    """Yield runs (start, stop, turns) of longitudes that whole turns bring into [-180, 180]."""
    if max(abs(lon[0]), abs(lon[-1])) <= 180.0:
        yield 0, len(lon), 0
        return
    turn = np.rint((lon - wrap_longitude(lon)) / 360.0).astype(int)
    edges = [0, *(np.flatnonzero(np.diff(turn)) + 1).tolist(), len(turn)]
    for start, stop in itertools.pairwise(edges):
        yield start, stop, int(turn[start])
