"""The warp kernels of the C library: one call per chunk, which releases the GIL.

Mirrors `csrc/job.h` field by field.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reprojection.blocks import (
    CENTRE_WEIGHTS,
    EDGE_WEIGHTS,
    SEGMENT_WEIGHTS,
    BlockPlan,
    Kind,
)
from reprojection.coordinates import RowPlan
from reprojection.crs import Floats
from reprojection.kernels import function
from reprojection.places import Chunk, blocks_of

Pixels = NDArray[np.integer | np.floating]

_TYPES = {
    name: number
    for number, name in enumerate(
        ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
    )
}
_METHODS = {
    name: number
    for number, name in enumerate(
        ("nearest", "bilinear", "cubic", "average", "gdal-average", "mode", "min", "max", "median")
    )
}

_INTEGERS = ctypes.c_int64
_POINTER = ctypes.c_void_p


class _Tile(ctypes.Structure):
    _fields_ = (
        ("data", _POINTER),
        ("stride", _INTEGERS),
        ("row", _INTEGERS),
        ("col", _INTEGERS),
        ("height", _INTEGERS),
        ("width", _INTEGERS),
    )


class _Job(ctypes.Structure):
    _fields_ = (
        *((name, _INTEGERS) for name in ("method", "bands", "tiles", "nearest_rule")),
        *((name, _INTEGERS) for name in ("rowwise", "windowed")),
        ("tile", _POINTER),
        ("out", _POINTER),
        ("out_stride", _INTEGERS),
        ("fill", _POINTER),
        *((name, _INTEGERS) for name in ("top", "bottom", "left", "right")),
        *((name, _INTEGERS) for name in ("number_row", "number_col")),
        *((name, _POINTER) for name in ("rows", "first", "last")),
        ("spans", _INTEGERS),
        *((name, _POINTER) for name in ("span_start", "span_stop", "span_at", "span_step")),
        ("height", _INTEGERS),
        *((name, _POINTER) for name in ("kinds", "nodes")),
        *((name, _INTEGERS) for name in ("block_row", "block_col", "across")),
        *((name, _POINTER) for name in ("centre_weights", "edge_weights", "segment_weights")),
        *((name, _POINTER) for name in ("listed", "listed_edges", "centres", "corners")),
        *((name, ctypes.c_double) for name in ("scale_x", "scale_y", "period_scale")),
        *((name, ctypes.c_double) for name in ("period_row0", "period_step")),
    )


@dataclass(frozen=True, kw_only=True)
class TilePixels:
    """One band of one tile with its first row and column in source space."""

    row: int
    col: int
    pixels: Pixels


class Warper:
    """A warp set up once, run chunk by chunk from any thread.

    `tiles` holds, per band, its tiles; `out` is (bands, rows, columns), contiguous.
    """

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
        self._plan = plan
        self._type = _TYPES[out.dtype.name]
        self._keep: list[object] = [out, tiles]
        self._job = _Job(
            method=_METHODS[method],
            bands=out.shape[0],
            tiles=len(tiles[0]),
            nearest_rule=nearest_rule,
            tile=self._tiles(tiles),
            out=self._pointers([out[band] for band in range(out.shape[0])]),
            out_stride=out.shape[2],
            fill=self._array(np.array([fill]).astype(out.dtype)),
            centre_weights=self._array(CENTRE_WEIGHTS),
            edge_weights=self._array(EDGE_WEIGHTS),
            segment_weights=self._array(SEGMENT_WEIGHTS),
        )
        if isinstance(plan, RowPlan):
            self._set_rows(plan)
        else:
            self._set_blocks(plan)

    def run(self, chunk: Chunk) -> None:
        """Warp one chunk. Raises MemoryError when a kernel could not have its working memory."""
        job = _Job.from_buffer_copy(self._job)
        job.top, job.bottom, job.left, job.right = chunk.top, chunk.bottom, chunk.left, chunk.right
        if isinstance(self._plan, BlockPlan):
            blocks = blocks_of(self._plan, chunk)
            wanted = [n for n, b in enumerate(blocks) if self._plan.kinds[b] == Kind.LISTED]
            places = self._plan.listed([blocks[n] for n in wanted], edges=False)
            listed = np.zeros(len(blocks), dtype=np.uintp)
            if wanted:
                listed[wanted] = places.ctypes.data + np.arange(len(wanted)) * places[0].nbytes
            job.listed = listed.ctypes.data
        kernel = function("swathmill_warp_points", (_POINTER, ctypes.c_int32), ctypes.c_int32)
        assert kernel is not None
        if kernel(ctypes.byref(job), self._type) != 0:
            raise MemoryError("a warp kernel found no working memory; warp fewer pixels at once")

    def _set_rows(self, plan: RowPlan) -> None:
        job = self._job
        job.rowwise = 1
        job.number_row, job.number_col = plan.numbering.row, plan.numbering.col
        job.rows, job.first = self._array(plan.rows), self._array(plan.first)
        job.last, job.height = self._array(plan.last), len(plan.rows)
        job.spans = len(plan.spans)
        job.span_start = self._array(np.array([span.start for span in plan.spans], np.int64))
        job.span_stop = self._array(np.array([span.stop for span in plan.spans], np.int64))
        job.span_at = self._array(np.stack([span.at for span in plan.spans]))
        job.span_step = self._array(np.stack([span.step for span in plan.spans]))

    def _set_blocks(self, plan: BlockPlan) -> None:
        job, numbering = self._job, plan.coordinates.numbering
        job.number_row, job.number_col = numbering.row, numbering.col
        job.kinds, job.nodes = self._array(plan.kinds), self._array(plan.nodes)
        job.block_row, job.block_col, job.across = plan.row, plan.col, plan.kinds.shape[1]

    def _array(self, array: NDArray[np.generic] | Floats) -> int:
        held = np.ascontiguousarray(array)
        self._keep.append(held)
        return held.ctypes.data

    def _pointers(self, arrays: Sequence[Pixels]) -> int:
        return self._array(np.array([array.ctypes.data for array in arrays], dtype=np.uintp))

    def _tiles(self, tiles: Sequence[Sequence[TilePixels]]) -> int:
        flat = [tile for band in tiles for tile in band]
        table = (_Tile * len(flat))()
        for entry, tile in zip(table, flat, strict=True):
            height, width = tile.pixels.shape
            entry.data, entry.stride = (
                tile.pixels.ctypes.data,
                tile.pixels.strides[0] // tile.pixels.itemsize,
            )
            entry.row, entry.col, entry.height, entry.width = tile.row, tile.col, height, width
        self._keep.append(table)
        return ctypes.addressof(table)
