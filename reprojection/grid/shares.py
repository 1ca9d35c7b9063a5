"""Find the pixels that a polygon covers, the share of each that lies within, and their true areas.

Shares are exact: exactextract cuts each pixel at the polygon's edges. An edge is straight in
longitude and latitude, as GeoJSON has it, so it bends on a projected grid. A pixel's area is that
on the ellipsoid of WGS84, whatever the grid's CRS.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import shapely
from pyproj import Geod, Proj
from shapely import MultiPolygon, Polygon

from reprojection.errors import GridError
from reprojection.grid.grids import Grid

MOST_WINDOW = 2**22
"""Pixels of the box around a polygon on a grid."""
MOST_BENT = 200_000
"""Vertices of a polygon after its edges were bent into a grid's CRS."""

_TURNS = (0.0, 360.0, -360.0, 720.0, -720.0)
_STRAIGHT = 1e-5  # of a pixel: as far as a bent edge may lie from the straight one
_SEAM = 1e-9  # degrees that a polygon keeps from the meridian where a projection is cut
_FINEST = 1e-6  # of a pixel: exactextract loses pixels whose corner an edge passes by less
_MESH = 32_000.0  # metres between the nodes at which areas are computed, and 64 pixels at most
_WGS84 = Geod(ellps="WGS84")
_EQUAL_AREA = Proj(proj="cea", ellps="WGS84")  # a cylinder: parallels are lines of equal height
_PART = "give the part of the polygon that lies over the results"

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Area = Polygon | MultiPolygon


class NotCoveredError(GridError):
    """A polygon has no shares on a grid; says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The pixels of a grid that a polygon covers: their rows, columns, shares, areas in m².

    All have shape (n,). `reaches_beyond` says that a part of the polygon lies outside the grid.
    """

    rows: Whole
    columns: Whole
    shares: Floats
    areas: Floats
    reaches_beyond: bool

    @cached_property
    def weights(self) -> Floats:
        """The area in m² that the polygon has of each pixel."""
        return self.shares * self.areas

    @property
    def window(self) -> tuple[int, int, int, int]:
        """The first row and column, and the numbers of rows and columns, that hold the pixels."""
        top, left = int(self.rows.min()), int(self.columns.min())
        return top, left, int(self.rows.max()) - top + 1, int(self.columns.max()) - left + 1


def shares_of(grid: Grid, area: Area) -> Shares:
    """Return the shares of pixels that lie in a polygon.

    Args:
        grid: The grid; rows and columns run along the axes of its CRS.
        area: The polygon in WGS84 degrees; longitudes may be off by turns.

    Raises:
        NotCoveredError: it lies outside the grid, its box there has more than `MOST_WINDOW` pixels,
            or the CRS is not defined all over it.
    """
    whole = _in_pixels(grid, area)
    within = shapely.intersection(whole, shapely.box(0, 0, grid.width, grid.height))
    inside = _polygons(shapely.set_precision(within, _FINEST))
    if inside.is_empty:
        raise NotCoveredError("it lies outside the results' raster; choose a place within")
    west, north, east, south = inside.bounds
    left, top = int(np.floor(west)), int(np.floor(north))
    columns, rows = int(np.ceil(east)) - left, int(np.ceil(south)) - top
    if columns * rows > MOST_WINDOW:
        raise NotCoveredError(
            f"its box has {columns * rows:,} pixels, and {MOST_WINDOW:,} are the most; take a "
            "smaller polygon, or request the package zonal-statistics, which has no such limit"
        )
    cells, shares = _covered(inside, left, top, columns, rows)
    some = shares > 0.0
    row, column = np.divmod(cells[some], columns)
    row, column = row + top, column + left
    return Shares(
        rows=row,
        columns=column,
        shares=shares[some],
        areas=pixel_areas(grid, row, column),
        reaches_beyond=whole.area > within.area * (1 + 1e-9) + _FINEST,
    )


