"""Areas with as few vertices as a request may have."""

from itertools import pairwise

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon
from shapely.geometry import box

Area = Polygon | MultiPolygon

MAX_VERTICES = 20_000
"""Of a region: it is part of each mosaic's specification."""

_FINEST = 0.0005  # degrees, about 50 m: where simplifying begins
_COARSEST = 0.01  # degrees, about 1 km: coarser would show in the results


def simplified(area: Area, most: int = MAX_VERTICES) -> tuple[Area, float]:
    """Simplify an area until it has at most so many vertices, by at most 0.01 degree.

    Returns the area and by how many degrees its outline may have moved; an area that still has too
    many vertices is returned as simple as it can be.
    """
    tolerance, simple = 0.0, area
    if 4 * len(shapely.get_parts(area)) > most:  # no polygon has fewer
        return area, 0.0
    while shapely.get_num_coordinates(simple) > most and tolerance < _COARSEST:
        tolerance = min(tolerance * 2 or _FINEST, _COARSEST)
        simple = shapely.simplify(area, tolerance)
        if not simple.is_valid:
            simple = union(shapely.make_valid(simple))
    return simple, tolerance


def long_edge(area: Area) -> tuple[float, float] | None:
    """Return the ends of an edge over more than half the Earth; whole parallels are clear."""
    for part in shapely.get_parts(area):
        for ring in (part.exterior, *part.interiors):
            lons = shapely.get_coordinates(ring)[:, 0]
            for one, other in pairwise(lons.tolist()):
                if 180.0 < abs(one - other) < 360.0:
                    return one, other
    return None


def union(*areas: shapely.Geometry) -> Area:
    """Return the union as an area, without the lines and points that touch it."""
    whole = shapely.union_all(areas)
    if isinstance(whole, Polygon | MultiPolygon):
        return whole
    return MultiPolygon([p for p in shapely.get_parts(whole) if isinstance(p, Polygon)])


def cut_at_antimeridian(area: Area) -> Area:
    """Put an area whose longitudes run on beyond 180 into -180 to 180, cut there (RFC 7946).

    An area wider than the Earth is returned as it is.
    """
    west, south, east, north = area.bounds
    by = 360.0 if west < -180.0 else 0.0
    if not (west + by >= -180.0 and 180.0 < east + by <= 540.0):
        return area
    area = _moved(area, by)
    over = shapely.intersection(area, box(180.0, south, 540.0, north))
    here = shapely.intersection(area, box(-180.0, south, 180.0, north))
    return union(here, _moved(over, -360.0))


def _moved(area: shapely.Geometry, degrees: float) -> Area:
    def move(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(points + np.array([degrees, 0.0]))

    return union(shapely.transform(area, move))
