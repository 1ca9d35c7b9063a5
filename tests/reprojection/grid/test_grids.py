"""Grids, lattices, cells and tiles: what they cover, and what is refused."""

import math
import pickle

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from modis.tile import TILE_SIZE
from reprojection.errors import GridError
from reprojection.grid import covering, grids
from reprojection.grid.covering import points_on_map, project_bounds
from reprojection.grid.crs import (
    MODIS_SINUSOIDAL,
    Crs,
    lonlat_to_sinusoidal,
)
from reprojection.grid.grids import Grid, Lattice, modis_tile_grid
from reprojection.grid.sinusoidal import tiles_touching


def test_a_modis_tile_has_the_published_corner() -> None:
    grid = modis_tile_grid(18, 4, 500)
    assert grid.shape == (2400, 2400)
    assert grid.transform[0] == pytest.approx(463.31271653, abs=1e-7)
    assert grid.transform[5] == pytest.approx(5559752.598333, abs=1e-3)
    assert Crs.of(MODIS_SINUSOIDAL).is_modis_sinusoidal
    assert Crs.of(
        "+proj=sinu +lon_0=0 +x_0=0 +y_0=0 +R=6371007.181 +units=m +no_defs"
    ).is_modis_sinusoidal
    assert not Crs.of("+proj=sinu +lon_0=10 +R=6371007.181").is_modis_sinusoidal


@given(
    west=st.floats(-170, 160),
    south=st.floats(-80, 70),
    width=st.floats(0.001, 20),
    height=st.floats(0.001, 10),
    resolution=st.sampled_from([0.001, 0.01, 1 / 240, 0.05, 0.25]),
)
def test_snapping_covers_the_bounds_with_whole_lattice_pixels(
    west: float, south: float, width: float, height: float, resolution: float
) -> None:
    lattice = Lattice(crs="EPSG:4326", resolution=resolution)
    grid = lattice.snap((west, south, west + width, south + height))
    slack = 2e-6 * resolution
    bounds = grid.bounds
    assert bounds.west <= west + slack
    assert bounds.east >= west + width - slack
    assert bounds.south <= south + slack
    assert bounds.north >= south + height - slack
    assert bounds.west > west - resolution - slack
    cells = lattice.cells(grid)
    assert len(cells) == len(set(cells))
    covered = [lattice.cell_grid(*cell).bounds for cell in cells]
    assert min(b.west for b in covered) <= bounds.west + slack
    assert max(b.north for b in covered) >= bounds.north - slack


def test_bounds_on_lattice_lines_are_not_widened() -> None:
    grid = Lattice(crs="EPSG:4326", resolution=0.01).snap((-8.0, 50.5, 6.0, 58.5))
    assert grid.shape == (800, 1400)


@pytest.mark.parametrize(
    ("crs", "words"),
    [
        ("EPSG:5703", "Vertical"),
        ("EPSG:4978", "Geocentric"),
        ("EPSG:4979", "Geographic 3D"),
        ("EPSG:7415", "Compound"),
        ("EPSG:999999", "not known"),
        ("no such thing", "not known"),
        ("EPSG:3410", "ballpark"),
        ("+proj=laea +lat_0=52 +lon_0=10 +ellps=GRS80", "ballpark"),
    ],
)
def test_a_crs_that_cannot_be_a_target_is_refused(crs: str, words: str) -> None:
    with pytest.raises(GridError, match=words):
        Lattice(crs=crs, resolution=1000.0)


def test_the_operation_is_recorded_with_its_accuracy() -> None:
    assert Crs.of("EPSG:32631").operation.accuracy == 0.0
    british = Crs.of("EPSG:27700").operation
    assert "OSGB36 to WGS 84" in british.description
    assert british.accuracy is not None
    assert british.accuracy <= 5.0


@pytest.mark.parametrize("box", [(0, 10, 5, 5), (0, -91, 1, 0), (math.nan, 0, 1, 1)])
def test_a_box_off_the_earth_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(GridError, match="not on the Earth"):
        project_bounds(box, "EPSG:3035")


@pytest.mark.parametrize(
    ("crs", "box", "place"),
    [
        (
            "EPSG:3413",
            (-180, -90, 180, 90),
            "latitude -90, lies outside the domain of CRS 'WGS 84 / NSIDC",
        ),
        ("EPSG:3031", (-10, -90, 10, 90), "latitude 90, lies outside"),
        ("EPSG:3857", (0, 0, 90, 90), "latitude 90, lies outside"),
    ],
)
def test_a_box_that_reaches_where_a_map_has_no_end_is_refused(
    crs: str, box: tuple[float, float, float, float], place: str
) -> None:
    with pytest.raises(GridError, match=f"{place}.*, or narrow it$"):
        project_bounds(box, crs)


