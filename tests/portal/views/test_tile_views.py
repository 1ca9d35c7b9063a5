"""What a tile sees of a raster is all that it needs, and no more than it may read."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from portal.views import result_reading
from portal.views.tile_matrix import WEB_MERCATOR
from portal.views.tile_views import view_of
from reprojection.grid.grids import MODIS_SINUSOIDAL, Grid
from reprojection.warp.warp import SourceTile, warp

SOURCES = (
    Grid(crs="EPSG:4326", transform=(0.05, 0, -8, 0, -0.05, 58.5), width=280, height=160),
    Grid(crs="EPSG:4326", transform=(0.05, 0, 172.0, 0, -0.05, 8), width=160, height=160),
    Grid(
        crs=MODIS_SINUSOIDAL,
        transform=(9266.25, 0, -1111950.5, 0, -9266.25, 6671703),
        width=240,
        height=120,
    ),
    Grid(crs="EPSG:3035", transform=(9000, 0, 3e6, 0, -9000, 4e6), width=200, height=200),
    Grid(crs="EPSG:3413", transform=(25000, 0, -3e6, 0, -25000, 3e6), width=240, height=240),
)
MOST = result_reading.MOST_PIXELS


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(SOURCES), st.integers(0, 9), st.floats(0, 1), st.floats(0, 1))
def test_a_window_gives_the_pixels_of_the_whole_raster(
    source: Grid, zoom: int, along: float, down: float
) -> None:
    x, y = source.transform[2], source.transform[5]
    x += along * source.width * source.transform[0]
    y += down * source.height * source.transform[4]
    lon, lat = (float(one[0]) for one in source.system.to_lonlat(np.array([x]), np.array([y])))
    if not (np.isfinite(lon) and abs(lat) < 85):
        return
    col = min(int((lon + 180) / 360 * 2**zoom), 2**zoom - 1)
    row = int((1 - np.arcsinh(np.tan(np.radians(lat))) / np.pi) / 2 * 2**zoom)
    grid = WEB_MERCATOR.grid(zoom, col, row, side=64)
    plane = np.arange(source.pixels, dtype=np.float64).reshape(source.shape)
    whole = warp([SourceTile(bands=[plane], grid=source)], grid, "nearest", fill=np.nan)
    view = view_of(source, grid, [1], MOST)
    if view is None:
        assert np.isnan(whole).all()
        return
    left, top, width, height = view.window
    part = np.ascontiguousarray(plane[top : top + height, left : left + width])
    found = warp([SourceTile(bands=[part], grid=view.grid)], grid, "nearest", fill=np.nan)
    np.testing.assert_array_equal(found, whole)


def test_so_many_pixels_are_read_and_no_more() -> None:
    """Where the fitting overview shows more of them, a coarser one is taken."""
    source = Grid(crs="EPSG:4326", transform=(0.01, 0, -8, 0, -0.01, 58), width=999, height=999)
    grid = WEB_MERCATOR.grid(9, 246, 155)
    whole = view_of(source, grid, [1, 2, 4], MOST)
    assert whole is not None
    assert whole.halving == 1
    pixels = whole.window[2] * whole.window[3]
    for most, halving in ((pixels, 1), (pixels - 1, 2)):
        view = view_of(source, grid, [1, 2, 4], most)
        assert view is not None
        assert view.halving == halving
