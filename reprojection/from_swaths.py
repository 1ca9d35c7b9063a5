"""Swath granules of one layer onto one grid: each granule by itself, then merged."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from reprojection.crs import SPHERE_RADIUS
from reprojection.encoding import Encoding
from reprojection.granule_layer import MaskedLayer, Place, Rule, read_masked
from reprojection.grids import Grid
from reprojection.merge import Merged, Merger, nominal_zenith
from reprojection.qa import Reason
from reprojection.swath import Swath, nearest
from reprojection.targets import Targets, pixel_centres, pixel_metres

_POINTS_AT_ONCE = 1 << 22
_MOST_POINTS = 16  # along one side of a pixel

Reasons = npt.NDArray[np.uint8]


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
    threads: int,
) -> Merged:
    """Reproject granules in the order given; `resampling` is "nearest" or "average".

    `average` looks from many points of a pixel, evenly spread, four to sixteen along a side
    (`points_along`), and takes the mean of what those with a value see: every footprint counts by
    the share of the pixel's ground that is nearest to it.
    """
    merger = Merger(shape=grid.shape, dtype=encoding.dtype, nodata=encoding.nodata, merge=merge)
    targets = pixel_centres(grid) if resampling == "nearest" else None
    for place in places:
        read = read_masked(place, rule, mask=mask)
        if read.geolocation is None:
            raise AssertionError(f"{place.name} lies on a grid")
        swath = Swath.of(read.geolocation)
        zenith = _zenith(read)
        candidates = read.why == Reason.VALID if search_valid else None
        if targets is not None:
            seen = nearest(swath, targets, candidates=candidates, threads=threads).ravel()
            at = np.flatnonzero(seen >= 0)
            seen = seen[at]
            values, why = read.values.ravel()[seen], read.why.ravel()[seen]
            merger.add(at, values, why, zenith[seen])
            continue
        parts = list(_average(read, swath, zenith, grid, candidates, threads))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        at, values, why, angles = columns
        merger.add(at, values, why, angles)
    return merger.result()


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


def _average(
    read: MaskedLayer,
    swath: Swath,
    zenith: npt.NDArray[np.float32],
    grid: Grid,
    candidates: npt.NDArray[np.bool_] | None,
    threads: int,
) -> Iterator[
    tuple[npt.NDArray[np.intp], npt.NDArray[np.float64], Reasons, npt.NDArray[np.float32]]
]:
    """Pixels a granule reaches, in runs of rows: place, mean, reason and mean zenith."""
    per = points_along(swath, grid)
    rows_at_once = max(1, _POINTS_AT_ONCE // (grid.width * per * per))
    stored = read.values.ravel()
    reasons = read.why.ravel()
    for first in range(0, grid.height, rows_at_once):
        rows = min(rows_at_once, grid.height - first)
        seen = nearest(
            swath, _points(grid, first, rows, per), candidates=candidates, threads=threads
        )
        by_pixel = seen.reshape(rows, per, grid.width, per).transpose(0, 2, 1, 3)
        blocks = by_pixel.reshape(rows * grid.width, per * per)
        at = np.flatnonzero((blocks >= 0).any(axis=1))
        blocks = blocks[at]
        why = np.where(blocks >= 0, reasons[blocks], np.uint8(0))
        good = (blocks >= 0) & (why == Reason.VALID)
        count = good.sum(axis=1)
        some = np.maximum(count, 1)
        mean = np.where(good, stored[blocks].astype(np.float64), 0.0).sum(axis=1) / some
        angle = np.where(good, zenith[blocks], np.float32(0.0)).sum(axis=1) / some
        reason = np.where(count > 0, np.uint8(Reason.VALID), why.max(axis=1)).astype(np.uint8)
        yield at + first * grid.width, mean, reason, angle.astype(np.float32)


def _points(grid: Grid, first: int, rows: int, per: int) -> Targets:
    a, b, c, d, e, f = grid.transform
    finer = Grid(
        crs=grid.crs,
        transform=(a / per, b / per, c + b * first, d / per, e / per, f + e * first),
        width=grid.width * per,
        height=rows * per,
    )
    return pixel_centres(finer)
