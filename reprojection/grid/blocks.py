"""Evaluate coordinates fast for any target CRS: control points with cubics between them.

Exact coordinates are computed at control points 128 target pixels apart, numbered from CRS (0, 0).
A block of 128 x 128 pixels is the bicubic (Lagrange) interpolation of the 4 x 4 points around it,
if the points are smooth enough for an error of at most a few thousandths of a source pixel.
Otherwise its pixels are listed one by one: from points 32 pixels apart where those are smooth, else
exactly. This happens at the antimeridian, the cuts of interrupted maps, poles, seams between areas
of use, and rims.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reprojection.grid.bicubic import (
    BLOCK,
    CENTRE_WEIGHTS,
    EDGE_WEIGHTS,
    FINE,
    FINE_CENTRE_WEIGHTS,
    FINE_EDGE_WEIGHTS,
    PARTS,
    SPREAD_CENTRE_WEIGHTS,
    SPREAD_EDGE_WEIGHTS,
    between,
    bicubic,
)
from reprojection.grid.coordinates import PLANS, Coordinates, Numbering, Points
from reprojection.grid.crs import Crs, Floats

_FOURTH_DIFFERENCE = 0.04
"""Limit in source pixels; the cubic's error is 3/128 of it per axis, 0.001 pixels."""

_COARSE_DIFFERENCE = 0.15
"""The same limit for coarse targets, whose control points lie far apart: error 0.0035 pixels."""

_SEAM_DIFFERENCE = 0.02
"""The same limit where a datum's operations change at a border: a jump counts three times."""

_CENTRE_ERROR = 0.006
"""Largest error of a block's centre, in source pixels."""

_THIRD_DIFFERENCE = 12.0
"""Limit in source pixels; a segment's quadratic omits 1/33,000 of it."""

_SPAN = 400.0
"""Largest width of a block in source pixels for float32 segments (3.1 per target pixel)."""


class ProjectionKind(IntEnum):
    """How the coordinates of a block's pixels are computed; the kernels use the same numbers.

    CUBIC: by the bicubic, and float32 segments are accurate enough. WIDE: by the bicubic, but its
    pixels are too far apart in the source for segments. FINE: by the bicubics of control points 32
    apart. LISTED: one by one.
    """

    CUBIC = 1
    LISTED = 2
    WIDE = 3
    FINE = 4


@dataclass(frozen=True, kw_only=True)
class FinePoints:
    """Control points 32 pixels apart of n blocks.

    `nodes` (n, 7, 7, 2) run from one point before a block to one point after it. `held` (n, 4, 4)
    says which parts of a block are smooth enough for a bicubic. `nowhere` (n) says which blocks
    have no point on the domain.
    """

    nodes: Floats
    held: NDArray[np.bool_]
    nowhere: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class BlockPlan:
    """Coordinates of a target grid by blocks.

    `row` and `col` number the first block (edge number / 128). `kinds` (blocks down, blocks across)
    uint8 holds the Kind of each block. `nodes` (down + 3, across + 3, 2) holds source column and
    row at the control points, from one point before the first block. `fine` holds the finer points
    of FINE and LISTED blocks, and `fine_index` (down, across) int64 their index there, or -1.
    """

    coordinates: Coordinates
    row: int
    col: int
    kinds: NDArray[np.uint8]
    nodes: Floats
    polar: NDArray[np.bool_]
    fine: "FinePoints"
    fine_index: NDArray[np.int64]

    @property
    def numbering(self) -> Numbering:
        """The numbering of the grid's pixels."""
        return self.coordinates.numbering

    def listed(self, blocks: Sequence[tuple[int, int]], *, edges: bool) -> Floats:
        """List coordinates of the pixels of blocks (index pairs), one by one: (n, side, side, 2).

        The side is 128 for pixel centres, 129 for pixel edges. Coordinates off the domain are NaN.
        """
        return _listed(self, blocks, edges=edges)

    def centres(self, i: int, j: int) -> Floats:
        """Compute coordinates of the centres of a block's pixels (128, 128, 2), in float64."""
        return self._points(i, j, CENTRE_WEIGHTS, edges=False)

    def edges(self, i: int, j: int) -> Floats:
        """Compute coordinates of the corners of a block's pixels (129, 129, 2), in float64."""
        return self._points(i, j, EDGE_WEIGHTS, edges=True)

    def _points(self, i: int, j: int, table: Floats, *, edges: bool) -> Floats:
        kind = self.kinds[i, j]
        if kind == ProjectionKind.LISTED:
            only: Floats = self.listed([(i, j)], edges=edges)[0]
            return only
        if kind == ProjectionKind.FINE:
            spread = SPREAD_EDGE_WEIGHTS if edges else SPREAD_CENTRE_WEIGHTS
            return bicubic(self.fine.nodes[self.fine_index[i, j]], spread)
        return bicubic(self.nodes[i : i + 4, j : j + 4], table)


