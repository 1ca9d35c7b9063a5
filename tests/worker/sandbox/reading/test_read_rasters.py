"""A package's raster, at the bounds of what is read of one."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.transform import Affine

from worker.sandbox.reading.read_rasters import (
    _LONGEST_TEXT,
    MOST_BANDS,
    Opening,
    RefusedError,
    Wanted,
)

SIDE = 0.5


def raster(path: Path, bands: int, units: str = "") -> Path:
    shape = {"width": 1, "height": 1, "count": bands, "dtype": "float32", "crs": "EPSG:4326"}
    transform = Affine(SIDE, 0, 10, 0, -SIDE, 50)
    with rasterio.open(path, "w", driver="GTiff", **shape, transform=transform) as out:
        out.write(np.zeros((bands, 1, 1), np.float32))
        if units:
            out.units = (units,) * bands
            out.descriptions = (units,) * bands
    return path


def wanted(most_bytes: int = 10**6) -> Wanted:
    transform = (SIDE, 0.0, 10.0, 0.0, -SIDE, 50.0)
    return Wanted(
        names=(), crs="EPSG:4326", transform=transform, width=1, height=1, most_bytes=most_bytes
    )


def test_a_raster_has_so_many_bands_at_most(tmp_path: Path) -> None:
    with Opening(raster(tmp_path / "a.tif", MOST_BANDS), wanted()) as (_, said):
        assert len(said.bands) == 1000
    with (
        pytest.raises(RefusedError, match="has 1001 bands; 1000 are the most"),
        Opening(raster(tmp_path / "b.tif", MOST_BANDS + 1), wanted()),
    ):
        pass


def test_a_raster_has_so_many_bytes_of_pixels_and_of_texts(tmp_path: Path) -> None:
    path = raster(tmp_path / "a.tif", 2, "u" * 300)
    with Opening(path, wanted(8)) as (_, said):
        assert (len(said.units), len(said.bands[1])) == (_LONGEST_TEXT, 200)
    with pytest.raises(RefusedError, match="of pixels, "), Opening(path, wanted(7)):
        pass
