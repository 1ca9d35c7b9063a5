"""Swath to grid: find the footprint of a granule that each pixel of a grid sees.

**The rule.** Positions are points of the unit sphere at the WGS84 latitude and longitude; distances
are chords in float64. The *spacing* of a footprint across track is the larger of the distances to
the next centre on either side. Along track it is defined likewise, but only to lines of its own
scan, because neighbouring scans overlap (if a scan is one line, to the next lines). Its *radius* is
half the diagonal, `sqrt(across**2 + along**2) / 2`. A pixel sees the footprint whose centre is
nearest to the pixel's centre, if the pixel lies within that footprint's radius; otherwise the
granule contributes nothing there. Of equally near centres, the first in row-major order counts.
Centres without geolocation are ignored, and so are pixels that VIIRS deletes on board
(`reprojection/warp/bow_tie.py`).

A radius is at most four times the 95th percentile of the granule's radii (sampled): otherwise a
wrong coordinate could claim half of the map. Real footprints are far smaller than this limit.

`search="valid"` looks only among footprints with a value; this does not change radii.

The rule does not depend on the grid's extent: a pixel gets the same footprint in any cell, with any
number of threads (kernels/csrc/swath.c).
"""

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from reprojection.grid.targets import Targets
from reprojection.kernels import kernels
from reprojection.kernels.kernels import address
from reprojection.kernels.threads import share
from reprojection.read.geolocation import Geolocation
from reprojection.warp.bow_tie import Bools, kept_footprints

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int32]

_CAP = 4.0
_SAMPLED_LINES = 32
_SAMPLED_COLUMNS = 170
_BLOCK_COLUMNS = 32  # as in kernels/csrc/swath.h
_TILE = 256  # targets along the side of a block in C
_STRIPS = 8  # strips per thread, if the grid is large enough


@dataclass(frozen=True, kw_only=True)
class Swath:
    """The footprints of one granule at a layer's resolution, ready to be searched.

    `lat`, `lon`: float64 degrees, C order, shape (rows, columns), NaN where unknown. `scan_lines`
    is the number of lines of a scan. `cap` is the largest radius and `finest` the side of the
    granule's small footprints (5th percentile), both as chords of the unit sphere. `kept` tells
    which footprints may be seen; None means all.
    """

    lat: Floats
    lon: Floats
    scan_lines: int
    cap: float
    finest: float
    kept: Bools | None = None

    @classmethod
    def of(cls, geolocation: Geolocation) -> Self:
        """Make the swath of a granule's geolocation."""
        lat = np.ascontiguousarray(geolocation.lat, dtype=np.float64)
        lon = np.ascontiguousarray(geolocation.lon, dtype=np.float64)
        scan = max(1, min(geolocation.scan_lines, lat.shape[0]))
        radii = _sampled_radii(lat, lon, scan)
        low, high = np.percentile(radii, [5, 95]) if radii.size else (0.0, 0.0)
        return cls(
            lat=lat,
            lon=lon,
            scan_lines=scan,
            cap=_CAP * float(high),
            finest=2.0**0.5 * float(low),
            kept=kept_footprints(lat, lon, scan),
        )

    @cached_property
    def extents(self) -> Floats:
        """Latitude and longitude ranges of blocks of footprints: (blocks down, across, 4) degrees.

        The search skips blocks by them; they are found once, however often it is called.
        """
        rows, cols = self.lat.shape
        block_rows = kernels.by_letters("sw_block_rows", "i", ctypes.c_int64)(self.scan_lines)
        made = np.empty((-(-rows // block_rows), -(-cols // _BLOCK_COLUMNS), 4))
        fill = kernels.by_letters("sw_extents", "ppiiip")
        fill(address(self.lat), address(self.lon), rows, cols, block_rows, address(made))
        return made

    def seen(self, candidates: Bools | None) -> Bools | None:
        """Return which of some candidates may be seen; None means all."""
        if candidates is None or self.kept is None:
            return self.kept if candidates is None else candidates
        return candidates & self.kept


def nearest(
    swath: Swath, targets: Targets, *, candidates: Bools | None = None, threads: int = 1
) -> Index:
    """Find the footprint each target sees, as row * columns + column, or -1.

    The result is int32 in the shape of the grid. `candidates` (rows, columns) limits which
    footprints may be seen. Raises MemoryError if scratch memory cannot be allocated.
    """
    if not swath.cap > 0.0:
        return np.full(targets.shape, -1, np.int32)
    return _nearest_in_c(swath, targets, candidates, threads)


def _nearest_in_c(swath: Swath, targets: Targets, candidates: Bools | None, threads: int) -> Index:
    find = kernels.by_letters("sw_nearest", "ppiiippdpiipiiiiip", ctypes.c_int32)
    height, width = targets.shape
    rows, cols = swath.lat.shape
    may = swath.seen(candidates)
    chosen = None if may is None else np.ascontiguousarray(may, dtype=np.uint8)
    lat, lon = np.ascontiguousarray(targets.lat), np.ascontiguousarray(targets.lon)
    strides = targets.strides
    out = np.empty((height, width), np.int32)

    # A granule rarely covers the whole grid, so each thread takes the next strip when it is free.
    strip = height if threads == 1 else _TILE * max(1, height // (_TILE * _STRIPS * threads))

    def search(first: int) -> None:
        status = find(
            address(swath.lat),
            address(swath.lon),
            rows,
            cols,
            swath.scan_lines,
            address(chosen),
            address(swath.extents),
            swath.cap,
            address(lat),
            *strides[:2],
            address(lon),
            *strides[2:],
            first,
            min(height, first + strip),
            width,
            address(out),
        )
        if status != 0:
            raise MemoryError(f"no memory to search {rows} x {cols} footprints")

    share(search, range(0, height, max(strip, 1)), threads)
    return out


def _sampled_radii(lat: Floats, lon: Floats, scan: int) -> Floats:
    """Sample radii of footprints over the granule; empty if no footprint has a neighbour."""
    rows, cols = lat.shape
    if rows < 2 or cols < 2:
        lines, across = np.arange(rows), np.arange(cols)
    else:
        first_lines = np.arange(0, rows - 1, scan if scan > 1 else 1)
        lines = first_lines[:: -(-len(first_lines) // _SAMPLED_LINES)]
        across = np.arange(0, cols - 1, -(-(cols - 1) // _SAMPLED_COLUMNS))
    here = _vectors_at(lat, lon, lines, across)
    right = _vectors_at(lat, lon, lines, np.minimum(across + 1, cols - 1))
    below = _vectors_at(lat, lon, np.minimum(lines + 1, rows - 1), across)
    spacing = ((here - right) ** 2).sum(0) + ((here - below) ** 2).sum(0)
    return np.asarray(np.sqrt(spacing[np.isfinite(spacing)]) / 2.0)


def _vectors_at(
    lat: Floats, lon: Floats, rows: npt.NDArray[np.int_], cols: npt.NDArray[np.int_]
) -> Floats:
    at = np.ix_(rows, cols)
    some_lat, some_lon = lat[at], lon[at]
    made = np.empty((3, *some_lat.shape))
    find = kernels.by_letters("sw_unit", "ppiippp")
    find(address(some_lat), address(some_lon), 1, some_lat.size, *map(address, made))
    return made
