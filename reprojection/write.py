"""Rasters to Cloud Optimized GeoTIFF and back."""

from pathlib import Path
from typing import Literal

from reprojection.raster import Raster

Compression = Literal["deflate", "zstd", "none"]


def write_cog(
    raster: Raster, path: Path, *, overviews: bool = True, compress: Compression = "deflate"
) -> None:
    """Write a raster as a Cloud Optimized GeoTIFF. Equal rasters give equal bytes."""
    raise NotImplementedError


def read_raster(path: Path) -> Raster:
    """Read a raster that `write_cog` wrote, with its metadata."""
    raise NotImplementedError