@lru_cache(maxsize=PLANS)
def plan_blocks(coordinates: Coordinates) -> BlockPlan:
    """Make the block plan of a grid of any CRS, once for all layers of a cell."""
    numbering, grid = coordinates.numbering, coordinates.grid
    row, col = numbering.row // BLOCK, numbering.col // BLOCK
    down = (numbering.row + grid.height - 1) // BLOCK - row + 1
    across = (numbering.col + grid.width - 1) // BLOCK - col + 1
    nodes, middles = _exact_at(
        coordinates,
        (np.arange(row - 2.0, row + down + 4.0), np.arange(col - 2.0, col + across + 4.0)),
        (np.arange(row + 0.5, row + down), np.arange(col + 0.5, col + across)),
    )
    with np.errstate(invalid="ignore"):
        smooth, narrow = _is_smooth(nodes, seams=grid.system.has_seams)
    polar = _near_poles(coordinates, row, col, (down, across))
    smooth &= ~polar
    smooth &= _centres_hold(nodes, middles)
    kinds = np.where(
        smooth, np.where(narrow, ProjectionKind.CUBIC, ProjectionKind.WIDE), ProjectionKind.LISTED
    )
    listed = np.argwhere(~smooth)
    fine = _fine_points(coordinates, np.add(listed, (row, col)), polar[~smooth])
    fine_index = np.full(kinds.shape, -1, np.int64)
    fine_index[~smooth] = np.arange(len(listed))
    kinds[~smooth] = np.where(
        fine.held.all(axis=(1, 2)), ProjectionKind.FINE, ProjectionKind.LISTED
    )
    return BlockPlan(
        coordinates=coordinates,
        row=row,
        col=col,
        kinds=kinds.astype(np.uint8),
        nodes=np.ascontiguousarray(nodes[1:-2, 1:-2]),
        polar=polar,
        fine=fine,
        fine_index=fine_index,
    )


def _stack(points: Points) -> Floats:
    return np.stack(points, axis=-1)


def _exact_at(coordinates: Coordinates, *places: tuple[Floats, Floats]) -> list[Floats]:
    """Compute exact coordinates (rows, columns, 2) of grids of block positions, in one call.

    The rows and columns (..., n) may have leading axes, which are kept.
    """
    rows, cols = [], []
    for down, across in places:
        shape = np.broadcast_shapes((*down.shape, 1), (*across.shape[:-1], 1, across.shape[-1]))
        rows.append(np.broadcast_to(down[..., :, None] * float(BLOCK), shape))
        cols.append(np.broadcast_to(across[..., None, :] * float(BLOCK), shape))
    found = coordinates.exact(
        np.concatenate([part.ravel() for part in rows]),
        np.concatenate([part.ravel() for part in cols]),
    )
    points, made, start = _stack(found), [], 0
    for part in rows:
        made.append(points[start : start + part.size].reshape(*part.shape, 2))
        start += part.size
    return made


