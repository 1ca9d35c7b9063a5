"""Tiles: names, edges, the Earth, boxes and points."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modis.box import LonLatBox
from modis.sphere import SPHERE_RADIUS
from modis.tile import TILE_SIZE, TILES_ACROSS, TILES_DOWN, Tile, tiles_around
from reprojection.grid.grids import modis_lattice, modis_tile_grid
from reprojection.grid.sinusoidal import tiles_touching

TILES = [Tile(h, v) for v in range(TILES_DOWN) for h in range(TILES_ACROSS)]
WORLD = LonLatBox(-180.0, -90.0, 180.0, 90.0)


def test_a_name_leads_back_to_its_tile() -> None:
    assert Tile.parse("h18v04") == Tile(h=18, v=4)
    assert all(Tile.parse(tile.name) == tile for tile in TILES)


@pytest.mark.parametrize("name", ["", "h18v4", "H18V04", "h1xv04", "h18v04 ", "v04h18", "h-1v04"])
def test_other_text_is_no_tile(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a tile; write it like h18v04"):
        Tile.parse(name)


@pytest.mark.parametrize("name", ["h36v00", "h00v18"])
def test_tiles_beyond_the_grid_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="off the tile grid"):
        Tile.parse(name)


def test_edges_are_those_of_the_tile_grids_of_rasters() -> None:
    for tile in (Tile(0, 8), Tile(18, 4), Tile(17, 9), Tile(35, 9)):
        west, south, east, north = modis_tile_grid(*tile, 1000).bounds
        assert (tile.left, tile.top) == pytest.approx((west, north), abs=1e-6)
        assert Tile.of_edges(west, north, east, south) == tile
        assert math.degrees(tile.top / SPHERE_RADIUS) == pytest.approx(tile.north)
        (cell,) = modis_lattice(500).cells(modis_tile_grid(*tile, 500))
        assert Tile.at_cell(*cell) == tile


def test_edges_of_anything_else_are_of_no_tile() -> None:
    size = TILE_SIZE
    assert Tile.of_edges(0.0, size, size + 2.0, 0.0) is None
    assert Tile.of_edges(0.5 * size, size, 1.5 * size, 0.0) is None
    assert Tile.of_edges(0.0, size, 2 * size, -size) is None


def test_460_tiles_are_on_the_earth() -> None:
    there = {tile for tile in TILES if tile.on_earth}
    assert len(there) == 460
    assert there == {tile for tile in TILES if tile.meets(WORLD)}
    assert there == set(tiles_touching(WORLD))
    assert not any(tile.on_earth for tile in (Tile(-1, 5), Tile(36, 5), Tile(5, 18), Tile(5, -1)))


def test_sides_end_at_the_antimeridian() -> None:
    west, east = Tile(9, 2).sides(np.array([69.9, 60.1]))
    assert west.tolist() == [-180.0, -180.0]
    assert (east < -150.0).all()


@given(st.floats(-179.9, 179.9), st.floats(-89.9, 89.9))
def test_a_point_lies_in_the_tile_that_the_formula_says(lon: float, lat: float) -> None:
    x = SPHERE_RADIUS * math.radians(lon) * math.cos(math.radians(lat))
    y = SPHERE_RADIUS * math.radians(lat)
    (tile,) = tiles_around(np.array([x]), np.array([y]), 0.0) or [Tile(35, 8)]
    assert tile.left - 1e-6 <= x <= tile.left + TILE_SIZE + 1e-6
    assert tile.meets(LonLatBox(lon, lat, lon, lat))


def test_a_square_around_a_corner_enters_four_tiles() -> None:
    corner = Tile(18, 4)
    x, y = np.array([corner.left]), np.array([corner.top])
    assert tiles_around(x, y, 1.0) == {Tile(17, 3), Tile(18, 3), Tile(17, 4), Tile(18, 4)}
    assert tiles_around(x + 2.0, y - 2.0, 1.0) == {Tile(18, 4)}
    assert tiles_around(np.array([1e9]), np.array([0.0]), 1.0) == frozenset()
