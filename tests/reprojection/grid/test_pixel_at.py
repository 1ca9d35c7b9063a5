"""The pixel at a place is the one that rasterio and GDAL take, on edges and corners, too."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.warp
from hypothesis import given
from hypothesis import strategies as st
from rasterio.transform import Affine

from reprojection.explain.explain import explain
from reprojection.grid.grids import Grid, Lattice
from reprojection.grid.pixel_at import pixel_at
from reprojection.write.write import write_cog
from tests.reprojection.raster_samples import plain

LATTICE = Lattice(crs="EPSG:4326", resolution=0.01)


def numbered(grid: Grid) -> "rasterio.io.MemoryFile":
    """A raster whose pixels hold their own numbers."""
    memory = rasterio.io.MemoryFile()
    profile = {"driver": "GTiff", "dtype": "int32", "count": 1}
    place = {"crs": grid.crs, "transform": Affine(*grid.transform)}
    with memory.open(**profile, **place, width=grid.width, height=grid.height) as dataset:
        dataset.write(np.arange(grid.pixels, dtype=np.int32).reshape(grid.shape), 1)
    return memory


def test_round_coordinates_are_corners_and_have_the_pixel_of_rasterio() -> None:
    """All that a person types on a grid of 0.01 degrees lies on corners."""
    grid = LATTICE.snap((-8.0, 50.5, 6.0, 58.5))
    rng = np.random.default_rng(1)
    lons = np.round(rng.uniform(-8.0, 5.99, 3000), 2)
    lats = np.round(rng.uniform(50.51, 58.5, 3000), 2)
    with numbered(grid) as memory, memory.open() as dataset:
        truth = [int(one[0]) for one in dataset.sample(zip(lons, lats, strict=True))]
        for lon, lat, number in zip(lons.tolist(), lats.tolist(), truth, strict=True):
            found = pixel_at(grid, lon, lat)
            if found is None:  # on the outer edge, where `sample` gives nothing either
                assert number == 0
            else:
                assert found.row * grid.width + found.col == number, (lon, lat)


@given(st.floats(-8.0, 6.0), st.floats(50.5, 58.5))
def test_any_place_has_the_pixel_of_rasterio(lon: float, lat: float) -> None:
    grid = LATTICE.snap((-8.0, 50.5, 6.0, 58.5))
    found = pixel_at(grid, lon, lat)
    row, col = rasterio.transform.rowcol(Affine(*grid.transform), lon, lat)
    inside = 0 <= row < grid.height and 0 <= col < grid.width
    assert found == ((row, col) if inside else None)


@pytest.mark.parametrize("lon", [179.995, -180.005, 539.995])
def test_a_longitude_may_be_off_by_a_turn(lon: float) -> None:
    grid = LATTICE.snap((179.0, 0.0, 180.0, 1.0))
    assert pixel_at(grid, lon, 0.505) == (49, 99)


def test_an_explanation_is_of_the_pixel_whose_value_is_shown(tmp_path: Path) -> None:
    values = np.arange(200 * 300, dtype=np.int32).reshape(200, 300)
    raster = plain(values, nodata=-1)
    path = tmp_path / "a.tif"
    write_cog(raster, path)
    a, _, c, _, e, f = raster.grid.transform
    with rasterio.open(path) as dataset:
        for row, col in ((1, 1), (57, 203), (199, 299)):
            corner = c + col * a, f + row * e
            (lon,), (lat,) = rasterio.warp.transform(
                dataset.crs, "EPSG:4326", [corner[0]], [corner[1]]
            )
            found = explain(path, lon, lat, granules=[])
            (x,), (y,) = rasterio.warp.transform("EPSG:4326", dataset.crs, [lon], [lat])
            assert found.stored == int(next(dataset.sample([(x, y)]))[0])
