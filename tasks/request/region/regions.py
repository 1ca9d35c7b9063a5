"""Regions of a request as geometries in WGS84 longitude and latitude.

A region that crosses the antimeridian is kept in one piece: its longitudes run on beyond 180.
"""

import json
from collections.abc import Iterator, Mapping

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely import MultiPolygon, Polygon
from shapely.errors import ShapelyError
from shapely.geometry import box, mapping, shape
from shapely.validation import explain_validity

from modis.box import LonLatBox
from modis.tile import Tile
from reprojection.grid.sinusoidal import tiles_touching
from tasks.errors import RequestRefusedError
from tasks.refusal_wording import shown
from tasks.request.document import POLYGON, Region
from tasks.request.places import place_area
from tasks.request.region.vertices import MAX_VERTICES, Area, cut_at_antimeridian, long_edge, union
from tasks.request.sites import parse_sites

AROUND_SITE = 0.05
"""Degrees around a site in which granules are looked for: a swath's pixels are large."""

_POINT_MARGIN = 1e-6  # degrees: a point as an area


def region_area(region: Region) -> Area:
    """Return the region as a polygon or multipolygon in degrees, longitudes from -180 up to 540.

    Raises RequestRefusedError for a GeoJSON document that is no polygon on the Earth and for tiles
    that lie off the Earth.
    """
    if region.bbox is not None:
        asked = LonLatBox(*region.bbox)
        return box(asked.west, asked.south, asked.unwrapped_east, asked.north)
    if region.tiles is not None:
        return _unwrap(union(*(tile_area(Tile.parse(tile)) for tile in region.tiles)))
    if region.sites is not None:
        return _unwrap(union(*site_areas(region)))
    if region.place is not None:
        return _unwrap(place_area(region.place))
    return _unwrap(_geojson(region.geojson or {}))


def site_areas(region: Region, margin: float = AROUND_SITE) -> list[Area]:
    """Return the area of each site of a region: a box around it, `margin` degrees wider.

    Boxes end at the poles and at 180 degrees.
    """
    areas: list[Area] = []
    for site in parse_sites(region.sites or ""):
        west, south, east, north = (
            site.area.bounds if site.area is not None else (site.lon, site.lat) * 2
        )
        areas.append(
            box(
                max(west - margin, -180.0),
                max(south - margin, -90.0),
                min(east + margin, 180.0),
                min(north + margin, 90.0),
            )
        )
    return areas


def region_tiles(region: Region) -> frozenset[Tile]:
    """Return the MODIS tiles in which the region has a share.

    Raises the same errors as `region_area`.
    """
    if region.tiles is not None:
        return frozenset(Tile.parse(tile) for tile in region.tiles)
    if region.bbox is not None:
        return frozenset(tiles_touching(region.bbox))
    if region.sites is not None:
        return frozenset().union(
            *(tiles_touching(area) for area in site_areas(region, _POINT_MARGIN))
        )
    return frozenset(tiles_touching(region_area(region)))


def area_geojson(area: Area) -> str:
    """Format a geometry as one line of GeoJSON, longitudes within 180 degrees, to 1e-9 degree.

    Equal areas give equal texts. Areas are cut at the antimeridian, as RFC 7946, section 3.1.9,
    asks.
    """
    text = json.dumps(mapping(shapely.normalize(cut_at_antimeridian(area))))
    document = json.loads(text, parse_float=lambda digits: round(float(digits), 9))
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def tile_area(tile: Tile) -> Area:
    """Return the part of the Earth in a MODIS tile, its slanted sides to 0.1 degree of latitude.

    Raises RequestRefusedError for a tile wholly beyond the projection's rim.
    """
    if not tile.on_earth:
        raise RequestRefusedError(
            "region.tiles",
            f"{tile.name} lies off the Earth, in a corner of the sinusoidal map.",
            "Name tiles with land or sea in them.",
        )
    lat = np.linspace(tile.north, tile.south, 101)
    west, east = tile.sides(lat)
    there = east - west > 1e-9
    sides = [*zip(west[there], lat[there], strict=True)]
    back = [*zip(east[there][::-1], lat[there][::-1], strict=True)]
    area = shapely.make_valid(Polygon([*sides, *back]))
    return union(area)


