"""Decide whether a granule can touch an area: swath boundaries and sinusoidal tiles.

Everything is decided in a stereographic plane around the granule, in which neither the antimeridian
nor a pole is special. The answer may be yes for a near miss, but never no for a hit. Swath
boundaries run only through pixel centres or through four corners, so they are widened by a margin.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import shapely

from archives.model import GranuleRecord, Ring
from modis.box import LonLatBox
from modis.sphere import SPHERE_RADIUS_KM
from modis.tile import Tile

# Half a footprint at the swath's edge (45 km x 20 km for a 10 km product, diagonal).
OUTLINE_MARGIN_KM = 30.0
# The four corners that archives publish (GRING) are those of the outermost 1 km footprints, 30 km
# or more beyond the centres of 10 km pixels. Great circles between them differ from the curved
# edge of the swath by at most 15 km.
CORNERS_MARGIN_KM = 20.0
_CORNERS = 4
# Other boundaries with few points: that difference, and half the coarsest footprint.
FEW_POINTS_MARGIN_KM = 45.0
_FEW_POINTS = 12
# A tile's curved edge has a point every tenth of a degree; near the poles, where it bends most,
# great circles between the points differ from it by 0.2 km.
TILE_MARGIN_KM = 0.25
_PARALLEL_POINTS = 41

_STEP = math.radians(1.0)  # great circles get a point every degree
_CHUNK_DEGREES = 20.0

Vectors = npt.NDArray[np.float64]


Area = LonLatBox | Sequence[Ring]
"""A box, or rings of (longitude, latitude) joined by great circles; densify other lines."""


def touches(record: GranuleRecord, area: Area) -> bool:
    """Tell whether the granule may hold pixels in the area.

    A granule of unknown position touches everything, because only reading it can tell.
    """
    if record.tile is not None and isinstance(area, LonLatBox):
        return record.tile.meets(area)
    shapes = granule_caps(record)
    if shapes is None:
        return True
    margin = margin_km(record) / SPHERE_RADIUS_KM
    return any(caps_meet(shape, part, margin) for part in area_caps(area) for shape in shapes)


@dataclass(frozen=True, kw_only=True)
class Cap:
    """A ring as unit vectors, shape (n, 3), and a cap (centre, angular radius) around it."""

    ring: Vectors
    centre: Vectors
    radius: float


def margin_km(record: GranuleRecord) -> float:
    """Return how far beyond its boundary a granule may hold pixels, in kilometres."""
    if record.tile is not None:
        return TILE_MARGIN_KM
    counts = [len(ring) for ring in record.boundary or ()]
    if all(count == _CORNERS for count in counts):
        return CORNERS_MARGIN_KM
    few = any(count <= _FEW_POINTS for count in counts)
    return FEW_POINTS_MARGIN_KM if few else OUTLINE_MARGIN_KM


def granule_caps(record: GranuleRecord) -> tuple[Cap, ...] | None:
    """Return the shapes of a granule; None if it may lie anywhere."""
    if record.tile is not None:
        ring = tile_ring(record.tile)
        return (_cap(ring),) if ring else ()
    if record.boundary is not None:
        return tuple(_cap(ring) for ring in record.boundary if len(ring) >= 3) or None
    return None


def area_caps(area: Area) -> tuple[Cap, ...]:
    """Return the shapes of an area."""
    if isinstance(area, LonLatBox):
        return _box_shapes(area)
    return tuple(_cap(tuple((float(x), float(y)) for x, y in ring)) for ring in area)


@lru_cache(maxsize=512)
def _box_shapes(box: LonLatBox) -> tuple[Cap, ...]:
    """Cut a box into pieces small enough for one plane, with many points on their parallels."""
    south, north = max(box.south, -90.0), min(box.north, 90.0)
    width = box.width
    columns = max(1, math.ceil(width / _CHUNK_DEGREES))
    rows = max(1, math.ceil((north - south) / _CHUNK_DEGREES))
    pieces = []
    for row in range(rows):
        low = south + (north - south) * row / rows
        high = south + (north - south) * (row + 1) / rows
        for column in range(columns):
            left = box.west + width * column / columns
            right = box.west + width * (column + 1) / columns
            count = max(2, math.ceil(right - left) + 1)
            lons = np.linspace(left, right, count)
            bottom = [(float(lon), low) for lon in lons]
            top = [(float(lon), high) for lon in lons[::-1]]
            pieces.append(_cap(tuple(bottom + top)))
    return tuple(pieces)


@lru_cache(maxsize=4096)
def _cap(ring: Ring) -> Cap:
    vectors = _densify(_vectors(ring))
    total = vectors.sum(axis=0)
    length = float(np.linalg.norm(total))
    centre = total / length if length > 1e-9 else vectors[0]
    cosine = float(np.clip(vectors @ centre, -1.0, 1.0).min())
    return Cap(ring=vectors, centre=centre, radius=math.acos(cosine))


def _vectors(ring: Ring) -> Vectors:
    lon, lat = np.radians(np.array(ring, dtype=np.float64)).T
    return np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))


def _densify(corners: Vectors) -> Vectors:
    ends = np.concatenate([corners[1:], corners[:1]])
    angles = np.arccos(np.clip(np.einsum("ij,ij->i", corners, ends), -1.0, 1.0))
    steps = np.maximum(1, np.ceil(angles / _STEP)).astype(np.intp)
    first = np.cumsum(steps) - steps
    share = ((np.arange(steps.sum()) - np.repeat(first, steps)) / np.repeat(steps, steps))[:, None]
    points: Vectors = (
        np.repeat(corners, steps, axis=0) * (1 - share) + np.repeat(ends, steps, axis=0) * share
    )
    points /= np.sqrt(np.einsum("ij,ij->i", points, points))[:, None]
    return points


def caps_meet(granule: Cap, area: Cap, margin: float) -> bool:
    """Tell whether two shapes are at most about `margin` (radians) apart."""
    apart = math.acos(float(np.clip(granule.centre @ area.centre, -1.0, 1.0)))
    if apart > granule.radius + area.radius + margin:
        return False
    if apart + area.radius > math.radians(150.0):
        # The caps meet too near the point that the plane cannot show: assume a hit.
        return True
    shape = _plane_polygon(granule, granule.centre)
    other = _plane_polygon(area, granule.centre)
    # The plane's scale is 1 at its centre and grows outward, so the margin is smallest there.
    reach = granule.radius + margin
    scale = 2.0 / (1.0 + math.cos(min(reach, 2.5)))
    return bool(shapely.distance(shape, other) <= margin * scale)


def _plane_polygon(cap: Cap, centre: Vectors) -> shapely.Geometry:
    east, north = _axes(centre)
    scale = 2.0 / (1.0 + np.clip(cap.ring @ centre, -0.999, 1.0))
    plane = np.column_stack((cap.ring @ east * scale, cap.ring @ north * scale))
    polygon = shapely.Polygon(plane)
    if polygon.is_valid and polygon.area > 0:
        return polygon
    # A box of a few centimetres may collapse to a line or a point, or vanish when it is repaired.
    repaired = shapely.make_valid(polygon)
    return shapely.MultiPoint(plane) if repaired.is_empty else repaired


@lru_cache(maxsize=4096)
def _axes_around(x: float, y: float, z: float) -> tuple[Vectors, Vectors]:
    side = (-y, x, 0.0) if abs(z) < 0.9 else (0.0, -z, y)
    length = math.hypot(*side)
    u, v, w = (value / length for value in side)
    return np.array([u, v, w]), np.array([y * w - z * v, z * u - x * w, x * v - y * u])


def _axes(centre: Vectors) -> tuple[Vectors, Vectors]:
    """Return the directions east and north at a point of the sphere; at a pole any two."""
    x, y, z = centre.tolist()
    return _axes_around(x, y, z)


@lru_cache(maxsize=1024)
def tile_ring(tile: Tile) -> Ring:
    """Return the outline of a sinusoidal tile, cut at the projection's rim; empty off the Earth.

    A tile is 10 degrees of latitude high and 10 degrees of the equator wide: longitude = x /
    cos(latitude), |longitude| <= 180 (MODIS sinusoidal grid, 36 x 18 tiles).
    """
    if not tile.on_earth:
        return ()
    lats = np.linspace(tile.north, tile.south, 101)
    wests, easts = tile.sides(lats)
    inside = easts - wests > 1e-9
    lats, wests, easts = lats[inside], wests[inside], easts[inside]
    # Its upper and lower edges are parallels; great circles between the corners would differ from
    # them by 10 km.
    shares = np.linspace(0.0, 1.0, _PARALLEL_POINTS)[1:-1]
    north = [(float(wests[0] + (easts[0] - wests[0]) * share), float(lats[0])) for share in shares]
    south = [
        (float(easts[-1] + (wests[-1] - easts[-1]) * share), float(lats[-1])) for share in shares
    ]
    west_side = list(zip(wests.tolist(), lats.tolist(), strict=True))
    east_side = list(zip(easts.tolist(), lats.tolist(), strict=True))
    return tuple(north + east_side + south + west_side[::-1])
