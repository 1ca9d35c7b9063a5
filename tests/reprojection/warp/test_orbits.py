"""Layers that hold several orbits of a day, each in a band (MAIAC, MCD19)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from modis.tile import TILE_SIZE
from reprojection.errors import UnknownLayerError
from reprojection.explain.explain import explain
from reprojection.grid.grids import modis_tile_grid
from reprojection.read.completeness import WHOLE, Missing
from reprojection.reproject import Merge, Options, reproject
from reprojection.sample.hdfeos_write import FieldToWrite, GridToWrite, write_granule
from reprojection.write.write import write_cog
from tests.reprojection.reading_samples import wrap_up

SIDE = 1200
FILL = -28672
GRID = modis_tile_grid(17, 3, 1000)


def layer(
    name: str, values: NDArray[np.generic], fill: int, scale: float, span: tuple[int, int]
) -> FieldToWrite:
    return FieldToWrite(
        name=name,
        values=values,
        dims=("Orbits", "YDim", "XDim"),
        typed={"_FillValue": fill, "valid_range": span},
        attributes={"scale_factor": scale, "add_offset": 0.0},
    )


@pytest.fixture(scope="module")
def maiac(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three orbits: of 100, 201 and 400, each seen from the nadir in another third."""
    depth = np.empty((3, SIDE, SIDE), np.int16)
    depth[:] = np.array([100, 201, 400], np.int16)[:, None, None]
    depth[0, :100] = FILL
    depth[:, :10] = FILL
    depth[2, 200:300] = FILL
    quality = np.zeros((3, SIDE, SIDE), np.uint16)
    quality[1, 600:800] = 1 << 8  # water sediments
    cosine = np.full((3, SIDE // 5, SIDE // 5), 5000, np.int16)
    for third in range(3):
        cosine[third, :, third * 80 : (third + 1) * 80] = 9900
    upper, lower = (-TILE_SIZE, 6 * TILE_SIZE), (0.0, 5 * TILE_SIZE)
    fields = [
        layer("Optical_Depth_055", depth, FILL, 0.001, (-100, 6000)),
        layer("AOD_QA", quality, 0, 1.0, (1, 65535)),
    ]
    coarse = [layer("cosVZA", cosine, FILL, 0.0001, (0, 10000))]
    granule = wrap_up(
        GridToWrite(name="grid1km", upper_left=upper, lower_right=lower, fields=fields),
        "MCD19A2.A2012065.h17v03.061.2012153130500.hdf",
        "MCD19A2",
        61,
    )
    more = (GridToWrite(name="grid5km", upper_left=upper, lower_right=lower, fields=coarse),)
    path = tmp_path_factory.mktemp("maiac") / granule.local_name
    write_granule(path, replace(granule, more=more))
    return path


@pytest.mark.parametrize(
    ("merge", "values"),
    [
        ("first", {"top": 201, "gap": 100, "plain": (100, 100, 100)}),
        ("latest", {"top": 400, "gap": 201, "plain": (400, 400, 400)}),
        ("nadir", {"top": 201, "gap": 201, "plain": (100, 201, 400)}),
        ("mean", {"top": 300, "gap": 150, "plain": (234, 234, 234)}),
    ],
)
def test_orbits_are_merged_in_each_pixel(maiac: Path, merge: Merge, values: dict[str, Any]) -> None:
    found = reproject([maiac], "Optical_Depth_055", GRID, Options(merge=merge)).data[0]
    assert (found[:10] == FILL).all()
    assert found[50, 600] == values["top"]  # orbits 201, seen from the nadir, and 400
    assert found[250, 600] == values["gap"]  # orbits 100 and 201
    assert tuple(found[400, [0, 600, 1199]]) == values["plain"]


def test_quality_is_that_of_the_same_orbit(maiac: Path) -> None:
    options = Options(merge="latest", qa="best", extra_bands=("reason",))
    found = reproject([maiac], "Optical_Depth_055", GRID, options)
    assert found.data[0, 700, 0] == 400
    only = reproject([maiac], "Optical_Depth_055[1]", GRID, Options(qa="best"))
    assert only.valid().sum() == (SIDE - 10 - 200) * SIDE
    bits = reproject([maiac], "AOD_QA", GRID, Options(merge="nadir", mask=False))
    assert bits.data[0, 700, 600] == 1 << 8
    assert bits.kind == "bitfield"


def test_one_orbit_may_be_named(maiac: Path) -> None:
    found = reproject([maiac], "Optical_Depth_055[2]", GRID, Options())
    assert set(np.unique(found.data)) == {FILL, 400}


def test_explain_says_what_to_do(maiac: Path, tmp_path: Path) -> None:
    write_cog(reproject([maiac], "Optical_Depth_055", GRID, Options()), tmp_path / "a.tif")
    said = explain(tmp_path / "a.tif", -8.0, 55.0, granules=[maiac])
    assert "like Optical_Depth_055[0]" in str(said)


def test_a_tile_without_the_orbit_costs_its_part(maiac: Path, tmp_path: Path) -> None:
    depth = np.full((2, SIDE, SIDE), 500, np.int16)
    upper, lower = (0.0, 6 * TILE_SIZE), (TILE_SIZE, 5 * TILE_SIZE)
    fields = [layer("Optical_Depth_055", depth, FILL, 0.001, (-100, 6000))]
    granule = wrap_up(
        GridToWrite(name="grid1km", upper_left=upper, lower_right=lower, fields=fields),
        "MCD19A2.A2012065.h18v03.061.2012153130500.hdf",
        "MCD19A2",
        61,
    )
    write_granule(tmp_path / granule.local_name, granule)
    paths = [maiac, tmp_path / granule.local_name]
    both = reproject(paths, "Optical_Depth_055[1]", GRID, Options(resampling="nearest"))
    assert both.completeness == WHOLE
    third = reproject(paths, "Optical_Depth_055[2]", GRID, Options(resampling="nearest"))
    alone = reproject(maiac, "Optical_Depth_055[2]", GRID, Options(resampling="nearest"))
    np.testing.assert_array_equal(third.data, alone.data)
    (lost,) = third.completeness.missing
    assert lost == Missing(what=granule.local_name, why="holds no layer Optical_Depth_055[2]")
    with pytest.raises(UnknownLayerError, match="any of 2 granules"):
        reproject(paths, "Optical_Depth_055[3]", GRID, Options(resampling="nearest"))
