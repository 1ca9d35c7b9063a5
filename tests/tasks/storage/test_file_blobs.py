"""Blobs as files: links, checksums, kills at every step, full disks, what killed writers leave."""

import errno
import hashlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.bag.categories import Category
from tasks.errors import BlobNameError, CorruptBlobError, StorageFullError, StoreError
from tasks.service.classify import classify
from tasks.storage import file_blobs
from tasks.storage.blobs import ARTIFACTS, GRANULES, PLANS, bytes_digest, file_digest, is_damaged
from tasks.storage.file_blobs import FileBlobs
from tests.worker.disks import disk_of

NAME = "4f/claim/cell.tif"


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    """Blobs in a folder of the test's own, whose checksums are remembered without end."""
    made = FileBlobs(tmp_path / "blobs", trusted=math.inf)
    made.create([ARTIFACTS, GRANULES, PLANS])
    return made


def files(folder: Path) -> list[Path]:
    """Return all files below a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_file_is_linked_in_and_out_and_read_only(blobs: FileBlobs, tmp_path: Path) -> None:
    path, copy = tmp_path / "cell.tif", tmp_path / "copy"
    path.write_bytes(b"pixels")
    stored = blobs.put_file(ARTIFACTS, NAME, path)
    blobs.get_file(ARTIFACTS, NAME, copy, stored.sha256)
    assert path.samefile(copy)
    assert path.stat().st_nlink == 3
    assert path.stat().st_mode & 0o777 == 0o444
    blobs.delete(ARTIFACTS, NAME)
    assert copy.read_bytes() == b"pixels"


def test_without_hard_links_files_are_copied(
    blobs: FileBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "blobs"
    link = os.link

    def refuse(source: Path, to: Path) -> None:
        if not (Path(source).is_relative_to(inside) and Path(to).is_relative_to(inside)):
            raise OSError(errno.EXDEV, "another file system")
        link(source, to)

    monkeypatch.setattr(os, "link", refuse)
    path, copy = tmp_path / "cell.tif", tmp_path / "copy"
    path.write_bytes(b"pixels")
    copy.write_bytes(b"of an earlier try")
    stored = blobs.put_file(ARTIFACTS, NAME, path)
    blobs.get_file(ARTIFACTS, NAME, copy, stored.sha256)
    assert copy.read_bytes() == b"pixels"
    assert path.stat().st_nlink == copy.stat().st_nlink == 1
    assert len(files(inside)) == 1


@pytest.mark.parametrize("how", ["file", "bytes", "bytes again"])
def test_content_is_on_the_disk_before_its_name_and_the_name_before_the_answer(
    blobs: FileBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "bytes again":
        blobs.put_bytes(ARTIFACTS, NAME, b"pixels")
    fsync, link = os.fsync, os.link
    done: list[tuple[str, int]] = []

    def noted_fsync(handle: int) -> None:
        fsync(handle)
        done.append(("fsync", os.fstat(handle).st_ino))

    def noted_link(source: Path, to: Path) -> None:
        link(source, to)
        done.append(("link", to.stat().st_ino))

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)
    if how == "file":
        path = tmp_path / "cell.tif"
        path.write_bytes(b"pixels")
        blobs.put_file(ARTIFACTS, NAME, path)
    else:
        blobs.put_bytes(ARTIFACTS, NAME, b"pixels")
    (stored,) = files(tmp_path / "blobs")
    inode, folder, container = (
        path.stat().st_ino for path in (stored, stored.parent, stored.parent.parent)
    )
    if how == "bytes again":
        assert done[-1] == ("fsync", folder)
    else:
        assert done == [
            ("fsync", inode),
            ("fsync", container),
            ("link", inode),
            ("fsync", folder),
        ]


def test_names_keep_their_order_over_folders(blobs: FileBlobs) -> None:
    names = ["a", "a/b", "a0/claim/x", "ab", "ab%2Fc", "ab/c", "b1/c", "b1/c2"]
    for name in reversed(names):
        blobs.put_bytes(PLANS, name, name.encode())
    assert list(blobs.names(PLANS)) == sorted(names)
    for prefix in ("a", "a/", "ab", "ab/", "b1/c", "z"):
        assert list(blobs.names(PLANS, prefix)) == sorted(
            name for name in names if name.startswith(prefix)
        )


@pytest.mark.parametrize("name", ["", "../up", "./here", "nul\0", "k/c/" + "x" * 252])
def test_a_name_that_cannot_be_a_file_is_refused(blobs: FileBlobs, name: str) -> None:
    with pytest.raises(BlobNameError):
        blobs.put_bytes(ARTIFACTS, name, b"x")


def test_a_name_has_so_many_bytes_as_a_file(blobs: FileBlobs) -> None:
    longest = "k/" + "x" * (file_blobs._LONGEST - len("k%2F"))
    blobs.put_bytes(ARTIFACTS, longest, b"x")
    assert blobs.get_bytes(ARTIFACTS, longest) == b"x"
    with pytest.raises(BlobNameError, match="it is too long; shorten the file's name"):
        blobs.put_bytes(ARTIFACTS, f"{longest}x", b"x")


def test_a_name_cannot_lead_out_of_its_folder(blobs: FileBlobs, tmp_path: Path) -> None:
    blobs.put_bytes(ARTIFACTS, "k/../../../x", b"x")
    blobs.put_bytes(ARTIFACTS, f"{tmp_path}/x", b"x")
    assert {path.parents[1] for path in files(tmp_path)} == {tmp_path / "blobs" / ARTIFACTS}
    with pytest.raises(BlobNameError):
        blobs.put_bytes("..", "name", b"x")


def test_a_changed_blob_is_noticed_after_it_was_verified(blobs: FileBlobs, tmp_path: Path) -> None:
    stored = blobs.put_bytes(ARTIFACTS, NAME, b"pixels")
    blobs.get_file(ARTIFACTS, NAME, tmp_path / "copy", stored.sha256)
    (path,) = files(tmp_path / "blobs")
    path.chmod(0o600)
    path.write_bytes(b"damage")
    with pytest.raises(CorruptBlobError) as caught:
        blobs.get_file(ARTIFACTS, NAME, tmp_path / "copy", stored.sha256)
    assert is_damaged(blobs, caught.value)


def test_a_checksum_is_computed_once_for_an_unchanged_file(
    blobs: FileBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cell.tif"
    path.write_bytes(b"pixels")
    stored = blobs.put_file(ARTIFACTS, NAME, path)

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(hashlib, "file_digest", never)
    blobs.get_file(ARTIFACTS, NAME, tmp_path / "copy", stored.sha256)


def decayed(path: Path) -> None:
    """Change a byte as a failing disk does: the file's time and size stay."""
    stat = path.stat()
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.write(b"P")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("seen", [True, False])
def test_what_changed_without_a_trace_is_noticed(tmp_path: Path, *, seen: bool) -> None:
    """A granule at its first reading; each file when it is trusted no longer."""
    container = ARTIFACTS if seen else GRANULES
    blobs = FileBlobs(tmp_path / "blobs", trusted=0.0 if seen else math.inf)
    blobs.create([ARTIFACTS, GRANULES])
    path = tmp_path / "file"
    path.write_bytes(b"pixels")
    stored = blobs.put_file(container, NAME, path)
    if seen:
        blobs.get_file(container, NAME, tmp_path / "copy", stored.sha256)
    decayed(path)
    with pytest.raises(CorruptBlobError) as caught:
        blobs.get_file(container, NAME, tmp_path / "copy", stored.sha256)
    assert is_damaged(blobs, caught.value)


