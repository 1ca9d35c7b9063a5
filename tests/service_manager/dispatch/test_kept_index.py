"""A manager on an empty disk finds the archive's index in storage."""

import shutil
from concurrent.futures import Future
from pathlib import Path

import pytest

from archives.kinds.folder import FolderArchive
from service_manager.dispatch.kept_index import EVERY, KeptIndex
from tasks.errors import StoreError
from tasks.storage.blobs import GRANULES, MemoryBlobs
from tasks.storage.clock import ManualClock


def run(job: object) -> "Future[None]":
    done: Future[None] = Future()
    assert callable(job)
    job()
    done.set_result(None)
    return done


class Disk:
    """A manager's disk, on which it indexes an archive that others have, too."""

    def __init__(self, folder: Path, archive: Path, blobs: MemoryBlobs, clock: ManualClock) -> None:
        folder.mkdir()
        self.archive, self.path = archive, folder / "index.sqlite"
        self.kept = KeptIndex(blobs, str(archive), self.path, clock, run)

    def refresh(self) -> int:
        """The files that had to be read."""
        return FolderArchive(self.archive, index_path=self.path).refresh().added


def test_the_next_manager_reads_only_what_is_new(sample_archive: Path, tmp_path: Path) -> None:
    shutil.copytree(sample_archive, tmp_path / "archive")
    blobs, clock = MemoryBlobs(), ManualClock()
    first = Disk(tmp_path / "one", tmp_path / "archive", blobs, clock)
    first.kept.restore()
    assert not first.path.exists()
    assert first.refresh() > 10
    first.kept.tick()
    assert [*blobs.names(GRANULES)] == []  # it is not time
    clock.sleep(EVERY)
    first.kept.tick()
    (name,) = blobs.names(GRANULES)
    clock.sleep(EVERY)
    first.kept.tick()
    assert [*blobs.names(GRANULES)] == [name]  # nothing has changed

    granule = next(one for one in (tmp_path / "archive").rglob("*.hdf"))
    granule.rename(granule.with_name(granule.name.replace(".hdf", ".copy.hdf")))
    second = Disk(tmp_path / "two", tmp_path / "archive", blobs, clock)
    second.kept.restore()
    assert second.refresh() == 1
    clock.sleep(EVERY)
    second.kept.tick()
    (newer,) = blobs.names(GRANULES)
    assert newer > name

    other = Disk(tmp_path / "three", tmp_path / "archive", blobs, clock)
    other.kept = KeptIndex(blobs, "another archive", other.path, clock, run)
    other.kept.restore()
    assert not other.path.exists()


def test_without_storage_the_index_is_made_anew(
    sample_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sample_archive, tmp_path / "archive")
    blobs, clock = MemoryBlobs(), ManualClock()
    disk = Disk(tmp_path / "one", tmp_path / "archive", blobs, clock)

    def fail(*_: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(blobs, "names", fail)
    disk.kept.restore()
    assert disk.refresh() > 10
    disk.kept.keep()


def test_builds_with_other_schemas_keep_copies_of_their_own(
    sample_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, clock = MemoryBlobs(), ManualClock()
    mine = Disk(tmp_path / "one", sample_archive, blobs, clock)
    mine.refresh()
    mine.kept.keep()
    monkeypatch.setattr("service_manager.dispatch.kept_index.INDEX_SCHEMA", 99)
    other = Disk(tmp_path / "two", sample_archive, blobs, clock)
    other.kept.restore()
    assert not other.path.exists()
    other.refresh()
    other.kept.keep()
    monkeypatch.undo()
    third = Disk(tmp_path / "three", sample_archive, blobs, clock)
    third.kept.restore()
    assert third.refresh() == 0
