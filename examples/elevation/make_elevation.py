"""Write made-up hills as a GeoTIFF: `make_elevation.py elevation.tif`.

It stands for a digital elevation model of your own: metres on a UTM grid of 500 m, with nodata
over the sea.
"""

import sys

import numpy as np
import rasterio
from rasterio import Affine

SIDE, COLUMNS, ROWS = 500.0, 300, 240
WEST, NORTH = 500_000.0, 5_650_000.0  # in EPSG:32631, near 3 degrees east, 51 degrees north


def main() -> None:
    row, column = np.mgrid[0:ROWS, 0:COLUMNS]
    hills = 400.0 + 300.0 * np.sin(column / 40.0) * np.cos(row / 30.0) + 0.5 * column
    metres = np.where(hills < 250.0, -9999.0, hills).astype(np.float32)
    profile = {
        "driver": "GTiff",
        "width": COLUMNS,
        "height": ROWS,
        "count": 1,
        "dtype": "float32",
        "nodata": -9999,
        "crs": "EPSG:32631",
        "transform": Affine(SIDE, 0.0, WEST, 0.0, -SIDE, NORTH),
        "compress": "deflate",
    }
    with rasterio.open(sys.argv[1], "w", **profile) as out:
        out.write(metres, 1)
        out.set_band_description(1, "elevation")
        out.set_band_unit(1, "m")


if __name__ == "__main__":
    main()
