"""What a file's attributes say of its numbers, seen in rasters: fills, ranges, types."""

from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest

from reprojection.errors import RangeExcludesAllError
from reprojection.grid.grids import Lattice
from reprojection.read.raster import Raster
from reprojection.reproject import Options, reproject

SIDE = 40
GRID = Lattice(crs="EPSG:4326", resolution=0.07).snap((10.1, 45.2, 13.8, 48.9))


def swath(path: Path, values: np.ndarray, attributes: Mapping[str, object]) -> Path:
    """A netCDF-4 swath with one layer, as nobody's catalogue knows it."""
    rows, columns = np.indices((SIDE, SIDE))
    with h5py.File(path, "w") as file:
        file.attrs["ShortName"] = "XAERO_L2"
        for name, where in (("latitude", 49.0 - 0.1 * rows), ("longitude", 10.0 + 0.1 * columns)):
            file[f"geolocation_data/{name}"] = where.astype(np.float32)
        layer = file.create_dataset("geophysical_data/value", data=values)
        for name, value in attributes.items():
            layer.attrs[name] = value
    return path


def made(path: Path, **options: object) -> Raster:
    return reproject([path], "value", GRID, Options(**options))  # type: ignore[arg-type]


VALUES = np.arange(SIDE * SIDE).reshape(SIDE, SIDE) % 120


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "XAERO_L2.A2023001.1030.001.2023002000000.nc"


def test_no_fill_value_is_delivered_or_makes_the_type_grow(path: Path) -> None:
    values = VALUES.astype(np.int16)
    values[:10], values[10:20] = -15000, -13000
    about = {"_FillValue": np.array([-15000, -13000], np.int16), "valid_range": [-100, 200]}
    found = made(swath(path, values, about), mask=False, resampling="nearest")
    assert found.data.dtype == np.int16
    data = found.data[0][found.valid(0)]
    assert data.size
    assert data.min() >= 0


@pytest.mark.parametrize("low", [500, -500])
def test_a_range_that_leaves_nothing_over_is_no_empty_layer(path: Path, low: int) -> None:
    swath(path, VALUES.astype(np.int16), {"valid_range": np.array([low, low + 50], np.int16)})
    with pytest.raises(RangeExcludesAllError, match=r"1,600 values .* \(0 to 119\)"):
        made(path)
    assert made(path, mask=False).valid_share > 0.9


def test_a_layer_of_fill_or_of_few_values_is_an_empty_layer(path: Path) -> None:
    values = np.full((SIDE, SIDE), -9, np.int16)
    values[0, :5] = 999
    about = {"valid_range": np.array([0, 50], np.int16), "_FillValue": np.int16(-9)}
    assert made(swath(path, values, about)).valid_share == 0.0


def test_bytes_that_the_file_calls_unsigned(path: Path) -> None:
    stored = (VALUES * 2).astype(np.uint8).view(np.int8)
    found = made(swath(path, stored, {"_Unsigned": "true", "_FillValue": np.int8(-1)}))
    assert found.data.dtype == np.uint8
    assert found.data[0][found.valid(0)].max() > 200
