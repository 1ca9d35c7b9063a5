"""The window methods in plain numpy: the values of `csrc/windows.c`, sums in the same order.

A target pixel is computed from a window of source pixels: GDAL's box between two corners, the exact
shares of pixels under the quadrilateral of its four corners, or a kernel as wide as the pixel.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from reprojection.grid.crs import Floats
from reprojection.warp.warp_task import WIDENING, Turn
from tests.oracle.source_array import Mosaic, Pixels, finish, is_valid

_SHARE = 2.0**30

Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


def windows(
    mosaic: Mosaic,
    method: str,
    centres: Floats,
    corners: Floats,
    *,
    nearest_rule: bool,
    scale: tuple[float, float] | None,
    turn: Turn | None,
) -> tuple[Pixels, Bools]:
    """Compute target pixels from their centres (h, w, 2) and corners (h + 1, w + 1, 2).

    Returns the pixels, and a mask of those that a widened kernel did not make (bilinear and cubic
    where the target is no coarser than the source); the caller makes those.
    """
    at = centres.reshape(-1, 2)
    quads = np.stack(
        [corners[:-1, :-1], corners[:-1, 1:], corners[1:, 1:], corners[1:, :-1]], axis=2
    ).reshape(-1, 4, 2)
    with np.errstate(invalid="ignore"):
        good = np.abs(at).max(axis=1) <= 1e9
    quads = _prepared(at, quads, turn)
    out = np.full(len(at), mosaic.fill, dtype=mosaic.pixels.dtype)
    plain: Bools = np.zeros(len(at), dtype=bool)
    if method == "gdal-average":
        out[good] = _gdal_average(mosaic, quads[good])
    elif method in ("bilinear", "cubic"):
        scales = _scales(quads, scale)
        plain = good & ~_any(scales > 1.0)
        wide = good & ~plain
        out[wide] = _widened(mosaic, method, at[wide], scales[wide], nearest_rule=nearest_rule)
    else:
        out[good] = _by_area(mosaic, method, quads[good])
    shape = centres.shape[:2]
    return out.reshape(shape), np.reshape(plain, shape)


def _prepared(at: Floats, quads: Floats, turn: Turn | None) -> Floats:
    """Replace invalid corners by the centre, and undo a jump across the antimeridian."""
    lost: Bools = np.asarray(np.isnan(quads).any(axis=2), dtype=np.bool_)
    quads = np.where(lost[:, :, None], at[:, None, :], quads)
    if turn is None:
        return quads
    around = turn.columns * np.cos(turn.angle + quads[:, :, 1] * turn.step)
    with np.errstate(invalid="ignore"):
        away = quads[:, :, 0] - at[:, None, 0]
        beyond = (around > 0) & (np.abs(away) > 0.5 * around)
    quads[:, :, 0] += np.where(beyond, np.where(away > 0, -around, around), 0.0)
    return quads


def _scales(quads: Floats, scale: tuple[float, float] | None) -> Floats:
    """Compute a pixel's width and height in source pixels; 1 where the kernel is not widened."""
    if scale is not None:
        found = np.broadcast_to(np.array(scale, dtype=np.float64), (len(quads), 2))
    else:
        a, b, c, d = (quads[:, k] for k in range(4))
        along, down = ((b - a) + (c - d)) * 0.5, ((d - a) + (c - b)) * 0.5
        height = np.sqrt(along[:, 1] * along[:, 1] + down[:, 1] * down[:, 1])
        with np.errstate(invalid="ignore", divide="ignore"):
            width = np.abs(along[:, 0] * down[:, 1] - down[:, 0] * along[:, 1]) / height
        found = np.stack([np.where(height > 0, width, 1.0), height], axis=1)
    with np.errstate(invalid="ignore"):
        return np.where(found > WIDENING, found, 1.0)


def _groups(height: Integers, width: Integers) -> Iterator[tuple[int, int, NDArray[np.intp]]]:
    """Group pixels by the size of their window; yield its rows, its columns, and the pixels."""
    sizes, which = np.unique(np.stack([height, width], axis=1), axis=0, return_inverse=True)
    for n, (rows, cols) in enumerate(sizes):
        yield int(rows), int(cols), np.flatnonzero(which.ravel() == n)