def _covered(area: Area, left: int, top: int, columns: int, rows: int) -> tuple[Whole, Floats]:
    """Return the cells of a window that an area in pixels touches, by number, and their shares."""
    from exactextract import exact_extract
    from exactextract.raster import NumPyRasterSource

    # exactextract counts rows from the top, and y upwards.
    flipped = shapely.transform(area, lambda xy: (xy - (left, top + rows)) * (1.0, -1.0))
    window = NumPyRasterSource(np.broadcast_to(np.uint8(0), (rows, columns)), 0, 0, columns, rows)
    feature = {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(flipped)}
    (found,) = exact_extract(window, [feature], ["cell_id", "coverage"])
    said = found["properties"]
    return said["cell_id"].astype(np.int64), said["coverage"].astype(np.float64)


def _in_pixels(grid: Grid, area: Area) -> Area:
    """Put a polygon into columns and rows of a grid; what lies a turn away comes back."""
    if not grid.is_upright:
        raise NotCoveredError("the results' raster is rotated; request one that is not")
    middle = _middle(grid)
    half = 180.0 if grid.system.parsed.is_geographic else 180.0 - _SEAM
    turn = shapely.box(middle - half, -90.0, middle + half, 90.0)
    parts = [
        _bent(grid, part)
        for by in _TURNS
        for part in shapely.get_parts(_polygons(shapely.intersection(_moved(area, by), turn)))
        if not part.is_empty
    ]
    return _polygons(shapely.union_all(parts))


def _moved(area: Area, degrees: float) -> shapely.Geometry:
    return shapely.transform(area, lambda points: points + np.array([degrees, 0.0]))


def _middle(grid: Grid) -> float:
    """Return the meridian opposite to which a grid's longitudes begin anew."""
    crs = grid.system.parsed
    if crs.is_geographic:
        west, _, east, _ = grid.bounds
        return float((west + east) / 2 * np.degrees(grid.system.metres))
    said = crs.coordinate_operation.params if crs.coordinate_operation is not None else []
    found = (one for one in said if one.name.lower().startswith("longitude of"))
    radians = (float(one.value) * one.unit_conversion_factor for one in found)
    return float(np.degrees(next(radians, 0.0)))


def _bent(grid: Grid, part: Polygon) -> Area:
    rings = [
        _bent_ring(grid, shapely.get_coordinates(one)) for one in (part.exterior, *part.interiors)
    ]
    return _polygons(Polygon(rings[0], rings[1:]))


def _bent_ring(grid: Grid, ring: Floats) -> Floats:
    """Return a ring in columns and rows, with vertices added until straight edges follow it.

    Edges that keep away from the grid stay as they are.
    """
    placed = _placed(grid, ring)
    while True:
        middles = (ring[:-1] + ring[1:]) / 2
        there = _placed(grid, middles)
        apart = np.abs(there - (placed[:-1] + placed[1:]) / 2).max(axis=1)
        edges = np.stack([placed[:-1], placed[1:], there])
        margin = 4 * apart[:, None]
        near = (edges.max(axis=0) + margin > 0) & (edges.min(axis=0) - margin < grid.shape[::-1])
        split = np.flatnonzero((apart > _STRAIGHT) & near.all(axis=1))
        if not split.size:
            return placed
        if len(ring) + split.size > MOST_BENT:
            raise NotCoveredError(
                f"its edges cannot be followed in the results' CRS, which is torn there; {_PART}"
            )
        ring = np.insert(ring, split + 1, middles[split], axis=0)
        placed = np.insert(placed, split + 1, there[split], axis=0)


def _placed(grid: Grid, points: Floats) -> Floats:
    x, y = grid.system.from_lonlat(points[:, 0], points[:, 1])
    a, _, c, _, e, f = grid.transform
    placed = np.stack([(x - c) / a, (y - f) / e], axis=1)
    if not np.isfinite(placed).all():
        raise NotCoveredError(f"the results' CRS is not defined all over it; {_PART}")
    return placed


