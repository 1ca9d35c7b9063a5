"""STAC APIs: pages, items, signed addresses."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from archives import errors
from archives.fetch.timing import Timing
from archives.formats.checksums import digest
from archives.kinds.stac import Signing, StacArchive
from tasks.bag.categories import Category
from tasks.service.classify import classify
from tests.archives.catalogues import (
    HASTY,
    QUICK,
    TOKEN,
    Json,
    Stac,
    credentials,
    downloader,
    minutes,
    stac_item,
    swath_name,
    web,
)
from tests.archives.servers import (
    Act,
    FileServer,
    Request,
    Served,
    body,
    file_server,
    granule,
    serve,
    silence,
    status,
)

DAY = date(2018, 1, 1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def archive(
    stac: Stac, server: FileServer, *, signed: bool = False, timing: Timing = QUICK
) -> StacArchive:
    own = credentials()
    signing = Signing(url=f"{server.url}/sas", hosts=(urlsplit(server.url).netloc,))
    return StacArchive(
        web(own, server, timing=timing),
        downloader(own, server),
        url=stac.mount(server),
        collection="modis-{suffix}-{version}",
        signing=signing if signed else None,
        clock=NOW.timestamp,
    )


def swaths(count: int, server: FileServer, days: int = 1) -> list[Json]:
    starts = [start for day in range(1, days + 1) for start in minutes(count, day)]
    return [stac_item(swath_name(s), s, f"{server.url}/blob/{swath_name(s)}") for s in starts]


def test_every_page_and_window_is_read_in_order(server: FileServer) -> None:
    stac = Stac("modis-04_L2-061", items=swaths(5, server, days=20))
    found = list(archive(stac, server).search("MYD04_L2", "61", DAY, date(2018, 1, 20)))
    expected = [swath_name(start) for day in range(1, 21) for start in minutes(5, day)]
    assert [r.name for r in found] == expected
    assert found[0].boundary == (((0.0, 0.0), (20.0, 2.0), (18.0, 20.0), (-2.0, 18.0)),)
    assert (found[0].source, found[0].production_time) == ("planetary-computer", "2018059000000")
    assert stac.searches == 40 + 10


def test_items_of_others_or_without_a_granule_are_left_out(server: FileServer) -> None:
    start = minutes(1)[0]
    terra = swath_name(start, "MOD04_L2")
    older = swath_name(start, ccc="006")
    images = stac_item(swath_name(start), start, f"{server.url}/blob/{swath_name(start)}")
    del images["assets"]["hdf"]
    items = [
        stac_item(terra, start, f"{server.url}/blob/{terra}"),
        stac_item(older, start, f"{server.url}/blob/{older}"),
        images,
    ]
    of = archive(Stac("modis-04_L2-061", items=items), server)
    assert list(of.search("MYD04_L2", "61", DAY, DAY)) == []
    assert [r.name for r in of.search("MOD04_L2", "61", DAY, DAY)] == [terra]


def test_what_it_serves_is_told_and_proves_nothing(server: FileServer) -> None:
    of = archive(Stac("modis-04_L2-061"), server)
    (held,) = of.holdings("MYD04_L2")
    assert (held.collection, held.first, held.last) == ("61", date(2000, 2, 18), None)
    assert of.holdings("MOD99") == []
    assert not of.authoritative


def test_sizes_and_multihashes_are_read(server: FileServer) -> None:
    start = minutes(1)[0]
    name = swath_name(start)
    extra = {"file:size": 5, "file:checksum": "1220" + "ab" * 32}
    item = stac_item(name, start, f"{server.url}/blob/{name}?old=signature", **extra)
    of = archive(Stac("modis-04_L2-061", items=[item]), server)
    (record,) = of.search("MYD04_L2", "61", DAY, DAY)
    assert (record.size, record.checksum, record.checksum_type) == (5, "ab" * 32, "sha256")
    assert digest("sha256") is not None
    assert record.url == f"{server.url}/blob/{name}"


def sign(server: FileServer, *tokens: str) -> list[str]:
    """Signatures are given in this order, good for an hour; returns those left."""
    left = list(tokens)

    def give(request: Request) -> None:
        ends = f"{NOW + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        request.answer(200, json.dumps({"token": left.pop(0), "msft:expiry": ends}).encode())

    server.always["/sas/modis-04_L2-061"] = give
    return left


def only(token: str) -> Act:
    """Serves whoever bears this signature."""

    def act(request: Request) -> None:
        if urlsplit(request.path).query == token:
            serve(request)
        else:
            request.answer(403, b"<Error><Code>AuthenticationFailed</Code></Error>")

    return act


def test_addresses_are_signed_and_signed_again(server: FileServer, tmp_path: Path) -> None:
    stac = Stac("modis-04_L2-061", items=swaths(2, server))
    of = archive(stac, server, signed=True)
    first, second = of.search("MYD04_L2", "61", DAY, DAY)
    data = granule(3000)
    for record in (first, second):
        server.files[urlsplit(record.url).path] = Served(data=data)
        server.always[urlsplit(record.url).path] = only("sv=1&sig=one")
    left = sign(server, "sv=1&sig=one", "sv=1&sig=two", "sv=1&sig=three")
    assert of.fetch(first, tmp_path / first.name).size == 3000
    assert of.fetch(second, tmp_path / second.name).size == 3000
    assert len(left) == 2
    server.always[urlsplit(first.url).path] = only("sv=1&sig=two")
    assert of.fetch(first, tmp_path / "again.hdf").size == 3000
    assert len(left) == 1
    server.always[urlsplit(first.url).path] = only("nothing")
    with pytest.raises(errors.SignatureExpiredError) as caught:
        of.fetch(first, tmp_path / "never.hdf")
    assert classify(caught.value).category is Category.CREDENTIALS_REFUSED
    assert "sig=" not in str(caught.value)
    assert not any(TOKEN in str(asked) for asked in server.asked)


def test_an_api_that_signs_what_it_lists_is_asked_for_the_address_again(
    server: FileServer, tmp_path: Path
) -> None:
    start = minutes(1)[0]
    name = swath_name(start)
    item = stac_item(name, start, f"{server.url}/blob/{name}?sig=one")
    of = archive(Stac("modis-04_L2-061", items=[item]), server)
    (record,) = of.search("MYD04_L2", "61", DAY, DAY)
    assert record.url == f"{server.url}/blob/{name}"  # no signature in a record
    server.files[f"/blob/{name}"] = Served(data=granule(3000))
    server.always[f"/blob/{name}"] = only("sig=two")
    with pytest.raises(errors.SignatureExpiredError) as caught:
        of.fetch(record, tmp_path / name)
    assert "sig=" not in str(caught.value)
    item["assets"]["hdf"]["href"] = f"{server.url}/blob/{name}?sig=two"
    assert of.fetch(record, tmp_path / name).size == 3000
    item["assets"]["hdf"]["href"] = f"{server.url}/blob/{name}"
    server.always[f"/blob/{name}"] = status(403)
    with pytest.raises(errors.NotPermittedError):
        of.fetch(record, tmp_path / "never.hdf")


def test_the_granule_is_found_among_other_files_and_addresses(server: FileServer) -> None:
    start = minutes(1)[0]
    name = swath_name(start)
    url = f"{server.url}/blob/{name}"
    among = stac_item(name, start, url)
    among["assets"] = {"qa": {"href": f"{server.url}/blob/QA_extra.hdf"}, **among["assets"]}
    there = {"href": f"s3://bucket/{name}", "alternate": {"https": {"href": url}}}
    elsewhere = {**stac_item(name, start, url), "assets": {"data": there}}
    for item in (among, elsewhere):
        of = archive(Stac("modis-04_L2-061", items=[item]), server)
        (record,) = of.search("MYD04_L2", "61", DAY, DAY)
        assert (record.name, record.url) == (name, url)


def test_other_hosts_get_no_signature(server: FileServer, tmp_path: Path) -> None:
    with file_server() as other:
        start = minutes(1)[0]
        name = swath_name(start)
        item = stac_item(name, start, f"{other.url}/{name}")
        other.files[f"/{name}"] = Served(data=granule(100))
        of = archive(Stac("modis-04_L2-061", items=[item]), server, signed=True)
        sign(server, "sig=one")
        (record,) = of.search("MYD04_L2", "61", DAY, DAY)
        of.fetch(record, tmp_path / name)
        assert not any("sig=" in asked.path for asked in other.asked)


def repeat(request: Request) -> None:
    asked: dict[str, Any] = json.loads(request.sent)
    request.sent = json.dumps({**asked, "token": "0"}).encode()
    request.files.always["again"](request)


def test_a_page_that_repeats_is_noticed(server: FileServer) -> None:
    stac = Stac("modis-04_L2-061", items=swaths(5, server))
    of = archive(stac, server)
    stac.faults[2] = repeat
    server.always["again"] = server.always["/stac/search"]
    with pytest.raises(errors.AnswerBrokenError, match="repeat"):
        list(of.search("MYD04_L2", "61", DAY, DAY))


@pytest.mark.parametrize(
    ("act", "kind", "category"),
    [
        (
            body(b'{"features": [], "numberMatched": 5, "links": []}'),
            errors.AnswerBrokenError,
            Category.TRANSPORT_ERROR,
        ),
        (body(b'{"features": 3}'), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (
            body(b'{"features": [{"id": "x", "assets": {"hdf": {}}}]}'),
            errors.AnswerBrokenError,
            Category.TRANSPORT_ERROR,
        ),
        (
            body(
                b'{"features": [{"id": "x", "assets": {}}], "links":'
                b' [{"rel": "next", "href": "http://elsewhere.example/"}]}'
            ),
            errors.AnswerBrokenError,
            Category.TRANSPORT_ERROR,
        ),
        *(
            (body(page.encode()), errors.AnswerBrokenError, Category.TRANSPORT_ERROR)
            for page in (
                '{"features": [{"id": "x", "assets": {}}], "links": null}',
                '{"features": [{"id": "x", "assets": {}}], "links": [{"rel": "next"}]}',
                '{"features": [{"id": "x", "assets": {}}], "links": ["next"]}',
                '{"features": [{"id": "x", "assets": {}}], "context": [5]}',
            )
        ),
        (status(404), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (status(429, Retry_After="500"), errors.ServerBusyError, Category.SERVER_BUSY),
        (status(401), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
        (body(b"[", length=30), errors.ConnectionFailedError, Category.CONNECTION_FAILURE),
        (silence, errors.ArchiveTimeoutError, Category.OPERATION_TIMEOUT),
    ],
)
def test_each_fault_of_a_search_has_its_error(
    server: FileServer, act: Act, kind: type[errors.ArchiveError], category: Category
) -> None:
    stac = Stac("modis-04_L2-061", items=swaths(5, server), faults=dict.fromkeys((2, 3, 4), act))
    of = archive(stac, server, timing=HASTY if act is silence else QUICK)
    with pytest.raises(errors.ArchiveError) as caught:
        list(of.search("MYD04_L2", "61", DAY, DAY))
    assert type(caught.value) is kind
    assert classify(caught.value).category is category


@pytest.mark.real_data
def test_real_items_are_read(granules: Path, server: FileServer) -> None:
    """Items of stactools-modis, whose assets of a granule's own file are put in their place."""
    folder = granules / "fixtures/stac-items"
    for path in sorted(folder.glob("*.json")):
        item = json.loads(path.read_text())
        product, _, tile, _ = path.name.split(".")[:4]
        start = datetime.fromisoformat(item["properties"]["start_datetime"])
        name = f"{product}.A{start:%Y%j}.{tile}.061.2022040192419.hdf"
        item["assets"]["hdf"] = {"href": f"{server.url}/{name}"}
        api = Stac(f"modis-{product[3:]}-061", items=[item])
        found = list(archive(api, server).search(product, "61", start.date(), start.date()))
        assert [(r.name, r.start, r.boundary) for r in found] == [(name, start, None)]
        assert found[0].tile == (int(tile[1:3]), int(tile[4:6]))
