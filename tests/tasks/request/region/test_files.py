"""Regions from files: each notation gives the same area, hostile ones give an error in words."""

import io
import json
import sqlite3
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import shapefile
import shapely
from pyproj import Transformer
from shapely.geometry import shape

from tasks.errors import RequestRefusedError
from tasks.request.document import parse_request
from tasks.request.region import files
from tasks.request.region.files import RegionFileError, names_file, read_features, read_region
from tasks.request.region.kinds import region_area
from tasks.request.request_file import load_request
from tasks.request.sites import parse_sites

FIELD = shapely.from_wkt("POLYGON ((5 50, 8 50, 8 53, 5 53, 5 50), (6 51, 7 51, 7 52, 6 52, 6 51))")
UTM = "EPSG:32632"


def projected(geometry: shapely.Geometry, crs: str) -> shapely.Geometry:
    there = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    dense = shapely.segmentize(geometry, 0.01)
    xy = shapely.get_coordinates(dense)
    return shapely.set_coordinates(dense, np.stack(there.transform(*xy.T), axis=-1))


def prj(crs: str) -> str:
    from pyproj import CRS

    return CRS.from_user_input(crs).to_wkt("WKT1_ESRI")


def zipped_shapefile(
    geometry: shapely.Geometry, wkt: str | None, folder: str = "my fields/", name: str = "A"
) -> bytes:
    parts = {kind: io.BytesIO() for kind in ("shp", "shx", "dbf")}
    with shapefile.Writer(**parts) as writer:
        writer.field("NAME", "C")
        for part in shapely.get_parts(geometry):
            if part.geom_type == "Point":
                writer.point(part.x, part.y)
            else:
                writer.shape(shapely.geometry.mapping(part))
            writer.record(name)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for kind, content in parts.items():
            archive.writestr(f"{folder}Fields.{kind}", content.getvalue())
        if wkt is not None:
            archive.writestr(f"{folder}Fields.prj", wkt)
    return made.getvalue()


def geopackage(geometry: shapely.Geometry | bytes, epsg: int, *, layers: int = 1) -> bytes:
    """A GeoPackage by its specification; a box of two axes stands in each geometry's header."""
    wkb = geometry if isinstance(geometry, bytes) else shapely.to_wkb(geometry)
    store = sqlite3.connect(":memory:")
    store.executescript(
        "CREATE TABLE gpkg_spatial_ref_sys (srs_name, srs_id INTEGER, organization, "
        "organization_coordsys_id INTEGER, definition, description);"
        "CREATE TABLE gpkg_geometry_columns (table_name, column_name, geometry_type_name, srs_id, "
        "z, m);"
    )
    store.execute(
        "INSERT INTO gpkg_spatial_ref_sys VALUES ('x', ?, 'EPSG', ?, 'undefined', '')", (epsg, epsg)
    )
    for number in range(layers):
        table = f'the "field" {number}'
        quoted = table.replace('"', '""')
        store.execute(f'CREATE TABLE "{quoted}" (fid INTEGER, name TEXT, geom BLOB)')
        store.execute(
            "INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', 'POLYGON', ?, 0, 0)",
            (table, epsg),
        )
        header = b"GP\x00" + bytes([0b011]) + epsg.to_bytes(4, "little") + bytes(32)
        store.execute(f'INSERT INTO "{quoted}" VALUES (1, ?, ?)', ("A", header + wkb))
    store.commit()
    data = bytearray(store.serialize())
    data[18:20] = b"\x02\x02"  # as QGIS leaves them, in write-ahead mode
    return bytes(data)


KML = """<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2"><Document><Placemark><name>A</name><MultiGeometry>
<Polygon><outerBoundaryIs><LinearRing><coordinates>
5,50,0 8,50,0 8,53,0 5,53,0 5,50,0</coordinates></LinearRing></outerBoundaryIs>
<innerBoundaryIs><LinearRing><coordinates>6,51 7,51 7,52 6,52 6,51</coordinates></LinearRing>
</innerBoundaryIs></Polygon></MultiGeometry></Placemark></Document></kml>"""


def kmz() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("doc.kml", KML)
    return made.getvalue()


