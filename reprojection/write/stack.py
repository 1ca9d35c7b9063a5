"""Write a stack: a GeoTIFF whose bands are many planes of one grid, each to be read by itself.

It is read once or twice, soon after, by any program: so it is compressed, and quickly. Layout:
TIFF 6.0, BigTIFF where needed, tiles of 256 x 256, each band apart; DEFLATE with a predictor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rasterio.crs import CRS
from rasterio.enums import ColorInterp
from rasterio.io import MemoryFile
from rasterio.transform import Affine

from reprojection.grid.grids import Grid
from reprojection.read.raster import Pixels
from reprojection.write.tiff import write_planes


@dataclass(frozen=True, kw_only=True)
class StackBand:
    """A band of a stack: what it is called, and what its stored values mean."""

    name: str
    scale: float
    offset: float
    units: str


def write_stack(
    path: Path,
    planes: Iterable[Pixels],
    bands: Sequence[StackBand],
    grid: Grid,
    dtype: np.dtype[np.generic],
    nodata: float | int | None,
) -> None:
    """Write a plane for each of the bands, one after the other; of each only one is in memory."""
    profile = {
        "driver": "GTiff",
        "dtype": dtype.name,
        "count": len(bands),
        "crs": CRS.from_user_input(grid.crs),
        "transform": Affine(*grid.transform),
        "nodata": nodata,
        "photometric": "MINISBLACK",
    }
    with MemoryFile() as memory:
        with memory.open(**profile, width=1, height=1) as dataset:
            dataset.scales = [one.scale for one in bands]
            dataset.offsets = [one.offset for one in bands]
            dataset.units = [one.units for one in bands]
            dataset.colorinterp = [ColorInterp.gray] + [ColorInterp.undefined] * (len(bands) - 1)
            for number, one in enumerate(bands, 1):
                dataset.set_band_description(number, one.name)
        template = bytes(memory.getbuffer())
    with path.open("w+b") as file:
        write_planes(file, planes, len(bands), template)
