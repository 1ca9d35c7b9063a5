"""The cells in which sites lie are those in which they are read, on edges and corners, too."""

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from reprojection.grid.coordinates import SourceSpace
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_at import pixel_at
from reprojection.warp.sites import Places, Site
from service_manager.planner.sites import cells_with
from tasks.request.sites import SiteChoice

SIDE = 8


def whole(crs: str, side: float, left: float, top: float) -> Grid:
    return Grid(crs=crs, transform=(side, 0.0, left, 0.0, -side, top), width=32, height=24)


def cells(of: Grid) -> list[Grid]:
    """Cut a grid into cells of some pixels."""
    a, _, c, _, e, f = of.transform
    return [
        Grid(
            crs=of.crs,
            transform=(a, 0.0, c + a * col, 0.0, e, f + e * row),
            width=SIDE,
            height=SIDE,
        )
        for row in range(0, of.height, SIDE)
        for col in range(0, of.width, SIDE)
    ]


WHOLES = [
    whole("EPSG:4326", 0.01, -8.0, 58.5),
    whole("EPSG:4326", 0.05, 179.0, 0.6),  # goes on beyond 180
    whole("EPSG:4326", 1 / 12, -180.0, 90.0),
    whole("EPSG:32631", 500.0, 501_500.0, 5_400_500.0),
    whole("EPSG:3035", 250.0, 4_321_000.0, 3_210_250.0),
]


@given(
    st.sampled_from(WHOLES),
    st.lists(
        st.tuples(st.integers(-1, 33), st.integers(-1, 25), st.sampled_from([0.0, 1e-9, 0.5])),
        min_size=1,
        max_size=12,
    ),
)
def test_a_site_is_planned_in_the_cells_that_it_is_read_in(
    grid: Grid, at: list[tuple[int, int, float]]
) -> None:
    a, _, c, _, e, f = grid.transform
    x = np.array([c + a * (col + part) for col, _, part in at])
    y = np.array([f + e * (row + part) for _, row, part in at])
    lon, lat = grid.system.to_lonlat(x, y)
    if grid.crs == "EPSG:4326":
        typed = np.round(np.stack([lon, np.clip(lat, -90.0, 90.0)]), 9)  # as people type them
        lon, lat = typed.astype(np.float64)
    sites = [SiteChoice(name=f"s{n}", lon=float(lon[n]), lat=float(lat[n])) for n in range(len(at))]
    parts = cells(grid)
    found, outside = cells_with(sites, parts, [grid])
    places = Places([Site(name=s.name, lon=s.lon, lat=s.lat) for s in sites])
    space = SourceSpace.of(parts[0])
    read = {}
    for number, part in enumerate(parts):
        spots = places.in_grid(space, part, (grid,))
        if spots is not None:
            read[number] = spots
    assert found == tuple(read)
    own = {sites[n].name for spots in read.values() for n in spots.sites}
    assert set(outside) == {s.name for s in sites} - own
    assert set(outside) == {s.name for s in sites if pixel_at(grid, s.lon, s.lat) is None}


@pytest.mark.parametrize("number", range(1, 32))
def test_a_site_on_the_edge_of_two_cells_has_its_pixel_in_one(number: int) -> None:
    grid = WHOLES[0]
    lon = round(-8.0 + 0.01 * number, 2)
    site = SiteChoice(name="Edge", lon=lon, lat=58.435)
    parts = cells(grid)
    pixel = pixel_at(grid, lon, 58.435)
    assert pixel is not None
    mine = [n for n in cells_with([site], parts, [grid])[0] if n < 4]
    assert pixel.col // SIDE in mine
    assert set(mine) == {max(0, min(31, pixel.col + beside)) // SIDE for beside in (-1, 0, 1)}


def test_what_lies_in_a_cell_and_not_in_the_results_is_outside() -> None:
    """Cells reach beyond the grid of the results."""
    grid = WHOLES[0]
    part = Grid(crs=grid.crs, transform=grid.transform, width=20, height=20)
    beyond = SiteChoice(name="Beyond", lon=-7.75, lat=58.4)
    assert cells_with([beyond], cells(grid), [part]) == ((), ("Beyond",))


def test_a_polygon_is_in_the_cells_that_its_bounds_touch() -> None:
    grid = WHOLES[0]
    area = shapely.box(-7.955, 58.415, -7.905, 58.445)
    site = SiteChoice(name="Wood", lon=-7.95, lat=58.43, area=area)
    far = SiteChoice(name="Far", lon=20.0, lat=10.0, area=shapely.box(19.9, 9.9, 20.1, 10.1))
    point = SiteChoice(name="Hut", lon=-7.725, lat=58.285)
    found, outside = cells_with([site, far, point], cells(grid), [grid])
    assert found == (0, 1, 4, 5, 11)
    assert outside == ("Far",)
