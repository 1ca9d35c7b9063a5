"""Reproject tile granules of one layer and date onto one grid: join them, then run the kernel."""

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from reprojection.grid.grids import Grid
from reprojection.read.encoding import Encoding
from reprojection.read.granule_layer import GranuleHeader, MaskedLayer, Rule, read_masked
from reprojection.read.kept import nbytes, opened
from reprojection.read.masks import filled
from reprojection.read.qa import Reason
from reprojection.read.raster import Pixels
from reprojection.resampling import Method
from reprojection.warp import warp
from reprojection.warp.merge import Merged


def tiles_onto_grid(
    places: Sequence[GranuleHeader],
    grid: Grid,
    rule: Rule,
    *,
    encoding: Encoding,
    resampling: Method,
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
    tiles: list[MaskedLayer] = []
    if codes or extra:
        tiles = [_masked(place, rule, mask=mask) for place in places]
        bands = [_filled(tile, encoding, Reason.VALID) for tile in tiles]
    else:
        bands = [_pixels(place, rule, encoding, mask=mask) for place in places]
    values = warp.warp(
        _sources(places, bands),
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
        kept = _sources(places, [_filled(tile, encoding, Reason.CODE) for tile in tiles])
        near = warp.warp(kept, grid, "nearest", fill=encoding.nodata, threads=threads)[0]
        coded = np.where(some, np.asarray(encoding.nodata, encoding.dtype), near)
    if extra:
        why = [tile.why for tile in tiles]
        reasons = _nearest(places, why, grid, Reason.NO_GRANULE, threads).astype(np.uint8)
        reasons[(reasons == Reason.VALID) & ~some] = Reason.FILL
        reasons[some] = Reason.VALID
        numbers = [
            np.full(tile.why.shape, number, np.uint16) for number, tile in enumerate(tiles, 1)
        ]
        counts = some.astype(np.uint16)
        sources = np.where(some, _nearest(places, numbers, grid, 0, threads), np.uint16(0))
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


def _masked(place: GranuleHeader, rule: Rule, *, mask: bool) -> MaskedLayer:
    with opened(place.path) as (granule, memory):
        return memory.recall(
            ("masked", place.layer.name, repr(rule), mask),
            partial(read_masked, granule, place.layer, rule, mask=mask, memory=memory),
            lambda masked: masked.nbytes,
        )


def _pixels(place: GranuleHeader, rule: Rule, encoding: Encoding, *, mask: bool) -> Pixels:
    """Read a layer's pixels in the raster's type, with nodata where they are empty."""
    with opened(place.path) as (granule, memory):

        def read() -> Pixels:
            masked = read_masked(granule, place.layer, rule, mask=mask, memory=memory)
            return _filled(masked, encoding, Reason.VALID)

        stored_as = encoding.dtype.str, repr(encoding.nodata)
        return memory.recall(
            ("pixels", place.layer.name, repr(rule), mask, stored_as), read, nbytes
        )


def _filled(tile: MaskedLayer, encoding: Encoding, wanted: Reason) -> Pixels:
    values = tile.values.astype(encoding.dtype, copy=False)
    return filled(values, tile.why, wanted, encoding.nodata)


def _sources(places: Sequence[GranuleHeader], bands: Sequence[Pixels]) -> list[warp.SourceTile]:
    return [
        warp.SourceTile(bands=[cast(warp.Pixels, band)], grid=place.grid)
        for place, band in zip(places, bands, strict=True)
        if place.grid is not None
    ]


def _nearest(
    places: Sequence[GranuleHeader],
    planes: Sequence[Pixels],
    grid: Grid,
    fill: int,
    threads: int,
) -> npt.NDArray[np.uint16]:
    """Return the nearest source pixel of each tile's plane, `fill` where there is no tile."""
    sources = _sources(places, planes)
    near = warp.warp(sources, grid, "nearest", fill=fill, threads=threads)[0]
    numbers: npt.NDArray[np.uint16] = near.astype(np.uint16)
    return numbers
