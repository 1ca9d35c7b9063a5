"""Small pixels in rows of about the source's step, which kernels make in ways of their own."""

import numpy as np
import pytest

from reprojection.grid.covering import project_bounds
from reprojection.grid.grids import Lattice, modis_tile_grid
from reprojection.resampling import Method
from reprojection.warp import c_kernels
from reprojection.warp.warp import SourceTile, warp
from tests.oracle import numpy_kernels


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16"])
@pytest.mark.parametrize(
    ("crs", "resolution", "method"),
    [
        ("EPSG:32632", 926.6, "nearest"),
        ("EPSG:4326", 1 / 120, "nearest"),
        ("EPSG:4326", 1 / 120, "bilinear"),
        ("EPSG:32632", 926.6, "bilinear"),
        ("EPSG:32632", 926.6, "cubic"),
        ("EPSG:32632", 870.0, "cubic"),
        ("EPSG:3035", 1900.0, "gdal-average"),
        ("EPSG:3035", 3700.0, "gdal-average"),
    ],
)
def test_rows_have_the_values_of_numpy(
    dtype: str, crs: str, resolution: float, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bands over a tile's corner, so that rows end on and off it."""
    grid = modis_tile_grid(18, 4, 1000)
    rng = np.random.default_rng(7)
    info = np.iinfo(dtype)
    bands = [
        rng.integers(info.min, info.max, grid.shape, dtype=dtype, endpoint=True) for _ in range(2)
    ]
    for band in bands:
        band[rng.random(grid.shape) < 0.1] = info.min
    bounds = project_bounds((-0.5, 48.5, 2.5, 50.3), crs)
    target = Lattice(crs=crs, resolution=resolution).snap(bounds)
    sources = [SourceTile(bands=bands, grid=grid)]
    ours = warp(sources, target, method, fill=int(info.min))
    monkeypatch.setattr(c_kernels, "Warper", numpy_kernels.Warper)
    plain = warp(sources, target, method, fill=int(info.min))
    np.testing.assert_array_equal(ours, plain)
    assert (ours != info.min).any()
    assert (ours == info.min).any()
