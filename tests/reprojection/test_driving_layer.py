"""Layers that follow another one, where a granule does not hold that."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from reprojection.grid.grids import Grid
from reprojection.read.qa import Reason
from reprojection.reproject import Driver, Options, reproject
from reprojection.sample.hdfeos_write import GranuleToWrite, SwathToWrite, write_granule
from tests.options.granules import swaths

LEAD = "Optical_Depth_Land_And_Ocean"


def without_lead(granule: GranuleToWrite) -> GranuleToWrite:
    structure = granule.structure
    assert isinstance(structure, SwathToWrite)
    fields = [field for field in structure.data_fields if field.name != LEAD]
    return replace(granule, structure=replace(structure, data_fields=fields))


def test_a_granule_without_the_driving_layer_gives_no_pixel(tmp_path: Path) -> None:
    whole, cut = [*swaths()][:2]
    paths = []
    for granule in (whole, without_lead(cut)):
        paths.append(tmp_path / granule.local_name)
        write_granule(paths[-1], granule)
    grid = Grid(crs="EPSG:4326", transform=(0.5, 0, -40, 0, -0.5, 64), width=130, height=42)
    options = Options(driver=Driver(layer=LEAD), resampling="nearest", extra_bands=("source",))
    alone = reproject(paths[:1], "Sensor_Zenith", grid, options)
    found = reproject(paths, "Sensor_Zenith", grid, options)
    assert alone.valid().any()
    assert np.array_equal(found.data, alone.data)
    assert len(found.provenance.granules) == 2
    free = reproject(paths, "Sensor_Zenith", grid, replace(options, driver=None))
    assert free.valid().sum() > found.valid().sum()  # the other granule has the layer itself


def test_no_granule_with_the_driving_layer_is_an_empty_raster(tmp_path: Path) -> None:
    granule = without_lead(next(swaths()))
    path = tmp_path / granule.local_name
    write_granule(path, granule)
    grid = Grid(crs="EPSG:4326", transform=(0.5, 0, -16, 0, -0.5, 64), width=80, height=42)
    options = Options(driver=Driver(layer=LEAD), resampling="nearest", extra_bands=("reason",))
    found = reproject([path], "Sensor_Zenith", grid, options)
    assert not found.valid().any()
    assert (found.data[1] == Reason.NO_GRANULE).all()