def old_geojson(crs: str) -> bytes:
    """GeoJSON before RFC 7946, which names its coordinate reference system."""
    named = {"type": "name", "properties": {"name": f"urn:ogc:def:crs:{crs.replace(':', '::')}"}}
    geometry = json.loads(shapely.to_geojson(projected(FIELD, crs)))
    feature = {"type": "Feature", "properties": {}, "geometry": geometry}
    return json.dumps({"type": "FeatureCollection", "crs": named, "features": [feature]}).encode()


CASES = {
    "geojson": shapely.to_geojson(FIELD).encode(),
    "old geojson": old_geojson(UTM),
    "wkt": FIELD.wkt.encode(),
    "ewkt": b"SRID=32632;" + shapely.to_wkt(projected(FIELD, UTM), 6).encode(),
    "kml": KML.encode(),
    "kmz": kmz(),
    "shapefile": zipped_shapefile(FIELD, prj("EPSG:4326")),
    "shapefile in metres": zipped_shapefile(projected(FIELD, UTM), prj(UTM)),
    "shapefile without prj": zipped_shapefile(FIELD, None, folder=""),
    "geopackage": geopackage(FIELD, 4326),
    "geopackage in metres": geopackage(projected(FIELD, UTM), 32632, layers=2),
}


@pytest.mark.parametrize("name", CASES)
def test_each_notation_gives_the_same_area(name: str) -> None:
    read = read_region(CASES[name], name)
    assert read.geojson is not None
    area = shape(read.geojson)
    assert area.is_valid
    assert area.symmetric_difference(FIELD).area < 1e-4 * FIELD.area
    # It is what a request may have for its region.
    made = {**REQUEST, "region": {"geojson": read.geojson}}
    assert region_area(parse_request(made).region).equals(area)


def test_what_is_assumed_or_left_out_is_said() -> None:
    assert "no .prj file" in read_region(CASES["shapefile without prj"]).notes[0]
    assert read_region(CASES["geopackage in metres"]).notes == (
        'Of 2 layers the "field" 0 was taken.',
    )


def test_an_outline_of_too_many_vertices_is_simplified_and_the_shift_is_said() -> None:
    island = shapely.Point(20, 60).buffer(5, quad_segs=10_000)
    read = read_region(island.wkt.encode())
    simple = shape(read.geojson or {})
    assert shapely.get_num_coordinates(simple) <= 20_000
    assert simple.hausdorff_distance(island) < 0.0011
    assert "simplified from 40,001 to" in read.notes[0]


def test_fields_that_cannot_be_simplified_are_refused() -> None:
    fields = [shapely.box(x / 4, y, x / 4 + 0.1, y + 0.5) for x in range(150) for y in range(40)]
    with pytest.raises(RegionFileError, match=r"20,000 are the most: give fewer polygons"):
        read_region(shapely.MultiPolygon(fields).wkt.encode())


def test_crossed_polygons_are_mended() -> None:
    read = read_region(b"POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))")
    assert shape(read.geojson or {}).area == pytest.approx(2.0)
    assert "Polygons that crossed themselves were mended." in read.notes


