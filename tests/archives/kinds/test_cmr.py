"""Searching the CMR: pages, records, collections, and who sees the token."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from archives import errors
from archives.formats.checksums import digest
from archives.formats.umm import record_of
from archives.kinds.cmr import CmrArchive
from archives.model import GranuleRecord, Holding
from modis.box import LonLatBox
from modis.collection import Collection
from tests.archives.catalogues import (
    TOKEN,
    Cmr,
    credentials,
    downloader,
    minutes,
    swath_name,
    umm,
    umm_collection,
    web,
)
from tests.archives.cmr_searches import DAY, MODERN, RING, archive, found, swaths
from tests.archives.servers import FileServer, Served, body, file_server, granule, redirect


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def test_every_page_is_read_in_order(server: FileServer) -> None:
    cmr = Cmr(collections=[MODERN], granules=swaths(8)[::-1])
    records = found(archive(cmr, server))
    assert [r.name for r in records] == [swath_name(start) for start in minutes(8)]
    assert cmr.searches == 4
    assert [a.headers.get("cmr-search-after") for a in server.asked[1:]] == [
        None,
        "[3]",
        "[6]",
        "[8]",
    ]


def test_pages_are_read_as_they_are_asked_for(server: FileServer) -> None:
    days = [item for day in range(1, 9) for item in swaths(3, day)]
    cmr = Cmr(collections=[MODERN], granules=days)
    records = archive(cmr, server).search("MYD04_L2", "61", DAY, DAY + timedelta(days=20))
    assert next(records).start_day == DAY
    assert cmr.searches <= 4
    assert sum(1 for _ in records) == 23


def test_a_record_says_all_that_fetching_and_planning_need(server: FileServer) -> None:
    start = minutes(1)[0]
    name = swath_name(start)
    checksum = {"Value": "f354ac721cb0f66e1da78b420e734c6a", "Algorithm": "MD5"}
    item = umm(name, start, ring=RING, data=b"x" * 77, checksum=checksum)
    (record,) = found(archive(Cmr(collections=[MODERN], granules=[item]), server))
    assert record == GranuleRecord(
        name=name,
        product="MYD04_L2",
        collection=Collection("61"),
        start=start,
        end=start + timedelta(minutes=5),
        tile=None,
        boundary=(RING,),
        production_time="2018059000000",
        size=77,
        checksum=checksum["Value"],
        checksum_type="md5",
        url=f"https://data.laadsdaac.earthdatacloud.nasa.gov/prod-lads/{name}",
        day_night="day",
        source="cmr",
    )


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("MD5", "md5"), ("SHA-256", "sha256"), ("SHA-512", "sha512"), ("cksum", "cksum")],
)
def test_checksums_are_those_we_can_compute(algorithm: str, kind: str) -> None:
    start = minutes(1)[0]
    item = umm(swath_name(start), start, checksum={"Value": "12", "Algorithm": algorithm})
    record = record_of(item, "MYD04_L2", Collection("61"), "cmr")
    assert record is not None
    assert (record.checksum, record.checksum_type) == ("12", kind)
    assert digest(kind) is not None


def test_a_checksum_of_another_kind_is_left_out() -> None:
    start = minutes(1)[0]
    item = umm(swath_name(start), start, checksum={"Value": "12", "Algorithm": "Adler-32"})
    record = record_of(item, "MYD04_L2", Collection("61"), "cmr")
    assert record is not None
    assert (record.checksum, record.checksum_type, record.size) == (None, None, 0)


def test_what_has_no_file_or_no_place(server: FileServer) -> None:
    first, second, third = minutes(3)
    nowhere = umm(swath_name(second), second)
    broken = umm(swath_name(third), third, ring=RING)
    geometry = broken["umm"]["SpatialExtent"]["HorizontalSpatialDomain"]["Geometry"]
    geometry["GPolygons"][0]["Boundary"]["Points"][0] = {"Longitude": None, "Latitude": "?"}
    only_s3 = umm(swath_name(first), first, ring=RING)
    only_s3["umm"]["RelatedUrls"] = only_s3["umm"]["RelatedUrls"][:1]
    records = found(archive(Cmr(collections=[MODERN], granules=[only_s3, nowhere, broken]), server))
    assert [(r.name, r.boundary) for r in records] == [
        (swath_name(second), None),
        (swath_name(third), None),
    ]


def test_tiles_go_by_their_name_and_nominal_day(server: FileServer) -> None:
    """A 16-day product's span begins eight days before its nominal day."""
    product = umm_collection("MCD43A4", "061", "LPCLOUD", "2000-02-16T00:00:00.000Z")
    items = []
    for day in range(1, 30):
        start = datetime(2018, 1, day, tzinfo=UTC)
        for tile in ("h18v04", "h08v05"):
            name = f"MCD43A4.A{start:%Y%j}.{tile}.061.2018059000000.hdf"
            span, early = timedelta(days=16), timedelta(days=8)
            items.append(umm(name, start, ring=RING, span=span, early=early))
    of = archive(Cmr(collections=[product], granules=items, page=7), server)
    records = list(of.search("MCD43A4", "61", date(2018, 1, 10), date(2018, 1, 12)))
    assert [(r.start_day.day, r.tile) for r in records] == [
        (day, tile) for day in (10, 11, 12) for tile in ((8, 5), (18, 4))
    ]
    assert all(r.boundary is None for r in records)


