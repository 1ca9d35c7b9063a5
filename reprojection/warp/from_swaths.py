"""Swath granules of one layer onto one grid: each granule by itself, then merged."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from reprojection.grid.crs import SPHERE_RADIUS
from reprojection.grid.grids import Grid
from reprojection.grid.targets import Centres, Targets, pixel_metres
from reprojection.read.encoding import Encoding
from reprojection.read.granule_layer import UNDATED, MaskedLayer, Place, Rule, read_masked
from reprojection.read.qa import Reason
from reprojection.read.raster import Pixels
from reprojection.warp.merge import Merged, Merger, nominal_zenith
from reprojection.warp.swath import Swath, nearest

_POINTS_AT_ONCE = 1 << 20
_PIXELS_AT_ONCE = 3 << 19  # a sinusoidal tile of 1 km, whole
_MOST_POINTS = 16  # along one side of a pixel

Reasons = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class _Granule:
    """One granule, read; `zenith` is flat, `candidates` None where any footprint may be seen."""

    values: Pixels
    why: Reasons
    zenith: npt.NDArray[np.float32]
    candidates: npt.NDArray[np.bool_] | None
    swath: Swath


def swaths_onto_grid(
    places: Sequence[Place],
    grid: Grid,
    rule: Rule,
    *,
    encoding: Encoding,
    resampling: str,
    merge: str,
    mask: bool,
    search_valid: bool,
    codes: bool,
    extra: bool,
    threads: int,
) -> Merged:
    """Reproject granules in the order given; `resampling` is "nearest" or "average".

    `average` looks from many points of a pixel, evenly spread, four to sixteen along a side
    (`points_along`), and takes the mean of what those with a value see: every footprint counts by
    the share of the pixel's ground that is nearest to it.

    A grid of up to 1.5 megapixels holds one granule at a time. A larger one is made a run of rows
    at a time, and holds all granules instead. Codes, and what extra bands hold, are kept only where
    `codes` and `extra` ask for them.
    """
    out = Merged.empty(grid.shape, encoding.dtype, encoding.nodata, codes=codes, extra=extra)
    rows = max(1, _PIXELS_AT_ONCE // grid.width)
    read: Iterable[_Granule] = (
        _read(place, rule, mask=mask, search_valid=search_valid) for place in places
    )
    read = read if rows >= grid.height else list(read)
    centres = Centres(grid) if resampling == "nearest" else None
    for first in range(0, grid.height, rows):
        last = min(first + rows, grid.height)
        shape = last - first, grid.width
        merger = Merger(shape=shape, dtype=encoding.dtype, nodata=encoding.nodata, merge=merge)
        targets = centres.rows(first, last) if centres else None
        for granule in read:
            if targets is not None:
                merger.add(*_nearest(granule, targets, threads))
            else:
                merger.add(*_average(granule, grid, first, last, threads))
        out.put(first, merger.result())
    return out


def newest_of_each_swath(places: Sequence[Place]) -> list[Place]:
    """Of swaths that start at one moment (of a product: editions of one granule), the newest.

    Those that do not say when they start are told apart by name.
    """
    chosen: dict[tuple[datetime, str], Place] = {}
    for place in sorted(places, key=lambda one: (one.produced, one.name)):
        chosen[place.start, place.name if place.start == UNDATED else ""] = place
    return sorted(chosen.values(), key=lambda one: (one.start, one.name))


def _read(place: Place, rule: Rule, *, mask: bool, search_valid: bool) -> _Granule:
    read = read_masked(place, rule, mask=mask)
    if read.geolocation is None:
        raise AssertionError(f"{place.name} lies on a grid")
    return _Granule(
        values=read.values.ravel(),
        why=read.why.ravel(),
        zenith=_zenith(read),
        candidates=read.why == Reason.VALID if search_valid else None,
        swath=Swath.of(read.geolocation),
    )


_Seen = tuple[npt.NDArray[np.intp], Pixels, Reasons, npt.NDArray[np.float32]]


def _nearest(granule: _Granule, targets: Targets, threads: int) -> _Seen:
    """Pixels a granule reaches: place, value, reason and zenith."""
    candidates = granule.candidates
    seen = nearest(granule.swath, targets, candidates=candidates, threads=threads).ravel()
    at = np.flatnonzero(seen >= 0)
    seen = seen[at]
    return at, granule.values[seen], granule.why[seen], granule.zenith[seen]


def _zenith(read: MaskedLayer) -> npt.NDArray[np.float32]:
    """Sensor zenith of every footprint, flat; from the scan's geometry where the file has none."""
    shape = read.values.shape
    if read.geolocation is not None and read.geolocation.sensor_zenith is not None:
        return read.geolocation.sensor_zenith.ravel()
    return np.broadcast_to(nominal_zenith(shape[1]), shape).ravel()


def points_along(swath: Swath, grid: Grid) -> int:
    """Points along a pixel's side: two for each of the granule's finest footprints across it."""
    if not swath.finest > 0.0:
        return 4
    side = pixel_metres(grid) / SPHERE_RADIUS
    return max(4, min(_MOST_POINTS, math.ceil(2.0 * side / swath.finest)))


def _average(granule: _Granule, grid: Grid, first: int, last: int, threads: int) -> _Seen:
    """Pixels of some rows that a granule reaches: place, mean, reason and mean zenith."""
    per = points_along(granule.swath, grid)
    centres = Centres(points_grid(grid, per))
    rows_at_once = max(1, _POINTS_AT_ONCE // (grid.width * per * per))
    parts = []
    for top in range(first, last, rows_at_once):
        bottom = min(top + rows_at_once, last)
        targets = centres.rows(top * per, bottom * per)
        seen = nearest(granule.swath, targets, candidates=granule.candidates, threads=threads)
        by_pixel = seen.reshape(bottom - top, per, grid.width, per).transpose(0, 2, 1, 3)
        at, *found = _means(granule, by_pixel.reshape(-1, per * per))
        parts.append((at + (top - first) * grid.width, *found))
    at, mean, reason, angle = (np.concatenate(column) for column in zip(*parts, strict=True))
    return at, mean, reason, angle


def _means(granule: _Granule, blocks: npt.NDArray[np.int32]) -> _Seen:
    """The mean of what each pixel's points (pixels, points) see, for pixels that see anything."""
    at = np.flatnonzero((blocks >= 0).any(axis=1))
    blocks = blocks[at]
    why = np.where(blocks >= 0, granule.why[blocks], np.uint8(0))
    good = (blocks >= 0) & (why == Reason.VALID)
    count = good.sum(axis=1)
    some = np.maximum(count, 1)
    mean = np.where(good, granule.values[blocks].astype(np.float64), 0.0).sum(axis=1) / some
    angle = np.where(good, granule.zenith[blocks], np.float32(0.0)).sum(axis=1) / some
    reason = np.where(count > 0, np.uint8(Reason.VALID), why.max(axis=1)).astype(np.uint8)
    return at, mean, reason, angle.astype(np.float32)


def points_grid(grid: Grid, per: int) -> Grid:
    """A grid with `per` x `per` pixels in each pixel of another, whose centres are its points."""
    a, b, c, d, e, f = grid.transform
    return Grid(
        crs=grid.crs,
        transform=(a / per, b / per, c, d / per, e / per, f),
        width=grid.width * per,
        height=grid.height * per,
    )
