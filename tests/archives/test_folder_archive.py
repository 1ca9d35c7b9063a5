"""A folder as an archive: its index, what it lists, and fetching from it."""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from archives.errors import (
    DownloadFailedError,
    IndexUnusableError,
    NotGranuleError,
    NotPublishedError,
)
from archives.fetch.files import LocalFiles
from archives.kinds import folder as folder_module
from archives.kinds.folder import FolderArchive
from archives.model import GranuleRecord
from archives.sources import Sources
from modis.granule_name import parse_granule_name
from reprojection.read.outline import read_outlines
from reprojection.sample.hdfeos_write import write_granule
from tests.archives.servers import granule
from tests.reprojection.reading_samples import small_tile

DAY = date(2012, 3, 5)


def archive(folder: Path, index: Path, counts: list[Path] | None = None) -> FolderArchive:
    def read(paths: Sequence[Path]) -> object:
        if counts is not None:
            counts.extend(paths)
        return read_outlines(paths)

    return FolderArchive(folder, index / "index.sqlite", read)  # type: ignore[arg-type]


def put(folder: Path, **choices: object) -> Path:
    granule = small_tile(**choices)  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / granule.local_name
    write_granule(path, granule)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    put(folder)
    put(folder / "deep" / "er", tile=(18, 3))
    put(folder, date="2012073")
    (folder / "README.txt").write_text("not a granule")
    return folder


def test_granules_are_found_in_folders_below_by_product_and_day(
    folder: Path, tmp_path: Path
) -> None:
    found = list(archive(folder, tmp_path).search("MCD15A2", "005", DAY, DAY))
    assert [(item.tile, item.start_day) for item in found] == [((17, 3), DAY), ((18, 3), DAY)]
    assert found[0].end == datetime(2012, 3, 12, 23, 59, 59, tzinfo=UTC)
    assert found[1].url.startswith("deep/er/")
    assert not list(archive(folder, tmp_path).search("MCD15A2", "6", DAY, DAY))
    assert len(list(archive(folder, tmp_path).search("MCD15A2", "5", DAY, date(2012, 3, 13)))) == 3


def test_files_are_read_once_and_again_when_they_change(folder: Path, tmp_path: Path) -> None:
    reads: list[Path] = []
    assert archive(folder, tmp_path, reads).refresh().added == 3
    assert archive(folder, tmp_path, reads).refresh().added == 0
    assert len(reads) == 3
    path = next(folder.glob("*2012073*.hdf"))
    path.write_bytes(path.read_bytes() + b"\0")
    assert archive(folder, tmp_path, reads).refresh().added == 1
    path.unlink()
    assert archive(folder, tmp_path, reads).refresh().removed == 1
    assert len(reads) == 4


def test_the_stamp_changes_with_the_files_of_the_product_and_days(
    folder: Path, tmp_path: Path
) -> None:
    of = archive(folder, tmp_path)

    def stamp() -> str:
        of.refresh()
        return of.stamp("MCD15A2", "5", DAY, DAY)

    first = stamp()
    assert stamp() == first
    put(folder, date="2012081")
    assert stamp() == first
    assert of.stamp("MCD15A2", "5", DAY, date(2012, 12, 31)) != first
    put(folder, tile=(19, 4))
    more = stamp()
    assert more != first
    (path,) = folder.rglob("*h19v04*")
    os.utime(path, (1, 1))
    assert stamp() not in (first, more)
    path.unlink()
    assert stamp() == first


def test_the_newest_edition_wins(folder: Path, tmp_path: Path) -> None:
    put(folder / "new", produced="2015001000000")
    put(folder / "old", produced="2011001000000")
    found = list(archive(folder, tmp_path).search("MCD15A2", "5", DAY, DAY))
    assert [item.production_time for item in found] == ["2015001000000", "2012153130500"]


