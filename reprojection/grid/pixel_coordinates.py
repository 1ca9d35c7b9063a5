"""Compute the source positions of a chunk of target pixels exactly as every kernel does.

Along a row, 16 pixels numbered from a multiple of 16 form one segment: a float64 value at its
centre and a float32 quadratic around it. A position therefore depends on the pixel alone, and the
compiled kernels compute the same bits.
"""

from dataclasses import dataclass

import numpy as np

from modis.axes import Shape
from reprojection.grid.bicubic import BLOCK, CENTRE_WEIGHTS, SEGMENT, SEGMENT_WEIGHTS
from reprojection.grid.blocks import BlockPlan, ProjectionKind
from reprojection.grid.coordinates import RowPlan
from reprojection.grid.crs import Floats

WIDE_STEP = 3.0
"""Source pixels per target pixel beyond which a row's positions are computed in float64."""

BIAS = 32.0
"""Added to a segment's local coordinate, so that truncation equals floor."""

_U = (np.arange(SEGMENT, dtype=np.float32) - np.float32(7.5)).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows [top, bottom) and columns [left, right) of a target grid."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> Shape:
        """Rows and columns."""
        return Shape(self.bottom - self.top, self.right - self.left)


def block_window(plan: BlockPlan, chunk: Chunk, i: int, j: int) -> tuple[slice, slice]:
    """Return where a block lies in a chunk's arrays, before clipping: rows and columns."""
    numbering = plan.numbering
    top = (plan.row + i) * BLOCK - numbering.row - chunk.top
    left = (plan.col + j) * BLOCK - numbering.col - chunk.left
    return slice(top, top + BLOCK), slice(left, left + BLOCK)


def blocks_of(plan: BlockPlan, chunk: Chunk) -> list[tuple[int, int]]:
    """List the blocks that share pixels with a chunk."""
    rows, cols = block_numbers(plan, chunk)
    return [(i - plan.row, j - plan.col) for i in rows for j in cols]


def block_numbers(plan: RowPlan | BlockPlan, chunk: Chunk) -> tuple[range, range]:
    """Return the numbers, from CRS (0, 0), of the block rows and columns that a chunk touches."""
    row, col = plan.numbering.row, plan.numbering.col
    return (
        range((row + chunk.top) // BLOCK, (row + chunk.bottom - 1) // BLOCK + 1),
        range((col + chunk.left) // BLOCK, (col + chunk.right - 1) // BLOCK + 1),
    )


def centres(plan: RowPlan | BlockPlan, chunk: Chunk, *, quick: bool) -> Floats:
    """Compute the positions (rows, columns, 2: column, row) of a chunk's pixel centres.

    Positions off the domain are NaN. `quick` uses segments where they are accurate enough, as
    nearest, bilinear and cubic do.
    """
    if isinstance(plan, RowPlan):
        return _row_places(plan, chunk, quick=quick)
    out = np.empty((*chunk.shape, 2))
    for i, j in blocks_of(plan, chunk):
        kind = plan.kinds[i, j]
        whole = (
            _segments(plan, i, j) if quick and kind == ProjectionKind.CUBIC else plan.centres(i, j)
        )
        _paste(out, whole, block_window(plan, chunk, i, j))
    return out


def corners(plan: RowPlan | BlockPlan, chunk: Chunk) -> Floats:
    """Compute the positions (rows + 1, columns + 1, 2) of the corners of a chunk's pixels.

    A row plan must be one of edges (`plan_rows(..., shift=0)`).
    """
    rows, cols = chunk.shape
    if isinstance(plan, RowPlan):
        wider = Chunk(
            top=chunk.top, bottom=chunk.bottom + 1, left=chunk.left, right=chunk.right + 1
        )
        return _row_places(plan, wider, quick=False, shift=0.0)
    out = np.empty((rows + 1, cols + 1, 2))
    for i, j in blocks_of(plan, chunk):
        vertical, horizontal = block_window(plan, chunk, i, j)
        window = (
            slice(vertical.start, vertical.stop + 1),
            slice(horizontal.start, horizontal.stop + 1),
        )
        _paste(out, plan.edges(i, j), window)
    return out


def _paste(out: Floats, block: Floats, window: tuple[slice, slice]) -> None:
    """Copy the part of a block that lies inside the array."""
    to, taken = [], []
    for axis, span in enumerate(window):
        low, high = max(span.start, 0), min(span.stop, out.shape[axis])
        to.append(slice(low, high))
        taken.append(slice(low - span.start, high - span.start))
    out[to[0], to[1]] = block[taken[0], taken[1]]


def _segments(plan: BlockPlan, i: int, j: int) -> Floats:
    """Compute a block's positions by segments (128, 128, 2)."""
    nodes = plan.nodes[i : i + 4, j : j + 4]
    down = CENTRE_WEIGHTS[:, 0, None, None] * nodes[0]
    for k in (1, 2, 3):
        down = down + CENTRE_WEIGHTS[:, k, None, None] * nodes[k]
    parts = []
    for table in SEGMENT_WEIGHTS:
        total = table[0][None, :, None] * down[:, 0, None, :]
        for k in (1, 2, 3):
            total = total + table[k][None, :, None] * down[:, k, None, :]
        parts.append(total)
    places = quadratic(parts[0], parts[1], parts[2])
    return np.ascontiguousarray(places.transpose(0, 1, 3, 2).reshape(BLOCK, BLOCK, 2))


def quadratic(value: Floats, slope: Floats, bend: Floats) -> Floats:
    """Compute a segment's 16 positions from its centre's value, slope and half bend.

    The 16 positions form a new last axis.
    """
    base = np.floor(value) - BIAS
    local = (value - base).astype(np.float32)[..., None]
    first, second = slope.astype(np.float32)[..., None], bend.astype(np.float32)[..., None]
    places = local + _U * (first + _U * second)
    return base[..., None] + places.astype(np.float64)


def _row_places(plan: RowPlan, chunk: Chunk, *, quick: bool, shift: float = 0.5) -> Floats:
    rows = slice(chunk.top, chunk.bottom)
    out = np.empty((*chunk.shape, 2))
    out[:, :, 1] = plan.rows[rows, None]
    for span in plan.spans:
        start, stop = max(span.start, chunk.left), min(span.stop, chunk.right)
        if start >= stop:
            continue
        number = np.arange(start, stop) + plan.numbering.col
        at, step = span.at[rows, None], span.step[rows, None]
        places = at + step * (number + shift)
        if quick:
            middle = (number // SEGMENT) * SEGMENT + SEGMENT // 2
            value = at + step * middle
            base = np.floor(value) - BIAS
            local = (value - base).astype(np.float32)
            near = base + (local + _U[number % SEGMENT] * step.astype(np.float32)).astype(float)
            places = np.where(np.abs(step) <= WIDE_STEP, near, places)
        out[:, start - chunk.left : stop - chunk.left, 0] = places
    columns = np.arange(chunk.left, chunk.right)
    off = (columns < plan.first[rows, None]) | (columns >= plan.last[rows, None])
    out[off | np.isnan(out[:, :, 1])] = np.nan
    return out