def test_the_newest_edition_wins(server: FileServer) -> None:
    start = minutes(1)[0]
    names = [swath_name(start, made=made) for made in ("2018059000000", "2021002000000")]
    items = [umm(name, start, ring=RING) for name in names]
    (record,) = found(archive(Cmr(collections=[MODERN], granules=items), server))
    assert (record.name, record.production_time) == (names[1], "2021002000000")


def test_collections_are_found_however_they_are_spelt(server: FileServer) -> None:
    cmr = Cmr(
        collections=[
            umm_collection("MYD04_L2", "061", "LPCLOUD", "2002-07-04T00:00:00.000Z"),
            MODERN,
            umm_collection(
                "MYD04_L2", "6", "LAADS", "2002-07-04T00:00:00Z", "2017-12-31T00:00:00Z"
            ),
            umm_collection("MYD04_L2", "6.1NRT", "LANCEMODIS", "2020-01-01T00:00:00.000Z"),
        ],
        granules=swaths(1),
    )
    of = archive(cmr, server)
    assert len(found(of, "6.1")) == 1
    asked = parse_qs(urlsplit(server.asked[-1].path).query)
    assert asked["collection_concept_id[]"] == [
        "C-MYD04_L2-061-LPCLOUD",
        "C-MYD04_L2-6.1-LAADS",
    ]
    held: dict[str, Holding] = {h.collection: h for h in of.holdings("MYD04_L2")}
    assert held["61"] == Holding(
        product="MYD04_L2", collection=Collection("61"), first=date(2002, 7, 4), last=None
    )
    assert held["6"].last == date(2017, 12, 31)


def test_a_collection_that_is_served_no_longer_is_no_failure(server: FileServer) -> None:
    cmr = Cmr(collections=[MODERN], granules=swaths(2))
    of = archive(cmr, server)
    assert found(of, "51") == []
    assert [h.collection for h in of.holdings("MYD04_L2")] == ["61"]
    assert found(of, "61", days=1)
    assert list(of.search("MYD04_L2", "61", date(2030, 1, 1), date(2030, 1, 2))) == []
    assert of.holdings("MOD99") == []


def test_a_new_collection_is_seen_after_a_refresh(server: FileServer) -> None:
    cmr = Cmr(collections=[MODERN])
    of = archive(cmr, server)
    assert len(of.holdings("MYD04_L2")) == 1
    cmr.collections.append(umm_collection("MYD04_L2", "7", "LAADS", "2002-07-04T00:00:00.000Z"))
    assert len(of.holdings("MYD04_L2")) == 1
    of.refresh()
    assert [h.collection for h in of.holdings("MYD04_L2")] == ["61", "7"]


def test_the_box_is_asked_for_with_room_around_it(server: FileServer) -> None:
    of = archive(Cmr(collections=[MODERN], granules=swaths(1)), server)
    for edges in ((5.0, 40.0, 15.0, 50.0), (170.0, -10.0, -170.0, 10.0), (0.0, 70.0, 1.0, 89.0)):
        box = LonLatBox(*edges)
        assert list(of.search("MYD04_L2", "61", DAY, DAY, box))
    boxes = [
        tuple(float(x) for x in asked["bounding_box"][0].split(","))
        for path in (a.path for a in server.asked)
        if "bounding_box" in (asked := parse_qs(urlsplit(path).query))
    ]
    assert boxes[0] == pytest.approx((0.007, 37.0, 19.993, 53.0), abs=0.01)
    assert boxes[2][0] > 165 > -165 > boxes[2][2]
    assert boxes[-1][::2] == (-180.0, 180.0)


def test_a_granule_is_fetched_from_the_address_that_was_listed(
    server: FileServer, tmp_path: Path
) -> None:
    data = granule(5000)
    running = digest("md5")
    assert running is not None
    running.update(data)
    start = minutes(1)[0]
    name = swath_name(start)
    server.files[f"/data/{name}"] = Served(data=data)
    item = umm(
        name,
        start,
        url=f"{server.url}/data/{name}",
        data=data,
        checksum={"Value": running.hexdigest(), "Algorithm": "MD5"},
    )
    of = archive(Cmr(collections=[MODERN], granules=[item]), server)
    (record,) = found(of)
    assert of.fetch(record, tmp_path / name).path.read_bytes() == data
    assert server.asked[-1].headers["authorization"] == f"Bearer {TOKEN}"


