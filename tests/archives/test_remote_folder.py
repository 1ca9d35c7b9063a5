"""A folder archive at a URL: the index, reading no more than it must, and fetching."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import fsspec
import pytest
from azure.storage.blob import ContainerClient

from archives.errors import (
    ConnectionFailedError,
    DownloadFailedError,
    NotPublishedError,
    SourcesSettingError,
)
from archives.fetch.files import RemoteFiles
from archives.kinds.folder import FolderArchive
from reprojection.read.outline import read_outlines
from reprojection.sample.hdfeos_write import write_granule
from tests.reprojection.reading_samples import small_tile

DAY = date(2012, 3, 5)
URL = "memory://mirror/modis"
SWATH = "MYD04_L2.A2012065.1230.061.2012153130500.hdf"


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    if system.exists("/mirror"):
        system.rm("/mirror", recursive=True)


@pytest.fixture
def name(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> str:
    granule = small_tile()
    write_granule(tmp_path / "tile.hdf", granule)
    memory.pipe(f"/mirror/modis/2012/{granule.local_name}", (tmp_path / "tile.hdf").read_bytes())
    memory.pipe("/mirror/modis/README.txt", b"not a granule")
    return granule.local_name


def archive(tmp_path: Path, reads: list[str] | None = None) -> FolderArchive:
    def read(paths: Sequence[Path]) -> object:
        if reads is not None:
            reads.extend(path.name for path in paths)
        return read_outlines(paths)

    return FolderArchive(RemoteFiles(URL), tmp_path / "index.sqlite", read)  # type: ignore[arg-type]


def test_a_tile_is_listed_by_its_name_without_being_read(name: str, tmp_path: Path) -> None:
    reads: list[str] = []
    (record,) = archive(tmp_path, reads).search("MCD15A2", "5", DAY, DAY)
    assert (record.name, record.tile, record.url) == (name, (17, 3), f"2012/{name}")
    assert reads == []


def test_a_swath_is_read_once_when_nothing_else_places_it(
    memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    memory.pipe(f"/mirror/modis/{SWATH}", b"\x0e\x03\x13\x01 cut short")
    reads: list[str] = []
    for _ in range(2):
        (record,) = archive(tmp_path, reads).search("MYD04_L2", "61", DAY, DAY)
        assert record.boundary is None
    assert reads == [SWATH]
    memory.pipe(f"/mirror/modis/{SWATH}", b"\x0e\x03\x13\x01 cut shorter")
    assert archive(tmp_path, reads).refresh().added == 1
    memory.rm(f"/mirror/modis/{SWATH}")
    assert archive(tmp_path, reads).refresh().removed == 1


def test_a_sidecar_places_a_swath(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    points = "".join(
        f"<Point><PointLongitude>{x}</PointLongitude><PointLatitude>{y}</PointLatitude></Point>"
        for x, y in ((1, 50), (9, 51), (8, 60))
    )
    memory.pipe(f"/mirror/modis/{SWATH}", b"some bytes")
    memory.pipe(
        f"/mirror/modis/{SWATH}.xml",
        (
            "<G><GranuleURMetaData><SpatialDomainContainer><HorizontalSpatialDomainContainer>"
            f"<GPolygon><Boundary>{points}</Boundary></GPolygon></HorizontalSpatialDomainContainer>"
            "</SpatialDomainContainer></GranuleURMetaData></G>"
        ).encode(),
    )
    reads: list[str] = []
    (record,) = archive(tmp_path, reads).search("MYD04_L2", "61", DAY, DAY)
    assert record.boundary == (((1.0, 50.0), (9.0, 51.0), (8.0, 60.0)),)
    assert reads == []


@pytest.mark.parametrize("file", ["../secret.hdf", "2012/../../secret.hdf"])
def test_no_name_leads_out_of_the_place(tmp_path: Path, file: str) -> None:
    (tmp_path / "modis" / "2012").mkdir(parents=True)
    (tmp_path / "secret.hdf").write_bytes(b"secret")
    (tmp_path / "secret.hdf.xml").write_bytes(b"<G/>")
    files = RemoteFiles(f"file://{tmp_path}/modis")
    with pytest.raises(NotPublishedError, match=r"secret\.hdf is no longer in "):
        files.chunks(file)
    assert files.sidecar(file) is None


def test_a_stamp_changes_with_a_file_or_its_sidecar(memory: fsspec.AbstractFileSystem) -> None:
    path = f"/mirror/modis/2012/{SWATH}"

    def stamp() -> object:
        ((name, found),) = RemoteFiles(URL).stamps()
        assert name == f"2012/{SWATH}"
        return found

    memory.pipe(path, b"one")
    found = [stamp(), stamp()]
    assert found[0] == found[1]
    for changed, content in ((path, b"two"), (f"{path}.xml", b"<G/>"), (f"{path}.xml", b"<H/>")):
        memory.pipe(changed, content)
        found.append(stamp())
    assert len(set(found)) == 4


def test_a_granule_is_fetched_whole_or_not_at_all(
    name: str, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    of = archive(tmp_path)
    (record,) = of.search("MCD15A2", "5", DAY, DAY)
    fetched = of.fetch(record, tmp_path / "one.hdf")
    assert fetched.path.read_bytes() == memory.cat(f"/mirror/modis/2012/{name}")
    memory.pipe(f"/mirror/modis/2012/{name}", b"shorter")
    with pytest.raises(DownloadFailedError, match="7 bytes"):
        of.fetch(record, tmp_path / "two.hdf")
    memory.rm(f"/mirror/modis/2012/{name}")
    with pytest.raises(NotPublishedError, match="no longer in memory://mirror/modis"):
        of.fetch(record, tmp_path / "two.hdf")
    assert not list(tmp_path.glob("two*"))


def test_a_place_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(SourcesSettingError, match="nothing://here"):
        RemoteFiles("nothing://here/there")


def test_a_bucket_without_credentials_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions = pytest.importorskip("botocore.exceptions")
    files = RemoteFiles("s3://bucket/modis")

    def refuse(*_: object, **__: object) -> None:
        raise exceptions.NoCredentialsError

    monkeypatch.setattr(files._system, "find", refuse)
    with pytest.raises(ConnectionFailedError, match=r"s3://bucket/modis .*credentials"):
        FolderArchive(files, tmp_path / "index.sqlite").holdings("MCD15A2")


@pytest.mark.integration
def test_a_container_of_azure_is_an_archive(azurite: str, tmp_path: Path) -> None:
    granule = small_tile()
    write_granule(tmp_path / "tile.hdf", granule)
    with ContainerClient.from_connection_string(azurite, "mirror-of-an-archive") as container:
        container.create_container()
        container.upload_blob(
            f"modis/2012/{granule.local_name}", (tmp_path / "tile.hdf").read_bytes()
        )
    files = RemoteFiles("abfs://mirror-of-an-archive/modis", {"connection_string": azurite})
    of = FolderArchive(files, tmp_path / "index.sqlite")
    (record,) = of.search("MCD15A2", "5", DAY, DAY)
    fetched = of.fetch(record, tmp_path / "one.hdf")
    assert fetched.path.read_bytes() == (tmp_path / "tile.hdf").read_bytes()
    assert of.refresh().added == 0
    gone = replace(record, url="modis/2012/no-such.hdf")
    with pytest.raises(NotPublishedError):
        of.fetch(gone, tmp_path / "two.hdf")
