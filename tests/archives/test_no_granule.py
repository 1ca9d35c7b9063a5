"""What is no granule is refused by every kind of source, and nothing of it is kept."""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import fsspec
import h5py
import pytest

from archives.errors import NotGranuleError
from archives.fetch.files import RemoteFiles
from archives.fetch.limits import LocalLimits
from archives.fetch.timing import Timing
from archives.formats import granule_file
from archives.formats.granule_file import check_granule_file
from archives.kinds.cmr import CmrArchive
from archives.kinds.folder import FolderArchive
from archives.kinds.ftp import FtpArchive
from archives.kinds.laads import LaadsArchive
from archives.kinds.pool import PoolArchive
from archives.kinds.stac import StacArchive
from archives.model import GranuleRecord
from archives.sources import ArchiveSource, Sources
from modis.collection import Collection
from reprojection.sample.hdfeos_write import write_granule
from tasks.bag.categories import Category
from tasks.service.classify import classify
from tests.archives.catalogues import credentials, downloader, web
from tests.archives.ftp_servers import ftp_server
from tests.archives.servers import FileServer, Served, file_server, granule, stall
from tests.reprojection.reading_samples import small_tile

NAME = "MOD13A2.A2018001.h18v04.061.2021313023538.hdf"
BELOW = "61/MOD13A2/2018/001"
WHOLE = granule(5000)
DENIED = b"HTTP Basic: Access denied.\n"


def hdf5(tmp_path: Path, **options: object) -> bytes:
    path = tmp_path / "whole.h5"
    with h5py.File(path, "w", **options) as file:
        file["values"] = list(range(500))
        file.attrs["title"] = "a file"
    data = path.read_bytes()
    path.unlink()
    return data


