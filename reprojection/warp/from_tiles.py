"""Reproject tile granules of one layer and date onto one grid: join them, then run the kernel."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import cast

import numpy as np
import numpy.typing as npt

from modis.axes import Shape
from reprojection.formats.held import Held
from reprojection.grid.coordinates import SourceSpace
from reprojection.grid.grids import Grid
from reprojection.read.encoding import Encoding
from reprojection.read.granule import Part
from reprojection.read.granule_layer import GranuleHeader, MaskedLayer, Rule
from reprojection.read.kept import nbytes, opened
from reprojection.read.masks import filled
from reprojection.read.qa import Reason
from reprojection.read.raster import Pixels
from reprojection.resampling import METHODS, Method
from reprojection.warp import warp
from reprojection.warp.merge import Merged
from reprojection.warp.orbits import orbits_of, read_tile
from reprojection.warp.source_window import source_window

WINDOWED = 1 << 26  # pixels of a source from which on only the rows needed are read
_POINTS = 64  # along each side of the target, at which latitudes are computed


def tiles_onto_grid(
    places: Sequence[GranuleHeader],
    grid: Grid,
    rule: Rule,
    *,
    encoding: Encoding,
    resampling: Method,
    merge: str,
    mask: bool,
    search: warp.Search,
    codes: bool,
    extra: bool,
    clamp: tuple[float, float] | None,
    threads: int,
) -> Merged:
    """Reproject the tiles as one raster, so that seams between tiles do not show.

    Tiles of several maps (both poles, central meridians of MAIAC) give a raster for each map; each
    pixel is of the first that has a value there, else of the first that has a code.

    `merge` chooses among the orbits of layers that hold several. With `clamp`, stored values
    that a kernel makes beyond this range become its nearest end.

    Codes and the content of extra bands are those of the nearest source pixel; they are computed
    only if `codes` and `extra` ask for them.
    """
    apart = _by_map(places)
    if len(apart) > 1:
        layers = [
            tiles_onto_grid(
                [places[number] for number in numbers],
                grid,
                rule,
                encoding=encoding,
                resampling=resampling,
                merge=merge,
                mask=mask,
                search=search,
                codes=codes,
                extra=extra,
                clamp=clamp,
                threads=threads,
            )
            for numbers in apart
        ]
        layers = [_renumbered(*one) for one in zip(layers, apart, strict=True)]
        return reduce(partial(_laid_over, encoding=encoding), layers)
    tiles: list[MaskedLayer] = []
    parts = [_part(place, grid, search) for place in places]
    if codes or extra:
        tiles = [
            _masked(place, rule, merge, part, mask=mask)
            for place, part in zip(places, parts, strict=True)
        ]
        bands = [_filled(tile, encoding, Reason.VALID) for tile in tiles]
    else:
        bands = [
            _pixels(place, rule, merge, encoding, part, mask=mask)
            for place, part in zip(places, parts, strict=True)
        ]
    values = warp.warp(
        _sources(places, bands),
        grid,
        resampling,
        fill=encoding.nodata,
        threads=threads,
        search=search,
    )[0]
    if clamp is not None and METHODS[resampling].overshoots:
        _hold(values, clamp, encoding)
    coded = values
    reasons: npt.NDArray[np.uint8] = np.broadcast_to(np.uint8(0), grid.shape)
    sources: npt.NDArray[np.uint16] = np.broadcast_to(np.uint16(0), grid.shape)
    counts: npt.NDArray[np.uint16] = np.broadcast_to(np.uint16(0), grid.shape)
    if not (codes or extra):
        return Merged(values=values, codes=values, counts=counts, sources=sources, reasons=reasons)
    some = ~_empty(values, encoding)
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


def _by_map(places: Sequence[GranuleHeader]) -> list[list[int]]:
    """Put places of one map together; each is named by its number, from 0."""
    found: dict[str, list[int]] = {}
    for number, place in enumerate(places):
        found.setdefault(place.grid.crs if place.grid is not None else "", []).append(number)
    return list(found.values())


def _renumbered(layer: Merged, numbers: Sequence[int]) -> Merged:
    """Give a raster of some granules the numbers that these have among all."""
    among_all = np.array([0, *(number + 1 for number in numbers)], np.uint16)
    return replace(layer, sources=among_all[layer.sources])


def _laid_over(top: Merged, under: Merged, encoding: Encoding) -> Merged:
    """Lay a raster over another one, which shows where the first has no value."""
    bare = _empty(top.values, encoding)
    values = np.where(bare, under.values, top.values)
    some = ~_empty(values, encoding)
    codes = values
    if top.codes is not top.values:
        codes = np.where(_empty(top.codes, encoding), under.codes, top.codes)
        codes[some] = encoding.nodata
    seen = [one.reasons != Reason.NO_GRANULE for one in (top, under)]
    why = np.where(seen[0] & seen[1], np.maximum(top.reasons, under.reasons), top.reasons)
    why = np.where(seen[0], why, under.reasons)
    return Merged(
        values=values,
        codes=codes,
        counts=np.maximum(top.counts, under.counts),
        sources=np.where(bare, under.sources, top.sources),
        reasons=np.where(some, np.uint8(Reason.VALID), why),
    )


def _empty(values: Pixels, encoding: Encoding) -> npt.NDArray[np.bool_]:
    return np.asarray(np.isnan(values) if np.isnan(encoding.nodata) else values == encoding.nodata)


def _hold(values: Pixels, within: tuple[float, float], encoding: Encoding) -> None:
    """Hold pixels with a value within a range, in place."""
    np.clip(values, *within, out=values, where=~_empty(values, encoding))


def newest_of_each_place(places: Sequence[GranuleHeader]) -> list[GranuleHeader]:
    """Select the newest of granules that cover the same ground; keep the order of the others."""
    chosen: dict[tuple[str, tuple[float, ...]], GranuleHeader] = {}
    for place in sorted(places, key=lambda one: (one.start, one.produced, one.name)):
        if place.grid is None:
            raise AssertionError(f"{place.name} lies on no grid")
        # The corners of one tile differ by fractions of a millimetre between files. Tiles of two
        # maps, such as those of the poles, may have the same ones.
        corners = tuple(round(number, 1) for number in (*place.grid.transform, *place.grid.shape))
        key = place.grid.crs, corners
        chosen[key] = place
    return sorted(chosen.values(), key=lambda one: (one.start, one.name))


def window_of(place: GranuleHeader, grid: Grid) -> GranuleHeader:
    """Cut a large geographic grid down to the rows that the target needs; others are left whole.

    The pixels do not depend on it: the rows keep their place on the lattice.
    """
    source = place.grid
    if source is None or source.height * source.width < WINDOWED or source.crs != "EPSG:4326":
        return place
    if SourceSpace.of(source).y0 != 0.0:  # cut rows would lie on another lattice, by rounding
        return place
    lats = _latitudes(grid)
    if not np.isfinite(lats).all():
        return place
    height, top = -source.transform[4], source.transform[5]
    steps = [np.abs(np.diff(lats, axis=axis)).max() for axis in (0, 1)]
    # Between the points latitudes change by less than a step; a widened kernel looks two more
    # target pixels around, which are smaller than steps.
    margin = 4.0 * max(steps) + 8.0 * height
    first = max(0, math.floor((top - lats.max() - margin) / height))
    last = min(source.height, math.ceil((top - lats.min() + margin) / height))
    if last <= first:
        return place
    a, b, c, d, e, _ = source.transform
    cut = replace(source, transform=(a, b, c, d, e, top - first * height), height=last - first)
    layer = replace(place.layer, first_row=first, shape=Shape(last - first, source.width))
    return replace(place, grid=cut, layer=layer)


def _latitudes(grid: Grid) -> npt.NDArray[np.float64]:
    """Return latitudes of points over a grid, its edges among them, at least a pixel apart."""
    rows, cols = (
        np.linspace(0.0, length, min(length, _POINTS) + 1) for length in (grid.height, grid.width)
    )
    row, col = np.meshgrid(rows, cols, indexing="ij")
    a, b, c, d, e, f = grid.transform
    return grid.system.to_lonlat(a * col + b * row + c, d * col + e * row + f)[1]


def _part(place: GranuleHeader, grid: Grid, search: warp.Search) -> Part | None:
    """Return the part of a layer that a grid takes, if its granule is held in part.

    Of others the whole layer is read: its next cell takes another part.
    """
    if place.grid is None or search == "valid" or Held.of(place.path) is None:
        return None
    found = source_window(place.grid, grid)
    return None if (found.rows, found.columns) == place.layer.shape else found


def _masked(
    place: GranuleHeader, rule: Rule, merge: str, part: Part | None, *, mask: bool
) -> MaskedLayer:
    with opened(place.path) as (granule, memory):
        return memory.recall(
            (
                "masked",
                place.layer.name,
                place.layer.first_row,
                place.layer.shape,
                repr(rule),
                merge if orbits_of(granule, place.layer) else "",
                mask,
                part,
            ),
            partial(read_tile, granule, place.layer, rule, merge, part, mask=mask, memory=memory),
            lambda masked: masked.nbytes,
        )


def _pixels(
    place: GranuleHeader,
    rule: Rule,
    merge: str,
    encoding: Encoding,
    part: Part | None,
    *,
    mask: bool,
) -> Pixels:
    """Read a layer's pixels in the raster's type, with nodata where they are empty."""
    with opened(place.path) as (granule, memory):

        def read() -> Pixels:
            masked = read_tile(granule, place.layer, rule, merge, part, mask=mask, memory=memory)
            return _filled(masked, encoding, Reason.VALID)

        stored_as = encoding.dtype.str, repr(encoding.nodata)
        rows = place.layer.first_row, place.layer.shape
        by = merge if orbits_of(granule, place.layer) else ""
        return memory.recall(
            ("pixels", place.layer.name, *rows, repr(rule), by, mask, part, stored_as), read, nbytes
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
