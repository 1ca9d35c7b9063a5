"""Flat files: what a program gets has physical values, what it writes becomes a raster."""

import os
from pathlib import Path

import numpy as np
import pytest
import rasterio

from swathmill.kit import write_group
from tasks.model.packages import Package
from tasks.model.spec import GridSpec
from tasks.run.classify import AttemptError
from worker.phases.flat import take_flat, write_flat

GRID = GridSpec(crs="EPSG:4326", transform=(0.1, 0, 10, 0, -0.1, 50), width=4, height=3)


def package(form: str) -> Package:
    return Package.model_validate(
        {"name": "own", "command": ["x"], "outputs": ["{layer}.tif"], "inputs": {"format": form}}
    )


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
    take_flat(package("envi"), GRID, tmp_path)
    with rasterio.open(tmp_path / "A.tif") as out:
        assert (out.count, out.shape) == (bands, (3, 4))
        assert tuple(out.transform)[:6] == GRID.transform
        np.testing.assert_array_equal(out.read().ravel(), values)


@pytest.mark.parametrize("size", [0, 47, 49, 4])
def test_a_flat_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "A.bin").write_bytes(b"x" * size)
    with pytest.raises(AttemptError, match="write whole bands"):
        take_flat(package("envi"), GRID, tmp_path)


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * 48)
    (tmp_path / "A.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        take_flat(package("envi"), GRID, tmp_path)
    (tmp_path / "A.bin").unlink()
    os.mkfifo(tmp_path / "A.bin")
    with pytest.raises(AttemptError, match="write whole bands"):
        take_flat(package("envi"), GRID, tmp_path)
    assert not (tmp_path / "A.tif").exists()


def test_a_raster_of_the_programs_own_stays_and_others_need_no_flat_files(tmp_path: Path) -> None:
    (tmp_path / "A.tif").write_text("its own")
    (tmp_path / "A.bin").write_bytes(b"x" * 48)
    take_flat(package("envi"), GRID, tmp_path)
    assert (tmp_path / "A.tif").read_text() == "its own"
    (tmp_path / "B.bin").write_bytes(b"x")
    take_flat(package("geotiff"), GRID, tmp_path)
    assert not (tmp_path / "B.tif").exists()