def test_points_become_sites_with_ids() -> None:
    points = shapely.MultiPoint([(5, 50), (6, 51)])
    metres = zipped_shapefile(projected(points, UTM), prj(UTM), name="Tower")
    assert read_region(metres).sites == (
        "id,latitude,longitude\nTower,50.0,5.0\nTower 2,51.0,6.0\n"
    )
    assert read_region(b"MULTIPOINT (5 50, 6 51)").sites.splitlines()[1] == "1,50.0,5.0"
    table = "id,latitude,longitude\nmoor,56.6,-4\n"
    assert read_region(table.encode()).sites == table.strip()


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b"LINESTRING (0 0, 1 1)", "", "has LineString alone"),
        (b'{"type": "FeatureCollection", "features": []}', "", "has no geometry"),
        (b"<html></html>", "a.html", "is XML, but no KML"),
        (b'<!DOCTYPE kml [<!ENTITY a "b">]><kml/>', "a.kml", "declares a document type"),
        (b"\x00\x00\x27\x0a" + bytes(96), "fields.shp", "zip the .shp, .shx, .dbf and .prj"),
        (b"\xff\xfe\x00", "picture.png", "picture.png cannot be read"),
        (b"\x89PNG\r\n\x1a\n\xff", "picture.png", "picture.png is a PNG picture, which has no"),
        (b"II*\x00" + bytes(40), "dem.tif", "dem.tif is a TIFF raster, which has no region"),
        (b" \n", "none.csv", "none.csv is empty; give GeoJSON"),
        (b'{"type": "Polygon", "coord', "a.json", "damaged or cut GeoJSON: line 1, column 21"),
        (b"<kml><a", "a.kml", "a.kml is damaged or cut KML: unclosed token"),
        (b"PK\x05\x06" + bytes(3), "a.zip", "a.zip is a damaged or cut ZIP archive"),
        (b"PK\x03\x04broken\x00", "a.zip", "a.zip is a damaged or cut ZIP archive"),
        (CASES["shapefile"][:-200], "a.zip", "a.zip is a damaged or cut ZIP archive"),
        (CASES["geopackage"][:5000], "a.gpkg", "a.gpkg cannot be read"),
        (b"SRID=99999999;POLYGON ((0 0, 1 0, 1 1, 0 0))", "", "cannot be read"),
        (b"POLYGON ((0 0, 1 0", "", "cannot be read"),
        (b"x" * (files.MOST_BYTES + 1), "", "larger than 32 MiB"),
    ],
    ids=range(18),  # not by content: an archive holds the time at which it was made
)
def test_other_files_are_refused_in_words(data: bytes, name: str, said: str) -> None:
    with pytest.raises(RegionFileError, match=said.replace(".", r"\.")):
        read_region(data, name)


def test_an_archive_that_unpacks_to_more_than_it_may_is_refused() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.shp", bytes(files.MOST_BYTES + 1))
    with pytest.raises(RegionFileError, match="larger than 32 MiB unpacked"):
        read_region(made.getvalue())


def test_a_geopackage_that_takes_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_SQLITE_STEPS", 0)
    store = sqlite3.connect(":memory:")
    store.executescript(
        "CREATE TABLE gpkg_spatial_ref_sys (srs_id, organization, organization_coordsys_id, "
        "definition);"
        "CREATE TABLE gpkg_geometry_columns AS WITH RECURSIVE n(i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) "
        "SELECT 'a' AS table_name, i AS column_name, 4326 AS srs_id FROM n;"
    )
    with pytest.raises(RegionFileError, match="interrupted"):
        read_region(store.serialize(), "a.gpkg")


def test_a_file_has_a_bounded_number_of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_FEATURES", 2)
    many = {"type": "FeatureCollection", "features": [json.loads(shapely.to_geojson(FIELD))] * 3}
    with pytest.raises(RegionFileError, match="more than 2 features"):
        read_region(json.dumps(many).encode())


def test_a_layer_is_found_among_any_number_of_tables() -> None:
    made = geopackage(FIELD, 4326, layers=1001)
    assert read_region(made).notes == ('Of 1,001 layers the "field" 0 was taken.',)


@pytest.mark.parametrize("notation", ["geojson", "wkt", "geopackage"])
def test_a_file_has_a_bounded_number_of_vertices(
    monkeypatch: pytest.MonkeyPatch, notation: str
) -> None:
    assert files._MOST_VERTICES == 2_000_000
    monkeypatch.setattr(files, "_MOST_VERTICES", 10)
    assert read_region(CASES[notation]).geojson is not None
    monkeypatch.setattr(files, "_MOST_VERTICES", 9)
    monkeypatch.setattr(files, "_geojson_features", None)  # counted before one is made
    with pytest.raises(RegionFileError, match="has more than 9 vertices; simplify its polygons"):
        read_region(CASES[notation])


def test_more_points_than_a_request_has_sites_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_SITES", 2)
    points = shapely.MultiPoint([(5, 50), (6, 51)])
    assert len(read_region(shapely.to_geojson(points).encode()).sites.splitlines()) == 3
    more = shapely.MultiPoint([(5, 50), (6, 51), (7, 52)])
    with pytest.raises(RegionFileError, match="has 3 points, and a request 2 sites at most"):
        read_region(shapely.to_geojson(more).encode())


REQUEST = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "time": {"start": "2012-01-01", "end": "2012-01-31"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}


