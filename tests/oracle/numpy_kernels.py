"""Every kernel in plain numpy, with the same values as the compiled ones, bit for bit.

They are the reference for the tests. Pixels of 8 and 16
bits and float32 are weighted in float32, the others in float64, in the order written here.
"""

import numpy as np
from numpy.typing import NDArray

from reprojection.grid import pixel_coordinates
from reprojection.grid.bicubic import BLOCK
from reprojection.grid.crs import Floats
from reprojection.warp.warp_task import WarpTask
from tests.oracle.numpy_windows import windows
from tests.oracle.source_array import Mosaic, Pixels, Reals, finish, is_valid, working_type


def nearest(mosaic: Mosaic, at: Floats) -> Pixels:
    """Take the pixel in which each position lies."""
    return mosaic.at(np.floor(at[..., 1]), np.floor(at[..., 0]))


def bilinear(mosaic: Mosaic, at: Floats, *, nearest_rule: bool = True) -> Pixels:
    """Weight the four pixels around each position by distance; fill pixels are left out.

    With `nearest_rule` (GDAL's) a position whose nearest pixel is fill stays fill.
    """
    value, good = _bilinear(mosaic, at, nearest_rule=nearest_rule)
    return finish(value, good, mosaic)


def _bilinear(mosaic: Mosaic, at: Floats, *, nearest_rule: bool) -> tuple[Reals, NDArray[np.bool_]]:
    work = working_type(mosaic.pixels.dtype)
    x, y = at[..., 0] - 0.5, at[..., 1] - 0.5
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
        return total / weight, good & ~np.isnan(at).any(axis=-1)


def _pick(valid: list[NDArray[np.bool_]], fx: Reals, fy: Reals) -> NDArray[np.bool_]:
    right, lower = fx >= 0.5, fy >= 0.5
    upper_row, lower_row = np.where(right, valid[1], valid[0]), np.where(right, valid[3], valid[2])
    return np.where(lower, lower_row, upper_row)


def cubic(mosaic: Mosaic, at: Floats, *, nearest_rule: bool = True) -> Pixels:
    """Weight with Keys' cubic (a = -0.5) over 4 x 4 pixels; bilinear where one of them is fill."""
    work = working_type(mosaic.pixels.dtype)
    plain, good = _bilinear(mosaic, at, nearest_rule=nearest_rule)
    x, y = at[..., 0] - 0.5, at[..., 1] - 0.5
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
    """Compute Keys' cubic convolution weights (1981, a = -0.5) of the four pixels around."""
    half, one, two = work(0.5), work(1), work(2)
    three, four, five = work(3), work(4), work(5)
    return [
        half * (t * ((two - t) * t - one)),
        half * ((three * t - five) * (t * t) + two),
        half * (t * ((four - three * t) * t + one)),
        half * ((t - one) * (t * t)),
    ]


def _by_window_pixels(task: WarpTask, chunk: pixel_coordinates.Chunk) -> NDArray[np.bool_]:
    """Tell for each pixel of a chunk what `by_window` tells for its block."""
    blocks = task.by_window(chunk).astype(bool)
    numbering = task.plan.numbering
    first = (numbering.row + chunk.top) // BLOCK
    left = (numbering.col + chunk.left) // BLOCK
    rows = (np.arange(chunk.top, chunk.bottom) + numbering.row) // BLOCK - first
    cols = (np.arange(chunk.left, chunk.right) + numbering.col) // BLOCK - left
    return blocks[rows[:, None], cols[None, :]]


class Warper:
    """A warp in numpy, chunk by chunk; the counterpart of `reprojection.warp.c_kernels.Warper`."""

    def __init__(self, task: WarpTask) -> None:
        self._task = task
        self._mosaics = [Mosaic(band, task.fill, task.out.dtype) for band in task.tiles]

    def run(self, chunk: pixel_coordinates.Chunk) -> None:
        """Warp one chunk."""
        task = self._task
        by_window = _by_window_pixels(task, chunk)
        window = (slice(chunk.top, chunk.bottom), slice(chunk.left, chunk.right))
        exact = corners = None
        if by_window.any():
            exact = pixel_coordinates.centres(task.plan, chunk, quick=False)
            corners = pixel_coordinates.corners(task.edge_plan or task.plan, chunk)
        quick = None if by_window.all() else pixel_coordinates.centres(task.plan, chunk, quick=True)
        for band, mosaic in enumerate(self._mosaics):
            out = task.out[band][window]
            if quick is not None:
                out[...] = self._points(mosaic, quick)
            if exact is None or corners is None:
                continue
            made, plain = windows(
                mosaic,
                task.method,
                exact,
                corners,
                nearest_rule=task.nearest_rule,
                scale=task.scale,
                turn=task.turn,
            )
            if plain.any():
                made = np.where(plain, self._points(mosaic, exact), made)
            out[by_window] = made[by_window]

    def _points(self, mosaic: Mosaic, where: Floats) -> Pixels:
        if self._task.method == "nearest":
            return nearest(mosaic, where)
        kernel = bilinear if self._task.method == "bilinear" else cubic
        return kernel(mosaic, where, nearest_rule=self._task.nearest_rule)
