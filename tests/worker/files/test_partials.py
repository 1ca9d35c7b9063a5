"""Downloads that were cut outlive their attempt, within bounds."""

import multiprocessing
import os
import time
from pathlib import Path

from tests.waiting import until
from worker.files.partials import Partials

KEYS = ("a" * 64, "b" * 64, "c" * 64)


def leave(partials: Partials, folder: Path, key: str, size: int, changed: float) -> None:
    """An attempt that was cut after so many bytes, at that time."""
    with partials.place(key, folder) as place:
        (place / "granule.hdf.part").write_bytes(b"x" * size)
        for path in (place / "granule.hdf.part", place):
            os.utime(path, (changed, changed))


def test_the_next_attempt_finds_what_the_last_one_left(tmp_path: Path) -> None:
    leave(Partials(tmp_path / "d", 1000), tmp_path, KEYS[0], 10, 100.0)
    with Partials(tmp_path / "d", 1000, now=lambda: 200.0).place(KEYS[0], tmp_path) as place:
        assert [path.name for path in place.iterdir()] == ["granule.hdf.part"]


def _hang(folder: Path) -> None:
    with Partials(folder / "d", 1000).place(KEYS[0], folder) as place:
        (place / "granule.hdf.part").write_bytes(b"half")
        (folder / "written").touch()
        time.sleep(60)


def test_an_attempt_that_is_killed_leaves_its_bytes_and_no_lock(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_hang, args=(tmp_path,))
    process.start()
    until(lambda: (tmp_path / "written").exists(), 20)
    process.kill()
    process.join()
    with Partials(tmp_path / "d", 1000).place(KEYS[0], tmp_path) as place:
        assert (place / "granule.hdf.part").read_bytes() == b"half"


def test_an_attempt_that_is_through_leaves_nothing(tmp_path: Path) -> None:
    with Partials(tmp_path / "d", 1000).place(KEYS[0], tmp_path) as place:
        (place / "granule.hdf").write_bytes(b"x")
        (place / "granule.hdf").unlink()
    assert list((tmp_path / "d").iterdir()) == []


def test_a_second_attempt_of_a_task_works_elsewhere(tmp_path: Path) -> None:
    first, second = Partials(tmp_path / "d", 0), Partials(tmp_path / "d", 0)
    other = tmp_path / "scratch"
    with first.place(KEYS[0], tmp_path) as place:
        (place / "granule.hdf.part").write_bytes(b"x")
        with second.place(KEYS[0], other) as elsewhere:
            assert elsewhere == other
        assert (place / "granule.hdf.part").exists()


def test_the_oldest_go_when_there_is_too_much(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    partials = Partials(folder, 1000, now=lambda: 10.0)
    for n, key in enumerate(KEYS):
        leave(partials, tmp_path, key, 400, float(n))
    with partials.place("d" * 64, tmp_path):
        left = sorted(path.name[0] for path in folder.iterdir() if path.is_dir())
    assert left == ["b", "c", "d"]


def test_what_is_a_week_old_goes(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    leave(Partials(folder, 1000, now=lambda: 0.0), tmp_path, KEYS[0], 10, 100.0)
    later = Partials(folder, 1000, now=lambda: 100.0 + 8 * 86400)
    with later.place(KEYS[1], tmp_path):
        assert not (folder / KEYS[0]).exists()
    assert list(folder.iterdir()) == []
