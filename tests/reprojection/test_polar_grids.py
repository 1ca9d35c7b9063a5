"""Polar grids in Lambert's azimuthal equal-area projection: MOD29P1D on the EASE-Grid."""

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from modis.sphere import EASE_RADIUS
from reprojection.grid.grids import Lattice
from reprojection.read.granule import open_granule
from reprojection.read.outline import outline
from reprojection.reproject import Options, reproject
from reprojection.sample.hdfeos_write import (
    FieldToWrite,
    GridToWrite,
    write_granule,
)
from tests.reprojection.reading_samples import wrap_up

PIXEL = 1002.7010


def position(lon: float, lat: float, pole: int) -> tuple[float, float]:
    """NSIDC's formulas of the polar EASE-Grids, on the sphere."""
    sign = math.copysign(1.0, pole)
    radius = 2 * EASE_RADIUS * math.sin(math.radians((90.0 - sign * lat) / 2))
    angle = math.radians(lon)
    return radius * math.sin(angle), -sign * radius * math.cos(angle)


@pytest.mark.parametrize("pole", [90, -90])
def test_pixels_of_a_polar_tile_are_where_nsidc_puts_them(
    pole: Literal[90, -90], tmp_path: Path
) -> None:
    left, top, side = -400 * PIXEL, 700 * PIXEL, 951
    numbers = np.arange(side * side, dtype=np.int32).reshape(side, side)
    field = FieldToWrite(name="Ice", values=numbers, dims=("YDim", "XDim"))
    lower = left + side * PIXEL, top - side * PIXEL
    grid = GridToWrite(
        name="MOD_Grid_Seaice_1km",
        upper_left=(left, top),
        lower_right=lower,
        fields=[field],
        pole=pole,
    )
    granule = wrap_up(grid, "MOD29P1D.A2012065.h09v07.061.2012153130500.hdf", "MOD29P1D", 61)
    write_granule(tmp_path / granule.local_name, granule)
    sign = 1 if pole > 0 else -1
    box = (100.0, 86.0, 110.0, 88.0) if sign > 0 else (100.0, -88.0, 110.0, -86.0)
    target = Lattice(crs="EPSG:4326", resolution=0.05).snap(box)
    found = reproject([tmp_path / granule.local_name], "Ice", target, Options(resampling="nearest"))
    a, _, c, _, e, f = target.transform
    seen = 0
    for row in range(0, target.height, 7):
        for column in range(0, target.width, 7):
            x, y = position(c + a * (column + 0.5), f + e * (row + 0.5), pole)
            at = int((top - y) // PIXEL), int((x - left) // PIXEL)
            if not (0 <= at[0] < side and 0 <= at[1] < side):
                continue
            near = min((x - left) / PIXEL % 1, (top - y) / PIXEL % 1)
            if 0.02 < near < 0.98:
                assert found.data[0, row, column] == numbers[at], (row, column)
                seen += 1
    assert seen > 20
    with open_granule(tmp_path / granule.local_name) as opened:
        edges = outline(opened).boundary
    assert edges is not None
    lats = [lat for ring in edges for _, lat in ring]
    assert all(sign * lat > 80.0 for lat in lats)
