"""Reproject swath granules of one layer onto one grid: each granule alone, then merged."""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from modis.axes import Shape
from modis.sphere import SPHERE_RADIUS
from reprojection.catalogue.layers import Layer
from reprojection.grid.grids import Grid
from reprojection.grid.targets import Centres, Targets, pixel_metres
from reprojection.read.encoding import Encoding
from reprojection.read.granule import Granule
from reprojection.read.granule_layer import UNDATED, GranuleHeader, Rule, located, read_masked
from reprojection.read.kept import Memory, nbytes, opened
from reprojection.read.qa import Reason
from reprojection.read.raster import Pixels
from reprojection.warp.footprint_shares import footprint_shares
from reprojection.warp.footprint_statistics import FootprintStatistics, Statistic
from reprojection.warp.merge import Follower, Merged, Merger, nominal_zenith
from reprojection.warp.swath import Swath, nearest

_POINTS_AT_ONCE = 1 << 20
_PIXELS_AT_ONCE = 3 << 19  # a whole sinusoidal tile of 1 km
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
        kept = 0 if self.swath.kept is None else self.swath.kept.nbytes
        return self.swath.lat.nbytes + self.swath.lon.nbytes + self.zenith.nbytes + kept


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
    only_fill: bool = False


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
) -> tuple[Merged, set[int]]:
    """Reproject granules in the order given; `resampling` is "nearest" or a statistic.

    Returns the pixels, and the numbers of the granules of night that hold only fill, from 0.

    With `driving`, each pixel is taken from the granule from which that layer's pixel is taken.

    A statistic of the footprints in a pixel weighs each by the share of the pixel's ground that is
    nearest to it (`footprint_statistics`).

    For a grid of up to 1.5 megapixels, memory holds one granule at a time. A larger grid is made in
    groups of rows, and memory holds all granules instead. Codes and the content of extra bands are
    kept only if `codes` and `extra` ask for them.
    """
    out = Merged.empty(grid.shape, encoding.dtype, encoding.nodata, codes=codes, extra=extra)
    rows = max(1, _PIXELS_AT_ONCE // grid.width)
    empty: set[int] = set()

    def read_each() -> Iterator[tuple[_Granule, _Granule | None]]:
        for number, place in enumerate(places):
            pair = _read_pair(
                place,
                rule,
                driving,
                number,
                encoding=encoding,
                mask=mask,
                search_valid=search_valid,
            )
            if pair[0].only_fill:
                empty.add(number)
            yield pair

    read: Iterable[tuple[_Granule, _Granule | None]] = read_each()
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
                if resampling != "nearest":
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
    return out, empty


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
        key = ("footprints", layer.swath, layer.dims, layer.shape, place.companion)
        if known is None or known.key != key:
            known = memory.recall(
                key, lambda: _footprints(key, granule, place), lambda found: found.nbytes
            )
    return _Granule(
        values=masked.values.ravel(),
        why=masked.why.ravel(),
        candidates=masked.why == Reason.VALID if search_valid else None,
        only_fill=place.night and bool((masked.why == Reason.FILL).all()),
        footprints=known,
        memory=memory,
    )


def _footprints(key: Hashable, granule: Granule, place: GranuleHeader) -> _Footprints:
    """Locate a layer's pixels, with their zenith from the scan's geometry if the file has none."""
    geolocation, shape = located(granule, place), place.layer.shape
    zenith = geolocation.sensor_zenith
    if zenith is None:
        zenith = np.broadcast_to(nominal_zenith(shape[1]), shape)
    return _Footprints(key=key, swath=Swath.of(geolocation), zenith=zenith.ravel())


def _read_pair(
    place: GranuleHeader,
    rule: Rule,
    driving: Driving | None,
    number: int,
    *,
    encoding: Encoding,
    mask: bool,
    search_valid: bool,
) -> tuple[_Granule, _Granule | None]:
    """Read a granule's layer and its driving layer, which may share their footprints."""
    granule = _rescaled(
        _read(place, rule, mask=mask, search_valid=search_valid), place.layer, encoding
    )
    theirs = driving.places[number] if driving is not None else None
    if driving is None or theirs is None:
        return granule, None
    known = granule.footprints
    leader = _read(theirs, driving.rule, mask=mask, search_valid=search_valid, known=known)
    return granule, leader


def _rescaled(granule: _Granule, layer: Layer, encoding: Encoding) -> _Granule:
    """Bring stored values to the raster's scale; scales of level 1B differ between granules."""
    if not layer.band_scales or (layer.scale, layer.offset) == (encoding.scale, encoding.offset):
        return granule
    if np.dtype(encoding.dtype).kind != "f":
        raise AssertionError(f"values of {layer.name} are brought to another scale as floats alone")
    physical = granule.values.astype(np.float64) * layer.scale + layer.offset
    return replace(granule, values=(physical - encoding.offset) / encoding.scale)


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
        if resampling != "nearest":
            return _statistic(
                granule,
                self.grid,
                self.first,
                self.last,
                cast("Statistic", resampling),
                threads=self.threads,
            )
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


def squares_along(swath: Swath, grid: Grid) -> int:
    """Return the number of squares along a pixel's side: three per two finest footprints."""
    if not swath.finest > 0.0:
        return 4
    side = pixel_metres(grid) / SPHERE_RADIUS
    return max(4, math.ceil(1.5 * side / swath.finest))


def _statistic(
    granule: _Granule, grid: Grid, first: int, last: int, method: Statistic, *, threads: int
) -> _Seen:
    """Compute a statistic of what a granule shows in some rows, as `_Look.at` returns it."""
    swath = granule.footprints.swath
    per = squares_along(swath, grid)
    centres = Centres(corners_grid(grid, per))
    parts = []
    # A row of pixels at a time, or several where squares are few; of large pixels a part of a row.
    rows_at_once = max(1, _POINTS_AT_ONCE // (grid.width * per * per))
    lines_at_once = max(1, _POINTS_AT_ONCE // (grid.width * per))
    for top in range(first, last, rows_at_once):
        bottom = min(top + rows_at_once, last)
        found = FootprintStatistics(
            pixels=(bottom - top) * grid.width,
            values=granule.values,
            why=granule.why,
            zenith=granule.footprints.zenith,
            method=method,
        )
        for line in range(top * per, bottom * per, lines_at_once):
            end = min(line + lines_at_once, bottom * per)
            corners = centres.rows(line, end + 1)
            seen = nearest(swath, corners, candidates=granule.candidates, threads=threads)
            if (seen >= 0).any():
                begun = line - top * per
                found.add(
                    footprint_shares(swath, corners, seen, per=per, begun=begun, threads=threads)
                )
        at, *rest = found.result()
        parts.append((at + (top - first) * grid.width, *rest))
    at, value, reason, angle = (np.concatenate(column) for column in zip(*parts, strict=True))
    return at, value, reason, angle


def corners_grid(grid: Grid, per: int) -> Grid:
    """Make a grid whose pixel centres are the corners of `per` x `per` squares in each pixel."""
    a, b, c, d, e, f = grid.transform
    a, b, d, e = a / per, b / per, d / per, e / per
    return Grid(
        crs=grid.crs,
        transform=(a, b, c - 0.5 * (a + b), d, e, f - 0.5 * (d + e)),
        width=grid.width * per + 1,
        height=grid.height * per + 1,
    )
