"""A crash, hang or memory hunger while reading costs one call."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprojection.errors import ReprojectionError, UnknownLayerError, UnreadableGranuleError
from reprojection.read import isolation
from reprojection.read.granule import open_granule
from reprojection.read.isolation import ReadingProcess, run_in_fork
from reprojection.sample.hdfeos_write import write_granule
from tests.reprojection.reading_samples import small_tile

pytestmark = pytest.mark.slow


def read_missing_layer(path: Path) -> None:
    with open_granule(path) as found:
        found.read("Nothing")


def test_a_crash_is_one_error_and_the_next_call_works(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    with ReadingProcess() as reader:
        with pytest.raises(UnreadableGranuleError, match="signal 6"):
            reader.run(os.abort)
        outline = reader.read_outline(path)
        assert outline is not None
        assert (outline.product, outline.tile) == ("MCD15A2", (17, 3))


def test_calls_share_a_process_until_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    with ReadingProcess() as reader:
        first = reader.run(os.getpid)
        assert reader.run(os.getpid) == first
        with pytest.raises(UnknownLayerError):
            reader.run(read_missing_layer, path)
        second = reader.run(os.getpid)
        assert second != first
        with pytest.raises(UnreadableGranuleError, match="signal 6"):
            reader.run(os.abort)
        assert reader.run(os.getpid) not in (first, second)


def test_a_process_answers_a_bounded_number_of_calls() -> None:
    with ReadingProcess() as reader:
        first = reader.run(os.getpid)
        used = [reader.run(os.getpid) for _ in range(isolation._CALLS_OF_A_FORK)]
    assert used[:-1] == [first] * (len(used) - 1)
    assert used[-1] != first


def test_a_hang_ends_at_its_limit() -> None:
    with (
        ReadingProcess(seconds=0.7) as reader,
        pytest.raises(UnreadableGranuleError, match=r"0\.7 s"),
    ):
        reader.run(time.sleep, 60)


def test_hunger_ends_at_its_limit() -> None:
    with ReadingProcess(memory=1 << 30) as reader:
        with pytest.raises(UnreadableGranuleError, match="out of memory"):
            reader.run(bytearray, 2 << 30)
        assert reader.run(len, b"fine") == 4


def test_errors_come_through_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    with ReadingProcess() as reader:
        with pytest.raises(UnknownLayerError) as problem:
            reader.run(read_missing_layer, path)
        assert problem.value.layer == "Nothing"
        assert "Lai_1km" in problem.value.known


def test_what_cannot_be_read_has_no_outline(tmp_path: Path) -> None:
    path = tmp_path / "page.hdf"
    path.write_text("<html>")
    with ReadingProcess() as reader:
        assert reader.read_outline(path) is None
        assert reader.read_outline(tmp_path / "gone.hdf") is None


FILES = [Path("one.hdf"), Path("two.hdf")]


def test_a_fork_answers_and_hands_errors_on(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile())
    assert run_in_fork([path], len, b"four") == 4
    with pytest.raises(UnknownLayerError):
        run_in_fork([path], read_missing_layer, path)


def test_a_fork_that_crashes_is_an_error_that_names_the_files() -> None:
    with pytest.raises(UnreadableGranuleError, match=r"one\.hdf, two\.hdf crashed \(signal 9\)"):
        run_in_fork(FILES, signal.raise_signal, signal.SIGKILL)
    with pytest.raises(UnreadableGranuleError, match="ended the reading process"):
        run_in_fork(FILES, os._exit, 3)
    with pytest.raises(ReprojectionError, match="coarser pixels"):
        run_in_fork(FILES, bytearray, 1 << 60)


@pytest.mark.slow
def test_a_fork_that_hangs_is_an_error_that_names_the_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reprojection.read.isolation._PATIENCE", 1.0)
    assert run_in_fork(FILES, time.sleep, 2.0) is None  # the lock is free meanwhile
    with pytest.raises(UnreadableGranuleError, match=r"one\.hdf, two\.hdf hung for 1 s"):
        run_in_fork(FILES, ctypes.PyDLL(None).pause)  # the lock is kept


SLEEPER = """
import sys, time
from reprojection.read.isolation import run_in_fork
def sleep():
    print("asleep", flush=True)
    time.sleep(60)
run_in_fork([], sleep)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_fork_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"asleep\n"
        parent.send_signal(signal.SIGKILL)
        # The fork holds the pipe's other end for as long as it lives.
        assert parent.stdout.read() == b""
