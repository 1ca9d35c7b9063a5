"""Flat files: what a program gets has physical values, what it writes becomes a raster."""

import os
from pathlib import Path

import numpy as np
import pytest
import rasterio

from swathmill.package_kit import write_group
from tasks.bag.spec import GridSpec
from tasks.service.classify import AttemptError
from worker.phases.flat import take_flat, write_flat
from worker.sandbox.reading.read_rasters import MOST_BANDS

GRID = GridSpec(crs="EPSG:4326", transform=(0.1, 0, 10, 0, -0.1, 50), width=4, height=3)


def test_a_flat_file_has_the_values_of_its_stack(tmp_path: Path) -> None:
    write_group(tmp_path)
    write_flat(tmp_path / "Lai_1km.tif", tmp_path / "Lai_1km.bin")
    with rasterio.open(tmp_path / "Lai_1km.tif") as stack:
        stored = stack.read()
        shape, transform = stack.shape, stack.transform
    expected = np.where(stored == 255, np.nan, stored * 0.1)
    found = np.fromfile(tmp_path / "Lai_1km.bin", "<f4").reshape(stored.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with rasterio.open(tmp_path / "Lai_1km.bin") as flat:  # GDAL reads the header
        assert (flat.driver, flat.count, flat.shape) == ("ENVI", 4, shape)
        assert flat.transform.almost_equals(transform)
        np.testing.assert_array_equal(flat.read(), found)


@pytest.mark.parametrize("bands", [1, 2])
def test_what_a_program_writes_flat_becomes_a_raster_on_the_grid(
    tmp_path: Path, bands: int
) -> None:
    values = np.arange(12 * bands, dtype="<f4")
    values[5] = np.nan
    values.tofile(tmp_path / "A.bin")
    take_flat(["A.tif"], GRID, tmp_path)
    with rasterio.open(tmp_path / "A.tif") as out:
        assert (out.count, out.shape) == (bands, (3, 4))
        assert tuple(out.transform)[:6] == GRID.transform
        np.testing.assert_array_equal(out.read().ravel(), values)


@pytest.mark.parametrize("size", [0, 47, 49, 4, 1001 * 48])
def test_a_flat_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "A.bin").write_bytes(b"x" * size)
    with pytest.raises(AttemptError, match="write whole bands"):
        take_flat(["A.tif"], GRID, tmp_path)


def test_links_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * 48)
    flat = tmp_path / "A.bin"
    flat.symlink_to(tmp_path / "secret")
    with pytest.raises(AttemptError, match=r"A.bin cannot be read: Too many levels of symbolic"):
        take_flat(["A.tif"], GRID, tmp_path)
    flat.unlink()
    flat.mkdir()
    with pytest.raises(AttemptError, match=r"A.bin cannot be read: Is a directory"):
        take_flat(["A.tif"], GRID, tmp_path)
    flat.rmdir()
    os.mkfifo(flat)
    with pytest.raises(AttemptError, match="is no plain file"):
        take_flat(["A.tif"], GRID, tmp_path)
    assert not (tmp_path / "A.tif").exists()


def test_a_raster_of_the_programs_own_stays(tmp_path: Path) -> None:
    (tmp_path / "A.tif").write_text("its own")
    (tmp_path / "A.bin").write_bytes(b"x" * 48)
    take_flat(["A.tif", "B.tif"], GRID, tmp_path)
    assert (tmp_path / "A.tif").read_text() == "its own"
    assert not (tmp_path / "B.tif").exists()


def test_a_flat_file_that_is_no_declared_raster_is_the_programs_own(tmp_path: Path) -> None:
    """Such as a file of coefficients, which is an output of its own."""
    (tmp_path / "coefficients.bin").write_bytes(b"x")
    take_flat(["A.tif"], GRID, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["coefficients.bin"]


@pytest.mark.parametrize("bands", [MOST_BANDS, MOST_BANDS + 1])
def test_so_many_bands_are_written_flat(tmp_path: Path, bands: int) -> None:
    one = GridSpec(crs="EPSG:4326", transform=(0.1, 0, 10, 0, -0.1, 50), width=1, height=1)
    np.zeros(bands, "<f4").tofile(tmp_path / "A.bin")
    if bands == 1000:
        take_flat(["A.tif"], one, tmp_path)
        with rasterio.open(tmp_path / "A.tif") as raster:
            assert raster.count == 1000
    else:
        with pytest.raises(AttemptError, match="write whole bands, at most 1,000"):
            take_flat(["A.tif"], one, tmp_path)
