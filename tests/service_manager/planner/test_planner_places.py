"""Which tiles and swaths a cell needs, against looking at every pixel."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from modis.tile import TILE_SIZE
from reprojection.grid.crs import lonlat_to_sinusoidal
from service_manager.planner.cells import WindowCell, places
from tasks.request.document import parse_request
from tasks.request.resolved import resolve

GRIDS = (
    ("EPSG:4326", 0.05),
    ("EPSG:3035", 5_000.0),
    ("EPSG:32633", 5_000.0),
    ("EPSG:3995", 10_000.0),
    ("EPSG:6933", 8_000.0),
)


def layout(box: tuple[float, float, float, float], crs: str, side: float) -> tuple[WindowCell, ...]:
    request = parse_request(
        {
            "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
            "region": {"bbox": box},
            "time": {"start": "2012-01-01", "end": "2012-01-01"},
            "grid": {"crs": crs, "resolution": side},
        }
    )
    return places(resolve(request).target, request.region)


def tiles_of_every_pixel(place: WindowCell) -> set[tuple[int, int]]:
    window = place.window
    cols, rows = np.meshgrid(np.arange(window.width) + 0.5, np.arange(window.height) + 0.5)
    a, _, c, _, e, f = window.transform
    lon, lat = window.system.to_lonlat((a * cols + c).ravel(), (e * rows + f).ravel())
    there = np.isfinite(lon)
    x, y = lonlat_to_sinusoidal(lon[there], lat[there])
    h = np.floor(x / TILE_SIZE + 18).astype(int)
    v = np.floor(9 - y / TILE_SIZE).astype(int)
    return {(int(i), int(j)) for i, j in zip(h, v, strict=True) if 0 <= i < 36 and 0 <= j < 18}


@settings(max_examples=12)
@given(
    west=st.floats(0, 25),
    south=st.floats(42, 75),
    width=st.floats(1, 9),
    height=st.floats(1, 14),
    grid=st.sampled_from(GRIDS),
)
def test_no_tile_with_a_pixel_is_missed_and_few_are_added(
    west: float, south: float, width: float, height: float, grid: tuple[str, float]
) -> None:
    for place in layout((west, south, west + width, south + height), *grid):
        needed = tiles_of_every_pixel(place)
        found = place.tiles(0.0, False)
        assert needed <= found
        assert len(found - needed) <= 2  # tiles that a tenth of a metre separates from a centre


@settings(max_examples=12)
@given(
    west=st.floats(0, 25),
    south=st.floats(42, 75),
    reach=st.floats(0, 50_000),
    grid=st.sampled_from(GRIDS),
)
def test_a_wider_kernel_needs_no_fewer_tiles(
    west: float, south: float, reach: float, grid: tuple[str, float]
) -> None:
    for place in layout((west, south, west + 5, south + 5), *grid):
        assert place.tiles(0.0, False) <= place.tiles(reach, False)
        assert place.tiles(0.0, False) <= place.tiles(reach, True)
