"""Which part of a source a target grid takes: of a granule that is held in part, no more is read.

The part is a rectangle of source pixels. No pixel of the grid takes one beyond it, by any method:
it holds the corners of the target's pixels where the kernels have them, and around them as much as
the widest kernel reaches. Where a corner lies nowhere on the map of the source, all of that counts.
"""

import math

import numpy as np

from reprojection.grid.blocks import plan_blocks
from reprojection.grid.coordinates import Coordinates, SourceSpace, plan_rows
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_coordinates import Chunk, corners
from reprojection.read.granule import Part
from reprojection.resampling import METHODS
from reprojection.warp.warp_task import Turn

_MOST = 1 << 22  # pixels of a target that are looked at; a larger one takes the whole
_REACH = max(traits.reach for traits in METHODS.values())
_AROUND = 2.0  # source pixels: positions are exact to hundredths, and the nearest pixel counts


def source_window(source: Grid, target: Grid) -> Part:
    """Return the part of a source that holds all pixels a target takes; it may be empty.

    Raises GridError for a grid that cannot be used.
    """
    whole = Part(0, 0, source.height, source.width)
    if target.height * target.width > _MOST:
        return whole
    space = SourceSpace.of(source)
    coordinates = Coordinates(grid=target, space=space)
    rowwise = coordinates.is_rowwise
    plan = plan_rows(coordinates, shift=0.0) if rowwise else plan_blocks(coordinates)
    points = corners(plan, Chunk(top=0, bottom=target.height, left=0, right=target.width))
    if not np.isfinite(points).all():
        return whole
    # A kernel that makes a pixel of many widens with the pixel.
    spans = sum(float(np.abs(np.diff(points, axis=axis)).max()) for axis in (0, 1))
    reach = _REACH * max(1.0, spans) + _AROUND
    left, top = space.offset(source)
    rows, columns = points[..., 1] - top, points[..., 0] - left
    turn = Turn.of(space)
    around = 0.0 if turn is None else turn.columns * np.cos(turn.angle + turn.step * points[..., 1])
    found = []
    for turns in (0,) if turn is None else (-1, 0, 1):
        turned = columns + turns * around
        near = (rows > -reach) & (rows < source.height + reach)
        near &= (turned > -reach) & (turned < source.width + reach)
        if near.any():
            found.append((rows[near], turned[near]))
    if not found:
        return Part(0, 0, 0, 0)
    sides = []
    for values, length in zip(zip(*found, strict=True), source.shape, strict=True):
        low = max(0, math.floor(min(float(one.min()) for one in values) - reach))
        high = min(length, math.ceil(max(float(one.max()) for one in values) + reach))
        sides.append((low, max(high - low, 0)))
    (row, height), (column, width) = sides
    return Part(row, column, height, width) if height and width else Part(0, 0, 0, 0)
