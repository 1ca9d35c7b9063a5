"""Sea surface temperature and ocean colour in the CMR.

Names, times, boxes and footprints of sea surface temperature are those of recorded answers (test
data of podaac/hitide-backfill-tool and a notebook of podaac/tutorials); those of ocean colour are
by the names that OB.DAAC gives its files.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from archives.fetch.credentials import EARTHDATA_HOSTS
from archives.formats.boundary import touches
from archives.formats.umm import record_of
from archives.kinds.folder import describe
from archives.model import GranuleRecord, newest_editions
from archives.sources import _listed
from modis.box import LonLatBox
from modis.collection import Collection
from tests.archives.catalogues import TOKEN, Cmr, Json, umm_collection, umm_l2p
from tests.archives.cmr_searches import archive
from tests.archives.servers import FileServer, Served, file_server, granule

POLAR = datetime(2000, 2, 27, 20, 20, 1, tzinfo=UTC)
OF_POLE = ((134.98, 66.18, 180.0, 89.988), (-180.0, 66.18, -63.22, 89.988))
SHORT = "MODIS_T-JPL-L2P-v2019.0"
TERRA = umm_collection(SHORT, "2019.0", "POCLOUD", "2000-02-24T00:00:00.000Z", space="CARTESIAN")
OLD = umm_collection(
    "MODIS_T-JPL-L2P-v2014.0", "2014.0", "POCLOUD", "2000-02-24T00:00:00Z", "2019-10-01T00:00:00Z"
)
FOOTPRINT = (
    (27.99214, -108.86564),
    (9.98915, -111.82863),
    (6.95943, -90.93935),
    (24.66195, -85.8759),
)
"""Latitude and longitude, as that answer lists them, of 20020704082005 of MODIS_A."""


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def l2p(half: str, time: str = "20000227202006", version: str = "01.0", sensor: str = "T") -> str:
    return f"{time}-JPL-L2P_GHRSST-SSTskin-MODIS_{sensor}-{half}-v02.0-fv{version}.nc"


def found(*items: Json, server: FileServer, version: str = "2019.0") -> list[GranuleRecord]:
    cmr = Cmr(collections=[TERRA, OLD], granules=[*items])
    return list(archive(cmr, server).search("MODIS_T-JPL-L2P", version, DAY, DAY))


DAY = date(2000, 2, 27)


def test_a_product_is_found_by_its_name_without_the_version(server: FileServer) -> None:
    (record,) = found(umm_l2p(l2p("N"), POLAR, boxes=OF_POLE), server=server)
    assert record.name == l2p("N")
    assert (record.product, record.collection) == ("MODIS_T-JPL-L2P", "2019")
    assert (record.start, record.end) == (POLAR, POLAR + timedelta(seconds=299))
    assert (record.day_night, record.production_time) == ("night", "2020253061048")
    assert (record.size, record.checksum, record.tile) == (0, None, None)
    assert record.url.endswith(f"/podaac-ops-cumulus-protected/{SHORT}/{l2p('N')}")
    assert urlsplit(record.url).hostname in EARTHDATA_HOSTS
    asked = parse_qs(urlsplit(server.asked[0].path).query)
    assert asked["short_name"] == ["MODIS_T-JPL-L2P-v*"]
    assert asked["options[short_name][pattern]"] == ["true"]
    granules = parse_qs(urlsplit(server.asked[1].path).query)
    assert granules["collection_concept_id[]"] == [f"C-{SHORT}-2019.0-POCLOUD"]


def test_the_versions_of_a_product_are_its_collections(server: FileServer) -> None:
    foreign = umm_collection("MODIS_T-JPL-L2P-visible", "1", "POCLOUD", "2000-02-24T00:00:00Z")
    of = archive(Cmr(collections=[TERRA, OLD, foreign]), server)
    held = of.holdings("MODIS_T-JPL-L2P")
    assert [(h.product, h.collection, h.last) for h in held] == [
        ("MODIS_T-JPL-L2P", "2014", date(2019, 10, 1)),
        ("MODIS_T-JPL-L2P", "2019", None),
    ]
    assert found(umm_l2p(l2p("N"), POLAR), server=server, version="2016.2") == []


def test_the_halves_of_one_granule_are_two_granules(server: FileServer) -> None:
    """Day and night of the same five minutes are files of their own; editions are not."""
    again = umm_l2p(l2p("D", version="02.0"), POLAR)
    again["umm"]["DataGranule"]["ProductionDateTime"] = "2021-01-01T00:00:00.000Z"
    items = [umm_l2p(l2p("D"), POLAR), umm_l2p(l2p("N"), POLAR), again]
    records = found(*items, server=server)
    assert [(r.name, r.day_night) for r in records] == [
        (l2p("D", version="02.0"), "day"),
        (l2p("N"), "night"),
    ]
    assert newest_editions(records) == records


def test_boxes_on_both_sides_of_the_antimeridian(server: FileServer) -> None:
    (record,) = found(umm_l2p(l2p("N"), POLAR, boxes=OF_POLE), server=server)
    assert touches(record, LonLatBox(170.0, 70.0, -170.0, 75.0))
    assert touches(record, LonLatBox(-100.0, 80.0, -90.0, 85.0))
    assert not touches(record, LonLatBox(0.0, 70.0, 20.0, 75.0))
    assert not touches(record, LonLatBox(170.0, 50.0, -170.0, 60.0))


def test_a_footprint_is_as_wide_as_what_it_may_have_lost(server: FileServer) -> None:
    """Half a degree; and its lines are straight in longitude and latitude."""
    ring = [(lon, lat) for lat, lon in FOOTPRINT]
    box = (-111.829, 6.959, -85.876, 27.994)
    (record,) = found(umm_l2p(l2p("N"), POLAR, boxes=[box], ring=ring), server=server)
    assert touches(record, LonLatBox(-98.0, 28.0, -97.9, 28.1)) is False
    middle = [(a + b) / 2 for a, b in zip(FOOTPRINT[0], FOOTPRINT[3], strict=True)]
    near = LonLatBox(middle[1], middle[0] + 0.4, middle[1] + 0.01, middle[0] + 0.41)
    assert touches(record, near)
    assert not touches(record, LonLatBox(-111.0, 25.0, -110.9, 25.1)), "inside the box alone"
    geodetic = record_of(
        umm_l2p(l2p("N"), POLAR, ring=ring), "MODIS_T-JPL-L2P", Collection("2019"), "cmr"
    )
    assert geodetic is not None
    assert geodetic.boundary == (tuple(ring),)


def test_a_footprint_around_a_pole_may_lie_anywhere(server: FileServer) -> None:
    ring = [(-180.0, 70.0), (180.0, 70.0), (180.0, 90.0), (0.0, 90.0), (-180.0, 90.0)]
    (record,) = found(umm_l2p(l2p("N"), POLAR, ring=ring), server=server)
    assert record.boundary is None


def test_a_footprint_that_crosses_itself_is_covered(server: FileServer) -> None:
    ring = [(0.0, 0.0), (10.0, 10.0), (10.0, 0.0), (0.0, 10.0)]
    (record,) = found(umm_l2p(l2p("N"), POLAR, ring=ring), server=server)
    assert all(
        touches(record, LonLatBox(x, y, x + 0.1, y + 0.1)) for x in (1.0, 9.0) for y in (1.0, 9.0)
    )


def test_a_granule_is_fetched_with_the_token(server: FileServer, tmp_path: Path) -> None:
    data = granule(5000)
    server.files[f"/data/{l2p('N')}"] = Served(data=data)
    item = umm_l2p(l2p("N"), POLAR, url=f"{server.url}/data/{l2p('N')}")
    of = archive(Cmr(collections=[TERRA], granules=[item]), server)
    (record,) = of.search("MODIS_T-JPL-L2P", "2019.0", DAY, DAY)
    assert of.fetch(record, tmp_path / record.name).path.read_bytes() == data
    assert server.asked[-1].headers["authorization"] == f"Bearer {TOKEN}"


def test_another_source_is_asked_for_it_by_its_name(server: FileServer) -> None:
    """Its indicative time may be of the day after its beginning."""
    begin = datetime(2000, 2, 27, 23, 59, 58, tzinfo=UTC)
    name = l2p("N", time="20000228000003")
    of = archive(Cmr(collections=[TERRA], granules=[umm_l2p(name, begin)]), server)
    (record,) = of.search("MODIS_T-JPL-L2P", "2019.0", DAY, DAY)
    never = datetime.fromtimestamp(0, UTC)
    assert _listed(of, replace(record, start=never, end=never)) == record


def test_a_name_in_a_folder_tells_the_half() -> None:
    sidecar = None
    record = describe(l2p("D"), l2p("D"), 7, None, sidecar)
    assert record is None, "neither product nor collection is in the name"


def colour(*names: str, suite: str) -> list[Json]:
    items = [umm_l2p(name, datetime(2019, 12, 31, 18, 9, tzinfo=UTC)) for name in names]
    for item in items:
        span = item["umm"]["TemporalExtent"]["RangeDateTime"]
        span["EndingDateTime"] = "2020-02-01T17:49:13.000Z"
        item["umm"]["CollectionReference"] = {"Version": "2022.0", "ShortName": suite}
    return items


def search(items: list[Json], suite: str, server: FileServer) -> list[GranuleRecord]:
    kept = umm_collection(suite, "2022.0", "OB_CLOUD", "2002-07-04T00:00:00Z", space="CARTESIAN")
    of = archive(Cmr(collections=[kept], granules=items), server)
    return list(of.search(suite, "2022.0", date(2020, 1, 1), date(2020, 1, 31)))


def test_of_mapped_ocean_colour_the_daily_maps_are_listed(server: FileServer) -> None:
    """By their nominal day, each layer in a file of its own; 8 days, months and 9 km are not."""
    name = "AQUA_MODIS.{}.L3m.{}.RRS.Rrs_{}.{}.nc"
    daily = [name.format("20200101", "DAY", band, "4km") for band in (412, 443)]
    others = [
        name.format("20200101", "DAY", 412, "9km"),
        name.format("20200101_20200108", "8D", 412, "4km"),
        name.format("20200101_20200131", "MO", 412, "4km"),
    ]
    records = search(colour(*daily, *others, suite="MODISA_L3m_RRS"), "MODISA_L3m_RRS", server)
    assert [(r.name, r.start) for r in records] == [
        (each, datetime(2020, 1, 1, tzinfo=UTC)) for each in daily
    ]


def test_bins_and_swaths_of_ocean_colour(server: FileServer) -> None:
    bins = ("AQUA_MODIS.20200101.L3b.DAY.CHL.nc", "AQUA_MODIS.20200101_20200131.L3b.MO.CHL.nc")
    records = search(colour(*bins, suite="MODISA_L3b_CHL"), "MODISA_L3b_CHL", server)
    assert [r.name for r in records] == [bins[0]]
    swath = umm_l2p(
        "AQUA_MODIS.20200101T103000.L2.OC.nc", datetime(2020, 1, 1, 10, 30, 1, tzinfo=UTC)
    )
    swath["umm"]["DataGranule"]["DayNightFlag"] = "Day"
    (record,) = search([swath], "MODISA_L2_OC", server)
    assert (record.start, record.day_night) == (
        datetime(2020, 1, 1, 10, 30, 1, tzinfo=UTC),
        "day",
    )
