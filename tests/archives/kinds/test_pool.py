"""Data pools: their web pages, as recorded and as they may fail, and sidecars at the fetch."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from archives import errors
from archives.fetch.timing import Timing
from archives.formats.checksums import Cksum
from archives.kinds.pool import PoolArchive
from tasks.bag.categories import Category
from tasks.service.classify import classify
from tests.archives.catalogues import HASTY, QUICK, TOKEN, credentials, downloader, web
from tests.archives.servers import (
    Act,
    FileServer,
    Served,
    body,
    file_server,
    granule,
    redirect,
    silence,
    status,
)

DAY = date(2020, 1, 5)
NAME = "MCD15A3H.A2020005.h18v04.006.2020010212848.hdf"
FOLDER = "/MOTA/MCD15A3H.006"
DATA = granule(3000)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def archive(server: FileServer, timing: Timing = QUICK) -> PoolArchive:
    own = credentials(server)
    return PoolArchive(
        web(own, server, timing=timing), downloader(own, server), url=f"{server.url}/MOTA"
    )


def page(*links: str) -> Act:
    rows = "".join(
        f'<img src="/x.gif"> <a href="{link}">{link}</a> 2020-01-10 1.2M\n' for link in links
    )
    head = '<a href="?C=N;O=D">Name</a> <a href="/MOTA/">Parent Directory</a>'
    return body(f"<html><body><pre>{head}<hr>{rows}</pre></body></html>".encode())


def mount(server: FileServer) -> None:
    server.always["/MOTA/"] = page("MCD15A3H.006/", "MCD15A3H.061/", "MCD15A3H_NRT.006/", "x.txt")
    server.always[f"{FOLDER}/"] = page("2020.01.01/", "2020.01.05/", "2020.13.01/", "doc/")
    server.always["/MOTA/MCD15A3H.061/"] = page()
    server.always[f"{FOLDER}/2020.01.01/"] = page()
    server.always[f"{FOLDER}/2020.01.05/"] = page(
        NAME, f"{NAME}.xml", f"BROWSE.{NAME}.1.jpg", NAME.replace("006.2020010", "006.2019010")
    )


def test_days_and_granules_are_read_from_pages(server: FileServer) -> None:
    mount(server)
    of = archive(server)
    (record,) = of.search("MCD15A3H", "006", date(2020, 1, 2), date(2020, 12, 31))
    assert (record.name, record.tile, record.size) == (NAME, (18, 4), 0)
    assert record.url == f"{server.url}{FOLDER}/2020.01.05/{NAME}"
    assert f"{FOLDER}/2020.01.01/" not in server.paths()
    (held,) = of.holdings("MCD15A3H")
    assert (held.collection, held.first, held.last) == ("6", date(2020, 1, 1), DAY)
    assert list(of.search("MOD99", "6", DAY, DAY)) == []


def sidecar(size: int, checksum: str) -> bytes:
    return (
        "<G><GranuleURMetaData><DataFiles><DataFileContainer>"
        f"<FileSize>{size}</FileSize><ChecksumType>CKSUM</ChecksumType>"
        f"<Checksum>{checksum}</Checksum></DataFileContainer></DataFiles></GranuleURMetaData></G>"
    ).encode()


def test_a_granule_is_verified_by_its_sidecar(server: FileServer, tmp_path: Path) -> None:
    mount(server)
    of = archive(server)
    (record,) = of.search("MCD15A3H", "6", DAY, DAY)
    path = f"{FOLDER}/2020.01.05/{NAME}"
    server.files[path] = Served(data=DATA)
    assert of.fetch(record, tmp_path / "bare.hdf").size == 3000
    running = Cksum()
    running.update(DATA)
    server.always[f"{path}.xml"] = body(sidecar(len(DATA), running.hexdigest()))
    assert of.fetch(record, tmp_path / "whole.hdf").size == 3000
    server.always[f"{path}.xml"] = body(sidecar(len(DATA), "1"))
    with pytest.raises(errors.DownloadFailedError, match="cksum"):
        of.fetch(record, tmp_path / "damaged.hdf")
    assert not (tmp_path / "damaged.hdf").exists()
    assert server.asked[-1].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("act", "kind", "category"),
    [
        (status(404), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (status(401), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
        (status(503, Retry_After="99"), errors.ServerBusyError, Category.SERVER_BUSY),
        (redirect("/oauth/authorize"), errors.TokenRefusedError, Category.CREDENTIALS_REFUSED),
        (body(b"<html><a href='x'>"), errors.AnswerBrokenError, Category.TRANSPORT_ERROR),
        (body(b"<html>", length=900), errors.ConnectionFailedError, Category.CONNECTION_FAILURE),
        (silence, errors.ArchiveTimeoutError, Category.OPERATION_TIMEOUT),
    ],
)
def test_a_page_that_fails_is_no_empty_page(
    server: FileServer, act: Act, kind: type[errors.ArchiveError], category: Category
) -> None:
    mount(server)
    server.always[f"{FOLDER}/2020.01.05/"] = act
    with pytest.raises(errors.ArchiveError) as caught:
        list(archive(server, HASTY if act is silence else QUICK).search("MCD15A3H", "6", DAY, DAY))
    assert type(caught.value) is kind
    assert classify(caught.value).category is category


@pytest.mark.real_data
def test_recorded_pages_of_lp_daac_and_nsidc_are_read(granules: Path, server: FileServer) -> None:
    folder = granules / "fixtures/archive-listings"
    pages = {
        f"{FOLDER}/": "e4ftl01_MOTA_MCD15A3H.006.html",
        f"{FOLDER}/2020.01.05/": "e4ftl01_MOTA_MCD15A3H.006_2020.01.05.html",
        "/MOTA/MOD10A1.006/2019.01.01/": "n5eil01u_MOST_MOD10A1.006_2019.01.01.html",
    }
    for path, name in pages.items():
        server.always[path] = body((folder / name).read_bytes())
    server.always["/MOTA/MOD10A1.006/"] = page("2019.01.01/")
    server.always["/MOTA/"] = page("MCD15A3H.006/")
    of = archive(server)
    leaves = list(of.search("MCD15A3H", "6", DAY, DAY))
    text = (folder / pages[f"{FOLDER}/2020.01.05/"]).read_text()
    assert len(leaves) == text.count('.hdf"') > 200
    assert len({r.tile for r in leaves}) == len(leaves)
    (held,) = of.holdings("MCD15A3H")
    assert held.first == date(2002, 7, 4)
    day = date(2019, 1, 1)
    snow = list(of.search("MOD10A1", "6", day, day))
    assert len(snow) > 200
    assert {r.start_day for r in snow} == {day}
    assert all(r.production_time.startswith("2019") for r in snow)
