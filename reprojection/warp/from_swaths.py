"""Reproject swath granules of one layer onto one grid: each granule alone, then merged."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import numpy as np
import numpy.typing as npt

from modis.axes import Shape
from modis.sphere import SPHERE_RADIUS
from reprojection.catalogue.layers import Layer
from reprojection.grid.grids import Grid
from reprojection.grid.targets import Centres, Targets, pixel_metres
from reprojection.read.encoding import Encoding
from reprojection.read.granule import Granule
from reprojection.read.granule_layer import UNDATED, GranuleHeader, Rule, read_masked
from reprojection.read.kept import Memory, nbytes, opened
from reprojection.read.qa import Reason
from reprojection.read.raster import Pixels
from reprojection.warp.merge import Follower, Merged, Merger, nominal_zenith
from reprojection.warp.swath import Swath, nearest

_POINTS_AT_ONCE = 1 << 20
_PIXELS_AT_ONCE = 3 << 19  # a whole sinusoidal tile of 1 km
_MOST_POINTS = 16  # along one side of a pixel

Reasons = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class _Footprints:
    """Where a layer's pixels lie: `key` tells it apart in its granule; `zenith` is flat."""

    key: Hashable
    swath: Swath
    zenith: npt.NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return self.swath.lat.nbytes + self.swath.lon.nbytes + self.zenith.nbytes


@dataclass(frozen=True, kw_only=True)
class _Granule:
    """One granule, read; values and reasons are flat.

    `candidates` is None if any footprint may be used.
    """

    values: Pixels
    why: Reasons
    candidates: npt.NDArray[np.bool_] | None
    footprints: _Footprints
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Driving:
    """The layer that others follow, in the same granules in the same order.

    The place is None for a granule that does not hold this layer; there the layer sees nothing.
    """

    places: Sequence[GranuleHeader | None]
    rule: Rule
    resampling: str