def _is_smooth(nodes: Floats, *, seams: bool) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Find the blocks that a bicubic describes, and those of them that segments describe too.

    Nodes run from two before the first block to three after the last.
    """
    shape = nodes.shape[0] - 6, nodes.shape[1] - 6
    smooth, narrow = np.ones(shape, dtype=bool), np.ones(shape, dtype=bool)
    for turned in (nodes, np.swapaxes(nodes, 0, 1)):
        step, _, swing, bend = (np.abs(one) for one in _differences(turned))
        fourth = _both(bend <= (_SEAM_DIFFERENCE if seams else _FOURTH_DIFFERENCE))
        coarse = fourth if seams else _both(bend <= _COARSE_DIFFERENCE)
        third = _both(swing <= _THIRD_DIFFERENCE)
        span = _both(step <= _SPAN)
        flat = _four_wide((coarse[:-2] & coarse[1:-1])[:, 1:-2])
        short = _four_wide((fourth[:-2] & fourth[1:-1] & third[1:-2] & span[2:-3])[:, 1:-2])
        smooth &= flat if turned is nodes else flat.T
        narrow &= short if turned is nodes else short.T
    return smooth, narrow


def _differences(values: Floats) -> list[Floats]:
    """Return the first to fourth differences along the first axis."""
    found = []
    for _ in range(4):
        values = values[1:] - values[:-1]
        found.append(values)
    return found


def _four_wide(lines: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell where a property of lines (..., n) holds for four in a row: (..., n - 3)."""
    pairs = lines[..., :-1] & lines[..., 1:]
    return pairs[..., :-2] & pairs[..., 2:]


@lru_cache(maxsize=64)
def _poles(crs: str) -> Points:
    """Find the positions of both poles in a CRS, approached from all sides."""
    lon, lat = np.meshgrid(np.arange(-180.0, 180.0, 15.0), [-90.0, 90.0])
    x, y = Crs.of(crs).from_lonlat(lon.ravel(), lat.ravel())
    finite = np.isfinite(x) & np.isfinite(y)
    return x[finite], y[finite]


def _near_poles(
    coordinates: Coordinates, row: int, col: int, shape: tuple[int, int]
) -> NDArray[np.bool_]:
    """Find blocks with a pole in or beside them: control points can miss its singularity."""
    x, y = _poles(coordinates.grid.crs)
    a, b, c, d, e, f = coordinates.grid.transform
    numbering = coordinates.numbering
    near = np.zeros(shape, dtype=bool)
    if coordinates.grid.is_upright:
        cols, rows = x / a - numbering.px, y / e - numbering.py
    else:
        turn = a * e - b * d
        cols = (e * (x - c) - b * (y - f)) / turn
        rows = (a * (y - f) - d * (x - c)) / turn
    i, j = np.floor(rows / BLOCK) - row, np.floor(cols / BLOCK) - col
    inside = (i >= -1) & (i <= shape[0]) & (j >= -1) & (j <= shape[1])
    for m, n in zip(i[inside].astype(int), j[inside].astype(int), strict=True):
        near[max(m - 1, 0) : m + 2, max(n - 1, 0) : n + 2] = True
    return near


def _centres_hold(nodes: Floats, middles: Floats) -> NDArray[np.bool_]:
    """Find the blocks whose bicubic puts their centre at its exact position (`middles`)."""
    with np.errstate(invalid="ignore"):
        return _both(np.abs(between(nodes[1:-2, 1:-2]) - middles) <= _CENTRE_ERROR)


def _fine_points(
    coordinates: Coordinates, blocks: NDArray[np.int64], polar: NDArray[np.bool_]
) -> FinePoints:
    """Compute the finer control points of blocks (n, 2: row and column number from CRS (0, 0))."""
    if not len(blocks):
        side, parts = PARTS + 3, (0, PARTS, PARTS)
        none = np.zeros(0, dtype=bool)
        return FinePoints(
            nodes=np.empty((0, side, side, 2)), held=np.zeros(parts, dtype=bool), nowhere=none
        )
    rows, cols = np.moveaxis(blocks.astype(np.float64)[:, :, None], 1, 0)
    halves = (np.arange(PARTS) + 0.5) / PARTS
    lattice, at = _shared_points(blocks)
    points, middles = _exact_at(
        coordinates,
        (lattice[:, :1] / PARTS, lattice[:, 1:] / PARTS),
        (rows + halves, cols + halves),
    )
    nodes = points.reshape(-1, 2)[at]
    nowhere = np.isnan(nodes).all(axis=(1, 2, 3)) & np.isnan(middles).all(axis=(1, 2, 3))
    return FinePoints(
        nodes=nodes,
        held=_parts_hold(nodes, middles) & ~polar[:, None, None],
        nowhere=np.asarray(nowhere, dtype=np.bool_),
    )


