"""Positions of fine pixels in plain numpy: those of csrc/geolocation.c."""

import numpy as np

from reprojection.read.interpolation import POLAR_LATITUDE, AxisMap, Floats, Weights, apply


def positions_in_numpy(
    lat: Floats, lon: Floats, rows: AxisMap, along: Weights, across: Weights
) -> tuple[Floats, Floats]:
    """Interpolate positions in numpy: the reference that the C kernel must equal."""
    out_lat = np.empty((rows.fine, len(across.first)))
    out_lon = np.empty_like(out_lat)
    per, groups, lines = rows.scans
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
    return apply(lat, along, across), wrap(apply(unwrapped, along, across) + reference)


def _through_vectors(
    lat: Floats, lon: Floats, along: Weights, across: Weights
) -> tuple[Floats, Floats]:
    phi, lam = np.radians(lat), np.radians(lon)
    x = apply(np.cos(phi) * np.cos(lam), along, across)
    y = apply(np.cos(phi) * np.sin(lam), along, across)
    z = apply(np.sin(phi), along, across)
    return np.degrees(np.arctan2(z, np.hypot(x, y))), wrap(np.degrees(np.arctan2(y, x)))


def wrap(lon: Floats) -> Floats:
    """Wrap longitudes into [-180, 180)."""
    return np.where((lon >= 180.0) | (lon < -180.0), (lon + 180.0) % 360.0 - 180.0, lon)
