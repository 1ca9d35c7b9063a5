"""Which part of a raster, and which of its overviews, a grid sees."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reprojection.grid.coordinates import Coordinates, SourceSpace
from reprojection.grid.grids import Grid

_POINTS = 33  # along a side of the grid, at which its place in the raster is computed
_MARGIN = 2  # pixels around, for what lies between the points
_ROUNDING = 1.001


@dataclass(frozen=True, kw_only=True)
class View:
    """A window of an overview, and where it lies.

    `halving` is how many pixels of the raster one of the overview takes along a side, 1 for the
    raster itself; `window` is column, row, width and height there; `grid` that of the window.
    """

    halving: int
    window: tuple[int, int, int, int]
    grid: Grid


def turns_of(source: Grid) -> Iterator[Grid]:
    """Yield a raster's grid, and one of degrees that passes 180 also where it comes round again."""
    yield source
    if not source.system.is_plain_lonlat:
        return
    bounds = source.bounds
    a, b, c, d, e, f = source.transform
    for passed, turn in ((bounds.east > 180.0, -360.0), (bounds.west < -180.0, 360.0)):
        if passed:
            yield replace(source, transform=(a, b, c + turn, d, e, f))


def view_of(source: Grid, grid: Grid, halvings: Sequence[int], most: int) -> View | None:
    """Return what of a raster a grid sees; None where it sees nothing.

    The overview is the next finer one, or the first coarser of which at most `most` pixels are
    seen. Raises GridError for a rotated raster.
    """
    cols, rows = _places(source, grid)
    known = np.isfinite(cols) & np.isfinite(rows)
    if not known.any():
        return None
    step = _step(cols, rows, grid) * _ROUNDING
    finer = max((one for one in halvings if one <= max(step, 1.0)), default=1)
    spread = math.ceil(max(_gap(cols), _gap(rows), 1.0))
    for halving in sorted(one for one in halvings if one >= finer):
        width, height = -(-source.width // halving), -(-source.height // halving)
        left, right = _span(cols[known], spread, halving, width)
        top, bottom = _span(rows[known], spread, halving, height)
        if left >= right or top >= bottom:
            return None
        window = left, top, right - left, bottom - top
        if (right - left) * (bottom - top) <= most:
            break
    a, _, c, _, e, f = source.transform
    seen = Grid(
        crs=source.crs,
        transform=(a * halving, 0.0, c + left * a * halving, 0.0, e * halving,
                   f + top * e * halving),
        width=window[2],
        height=window[3],
    )  # fmt: skip
    return View(halving=halving, window=window, grid=seen)


def _places(source: Grid, grid: Grid) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return columns and rows in a raster of points over a grid, the first and last pixels' too."""
    space = SourceSpace.of(source)
    coordinates = Coordinates(grid=grid, space=space)
    first = coordinates.numbering
    down = first.row + np.linspace(0.5, grid.height - 0.5, _POINTS)[:, np.newaxis]
    along = first.col + np.linspace(0.5, grid.width - 0.5, _POINTS)[np.newaxis, :]
    cols, rows = coordinates.exact(down, along)
    left, top = space.offset(source)
    return cols - left, rows - top


def _step(cols: npt.NDArray[np.float64], rows: npt.NDArray[np.float64], grid: Grid) -> float:
    """Return how many pixels of the raster lie between those of the grid, along its denser side."""
    found = []
    for axis, side in ((0, grid.height), (1, grid.width)):
        apart = np.hypot(np.diff(cols, axis=axis), np.diff(rows, axis=axis))
        apart = apart[np.isfinite(apart)]
        if apart.size and side > 1:
            found.append(float(np.median(apart)) * (_POINTS - 1) / (side - 1))
    return min(found, default=1.0)


def _gap(places: npt.NDArray[np.float64]) -> float:
    """Return how far neighbouring points lie apart, as most of them do."""
    apart = np.abs(np.concatenate([np.diff(places, axis=axis).ravel() for axis in (0, 1)]))
    apart = apart[np.isfinite(apart)]
    return float(np.median(apart)) if apart.size else 0.0


def _span(places: npt.NDArray[np.float64], spread: int, halving: int, side: int) -> tuple[int, int]:
    """Return the first pixel of an overview that is seen, and the one after the last."""
    low = (places.min() - spread) / halving - _MARGIN
    high = (places.max() + spread) / halving + _MARGIN
    return max(0, math.floor(low)), min(side, math.ceil(high))
