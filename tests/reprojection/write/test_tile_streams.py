"""Packed tiles: any decoder of zlib streams gives the samples back."""

import zlib

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprojection.write import tiff

Tile = npt.NDArray[np.generic]


def comes_back(tile: Tile) -> int:
    """The packed size of a tile; asserts that it is the tile's samples, checked by their sum."""
    packed = tiff._deflate_by_kernel(tile)
    assert zlib.decompress(packed) == tile.tobytes()
    return len(packed)


@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(1, 60),
    row=st.integers(1, 5000),
    values=st.sampled_from([1, 2, 3, 17, 256]),
    again=st.sampled_from([0.0, 0.5, 0.9, 0.999]),
)
def test_any_bytes_come_back(seed: int, rows: int, row: int, values: int, again: float) -> None:
    rng = np.random.default_rng(seed)
    tile = rng.integers(0, values, (rows, row), dtype=np.uint8)
    repeats = rng.random(tile.shape) < again
    tile[:, 1:][repeats[:, 1:]] = tile[:, :-1][repeats[:, 1:]]
    tile[1:][repeats[1:, 0]] = tile[:-1][repeats[1:, 0]]
    comes_back(tile)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 10, 17, 258, 259, 65535, 65536, 262145, 600_000])
@pytest.mark.parametrize("values", [1, 2, 256])
def test_sizes_around_every_limit_come_back(size: int, values: int) -> None:
    comes_back(np.random.default_rng(size).integers(0, values, (1, size), dtype=np.uint8))


def test_what_does_not_shrink_hardly_grows() -> None:
    tile = np.random.default_rng(1).integers(0, 256, (512, 3584), dtype=np.uint8)
    assert tile.nbytes < comes_back(tile) < 1.0002 * tile.nbytes


def test_more_repeats_than_a_block_holds() -> None:
    runs = np.random.default_rng(2).integers(1, 256, (1, 60_000), dtype=np.uint8)
    comes_back(np.repeat(runs, 9, axis=1))


def test_one_value_and_one_row_take_next_to_nothing() -> None:
    assert comes_back(np.zeros((512, 1024), np.uint8)) < 1200
    row = np.random.default_rng(3).integers(0, 256, 1024, dtype=np.uint8)
    assert comes_back(np.tile(row, (512, 1))) < 6000


def test_rows_longer_than_the_window_come_back() -> None:
    row = np.random.default_rng(4).integers(0, 256, 40_000, dtype=np.uint8)
    comes_back(np.tile(row, (3, 1)))


def test_no_tile_is_much_larger_than_by_the_other_packer() -> None:
    row, col = np.indices((512, 512), dtype=np.float64)
    smooth = np.sin(row / 90) * np.cos(col / 70)
    for noise in (0.0, 1.0, 10.0, 300.0):
        texture = np.random.default_rng(5).normal(0, 1, smooth.shape)
        plane = np.round(3000 * smooth + noise * texture).astype(np.int16)
        tile = tiff._interleaved([plane], predict=True)
        packed = tiff._deflate(tile)
        assert zlib.decompress(packed) == tile.tobytes()
        assert len(packed) < 1.05 * len(tiff._deflate_by_isal(tile))
