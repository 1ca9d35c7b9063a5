"""Averages of overviews in plain numpy: those of the compiled kernel."""

import numpy as np
import numpy.typing as npt

from reprojection.read.raster import Pixels


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