def classic(version: int, records: int = 3) -> bytes:
    """A netCDF-3 file: a fixed variable of 10 shorts, and one of floats with 2 in each record."""
    wide = version == 5
    count = struct.Struct(">Q" if wide else ">I")
    offset = struct.Struct(">I" if version == 1 else ">Q")

    def name(text: str) -> bytes:
        return count.pack(len(text)) + text.encode().ljust(-(-len(text) // 4) * 4, b"\0")

    def items(tag: int, of: list[bytes]) -> bytes:
        return struct.pack(">I", tag if of else 0) + count.pack(len(of)) + b"".join(of)

    def variable(text: str, dims: list[int], kind: int, size: int, begin: int) -> bytes:
        shape = count.pack(len(dims)) + b"".join(map(count.pack, dims))
        own = items(12, [name("units") + struct.pack(">I", 2) + name("km")])
        return (
            name(text)
            + shape
            + own
            + struct.pack(">I", kind)
            + count.pack(size)
            + (offset.pack(begin))
        )

    def head(begin: int) -> bytes:
        lengths = [("time", 0), ("x", 10), ("y", 2)]
        dims = items(10, [name(text) + count.pack(length) for text, length in lengths])
        made = [variable("a", [1], 3, 20, begin), variable("b", [0, 2], 5, 8, begin + 20)]
        of = items(12, [name("title") + struct.pack(">I", 2) + name("made up")])
        return b"CDF" + bytes([version]) + count.pack(records) + dims + of + items(11, made)

    return head(len(head(0))) + bytes(20 + 8 * records)


# --- The check itself ---


def refused(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "given"
    path.write_bytes(data)
    with pytest.raises(NotGranuleError) as caught:
        check_granule_file(path, NAME, "http://archive/x.hdf sent")
    return str(caught.value)


def test_whole_files_of_each_format_pass(tmp_path: Path) -> None:
    tile = tmp_path / "tile.hdf"
    write_granule(tile, small_tile())
    given = [
        tile.read_bytes(),
        WHOLE,
        hdf5(tmp_path),
        hdf5(tmp_path, libver="latest"),
        hdf5(tmp_path, userblock_size=0, track_order=True),
        *map(classic, (1, 2, 5)),
        classic(1, records=0),
    ]
    for number, data in enumerate(given):
        path = tmp_path / str(number)
        path.write_bytes(data)
        check_granule_file(path, NAME, "here")


@pytest.mark.parametrize("share", [0.001, 0.02, 0.1, 0.5, 0.97])
def test_each_format_cut_anywhere_is_refused(tmp_path: Path, share: float) -> None:
    tile = tmp_path / "tile.hdf"
    write_granule(tile, small_tile())
    files = [tile.read_bytes(), hdf5(tmp_path), hdf5(tmp_path, libver="latest")]
    for data in (*files, *map(classic, (1, 2, 5))):
        refused(tmp_path, data[: int(share * len(data))])


def test_one_byte_less_is_told_with_both_sizes(tmp_path: Path) -> None:
    for data in (WHOLE, hdf5(tmp_path), hdf5(tmp_path, libver="latest"), classic(1), classic(5)):
        said = refused(tmp_path, data[:-1])
        assert f"it has {len(data) - 1} bytes" in said
        assert f"to byte {len(data)};" in said


def test_the_beginning_of_a_format_without_its_structure_is_refused(tmp_path: Path) -> None:
    assert "table of data is empty" in refused(tmp_path, WHOLE[:4] + bytes(5000))
    data = hdf5(tmp_path)
    assert "superblock" in refused(tmp_path, data[:8] + b"\xff" * 5000)
    root = int.from_bytes(data[64:72], "little")
    assert "root group" in refused(tmp_path, data[:root] + b"\xee" * 16 + data[root + 16 :])
    assert "netCDF-3 header" in refused(tmp_path, b"CDF\x01" + b"\x07" * 5000)


def test_a_body_is_told_by_its_size_its_kind_and_its_first_words(tmp_path: Path) -> None:
    assert "sent 27 bytes of text: HTTP Basic: Access denied. The source answers with this " in (
        refused(tmp_path, DENIED)
    )
    assert "sent nothing: the source answers with 0 bytes" in refused(tmp_path, b"")
    assert "sent 12 bytes of data that is neither HDF nor netCDF: 50 4b 03 04" in (
        refused(tmp_path, b"PK\x03\x04" + bytes(8))
    )
    long = refused(tmp_path, "Zu viele Zugriffe: später wieder. ".encode() * 400)
    assert "bytes of text: Zu viele Zugriffe: später wieder. Zu viele" in long
    assert len(long) < 350


# --- Every kind of source ---


@dataclass(frozen=True)
class Serving:
    """A source over one granule, and how its bytes are set."""

    source: ArchiveSource
    put: Callable[[bytes], None]
    url: str


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def at_url(server: FileServer) -> Callable[[bytes], None]:
    return lambda data: server.files.update({f"/{NAME}": Served(data=data)})


def cmr(server: FileServer) -> Serving:
    own = credentials(server)
    of = CmrArchive(web(own, server), downloader(own, server), url=server.url, name="cmr")
    return Serving(of, at_url(server), f"{server.url}/{NAME}")


def laads(server: FileServer) -> Serving:
    own = credentials(server)
    of = LaadsArchive(web(own, server), downloader(own, server), url=server.url)
    return Serving(of, at_url(server), f"{server.url}/{NAME}")


def pool(server: FileServer) -> Serving:
    own = credentials(server)
    of = PoolArchive(web(own, server), downloader(own, server), url=server.url)
    return Serving(of, at_url(server), f"{server.url}/{NAME}")


def stac(server: FileServer) -> Serving:
    own = credentials(server)
    of = StacArchive(web(own, server), downloader(own, server), url=server.url)
    return Serving(of, at_url(server), f"{server.url}/{NAME}")


HTTP = {"cmr": cmr, "laads": laads, "pool": pool, "stac": stac}


@pytest.fixture(params=[*HTTP, "ftp", "folder", "remote folder"])
def serving(
    request: pytest.FixtureRequest, server: FileServer, tmp_path: Path
) -> Iterator[Serving]:
    kind = str(request.param)
    index = tmp_path / "index.sqlite"
    if kind in HTTP:
        yield HTTP[kind](server)
    elif kind == "ftp":
        path = tmp_path / "ftp" / BELOW / NAME
        path.parent.mkdir(parents=True)
        with ftp_server(tmp_path / "ftp") as running:
            timing = Timing(connect=20.0, stall=20.0, pause=0.01)
            of = FtpArchive(running.url, LocalLimits(rate=10_000.0), timing=timing)
            yield Serving(of, lambda data: _write(path, data), f"{running.url}/{BELOW}/{NAME}")
    elif kind == "folder":
        (tmp_path / "archive").mkdir()
        path = tmp_path / "archive" / NAME
        local = FolderArchive(tmp_path / "archive", index)
        yield Serving(local, lambda data: _write(path, data), NAME)
    else:
        memory = fsspec.filesystem("memory")
        memory.mkdirs("/no-granule", exist_ok=True)
        remote = FolderArchive(RemoteFiles("memory://no-granule"), index)
        yield Serving(remote, lambda data: memory.pipe(f"/no-granule/{NAME}", data), NAME)
        memory.rm("/no-granule", recursive=True)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def record(of: Serving, size: int) -> GranuleRecord:
    when = datetime(2018, 1, 1, tzinfo=UTC)
    return GranuleRecord(
        name=NAME,
        product="MOD13A2",
        collection=Collection("61"),
        start=when,
        end=when,
        tile=None,
        boundary=None,
        production_time="2021313023538",
        size=size,
        checksum=None,
        checksum_type=None,
        url=of.url,
        day_night="",
        source=of.source.name,
    )


BODIES = {
    "text": (DENIED, " 27 bytes of text: HTTP Basic: Access denied."),
    "nothing": (b"", "nothing: the source answers with 0 bytes"),
    "half": (WHOLE[:2500], "it has 2500 bytes"),
    "a beginning": (WHOLE[:4] + bytes(5000), "table of data is empty"),
    "a document": (b"<?xml version='1.0'?><Error/>", "29 bytes of text: <?xml version='1.0'?>"),
    "an archive": (b"PK\x03\x04" + bytes(3000), "neither HDF nor netCDF"),
}


@pytest.mark.parametrize("body", BODIES)
def test_no_source_keeps_what_is_no_granule(serving: Serving, body: str, tmp_path: Path) -> None:
    data, said = BODIES[body]
    serving.put(data)
    to = tmp_path / "fetched" / NAME
    size = len(data) if serving.source.name == "folder" else 0
    with pytest.raises(NotGranuleError) as caught:
        serving.source.fetch(record(serving, size), to)
    assert said in str(caught.value)
    assert classify(caught.value).category is Category.DOWNLOAD_FAILED
    assert [*to.parent.iterdir()] == []
    serving.put(WHOLE)
    size = len(WHOLE) if serving.source.name == "folder" else 0
    assert serving.source.fetch(record(serving, size), to).path.read_bytes() == WHOLE


def test_a_long_text_is_refused_by_its_beginning(server: FileServer, tmp_path: Path) -> None:
    of = cmr(server)
    of.put(b"We are sorry. " * 20_000)
    server.acts[f"/{NAME}"] = [stall(100_000)]
    with pytest.raises(NotGranuleError, match="sent more than 65536 bytes of text: We are sorry"):
        of.source.fetch(record(of, 0), tmp_path / "to" / NAME)


def test_a_part_that_an_earlier_attempt_left_is_checked(server: FileServer, tmp_path: Path) -> None:
    to = tmp_path / "fetched" / NAME
    to.parent.mkdir()
    url = f"{server.url}/{NAME}"
    to.with_name(f"{NAME}.part").write_bytes(WHOLE[:100])
    state = {"url": url, "validator": '"v1"', "total": 200}
    to.with_name(f"{NAME}.part.json").write_text(json.dumps(state))
    server.files[f"/{NAME}"] = Served(data=WHOLE[:200])
    of = cmr(server)
    with pytest.raises(NotGranuleError, match="it has 200 bytes"):
        of.source.fetch(record(of, 0), to)
    assert [*to.parent.iterdir()] == []
    assert [asked.headers.get("range") for asked in server.asked] == ["bytes=100-"]


def test_the_next_source_gives_what_the_first_does_not(server: FileServer, tmp_path: Path) -> None:
    first = cmr(server)
    first.put(DENIED)
    (tmp_path / "archive").mkdir()
    write_granule(tmp_path / "archive" / NAME, small_tile())
    folder = FolderArchive(tmp_path / "archive", tmp_path / "index.sqlite")
    (listed,) = folder.search("MOD13A2", "61", date(2018, 1, 1), date(2018, 1, 1))
    assert listed.name == NAME
    fetched = Sources([first.source, folder]).fetch(record(first, 0), tmp_path / "to" / NAME)
    assert fetched.size == listed.size


@pytest.mark.parametrize("more", [0, 1])
def test_a_list_of_a_header_has_so_many_items_at_most(tmp_path: Path, more: int) -> None:
    """Damage may not have millions read in vain."""
    count = granule_file._MOST_ITEMS + more
    said = refused(tmp_path, b"CDF\x01" + struct.pack(">III", 0, 10, count) + bytes(5000))
    assert (f"a list of {count} items" in said) == bool(more), said