def test_a_hemisphere_has_bounds_on_a_polar_map() -> None:
    west, south, east, north = project_bounds((-180, 0, 180, 90), "EPSG:3413")
    assert 1.2e7 < min(-west, -south, east, north) <= max(-west, -south, east, north) < 1.3e7


@settings(max_examples=60)
@given(
    west=st.floats(-180, 180),
    width=st.floats(0, 60),
    south=st.floats(-90, 89),
    height=st.floats(0, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_tile_with_a_point_of_the_region_is_missed(
    west: float, width: float, south: float, height: float, seed: int
) -> None:
    north = min(south + height, 90.0)
    rng = np.random.default_rng(seed)
    lon = west + width * np.concatenate([rng.random(200), [0.0, 1.0]])
    lat = south + (north - south) * np.concatenate([rng.random(200), [0.0, 1.0]])
    x, y = lonlat_to_sinusoidal(np.where(lon > 180, lon - 360, lon), lat)
    # A point on the very edge of a tile, or on the map's rim, belongs to no pixel's inside.
    h, v = (x / TILE_SIZE + 18), (9 - y / TILE_SIZE)
    rim = np.abs(np.abs(lon) - 180) < 1e-9
    inside = (np.abs(h - np.rint(h)) > 1e-7) & (np.abs(v - np.rint(v)) > 1e-7) & ~rim
    wanted = {(int(a), int(b)) for a, b in zip(h[inside], v[inside], strict=True)}
    assert wanted <= set(tiles_touching((west, south, west + width, north)))
    if width > 0.001 and north - south > 0.001 and west + width <= 180:
        polygon = shapely.box(west, south, west + width, north)
        assert wanted <= set(tiles_touching(polygon))


def test_a_point_on_the_antimeridian_touches_both_rims() -> None:
    for lon in (180.0, -180.0):
        assert {tile.h for tile in tiles_touching((lon, 5.0, lon, 5.0))} == {0, 35}


def test_the_whole_earth_has_460_tiles() -> None:
    assert len(tiles_touching((-180, -90, 180, 90))) == 460


def test_a_box_across_the_antimeridian_touches_both_rims() -> None:
    tiles = tiles_touching((175, -5, -175, 5))
    assert {h for h, _ in tiles} == {0, 35}


@pytest.mark.parametrize("crs", ["EPSG:3035", "EPSG:27700", "EPSG:32631", "EPSG:4326"])
def test_projected_bounds_hold_every_point(crs: str) -> None:
    from reprojection.grid.crs import Crs

    box = (-4.0, 50.0, 2.0, 56.0)
    bounds = project_bounds(box, crs)
    rng = np.random.default_rng(0)
    x, y = Crs.of(crs).from_lonlat(rng.uniform(-4, 2, 5000), rng.uniform(50, 56, 5000))
    assert bounds.west <= x.min()
    assert x.max() <= bounds.east
    assert bounds.south <= y.min()
    assert y.max() <= bounds.north


def test_a_parsed_crs_goes_with_its_grid_to_another_process() -> None:
    grid = Lattice(crs="EPSG:3035", resolution=1000.0).snap((4e6, 3e6, 4.1e6, 3.1e6))
    lon, lat = grid.system.to_lonlat(np.array([4.05e6]), np.array([3.05e6]))
    sent = pickle.loads(pickle.dumps(grid))
    assert sent == grid
    assert sent.system.text == "EPSG:3035"
    assert (sent.system.from_lonlat(lon, lat)[0] == grid.system.from_lonlat(lon, lat)[0]).all()


def test_a_grid_has_so_many_pixels() -> None:
    side = math.isqrt(grids._MAX_PIXELS)
    unit = (1.0, 0.0, 0.0, 0.0, -1.0, 0.0)
    assert Grid(crs="EPSG:3857", transform=unit, width=side, height=side).pixels == 2**40
    with pytest.raises(GridError, match="at most 2\\*\\*40 pixels"):
        Grid(crs="EPSG:3857", transform=unit, width=side + 1, height=side)


def test_a_point_lies_so_far_from_the_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    system, lon, lat = Crs.of("EPSG:3857"), np.array([10.0]), np.array([0.0])
    (x,), _ = points_on_map("it", lon, lat, system)
    monkeypatch.setattr(covering, "_FARTHEST", float(x))
    points_on_map("it", lon, lat, system)
    monkeypatch.setattr(covering, "_FARTHEST", math.nextafter(float(x), 0.0))
    with pytest.raises(GridError, match="a part of it, at longitude 10 and latitude 0"):
        points_on_map("it", lon, lat, system)