def _gdal_average(mosaic: Mosaic, quads: Floats) -> Pixels:
    low, high = np.minimum(quads[:, 0], quads[:, 2]), np.maximum(quads[:, 0], quads[:, 2])
    first = np.floor(low + 1e-10).astype(np.int64)
    last = np.maximum(np.ceil(high - 1e-10).astype(np.int64), first + 1)
    single = last - first == 1
    starts = np.where(single, 1.0, 1.0 - (low - first))
    ends = 1.0 - (last - high)
    out = np.full(len(quads), mosaic.fill, dtype=mosaic.pixels.dtype)
    for rows, cols, which in _groups(last[:, 1] - first[:, 1], last[:, 0] - first[:, 0]):
        totals, weights = np.zeros((4, len(which))), np.zeros((4, len(which)))
        for c in range(cols):
            wide = starts[which, 0] if c == 0 else ends[which, 0] if c + 1 == cols else 1.0
            column, column_weight = np.zeros(len(which)), np.zeros(len(which))
            for r in [*range(1, rows - 1), *sorted({0, rows - 1})]:
                down = starts[which, 1] if r == 0 else ends[which, 1] if r + 1 == rows else 1.0
                pixels, valid = _at(mosaic, first[which, 1] + r, first[which, 0] + c)
                column += down * pixels
                column_weight += np.where(valid, down, 0.0)
            totals[c % 4] += wide * column
            weights[c % 4] += wide * column_weight
        total, weight = ((t[0] + t[1]) + (t[2] + t[3]) for t in (totals, weights))
        out[which] = _ratio(mosaic, total, weight, weight > 0)
    return out


def _by_area(mosaic: Mosaic, method: str, quads: Floats) -> Pixels:
    first = np.floor(quads.min(axis=1)).astype(np.int64)
    last = np.ceil(quads.max(axis=1)).astype(np.int64)
    out = np.full(len(quads), mosaic.fill, dtype=mosaic.pixels.dtype)
    for rows, cols, which in _groups(last[:, 1] - first[:, 1], last[:, 0] - first[:, 0]):
        values = np.zeros((len(which), rows * cols))
        shares = np.zeros((len(which), rows * cols))
        for r in range(rows):
            edges = _row_shares(
                quads[which], (first[which, 1] + r).astype(float), first[which, 0], cols
            )
            for c in range(cols):
                pixels, valid = _at(mosaic, first[which, 1] + r, first[which, 0] + c)
                share = np.abs(edges[:, c] - edges[:, c + 1])
                shares[:, r * cols + c] = np.where(valid & (share >= 1e-9), share, 0.0)
                values[:, r * cols + c] = np.where(valid, pixels, 0.0)
        out[which] = _chosen(mosaic, method, values, shares)
    return out


def _row_shares(quads: Floats, row: Floats, col: Integers, width: int) -> Floats:
    """Compute the signed area right of each column edge in rows [row, row + 1): (n, width + 1)."""
    right_of = np.zeros((len(quads), width + 1))
    for side in range(4):
        ax, ay = quads[:, side, 0], quads[:, side, 1]
        bx, by = quads[:, (side + 1) % 4, 0], quads[:, (side + 1) % 4, 1]
        ya, yb = np.clip(ay, row, row + 1), np.clip(by, row, row + 1)
        dy = yb - ya
        with np.errstate(invalid="ignore", divide="ignore"):
            lean = np.where(dy != 0, (bx - ax) / (by - ay), 0.0)
        xa, xb = ax + (ya - ay) * lean, ax + (yb - ay) * lean
        low, high = np.minimum(xa, xb), np.maximum(xa, xb)
        span = high - low
        for c in range(width + 1):
            edge = col + float(c)
            far, near = np.maximum(high - edge, 0.0), np.maximum(low - edge, 0.0)
            with np.errstate(invalid="ignore", divide="ignore"):
                part = np.where(span > 1e-12, (far - near) / span, np.where(high > edge, 1.0, 0.0))
            right_of[:, c] += np.where(dy != 0, dy * (part * (far + near) * 0.5), 0.0)
    return right_of


def _chosen(mosaic: Mosaic, method: str, values: Floats, shares: Floats) -> Pixels:
    found = shares.max(axis=1) > 0
    if method == "average":
        total, weight = np.zeros(len(values)), np.zeros(len(values))
        for k in range(values.shape[1]):
            total += shares[:, k] * values[:, k]
            weight += shares[:, k]
        return _ratio(mosaic, total, weight, found)
    if method in ("min", "max"):
        extreme = np.inf if method == "min" else -np.inf
        shown = np.where(shares > 0, values, extreme)
        picked = shown.min(axis=1) if method == "min" else shown.max(axis=1)
    else:
        picked = _weighed_choice(values, shares, median=method == "median")
    pixels = np.where(found, picked, 0.0).astype(mosaic.pixels.dtype)
    return np.where(found, pixels, mosaic.fill)


