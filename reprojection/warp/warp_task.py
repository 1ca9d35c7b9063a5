"""One warp as its kernels receive it: tiles in source space, the plan of positions, the output."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modis.sphere import METRES_PER_DEGREE, SPHERE_RADIUS
from reprojection.grid.bicubic import BLOCK
from reprojection.grid.blocks import BlockPlan
from reprojection.grid.coordinates import RowPlan, SourceSpace
from reprojection.grid.pixel_coordinates import Chunk, block_numbers

Pixels = NDArray[np.integer | np.floating]

WIDENING = 1.0 / 0.95
"""Source pixels per target pixel beyond which bilinear and cubic widen, as in GDAL."""

_NEARLY = 0.97 * WIDENING
"""Scale of a block's outline up to which none of its pixels can exceed WIDENING."""


@dataclass(frozen=True, kw_only=True)
class TilePixels:
    """One band of one tile with its first row and column in source space."""

    row: int
    col: int
    pixels: Pixels


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Source columns once around the Earth at a row: columns * cos(angle + row * step)."""

    columns: float
    angle: float = 0.0
    step: float = 0.0

    @classmethod
    def of(cls, space: SourceSpace) -> "Turn | None":
        """Compute the turn of a source space; None if its columns do not run around the Earth."""
        if space.system.is_modis_sinusoidal:
            around = 2 * math.pi * SPHERE_RADIUS / abs(space.pixel_width)
            angle, step = space.y0 / SPHERE_RADIUS, space.pixel_height / SPHERE_RADIUS
            return cls(columns=around, angle=angle, step=step)
        if space.system.is_plain_lonlat:
            return cls(columns=360.0 / abs(space.pixel_width))
        return None


@dataclass(frozen=True, kw_only=True)
class WarpTask:
    """The inputs of a warp kernel. `tiles` holds each band's tiles, `out` (bands, rows, columns).

    `edge_plan` is the row plan of pixel edges if `plan` is one of centres. `scale` fixes the
    widening of bilinear and cubic; None computes it at each position.
    """

    tiles: Sequence[Sequence[TilePixels]]
    out: Pixels
    method: str
    plan: RowPlan | BlockPlan
    edge_plan: RowPlan | None
    space: SourceSpace
    fill: float | int
    nearest_rule: bool
    scale: tuple[float, float] | None

    @property
    def turn(self) -> Turn | None:
        """The number of source columns around the Earth."""
        return Turn.of(self.space)

    def by_window(self, chunk: Chunk) -> NDArray[np.uint8]:
        """Tell which blocks of a chunk (down, across) the window kernels make.

        They make all blocks for area methods and none for nearest. For bilinear and cubic they make
        the blocks in which a pixel may span more than a source pixel, so that the choice depends on
        the block alone.
        """
        rows, cols = block_numbers(self.plan, chunk)
        shape = len(rows), len(cols)
        if self.method == "nearest":
            return np.zeros(shape, np.uint8)
        if self.method not in ("bilinear", "cubic"):
            return np.ones(shape, np.uint8)
        if self.scale is not None:
            return np.full(shape, max(self.scale) > WIDENING, np.uint8)
        if isinstance(self.plan, RowPlan):
            wide = [self._row_scale(self.plan, row) > WIDENING for row in rows]
            return np.repeat(np.array(wide, np.uint8)[:, None], len(cols), axis=1)
        top, left = rows[0] - self.plan.row, cols[0] - self.plan.col
        nodes = self.plan.nodes[top + 1 : top + 2 + shape[0], left + 1 : left + 2 + shape[1]]
        a, b, c, d = nodes[:-1, :-1], nodes[:-1, 1:], nodes[1:, 1:], nodes[1:, :-1]
        along, down = ((b - a) + (c - d)) / (2 * BLOCK), ((d - a) + (c - b)) / (2 * BLOCK)
        height = np.hypot(along[..., 1], down[..., 1])
        with np.errstate(invalid="ignore", divide="ignore"):
            area = np.abs(along[..., 0] * down[..., 1] - down[..., 0] * along[..., 1])
            narrow = (height <= _NEARLY) & (area / height <= _NEARLY)
        return np.asarray(~narrow).astype(np.uint8)

    def _row_scale(self, plan: RowPlan, block: int) -> float:
        """Return the most source pixels that a target pixel of a row of blocks spans."""
        a, e = plan.numbering.grid.transform[0], plan.numbering.grid.transform[4]
        wide, high = abs(a / self.space.pixel_width), abs(e / self.space.pixel_height)
        plane = plan.numbering.grid.system.is_modis_sinusoidal
        if plane or not self.space.system.is_modis_sinusoidal:
            return max(wide, high)
        ends = [(number + plan.numbering.py) * e for number in (block * BLOCK, (block + 1) * BLOCK)]
        nearest = 0.0 if min(ends) < 0 < max(ends) else min(map(abs, ends))
        return max(
            wide * METRES_PER_DEGREE * math.cos(math.radians(min(nearest, 90.0))),
            high * METRES_PER_DEGREE,
        )