def test_the_folder_says_which_collections_and_days_it_holds(folder: Path, tmp_path: Path) -> None:
    (held,) = archive(folder, tmp_path).holdings("MCD15A2")
    assert (held.collection, held.first, held.last) == ("5", DAY, date(2012, 3, 13))
    assert archive(folder, tmp_path).holdings("MOD13A2") == []


@pytest.mark.parametrize("content", [b"<html>sign in</html>", b"", b"\x0e\x03\x13\x01 cut short"])
def test_files_that_cannot_be_read_are_listed_by_their_name(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "MCD15A2.A2012065.h17v03.005.2012153130500.hdf").write_bytes(content)
    (folder / "MYD04_L2.A2012065.1230.061.2012153130500.hdf").write_bytes(content)
    (folder / "holiday.hdf").write_bytes(content)
    found = archive(folder, tmp_path)
    assert found.refresh().unrecognised == ("holiday.hdf",)
    (tile,) = found.search("MCD15A2", "5", DAY, DAY)
    assert tile.tile == (17, 3)
    (swath,) = found.search("MYD04_L2", "61", DAY, DAY)
    assert (swath.tile, swath.boundary) == (None, None)


def test_the_files_own_place_counts_not_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    path = put(folder)
    path.rename(folder / "MCD15A2.A2012065.h20v09.005.2012153130500.hdf")
    (found,) = archive(folder, tmp_path).search("MCD15A2", "5", DAY, DAY)
    assert found.tile == (17, 3)
    assert parse_granule_name(found.name) is not None


SIDECAR = """<?xml version="1.0"?><GranuleMetaDataFile><GranuleURMetaData>
<CollectionMetaData><ShortName>MYD04_L2</ShortName><VersionID>61</VersionID></CollectionMetaData>
<DataFiles><DataFileContainer><FileSize>{size}</FileSize><ChecksumType>CKSUM</ChecksumType>
<Checksum>{checksum}</Checksum></DataFileContainer></DataFiles>
<ECSDataGranule><DayNightFlag>Day</DayNightFlag></ECSDataGranule>
<SpatialDomainContainer><HorizontalSpatialDomainContainer><GPolygon><Boundary>
<Point><PointLongitude>1</PointLongitude><PointLatitude>50</PointLatitude></Point>
<Point><PointLongitude>9</PointLongitude><PointLatitude>51</PointLatitude></Point>
<Point><PointLongitude>8</PointLongitude><PointLatitude>60</PointLatitude></Point>
</Boundary></GPolygon></HorizontalSpatialDomainContainer></SpatialDomainContainer>
</GranuleURMetaData></GranuleMetaDataFile>"""


def with_sidecar(folder: Path, content: bytes, checksum: str) -> None:
    folder.mkdir(exist_ok=True)
    name = "MYD04_L2.A2012065.1230.061.2012153130500.hdf"
    (folder / name).write_bytes(content)
    (folder / f"{name}.xml").write_text(SIDECAR.format(size=len(content), checksum=checksum))


def test_a_sidecar_gives_place_and_checksum(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    with_sidecar(folder, b"some bytes", "12345")
    (found,) = archive(folder, tmp_path).search("MYD04_L2", "61", DAY, DAY)
    assert found.boundary == (((1.0, 50.0), (9.0, 51.0), (8.0, 60.0)),)
    assert (found.checksum, found.checksum_type, found.day_night) == ("12345", "cksum", "day")


def test_a_granule_that_is_a_link_is_fetched(tmp_path: Path) -> None:
    real = put(tmp_path / "elsewhere")
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / real.name).symlink_to(real)
    linked = archive(tmp_path / "archive", tmp_path)
    (record,) = linked.search("MCD15A2", "5", DAY, DAY)
    linked.fetch(record, tmp_path / "fetched.hdf")
    assert (tmp_path / "fetched.hdf").read_bytes() == real.read_bytes()


