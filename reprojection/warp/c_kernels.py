"""Call the warp kernels of the C library, one call per chunk; each call releases the GIL.

The structures mirror `kernels/csrc/job.h` field by field.
"""

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from reprojection.grid.bicubic import (
    CENTRE_WEIGHTS,
    EDGE_WEIGHTS,
    FINE_CENTRE_WEIGHTS,
    FINE_EDGE_WEIGHTS,
    SEGMENT_WEIGHTS,
)
from reprojection.grid.blocks import BlockPlan, ProjectionKind
from reprojection.grid.coordinates import RowPlan
from reprojection.grid.crs import Floats
from reprojection.grid.pixel_coordinates import Chunk, blocks_of, centres, corners
from reprojection.kernels.kernels import function
from reprojection.resampling import METHODS
from reprojection.warp.warp_task import TilePixels, WarpTask

_LISTED = int(ProjectionKind.LISTED)

_TYPES = {
    name: number
    for number, name in enumerate(
        ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
    )
}
_METHODS = {name: number for number, name in enumerate(METHODS)}

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
        *((name, _INTEGERS) for name in ("rowwise",)),
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
        *((name, _POINTER) for name in ("fine_centre_weights", "fine_edge_weights")),
        *((name, _POINTER) for name in ("fine", "fine_index")),
        *((name, _POINTER) for name in ("listed", "listed_edges", "by_window")),
        *((name, _POINTER) for name in ("centres", "corners")),
        *((name, ctypes.c_double) for name in ("scale_x", "scale_y")),
        *((name, ctypes.c_double) for name in ("turn_columns", "turn_angle", "turn_step")),
    )


class Warper:
    """A warp by the C library, set up once and run chunk by chunk from any thread."""

    def __init__(self, task: WarpTask) -> None:
        self._task = task
        self._type = _TYPES[task.out.dtype.name]
        self._keep: list[object] = []
        turn = task.turn
        scale = task.scale or (0.0, 0.0)
        self._job = _Job(
            method=_METHODS[task.method],
            bands=task.out.shape[0],
            tiles=len(task.tiles[0]),
            nearest_rule=task.nearest_rule,
            tile=self._tiles(task.tiles),
            out=self._array(np.array([band.ctypes.data for band in task.out], dtype=np.uintp)),
            out_stride=task.out.shape[2],
            fill=self._array(np.array([task.fill]).astype(task.out.dtype)),
            centre_weights=self._array(CENTRE_WEIGHTS),
            edge_weights=self._array(EDGE_WEIGHTS),
            segment_weights=self._array(SEGMENT_WEIGHTS),
            fine_centre_weights=self._array(FINE_CENTRE_WEIGHTS),
            fine_edge_weights=self._array(FINE_EDGE_WEIGHTS),
            scale_x=scale[0],
            scale_y=scale[1],
            turn_columns=turn.columns if turn else 0.0,
            turn_angle=turn.angle if turn else 0.0,
            turn_step=turn.step if turn else 0.0,
        )
        self._points, self._windows = (
            function(f"swathmill_warp_{kind}", (_POINTER, ctypes.c_int32), ctypes.c_int32)
            for kind in ("points", "windows")
        )
        if isinstance(task.plan, RowPlan):
            self._set_rows(task.plan)
        else:
            self._set_blocks(task.plan)

    def run(self, chunk: Chunk) -> None:
        """Warp one chunk; raise MemoryError if a kernel could not allocate its working memory."""
        job = _Job.from_buffer_copy(self._job)
        job.top, job.bottom, job.left, job.right = chunk.top, chunk.bottom, chunk.left, chunk.right
        by_window = self._task.by_window(chunk)
        job.by_window = by_window.ctypes.data
        held = self._set_places(job, chunk, any_window=bool(by_window.any()))
        if not by_window.all():
            self._call(self._points, job)
        if by_window.any():
            self._call(self._windows, job)
        held.clear()

    def _set_places(self, job: _Job, chunk: Chunk, *, any_window: bool) -> list[Floats]:
        """Point the job at positions that Python computes; return the arrays to keep alive."""
        plan, edge_plan = self._task.plan, self._task.edge_plan
        held: list[Floats] = []
        if isinstance(plan, RowPlan):
            if any_window and edge_plan is not None:
                held = [centres(plan, chunk, quick=False), corners(edge_plan, chunk)]
                job.centres, job.corners = (array.ctypes.data for array in held)
            return held
        blocks = blocks_of(plan, chunk)
        listed = [n for n, block in enumerate(blocks) if plan.kinds[block] == _LISTED]
        for edges in (False, True) if any_window else (False,):
            table = np.zeros(len(blocks), dtype=np.uintp)
            if listed:
                found = plan.listed([blocks[n] for n in listed], edges=edges)
                table[listed] = found.ctypes.data + np.arange(len(listed)) * found[0].nbytes
                held.append(found)
            held.append(table.view(np.float64))
            if edges:
                job.listed_edges = table.ctypes.data
            else:
                job.listed = table.ctypes.data
        return held

    def _call(self, kernel: Callable[..., int] | None, job: _Job) -> None:
        assert kernel is not None
        if kernel(ctypes.byref(job), self._type) != 0:
            raise MemoryError("a warp kernel could not allocate memory; warp fewer pixels at once")

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
        job.fine, job.fine_index = self._array(plan.fine.nodes), self._array(plan.fine_index)
        job.block_row, job.block_col, job.across = plan.row, plan.col, plan.kinds.shape[1]

    def _array(self, array: NDArray[np.generic] | Floats) -> int:
        held = np.ascontiguousarray(array)
        self._keep.append(held)
        return held.ctypes.data

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
