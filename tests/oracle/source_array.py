"""Join all tiles of one band into one array, and turn weighted values into its pixels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reprojection.grid.crs import Floats
from reprojection.warp.warp_task import TilePixels

Pixels = NDArray[np.integer | np.floating]
Reals = NDArray[np.floating]

_RING = 2


class Mosaic:
    """All tiles of one band as one array with a border of fill, by source space row and column."""

    def __init__(self, tiles: Sequence[TilePixels], fill: float | int, dtype: DTypeLike) -> None:
        self.top = min(tile.row for tile in tiles)
        self.left = min(tile.col for tile in tiles)
        bottom = max(tile.row + tile.pixels.shape[0] for tile in tiles)
        right = max(tile.col + tile.pixels.shape[1] for tile in tiles)
        shape = (bottom - self.top + 2 * _RING, right - self.left + 2 * _RING)
        self.fill: np.generic = np.array([fill]).astype(dtype)[0]
        self.pixels = np.full(shape, self.fill, dtype=dtype)
        for tile in reversed(tiles):
            top, left = tile.row - self.top + _RING, tile.col - self.left + _RING
            height, width = tile.pixels.shape
            self.pixels[top : top + height, left : left + width] = tile.pixels

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """First and last-plus-one row, then column, of all tiles together."""
        height, width = self.pixels.shape
        return (
            self.top,
            self.top + height - 2 * _RING,
            self.left,
            self.left + width - 2 * _RING,
        )

    def at(self, rows: Floats, cols: Floats) -> Pixels:
        """Return pixels at whole rows and columns; fill outside."""
        height, width = self.pixels.shape
        with np.errstate(invalid="ignore"):
            i = np.clip(np.nan_to_num(rows - (self.top - _RING), nan=0.0), 0, height - 1)
            j = np.clip(np.nan_to_num(cols - (self.left - _RING), nan=0.0), 0, width - 1)
        return self.pixels[i.astype(np.intp), j.astype(np.intp)]


def working_type(dtype: DTypeLike) -> type[np.float32] | type[np.float64]:
    """Return the type in which pixels of a dtype are weighted."""
    small = np.dtype(dtype).itemsize <= 2 or np.dtype(dtype) == np.float32
    return np.float32 if small else np.float64


def is_valid(pixels: Pixels, fill: np.generic) -> NDArray[np.bool_]:
    """Tell which pixels are data: not fill, and not NaN."""
    valid = np.asarray(pixels != fill)
    if np.issubdtype(pixels.dtype, np.floating):
        valid &= ~np.isnan(pixels.astype(np.float64))
    return valid


def finish(value: Reals, good: NDArray[np.bool_], mosaic: Mosaic) -> Pixels:
    """Turn values into pixels: rounded half to even, clipped to the type, never equal to fill."""
    dtype, fill = mosaic.pixels.dtype, mosaic.fill
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        with np.errstate(invalid="ignore"):
            rounded = np.clip(np.rint(np.where(good, value, 0)), info.min, info.max)
        pixels = _to_integer(rounded, dtype)
        aside = fill + dtype.type(1) if fill == info.min else fill - dtype.type(1)
        pixels[pixels == fill] = aside
    else:
        pixels = np.where(good, value, 0).astype(dtype)
        if not np.isnan(np.float64(fill)):
            pixels[pixels == fill] = np.nextafter(fill, dtype.type(0) if fill else dtype.type(1))
    pixels[~good] = fill
    return pixels


def _to_integer(rounded: Reals, dtype: np.dtype[np.generic]) -> Pixels:
    """Convert whole floats to integers through 64 bits, as the compiled conversion does."""
    return rounded.astype(np.int64).astype(dtype)