@pytest.mark.parametrize("text", [FIELD.wkt, KML, shapely.to_geojson(FIELD)])
def test_a_document_takes_the_text_of_a_polygon(text: str) -> None:
    region = parse_request({**REQUEST, "region": {"geojson": text, "clip": True}}).region
    assert region_area(region).equals(FIELD)
    assert region.geojson is not None  # what is stored is always GeoJSON
    assert region.geojson["type"] == "Polygon"


def test_points_are_no_polygon() -> None:
    with pytest.raises(RequestRefusedError) as refused:
        parse_request({**REQUEST, "region": {"geojson": "POINT (5 50)"}})
    assert refused.value.field == "region.geojson"
    assert "Give them as sites" in refused.value.remedy


def test_a_document_names_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "my fields.zip").write_bytes(CASES["shapefile in metres"])
    (tmp_path / "towers.gpkg").write_bytes(geopackage(shapely.Point(5, 50), 4326))
    document = tmp_path / "request.json"
    document.write_text(json.dumps({**REQUEST, "region": {"geojson": "my fields.zip"}}))
    area = region_area(load_request(document).region)
    assert area.symmetric_difference(FIELD).area < 1e-4
    without_grid = {name: part for name, part in REQUEST.items() if name != "grid"}
    document.write_text(json.dumps({**without_grid, "region": {"sites": "towers.gpkg"}}))
    assert load_request(document).region.sites == "id,latitude,longitude\nA,50.0,5.0"
    document.write_text(json.dumps({**REQUEST, "region": {"geojson": "towers.gpkg"}}))
    with pytest.raises(RequestRefusedError, match=r"Give it as region\.sites"):
        load_request(document)
    document.write_text(json.dumps({**without_grid, "region": {"sites": "my fields.zip"}}))
    with pytest.raises(RequestRefusedError, match=r"Give it as region\.geojson"):
        load_request(document)
    document.write_text(json.dumps({**REQUEST, "region": {"geojson": "a\0b.zip"}}))
    with pytest.raises(RequestRefusedError, match="cannot be read"):
        load_request(document)


def test_a_file_takes_the_place_of_a_documents_region(tmp_path: Path) -> None:
    document = tmp_path / "request.json"
    document.write_text(json.dumps({**REQUEST, "region": {"tiles": ["h18v03"], "clip": True}}))
    field = tmp_path / "field.kml"
    field.write_text(KML)
    region = load_request(document, field).region
    assert region_area(region).equals(FIELD)
    assert region.clip
    with pytest.raises(RequestRefusedError, match=r"absent\.kml .* No such file.*Correct the path"):
        load_request(document, tmp_path / "absent.kml")
    ring = tmp_path / "ring.json"
    ring.write_text('{"type": "Polygon", "coordinates": [[[5, 50], [6, 50]]]}')
    with pytest.raises(RequestRefusedError) as refused:
        load_request(document, ring)
    assert refused.value.problem.startswith("ring.json cannot be read: ")  # named once
    assert not refused.value.problem.endswith("..")


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("fields.zip", True),
        ("Ireland", False),
        ("POLYGON ((0 0.5))", False),
        ("<kml/>", False),
        ("a.csv\nb.csv", False),
    ],
)
def test_names_of_files_are_told_from_regions(text: str, is_name: bool) -> None:
    assert names_file(text) is is_name


@pytest.mark.parametrize("west", [170.0, -190.0])
def test_polygons_beyond_180_degrees_are_cut_there(west: float) -> None:
    field = shapely.box(west, -20, west + 20, -10)
    read = read_region(shapely.to_geojson(field).encode())
    assert read.geojson is not None
    area = shape(read.geojson)
    assert area.bounds == (-180, -20, 180, -10)
    assert area.area == 200
    made = parse_request({**REQUEST, "region": {"geojson": read.geojson}})
    assert region_area(made.region).bounds == (170, -20, 190, -10)


DEEP = 100_000  # levels, with which GEOS ends the process


