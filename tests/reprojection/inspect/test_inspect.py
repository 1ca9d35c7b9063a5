"""The report on a granule."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from reprojection.catalogue.layers import LayerKind
from reprojection.errors import BadFormatError
from reprojection.inspect.inspect import inspect
from reprojection.sample.hdfeos_write import write_granule
from tests.reprojection.reading_samples import small_tile


def test_a_tile_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "tile.hdf"
    write_granule(path, small_tile(side=10))
    found = inspect(path)
    assert found.catalogue_title == "Leaf area index and FPAR, 8 days, 1 km"
    assert found.grids[0].tile == (17, 3)
    lai = next(layer for layer in found.layers if layer.name == "Lai_1km")
    # Of 100 pixels, the first row has five codes and one fill.
    assert (lai.valid_share, lai.code_share, lai.fill_share) == (0.94, 0.05, 0.01)
    assert (lai.lowest, lai.highest) == (0.0, 10.0)
    assert lai.kind is LayerKind.CONTINUOUS
    assert lai.placeable
    assert lai.catalogued


def test_what_is_no_granule_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.hdf"
    path.write_text("<html>")
    with pytest.raises(BadFormatError):
        inspect(path)


def test_a_file_without_grid_or_swath_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weather.nc"
    with h5py.File(path, "w") as file:
        file["t2m"] = np.zeros((4, 5), np.float32)
    with pytest.raises(BadFormatError, match=r"weather\.nc has no HDF-EOS grid or swath"):
        inspect(path)


@pytest.mark.real_data
def test_real_granules_are_reported(granules: Path) -> None:
    fires = inspect(next(granules.glob("l2-swath/MOD14/*")))
    assert not any(layer.placeable for layer in fires.layers)
    assert len(fires.others) == 27
    lst = inspect(next(granules.glob("l2-swath/MYD11_L2/*")))
    layer = next(layer for layer in lst.layers if layer.name == "LST")
    assert 0.005 < layer.valid_share < 0.02
    assert layer.lowest is not None
    assert 250 < layer.lowest < 300
    assert lst.swaths[0].maps[0].endswith("offset 2, increment 5")
