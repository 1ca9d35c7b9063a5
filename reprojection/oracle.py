"""Every kernel in plain numpy: the same values as the compiled ones, bit for bit.

They serve as the oracle of the tests, and where the library is not built. 8- and 16-bit and
float32 pixels are weighed in float32, the others in float64, in the order written here.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reprojection import places
from reprojection.blocks import BlockPlan
from reprojection.compiled import TilePixels
from reprojection.coordinates import RowPlan
from reprojection.crs import Floats

Pixels = NDArray[np.integer | np.floating]
Reals = NDArray[np.floating]
Window = tuple[NDArray[np.intp], NDArray[np.intp]]

_RING = 2


class Mosaic:
    """All tiles of one band as one array with a ring of fill, by source space row and column."""

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
        """First and last-plus-one row, then column, of the tiles together."""
        height, width = self.pixels.shape
        return (
            self.top,
            self.top + height - 2 * _RING,
            self.left,
            self.left + width - 2 * _RING,
        )

    def at(self, rows: Floats, cols: Floats) -> Pixels:
        """Pixels at whole rows and columns; fill outside."""
        height, width = self.pixels.shape
        with np.errstate(invalid="ignore"):
            i = np.clip(np.nan_to_num(rows - (self.top - _RING), nan=0.0), 0, height - 1)
            j = np.clip(np.nan_to_num(cols - (self.left - _RING), nan=0.0), 0, width - 1)
        return self.pixels[i.astype(np.intp), j.astype(np.intp)]


def working_type(dtype: DTypeLike) -> type[np.float32] | type[np.float64]:
    """The type in which pixels of a dtype are weighed."""
    small = np.dtype(dtype).itemsize <= 2 or np.dtype(dtype) == np.float32
    return np.float32 if small else np.float64


def is_valid(pixels: Pixels, fill: np.generic) -> NDArray[np.bool_]:
    """Which pixels are data: not fill, and not NaN."""
    valid = np.asarray(pixels != fill)
    if np.issubdtype(pixels.dtype, np.floating):
        valid &= ~np.isnan(pixels.astype(np.float64))
    return valid


def nearest(mosaic: Mosaic, places: Floats) -> Pixels:
    """The pixel each place lies in."""
    return mosaic.at(np.floor(places[..., 1]), np.floor(places[..., 0]))


def bilinear(mosaic: Mosaic, places: Floats, *, nearest_rule: bool = True) -> Pixels:
    """The four pixels around each place, weighed by distance; fill pixels take no part.

    With `nearest_rule` (GDAL's) a place whose nearest pixel is fill stays fill.
    """
    value, good = _bilinear(mosaic, places, nearest_rule=nearest_rule)
    return finish(value, good, mosaic)


def _bilinear(
    mosaic: Mosaic, places: Floats, *, nearest_rule: bool
) -> tuple[Reals, NDArray[np.bool_]]:
    work = working_type(mosaic.pixels.dtype)
    x, y = places[..., 0] - 0.5, places[..., 1] - 0.5
    left, top = np.floor(x), np.floor(y)
    fx: Reals = (x - left).astype(work)
    fy: Reals = (y - top).astype(work)
    one, zero = work(1), work(0)
    gx, gy = one - fx, one - fy
    taps = [mosaic.at(top + i, left + j) for i in (0, 1) for j in (0, 1)]
    valid = [is_valid(tap, mosaic.fill) for tap in taps]
    values: list[Reals] = [
        np.where(v, tap.astype(work), zero) for tap, v in zip(taps, valid, strict=True)
    ]
    masks: list[Reals] = [v.astype(work) for v in valid]
    left_sum, right_sum = gy * values[0] + fy * values[2], gy * values[1] + fy * values[3]
    left_weight, right_weight = gy * masks[0] + fy * masks[2], gy * masks[1] + fy * masks[3]
    total = gx * left_sum + fx * right_sum
    weight = gx * left_weight + fx * right_weight
    good = _pick(valid, fx, fy) if nearest_rule else weight > zero
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / weight, good & ~np.isnan(places).any(axis=-1)


def _pick(valid: list[NDArray[np.bool_]], fx: Reals, fy: Reals) -> NDArray[np.bool_]:
    right, lower = fx >= 0.5, fy >= 0.5
    upper_row, lower_row = np.where(right, valid[1], valid[0]), np.where(right, valid[3], valid[2])
    return np.where(lower, lower_row, upper_row)


def cubic(mosaic: Mosaic, places: Floats, *, nearest_rule: bool = True) -> Pixels:
    """Cubic convolution (Keys, a = -0.5) over 4 x 4 pixels; bilinear where one of them is fill."""
    work = working_type(mosaic.pixels.dtype)
    plain, good = _bilinear(mosaic, places, nearest_rule=nearest_rule)
    x, y = places[..., 0] - 0.5, places[..., 1] - 0.5
    left, top = np.floor(x), np.floor(y)
    across = keys_weights((x - left).astype(work), work)
    down = keys_weights((y - top).astype(work), work)
    whole = np.ones(x.shape, dtype=bool)
    columns = []
    for j in range(4):
        taps = [mosaic.at(top + i - 1, left + j - 1) for i in range(4)]
        for tap in taps:
            whole &= is_valid(tap, mosaic.fill)
        with np.errstate(invalid="ignore"):
            columns.append(_sum4(down, [tap.astype(work) for tap in taps]))
    with np.errstate(invalid="ignore"):
        curved = _sum4(across, columns)
    return finish(np.where(whole, curved, plain), good, mosaic)


def _sum4(weights: list[Reals], values: list[Reals]) -> Reals:
    total = weights[0] * values[0]
    for k in (1, 2, 3):
        total = total + weights[k] * values[k]
    return total


def keys_weights(t: Reals, work: type[np.float32] | type[np.float64]) -> list[Reals]:
    """Keys' cubic convolution weights (1981, a = -0.5) of the four pixels around a place."""
    half, one, two = work(0.5), work(1), work(2)
    three, four, five = work(3), work(4), work(5)
    return [
        half * (t * ((two - t) * t - one)),
        half * ((three * t - five) * (t * t) + two),
        half * (t * ((four - three * t) * t + one)),
        half * ((t - one) * (t * t)),
    ]


def finish(value: Reals, good: NDArray[np.bool_], mosaic: Mosaic) -> Pixels:
    """Values as pixels: rounded half to even, within the type, never by chance the fill."""
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
    """Whole floats as integers, through 64 bits: the compiled conversion's way."""
    return rounded.astype(np.int64).astype(dtype)


class Warper:
    """A warp in numpy, chunk by chunk; stands in for `compiled.Warper`."""

    def __init__(
        self,
        tiles: Sequence[Sequence[TilePixels]],
        out: Pixels,
        method: str,
        plan: RowPlan | BlockPlan,
        *,
        fill: float | int,
        nearest_rule: bool,
    ) -> None:
        self._mosaics = [Mosaic(band, fill, out.dtype) for band in tiles]
        self._out, self._method, self._plan = out, method, plan
        self._nearest_rule = nearest_rule

    def run(self, chunk: places.Chunk) -> None:
        """Warp one chunk."""
        where = places.centres(self._plan, chunk, quick=True)
        window = (slice(chunk.top, chunk.bottom), slice(chunk.left, chunk.right))
        for band, mosaic in enumerate(self._mosaics):
            self._out[band][window] = self._points(mosaic, where)

    def _points(self, mosaic: Mosaic, where: Floats) -> Pixels:
        if self._method == "nearest":
            return nearest(mosaic, where)
        kernel = bilinear if self._method == "bilinear" else cubic
        return kernel(mosaic, where, nearest_rule=self._nearest_rule)