def _polygons(geometry: shapely.Geometry) -> Area:
    """Return the polygons of a geometry, made valid, without lines and points."""
    if not shapely.is_valid(geometry):
        geometry = shapely.make_valid(geometry)
    if isinstance(geometry, Polygon | MultiPolygon):
        return geometry
    parts = [one for one in _flat(geometry) if isinstance(one, Polygon)]
    return MultiPolygon(parts) if parts else Polygon()


def _flat(geometry: shapely.Geometry) -> Iterator[shapely.Geometry]:
    for part in shapely.get_parts(geometry):
        if shapely.get_type_id(part) > 3:
            yield from _flat(part)
        else:
            yield part


def pixel_areas(grid: Grid, rows: Whole, columns: Whole) -> Floats:
    """Return the areas in m² on the ellipsoid of WGS84 of pixels of an upright grid.

    On a geographic grid they are exact, by PROJ's equal-area cylinder. Elsewhere they are computed
    at every 32 km, and interpolated: to 1e-5 of them.

    Raises:
        NotCoveredError: a pixel lies outside the projection's domain.
    """
    if grid.system.parsed.is_geographic:
        return _zones(grid)[rows]
    top, left = int(rows.min()), int(columns.min())
    side = np.sqrt(abs(grid.transform[0] * grid.transform[4])) * grid.system.metres
    step = int(np.clip(_MESH / side, 1, 64))
    down = np.arange(0, rows.max() - top + step + 1, step)
    right = np.arange(0, columns.max() - left + step + 1, step)
    nodes = _areas_at(grid, *np.meshgrid(down + top, right + left, indexing="ij"))
    i, j = (rows - top) // step, (columns - left) // step
    u, v = (rows - top) / step - i, (columns - left) / step - j
    upper = nodes[i, j] * (1 - v) + nodes[i, j + 1] * v
    lower = nodes[i + 1, j] * (1 - v) + nodes[i + 1, j + 1] * v
    areas = upper * (1 - u) + lower * u
    lacking = ~np.isfinite(areas)  # beside the rim of a map
    areas[lacking] = _areas_at(grid, rows[lacking], columns[lacking])
    if not np.isfinite(areas).all():
        raise NotCoveredError(f"the results' CRS ends within it; {_PART}")
    return np.asarray(areas)


def _zones(grid: Grid) -> Floats:
    """Return the area of a pixel of each row of a geographic grid."""
    a, _, _, _, e, f = grid.transform
    edges = np.degrees((f + e * np.arange(grid.height + 1)) * grid.system.metres)
    _, heights = _EQUAL_AREA(np.zeros_like(edges), np.clip(edges, -90.0, 90.0))
    width, _ = _EQUAL_AREA(1.0, 0.0)
    return np.asarray(np.abs(np.diff(heights)) * width * abs(np.degrees(a * grid.system.metres)))


def _areas_at(grid: Grid, rows: Whole, columns: Whole) -> Floats:
    """Return the areas of pixels of any grid, from the lines that cross in their centres."""
    y, x = rows.astype(np.float64), columns.astype(np.float64)
    across = np.subtract(_on_earth(grid, y + 0.5, x + 1.0), _on_earth(grid, y + 0.5, x))
    down = np.subtract(_on_earth(grid, y + 1.0, x + 0.5), _on_earth(grid, y, x + 0.5))
    return np.asarray(np.linalg.norm(np.cross(across, down), axis=-1))


def _on_earth(grid: Grid, rows: Floats, columns: Floats) -> Floats:
    """Return x, y, z in metres from the Earth's centre, of places in a grid."""
    a, _, c, _, e, f = grid.transform
    degrees = grid.system.to_lonlat(c + a * columns, f + e * rows)
    lon, lat = np.radians(degrees[0]), np.radians(degrees[1])
    normal = _WGS84.a / np.sqrt(1 - _WGS84.es * np.sin(lat) ** 2)
    flat, up = normal * np.cos(lat), normal * (1 - _WGS84.es) * np.sin(lat)
    return np.stack([flat * np.cos(lon), flat * np.sin(lon), up], -1)
