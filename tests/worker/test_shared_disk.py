"""A disk that several attempts fill together costs none of them a try; one alone is charged."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.bag.categories import Category
from tasks.bag.spec import CollectSpec
from tests.worker.disks import disk_of
from tests.worker.mill import Mill
from tests.worker.world import collect_spec
from worker.files.disk_use import filled_by_others
from worker.sandbox.messages import Failed

MB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes, with a scratch folder of three workers, and a cache."""
    with disk_of(tmp_path / "disk", "8m") as folder:
        for name in ("scratch/a/1", "scratch/a/maker", "scratch/b/2", "cache/entries/00"):
            (folder / name).mkdir(parents=True)
        yield folder


def said(disk: Path, since: float = 1e12) -> str:
    own = [disk / "scratch/a/1", disk / "scratch/a/maker"]
    return filled_by_others(disk / "scratch", disk / "cache", own, since)


def test_what_other_attempts_hold_counts_and_its_own_files_do_not(disk: Path) -> None:
    (disk / "scratch/a/1/own").write_bytes(bytes(2 * MB))
    (disk / "scratch/a/maker/own").write_bytes(bytes(2 * MB))
    assert said(disk) == ""
    (disk / "scratch/b/2/other").write_bytes(bytes(3 * MB))
    assert said(disk) == "other attempts held 0.00315 GB of the disk"


def test_little_that_others_hold_counts_for_nothing(disk: Path) -> None:
    (disk / "scratch/b/2/other").write_bytes(bytes(MB // 2))
    (disk / "scratch/a/1/own").write_bytes(bytes(7 * MB))
    assert said(disk) == ""


def test_a_disk_with_much_room_is_not_filled_by_others(tmp_path: Path) -> None:
    """The attempt met its own limit, or the stack's quota."""
    for name in ("a/1", "b/2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b/2/other").write_bytes(bytes(MB))
    assert filled_by_others(tmp_path, tmp_path / "cache", [tmp_path / "a/1"], 1.0) == ""


def test_another_attempt_that_met_the_same_meanwhile_counts_though_its_files_are_gone(
    disk: Path,
) -> None:
    assert said(disk) == ""
    assert not (disk / "scratch/full").exists(), "the disk has room: it met a limit of its own"
    ballast = disk / "scratch/a/1/own"
    ballast.write_bytes(bytes(15 * MB // 2))
    assert said(disk) == ""
    ballast.unlink()
    os.utime(disk / "scratch/full", (10.0, 10.0))
    assert said(disk, since=11.0) == ""
    os.utime(disk / "scratch/full", (10.0, 10.0))
    assert said(disk, since=9.0) == "another attempt on this disk met the same at that time"


def test_the_cache_gives_way_and_is_no_fault_of_the_attempt_s(disk: Path) -> None:
    entries = [disk / "cache/entries/00" / name for name in ("older", "newer")]
    for age, entry in enumerate(entries):
        entry.write_bytes(bytes(3 * MB if not age else MB // 2))
        os.utime(entry, (age, age))
    assert said(disk) == "the cache held 0.00367 GB of the disk, and is emptied"
    assert [entry.exists() for entry in entries] == [False, True]
    assert said(disk) == ""


def large(archive: Path) -> CollectSpec:
    archive.mkdir()
    path = archive / "MCD15A2.A2012001.h17v03.005.2012153130500.hdf"
    path.write_bytes(bytes(9 * MB))
    return collect_spec(path, archive, "MCD15A2", "5")


@pytest.mark.provokes(Category.DISK_SHARED, Category.OUT_OF_DISK)
@pytest.mark.parametrize("others", [True, False])
def test_an_attempt_fails_for_itself_only_where_it_has_the_disk_alone(
    disk: Path, tmp_path: Path, others: bool
) -> None:
    mill = Mill(disk, tmp_path / "archive")
    mill.scratch = disk / "scratch" / "worker"
    spec = large(mill.archive)
    if others:
        (disk / "scratch/b/2/other").write_bytes(bytes(3 * MB))
    failed = mill.attempt(spec)
    assert isinstance(failed, Failed)
    assert failed.category is (Category.DISK_SHARED if others else Category.OUT_OF_DISK), failed
    assert ("; other attempts held " in failed.message) == others
