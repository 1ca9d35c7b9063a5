"""Make overviews of a raster by repeated halving: averaged or picked, by the band's content."""

import ctypes

import numpy as np
import numpy.typing as npt

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
    if not kernels.available() or plane.dtype.name not in _TYPES:
        return averaged_in_numpy(plane, nodata)
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
    if halve is None:
        raise RuntimeError("the C kernels vanished after they were found")
    rows, cols = plane.shape
    held = np.ascontiguousarray(plane)
    empty = np.array([0 if nodata is None else nodata], plane.dtype)
    out = np.empty(((rows + 1) // 2, (cols + 1) // 2), plane.dtype)
    number = _TYPES.index(plane.dtype.name)
    known = int(nodata is not None)
    halve(number, address(held), rows, cols, address(empty), known, address(out))
    return out


def averaged_in_numpy(plane: Pixels, nodata: float | int | None) -> Pixels:
    """Do the same as `averaged`, slowly."""
    rows, cols = plane.shape
    down, across = (rows + 1) // 2, (cols + 1) // 2
    padded: npt.NDArray[np.float64] = np.full((2 * down, 2 * across), np.nan)
    padded[:rows, :cols] = plane
    if nodata is not None and not np.isnan(nodata):
        padded[padded == nodata] = np.nan
    four = padded.reshape(down, 2, across, 2).transpose(1, 3, 0, 2).reshape(4, down, across)
    known = ~np.isnan(four)
    count = known.sum(axis=0)
    total = np.zeros((down, across))
    for part, use in zip(four, known, strict=True):
        total += np.where(use, part, 0.0)
    exact = total / np.maximum(count, 1)
    if plane.dtype.kind == "f":
        mean = exact.astype(plane.dtype)
        if nodata is not None:
            empty = plane.dtype.type(nodata)
            aside = np.nextafter(empty, plane.dtype.type(0 if empty else 1))
            mean = np.where(mean == empty, aside, mean)
    else:
        mean = np.floor(exact + 0.5)
        if nodata is not None:
            mean = np.where(mean == nodata, mean + np.where(exact < mean, -1, 1), mean)
    out = np.full((down, across), 0 if nodata is None else nodata, plane.dtype)
    out[count > 0] = mean[count > 0].astype(plane.dtype)
    return out
