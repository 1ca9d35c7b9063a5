"""Regions as users have them: four numbers, or geometries with `__geo_interface__`."""

from collections.abc import Mapping, Sequence
from typing import Any

from modis.box import LonLatBox
from reprojection.errors import GridError
from reprojection.grid.crs import Crs


def region_box(region: object) -> LonLatBox:
    """Return the box, in longitude and latitude, of a region: four numbers, or a geometry.

    Raises:
        GridError: it is neither.
    """
    if isinstance(region, Sequence) and len(region) == 4:
        return LonLatBox(*map(float, region))
    if not hasattr(region, "__geo_interface__"):
        raise GridError(
            f"{region!r} is no region: give west, south, east, north in degrees, or a geometry "
            "with __geo_interface__ (shapely, a GeoDataFrame) in longitude and latitude"
        )
    crs = getattr(region, "crs", None)
    if crs is not None and not Crs.of(getattr(crs, "to_wkt", lambda: crs)()).is_plain_lonlat:
        raise GridError(
            "the region is not in WGS84 longitude and latitude: give region.to_crs('EPSG:4326')"
        )
    points = list(_points(region.__geo_interface__))
    if not points:
        raise GridError("the region is empty")
    lons, lats = zip(*points, strict=True)
    return LonLatBox(min(lons), min(lats), max(lons), max(lats))


_PARTS = ("features", "geometry", "geometries", "coordinates")
"""Where the parts of GeoJSON have their own parts."""


def _points(said: Any) -> "list[tuple[float, float]]":
    """List the points of GeoJSON: features, collections, geometries."""
    if said is None:
        return []
    if isinstance(said, Mapping):
        return [point for key in _PARTS if key in said for point in _points(said[key])]
    if said and isinstance(said[0], int | float):
        return [(float(said[0]), float(said[1]))]
    return [point for part in said for point in _points(part)]
