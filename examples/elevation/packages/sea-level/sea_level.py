"""Bring surface temperature to sea level: `sea_level.py INPUT_DIR OUTPUT_DIR`.

The temperature of a day is raised by 6.5 K for each 1,000 m of elevation, the lapse rate of the
International Standard Atmosphere (ISO 2533:1975). Elevation is a raster of no date, so each day has
the same one.
"""

import json
import sys
from pathlib import Path

import numpy as np
import rasterio

LAPSE = 0.0065  # K/m


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    bands = json.loads((source / "manifest.json").read_text("utf-8"))["bands"]
    elevation = next(band for band in bands if band["product"] == "raster:elevation")
    (temperature,) = [band for band in bands if band["product"] != "raster:elevation"]
    kelvin, profile = physical(source, temperature)
    metres, _ = physical(source, elevation)
    profile.update(driver="GTiff", count=1, dtype="float32", nodata=np.nan, predictor=3)
    with rasterio.open(target / "sea_level.tif", "w", **profile) as out:
        out.write((kelvin + LAPSE * metres).astype(np.float32), 1)
        out.set_band_unit(1, "K")


def physical(folder: Path, band: dict) -> tuple[np.ndarray, dict]:
    """Read a band in its units, NaN where it has no value; and the file's profile."""
    with rasterio.open(folder / band["file"]) as stack:
        stored = stack.read(band["band"], masked=True).astype(np.float64)
        return (stored * band["scale"] + band["offset"]).filled(np.nan), dict(stack.profile)


if __name__ == "__main__":
    main()
