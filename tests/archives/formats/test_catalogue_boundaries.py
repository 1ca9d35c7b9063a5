"""Granules placed by what the CMR, geoMeta and the files say, against each of their real pixels."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import shapely
from pyhdf.SD import SD

from archives.formats.boundary import touches
from archives.formats.geometa import read_geometa
from archives.formats.layout import Listed
from archives.formats.layout import record_of as listed_record
from archives.formats.umm import record_of
from archives.kinds.folder import describe
from archives.model import GranuleRecord
from modis.box import LonLatBox
from modis.collection import Collection
from modis.granule_name import parse_granule_name
from reprojection.read.outline import read_outline
from tests.archives.catalogues import umm, umm_l2p

HEAD = (
    "# GranuleID,StartDateTime,ArchiveSet,OrbitNumber,DayNightFlag,EastBoundingCoord,"
    "NorthBoundingCoord,SouthBoundingCoord,WestBoundingCoord,"
    + ",".join(f"GRingLongitude{n}" for n in range(1, 5))
    + ","
    + ",".join(f"GRingLatitude{n}" for n in range(1, 5))
)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A real swath: its pixels' centres, and its corners as its inventory metadata publish them."""

    path: Path
    name: str
    start: datetime
    lon: npt.NDArray[np.float64]
    lat: npt.NDArray[np.float64]
    corners: tuple[tuple[float, float], ...]

    def holds_a_pixel(self, box: LonLatBox) -> bool:
        across = (self.lon - box.west) % 360 <= (box.east - box.west) % 360
        return bool((across & (self.lat >= box.south) & (self.lat <= box.north)).any())


def published(metadata: str, which: str) -> list[float]:
    found = re.search(rf"OBJECT\s*=\s*{which}\b.*?VALUE\s*=\s*\(([^)]*)\)", metadata, re.DOTALL)
    assert found is not None, which
    return [float(text) for text in found[1].split(",")]


def see(path: Path) -> Seen:
    file = SD(str(path))
    about = file.attributes()
    metadata = "".join(str(about[k]) for k in about if k.startswith(("Core", "Archive")))
    lat = np.asarray(file.select("Latitude").get(), np.float64)
    lon = np.asarray(file.select("Longitude").get(), np.float64)
    parts = parse_granule_name(path.name)
    assert parts is not None
    there = lat > -91.0
    return Seen(
        path=path,
        name=path.name,
        start=parts.start,
        lon=lon[there],
        lat=lat[there],
        corners=tuple(
            zip(
                published(metadata, "GRINGPOINTLONGITUDE"),
                published(metadata, "GRINGPOINTLATITUDE"),
                strict=True,
            )
        ),
    )


@pytest.fixture(scope="module")
def swaths(granules: Path) -> list[Seen]:
    folder = granules / "l2-swath"
    paths = [p for product in ("M?D04_L2", "MYD11_L2") for p in folder.glob(f"{product}/*.hdf")]
    return [see(path) for path in sorted(paths)]


def by_cmr(seen: Seen) -> GranuleRecord:
    ring = [(round(lon, 6), round(lat, 6)) for lon, lat in seen.corners]
    record = record_of(umm(seen.name, seen.start, ring=ring), "MYD04_L2", Collection("6"), "cmr")
    assert record is not None
    return record


def by_footprint(seen: Seen) -> GranuleRecord:
    """As PO.DAAC makes footprints: the outermost pixels, simplified by half a degree."""
    file = SD(str(seen.path))
    lat = np.asarray(file.select("Latitude").get(), np.float64)
    lon = np.asarray(file.select("Longitude").get(), np.float64)
    edge = [
        *zip(lon[0], lat[0], strict=True),
        *zip(lon[1:, -1], lat[1:, -1], strict=True),
        *zip(lon[-1, -2::-1], lat[-1, -2::-1], strict=True),
        *zip(lon[-2:0:-1, 0], lat[-2:0:-1, 0], strict=True),
    ]
    left = shapely.Polygon(edge).simplify(0.5, preserve_topology=False)
    assert isinstance(left, shapely.Polygon)
    item = umm_l2p("a.nc", seen.start, ring=[(x, y) for x, y in left.exterior.coords[:-1]])
    record = record_of(item, "MODIS_A-JPL-L2P", Collection("2019"), "cmr", cartesian=True)
    assert record is not None
    assert record.boundary is not None
    return record


def by_geometa(seen: Seen) -> GranuleRecord:
    lons, lats = zip(*seen.corners, strict=True)
    numbers = ",".join(f"{value:.4f}" for value in (*lons, *lats))
    geolocation = f"MYD03.A{seen.start:%Y%j.%H%M}.061.2018001180000.hdf"
    line = f"{geolocation},{seen.start:%Y-%m-%d %H:%M},61,1,D,0,0,0,0,{numbers}"
    places = read_geometa(f"# a\n# b\n{HEAD}\n{line}\n")
    parts = parse_granule_name(seen.name)
    assert parts is not None
    item = Listed(name=seen.name, size=1, url="https://laads.example/x.hdf")
    record = listed_record(item, parts.product, parts.collection, "laads", places)
    assert record is not None
    assert record.boundary is not None
    return record


def by_file(seen: Seen) -> GranuleRecord:
    """As a folder of granules has it."""
    record = describe(seen.name, seen.name, 1, read_outline(seen.path), None)
    assert record is not None
    assert record.boundary is not None
    return record


@pytest.mark.real_data
@pytest.mark.parametrize("width", [2.0, 10.0])
def test_no_real_granule_is_missed_and_few_are_taken_in_vain(
    swaths: list[Seen], width: float
) -> None:
    """Against each pixel: none missed in cells of any size, at most 10% too many in usual ones."""
    placed = [
        (seen, by_cmr(seen), by_geometa(seen), by_file(seen), by_footprint(seen)) for seen in swaths
    ]
    random = np.random.default_rng(5)
    taken, hit = np.zeros(4, int), 0
    for _ in range(120):
        west, south = random.uniform(20, 175), random.uniform(-10, 85)
        box = LonLatBox(west=west, south=south, east=west + width, north=min(90.0, south + width))
        for seen, *records in placed:
            answers, there = [touches(record, box) for record in records], seen.holds_a_pixel(box)
            assert all(answers) or not there, (seen.name, box)
            taken += answers
            hit += there
    assert hit > 30
    if width >= 10.0:
        assert max(taken[:3]) <= 1.1 * hit
        assert taken[3] <= 1.2 * hit


def test_a_day_of_places_is_read() -> None:
    day = datetime(2018, 1, 1, tzinfo=UTC)
    starts = [day + timedelta(minutes=5 * n) for n in range(288)]
    lines = [
        f"MOD03.A{s:%Y%j.%H%M}.061.2018001180000.hdf,{s:%Y-%m-%d %H:%M},61,1,B,9,9,0,0,"
        "0.0,9.0,9.0,0.0,0.0,0.0,9.0,9.0"
        for s in starts
    ]
    places = read_geometa("\n".join(["# a", "# b", HEAD, *lines]))
    assert list(places) == [f"{s:%H%M}" for s in starts]
    assert {p.day_night for p in places.values()} == {"both"}
