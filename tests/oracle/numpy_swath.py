"""The swath search in numpy: the same indices as kernels/csrc/swath.c, many times slower.

Footprints are sorted into cubes of space as wide as the largest radius; every footprint that can
reach a target lies in the target's cube or one of the 26 around it.
"""

import numpy as np
import numpy.typing as npt

from reprojection.grid.sphere import unit_vectors

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int32]

_TARGETS_AT_ONCE = 1 << 16


def squared_radii(x: Floats, y: Floats, z: Floats, scan_lines: int, cap: float) -> Floats:
    """Compute squared footprint radii (chords of the unit sphere), shape (rows, columns)."""
    across = np.full(x.shape, -1.0)
    along = np.full(x.shape, -1.0)
    step = (np.diff(x, axis=1) ** 2 + np.diff(y, axis=1) ** 2) + np.diff(z, axis=1) ** 2
    across[:, :-1] = np.fmax(across[:, :-1], step)
    across[:, 1:] = np.fmax(across[:, 1:], step)
    step = (np.diff(x, axis=0) ** 2 + np.diff(y, axis=0) ** 2) + np.diff(z, axis=0) ** 2
    if scan_lines > 1:
        step[scan_lines - 1 :: scan_lines] = np.nan
    along[:-1] = np.fmax(along[:-1], step)
    along[1:] = np.fmax(along[1:], step)
    a = np.where(across < 0.0, along, across)
    b = np.where(along < 0.0, across, along)
    return np.asarray(np.clip((a + b) * 0.25, 0.0, cap * cap))


def nearest_in_numpy(
    lat: Floats,
    lon: Floats,
    scan_lines: int,
    cap: float,
    target_lat: Floats,
    target_lon: Floats,
    candidates: Bools | None = None,
) -> Index:
    """Find the footprint each target sees, or -1: see `reprojection.warp.swath.nearest`."""
    x, y, z = unit_vectors(lat, lon)
    radii = squared_radii(x, y, z, scan_lines, cap).ravel()
    points = np.stack([x.ravel(), y.ravel(), z.ravel()])
    usable = np.isfinite(points[0])
    if candidates is not None:
        usable &= candidates.ravel()
    ids = np.flatnonzero(usable)
    shape = np.broadcast_shapes(target_lat.shape, target_lon.shape)
    out = np.full(shape, -1, np.int32)
    reach = float(np.sqrt(radii[ids].max(initial=0.0)))
    if reach == 0.0:
        return out
    side = max(reach * 1.000001, 2e-6)  # a key has 21 bits for each axis
    cubes = _cube(points[:, ids], side)
    order = np.argsort(_key(cubes), kind="stable")
    ids, keys = ids[order], _key(cubes)[order]
    rows_at_once = max(1, _TARGETS_AT_ONCE // shape[1])
    for first in range(0, shape[0], rows_at_once):
        part = slice(first, first + rows_at_once)
        part_lat = target_lat[part] if target_lat.shape[0] > 1 else target_lat
        part_lon = target_lon[part] if target_lon.shape[0] > 1 else target_lon
        vectors = np.stack(np.broadcast_arrays(*unit_vectors(part_lat, part_lon)))
        found = _search(vectors.reshape(3, -1), points, radii, ids, keys, side)
        out[part] = found.reshape(out[part].shape)
    return out


def _cube(points: Floats, side: float) -> npt.NDArray[np.int64]:
    return np.floor((points + 1.0) / side).astype(np.int64) + 1


def _key(cube: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.asarray((cube[0] << 42) + (cube[1] << 21) + cube[2])


def _search(
    targets: Floats,
    points: Floats,
    radii: Floats,
    ids: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int64],
    side: float,
) -> Index:
    known = np.flatnonzero(np.isfinite(targets[0]))
    best = np.full(targets.shape[1], np.inf)
    who = np.full(targets.shape[1], -1, np.int64)
    cubes = _cube(targets[:, known], side)
    for offset in np.ndindex(3, 3, 3):
        around = _key(cubes + (np.array(offset)[:, None] - 1))
        start = np.searchsorted(keys, around, "left")
        left = np.searchsorted(keys, around, "right") - start
        step = 0
        active = np.flatnonzero(left > 0)
        while active.size:
            seen = ids[start[active] + step]
            at = known[active]
            d = (points[:, seen] - targets[:, at]) ** 2
            distance = (d[0] + d[1]) + d[2]
            nearer = distance < best[at]
            nearer |= (distance == best[at]) & (seen < who[at])
            best[at[nearer]] = distance[nearer]
            who[at[nearer]] = seen[nearer]
            step += 1
            active = active[left[active] > step]
    reached = who >= 0
    reached[reached] = best[reached] <= radii[who[reached]]
    return np.where(reached, who, -1).astype(np.int32)