def test_the_token_is_seen_by_its_own_hosts_alone(
    server: FileServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a catalogue that is not the token's, nor where it redirects to, nor a log has it."""
    caplog.set_level(logging.DEBUG)
    with file_server() as foreign:
        cmr = Cmr(collections=[MODERN], granules=swaths(2))
        cmr.mount(foreign)
        server.always["/search/collections.umm_json"] = lambda request: redirect(
            f"{foreign.url}{request.path}"
        )(request)
        server.always["/search/granules.umm_json"] = lambda request: redirect(
            f"{foreign.url}{request.path}"
        )(request)
        own = credentials(server)
        of = CmrArchive(web(own, server), downloader(own, server), url=f"{server.url}/search")
        assert len(found(of)) == 2
        assert all("authorization" in asked.headers for asked in server.asked)
        assert foreign.asked
        assert not any(TOKEN in str(asked) for asked in foreign.asked)
    with pytest.raises(errors.ConnectionFailedError) as caught:
        list(of.search("MYD04_L2", "61", DAY, DAY))
    assert TOKEN not in caplog.text + str(caught.value) + repr(own)


@pytest.mark.real_data
def test_a_recorded_granule_becomes_a_record(granules: Path) -> None:
    text = (granules / "fixtures/cmr-granule-search/G1593453400-LAADS_umm.json").read_text()
    record = record_of(json.loads(text)["items"][0], "MYD021KM", Collection("6"), "cmr")
    assert record is not None
    assert record.name == "MYD021KM.A2019051.0430.006.2019051235515.hdf"
    assert (record.size, record.checksum, record.day_night) == (69035465, None, "night")
    assert record.start == datetime(2019, 2, 20, 4, 30, tzinfo=UTC)
    assert record.boundary == (
        (
            (-51.923123, 62.328467),
            (-10.377255, 56.577721),
            (19.845911, 69.099596),
            (-60.901471, 80.417613),
        ),
    )


@pytest.mark.real_data
def test_a_recorded_search_is_read_as_it_was(granules: Path, server: FileServer) -> None:
    """Ten pages of MOD02QKM as they came in 2024."""
    folder = granules / "fixtures/cmr-granule-search"
    text = (folder / "TestMultipleQueries.test_results_unparsed_format.yaml").read_text()
    recorded = yaml.safe_load(text)["interactions"]
    bodies = [json.loads(each["response"]["body"]["string"]) for each in recorded]
    pages = [page for page in bodies if "hits" in page]
    count = iter(range(len(pages) + 1))

    def play(request: object) -> None:
        number = next(count)
        page = pages[number] if number < len(pages) else {"items": []}
        total = sum(len(p["items"]) for p in pages)
        extra = {"CMR_Search_After": f"[{number}]"} if page["items"] else {}
        body(json.dumps(page).encode(), CMR_Hits=str(total), **extra)(request)  # type: ignore[arg-type]

    cmr = Cmr(collections=[umm_collection("MOD02QKM", "6.1", "LAADS", "2000-02-24T00:00:00Z")])
    of = archive(cmr, server)
    server.always["/search/granules.umm_json"] = play
    found = list(of.search("MOD02QKM", "61", date(2000, 2, 24), date(2000, 2, 24)))
    assert len(found) == 20
    assert all(r.url.startswith("https://data.laadsdaac.earthdatacloud.nasa.gov/") for r in found)
    assert all(r.checksum_type == "md5" and r.size > 4 * 10**6 and r.boundary for r in found)
    assert found == sorted(found, key=lambda r: (r.start, r.name))


def test_what_changed_is_told_by_one_call_and_without_a_list(server: FileServer) -> None:
    cmr = Cmr(collections=[MODERN], granules=swaths(8))
    of = archive(cmr, server)
    box = LonLatBox(5.0, 45.0, 6.0, 46.0)

    def stamp(days: int = 1) -> str:
        return of.stamp("MYD04_L2", "61", DAY, DAY + timedelta(days=days - 1), box)

    first = stamp()
    assert first
    assert stamp() == first
    assert cmr.searches == 0
    assert stamp(2) != first
    cmr.granules[3]["meta"]["revision-date"] = "2026-01-01T00:00:00.000Z"
    revised = stamp()
    assert revised != first
    removed = cmr.granules.pop(0)
    assert stamp() not in (first, revised)
    cmr.granules.append(removed | {"meta": removed["meta"] | {"revision-date": "2026-02-01"}})
    assert stamp() not in (first, revised)
    assert of.stamp("MYD04_L2", "7", DAY, DAY) == of.stamp("MYD04_L2", "7", DAY, DAY) != ""
