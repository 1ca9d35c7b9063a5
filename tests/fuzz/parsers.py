"""What reads strangers' bytes, each with documents to damage and the errors that it may raise.

A parser is called as the product calls it: with the errors that its caller expects, and no others.
"""

import io
import json
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml
from pyhdf.SD import SD, SDC

from archives.errors import ArchiveError
from archives.formats.geometa import read_geometa
from archives.formats.granule_file import check_granule_file
from archives.formats.sidecar import parse_sidecar
from archives.formats.umm import collection_of, record_of
from archives.kinds import laads
from modis.collection import Collection
from modis.granule_name import parse_granule_name
from portal.serving.problems import BadCallError
from portal.standards.datetimes import Interval
from reprojection.errors import GridError, UnreadableGranuleError
from reprojection.formats.hdf4_data import DamagedStreamError, StoredData
from reprojection.formats.structmetadata import parse_structure
from tasks.errors import RequestRefusedError
from tasks.packages.packages import MANIFEST, PackageError, load_package
from tasks.request.measurements import MeasurementsError, read_measurements
from tasks.request.region.files import RegionFileError, read_features, read_region
from tasks.request.request_file import load_request
from tests.archives.catalogues import umm, umm_collection, umm_l2p

ROOT = Path(__file__).parents[2]
CMR = (KeyError, ValueError, TypeError, AttributeError)
"""What `archives.kinds.cmr` takes for a broken answer."""
START = datetime(2012, 2, 10, 10, 5, tzinfo=UTC)
RING = ((0.0, 50.0), (8.0, 50.0), (8.0, 55.0), (0.0, 55.0))


@dataclass(frozen=True, kw_only=True)
class Parser:
    """A parser: `seeds` are whole documents, `words` what belongs into them, `errors` its own.

    With `as_json` a document is damaged as values, not as text.
    """

    parse: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    words: Sequence[bytes] = ()
    errors: tuple[type[Exception], ...] = ()
    as_json: bool = False


def text(data: bytes) -> str:
    """Decode as the product does what it takes from elsewhere."""
    return data.decode("utf-8", "replace")


# --- Granules and archives ---

ODL = b"""GROUP=SwathStructure
  GROUP=SWATH_1
    SwathName="mod04"
    GROUP=Dimension
      OBJECT=Dimension_1
        DimensionName="Cell_Along_Swath"
        Size=203
      END_OBJECT=Dimension_1
    END_GROUP=Dimension
    GROUP=DimensionMap
      OBJECT=DimensionMap_1
        GeoDimension="a"
        DataDimension="b"
        Offset=2
        Increment=5
      END_OBJECT=DimensionMap_1
    END_GROUP=DimensionMap
    GROUP=DataField
      OBJECT=DataField_1
        DataFieldName="Optical_Depth"
        DataType=DFNT_INT16
        DimList=("Cell_Along_Swath","b")
      END_OBJECT=DataField_1
    END_GROUP=DataField
  END_GROUP=SWATH_1
END_GROUP=SwathStructure
GROUP=GridStructure
  GROUP=GRID_1
    GridName="MOD_Grid_MOD15A2"
    XDim=1200
    YDim=1200
    UpperLeftPointMtrs=(0.000000,6671703.118000)
    LowerRightMtrs=(1111950.519667,5559752.598333)
    Projection=GCTP_LAMAZ
    ProjParams=(6371228.000000,0,0,0,0,90000000,0,0,0,0,0,0,0)
    GROUP=DataField
      OBJECT=DataField_1
        DataFieldName="Lai_1km"
        DataType=DFNT_UINT8
        DimList=("YDim","XDim")
      END_OBJECT=DataField_1
    END_GROUP=DataField
  END_GROUP=GRID_1
END_GROUP=GridStructure
END
"""
NUMBERS = (b"0", b"-1", b"1e308", b"1e999", b"nan", b"inf", b"99999999999999999999", b"1_0")


def structure(data: bytes) -> object:
    found = parse_structure(text(data))
    return [(grid.crs, grid.tile, grid.pixel_width) for grid in found.grids]


