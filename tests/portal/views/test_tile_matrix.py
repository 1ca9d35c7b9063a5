"""Tiles of a map cover the world once, and lie where a transformation of their corners has them."""

import pyproj
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.serving.problems import NotFoundError
from portal.views.tile_matrix import DEEPEST, SETS, TileMatrixSet, tile_matrix_set

MATRICES = st.sampled_from(sorted(SETS.values(), key=lambda one: one.name))


@st.composite
def tiles(draw: st.DrawFn) -> tuple[TileMatrixSet, int, int, int]:
    matrix, zoom = draw(MATRICES), draw(st.integers(0, DEEPEST))
    col = draw(st.integers(0, (matrix.columns << zoom) - 1))
    return matrix, zoom, col, draw(st.integers(0, (matrix.rows << zoom) - 1))


@given(tiles())
def test_a_box_is_that_of_the_grids_corners(tile: tuple[TileMatrixSet, int, int, int]) -> None:
    matrix, *at = tile
    west, south, east, north = matrix.grid(*at).bounds
    to_degrees = pyproj.Transformer.from_crs(matrix.crs, "EPSG:4326", always_xy=True)
    box = matrix.box(*at)
    assert to_degrees.transform(west, south) == pytest.approx((box.west, box.south), abs=1e-9)
    assert to_degrees.transform(east, north) == pytest.approx((box.east, box.north), abs=1e-9)


@given(tiles())
def test_four_tiles_of_the_next_zoom_cover_a_tile(
    tile: tuple[TileMatrixSet, int, int, int],
) -> None:
    matrix, zoom, col, row = tile
    if zoom == DEEPEST:
        return
    whole = matrix.grid(zoom, col, row).bounds
    first = matrix.grid(zoom + 1, 2 * col, 2 * row).bounds
    last = matrix.grid(zoom + 1, 2 * col + 1, 2 * row + 1).bounds
    assert (first.west, first.north) == pytest.approx((whole.west, whole.north), abs=1e-6)
    assert (last.east, last.south) == pytest.approx((whole.east, whole.south), abs=1e-6)
    assert (first.east, first.south) == pytest.approx((last.west, last.north), abs=1e-6)


@pytest.mark.parametrize("at", [(-1, 0, 0), (DEEPEST + 1, 0, 0), (2, 4, 0), (2, 0, 4), (0, -1, 0)])
def test_a_tile_that_there_is_not_is_told(at: tuple[int, int, int]) -> None:
    with pytest.raises(NotFoundError, match="There is no"):
        tile_matrix_set("WebMercatorQuad").grid(*at)


def test_an_unknown_set_is_told() -> None:
    with pytest.raises(NotFoundError, match="no tile matrix set 'UTM'"):
        tile_matrix_set("UTM")