def test_what_killed_writers_left_is_removed_when_it_is_old(
    blobs: FileBlobs, tmp_path: Path
) -> None:
    old, fresh = (tmp_path / "blobs" / "partial" / name for name in ("old", "fresh"))
    old.touch()
    fresh.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    blobs.create([ARTIFACTS])
    assert (old.exists(), fresh.exists()) == (False, True)


@pytest.mark.parametrize("from_file", [True, False])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, *, from_file: bool) -> None:
    data = b"x" * 4_000_000
    path = tmp_path / "cell.tif"
    path.write_bytes(data)
    with disk_of(tmp_path / "disk", "2m") as disk:
        blobs = FileBlobs(disk / "blobs")
        blobs.create([ARTIFACTS])
        put: Callable[[], object] = (
            (lambda: blobs.put_file(ARTIFACTS, NAME, path))
            if from_file
            else (lambda: blobs.put_bytes(ARTIFACTS, NAME, data))
        )
        with pytest.raises(StorageFullError, match="make room") as caught:
            put()
        assert classify(caught.value).category is Category.OUT_OF_DISK
        assert not files(disk)


@pytest.mark.parametrize(
    ("number", "category"),
    [
        (errno.EDQUOT, Category.OUT_OF_DISK),
        (errno.EIO, Category.BLOB_READ_FAILED),
        (errno.EROFS, Category.STORAGE_CLIENT_ERROR),
        (errno.EACCES, Category.STORAGE_CLIENT_ERROR),
    ],
)
def test_a_failing_disk_has_a_category(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch, number: int, category: Category
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError) as caught:
        blobs.put_bytes(ARTIFACTS, NAME, b"pixels")
    assert classify(caught.value).category is category
    assert not blobs.exists(ARTIFACTS, NAME)


# Ends itself with SIGKILL at the given call of those that change files.
_VICTIM = """
import os, signal, sys
from pathlib import Path
from tasks.storage.file_blobs import FileBlobs
folder, path, how, step = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
calls = 0
def killed(event, arguments):
    global calls
    if event in ("open", "os.link", "os.remove", "os.mkdir", "os.chmod", "os.fsync"):
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGKILL)
def audited(name, function):
    def call(*arguments):
        sys.audit(name)
        return function(*arguments)
    return call
os.fsync = audited("os.fsync", os.fsync)
blobs = FileBlobs(folder)
data = path.read_bytes()
sys.addaudithook(killed)
if how == "file":
    blobs.put_file("artifacts", "4f/claim/cell.tif", path)
else:
    blobs.put_bytes("artifacts", "4f/claim/cell.tif", data)
sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "bytes"])
def test_a_writer_killed_at_any_step_leaves_all_or_nothing(tmp_path: Path, how: str) -> None:
    data = os.urandom(3_000_000)
    for step in range(1, 100):
        folder, path = tmp_path / f"blobs-{step}", tmp_path / f"cell-{step}.tif"
        path.write_bytes(data)
        blobs = FileBlobs(folder)
        blobs.create([ARTIFACTS])
        command = [sys.executable, "-c", _VICTIM, str(folder), str(path), how, str(step)]
        ended = subprocess.run(command, check=False).returncode
        if blobs.exists(ARTIFACTS, NAME):
            assert blobs.get_bytes(ARTIFACTS, NAME) == data
            assert list(blobs.names(ARTIFACTS)) == [NAME]
        else:
            assert list(blobs.names(ARTIFACTS)) == []
        assert blobs.put_file(ARTIFACTS, NAME, path) == bytes_digest(data)
        assert blobs.get_bytes(ARTIFACTS, NAME) == data
        if ended == 3:
            break
        assert ended == -signal.SIGKILL
    assert 5 < step < 99
    assert file_digest(path) == bytes_digest(data)
