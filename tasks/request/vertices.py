"""Areas with as few vertices as a request may have."""

import shapely
from shapely import MultiPolygon, Polygon

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


def union(*areas: shapely.Geometry) -> Area:
    """Return the union as an area, without the lines and points that touch it."""
    whole = shapely.union_all(areas)
    if isinstance(whole, Polygon | MultiPolygon):
        return whole
    return MultiPolygon([p for p in shapely.get_parts(whole) if isinstance(p, Polygon)])
