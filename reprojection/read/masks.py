"""Look values up in tables of all values, and fill pixels that are empty."""

import ctypes

import numpy as np
import numpy.typing as npt

from reprojection.kernels import kernels
from reprojection.kernels.kernels import address

Array = npt.NDArray[np.generic]
Reasons = npt.NDArray[np.uint8]

_LOOK_UP: list[kernels.CType] = [
    *(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64),
    *(ctypes.c_void_p, ctypes.c_void_p),
]
_JOIN: list[kernels.CType] = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
_FILL: list[kernels.CType] = [
    *(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p),
    *(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p),
]


def look_up(values: Array, table: Reasons) -> Reasons:
    """Return what a table says of each value.

    Values are of 1 or 2 bytes; the table has an entry for each such value, taken as unsigned.
    """
    held = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    work = kernels.function("mask_look_up", _LOOK_UP, ctypes.c_int32)
    out = np.empty(values.shape, np.uint8)
    work(held.itemsize, address(held), held.size, address(table), address(out))
    return out


def join(also: Reasons, why: Reasons) -> None:
    """Set `why` to `also` where it is 0; both are contiguous and of one shape."""
    work = kernels.function("mask_join", _JOIN)
    work(address(also), also.size, address(why))


def filled(values: Array, why: Reasons, wanted: int, fill: float | int) -> Array:
    """Copy pixels, with `fill` where `why` is not `wanted`; the result is contiguous."""
    work = kernels.function("mask_fill", _FILL, ctypes.c_int32)
    held, empty = np.ascontiguousarray(values), np.array([fill]).astype(values.dtype)
    reasons, out = np.ascontiguousarray(why), np.empty(values.shape, values.dtype)
    about = (held.itemsize, address(held), held.size, address(reasons), wanted)
    work(*about, address(empty), address(out))
    return out