def test_wkt_nested_too_deeply_is_refused() -> None:
    text = "GEOMETRYCOLLECTION(" * DEEP + "POINT(1 1)" + ")" * DEEP
    with pytest.raises(RegionFileError, match="nested more than 8 levels deep"):
        read_region(text.encode())


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
@pytest.mark.parametrize("order", ["<", ">"])
def test_wkb_nested_too_deeply_is_refused(kind: int, order: str) -> None:
    level = struct.pack(f"{order}BII", order == "<", kind, 1)
    wkb = level * DEEP + shapely.to_wkb(shapely.Point(5, 50))
    with pytest.raises(RegionFileError, match="parts of their own"):
        read_region(geopackage(wkb, 4326), "a.gpkg")


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_collection_of_multipolygons_with_holes_is_read(dimensions: int) -> None:
    fields = shapely.union_all([FIELD, shapely.box(20, 50, 21, 51)])
    collection = shapely.GeometryCollection([fields, shapely.box(30, 50, 31, 51)])
    collection = shapely.force_3d(collection) if dimensions == 3 else collection
    wkb = shapely.to_wkb(collection, flavor="iso")
    area = shapely.union_all([fields, shapely.box(30, 50, 31, 51)])
    for data, name in ((geopackage(wkb, 4326), "a.gpkg"), (collection.wkt.encode(), "")):
        assert shapely.equals(shape(read_region(data, name).geojson or {}), area)


def test_brackets_nest_so_many_levels() -> None:
    files._check_levels("(" * files._LEVELS + ")" * files._LEVELS)
    with pytest.raises(ValueError, match="nested more than 8 levels deep"):
        files._check_levels("(" * 9 + ")" * 9)


@pytest.mark.parametrize(("far", "said"), [(1e9, "not on the Earth"), (9.9e8, "cannot be read")])
def test_coordinates_lie_so_far_at_most(far: float, said: str) -> None:
    assert files._FARTHEST == 1e9
    text = f"SRID=32632;POLYGON (({far} 0, {far} 9, 9 9, {far} 0))"
    with pytest.raises(RegionFileError) as refused:
        read_region(text.encode())
    assert ("not on the Earth" in str(refused.value)) == (said == "not on the Earth")


def test_sites_nested_too_deeply_are_refused() -> None:
    with pytest.raises(ValueError, match="not GeoJSON"):
        parse_sites('{"a":' * DEEP + "0" + "}" * DEEP)


def test_features_are_kept_apart_with_names_of_their_own() -> None:
    box = {"type": "Polygon", "coordinates": [[[5, 50], [6, 50], [6, 51], [5, 50]]]}
    far = {"type": "Polygon", "coordinates": [[[179, 0], [181, 0], [181, 1], [179, 1], [179, 0]]]}
    bow = {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}
    point = {"type": "Point", "coordinates": [5, 50]}
    both = {"type": "GeometryCollection", "geometries": [point, box]}
    given = {
        "type": "FeatureCollection",
        "features": [
            {"type": "Feature", "properties": {"name": name}, "geometry": geometry}
            for name, geometry in (
                ("a", box),
                ("a", far),
                ("", bow),
                ("n" * 101, point),
                ("both", both),
            )
        ],
    }
    read = read_features(json.dumps(given).encode())
    names = [name for name, _ in read.features]
    assert names == ["a", "a 2", "polygon 3", "n" * files._LONGEST_NAME, "both", "both 2"]
    shapes = [shape(geometry) for _, geometry in read.features]
    assert [one.geom_type for one in shapes] == [
        *("Polygon", "MultiPolygon", "MultiPolygon", "Point", "Polygon", "Point")
    ]
    assert shapes[1].bounds == (-180, 0, 180, 1)
    assert read.notes == ("polygon 3 crossed itself and was mended.",)
    assert read_features(b"id,lat,lon\nx,50,5\n").features[0][0] == "x"


def test_so_many_features_and_vertices_are_kept_apart_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boxes = [shapely.box(n, 0, n + 1, 1) for n in range(files.MOST_APART + 1)]
    wkt = shapely.geometrycollections(boxes)

    def lines(count: int) -> bytes:
        named = [
            {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(one)}
            for one in boxes[:count]
        ]
        return json.dumps({"type": "FeatureCollection", "features": named}).encode()

    assert len(read_features(wkt.wkt.encode()).features) == 1
    assert len(read_features(lines(files.MOST_APART)).features) == files.MOST_APART
    with pytest.raises(RegionFileError, match="51 polygons and points, and 50 are the most"):
        read_features(lines(files.MOST_APART + 1))
    monkeypatch.setattr(files, "MAX_VERTICES", 10)
    assert len(read_features(lines(2)).features) == 2
    with pytest.raises(RegionFileError, match="15 vertices, and 10 are the most"):
        read_features(lines(3))
