"""Compute the weighted monthly mean of each layer: `monthly_mean.py INPUT_DIR OUTPUT_DIR`.

INPUT_DIR holds manifest.json and one GeoTIFF per layer with one band per day. For each layer
OUTPUT_DIR gets `<layer>_mean.tif`: one float32 band in physical units, NaN where no day has a
value. A date counts with its `weight` in the manifest: the days of a composite in the month.
The file is read in blocks of rows, so memory does not grow with the raster or the number of days.
"""
# ruff: noqa: T201 - a package prints to the attempt's log, which its owner reads

import json
import sys
from pathlib import Path

import numpy as np
import rasterio
from rasterio.windows import Window

ROWS = 256  # as high as the blocks of the stacks


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    manifest = json.loads((source / "manifest.json").read_text("utf-8"))
    for file in dict.fromkeys(band["file"] for band in manifest["bands"]):
        weights = {b["band"]: b["weight"] for b in manifest["bands"] if b["file"] == file}
        name = f"{Path(file).stem}_mean.tif"
        weighted_mean(source / file, target / name, weights, manifest["window"])
        print(f"{file}: mean of {len(weights)} dates, weights {sorted(set(weights.values()))}")


def weighted_mean(source: Path, target: Path, weights: dict[int, float], month: str) -> None:
    first = min(weights)
    with rasterio.open(source) as stack:
        profile = {
            "driver": "GTiff",
            "dtype": "float32",
            "count": 1,
            "nodata": float("nan"),
            "width": stack.width,
            "height": stack.height,
            "crs": stack.crs,
            "transform": stack.transform,
            "tiled": True,
            "blockxsize": 256,
            "blockysize": 256,  # not compressed: it is read once, and made a raster of the results
        }
        with rasterio.open(target, "w", **profile) as out:
            out.set_band_description(1, f"{source.stem} mean {month}")
            if stack.units[first - 1]:
                out.set_band_unit(1, stack.units[first - 1])
            for row in range(0, stack.height, ROWS):
                rows = Window(0, row, stack.width, min(ROWS, stack.height - row))
                out.write(block_mean(stack, weights, rows), 1, window=rows)


def block_mean(
    stack: rasterio.DatasetReader, weights: dict[int, float], rows: Window
) -> np.ndarray:
    total = np.zeros((int(rows.height), int(rows.width)))
    weight, value = np.zeros(total.shape), np.empty(total.shape)
    for band, own in sorted(weights.items()):
        stored = stack.read(band, window=rows)
        valid = np.not_equal(stored, np.nan if stack.nodata is None else stack.nodata)
        np.multiply(stored, stack.scales[band - 1], out=value, dtype=np.float64)
        value += stack.offsets[band - 1]
        if stored.dtype.kind == "f":
            valid &= np.isfinite(value)
            value[~valid] = 0.0
        value *= own
        value *= valid
        total += value
        weight += np.multiply(valid, own, out=value)
    result = np.full(total.shape, np.nan, np.float32)
    np.divide(total, weight, out=result, where=weight > 0, casting="same_kind")
    return result


if __name__ == "__main__":
    main()
