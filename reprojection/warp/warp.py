"""Warp tiles of one date onto a target grid: any number of bands that share coordinates.

All sources form one raster, whatever tiles they come in, so seams do not show. By GDAL's rule, a
pixel is fill if the source pixel nearest to it is fill; otherwise only the valid pixels under the
kernel are weighted. Area methods take every valid pixel they cover.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reprojection.errors import ChoiceRefusedError, GridError
from reprojection.grid.bicubic import BLOCK
from reprojection.grid.blocks import ProjectionKind, plan_blocks
from reprojection.grid.coordinates import Coordinates, RowPlan, SourceSpace, plan_rows
from reprojection.grid.grids import Grid
from reprojection.grid.pixel_coordinates import Chunk
from reprojection.kernels.threads import share
from reprojection.resampling import METHODS, Method
from reprojection.warp import c_kernels
from reprojection.warp.warp_task import TilePixels, WarpTask

Pixels = NDArray[np.integer | np.floating]

Search = Literal["footprint", "valid"]

DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "float32", "float64")

_CHUNK_BLOCKS = 32
"""Blocks of 128 columns per kernel call; limits the memory of listed coordinates."""


@dataclass(frozen=True, kw_only=True)
class SourceTile:
    """One tile: its bands, its grid, and which pixels are data.

    `bands` are 2-D arrays of one shape and dtype; a pixel equal to the warp's fill is not data (nor
    is NaN). `valid`, if given, holds one boolean array per band, or None for a band whose empty
    pixels are all fill.
    """

    bands: Sequence[Pixels]
    grid: Grid
    valid: Sequence[NDArray[np.bool_] | None] | None = None


def warp(
    sources: Sequence[SourceTile],
    target: Grid,
    method: Method = "nearest",
    *,
    fill: float | int,
    threads: int = 1,
    search: Search = "footprint",
    scale: tuple[float, float] | None = None,
    out: Pixels | None = None,
) -> Pixels:
    """Resample sources onto a target grid: an array (bands, rows, columns) of their dtype.

    `fill` marks what is not data, in the sources and in the result; a result that would equal it by
    chance is moved to the next value, as GDAL does. `search` "valid" fills a pixel from the valid
    pixels around it even if the nearest is fill. `scale` fixes how many source pixels a target
    pixel spans (columns, rows) for bilinear and cubic, whose kernels widen by it when downsampling;
    None computes it at each position. `out` is an array to write to. The result does not depend on
    `threads`, on the order of sources, or on the target's bounds. On the tiles' own lattice pixels
    are copied, whatever the method, also those beyond the map's rim.

    Raises GridError for sources that do not share a lattice, bands or dtype, and for a target CRS
    that cannot be reached; ChoiceRefusedError for an unknown method or dtype.
    """
    bands, dtype = _check(sources, method, fill)
    space = SourceSpace.of(sources[0].grid)
    coordinates = Coordinates(grid=target, space=space)
    shape = (bands, target.height, target.width)
    if out is None:
        out = np.empty(shape, dtype=dtype)
    elif out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        raise GridError(f"out must be a contiguous {dtype} array of shape {shape}")
    tiles = [
        [
            TilePixels(row=row, col=col, pixels=_premasked(source, band, fill))
            for source, (row, col) in zip(sources, _offsets(space, sources), strict=True)
        ]
        for band in range(bands)
    ]
    if scale is None and coordinates.shares_lattice:
        _copy(tiles, coordinates, fill, out)
        return out
    rowwise = coordinates.is_rowwise
    task = WarpTask(
        tiles=tiles,
        out=out,
        method=method,
        plan=plan_rows(coordinates) if rowwise else plan_blocks(coordinates),
        edge_plan=plan_rows(coordinates, shift=0.0) if rowwise and method != "nearest" else None,
        space=space,
        fill=fill,
        nearest_rule=search == "footprint",
        scale=scale,
    )
    share(c_kernels.Warper(task).run, _chunks(coordinates, _chunk_rows(task, threads)), threads)
    return out


def _copy(
    tiles: Sequence[Sequence[TilePixels]],
    coordinates: Coordinates,
    fill: float | int,
    out: Pixels,
) -> None:
    """Copy the sources' pixels to a target on their own lattice; of overlapping ones the first."""
    row, col = coordinates.space.offset(coordinates.grid)[::-1]
    _, height, width = out.shape
    out[...] = np.array([fill]).astype(out.dtype)[0]
    for band, sources in enumerate(tiles):
        for tile in reversed(sources):
            top, left = tile.row - row, tile.col - col
            bottom, right = top + tile.pixels.shape[0], left + tile.pixels.shape[1]
            into = np.s_[max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
            if min(bottom, height) <= max(top, 0) or min(right, width) <= max(left, 0):
                continue
            out[band][into] = tile.pixels[max(-top, 0) : height - top, max(-left, 0) : width - left]


def _check(
    sources: Sequence[SourceTile], method: str, fill: float | int
) -> tuple[int, np.dtype[np.generic]]:
    if method not in METHODS:
        raise ChoiceRefusedError(f"resampling {method!r} is unknown; choose {', '.join(METHODS)}")
    if not sources or not sources[0].bands:
        raise GridError("nothing to warp: give at least one source with one band")
    bands, dtype = len(sources[0].bands), sources[0].bands[0].dtype
    if dtype.name not in DTYPES:
        raise ChoiceRefusedError(f"dtype {dtype} cannot be warped; convert to one of {DTYPES}")
    if not _can_hold(dtype, fill):
        raise ChoiceRefusedError(f"fill {fill} cannot be stored as {dtype}; choose another")
    for source in sources:
        if len(source.bands) != bands:
            raise GridError(f"sources have {bands} and {len(source.bands)} bands; warp them apart")
        for band in source.bands:
            if band.dtype != dtype or band.shape != source.grid.shape:
                raise GridError(
                    f"a band is {band.dtype} {band.shape}, expected {dtype} {source.grid.shape}"
                )
    return bands, dtype


def _can_hold(dtype: np.dtype[np.generic], fill: float | int) -> bool:
    if np.issubdtype(dtype, np.floating):
        return True
    info = np.iinfo(dtype.name)
    return bool(np.isfinite(fill)) and info.min <= fill <= info.max and fill == int(fill)


def _offsets(space: SourceSpace, sources: Sequence[SourceTile]) -> list[tuple[int, int]]:
    """Return row and column of each source in the space."""
    return [(row, col) for col, row in (space.offset(source.grid) for source in sources)]


def _premasked(source: SourceTile, band: int, fill: float | int) -> Pixels:
    """Return a band with fill wherever it is not data."""
    pixels = source.bands[band]
    valid = source.valid[band] if source.valid is not None else None
    if valid is None:
        rows_run = pixels.strides[1] == pixels.itemsize and pixels.strides[0] % pixels.itemsize == 0
        return pixels if rows_run else np.ascontiguousarray(pixels)
    return np.where(valid, pixels, pixels.dtype.type(fill))


def _chunk_rows(task: WarpTask, threads: int) -> int:
    """Choose the rows per chunk.

    They are a block's if Python lists positions, else few enough to keep all threads busy.
    """
    plan, (_, height, width) = task.plan, task.out.shape
    if isinstance(plan, RowPlan):
        lists = bool(task.by_window(Chunk(top=0, bottom=height, left=0, right=width)).any())
    else:
        lists = bool((plan.kinds == ProjectionKind.LISTED).any())
    if lists:
        return BLOCK
    pieces = 4 * threads if threads > 1 else 2
    return BLOCK * max(1, int(height) // BLOCK // pieces)


def _chunks(coordinates: Coordinates, rows: int) -> Iterator[Chunk]:
    """Cut the target into pieces of whole blocks: this many rows by at most 32 blocks."""
    grid, numbering = coordinates.grid, coordinates.numbering
    for top, bottom in _pieces(numbering.row, grid.height, rows):
        for left, right in _pieces(numbering.col, grid.width, BLOCK * _CHUNK_BLOCKS):
            yield Chunk(top=top, bottom=bottom, left=left, right=right)


def _pieces(first: int, count: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield ranges [start, stop) of pixels, cut where their numbers are multiples of size."""
    start = 0
    while start < count:
        stop = min(count, size - (first + start) % size + start)
        yield start, stop
        start = stop