def _weighed_choice(values: Floats, shares: Floats, *, median: bool) -> Floats:
    """Return the weighted lower median, or the value of the largest share (ties: the smallest)."""
    weights = np.rint(shares * _SHARE).astype(np.int64)
    order = np.argsort(np.where(shares > 0, values, np.inf), axis=1, kind="stable")
    values = np.take_along_axis(np.where(shares > 0, values, np.inf), order, axis=1)
    weights = np.take_along_axis(weights, order, axis=1)
    rows = np.arange(len(values))
    if median:
        running = np.cumsum(weights, axis=1)
        reached = 2 * running >= running[:, -1:]
        return np.asarray(values[rows, np.argmax(reached, axis=1)])
    best, run = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    chosen = values[:, 0].copy()
    for k in range(values.shape[1]):
        same = values[:, k] == values[:, k - 1] if k else np.zeros(len(values), dtype=bool)
        run = np.where(same, run + weights[:, k], weights[:, k])
        better = run > best
        best, chosen = np.where(better, run, best), np.where(better, values[:, k], chosen)
    return chosen


def _widened(
    mosaic: Mosaic, method: str, at: Floats, scales: Floats, *, nearest_rule: bool
) -> Pixels:
    _, near = _at(mosaic, np.floor(at[:, 1]).astype(np.int64), np.floor(at[:, 0]).astype(np.int64))
    base = np.floor(at - 0.5)
    part = at - 0.5 - base
    reach = np.ceil((2.0 if method == "cubic" else 1.0) * scales).astype(np.int64)
    corner = base.astype(np.int64)
    out = np.full(len(at), mosaic.fill, dtype=mosaic.pixels.dtype)
    for reach_y, reach_x, which in _groups(reach[:, 1], reach[:, 0]):
        total, weight = np.zeros(len(which)), np.zeros(len(which))
        for r in range(1 - reach_y, reach_y + 1):
            down = _kernel(method, (r - part[which, 1]) / scales[which, 1])
            row_total, row_weight = np.zeros(len(which)), np.zeros(len(which))
            if not _meets(corner[which, 1] + r, mosaic.bounds[:2]):
                continue
            for c in range(1 - reach_x, reach_x + 1):
                if not _meets(corner[which, 0] + c, mosaic.bounds[2:]):
                    continue
                across = _kernel(method, (c - part[which, 0]) / scales[which, 0])
                pixels, valid = _at(mosaic, corner[which, 1] + r, corner[which, 0] + c)
                row_total += np.where(valid, across * pixels, 0.0)
                row_weight += np.where(valid, across, 0.0)
            total += down * row_total
            weight += down * row_weight
        good = weight >= 1e-6
        if nearest_rule:
            good &= near[which]
        out[which] = _ratio(mosaic, total, weight, good)
    return out


def _any(flags: Bools) -> Bools:
    """Tell whether any flag of a row is set."""
    return np.asarray(flags.any(axis=1), dtype=np.bool_)


def _meets(places: Integers, bounds: tuple[int, int]) -> bool:
    """Tell whether any row or column lies within bounds; those beyond do not change the sums."""
    return bool(((places >= bounds[0]) & (places < bounds[1])).any())


def _kernel(method: str, t: Floats) -> Floats:
    """Evaluate bilinear's tent, or Keys' cubic convolution (1981, a = -0.5)."""
    t = np.abs(t)
    if method == "bilinear":
        return np.where(t < 1, 1 - t, 0.0)
    inner = (1.5 * t - 2.5) * (t * t) + 1
    outer = ((2.5 - 0.5 * t) * t - 4) * t + 2
    return np.where(t <= 1, inner, np.where(t < 2, outer, 0.0))


def _at(mosaic: Mosaic, rows: Integers, cols: Integers) -> tuple[Floats, Bools]:
    pixels = mosaic.at(rows.astype(np.float64), cols.astype(np.float64))
    valid = is_valid(pixels, mosaic.fill)
    return np.where(valid, pixels, 0).astype(np.float64), valid


def _ratio(mosaic: Mosaic, total: Floats, weight: Floats, good: Bools) -> Pixels:
    with np.errstate(invalid="ignore", divide="ignore"):
        return finish(total / weight, good, mosaic)
