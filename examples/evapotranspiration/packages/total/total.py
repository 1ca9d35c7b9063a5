"""Sum each layer over the dates of a group: `total.py INPUT_DIR OUTPUT_DIR`.

For each layer OUTPUT_DIR gets `<layer>_sum.tif`, the sum of the values that are there, each times
its share, and `<layer>_dates.tif`, how many dates have a value. A pixel without any has no sum.
"""
# ruff: noqa: T201 - a package prints to the attempt's log, which its owner reads

import json
import sys
from pathlib import Path

import numpy as np
import rasterio


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    manifest = json.loads((source / "manifest.json").read_text("utf-8"))
    for file in dict.fromkeys(band["file"] for band in manifest["bands"]):
        bands = [band for band in manifest["bands"] if band["file"] == file]
        with rasterio.open(source / file) as stack:
            total = np.zeros(stack.shape)
            dates = np.zeros(stack.shape, np.int16)
            for band in bands:
                number = band["band"]
                stored = stack.read(number, masked=True).astype(np.float64)
                value = stored * stack.scales[number - 1] + stack.offsets[number - 1]
                there = ~np.ma.getmaskarray(value) & np.isfinite(value.data)
                total[there] += band["share"] * value.data[there]
                dates += there
            total[dates == 0] = np.nan
            profile, unit = dict(stack.profile), stack.units[0]
        profile.update(driver="GTiff", count=1)
        stem = Path(file).stem
        sums = profile | {"dtype": "float32", "nodata": np.nan, "predictor": 3}
        with rasterio.open(target / f"{stem}_sum.tif", "w", **sums) as out:
            out.write(total.astype(np.float32), 1)
            if unit:
                out.set_band_unit(1, unit)
        counts = profile | {"dtype": "int16", "nodata": 0, "predictor": 2}
        with rasterio.open(target / f"{stem}_dates.tif", "w", **counts) as out:
            out.write(dates, 1)
        print(f"{file}: {len(bands)} dates")


if __name__ == "__main__":
    main()
