"""Unpacked packages: once for all, as they were unpacked, bounded, never taken away in use."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.files.unpacked import Unpacked

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64


class Filler:
    """Fills folders with files, and counts how often."""

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.count = 0

    def __call__(self, folder: Path) -> None:
        self.count += 1
        (folder / "lib").mkdir()
        (folder / "lib" / "data").write_bytes(b"x" * self.size)
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o755)


@pytest.fixture
def fill() -> Filler:
    return Filler()


@pytest.fixture
def packages(tmp_path: Path) -> Unpacked:
    return Unpacked(tmp_path / "packages", 10**6)


def test_a_package_is_unpacked_once_and_read_only(packages: Unpacked, fill: Filler) -> None:
    for _ in range(3):
        with packages.use(ONE, fill) as folder:
            assert (folder / "lib" / "data").stat().st_mode & 0o777 == 0o444
            assert (folder / "run.sh").stat().st_mode & 0o777 == 0o555
            assert (folder / "lib").stat().st_mode & 0o777 == 0o555
    assert fill.count == 1


def change_content(folder: Path) -> None:
    file = folder / "lib" / "data"
    before = file.stat()
    file.chmod(0o644)
    file.write_bytes(b"y" * before.st_size)
    file.chmod(0o444)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as nothing had happened


def add_file(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("print('mine')")


def shut(folder: Path) -> None:
    (folder / "lib").chmod(0o000)


def remove_file(folder: Path) -> None:
    (folder / "run.sh").unlink()


@pytest.mark.parametrize("touch", [change_content, add_file, shut, remove_file])
def test_a_package_that_was_touched_is_unpacked_again(
    packages: Unpacked, fill: Filler, touch: Callable[[Path], None]
) -> None:
    with packages.use(ONE, fill) as folder:
        touch(folder)
    with packages.use(ONE, fill) as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["lib", "run.sh"]
        assert (folder / "lib" / "data").read_bytes() == b"x" * 1000
    assert fill.count == 2


def test_what_cannot_be_unpacked_leaves_nothing(packages: Unpacked, tmp_path: Path) -> None:
    def broken(folder: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"), packages.use(ONE, broken):
        pass
    assert [*(tmp_path / "packages" / "entries").iterdir()] == []


def test_the_least_recently_used_go_first_but_not_those_in_use(tmp_path: Path) -> None:
    packages, fill = Unpacked(tmp_path, 2500), Filler()
    with packages.use(ONE, fill):
        with packages.use(TWO, fill):
            pass
        with packages.use(THREE, fill):
            pass
        assert packages.size() < 2500
        names = {path.name for path in (tmp_path / "entries").iterdir()}
        assert names == {ONE, THREE}
    with packages.use(TWO, fill):
        pass
    names = {path.name for path in (tmp_path / "entries").iterdir()}
    assert names == {THREE, TWO}
    assert fill.count == 4


def test_a_package_larger_than_the_bound_can_be_used(tmp_path: Path) -> None:
    packages, fill = Unpacked(tmp_path, 10), Filler()
    for _ in range(2):
        with packages.use(ONE, fill) as folder:
            assert (folder / "run.sh").exists()
    assert fill.count == 1


def test_many_that_need_it_at_once_unpack_it_once(packages: Unpacked, fill: Filler) -> None:
    def need() -> None:
        with packages.use(ONE, fill) as folder:
            assert (folder / "run.sh").exists()

    threads = [threading.Thread(target=need) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fill.count == 1


def test_where_no_program_can_touch_it_a_process_looks_at_its_files_once(tmp_path: Path) -> None:
    fill = Filler()
    first = Unpacked(tmp_path, 10**6, guarded=True)
    with first.use(ONE, fill) as folder:
        pass
    (folder / "more").write_bytes(b"x")
    with first.use(ONE, fill):
        assert fill.count == 1
    with Unpacked(tmp_path, 10**6, guarded=True).use(ONE, fill) as folder:
        assert fill.count == 2
        assert not (folder / "more").exists()
    with first.use(ONE, fill):
        assert fill.count == 2