def hdf4(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "granule.hdf"
        path.write_bytes(data)
        stored = StoredData(path)
        try:
            return [
                stored.read(ref, shape=shape, dtype=dtype, start=(0, 0), count=shape)
                for ref, (shape, dtype) in _references().items()
            ]
        finally:
            stored.close()


@cache
def _hdf4_seed() -> tuple[bytes, dict[int, tuple[tuple[int, int], "np.dtype[Any]"]]]:
    """Return a file with a plain and a deflated data set, with shape and type by reference."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed.hdf"
        file = SD(str(path), SDC.WRITE | SDC.CREATE)
        known: dict[int, tuple[tuple[int, int], np.dtype[Any]]] = {}
        for name in ("plain", "deflated"):
            shape = (8, 6)
            sds = file.create(name, SDC.INT16, shape)
            if name == "deflated":
                sds.setcompress(SDC.COMP_DEFLATE, 6)
            sds[:] = np.arange(48, dtype=np.int16).reshape(shape)
            known[sds.ref()] = shape, np.dtype(np.int16)
            sds.endaccess()
        file.end()
        return path.read_bytes(), known


def _references() -> dict[int, tuple[tuple[int, int], "np.dtype[Any]"]]:
    return _hdf4_seed()[1]


def ends(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "granule"
        path.write_bytes(data)
        check_granule_file(path, "granule.hdf", "its address")
        return None


@cache
def _granule_files() -> tuple[bytes, ...]:
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        file["a"] = np.arange(10)
    head = b"CDF\x01" + struct.pack(">IIII4sI", 0, 10, 1, 1, b"x\0\0\0", 3)
    return _hdf4_seed()[0], memory.getvalue(), head + struct.pack(">6I", 0, 0, 11, 0, 0, 0)


GEOMETA = (
    b"# LAADS DAAC\n"
    b"# GranuleID,StartDateTime,ArchiveSet,OrbitNumber,DayNightFlag,EastBoundingCoord,"
    b"GRingLongitude1,GRingLongitude2,GRingLongitude3,GRingLongitude4,"
    b"GRingLatitude1,GRingLatitude2,GRingLatitude3,GRingLatitude4\n"
    b"MOD03.A2012041.1005.061.2017338121212.hdf,2012-02-10 10:05,61,64444,D,10.0,"
    b"0.0,8.0,8.0,0.0,50.0,50.0,55.0,55.0\n"
)
SIDECAR = b"""<?xml version="1.0"?>
<!DOCTYPE GranuleMetaDataFile SYSTEM "http://example.org/ScienceGranuleMetadata.dtd">
<GranuleMetaDataFile><GranuleURMetaData><GranuleUR>x</GranuleUR>
<CollectionMetaData><ShortName>MOD04_L2</ShortName><VersionID>6</VersionID></CollectionMetaData>
<DataFiles><DataFileContainer>
<DistributedFileName>MOD04_L2.A2012041.1005.061.2017338121212.hdf
</DistributedFileName><FileSize>12</FileSize>
<ChecksumType>CKSUM</ChecksumType><Checksum>1</Checksum>
</DataFileContainer></DataFiles><RangeDateTime><RangeEndingTime>10:10:00.0</RangeEndingTime>
<RangeEndingDate>2012-02-10</RangeEndingDate><RangeBeginningTime>10:05:00.0</RangeBeginningTime>
<RangeBeginningDate>2012-02-10</RangeBeginningDate></RangeDateTime>
<SpatialDomainContainer><HorizontalSpatialDomainContainer><GPolygon><Boundary>
<Point><PointLongitude>0</PointLongitude><PointLatitude>50</PointLatitude></Point>
<Point><PointLongitude>8</PointLongitude><PointLatitude>50</PointLatitude></Point>
<Point><PointLongitude>8</PointLongitude><PointLatitude>55</PointLatitude></Point>
</Boundary></GPolygon></HorizontalSpatialDomainContainer></SpatialDomainContainer>
</GranuleURMetaData></GranuleMetaDataFile>
"""


def granule_record(data: bytes) -> object:
    return record_of(json.loads(data), "MOD04_L2", Collection("61"), "cmr", cartesian=False)


def granule_items() -> list[bytes]:
    name = "MOD04_L2.A2012041.1005.061.2017338121212.hdf"
    other = "20120210100500-JPL-L2P_GHRSST-SSTskin-MODIS_T-D-v02.0-fv01.0.nc"
    made = [
        umm(name, START, ring=RING, data=b"abc", checksum={"Value": "1", "Algorithm": "MD5"}),
        umm_l2p(other, START, boxes=[(-8, 50, 6, 55), (170, 0, -170, 10)], ring=RING),
    ]
    return [json.dumps(one).encode() for one in made]


# --- Documents and uploads ---

KML = b"""<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2"><Document><Placemark><name>A</name><Polygon>
<outerBoundaryIs><LinearRing><coordinates>5,50,0 8,50,0 8,53,0 5,50,0</coordinates></LinearRing>
</outerBoundaryIs><innerBoundaryIs><LinearRing><coordinates>6,51 7,51 7,52 6,51</coordinates>
</LinearRing></innerBoundaryIs></Polygon></Placemark><Placemark><name>B</name><Point>
<coordinates>5,50</coordinates></Point></Placemark></Document></kml>
"""
WKT = (
    b"POLYGON ((5 50, 8 50, 8 53, 5 50), (6 51, 7 51, 7 52, 6 51))",
    b"SRID=32632;MULTIPOLYGON (((0 0, 100000 0, 100000 100000, 0 0)))",
    b"GEOMETRYCOLLECTION (POINT (5 50), POINT (6 51), MULTIPOINT ((1 2), (3 4)))",
    b"CURVEPOLYGON (CIRCULARSTRING (0 0, 4 0, 4 4, 0 4, 0 0))",
)
GEOJSON = {
    "type": "FeatureCollection",
    "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::4326"}},
    "features": [
        {
            "type": "Feature",
            "properties": {"name": "A"},
            "geometry": {"type": "Polygon", "coordinates": [[[5, 50], [8, 50], [8, 53], [5, 50]]]},
        },
        {
            "type": "Feature",
            "properties": None,
            "geometry": {"type": "Point", "coordinates": [5, 50]},
        },
    ],
}
SITES = (
    b"id,latitude,longitude,cover\nMoor,56.6,-6.7,shrubs\nBeech,51.5,-2.2,deciduous forest\n",
    b"site;lat;lon\nA;51,5;-2,2\n",
)
MEASURED = (
    b"site,time,value\nMoor,2012-04-13T10:30,1.5\nMoor,2012-04-13T11:00,-9999\n",
    b"TIMESTAMP_START,TIMESTAMP_END,value\n201204130000,201204130030,1.0\n",
    b"site,date,value\nMoor,2012-04-13,1.5\n",
)


@cache
def _geopackage() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.gpkg"
        with sqlite3.connect(path) as store:
            store.executescript(
                """
                PRAGMA application_id = 1196444487;
                PRAGMA page_size = 512;
                CREATE TABLE gpkg_contents
                    (table_name TEXT, data_type TEXT, identifier TEXT, srs_id INTEGER);
                CREATE TABLE gpkg_geometry_columns
                    (table_name TEXT, column_name TEXT, geometry_type_name TEXT, srs_id INTEGER);
                CREATE TABLE gpkg_spatial_ref_sys
                    (srs_name TEXT, srs_id INTEGER, organization TEXT,
                     organization_coordsys_id INTEGER, definition TEXT);
                INSERT INTO gpkg_contents VALUES ('areas', 'features', 'areas', 4326);
                INSERT INTO gpkg_geometry_columns VALUES ('areas', 'geom', 'POLYGON', 4326);
                INSERT INTO gpkg_spatial_ref_sys VALUES ('WGS 84', 4326, 'EPSG', 4326, '');
                CREATE TABLE areas (fid INTEGER PRIMARY KEY, geom BLOB, name TEXT);
                """
            )
            ring = struct.pack("<8d", 5, 50, 8, 50, 8, 53, 5, 50)
            blob = b"GP\x00\x01" + struct.pack("<i", 4326) + struct.pack("<BIII", 1, 3, 1, 4) + ring
            store.execute("INSERT INTO areas VALUES (1, ?, 'A')", (blob,))
        store.close()
        return path.read_bytes()


@cache
def _zipped() -> tuple[bytes, ...]:
    import shapefile

    memory = {suffix: io.BytesIO() for suffix in ("shp", "shx", "dbf")}
    with shapefile.Writer(**memory) as writer:
        writer.field("name", "C", 20)
        writer.poly([[(5, 50), (8, 53), (8, 50), (5, 50)]])
        writer.record("A")
    found = []
    for files in (
        {f"a.{suffix}": part.getvalue() for suffix, part in memory.items()},
        {"doc.kml": KML},
    ):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        found.append(made.getvalue())
    return tuple(found)


def request(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "request.yaml"
        path.write_bytes(data)
        return load_request(path)


def manifest(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MANIFEST).write_bytes(data)
        return load_package(Path(folder))


def _requests() -> list[bytes]:
    paths = [
        *sorted((ROOT / "examples").glob("*.yaml")),
        ROOT / "examples/evapotranspiration/request.yaml",
    ]
    return [path.read_bytes() for path in paths]


def _requests_as_json() -> list[bytes]:
    return [json.dumps(yaml.load(data, yaml.BaseLoader)).encode() for data in _requests()]


def _manifests() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "worker/packages").glob(f"*/{MANIFEST}"))]


def _manifests_as_json() -> list[bytes]:
    return [json.dumps(yaml.safe_load(data)).encode() for data in _manifests()]


YAML_WORDS = (
    b"&a ",
    b"*a",
    b"!!python/object:x ",
    b"{",
    b"[",
    b"- ",
    b": ",
    b"|\n",
    b"? ",
    b"<<: ",
    b"\t",
)
XML_WORDS = (b"<!DOCTYPE a>", b"<![CDATA[", b"]]>", b"&#0;", b"&lt;", b"<a>", b"</a>", b"xmlns=")

PARSERS: Mapping[str, Parser] = {
    "odl": Parser(
        parse=structure,
        seeds=lambda: [ODL],
        words=(b"GROUP=", b"END_GROUP", b"OBJECT=", b"(", b")", b'"', b"\0", b"END\n", *NUMBERS),
        errors=(UnreadableGranuleError, GridError),
    ),
    "hdf4-directory": Parser(
        parse=hdf4, seeds=lambda: [_hdf4_seed()[0]], errors=(DamagedStreamError,)
    ),
    "granule-ends": Parser(parse=ends, seeds=_granule_files, errors=(ArchiveError,)),
    "geometa": Parser(
        parse=lambda data: read_geometa(text(data)),
        seeds=lambda: [GEOMETA],
        words=(b'"', b",", *NUMBERS),
    ),
    "listing": Parser(
        parse=lambda data: laads._entries(text(data), "https://archive.example.org"),
        seeds=lambda: [
            b"name,last-modified,size,mtime,cksum,md5sum,resourceType\nMOD03.A2012041.1005.hdf,"
            b"2017-12-04,29,2017,1,d41d8cd98f00b204e9800998ecf8427e,File\n",
            b'{"content": [{"name": "MOD03.A2012041.1005.hdf", "size": 29, "md5sum": ""}]}',
        ],
        words=(b'"', b",", b"{", b"[", b"null", *NUMBERS),
        errors=(ArchiveError,),
    ),
    "datetime": Parser(
        parse=lambda data: Interval.parse(text(data)),
        seeds=lambda: [
            b"2012-04-01T00:00:00Z/2012-04-30T23:59:59+14:00",
            b"../0001-01-01T00:00:00Z",
            b"9999-12-31T23:59:59-00:30",
        ],
        words=(b"/", b"..", b"+14:00", b"-14:00", b"0001-01-01T00:00:00", b"9999-12-31T23:59:59"),
        errors=(BadCallError,),
    ),
    "sidecar": Parser(parse=parse_sidecar, seeds=lambda: [SIDECAR], words=(*XML_WORDS, *NUMBERS)),
    "granule-name": Parser(
        parse=lambda data: parse_granule_name(text(data)),
        seeds=lambda: [
            b"MOD04_L2.A2012041.1005.061.2017338121212.hdf",
            b"MOD15A2.A2012041.h17v03.005.x.hdf",
        ],
        words=(b".", b"h", b"v", b"366", b"000", "\u0661".encode()),
    ),
    "umm-granule": Parser(parse=granule_record, seeds=granule_items, errors=CMR, as_json=True),
    "umm-collection": Parser(
        parse=lambda data: collection_of(json.loads(data)),
        seeds=lambda: [
            json.dumps(
                umm_collection("MOD04_L2", "6.1", "LAADS", "2000-02-24T00:00:00.000Z")
            ).encode()
        ],
        errors=CMR,
        as_json=True,
    ),
    "kml": Parser(
        parse=lambda data: read_region(data, "a.kml"),
        seeds=lambda: [KML],
        words=(*XML_WORDS, b"<Polygon>", b"</Polygon>", *NUMBERS),
        errors=(RegionFileError,),
    ),
    "wkt": Parser(
        parse=lambda data: read_region(data, "a.wkt"),
        seeds=lambda: WKT,
        words=(b"(", b")", b"EMPTY", b" Z ", b"SRID=", b";", b"POLYGON", *NUMBERS),
        errors=(RegionFileError,),
    ),
    "gpkg": Parser(
        parse=lambda data: read_region(data, "a.gpkg"),
        seeds=lambda: [_geopackage()],
        words=(b"areas", b"geom", b"CREATE VIEW", b"GP\0\1", b"\xff\xff\xff\xff"),
        errors=(RegionFileError,),
    ),
    "zip": Parser(
        parse=lambda data: read_region(data, "a.zip"), seeds=_zipped, errors=(RegionFileError,)
    ),
    "geojson": Parser(
        parse=lambda data: read_region(data, "a.geojson"),
        seeds=lambda: [json.dumps(GEOJSON).encode()],
        errors=(RegionFileError,),
        as_json=True,
    ),
    "geojson-text": Parser(
        parse=lambda data: read_region(data, "a.geojson"),
        seeds=lambda: [json.dumps(GEOJSON).encode()],
        words=(b"[", b"]", b"{", b"}", b"null", b'"', b"NaN", *NUMBERS),
        errors=(RegionFileError,),
    ),
    "features": Parser(
        parse=lambda data: read_features(data, "a.geojson"),
        seeds=lambda: [json.dumps(GEOJSON).encode()],
        errors=(RegionFileError,),
        as_json=True,
    ),
    "sites": Parser(
        parse=lambda data: read_region(data, "a.csv"),
        seeds=lambda: SITES,
        words=(b'"', b",", b";", b"\n", *NUMBERS),
        errors=(RegionFileError,),
    ),
    "measurements": Parser(
        parse=lambda data: read_measurements(text(data), ("value",)),
        seeds=lambda: MEASURED,
        words=(b'"', b",", b";", b"\n", b"+14:00", *NUMBERS),
        errors=(MeasurementsError,),
    ),
    "request": Parser(
        parse=request, seeds=_requests, words=(*YAML_WORDS, *NUMBERS), errors=(RequestRefusedError,)
    ),
    "request-values": Parser(
        parse=request, seeds=_requests_as_json, errors=(RequestRefusedError,), as_json=True
    ),
    "manifest": Parser(
        parse=manifest, seeds=_manifests, words=(*YAML_WORDS, *NUMBERS), errors=(PackageError,)
    ),
    "manifest-values": Parser(
        parse=manifest, seeds=_manifests_as_json, errors=(PackageError,), as_json=True
    ),
}