def _shared_points(blocks: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """List the finer control points of blocks; points that neighbours share occur once.

    Returns rows and columns (points, 2), numbered in steps of 32 pixels, and the indices of each
    block's points among them (n, 7, 7).
    """
    corner = blocks.min(axis=0)
    first = (blocks - corner) * PARTS
    side = np.arange(PARTS + 3)
    down, across = first[:, 0, None, None] + side[:, None], first[:, 1, None, None] + side
    used = np.zeros(first.max(axis=0) + PARTS + 3, dtype=bool)
    used[down, across] = True
    number = np.cumsum(used, dtype=np.int64).reshape(used.shape) - 1
    lattice: Floats = np.argwhere(used) + (corner * PARTS - 1.0)
    return lattice, number[down, across]


def _listed(plan: BlockPlan, blocks: Sequence[tuple[int, int]], *, edges: bool) -> Floats:
    side = BLOCK + 1 if edges else BLOCK
    out = np.full((len(blocks), side, side, 2), np.nan)
    for n, (i, j) in enumerate(blocks):
        at = plan.fine_index[i, j]
        if not (plan.fine.nowhere[at] and _isolated(plan, i, j)):
            corner = np.array([plan.row + i, plan.col + j], dtype=np.float64)
            nodes, held = plan.fine.nodes[at], plan.fine.held[at]
            _fill_parts(out[n], plan.coordinates, corner, nodes, held, edges=edges)
    return out


def _fill_parts(
    out: Floats,
    coordinates: Coordinates,
    corner: Floats,
    nodes: Floats,
    held: NDArray[np.bool_],
    *,
    edges: bool,
) -> None:
    """List a block's pixels: by bicubic in the parts that are smooth, exactly in the others."""
    table = FINE_EDGE_WEIGHTS if edges else FINE_CENTRE_WEIGHTS
    places = np.arange(len(table)) + (0.0 if edges else 0.5)
    for p, q in np.ndindex(PARTS, PARTS):
        part = out[p * FINE : p * FINE + len(table), q * FINE : q * FINE + len(table)]
        if held[p, q]:
            part[...] = bicubic(nodes[p : p + 4, q : q + 4], table)
        else:
            rows = corner[0] * BLOCK + p * FINE + places
            cols = corner[1] * BLOCK + q * FINE + places
            part[...] = _stack(coordinates.exact(rows[:, None], cols[None, :]))


def _isolated(plan: BlockPlan, i: int, j: int) -> bool:
    """Tell whether all control points around a block are off the domain and no pole is near."""
    return bool(np.isnan(plan.nodes[i : i + 4, j : j + 4]).all() and not plan.polar[i, j])


def _parts_hold(nodes: Floats, middles: Floats) -> NDArray[np.bool_]:
    """Tell which of the 4 x 4 parts of each block a bicubic of its nodes (n, 7, 7, 2) describes.

    `middles` (n, 4, 4, 2) are the exact positions of the centres of the parts.
    """
    with np.errstate(invalid="ignore"):
        held = _both(np.abs(between(nodes) - middles) <= _CENTRE_ERROR)
        for axis in (1, 2):
            bend = _differences(nodes.swapaxes(0, axis))[-1]
            first, second, third = _both(np.abs(bend) <= _FOURTH_DIFFERENCE).swapaxes(1, axis)
            lines = np.stack([first, first & second, second & third, third], axis=1)
            held &= _four_wide(lines).swapaxes(1, axis)
    return held


def _both(is_so: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell where something holds for both column and row, which are the last axis."""
    return is_so[..., 0] & is_so[..., 1]
