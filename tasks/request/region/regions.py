"""Regions of a request as geometries in WGS84 longitude and latitude.

A region that crosses the antimeridian is kept in one piece: its longitudes run on beyond 180.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

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
from tasks.request.places import place_area
from tasks.request.region.region import POLYGON, Region
from tasks.request.vertices import MAX_VERTICES, Area, cut_at_antimeridian, long_edge, union

_NAMED = 4  # named in a heading


@dataclass(frozen=True, kw_only=True)
class RegionKind:
    """A way to give a region, by the name of its field in the document.

    `area` gives a polygon or multipolygon in degrees, longitudes from -180 up to 540. `tiles` are
    the MODIS tiles in which the region has a share; None: those that its area touches. `words` say
    where, for a heading. Both raise RequestRefusedError for what is no place on the Earth.
    """

    area: Callable[[Region], Area]
    words: Callable[[Region], str]
    tiles: Callable[[Region], frozenset[Tile]] | None = None


def _box_area(region: Region) -> Area:
    asked = LonLatBox(*(region.bbox or ()))
    return box(asked.west, asked.south, asked.unwrapped_east, asked.north)


def _tiles_area(region: Region) -> Area:
    return unwrap(union(*(tile_area(Tile.parse(tile)) for tile in region.tiles or ())))


def _tiles(region: Region) -> frozenset[Tile]:
    return frozenset(map(Tile.parse, region.tiles or ()))


def _tiles_words(region: Region) -> str:
    tiles = region.tiles or ()
    more = len(tiles) - _NAMED
    return f"in {', '.join(tiles[:_NAMED])}" + (f" and {more} more" if more > 0 else "")


AREAS: Mapping[str, RegionKind] = {
    "bbox": RegionKind(
        area=_box_area,
        words=lambda region: f"in {', '.join(f'{edge:g}' for edge in region.bbox or ())}",
        tiles=lambda region: frozenset(tiles_touching(region.bbox or ())),
    ),
    "tiles": RegionKind(area=_tiles_area, words=_tiles_words, tiles=_tiles),
    "geojson": RegionKind(
        area=lambda region: unwrap(_geojson(region.geojson or {})),
        words=lambda _: "in a polygon",
    ),
    "place": RegionKind(
        area=lambda region: unwrap(place_area(region.place or "")),
        words=lambda region: f"in {region.place}",
    ),
}
"""The kinds of regions that are areas."""


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


def unwrap(area: Area) -> Area:
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
