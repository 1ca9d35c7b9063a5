"""Sites of a request: points of a CSV table, or polygons of GeoJSON, each with an id."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import shapely
from shapely import MultiPolygon, Polygon
from shapely.errors import ShapelyError
from shapely.geometry import shape

MOST_SITES = 5_000
MOST_VERTICES = 50_000
_SHOWN = 80  # characters of a first line that is repeated
COLUMNS = (
    *("site", "latitude", "longitude", "product", "collection", "layer", "date", "time"),
    *("day_night", "value", "units", "mean", "std", "valid", "pixels", "reason", "quality"),
    *("quality_decoded", "distance_m", "granule", "row", "column"),
)
"""The columns of the results' table; those of the sites follow."""

_NAMES = {
    "id": ("id", "site", "site_id", "name"),
    "latitude": ("latitude", "lat"),
    "longitude": ("longitude", "lon", "long", "lng"),
}


@dataclass(frozen=True, kw_only=True)
class SiteChoice:
    """A site: a point in degrees, WGS84, the polygon around it if any, and its other columns.

    The point of a polygon lies in it.
    """

    name: str
    lat: float
    lon: float
    area: Polygon | MultiPolygon | None = None
    columns: tuple[tuple[str, str], ...] = ()


def parse_sites(given: str | Mapping[str, object]) -> tuple[SiteChoice, ...]:
    """Read sites from the text of a CSV table or of GeoJSON, or from a decoded FeatureCollection.

    Raises ValueError, which says what is wrong and what to do.
    """
    if isinstance(given, str) and given.lstrip().startswith("{"):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"this is not GeoJSON: {error}; mend the text") from None
    try:
        sites = _of_table(given) if isinstance(given, str) else _of_features(given)
    except csv.Error as error:
        raise ValueError(f"this is not a CSV table: {error}; mend the text") from None
    if not sites:
        raise ValueError("there is no site; write a line for each: id,latitude,longitude")
    if len(sites) > MOST_SITES:
        raise ValueError(
            f"there are {len(sites):,} sites, and {MOST_SITES:,} are allowed; ask in several "
            "requests"
        )
    seen: set[str] = set()
    for site in sites:
        if site.name in seen:
            raise ValueError(f"the id {site.name!r} is given twice; give each site its own")
        seen.add(site.name)
        taken = [name for name, _ in site.columns if name in COLUMNS]
        if taken:
            raise ValueError(
                f"the column {taken[0]!r} is one of the results' own; give it another name"
            )
    vertices = sum(int(shapely.get_num_coordinates(s.area)) for s in sites if s.area is not None)
    if vertices > MOST_VERTICES:
        raise ValueError(
            f"the polygons have {vertices:,} vertices, and {MOST_VERTICES:,} are allowed; simplify "
            "them: a pixel is coarser than that"
        )
    return tuple(sites)


def _of_table(text: str) -> list[SiteChoice]:
    lines = text.lstrip("\ufeff").strip()
    first = lines.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    rows = csv.reader(io.StringIO(lines), delimiter=separator)
    head = [name.strip() for name in next(rows, [])]
    lower = [name.lower() for name in head]
    at: dict[str, int] = {}
    for field, names in _NAMES.items():
        found = [lower.index(name) for name in names if name in lower]
        if not found:
            has = ", ".join(head).replace(";", ",")[:_SHOWN] or "empty"
            raise ValueError(
                f"the table has no column {field!r}, its first line is {has}; begin with a line "
                "like id,latitude,longitude"
            )
        at[field] = found[0]
    others = [n for n in range(len(head)) if n not in at.values()]
    sites = []
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(head):
            raise ValueError(
                f"line {rows.line_num} has {len(row)} cells and the first has {len(head)}; mend it"
            )
        cells = [cell.strip() for cell in row]
        sites.append(
            SiteChoice(
                name=_name(cells[at["id"]], f"line {rows.line_num}"),
                lat=_degrees(cells[at["latitude"]], "latitude", 90.0, rows.line_num),
                lon=_degrees(cells[at["longitude"]], "longitude", 180.0, rows.line_num),
                columns=tuple((head[n], cells[n]) for n in others),
            )
        )
    return sites


def _name(text: object, where: str) -> str:
    name = str(text).strip() if text is not None else ""
    if not name or len(name) > 100:
        raise ValueError(f"{where} has no id of 1 to 100 characters; give each site its own")
    return name


def _degrees(text: str, what: str, most: float, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= most:
        raise ValueError(
            f"line {line} has the {what} {text!r}; write degrees from -{most:g} to {most:g}, with "
            "a decimal point"
        )
    return value


def _of_features(document: Mapping[str, object]) -> list[SiteChoice]:
    features = document.get("features")
    if document.get("type") != "FeatureCollection" or not isinstance(features, list):
        raise ValueError("this is not a GeoJSON FeatureCollection; give one, or a table as text")
    return [_of_feature(one, number) for number, one in enumerate(features, 1)]


def _of_feature(feature: object, number: int) -> SiteChoice:
    where = f"feature {number}"
    if not isinstance(feature, Mapping):
        raise ValueError(f"{where} is not an object; mend the GeoJSON")
    properties = feature.get("properties") or {}
    lower = {str(name).lower(): name for name in properties}
    given = next((lower[name] for name in _NAMES["id"] if name in lower), None)
    name = _name(feature.get("id", properties.get(given)), where)
    try:
        made = shape(feature["geometry"])
        bounds = made.bounds
    except (ShapelyError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise ValueError(f"{where} has no geometry that can be read; mend the GeoJSON") from None
    if not isinstance(made, shapely.Point | Polygon | MultiPolygon) or made.is_empty:
        raise ValueError(f"{where} is a {made.geom_type}; give points or polygons")
    if not made.is_valid or not (
        bounds[0] >= -180 and bounds[2] <= 180 and bounds[1] >= -90 and bounds[3] <= 90
    ):
        raise ValueError(
            f"{where} is not a simple shape in degrees of longitude and latitude; mend it, and cut "
            "it at 180 where it crosses the antimeridian"
        )
    point = made.representative_point()
    return SiteChoice(
        name=name,
        lat=point.y,
        lon=point.x,
        area=None if isinstance(made, shapely.Point) else made,
        columns=tuple((str(k), _text(v)) for k, v in properties.items() if k != given),
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def sites_text(sites: Sequence[SiteChoice]) -> str:
    """Format sites as canonical JSON: what a specification holds."""
    return json.dumps(
        [
            [
                one.name,
                one.lat,
                one.lon,
                None if one.area is None else json.loads(shapely.to_geojson(one.area)),
                one.columns,
            ]
            for one in sites
        ],
        separators=(",", ":"),
    )


def _area(document: Mapping[str, object]) -> Polygon | MultiPolygon:
    made = shape(dict(document))
    if not isinstance(made, Polygon | MultiPolygon):
        raise ValueError(f"a site has the area of a polygon, not of a {made.geom_type}")
    return made


@lru_cache(maxsize=2)
def load_sites(text: str) -> tuple[SiteChoice, ...]:
    """Read what `sites_text` wrote; the tasks of a request read one text."""
    return tuple(
        SiteChoice(
            name=name,
            lat=lat,
            lon=lon,
            area=None if area is None else _area(area),
            columns=tuple((key, value) for key, value in columns),
        )
        for name, lat, lon, area, columns in json.loads(text)
    )
