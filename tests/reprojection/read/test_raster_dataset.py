"""Rasters and grids in the words of xarray and odc-geo."""

from dataclasses import replace

import numpy as np
import odc.geo.xr  # noqa: F401
import pytest
import rioxarray  # noqa: F401
import xarray as xr
from odc.geo.geobox import GeoBox

from reprojection.errors import ChoiceRefusedError, GridError
from reprojection.grid.grids import Grid, Lattice
from tests.reprojection.raster_samples import GRID, LATTICE, classes, hills


def test_a_raster_becomes_a_dataset_that_says_the_same() -> None:
    raster = hills()
    found = raster.to_xarray()
    name = next(iter(found.data_vars))
    assert found[name].dtype == raster.data.dtype
    assert np.array_equal(found[name].values, raster.data[0])
    values = xr.decode_cf(found)[name].values
    assert np.allclose(values, raster.values(), equal_nan=True)
    assert len(found.data_vars) == len(raster.bands)
    assert found.odc.geobox == GRID.geobox
    assert found.rio.crs.to_epsg() == 32631
    assert found.rio.transform()[:6] == GRID.transform


def test_classes_say_their_meanings() -> None:
    cover = classes(np.array([[1, 2, 9], [255, 1, 2]], np.uint8)).to_xarray()
    (held,) = cover.data_vars.values()
    assert held.attrs["flag_values"].dtype == np.uint8
    assert held.attrs["flag_meanings"] == "forest water town"


def test_grids_are_geoboxes_and_back() -> None:
    assert Grid.of_geobox(GRID.geobox).transform == GRID.transform
    assert Grid.of_geobox(GRID.geobox).shape == GRID.shape
    box = LATTICE.geobox((400_100.0, 5_500_000.0, 410_000.0, 5_510_000.0))
    assert box.shape == (20, 20)
    assert tuple(box.affine)[:6] == (500.0, 0.0, 400_000.0, 0.0, -500.0, 5_510_000.0)
    assert str(Lattice(crs="EPSG:4326", resolution=0.5).geobox((0, 0, 2, 1)).crs) == "EPSG:4326"
    with pytest.raises(GridError, match="lies nowhere"):
        Grid.of_geobox(GeoBox((2, 2), GRID.geobox.affine, None))


def test_a_rotated_raster_has_no_axes() -> None:
    a, _, c, _, e, f = GRID.transform
    rotated = replace(GRID, transform=(a, 1.0, c, 1.0, e, f))
    with pytest.raises(ChoiceRefusedError, match="take an upright one"):
        replace(hills(), grid=rotated).to_xarray()
