"""The fast evaluator of coordinates against float64 pyproj at every pixel."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprojection.grid.blocks import plan_blocks
from reprojection.grid.coordinates import Coordinates, SourceSpace, exact_coordinates, plan_rows
from reprojection.grid.grids import Grid, Lattice
from reprojection.grid.pixel_coordinates import Chunk, centres
from tests.reprojection.warp_samples import target, tile

pytestmark = pytest.mark.slow

WITHIN = 0.01
"""Source pixels; the evaluator is held to it everywhere, and far below it in practice."""


def worst(grid: Grid, space: SourceSpace) -> tuple[float, int]:
    """The largest error in source pixels, and how many pixels are on the domain for one only."""
    coordinates = Coordinates(grid=grid, space=space)
    plan = plan_rows(coordinates) if coordinates.is_rowwise else plan_blocks(coordinates)
    whole = Chunk(top=0, bottom=grid.height, left=0, right=grid.width)
    fast = centres(plan, whole, quick=True)
    rows, cols = np.arange(grid.height)[:, None], np.arange(grid.width)[None, :]
    exact = np.stack(exact_coordinates(grid, space, rows, cols), axis=-1)
    off_fast, off_exact = np.isnan(fast).any(axis=-1), np.isnan(exact).any(axis=-1)
    both = ~off_fast & ~off_exact
    error = np.abs(fast[both] - exact[both]).max(initial=0.0)
    return float(error), int((off_fast != off_exact).sum())


CASES = [
    ("EPSG:32633", 500.0, (14, 44, 16, 46)),
    ("EPSG:3035", 2000.0, (-10, 35, 30, 70)),
    ("EPSG:27700", 1000.0, (-6, 50, 2, 56)),
    ("EPSG:5070", 3000.0, (-120, 25, -70, 50)),
    ("EPSG:3413", 5000.0, (-180, 75, 180, 90)),
    ("EPSG:3031", 20000.0, (-180, -90, 180, -60)),
    ("EPSG:3857", 10000.0, (170, -20, -170, 20)),
    ("EPSG:4326", 0.05, (170, -20, -170, 20)),
    ("EPSG:4326", 0.25, (-180, -90, 180, 90)),
    ("EPSG:4277", 0.01, (-3, 51, 1, 54)),
    ("EPSG:23030", 3000.0, (-9, 36, 3, 44)),
    ("+proj=moll +datum=WGS84", 60000.0, (-180, -90, 180, 90)),
    ("+proj=igh +datum=WGS84", 60000.0, (-180, -90, 180, 90)),
    ("+proj=robin +datum=WGS84", 60000.0, (-180, -90, 180, 90)),
    ("EPSG:4087", 30000.0, (-180, -80, 180, 80)),
]


@pytest.mark.parametrize(("crs", "resolution", "box"), CASES)
def test_every_pixel_is_where_proj_puts_it(
    crs: str, resolution: float, box: tuple[float, float, float, float]
) -> None:
    error, masks = worst(target(crs, resolution, box), SourceSpace.of(tile(18, 3, 500)))
    assert error < WITHIN
    assert masks == 0


def test_a_sinusoidal_target_ends_at_the_rim() -> None:
    grid = tile(3, 5, 1000)
    error, masks = worst(grid, SourceSpace.of(tile(3, 5, 500)))
    assert error < 1e-6
    assert masks == 0
    lost = np.isnan(
        exact_coordinates(
            grid, SourceSpace.of(grid), np.arange(1200)[:, None], np.arange(1200)[None, :]
        )[0]
    )
    assert 0.1 < lost.mean() < 1.0


@settings(max_examples=25)
@given(
    kind=st.sampled_from(["laea", "aea", "lcc", "tmerc", "stere", "eqc", "cea", "sinu"]),
    lon=st.floats(-179, 179),
    lat=st.floats(-70, 70),
    exponent=st.floats(1.8, 4.8),
)
def test_random_projections_are_held_to_a_hundredth_of_a_pixel(
    kind: str, lon: float, lat: float, exponent: float
) -> None:
    parallels = f"+lat_1={lat - 5} +lat_2={lat + 7}" if kind in ("aea", "lcc") else f"+lat_0={lat}"
    crs = f"+proj={kind} {parallels} +lon_0={lon} +datum=WGS84 +units=m"
    size = 10**exponent
    grid = Lattice(crs=crs, resolution=size).window(-90, -110, 200, 210)
    error, masks = worst(grid, SourceSpace.of(tile(18, 3, 250)))
    assert error < WITHIN
    assert masks == 0
