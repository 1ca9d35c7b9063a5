"""Reproject tile granules of one layer and date onto one grid: join them, then run the kernel."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from reprojection.grid.grids import Grid
from reprojection.read.encoding import Encoding
from reprojection.read.granule_layer import GranuleHeader, MaskedLayer, Rule, read_masked
from reprojection.read.qa import Reason
from reprojection.read.raster import Pixels
from reprojection.warp import warp
from reprojection.warp.merge import Merged


def tiles_onto_grid(
    places: Sequence[GranuleHeader],
    grid: Grid,
    rule: Rule,
    *,
    encoding: Encoding,
    resampling: warp.Method,
    mask: bool,
    search: warp.Search,
    codes: bool,
    extra: bool,
    threads: int,
) -> Merged:
    """Reproject the tiles as one raster, so that seams between tiles do not show.

    Codes and the content of extra bands are those of the nearest source pixel; they are computed
    only if `codes` and `extra` ask for them.
    """
    tiles = [read_masked(place, rule, mask=mask) for place in places]
    values = warp.warp(
        [
            _source(tile, tile.values.astype(encoding.dtype, copy=False), Reason.VALID)
            for tile in tiles
        ],
        grid,
        resampling,
        fill=encoding.nodata,
        threads=threads,
        search=search,
    )[0]
    coded = values
    reasons: npt.NDArray[np.uint8] = np.broadcast_to(np.uint8(0), grid.shape)
    sources: npt.NDArray[np.uint16] = np.broadcast_to(np.uint16(0), grid.shape)
    counts: npt.NDArray[np.uint16] = np.broadcast_to(np.uint16(0), grid.shape)
    if not (codes or extra):
        return Merged(values=values, codes=values, counts=counts, sources=sources, reasons=reasons)
    some = ~np.isnan(values) if np.isnan(encoding.nodata) else values != encoding.nodata
    if codes:
        kept = [
            _source(tile, tile.values.astype(encoding.dtype, copy=False), Reason.CODE)
            for tile in tiles
        ]
        near = warp.warp(kept, grid, "nearest", fill=encoding.nodata, threads=threads)[0]
        coded = np.where(some, np.asarray(encoding.nodata, encoding.dtype), near)
    if extra:
        why = [tile.why for tile in tiles]
        reasons = _nearest(tiles, why, grid, Reason.NO_GRANULE, threads).astype(np.uint8)
        reasons[(reasons == Reason.VALID) & ~some] = Reason.FILL
        reasons[some] = Reason.VALID
        numbers = [
            np.full(tile.why.shape, number, np.uint16) for number, tile in enumerate(tiles, 1)
        ]
        counts = some.astype(np.uint16)
        sources = np.where(some, _nearest(tiles, numbers, grid, 0, threads), np.uint16(0))
    return Merged(
        values=values,
        codes=coded,
        counts=counts,
        sources=sources,
        reasons=reasons,
    )


def newest_of_each_place(places: Sequence[GranuleHeader]) -> list[GranuleHeader]:
    """Select the newest of granules that cover the same ground; keep the order of the others."""
    chosen: dict[tuple[float, ...], GranuleHeader] = {}
    for place in sorted(places, key=lambda one: (one.start, one.produced, one.name)):
        if place.grid is None:
            raise AssertionError(f"{place.name} lies on no grid")
        # The corners of one tile differ by fractions of a millimetre between files.
        key = tuple(round(number, 1) for number in (*place.grid.transform, *place.grid.shape))
        chosen[key] = place
    return sorted(chosen.values(), key=lambda one: (one.start, one.name))


def _source(tile: MaskedLayer, band: Pixels, wanted: Reason) -> warp.SourceTile:
    if tile.place.grid is None:
        raise AssertionError(f"{tile.place.name} lies on no grid")
    return warp.SourceTile(
        bands=[cast(warp.Pixels, band)], grid=tile.place.grid, valid=[tile.why == wanted]
    )


def _nearest(
    tiles: Sequence[MaskedLayer],
    planes: Sequence[Pixels],
    grid: Grid,
    fill: int,
    threads: int,
) -> npt.NDArray[np.uint16]:
    """Return the nearest source pixel of each tile's plane, `fill` where there is no tile."""
    sources = [
        warp.SourceTile(bands=[cast(warp.Pixels, plane)], grid=tile.place.grid)
        for tile, plane in zip(tiles, planes, strict=True)
        if tile.place.grid is not None
    ]
    near = warp.warp(sources, grid, "nearest", fill=fill, threads=threads)[0]
    numbers: npt.NDArray[np.uint16] = near.astype(np.uint16)
    return numbers
