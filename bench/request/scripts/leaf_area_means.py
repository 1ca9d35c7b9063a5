"""Monthly means of the rasters of leaf_area.sh: python leaf_area_means.py OUT DEFLATE-LEVEL."""

import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import rasterio

out, level = Path(sys.argv[1]), sys.argv[2]
for layer, scale in (("Lai_1km", 0.1), ("Fpar_1km", 0.01)):
    months: dict[str, list[Path]] = {}
    for path in sorted(out.glob(f"{layer}.A*.tif")):
        day = datetime.strptime(path.name.split(".")[1], "A%Y%j")
        months.setdefault(f"{day:%Y-%m}", []).append(path)
    for month, paths in months.items():
        total: np.ndarray = np.zeros(1)
        count: np.ndarray = np.zeros(1)
        for path in paths:
            with rasterio.open(path) as dataset:
                stored, profile = dataset.read(1), dataset.profile
            valid = stored <= 100  # above it are codes: water, urban, fill
            total = total + np.where(valid, stored, 0)
            count = count + valid
        with np.errstate(invalid="ignore"):
            mean = np.where(count > 0, scale * total / count, np.nan).astype(np.float32)
        for key in ("blockxsize", "blockysize", "tiled", "interleave"):
            profile.pop(key, None)
        profile |= {"driver": "COG", "dtype": "float32", "nodata": np.nan}
        profile |= {"compress": "deflate", "level": level, "overview_resampling": "average"}
        with rasterio.open(out / f"{layer}_mean.{month}.tif", "w", **profile) as made:
            made.write(mean, 1)
