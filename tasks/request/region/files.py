"""Regions in the notations that people have them in: GeoJSON, shapefile, GeoPackage, KML, WKT.

The files come from strangers. Each is read in memory, bounded in size, by pyshp, SQLite and the
standard library's XML parser rather than by GDAL, which would be another 30 MB and opens far more
than these notations. Coordinates become degrees, WGS84.
"""

import csv
import io
import json
import re
import sqlite3
import struct
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
import shapely
from pyproj import CRS, Transformer
from pyproj.exceptions import ProjError
from shapely import MultiPolygon, Point, Polygon
from shapely.errors import ShapelyError
from shapely.geometry import mapping, shape
from shapely.geometry.base import BaseGeometry

from modis.formats import HDF4_MAGIC, HDF5_MAGIC
from tasks.plain_text import NotUtf8Error, decoded
from tasks.request.sites import MOST_SITES, parse_sites
from tasks.request.vertices import (
    MAX_VERTICES,
    Area,
    cut_at_antimeridian,
    long_edge,
    simplified,
    union,
)

MOST_BYTES = 32 * 2**20
"""Of a file, and of what is in an archive of files."""

MOST_APART = 50
"""Polygons and points of a file that are kept apart."""

_MOST_FEATURES = 50_000
_MOST_VERTICES = 2_000_000
_SQLITE_STEPS = 500  # of a million instructions each
_PIECES = 64  # of the longer side of a projected region: edges are straight in its own projection
_SPARSE = 1000  # vertices of a polygon that may have long edges
_FARTHEST = 1e9  # in degrees or metres: no place on Earth
_LEVELS = 8  # of brackets in WKT: a collection of multipolygons has five
_LONGEST_NAME = 100  # characters
_PARTS = 2  # levels of parts in WKB: a collection of multipolygons
_POINT, _LINE, _POLYGON, _COLLECTION = 1, 2, 3, 7  # codes of WKB; 4 to 6 are multiples of 1 to 3
_DEGREES = "EPSG:4326"
_T = TypeVar("_T")
_WKT = re.compile(
    r"\s*(SRID=(?P<srid>\d+);)?\s*(POLYGON|MULTIPOLYGON|GEOMETRYCOLLECTION|POINT|MULTIPOINT"
    r"|LINESTRING|MULTILINESTRING)\b",
    re.IGNORECASE,
)
_ZIP, _SQLITE = b"PK\x03\x04", b"SQLite format 3\x00"
_NOT_REGIONS = (
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"II*\x00", "a TIFF raster"),
    (b"MM\x00*", "a TIFF raster"),
    (b"%PDF", "a PDF document"),
    (b"\x1f\x8b", "a file packed by gzip"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (HDF5_MAGIC, "an HDF5 or netCDF file"),
    (HDF4_MAGIC, "an HDF4 file"),
    (b"CDF", "a netCDF file"),
)
"""How files begin that people choose by mistake, and what they are."""
_NOTATIONS = "give GeoJSON, a zipped shapefile, GeoPackage, KML, WKT or a CSV table of sites"
_UNREADABLE = (
    *(ShapelyError, ProjError, BadZipFile, zlib.error, sqlite3.Error, struct.error, ET.ParseError),
    *(ValueError, LookupError, TypeError, AttributeError, OSError, EOFError, RuntimeError),
)