def swaths_onto_grid(
    places: Sequence[GranuleHeader],
    grid: Grid,
    rule: Rule,
    *,
    encoding: Encoding,
    resampling: str,
    merge: str,
    driving: Driving | None,
    mask: bool,
    search_valid: bool,
    codes: bool,
    extra: bool,
    threads: int,
) -> Merged:
    """Reproject granules in the order given; `resampling` is "nearest" or "average".

    With `driving`, each pixel is taken from the granule from which that layer's pixel is taken.

    `average` looks from many points of a pixel, evenly spread, four to sixteen along a side
    (`points_along`), and takes the mean of the values they see: every footprint counts by the share
    of the pixel's ground that is nearest to it.

    For a grid of up to 1.5 megapixels, memory holds one granule at a time. A larger grid is made in
    groups of rows, and memory holds all granules instead. Codes and the content of extra bands are
    kept only if `codes` and `extra` ask for them.
    """
    out = Merged.empty(grid.shape, encoding.dtype, encoding.nodata, codes=codes, extra=extra)
    rows = max(1, _PIXELS_AT_ONCE // grid.width)
    read: Iterable[tuple[_Granule, _Granule | None]] = (
        _read_pair(place, rule, driving, number, mask=mask, search_valid=search_valid)
        for number, place in enumerate(places)
    )
    read = read if rows >= grid.height else list(read)
    methods = resampling, driving.resampling if driving else resampling
    centres = Centres(grid) if "nearest" in methods else None
    for first in range(0, grid.height, rows):
        last = min(first + rows, grid.height)
        look = _Look(grid=grid, centres=centres, first=first, last=last, threads=threads)
        shape = Shape(last - first, grid.width)
        if driving is None:
            merger = Merger(shape=shape, dtype=encoding.dtype, nodata=encoding.nodata, merge=merge)
            for granule, _ in read:
                if resampling == "average":
                    merger.add(*look.at(granule, resampling))
                    continue
                zenith = granule.footprints.zenith
                merger.add_seen(look.nearest(granule), granule.values, granule.why, zenith)
            out.put(first, merger.result())
            continue
        follower = Follower(shape=shape, dtype=encoding.dtype, nodata=encoding.nodata, merge=merge)
        for granule, leader in read:
            where, why, zenith = _NOWHERE
            if leader is not None:
                where, _, why, zenith = look.at(leader, driving.resampling)
            at, values, own, _ = look.at(granule, resampling)
            follower.add((where, why, zenith), at, values, own)
        out.put(first, follower.result())
    return out


def newest_of_each_swath(places: Sequence[GranuleHeader]) -> list[GranuleHeader]:
    """Select the newest of swaths of one product that start at the same time (editions).

    Swaths whose start is unknown are distinguished by name.
    """
    chosen: dict[tuple[datetime, str], GranuleHeader] = {}
    for place in sorted(places, key=lambda one: (one.produced, one.name)):
        chosen[place.start, place.name if place.start == UNDATED else ""] = place
    return sorted(chosen.values(), key=lambda one: (one.start, one.name))


def _read(
    place: GranuleHeader,
    rule: Rule,
    *,
    mask: bool,
    search_valid: bool,
    known: _Footprints | None = None,
) -> _Granule:
    """Read a granule; `known` are footprints of the same granule that were read before."""
    layer = place.layer
    with opened(place.path) as (granule, memory):
        masked = memory.recall(
            ("masked", layer.name, repr(rule), mask),
            partial(read_masked, granule, layer, rule, mask=mask, memory=memory),
            lambda found: found.nbytes,
        )
        key = ("footprints", layer.swath, layer.dims, layer.shape)
        if known is None or known.key != key:
            known = memory.recall(
                key, lambda: _footprints(key, granule, layer), lambda found: found.nbytes
            )
    return _Granule(
        values=masked.values.ravel(),
        why=masked.why.ravel(),
        candidates=masked.why == Reason.VALID if search_valid else None,
        footprints=known,
        memory=memory,
    )


def _footprints(key: Hashable, granule: Granule, layer: Layer) -> _Footprints:
    """Locate a layer's pixels, with their zenith from the scan's geometry if the file has none."""
    geolocation = granule.geolocation(layer)
    zenith = geolocation.sensor_zenith
    if zenith is None:
        zenith = np.broadcast_to(nominal_zenith(layer.shape[1]), layer.shape)
    return _Footprints(key=key, swath=Swath.of(geolocation), zenith=zenith.ravel())


def _read_pair(
    place: GranuleHeader,
    rule: Rule,
    driving: Driving | None,
    number: int,
    *,
    mask: bool,
    search_valid: bool,
) -> tuple[_Granule, _Granule | None]:
    """Read a granule's layer and its driving layer, which may share their footprints."""
    granule = _read(place, rule, mask=mask, search_valid=search_valid)
    theirs = driving.places[number] if driving is not None else None
    if driving is None or theirs is None:
        return granule, None
    known = granule.footprints
    leader = _read(theirs, driving.rule, mask=mask, search_valid=search_valid, known=known)
    return granule, leader


_Seen = tuple[npt.NDArray[np.intp], Pixels, Reasons, npt.NDArray[np.float32]]


_NOWHERE = np.empty(0, np.intp), np.empty(0, np.uint8), np.empty(0, np.float32)
"""What a layer sees in a granule that does not hold it: positions, values, reasons, zeniths."""


@dataclass(kw_only=True)
class _Look:
    """Looks from the pixels of some rows of a grid at granules; the last search is kept."""

    grid: Grid
    centres: Centres | None
    first: int
    last: int
    threads: int
    _targets: Targets | None = field(default=None, init=False)
    _searched: _Footprints | None = field(default=None, init=False)
    _found: npt.NDArray[np.int32] | None = field(default=None, init=False)

    def at(self, granule: _Granule, resampling: str) -> _Seen:
        """Find the pixels a granule reaches: position, value, reason and zenith."""
        if resampling == "average":
            return _average(granule, self.grid, self.first, self.last, self.threads)
        seen = self.nearest(granule)
        at = np.flatnonzero(seen >= 0)
        seen = seen[at]
        return at, granule.values[seen], granule.why[seen], granule.footprints.zenith[seen]

    def nearest(self, granule: _Granule) -> npt.NDArray[np.int32]:
        """Find the footprint that each pixel sees, or -1, flat."""
        if granule.candidates is not None:
            return self._search(granule)
        if granule.footprints is not self._searched or self._found is None:
            key = ("seen", granule.footprints.key, self.grid, self.first, self.last)
            self._found = granule.memory.recall(key, lambda: self._search(granule), nbytes)
            self._searched = granule.footprints
        return self._found

    def _search(self, granule: _Granule) -> npt.NDArray[np.int32]:
        if self._targets is None:
            centres = self.centres or Centres(self.grid)
            self._targets = centres.rows(self.first, self.last)
        swath, candidates = granule.footprints.swath, granule.candidates
        return nearest(swath, self._targets, candidates=candidates, threads=self.threads).ravel()


def points_along(swath: Swath, grid: Grid) -> int:
    """Return the number of points along a pixel's side: two per finest footprint across it."""
    if not swath.finest > 0.0:
        return 4
    side = pixel_metres(grid) / SPHERE_RADIUS
    return max(4, min(_MOST_POINTS, math.ceil(2.0 * side / swath.finest)))


def _average(granule: _Granule, grid: Grid, first: int, last: int, threads: int) -> _Seen:
    """Average what a granule shows in some rows: positions, means, reasons, mean zeniths."""
    per = points_along(granule.footprints.swath, grid)
    centres = Centres(points_grid(grid, per))
    rows_at_once = max(1, _POINTS_AT_ONCE // (grid.width * per * per))
    parts = []
    for top in range(first, last, rows_at_once):
        bottom = min(top + rows_at_once, last)
        targets = centres.rows(top * per, bottom * per)
        swath = granule.footprints.swath
        seen = nearest(swath, targets, candidates=granule.candidates, threads=threads)
        by_pixel = seen.reshape(bottom - top, per, grid.width, per).transpose(0, 2, 1, 3)
        at, *found = _means(granule, by_pixel.reshape(-1, per * per))
        parts.append((at + (top - first) * grid.width, *found))
    at, mean, reason, angle = (np.concatenate(column) for column in zip(*parts, strict=True))
    return at, mean, reason, angle


def _means(granule: _Granule, blocks: npt.NDArray[np.int32]) -> _Seen:
    """Average what each pixel's points (pixels, points) see, for pixels that see anything."""
    at = np.flatnonzero((blocks >= 0).any(axis=1))
    blocks = blocks[at]
    why = np.where(blocks >= 0, granule.why[blocks], np.uint8(0))
    good = (blocks >= 0) & (why == Reason.VALID)
    count = good.sum(axis=1)
    some = np.maximum(count, 1)
    mean = np.where(good, granule.values[blocks].astype(np.float64), 0.0).sum(axis=1) / some
    angle = np.where(good, granule.footprints.zenith[blocks], np.float32(0.0)).sum(axis=1) / some
    reason = np.where(count > 0, np.uint8(Reason.VALID), why.max(axis=1)).astype(np.uint8)
    return at, mean, reason, angle.astype(np.float32)


def points_grid(grid: Grid, per: int) -> Grid:
    """Make a grid with `per` x `per` pixels in each pixel of another; its centres are points."""
    a, b, c, d, e, f = grid.transform
    return Grid(
        crs=grid.crs,
        transform=(a / per, b / per, c, d / per, e / per, f),
        width=grid.width * per,
        height=grid.height * per,
    )
