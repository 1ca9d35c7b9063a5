"""Interpolation of coarse geolocation onto finer pixels, scan by scan, in numpy.

This is the reference the C kernel is held to. Each axis is a small table of Lagrange weights: up to
four coarse elements for each fine one, never from another scan. Latitude and longitude are
interpolated as unwrapped degrees; scans that come within 15 degrees of a pole as 3-D vectors,
because degrees bend too fast there.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

POLAR_LATITUDE = 75.0
MAX_TAPS = 4

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class AxisMap:
    """One axis: coarse element i lies on fine element `offset + increment * i`.

    `group` is the number of fine elements that stand together (a scan's lines; for columns, all).
    A negative increment is HDF-EOS's way to say that the geolocation is the finer one.
    """

    fine: int
    coarse: int
    offset: int
    increment: int
    group: int

    @property
    def is_identity(self) -> bool:
        return self.fine == self.coarse and self.offset == 0 and self.increment == 1

    @property
    def coarse_group(self) -> int:
        """Coarse elements in a group; all of them when groups do not divide evenly."""
        if self.increment < 0:
            return self.coarse
        per = self.group // self.increment
        even = per * self.increment == self.group and self.fine % self.group == 0
        if not even or per < 2 or self.coarse != self.fine // self.group * per:
            return self.coarse
        return per


@dataclass(frozen=True, kw_only=True)
class Weights:
    """For every fine element the first of `taps` coarse elements, and their weights."""

    first: npt.NDArray[np.int32]
    weights: Floats

    @property
    def taps(self) -> int:
        return int(self.weights.shape[1])


def axis_weights(axis: AxisMap) -> Weights:
    """Lagrange weights of an axis, shape (fine, taps); beyond the ends they extrapolate."""
    step = float(axis.increment) if axis.increment > 0 else 1.0 / -axis.increment
    at = (np.arange(axis.fine, dtype=np.float64) - axis.offset) / step
    per = axis.coarse_group
    taps = min(MAX_TAPS, per)
    groups = axis.coarse // per
    lines = axis.fine if groups == 1 else axis.group
    base = np.minimum(np.arange(axis.fine) // lines, groups - 1) * per
    first = np.floor(at).astype(np.int64) - (taps // 2 - 1 if taps > 1 else 0)
    first = np.clip(first, base, base + per - taps)
    places = at[:, None] - first[:, None]
    weights = np.ones((axis.fine, taps))
    for tap in range(taps):
        for other in range(taps):
            if other != tap:
                weights[:, tap] *= (places[:, 0] - other) / (tap - other)
    return Weights(first=first.astype(np.int32), weights=weights)


def interpolate_values(
    coarse: npt.NDArray[np.float32], rows: AxisMap, columns: AxisMap
) -> npt.NDArray[np.float32]:
    """Interpolate a smooth quantity (an angle far from its wrap), float32 in and out."""
    if rows.is_identity and columns.is_identity:
        return coarse
    along, across = axis_weights(rows), axis_weights(columns)
    return _apply(coarse.astype(np.float64), along, across).astype(np.float32)


def interpolate_positions(
    lat: Floats, lon: Floats, rows: AxisMap, columns: AxisMap
) -> tuple[Floats, Floats]:
    """Interpolate coarse latitude and longitude (degrees, NaN unknown) to (rows, columns).

    Longitudes come back in [-180, 180).
    """
    if rows.is_identity and columns.is_identity:
        return lat, lon
    along, across = axis_weights(rows), axis_weights(columns)
    out_lat = np.empty((rows.fine, columns.fine))
    out_lon = np.empty_like(out_lat)
    per = rows.coarse_group
    groups = rows.coarse // per
    lines = rows.fine if groups == 1 else rows.group
    for scan in range(groups):
        coarse = slice(scan * per, (scan + 1) * per)
        fine = slice(scan * lines, rows.fine if scan == groups - 1 else (scan + 1) * lines)
        part = Weights(first=along.first[fine] - scan * per, weights=along.weights[fine])
        out_lat[fine], out_lon[fine] = _scan_positions(lat[coarse], lon[coarse], part, across)
    return out_lat, out_lon


def _scan_positions(
    lat: Floats, lon: Floats, along: Weights, across: Weights
) -> tuple[Floats, Floats]:
    known = ~np.isnan(lat)
    if known.any() and np.abs(lat[known]).max() > POLAR_LATITUDE:
        return _through_vectors(lat, lon, along, across)
    reference = lon[known][0] if known.any() else 0.0
    unwrapped = (lon - reference + 540.0) % 360.0 - 180.0
    return _apply(lat, along, across), wrap(_apply(unwrapped, along, across) + reference)


def _through_vectors(
    lat: Floats, lon: Floats, along: Weights, across: Weights
) -> tuple[Floats, Floats]:
    phi, lam = np.radians(lat), np.radians(lon)
    x = _apply(np.cos(phi) * np.cos(lam), along, across)
    y = _apply(np.cos(phi) * np.sin(lam), along, across)
    z = _apply(np.sin(phi), along, across)
    return np.degrees(np.arctan2(z, np.hypot(x, y))), wrap(np.degrees(np.arctan2(y, x)))


def _apply(coarse: Floats, along: Weights, across: Weights) -> Floats:
    """Across first, on the few coarse lines; then along."""
    columns = np.zeros((coarse.shape[0], len(across.first)))
    for tap in range(across.taps):
        columns += coarse[:, across.first + tap] * across.weights[:, tap]
    out = np.zeros((len(along.first), columns.shape[1]))
    for tap in range(along.taps):
        out += columns[along.first + tap] * along.weights[:, tap, None]
    return out


def wrap(lon: Floats) -> Floats:
    """Longitudes brought into [-180, 180)."""
    return np.where((lon >= 180.0) | (lon < -180.0), (lon + 180.0) % 360.0 - 180.0, lon)
