"""Interpolate coarse geolocation onto finer pixels, scan by scan.

Each axis is a small table of Lagrange weights: up to four
coarse elements for each fine one, never from another scan. Latitude and longitude are interpolated
as unwrapped degrees; scans that come within 20 degrees of a pole are interpolated as 3-D vectors,
because degrees vary too strongly there.
"""

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reprojection.kernels import kernels

POLAR_LATITUDE = 70.0
MAX_TAPS = 4

Floats = npt.NDArray[np.float64]
Positions = tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]


@dataclass(frozen=True, kw_only=True)
class AxisMap:
    """One axis: coarse element i lies on fine element `offset + increment * i`.

    `group` is the number of fine elements interpolated together (a scan's lines; for columns, all).
    A negative increment means, in HDF-EOS, that the geolocation is finer than the data.
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
        """Coarse elements per group; all of them if groups do not divide evenly."""
        if self.increment < 0:
            return self.coarse
        per = self.group // self.increment
        even = per * self.increment == self.group and self.fine % self.group == 0
        if not even or per < 2 or self.coarse != self.fine // self.group * per:
            return self.coarse
        return per

    @property
    def scans(self) -> tuple[int, int, int]:
        """(coarse elements per group, groups, fine elements per group)."""
        per = self.coarse_group
        groups = self.coarse // per
        return per, groups, self.fine if groups == 1 else self.group


@dataclass(frozen=True, kw_only=True)
class Weights:
    """For every fine element, the first of its `taps` coarse elements, and their weights."""

    first: npt.NDArray[np.int32]
    weights: Floats

    @property
    def taps(self) -> int:
        return int(self.weights.shape[1])


def axis_weights(axis: AxisMap) -> Weights:
    """Compute the Lagrange weights of an axis, shape (fine, taps); they extrapolate at the ends."""
    step = float(axis.increment) if axis.increment > 0 else 1.0 / -axis.increment
    at = (np.arange(axis.fine, dtype=np.float64) - axis.offset) / step
    per, groups, lines = axis.scans
    taps = min(MAX_TAPS, per)
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
    return apply(coarse.astype(np.float64), along, across).astype(np.float32)


def interpolate_positions(
    lat: Floats, lon: Floats, rows: AxisMap, columns: AxisMap, out: Positions | None = None
) -> Positions:
    """Interpolate coarse latitude and longitude (degrees, NaN unknown) to (rows, columns).

    Longitudes are returned in [-180, 180]. `out` may hold two C-contiguous arrays of that shape to
    write into, both float64 or both float32 (rounded from the float64 result; error at most 0.9 m).
    """
    if rows.is_identity and columns.is_identity and out is None:
        return lat, lon
    along, across = axis_weights(rows), axis_weights(columns)
    if out is None:
        shape = (rows.fine, columns.fine)
        out = np.empty(shape), np.empty(shape)
    _fill(lat, lon, rows, along, across, out)
    return out


_KERNEL_TYPES = (
    *(ctypes.c_void_p,) * 2,
    *(ctypes.c_int64,) * 6,
    *(ctypes.c_void_p,) * 2,
    ctypes.c_int64,
    *(ctypes.c_void_p,) * 2,
    ctypes.c_int64,
    ctypes.c_double,
    ctypes.c_void_p,
    ctypes.c_int32,
    *(ctypes.c_void_p,) * 2,
)


def _fill(
    lat: Floats, lon: Floats, rows: AxisMap, along: Weights, across: Weights, out: Positions
) -> None:
    kernel = kernels.function("swathmill_geolocate", _KERNEL_TYPES)
    room = kernels.function("swathmill_geolocate_scratch", (ctypes.c_int64,) * 3, ctypes.c_int64)
    per, groups, lines = rows.scans
    columns, coarse_columns = len(across.first), lat.shape[1]
    for array in out:
        if array.shape != (rows.fine, columns) or not array.flags.c_contiguous:
            raise ValueError(f"out must be C-contiguous arrays of shape {(rows.fine, columns)}")
    if {array.dtype for array in out} not in ({np.dtype("f8")}, {np.dtype("f4")}):
        raise ValueError("out must be two float64 or two float32 arrays")
    lat, lon = np.ascontiguousarray(lat), np.ascontiguousarray(lon)
    scratch = np.empty(room(coarse_columns, columns, per))
    at = kernels.address
    kernel(
        *(at(lat), at(lon)),
        *(groups, per, coarse_columns, rows.fine, columns, lines),
        *(at(along.first), at(along.weights), along.taps),
        *(at(across.first), at(across.weights), across.taps),
        POLAR_LATITUDE,
        *(at(scratch), int(out[0].dtype == np.float32), at(out[0]), at(out[1])),
    )


def apply(coarse: Floats, along: Weights, across: Weights) -> Floats:
    """Interpolate across first, on the few coarse lines, then along."""
    columns = np.zeros((coarse.shape[0], len(across.first)))
    for tap in range(across.taps):
        columns += coarse[:, across.first + tap] * across.weights[:, tap]
    out = np.zeros((len(along.first), columns.shape[1]))
    for tap in range(along.taps):
        out += columns[along.first + tap] * along.weights[:, tap, None]
    return out
