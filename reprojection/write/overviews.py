"""Make overviews of a raster by repeated halving: averaged or picked, by the band's content."""

import ctypes

import numpy as np

from reprojection.errors import ChoiceRefusedError
from reprojection.kernels import kernels
from reprojection.kernels.kernels import address
from reprojection.read.raster import Pixels

_TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64")


def picked(plane: Pixels) -> Pixels:
    """Take every second pixel of every second row: a value that occurs, for classes and indices."""
    return np.ascontiguousarray(plane[::2, ::2])


def averaged(plane: Pixels, nodata: float | int | None) -> Pixels:
    """Average the pixels with a value in each 2 x 2 block, in the plane's type.

    Blocks without a value become nodata. Means of whole numbers are rounded half up, and moved by
    one if they would equal nodata; other means are moved to the next number.
    """
    if plane.dtype.name not in _TYPES:
        raise ChoiceRefusedError(f"{plane.dtype} has no overviews; convert to one of {_TYPES}")
    halve = kernels.function(
        "halve",
        [
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_int32,
            ctypes.c_void_p,
        ],
        ctypes.c_int32,
    )
    rows, cols = plane.shape
    held = np.ascontiguousarray(plane)
    empty = np.array([0 if nodata is None else nodata], plane.dtype)
    out = np.empty(((rows + 1) // 2, (cols + 1) // 2), plane.dtype)
    number = _TYPES.index(plane.dtype.name)
    known = int(nodata is not None)
    halve(number, address(held), rows, cols, address(empty), known, address(out))
    return out
