"""A granule's outline: the facts that planning needs, without an open file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from modis.sphere import SPHERE_RADIUS, wrap_longitude
from modis.tile import Tile
from reprojection.errors import GridError, ReprojectionError
from reprojection.formats.container import coordinate
from reprojection.formats.structmetadata import GridInfo
from reprojection.grid.crs import Crs
from reprojection.read.granule import Granule, open_granule

Ring = tuple[tuple[float, float], ...]

_SIDE_POINTS = 24
_PIECE_DEGREES = 90.0  # of a geographic grid: an eighth of the Earth is the largest piece
_PIECES = 4  # of a polar grid, along each side
_PARALLEL_DEGREES = 5.0  # a great circle between such points is at most 3 km off the parallel


@dataclass(frozen=True, kw_only=True)
class Outline:
    """Identity, time and position of a granule.

    `tile` is set for a whole sinusoidal tile; otherwise `boundary` holds rings of (longitude,
    latitude) degrees through the outermost pixel centres of a swath or along a grid's edge; a wide
    geographic grid has several, side by side.
    """

    name: str
    product: str
    collection: str
    start: datetime | None
    end: datetime | None
    tile: Tile | None
    boundary: tuple[Ring, ...] | None
    production_time: str
    day_night: str


def outline(granule: Granule) -> Outline:
    """Make the outline of an open granule."""
    tile = None
    boundary: tuple[Ring, ...] | None = None
    if granule.grids:
        tiles = {grid.tile for grid in granule.grids.values()}
        tile = tiles.pop() if len(tiles) == 1 else None
        if tile is None:
            boundary = _grid_boundary(granule)
    elif granule.swaths:
        boundary = _swath_boundary(granule)
    if tile is None and boundary is None:
        boundary = _inventory_boundary(granule)
    return Outline(
        name=granule.name,
        product=granule.product,
        collection=granule.collection,
        start=granule.start,
        end=granule.end,
        tile=tile,
        boundary=boundary,
        production_time=granule.production_time,
        day_night=granule.day_night,
    )


def read_outline(path: Path) -> Outline | None:
    """Read the outline of a granule file; return None if the file cannot be read."""
    try:
        with open_granule(path) as granule:
            return outline(granule)
    except ReprojectionError:
        return None


def read_outlines(paths: Sequence[Path]) -> list[Outline | None]:
    """Read the outlines of granule files; None for a file that cannot be read."""
    return [read_outline(path) for path in paths]


def read_outlines_until(paths: Sequence[Path]) -> list[Outline]:
    """Read the outlines of granule files, until one cannot be read: HDF4 may refuse others then."""
    found: list[Outline] = []
    for path in paths:
        one = read_outline(path)
        if one is None:
            break
        found.append(one)
    return found


@dataclass(frozen=True, kw_only=True)
class LayersSeen:
    """The layers of a granule.

    Attributes:
        lengths: By layer, the lengths of its axes besides rows and columns.
        notes: By layer, what its attributes state and was not understood, where there is such.
    """

    lengths: dict[str, tuple[int, ...]]
    notes: dict[str, tuple[str, ...]]


def read_layers(path: Path) -> LayersSeen:
    """List the layers of a granule file.

    Raises BadFormatError and UnreadableGranuleError as `open_granule` does.
    """
    with open_granule(path) as granule:
        every = granule.layers.values()
        return LayersSeen(
            lengths={one.name: tuple(length for _, length in one.bands) for one in every},
            notes={one.name: one.notes for one in every if one.notes},
        )


def _swath_boundary(granule: Granule) -> tuple[Ring, ...] | None:
    rings = []
    for swath in granule.swaths.values():
        latitude = next(
            (
                layer
                for name, layer in granule.layers.items()
                if layer.swath == swath.name and coordinate(name) == "latitude"
            ),
            None,
        )
        if latitude is None:
            return None
        place = granule.geolocation(latitude)
        ring = _edge_ring(place.lat, place.lon)
        if ring is None:
            return None
        rings.append(ring)
    return tuple(rings) or None


def _edge_ring(lat: npt.NDArray[np.float64], lon: npt.NDArray[np.float64]) -> Ring | None:
    """Trace the outermost known pixel centres; lines with unknown pixels are left out."""
    known = np.flatnonzero(np.isfinite(lat).all(axis=1))
    if known.size < 2 or lat.shape[1] < 2:
        return None
    first, last = int(known[0]), int(known[-1])
    rows = np.unique(known[np.linspace(0, known.size - 1, _SIDE_POINTS).round().astype(int)])
    columns = np.unique(np.linspace(0, lat.shape[1] - 1, _SIDE_POINTS).round().astype(int))
    path = [(first, int(column)) for column in columns]
    path += [(int(row), lat.shape[1] - 1) for row in rows[1:]]
    path += [(last, int(column)) for column in columns[-2::-1]]
    path += [(int(row), 0) for row in rows[-2:0:-1]]
    return tuple((float(lon[at]), float(lat[at])) for at in path)


def _grid_boundary(granule: Granule) -> tuple[Ring, ...] | None:
    try:
        rings = [ring for grid in granule.grids.values() for ring in grid_rings(grid)]
        return tuple(dict.fromkeys(rings))
    except GridError:
        return None


def grid_rings(grid: GridInfo) -> tuple[Ring, ...]:
    """Trace a grid's edge: one ring, or for a wide geographic grid one for each piece of it.

    On the sphere a ring bounds its smaller side, so one around the Earth would bound nothing.
    """
    by_pieces = grid.projection.endswith("LAMAZ") or grid.is_rotated
    if by_pieces or grid.own_crs not in ("", "EPSG:4326"):
        return _rings_of_pieces(grid)
    if grid.crs != "EPSG:4326":
        return (_projected_ring(grid),)
    columns = max(1, math.ceil((grid.right - grid.left) / _PIECE_DEGREES))
    rows = max(1, math.ceil((grid.top - grid.bottom) / _PIECE_DEGREES))
    lons = np.linspace(grid.left, grid.right, columns + 1)
    lats = np.linspace(grid.bottom, grid.top, rows + 1)
    return tuple(
        _degree_ring(*map(float, (west, south, east, north)))
        for west, east in pairwise(lons)
        for south, north in pairwise(lats)
    )


def _rings_of_pieces(grid: GridInfo) -> tuple[Ring, ...]:
    """Trace the parts of a grid on the map, in pieces: a whole hemisphere has no smaller side."""
    xs = np.linspace(grid.left, grid.right, 1 + _PIECES)
    ys = np.linspace(grid.top, grid.bottom, 1 + _PIECES)
    rings = []
    for west, east in pairwise(xs):
        for north, south in pairwise(ys):
            steps = np.linspace(0.0, 1.0, _SIDE_POINTS)[:-1]
            x = west + (east - west) * np.concatenate(
                [steps, np.ones_like(steps), 1 - steps, np.zeros_like(steps)]
            )
            y = north + (south - north) * np.concatenate(
                [np.zeros_like(steps), steps, np.ones_like(steps), 1 - steps]
            )
            lon, lat = Crs.of(grid.crs).to_lonlat(x, y)
            there = np.isfinite(lon)
            if there.sum() >= 3:
                rings.append(tuple(zip(lon[there].tolist(), lat[there].tolist(), strict=True)))
    return tuple(rings)


def _degree_ring(west: float, south: float, east: float, north: float) -> Ring:
    """Trace a box; parallels are no great circles, so they get points."""
    lons = np.linspace(west, east, max(2, math.ceil((east - west) / _PARALLEL_DEGREES) + 1))
    ring = [(float(lon), south) for lon in lons] + [(float(lon), north) for lon in lons[::-1]]
    return tuple((wrap_longitude(lon) if abs(lon) > 180.0 else lon, lat) for lon, lat in ring)


def _projected_ring(grid: GridInfo) -> Ring:
    steps = np.linspace(0.0, 1.0, _SIDE_POINTS)
    xs = grid.left + steps * (grid.right - grid.left)
    ys = grid.top + steps * (grid.bottom - grid.top)
    edge = [(float(x), grid.top) for x in xs]
    edge += [(grid.right, float(y)) for y in ys[1:]]
    edge += [(float(x), grid.bottom) for x in xs[-2::-1]]
    edge += [(grid.left, float(y)) for y in ys[-2:0:-1]]
    lats = [np.degrees(y / SPHERE_RADIUS) for _, y in edge]
    ring = []
    for (x, _), lat in zip(edge, lats, strict=True):
        shrink = max(float(np.cos(np.radians(lat))), 1e-9)
        lon = float(np.clip(np.degrees(x / SPHERE_RADIUS) / shrink, -180.0, 180.0))
        ring.append((lon, float(lat)))
    return tuple(ring)


def _inventory_boundary(granule: Granule) -> tuple[Ring, ...] | None:
    """Read the ring in the inventory metadata, for granules without coordinates, such as MOD14."""
    lons = granule.inventory.get("GRINGPOINTLONGITUDE", ())
    lats = granule.inventory.get("GRINGPOINTLATITUDE", ())
    if len(lons) != len(lats) or len(lons) < 3:
        return None
    points = []
    for lon, lat in zip(lons, lats, strict=True):
        if not isinstance(lon, int | float) or not isinstance(lat, int | float):
            return None
        if not (abs(lon) <= 180.0 and abs(lat) <= 90.0):
            return None
        points.append((float(lon), float(lat)))
    return (tuple(points),)
