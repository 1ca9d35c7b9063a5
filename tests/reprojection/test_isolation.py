"""A crash, hang or memory hunger while reading costs one call."""

import os
import time
from pathlib import Path

import pytest

from reprojection.errors import UnknownLayerError, UnreadableGranuleError
from reprojection.granule import open_granule
from reprojection.hdfeos_write import write_granule
from reprojection.isolation import ReadingProcess
from tests.reprojection.reading_samples import small_tile


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
