"""The mean of each layer over the days of a group: `mean_of_days.py INPUT_DIR OUTPUT_DIR`."""

import json
import sys
from pathlib import Path

import numpy as np
import rasterio

source, target = Path(sys.argv[1]), Path(sys.argv[2])
manifest = json.loads((source / "manifest.json").read_text())
parameters = json.loads((source / "parameters.json").read_text())
least = float(parameters.get("least", "-inf"))

for file in sorted({band["file"] for band in manifest["bands"]}):
    with rasterio.open(source / file) as stack:
        total = np.zeros(stack.shape)
        count = np.zeros(stack.shape, int)
        for band in stack.indexes:
            stored = stack.read(band)
            value = stored * stack.scales[band - 1] + stack.offsets[band - 1]
            valid = (stored != stack.nodata) & (value >= least)
            total[valid] += value[valid]
            count += valid
        profile = stack.profile | {"count": 1, "dtype": "float32", "nodata": np.nan, "predictor": 3}
    mean = np.full(total.shape, np.nan, "float32")
    mean[count > 0] = total[count > 0] / count[count > 0]
    name = f"{Path(file).stem}_mean.tif"
    with rasterio.open(target / name, "w", **profile) as out:
        out.write(mean, 1)
    sys.stdout.write(f"{name}: {(count > 0).mean():.0%} of the pixels have a value\n")
