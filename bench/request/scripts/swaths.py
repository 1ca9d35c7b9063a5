"""Swaths onto a grid, a raster for each day: python swaths.py ARCHIVE OUT DEFLATE-LEVEL CORES."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # the days are shared out, one process for each core

import sys
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import rasterio
from pyhdf.SD import SD, SDC
from pyresample.geometry import AreaDefinition, SwathDefinition
from pyresample.kd_tree import resample_nearest

WEST, SOUTH, EAST, NORTH, STEP, FILL = -10.0, 0.0, 40.0, 35.0, 0.05, -9999
REACH_M = 12_000  # half the diagonal of a footprint at the edge of the swath
WIDTH, HEIGHT = round((EAST - WEST) / STEP), round((NORTH - SOUTH) / STEP)
AREA = AreaDefinition("a", "a", "a", "EPSG:4326", WIDTH, HEIGHT, (WEST, SOUTH, EAST, NORTH))


def one_day(day: str, archive: Path, out: Path, level: str) -> None:
    """Put all granules of a day onto the grid, each pixel from the nearest footprint."""
    parts: dict[str, list[np.ndarray]] = {}
    for path in sorted(archive.glob(f"MYD07_L2.{day}.*.hdf")):
        file = SD(str(path), SDC.READ)
        for name in ("Longitude", "Latitude", "Total_Ozone"):
            parts.setdefault(name, []).append(file.select(name).get())
        file.end()
    lon, lat, stored = (np.concatenate(found) for found in parts.values())
    made = resample_nearest(
        SwathDefinition(lon, lat), stored, AREA, REACH_M, fill_value=FILL, nprocs=1, epsilon=0
    )
    profile = {
        "driver": "COG",
        "count": 1,
        "dtype": "int16",
        "width": WIDTH,
        "height": HEIGHT,
        "crs": "EPSG:4326",
        "transform": rasterio.Affine(STEP, 0, WEST, 0, -STEP, NORTH),
        "nodata": FILL,
        "compress": "deflate",
        "level": level,
        "predictor": "yes",
        "overview_resampling": "average",
    }
    with rasterio.open(out / f"Total_Ozone.{day}.tif", "w", **profile) as dataset:
        dataset.write(made, 1)


if __name__ == "__main__":
    archive, out, level, cores = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    days = sorted({path.name.split(".")[1] for path in archive.glob("MYD07_L2.A2012*.hdf")})
    with Pool(int(cores)) as pool:
        pool.map(partial(one_day, archive=archive, out=out, level=level), days, chunksize=1)
