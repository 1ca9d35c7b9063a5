"""LAADS folders: listings in each of their forms, and the daily files of places."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from archives import errors
from archives.fetch.timing import Timing
from archives.formats.geometa import geometa_path, read_geometa
from archives.formats.layout import archive_set
from archives.kinds.laads import LaadsArchive
from tasks.bag.categories import Category
from tasks.service.classify import classify
from tests.archives.catalogues import (
    HASTY,
    QUICK,
    TOKEN,
    Json,
    credentials,
    downloader,
    minutes,
    mount_laads,
    swath_name,
    web,
)
from tests.archives.servers import (
    Act,
    FileServer,
    Served,
    body,
    file_server,
    granule,
    nonsense,
    redirect,
    silence,
    status,
)

Style = Callable[[list[Json]], bytes]
FIRST, SECOND = date(2018, 1, 1), date(2018, 1, 3)
PRODUCT = "allData/61/MYD04_L2"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def archive(server: FileServer, timing: Timing = QUICK) -> LaadsArchive:
    own = credentials(server)
    return LaadsArchive(
        web(own, server, timing=timing), downloader(own, server), url=f"{server.url}/archive"
    )


def as_list(entries: list[Json]) -> bytes:
    return json.dumps(entries).encode()


def as_content(entries: list[Json]) -> bytes:
    return json.dumps({"content": entries}).encode()


def as_csv(entries: list[Json]) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["name", " last-modified", " size"])
    rows.writerows([e["name"], " 2018-02-28 12:00", f" {e['size']}"] for e in entries)
    return text.getvalue().encode()


def folder(name: str) -> Json:
    return {"name": name, "size": 0}


def swath_entries(day: date, size: int = 1000) -> list[Json]:
    names = [swath_name(start) for start in minutes(3, day.day)]
    return [
        *({"name": name, "size": size} for name in names),
        {"name": f"{names[0]}.xml", "size": 20},
        {"name": swath_name(minutes(1, day.day)[0], ccc="006"), "size": 1},
        folder("recent"),
    ]


def tree() -> dict[str, list[Json]]:
    return {
        PRODUCT: [folder("2017"), folder("2018"), {"name": "README", "size": 7}],
        f"{PRODUCT}/2018": [folder("001"), folder("003"), folder("Recent")],
        f"{PRODUCT}/2018/001": swath_entries(FIRST),
        f"{PRODUCT}/2018/003": swath_entries(SECOND),
    }


@pytest.mark.parametrize("style", [as_list, as_content, as_csv])
def test_a_day_s_granules_are_listed_in_each_form(server: FileServer, style: Style) -> None:
    if style is as_csv:
        for name, entries in tree().items():
            server.always[f"/archive/{name}.csv"] = body(as_csv(entries))
    else:
        mount_laads(server, tree(), style)
    found = list(archive(server).search("MYD04_L2", "061", FIRST, date(2018, 12, 31)))
    expected = [swath_name(start) for day in (1, 3) for start in minutes(3, day)]
    assert [r.name for r in found] == expected
    assert found[0].url == f"{server.url}/archive/{PRODUCT}/2018/001/{expected[0]}"
    assert (found[0].size, found[0].source, found[0].boundary) == (1000, "laads", None)
    assert found[0].production_time == "2018059000000"


def test_only_days_that_are_asked_for_are_listed(server: FileServer) -> None:
    mount_laads(server, tree(), as_content)
    assert len(list(archive(server).search("MYD04_L2", "61", date(2018, 1, 2), SECOND))) == 3
    assert not any("/2018/001" in path for path in server.paths())


def test_what_is_not_there_is_an_empty_answer(server: FileServer) -> None:
    mount_laads(server, tree(), as_content)
    of = archive(server)
    assert list(of.search("MOD99", "61", FIRST, SECOND)) == []
    assert list(of.search("MYD04_L2", "6", FIRST, SECOND)) == []
    assert of.holdings("MOD99") == []
    (held,) = of.holdings("MYD04_L2")
    assert (held.collection, held.first, held.last) == ("61", date(2017, 1, 1), date(2018, 12, 31))


def test_viirs_lies_in_the_archive_sets_of_its_own() -> None:
    assert archive_set("VNP46A2", "2") == "5200"
    assert archive_set("VNP46A2", "001") == "5000"
    assert archive_set("VJ146A2", "2") == "5201"
    assert archive_set("MOD13A2", "6.1") == "61"


GEOMETA = """# MODIS geolocation metadata
# one line for each granule
# GranuleID,StartDateTime,ArchiveSet,OrbitNumber,DayNightFlag,EastBoundingCoord,NorthBoundingCoord,\
SouthBoundingCoord,WestBoundingCoord,GRingLongitude1,GRingLongitude2,GRingLongitude3,\
GRingLongitude4,GRingLatitude1,GRingLatitude2,GRingLatitude3,GRingLatitude4
MYD03.A2018001.1100.061.2018001180000.hdf,2018-01-01 11:00,61,83000,D,20.0,20.0,0.0,-2.0,\
0.0,20.0,18.0,-2.0,0.0,2.0,20.0,18.0
MYD03.A2018001.1105.061.2018001180000.hdf,2018-01-01 11:05,61,83000,N,20.0,20.0,0.0,-2.0,\
0.0,20.0,999.0,-2.0,0.0,2.0,20.0,18.0
MYD03.A2018001.1110.061.2018001180000.hdf,2018-01-01 11:10,61,83000
"""


def test_places_are_read_from_the_daily_file_once(server: FileServer) -> None:
    entries = tree()
    entries["allData/61/MYD05_L2"] = [folder("2018")]
    entries["allData/61/MYD05_L2/2018"] = [folder("001")]
    entries["allData/61/MYD05_L2/2018/001"] = [
        {"name": swath_name(start, "MYD05_L2"), "size": 9} for start in minutes(3)
    ]
    mount_laads(server, entries, as_content)
    server.always["/archive/geoMeta/61/AQUA/2018/MYD03_2018-01-01.txt"] = body(GEOMETA.encode())
    of = archive(server)
    for product in ("MYD04_L2", "MYD05_L2"):
        first, second, third = of.search(product, "61", FIRST, FIRST)
        assert first.boundary == (((0.0, 0.0), (20.0, 2.0), (18.0, 20.0), (-2.0, 18.0)),)
        assert (first.day_night, second.day_night) == ("day", "")
        assert second.boundary is third.boundary is None
    assert sum("geoMeta" in path for path in server.paths()) == 1


def test_files_of_places_go_by_satellite() -> None:
    day = date(2020, 2, 29)
    assert geometa_path("MOD04_L2", day) == "geoMeta/61/TERRA/2020/MOD03_2020-02-29.txt"
    viirs = geometa_path("VNP14", day)
    assert viirs == "geoMetaVIIRS/5200/NPP/2020/VNP03MOD_2020-02-29.txt"
    assert geometa_path("MCD12Q1", day) is None
    assert read_geometa("<html>sign in</html>") == {}


def test_checksums_and_addresses_of_a_listing_are_used(server: FileServer, tmp_path: Path) -> None:
    data = granule(4000)
    name = "MOD13A2.A2018001.h18v04.061.2018059000000.hdf"
    entry = {
        "name": name,
        "size": len(data),
        "md5sum": "0" * 32,
        "downloadsLink": f"{server.url}/prod-lads/{name}",
    }
    entries = {
        "allData/61/MOD13A2/2018": [folder("001")],
        "allData/61/MOD13A2/2018/001": [entry],
    }
    mount_laads(server, entries, as_content)
    server.files[f"/prod-lads/{name}"] = Served(data=data)
    of = archive(server)
    (record,) = of.search("MOD13A2", "61", FIRST, SECOND)
    assert record.tile == (18, 4)
    assert record.start == datetime(2018, 1, 1, tzinfo=UTC)
    with pytest.raises(errors.DownloadFailedError, match="md5"):
        of.fetch(record, tmp_path / name)
    assert not (tmp_path / name).exists()
    assert server.asked[-1].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("act", "kind", "category"),
    [
        (status(401), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
        (status(403), errors.NotPermittedError, Category.CREDENTIALS_REFUSED),
        (status(503, Retry_After="900"), errors.ServerBusyError, Category.SERVER_BUSY),
        (redirect("/oauth/authorize"), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
        (body(b"<html>"), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (body(b""), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (body(b"[" * 100_000), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (status(404), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (
            body(b'[{"name": "../x", "size": 1}]'),
            errors.AnswerBrokenError,
            Category.TRANSPORT_ERROR,
        ),
        (body(b'[{"nome": "x"}]'), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (body(b"[1,", length=99), errors.ConnectionFailedError, Category.CONNECTION_FAILURE),
        (silence, errors.ArchiveTimeoutError, Category.OPERATION_TIMEOUT),
        (nonsense, errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
    ],
)
def test_a_listing_that_fails_is_no_empty_listing(
    server: FileServer, act: Act, kind: type[errors.ArchiveError], category: Category
) -> None:
    mount_laads(server, tree(), as_content)
    server.always[f"/archive/{PRODUCT}/2018/003.json"] = act
    of = archive(server, HASTY if act is silence else QUICK)
    found = of.search("MYD04_L2", "61", FIRST, SECOND)
    assert [next(found).start_day for _ in range(3)] == [FIRST] * 3
    with pytest.raises(errors.ArchiveError) as caught:
        next(found)
    assert type(caught.value) is kind
    assert classify(caught.value).category is category