def test_a_record_cannot_name_a_file_outside(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.hdf").write_bytes(b"secret")
    indexed = archive(folder, tmp_path)
    record = next(indexed.search("MCD15A2", "5", DAY, DAY))
    with pytest.raises(NotPublishedError):
        indexed.fetch(replace(record, url="../secret.hdf"), tmp_path / "fetched.hdf")


def test_a_fetched_file_is_whole_and_verified(folder: Path, tmp_path: Path) -> None:
    found = archive(folder, tmp_path)
    record = next(found.search("MCD15A2", "5", DAY, DAY))
    got = found.fetch(record, tmp_path / "cache" / "one.hdf")
    source = folder / record.url
    assert got.path.read_bytes() == source.read_bytes()
    assert got.size == record.size


def test_a_file_that_does_not_match_its_sidecar_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    content = granule(400)
    with_sidecar(folder, content, "840296246")  # as cksum of coreutils prints it
    found = archive(folder, tmp_path)
    (record,) = found.search("MYD04_L2", "61", DAY, DAY)
    found.fetch(record, tmp_path / "fine.hdf")
    found.fetch(replace(record, checksum="0840296246"), tmp_path / "zero.hdf")
    capitals = "AF9375EA8C8D4CDCDBA750AA82C7FF42"
    found.fetch(replace(record, checksum=capitals, checksum_type="MD5"), tmp_path / "md5.hdf")
    with_sidecar(folder, content, "840296247")
    found.refresh()
    (record,) = found.search("MYD04_L2", "61", DAY, DAY)
    with pytest.raises(DownloadFailedError, match="840296247"):
        found.fetch(record, tmp_path / "wrong.hdf")
    assert not list(tmp_path.glob("wrong*"))


def test_a_file_that_changed_or_went_since_is_named(folder: Path, tmp_path: Path) -> None:
    found = archive(folder, tmp_path)
    first, second = found.search("MCD15A2", "5", DAY, DAY)
    (folder / first.url).write_bytes(b"shorter")
    with pytest.raises(DownloadFailedError, match="7 bytes"):
        found.fetch(first, tmp_path / "one.hdf")
    shutil.rmtree(folder / "deep")
    with pytest.raises(NotPublishedError, match="no longer"):
        found.fetch(second, tmp_path / "two.hdf")


def test_a_file_is_copied_as_it_was_listed_or_not_at_all(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Sources([archive(folder, tmp_path)])
    record, *_ = sources.search("MCD15A2", "005", DAY, DAY)
    path, to = folder / record.url, tmp_path / "copy"
    assert sources.copy_near(record, to)
    assert to.read_bytes() == path.read_bytes()
    to.unlink()
    assert not sources.copy_near(replace(record, stamp=""), to)
    fetch = FolderArchive.fetch

    def replaced_meanwhile(*given: object) -> object:
        found = fetch(*given)  # type: ignore[arg-type]
        os.utime(path, ns=(2, 2))
        return found

    monkeypatch.setattr(FolderArchive, "fetch", replaced_meanwhile)
    assert not sources.copy_near(record, to)
    monkeypatch.setattr(FolderArchive, "fetch", fetch)
    assert not sources.copy_near(record, to)  # it is another file now
    again, *_ = Sources([archive(folder, tmp_path)]).search("MCD15A2", "005", DAY, DAY)
    assert (again.name, again.size) == (record.name, record.size)
    assert again.stamp != record.stamp
    path.write_bytes(b"x" * record.size)
    damaged, *_ = Sources([archive(folder, tmp_path)]).search("MCD15A2", "005", DAY, DAY)
    with pytest.raises(NotGranuleError):
        sources.copy_near(damaged, to)
    path.unlink()
    assert not sources.copy_near(damaged, to)
    assert not to.exists()
    with pytest.raises(NotPublishedError):
        sources.copy_near(replace(damaged, source="elsewhere"), to)


def test_a_record_cannot_lead_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.hdf").write_bytes(b"secret")
    found = archive(folder, tmp_path)
    record = next(found.search("MCD15A2", "5", DAY, DAY))
    stray = GranuleRecord.from_json({**record.to_json(), "url": "../secret.hdf", "size": 6})
    with pytest.raises(NotPublishedError):
        found.fetch(stray, tmp_path / "one.hdf")


def test_records_survive_json(folder: Path, tmp_path: Path) -> None:
    for record in archive(folder, tmp_path).search("MCD15A2", "5", DAY, DAY):
        assert GranuleRecord.from_json(record.to_json()) == record


def test_an_index_of_another_version_is_made_anew(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_bytes(b"")
    assert archive(folder, tmp_path).refresh().added == 3


def test_unusable_places_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(IndexUnusableError, match="nowhere"):
        archive(tmp_path / "nowhere", tmp_path)
    (tmp_path / "index.sqlite").write_bytes(b"this is no database, whatever its name says" * 50)
    with pytest.raises(IndexUnusableError, match="delete it"):
        archive(folder, tmp_path).refresh()


def test_a_folder_that_has_gone_is_named_and_its_index_stays(folder: Path, tmp_path: Path) -> None:
    """It is no folder whose files were all deleted: they need not be read again."""
    held = archive(folder, tmp_path)
    files = held.refresh().files
    (tmp_path / "empty").mkdir()
    both = Sources([held, archive(tmp_path / "empty", tmp_path / "other")])
    assert both.absent() == ()
    folder.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    assert both.absent() == (str(folder.resolve()),)
    both.refresh()
    assert both.coverage() == []
    with pytest.raises(IndexUnusableError, match="is not a folder"):
        held.refresh()
    (tmp_path.parent / f"{tmp_path.name}-moved").rename(folder)
    assert (held.refresh().files, held.refresh().added) == (files, 0)
    assert both.coverage() != []


def test_a_damaged_index_is_named(folder: Path, tmp_path: Path) -> None:
    held = archive(folder, tmp_path)
    held.refresh()
    index = tmp_path / "index.sqlite"
    size = index.stat().st_size
    with index.open("r+b") as file:
        file.seek(4096)  # the first page is sound
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(IndexUnusableError, match="delete it"):
        list(held.search("MCD15A2", "5", DAY, DAY))


def test_an_index_that_another_process_makes_meanwhile_is_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    other = archive(folder, tmp_path, reads)
    schema = folder_module._schema

    def looked_at_before_the_other(index: sqlite3.Connection) -> int:
        found = schema(index)
        monkeypatch.setattr(folder_module, "_schema", schema)
        other.refresh()
        return found

    monkeypatch.setattr(folder_module, "_schema", looked_at_before_the_other)
    assert len(list(archive(folder, tmp_path, reads).search("MCD15A2", "5", DAY, DAY))) == 2
    assert len(reads) == 3  # all by the other


def test_a_file_that_another_process_adds_meanwhile_is_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = archive(folder, tmp_path), archive(folder, tmp_path)
    stamps = LocalFiles.stamps

    def listed_before_the_other(files: LocalFiles) -> Iterator[tuple[str, tuple[int, int, str]]]:
        found = list(stamps(files))
        monkeypatch.setattr(LocalFiles, "stamps", stamps)
        put(folder, date="2012081")
        other.refresh()
        return iter(found)

    monkeypatch.setattr(LocalFiles, "stamps", listed_before_the_other)
    one.refresh()
    day = date(2012, 3, 21)
    assert len(list(other.search("MCD15A2", "5", day, day))) == 1


def test_a_stamp_changes_with_a_sidecar_and_a_lost_file_hides_no_other(tmp_path: Path) -> None:
    names = ("A.txt", "B.hdf", "C.hdf", "C.hdf.xml")
    for name in names:
        (tmp_path / name).write_bytes(b"bytes")
    (tmp_path / "B.hdf").unlink()
    (tmp_path / "B.hdf").symlink_to(tmp_path / "gone")  # listed, and not there when looked at
    files = LocalFiles(tmp_path)
    ((name, before),) = files.stamps()
    assert name == "C.hdf"
    os.utime(tmp_path / "C.hdf.xml", (1, 1))
    ((_, after),) = files.stamps()
    assert before[:2] == after[:2]
    assert before[2] != after[2]


def test_others_may_write_the_index_while_files_are_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def read(paths: Sequence[Path]) -> object:
        nonlocal reads
        reads += len(paths)
        with closing(sqlite3.connect(tmp_path / "index.sqlite", timeout=0.0)) as index:
            index.execute("BEGIN IMMEDIATE")
        return read_outlines(paths)

    archive(folder, tmp_path).refresh()
    next(folder.glob("*2012073*.hdf")).unlink()
    put(folder, date="2012081")
    put(folder, date="2012089")
    monkeypatch.setattr(folder_module, "_BATCH", 1)
    FolderArchive(folder, tmp_path / "index.sqlite", read).refresh()  # type: ignore[arg-type]
    assert reads == 2


@pytest.mark.real_data
def test_the_real_archive_is_indexed(granules: Path, tmp_path: Path) -> None:
    found = archive(granules, tmp_path)
    others = found.refresh().unrecognised
    assert all(name.endswith(".nc") for name in others)  # rasters of other programs
    tiles = list(found.search("MCD15A2", "5", date(2012, 1, 1), date(2012, 4, 30)))
    assert len(tiles) == 32
    assert tiles == sorted(tiles, key=lambda item: (item.start, item.name))
    assert len(list(found.search("MCD15A2", "5", date(2012, 1, 3), date(2012, 4, 30)))) == 30
    (subset,) = found.search("MOD13A2", "6", date(2016, 1, 1), date(2016, 12, 31))
    assert subset.tile is None
    assert subset.boundary is not None
    (fires,) = found.search("MOD14", "6", date(2017, 1, 1), date(2017, 1, 1))
    assert fires.boundary is not None


def test_a_file_under_another_granules_name_is_told_as_what_it_holds(
    folder: Path, tmp_path: Path
) -> None:
    whole = archive(folder, tmp_path / "whole")
    assert whole.misnamed("MCD15A2", "5", DAY, DAY) == []
    stamp = whole.stamp("MCD15A2", "5", DAY, DAY)
    (right,) = (path for path in folder.glob("*.h17v03.*") if "2012065" in path.name)
    wrong = right.rename(right.with_name(right.name.replace("h17v03", "h19v04")))
    held = archive(folder, tmp_path / "index")
    (found,) = held.misnamed("MCD15A2", "005", DAY, DAY)
    assert (found.file, found.day, found.tile) == (wrong.name, DAY, (19, 4))
    assert (found.holds.product, found.holds.tile) == ("MCD15A2", (17, 3))
    assert held.misnamed("MCD15A2", "6", DAY, DAY) == []
    assert held.misnamed("MCD15A2", "5", date(2012, 3, 6), date(2012, 3, 31)) == []
    assert held.stamp("MCD15A2", "5", DAY, DAY) != stamp


def test_an_index_made_before_names_were_kept_is_made_anew(folder: Path, tmp_path: Path) -> None:
    (right,) = (path for path in folder.glob("*.h17v03.*") if "2012065" in path.name)
    right.rename(right.with_name(right.name.replace("h17v03", "h19v04")))
    before = archive(folder, tmp_path)
    before.refresh()
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as index:
        index.executescript(
            "DROP INDEX wrongly; ALTER TABLE files DROP COLUMN misnamed; PRAGMA user_version = 1;"
        )
    after = archive(folder, tmp_path)
    assert after.refresh().added > 0
    assert len(after.misnamed("MCD15A2", "5", DAY, DAY)) == 1


def test_names_are_judged_once_per_file_and_not_once_per_question(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = archive(folder, tmp_path)
    held.refresh()

    def unread(_text: object) -> object:
        raise AssertionError("a record was read")

    monkeypatch.setattr("archives.kinds.folder.GranuleRecord.from_json", unread)
    assert held.misnamed("MCD15A2", "5", DAY, DAY) == []
