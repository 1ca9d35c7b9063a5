"""What is kept of a run's folder: the folder at one moment, or nothing."""

import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from tasks.settings import Settings
from tests.waiting import until
from worker.phases import checkpoint
from worker.phases.checkpoint import kept, pack_state
from worker.phases.context import Surroundings
from worker.sandbox.messages import state_path
from worker.sandbox.sandbox import SandboxLimits

BOUNDS = SandboxLimits(memory=10**9, seconds=10, processes=4, output=4000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint"
    made.mkdir()
    (made / "sums").write_bytes(b"sums")
    (made / "next").write_bytes(b"17")
    return made


def names(state: Path) -> list[str]:
    with tarfile.open(state) as archive:
        return archive.getnames()


def test_the_plain_files_of_a_folder_come_back_as_they_were(folder: Path, tmp_path: Path) -> None:
    (folder / ".half").write_bytes(b"half")
    assert pack_state(folder, tmp_path / "state", 6)
    back = tmp_path / "back"
    back.mkdir()
    assert checkpoint._unpack(tmp_path / "state", back) == 6
    assert {path.name: path.read_bytes() for path in back.iterdir()} == {
        "sums": b"sums",
        "next": b"17",
    }


def test_what_is_too_large_is_not_read(folder: Path, tmp_path: Path) -> None:
    assert not pack_state(folder, tmp_path / "state", 5)
    assert not (tmp_path / "state").stat().st_size


def test_a_link_or_a_pipe_is_neither_followed_nor_waited_for(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert not pack_state(folder, tmp_path / "state", 10**6)
    (folder / "pipe").unlink()
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="link"):
        pack_state(folder, tmp_path / "state", 10**6)


def replaced(folder: Path) -> None:
    (folder / ".new").write_bytes(b"SUMS")
    (folder / ".new").replace(folder / "sums")


def written(folder: Path) -> None:
    (folder / "sums").write_bytes(b"SUMS")
    os.utime(folder / "sums", (1, 1))


def added(folder: Path) -> None:
    (folder / "more").write_bytes(b"more")


@pytest.mark.parametrize("change", [replaced, written, added])
def test_a_change_while_files_are_opened_leaves_nothing(
    change: Callable[[Path], None], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = checkpoint._opened

    def changes(name: str, at: int) -> BinaryIO:
        file = opened(name, at)
        if name == "sums":
            change(folder)
        return file

    monkeypatch.setattr(checkpoint, "_opened", changes)
    assert not pack_state(folder, tmp_path / "state", 10**6)


@pytest.mark.parametrize(("change", "whole"), [(replaced, True), (written, False)])
def test_a_file_replaced_while_it_is_read_is_read_as_it_was(
    change: Callable[[Path], None],
    whole: bool,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added_file = tarfile.TarFile.addfile

    def changes(archive: tarfile.TarFile, member: tarfile.TarInfo, file: BinaryIO) -> None:
        if member.name == "next":
            change(folder)
        added_file(archive, member, file)

    monkeypatch.setattr(tarfile.TarFile, "addfile", changes)
    assert pack_state(folder, tmp_path / "state", 10**6) is whole
    if whole:
        with tarfile.open(tmp_path / "state") as archive:
            read = archive.extractfile("sums")
            assert read is not None
            assert read.read() == b"sums"


@pytest.mark.parametrize("name", ["../out", "/out", ".hidden", "a/b"])
def test_a_state_that_was_tampered_with_writes_nowhere_else(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "back").mkdir()
    with tarfile.open(tmp_path / "state", "w") as archive, (tmp_path / "file").open("rb") as file:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, file)
    with pytest.raises(OSError, match="has no"):
        checkpoint._unpack(tmp_path / "state", tmp_path / "back")
    assert not (tmp_path / "out").exists()


def test_each_new_state_is_told_once_and_the_next_waits_until_it_was_taken(
    folder: Path, tmp_path: Path
) -> None:
    told: list[int] = []
    around = Surroundings(
        scratch=tmp_path,
        settings=Settings(data_dir=tmp_path, checkpoint_seconds=0.06),
        tell=lambda _fraction, _note: None,
        sandbox=None,
        save=told.append,
    )
    state = state_path(tmp_path)
    with kept(folder, BOUNDS, around):
        replaced(folder)
        until(lambda: len(told) == 1, 20, "the new state is told")
        assert state.stat().st_size == told[0]
        added(folder)
        assert names(state) == ["next", "sums"]
        state.unlink()
        until(lambda: len(told) == 2, 20, "the next one is told")
        assert names(state) == ["more", "next", "sums"]
    assert len(told) == 2


def test_without_anybody_who_keeps_states_none_is_made(folder: Path, tmp_path: Path) -> None:
    around = Surroundings(
        scratch=tmp_path,
        settings=Settings(data_dir=tmp_path, checkpoint_seconds=0.001),
        tell=lambda _fraction, _note: None,
        sandbox=None,
    )
    with kept(folder, BOUNDS, around):
        replaced(folder)
    assert not state_path(tmp_path).exists()