def _geojson(document: Mapping[str, object]) -> Area:
    shapes = [*_geometries(document)]
    try:
        areas = [shape(dict(item)) for item in shapes]
    except (ShapelyError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise _refused("has no coordinates, or coordinates that form no polygon") from None
    if not areas:
        raise _refused("holds no geometry")
    for area in areas:
        if not isinstance(area, Polygon | MultiPolygon):
            raise _refused(f"is a {area.geom_type}, which has no area")
        _check_area(area)
    return union(*areas)


def _geometries(document: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Yield the geometries in a geometry, a Feature or a FeatureCollection."""
    kind = document.get("type")
    if kind == "FeatureCollection":
        features = document.get("features")
        if not isinstance(features, list):
            raise _refused("is a FeatureCollection without a list of features")
        for feature in features:
            if not isinstance(feature, Mapping):
                raise _refused("has a feature that is not an object")
            yield from _geometries(feature)
    elif kind == "Feature":
        geometry = document.get("geometry")
        if not isinstance(geometry, Mapping):
            raise _refused("is a Feature without a geometry")
        yield from _geometries(geometry)
    elif kind in ("Polygon", "MultiPolygon"):
        yield document
    elif kind is None:
        raise _refused("has no type")
    else:
        raise _refused(f"has the type {shown(kind)}, not Polygon or MultiPolygon")


def _check_area(area: Area) -> None:
    if area.is_empty:
        raise _refused("is an empty polygon")
    points = shapely.get_coordinates(area)
    if not np.isfinite(points).all():
        raise _refused("has coordinates that are not numbers")
    west, south, east, north = area.bounds
    if west < -180 or east > 180 or south < -90 or north > 90:
        raise _refused(
            f"reaches from {west:g}, {south:g} to {east:g}, {north:g}, off the Earth",
            "Give longitude, then latitude, in degrees; cut it at 180 where it crosses the "
            "antimeridian.",
        )
    if (long_one := long_edge(area)) is not None:
        one, other = long_one
        raise _refused(
            f"has an edge from longitude {one:g} to {other:g}, and it is not clear which way "
            "around the Earth it runs",
            "Across the antimeridian, cut the polygon at 180 into a MultiPolygon; the long way, "
            "give the edge a vertex at longitude 0.",
        )
    if len(points) > MAX_VERTICES:
        raise _refused(
            f"has {len(points):,} vertices; {MAX_VERTICES:,} are the most",
            "Simplify the polygon; a pixel is coarser than that.",
        )
    if not area.is_valid:
        raise _refused(
            f"is not a simple polygon: {explain_validity(area)}",
            "Mend the ring so that it does not cross or touch itself.",
        )


def _refused(problem: str, remedy: str = "") -> RequestRefusedError:
    return RequestRefusedError("region.geojson", problem + ".", remedy or POLYGON.remedy)


def _unwrap(area: Area) -> Area:
    """Join an area that is cut at 180 degrees across the cut.

    The parts west of the widest gap of longitude move east by 360 degrees, if the area has parts at
    both 180 and -180.
    """
    west, _, east, _ = area.bounds
    if west > -180.0 or east < 180.0 or isinstance(area, Polygon):
        return area
    parts = sorted(area.geoms, key=lambda part: part.bounds[0])
    reach, gap, after = parts[0].bounds[2], 0.0, 0.0
    for part in parts[1:]:
        if part.bounds[0] - reach > gap:
            gap, after = part.bounds[0] - reach, reach
        reach = max(reach, part.bounds[2])
    if not gap:
        return area
    return union(
        *(shapely.transform(part, _east) if part.bounds[0] <= after else part for part in parts)
    )


def _east(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(points + np.array([360.0, 0.0]))