class RegionFileError(ValueError):
    """A file that gives no region; says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class ReadRegion:
    """The region of a file: a GeoJSON geometry, or the text of a table of sites if it has points.

    `notes` say how it differs from the file.
    """

    geojson: dict[str, Any] | None = None
    sites: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReadFeatures:
    """The polygons and points of a file, each a GeoJSON geometry with a name of its own.

    Longitudes are within 180 degrees. `notes` say how they differ from the file.
    """

    features: tuple[tuple[str, dict[str, Any]], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Read:
    """Geometries with their names in a coordinate reference system; None stands for degrees."""

    features: Sequence[tuple[BaseGeometry, str]]
    crs: CRS | None = None
    notes: tuple[str, ...] = ()


def read_region(data: bytes, name: str = "") -> ReadRegion:
    """Read a region from the content of a file, whatever its notation.

    Args:
        data: The content.
        name: The file's name, for messages and to tell what is not a region.

    Raises:
        RegionFileError: the content is none of the notations, is damaged, too large, or has no
            polygons and no points.
    """
    with _refusing(data, name):
        read = _parsed(data, name)
        if isinstance(read, str):
            parse_sites(read)
            return ReadRegion(sites=read)
        return _region(read)


def read_features(data: bytes, name: str = "") -> ReadFeatures:
    """Read the polygons and points of a file, whatever its notation, and keep them apart.

    A feature of several polygons is one. One without a name is called by its number.

    Args:
        data: The content.
        name: The file's name, for messages and to tell what is not a region.

    Raises:
        RegionFileError: as `read_region` does, or there are more than `MOST_APART`, they have more
            than `MAX_VERTICES` vertices, or one is no polygon or point on the Earth.
    """
    with _refusing(data, name):
        read = _parsed(data, name)
        if isinstance(read, str):
            sites = parse_sites(read)
            named = [(site.area or Point(site.lon, site.lat), site.name) for site in sites]
            read = _Read(features=named)
        _check(read)
        return _apart(read)


@contextmanager
def _refusing(data: bytes, name: str) -> Iterator[None]:
    """Raise RegionFileError for a file that is too large, and for what reading one may raise."""
    if len(data) > MOST_BYTES:
        raise RegionFileError(
            f"the file is larger than {MOST_BYTES >> 20} MiB; simplify its polygons, or give those "
            "of the region alone"
        )
    try:
        yield
    except RegionFileError:
        raise
    except NotUtf8Error as error:
        raise RegionFileError(f"{name or 'the text'} cannot be read: {error}") from None
    except BadZipFile:
        raise RegionFileError(
            f"{name or 'the archive'} is a damaged or cut ZIP archive; pack it again, or copy it "
            "again"
        ) from None
    except json.JSONDecodeError as error:
        raise RegionFileError(
            f"{name or 'the text'} is damaged or cut GeoJSON: line {error.lineno}, column "
            f"{error.colno} is not as JSON has it; save it again"
        ) from None
    except ET.ParseError as error:
        raise RegionFileError(
            f"{name or 'the text'} is damaged or cut KML: {error}; save it again"
        ) from None
    except _UNREADABLE as error:
        why = " ".join(str(error).split())[:160] or type(error).__name__
        raise RegionFileError(f"{name or 'the text'} cannot be read: {why}; {_NOTATIONS}") from None


def is_notation(text: str) -> bool:
    """Tell whether a text is a polygon in a notation of its own: WKT, or the XML of KML."""
    return text.lstrip().startswith("<") or bool(_WKT.match(text))


def names_file(text: str) -> bool:
    """Tell whether a text is the name of a file with its suffix, not a region or a table itself."""
    plain = text.strip()
    one_line = "\n" not in plain and not plain.startswith("{") and not is_notation(plain)
    return one_line and bool(PurePath(plain).suffix)


def _parsed(data: bytes, name: str) -> _Read | str:
    """Return the features of a file, or the text of a table."""
    if data.startswith(_ZIP) or (data.startswith(b"PK") and b"\x00" in data[:30]):
        return _of_zip(data)
    if data.startswith(_SQLITE):
        return _of_geopackage(data)
    _check_begin(data, name)
    if PurePath(name).suffix.lower() in (".shp", ".shx", ".dbf", ".prj"):
        raise RegionFileError(
            "a shapefile is several files; zip the .shp, .shx, .dbf and .prj and give that"
        )
    text = decoded(data).strip()
    if text.startswith("{"):
        return _of_geojson(json.loads(text))
    if text.startswith("<"):
        return _of_kml(text)
    if match := _WKT.match(text):
        crs = CRS.from_epsg(int(match["srid"])) if match["srid"] else None
        _check_levels(text)
        try:
            made = shapely.from_wkt(text.partition(";")[2] if crs else text)
        except ShapelyError:
            raise RegionFileError(
                "the WKT cannot be read; write it like POLYGON ((5 50, 8 50, 8 53, 5 50)), where "
                "each bracket is closed and a ring ends with its first point"
            ) from None
        return _Read(features=[(made, "")], crs=crs)
    return text


def _check_begin(data: bytes, name: str) -> None:
    """Refuse what begins as no notation does, and say what it is."""
    called = name or "the file"
    for begin, what in _NOT_REGIONS:
        if data.startswith(begin):
            raise RegionFileError(f"{called} is {what}, which has no region; {_NOTATIONS}")
    if not data.strip():
        raise RegionFileError(f"{called} is empty; {_NOTATIONS}")


def _of_zip(data: bytes) -> _Read | str:
    with ZipFile(io.BytesIO(data)) as archive:
        files = [i for i in archive.infolist() if not i.is_dir() and "__MACOSX" not in i.filename]
        shapes = [i for i in files if i.filename.lower().endswith(".shp")]
        others = [i for i in files if i.filename.lower().endswith((".kml", ".gpkg", ".geojson"))]
        if not shapes and not others:
            raise RegionFileError("the archive holds no .shp, .kml, .gpkg or .geojson file")
        chosen, *more = shapes or others
        notes = (f"Of the archive's files {chosen.filename} was taken.",) if more else ()
        if chosen in others:
            inner = _content(archive, chosen)
            if inner.startswith(_ZIP):
                raise RegionFileError("the archive holds another archive; give that one")
            read = _parsed(inner, chosen.filename)
            return (
                read
                if isinstance(read, str)
                else _Read(features=read.features, crs=read.crs, notes=notes)
            )
        stem = chosen.filename[:-4].lower()
        parts = {i.filename[-3:].lower(): i for i in files if i.filename[:-4].lower() == stem}
        return _of_shapefile({kind: _content(archive, info) for kind, info in parts.items()}, notes)


def _content(archive: ZipFile, info: ZipInfo) -> bytes:
    """Read a file of an archive, whose own word for its size is not believed."""
    with archive.open(info) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise RegionFileError(f"{info.filename} is larger than {MOST_BYTES >> 20} MiB unpacked")
    return data


def _of_shapefile(parts: Mapping[str, bytes], notes: tuple[str, ...]) -> _Read:
    import shapefile  # which few regions need

    shapefile.VERBOSE = False  # it prints what is wrong with a file

    if "prj" not in parts:
        notes += ("The archive has no .prj file, so its coordinates were taken as degrees, WGS84.",)
        crs = None
    else:
        crs = CRS.from_wkt(parts["prj"].decode("utf-8", "replace"))
    tables = {kind: io.BytesIO(parts[kind]) for kind in ("shp", "shx", "dbf") if kind in parts}
    encoding = parts.get("cpg", b"utf-8").decode("ascii", "replace").strip() or "utf-8"
    try:
        with shapefile.Reader(**tables, encoding=encoding, encodingErrors="replace") as reader:
            names = _names(reader) if "dbf" in parts else iter(())
            features = [
                (shape(each.__geo_interface__), next(names, ""))
                for each in _some(reader.iterShapes())
                if each.shapeType != shapefile.NULL
            ]
    except (shapefile.ShapefileException, LookupError) as error:
        raise RegionFileError(f"the shapefile is damaged: {error}; save it again") from None
    return _Read(features=features, crs=crs, notes=notes)


def _names(reader: Any) -> Iterator[str]:
    for record in reader.iterRecords():
        yield _name_in(record.as_dict())


def _of_geopackage(data: bytes) -> _Read:
    """Read the first layer of features (GeoPackage 1.3, sections 1.1.2 and 2.1)."""
    store = sqlite3.connect(":memory:")
    try:
        # Bytes 18 and 19: a file that was left in write-ahead mode is read as it is.
        store.deserialize(data[:18] + b"\x01\x01" + data[20:])
        steps = iter(range(_SQLITE_STEPS))
        store.set_progress_handler(lambda: next(steps, None) is None, 1_000_000)
        store.execute("PRAGMA trusted_schema = OFF")
        store.execute("PRAGMA cell_size_check = ON")
        store.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
        store.set_authorizer(_reads_tables_alone)
        layer = store.execute(
            "SELECT g.table_name, g.column_name, s.organization, s.organization_coordsys_id, "
            "s.definition FROM gpkg_geometry_columns g LEFT JOIN gpkg_spatial_ref_sys s "
            "ON s.srs_id = g.srs_id ORDER BY g.table_name LIMIT 1"
        ).fetchone()
        if layer is None:
            raise RegionFileError("the GeoPackage holds no layer of features")
        table, column, organization, number, definition = layer
        layers = sum(1 for _ in store.execute("SELECT 1 FROM gpkg_geometry_columns"))
        _check_table(store, str(table))
        quoted = ['"' + str(one).replace('"', '""') + '"' for one in (column, table)]
        rows = store.execute("SELECT {}, * FROM {}".format(*quoted))
        titles = [one[0] for one in rows.description[1:]]
        features = [
            (_of_blob(bytes(row[0])), _name_in(dict(zip(titles, row[1:], strict=True))))
            for row in _some(rows)
            if row[0] is not None
        ]
    finally:
        store.close()
    crs = None
    if str(organization).upper() == "EPSG":
        crs = CRS.from_epsg(int(number))
    elif definition and str(definition) != "undefined":
        crs = CRS.from_wkt(str(definition))
    notes = (f"Of {layers:,} layers {table} was taken.",) if layers > 1 else ()
    return _Read(features=features, crs=crs, notes=notes)


def _reads_tables_alone(
    action: int, _first: str | None, _second: str | None, _base: str | None, within: str | None
) -> int:
    """Let SQLite read columns, none of them through a view or a trigger, and call no function."""
    reads = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) and within is None
    return sqlite3.SQLITE_OK if reads else sqlite3.SQLITE_DENY


def _check_table(store: sqlite3.Connection, table: str) -> None:
    """Refuse a layer that is no plain table: a view or a virtual table may compute anything."""
    found = store.execute(
        "SELECT type, sql FROM sqlite_schema WHERE name = ? COLLATE NOCASE", (table,)
    ).fetchone()
    kind, sql = found or ("", "")
    if kind != "table" or [word.upper() for word in str(sql).split()[:2]] != ["CREATE", "TABLE"]:
        raise RegionFileError(
            f"the GeoPackage's layer {table[:60]!r} is no table of features but computed; export "
            "it into a table"
        )


def _of_blob(blob: bytes) -> BaseGeometry:
    """Read a geometry without its header, whose flags say how long its box is (section 2.1.3.1)."""
    if blob[:2] != b"GP":
        raise ValueError("a geometry does not begin as one of GeoPackage")
    numbers = (0, 4, 6, 6, 8)[(blob[3] >> 1) & 7]
    wkb = blob[8 + 8 * numbers :]
    _check_parts(wkb)
    return shapely.from_wkb(wkb)


def _check_levels(text: str) -> None:
    """Raise ValueError for WKT with too many levels of brackets, which would crash GEOS."""
    letters = np.frombuffer(text.encode(), np.uint8)
    steps = (letters == ord("(")).astype(np.int32) - (letters == ord(")"))
    if np.cumsum(steps).max(initial=0) > _LEVELS:
        raise ValueError(f"its brackets are nested more than {_LEVELS} levels deep")


def _check_parts(wkb: bytes) -> None:
    """Raise ValueError for WKB whose parts have parts of their own, which may crash GEOS.

    The parts of a collection are walked by their sizes (OGC 06-103r4, 8.2.3).
    """
    waiting, at = [1], 0  # parts still to come, by level
    while waiting:
        if not waiting[-1]:
            waiting.pop()
            continue
        waiting[-1] -= 1
        order = "<" if wkb[at] else ">"
        (code,) = struct.unpack_from(f"{order}I", wkb, at + 1)
        kind, dimensions = code % 1000, 2 + (0, 1, 1, 2)[code // 1000 % 4]
        at += 5
        if kind == _POINT:
            at += 8 * dimensions
            continue
        (count,) = struct.unpack_from(f"{order}I", wkb, at)
        at += 4
        if kind == _LINE:
            at += 8 * dimensions * count
        elif kind == _POLYGON:
            for _ in range(count):
                (vertices,) = struct.unpack_from(f"{order}I", wkb, at)
                at += 4 + 8 * dimensions * vertices
        elif kind <= _COLLECTION and len(waiting) <= _PARTS:
            waiting.append(count)
        else:
            raise ValueError("a geometry cannot be read, or its parts have parts of their own")


def _of_geojson(document: object) -> _Read:
    _check_positions(document)
    crs = None
    if isinstance(document, dict) and isinstance(document.get("crs"), dict):
        said = (document["crs"].get("properties") or {}).get("name", _DEGREES)
        crs = CRS.from_user_input(str(said))  # of GeoJSON before RFC 7946
    return _Read(features=[*_some(_geojson_features(document))], crs=crs)


def _check_positions(document: object) -> None:
    """Count the positions of GeoJSON before geometries are made of them, which takes far longer.

    Raises RegionFileError for more than a region has.
    """
    points, others, waiting = 0, 0, [document]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict):
            continue
        inner = [*_list(one.get("features")), *_list(one.get("geometries")), one.get("geometry")]
        waiting.extend(inner)
        count = _positions(one.get("coordinates"))
        if one.get("type") in ("Point", "MultiPoint"):
            points += count
        else:
            others += count
    if points + others > _MOST_VERTICES:
        raise RegionFileError(
            f"the file has more than {_MOST_VERTICES:,} vertices; simplify its polygons"
        )
    if points > MOST_SITES and not others:
        raise RegionFileError(
            f"the file has {points:,} points, and a request {MOST_SITES:,} sites at most; give "
            "fewer, or the polygon around them"
        )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _positions(coordinates: object) -> int:
    count, waiting = 0, [coordinates]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list) and one:
            if isinstance(one[0], list):
                waiting.extend(one)
            else:
                count += 1
    return count


def _geojson_features(document: object) -> Iterator[tuple[BaseGeometry, str]]:
    if not isinstance(document, dict):
        raise ValueError("it has something else where a geometry belongs")
    if document.get("type") == "FeatureCollection":
        for feature in document.get("features") or ():
            yield from _geojson_features(feature)
    elif document.get("type") == "Feature":
        if document.get("geometry") is not None:
            yield shape(document["geometry"]), _name_in(document.get("properties") or {})
    elif isinstance(document.get("type"), str):
        yield shape(document), ""
    else:
        raise ValueError("it is JSON without a type, so no GeoJSON")


def _of_kml(text: str) -> _Read:
    """Read polygons and points of all placemarks (OGC KML 2.3, section 10)."""
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise RegionFileError("the file declares a document type, which no KML needs; leave it out")
    root = ET.fromstring(text)
    if not root.tag.lower().endswith("kml") and not any(True for _ in _tags(root, "coordinates")):
        raise RegionFileError(f"the file is XML, but no KML: its element is {root.tag[:60]!r}")
    features: list[tuple[BaseGeometry, str]] = []
    for place in _tags(root, "Placemark"):
        name = next((one.text or "" for one in _tags(place, "name")), "").strip()
        for polygon in _tags(place, "Polygon"):
            shell, *holes = (
                _coordinates(one)
                for side in ("outerBoundaryIs", "innerBoundaryIs")
                for boundary in _tags(polygon, side)
                for one in _tags(boundary, "coordinates")
            )
            features.append((Polygon(shell, holes), name))
        points = [*_tags(place, "Point")]
        features += [
            (Point(_coordinates(c)[0]), name) for p in points for c in _tags(p, "coordinates")
        ]
    return _Read(features=[*_some(features)])


def _tags(root: ET.Element, name: str) -> Iterator[ET.Element]:
    return (one for one in root.iter() if one.tag.rpartition("}")[2] == name)


def _coordinates(element: ET.Element) -> list[tuple[float, float]]:
    points = (point.split(",") for point in (element.text or "").split())
    return [(float(lon), float(lat)) for lon, lat, *_ in points]


def _name_in(properties: Mapping[str, object]) -> str:
    lower = {key.lower(): value for key, value in properties.items()}
    return next((str(lower[n]) for n in ("id", "site", "site_id", "name") if lower.get(n)), "")


def _some(features: Iterable[_T]) -> Iterator[_T]:
    """Yield features; refuse more than a region has."""
    for number, feature in enumerate(features):
        if number >= _MOST_FEATURES:
            raise RegionFileError(
                f"the file has more than {_MOST_FEATURES:,} features; give those of the region"
            )
        yield feature


def _check(read: _Read) -> None:
    """Raise RegionFileError for more vertices than are read, and for places that are nowhere."""
    geometries = [one for one, _ in read.features]
    if sum(int(shapely.get_num_coordinates(one)) for one in geometries) > _MOST_VERTICES:
        raise RegionFileError(
            f"the file has more than {_MOST_VERTICES:,} vertices; simplify its polygons"
        )
    for one in geometries:
        if not one.is_empty and not np.abs(one.bounds).max() < _FARTHEST:
            raise RegionFileError("the file has coordinates that are not on the Earth")


def _region(read: _Read) -> ReadRegion:
    """Make one region of features: of their polygons, or of their points."""
    _check(read)
    geometries = [shapely.force_2d(one) for one, _ in read.features]
    to_degrees = _transformer(read.crs)
    named = [
        (part, name)
        for one, (_, name) in zip(geometries, read.features, strict=True)
        for part in _parts(one)
    ]
    areas = [part for part, _ in named if isinstance(part, Polygon) and not part.is_empty]
    points = [(part, name) for part, name in named if isinstance(part, Point) and not part.is_empty]
    if areas:
        return _of_areas(areas, to_degrees, read.notes)
    if points:
        return _of_points(points, to_degrees, read.notes)
    kinds = sorted({part.geom_type for part, _ in named})
    has = f"has {' and '.join(kinds)} alone" if kinds else "has no geometry"
    raise RegionFileError(f"the file {has}; a region is made of polygons, or of points as sites")


def _apart(read: _Read) -> ReadFeatures:
    """Keep features apart: the polygons of each one are one, and so is each point."""
    to_degrees = _transformer(read.crs)
    notes, features, vertices = list(read.notes), [], 0
    names: set[str] = set()
    for number, (geometry, named) in enumerate(read.features, 1):
        for one in _places(shapely.force_2d(geometry)):
            placed = to_degrees(one)
            own = f"polygon {number}" if isinstance(one, Area) else f"point {number}"
            name = _unlike(named.strip()[:_LONGEST_NAME] or own, names)
            if isinstance(placed, Area):
                placed, mended = _on_earth(placed, name)
                notes += [f"{name} crossed itself and was mended."] if mended else []
            vertices += int(shapely.get_num_coordinates(placed))
            _check_bounds(placed, name)
            features.append((name, json.loads(shapely.to_geojson(placed))))
    if not features:
        raise RegionFileError("the file has no polygon and no point; give some")
    if len(features) > MOST_APART:
        raise RegionFileError(
            f"the file has {len(features):,} polygons and points, and {MOST_APART} are the most; "
            "ask several times, or request the package zonal-statistics"
        )
    if vertices > MAX_VERTICES:
        raise RegionFileError(
            f"the polygons have {vertices:,} vertices, and {MAX_VERTICES:,} are the most; simplify "
            "them: a pixel is coarser than that"
        )
    return ReadFeatures(features=tuple(features), notes=tuple(notes))


def _unlike(name: str, names: set[str]) -> str:
    """Return a name that no other has, and note it."""
    made, number = name, 1
    while made in names:
        number += 1
        made = f"{name} {number}"
    names.add(made)
    return made


def _places(geometry: BaseGeometry) -> Iterator[BaseGeometry]:
    """Yield the polygons of a geometry as one, and each of its points."""
    parts = [*_parts(geometry)]
    polygons = [part for part in parts if isinstance(part, Polygon) and not part.is_empty]
    if polygons:
        yield polygons[0] if len(polygons) == 1 else MultiPolygon(polygons)
    yield from (part for part in parts if isinstance(part, Point) and not part.is_empty)


def _on_earth(area: Area, name: str) -> tuple[Area, bool]:
    """Return a polygon that is valid, within 180 degrees, and whether it was mended.

    Raises RegionFileError for one without an area, or with an edge that could run either way.
    """
    if (long_one := long_edge(area)) is not None:
        raise RegionFileError(
            f"{name} has an edge from longitude {long_one[0]:g} to {long_one[1]:g}, and it is not "
            "clear which way around the Earth it runs; cut the polygon at 180, or give the edge a "
            "vertex at longitude 0"
        )
    mended = not area.is_valid
    whole = union(shapely.make_valid(area)) if mended else area
    if not whole.area > 0.0:
        raise RegionFileError(f"{name} has no area; give it three corners or more")
    return cut_at_antimeridian(whole), mended


def _check_bounds(geometry: BaseGeometry, name: str) -> None:
    west, south, east, north = geometry.bounds
    if not (west >= -180 and east <= 180 and south >= -90 and north <= 90):
        raise RegionFileError(
            f"{name} reaches from {west:g}, {south:g} to {east:g}, {north:g}, off the Earth; give "
            "longitude, then latitude, in degrees"
        )


def _parts(geometry: BaseGeometry) -> Iterator[BaseGeometry]:
    for part in shapely.get_parts(geometry):
        if shapely.get_type_id(part) > 3:  # a collection within a collection
            yield from _parts(part)
        else:
            yield part


_Change = Callable[[BaseGeometry], BaseGeometry]


def _transformer(crs: CRS | None) -> _Change:
    if crs is None or crs == CRS.from_user_input("OGC:CRS84") or crs.to_epsg() == 4326:
        return lambda geometry: geometry
    there = Transformer.from_crs(crs, _DEGREES, always_xy=True)

    def change(geometry: BaseGeometry) -> BaseGeometry:
        west, south, east, north = geometry.bounds
        side = max(east - west, north - south)
        if crs.is_projected and side > 0 and shapely.get_num_coordinates(geometry) < _SPARSE:
            geometry = shapely.segmentize(geometry, side / _PIECES)
        return shapely.transform(
            geometry,
            lambda xy: np.stack(there.transform(xy[:, 0], xy[:, 1], errcheck=True), axis=-1),
        )

    return change


def _of_areas(areas: list[Polygon], change: _Change, notes: tuple[str, ...]) -> ReadRegion:
    changed = [change(area) for area in areas]
    if any(not area.is_valid for area in changed):
        notes += ("Polygons that crossed themselves were mended.",)
    whole: Area = union(*(shapely.make_valid(area) for area in changed))
    if whole.is_empty:
        raise RegionFileError("the polygons have no area; give each three corners or more")
    before = int(shapely.get_num_coordinates(whole))
    whole, moved = simplified(whole)
    after = int(shapely.get_num_coordinates(whole))
    if after > MAX_VERTICES:
        raise RegionFileError(
            f"the polygons have {before:,} vertices, and {after:,} when simplified to 1 km; "
            f"{MAX_VERTICES:,} are the most: give fewer polygons, or a box around them"
        )
    if moved:
        notes += (
            f"The outline was simplified from {before:,} to {after:,} vertices, by at most "
            f"{moved:g} degree.",
        )
    if isinstance(whole, MultiPolygon) and len(whole.geoms) > 1:
        notes = (f"{len(whole.geoms):,} polygons.", *notes)
    text = json.dumps(mapping(cut_at_antimeridian(whole)))
    geojson = json.loads(text, parse_float=lambda digits: round(float(digits), 6))
    return ReadRegion(geojson=geojson, notes=notes)


def _of_points(
    points: list[tuple[Point, str]], change: _Change, notes: tuple[str, ...]
) -> ReadRegion:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "latitude", "longitude"])
    seen: set[str] = set()
    for number, (point, name) in enumerate(points, 1):
        (lon, lat), *_ = shapely.get_coordinates(change(point)).tolist()
        own = name if name and name not in seen else f"{name} {number}".strip()
        seen.add(own)
        writer.writerow([own[:100], round(lat, 6), round(lon, 6)])
    parse_sites(text.getvalue())
    return ReadRegion(sites=text.getvalue(), notes=notes)
