"""Each layer's last day as stored, and beside it how many bands say so; all kinds of layers."""

import json
import sys
from pathlib import Path

import numpy as np
import rasterio

source, target = Path(sys.argv[1]), Path(sys.argv[2])
bands = json.loads((source / "manifest.json").read_text("utf-8"))["bands"]
lines = ["layer,date,kind,role,file"]
last = {band["file"]: band for band in bands}
for band in bands:
    for one in [{"role": "data", **band}, *band["further"]]:
        with rasterio.open(source / one["file"]) as stack:
            stack.read(one["band"])
        lines.append(f"{band['layer']},{band['date']},{band['kind']},{one['role']},{one['file']}")
for file, band in last.items():
    with rasterio.open(source / file) as stack:
        profile = {**stack.profile, "driver": "GTiff", "count": 2}
        values = stack.read(band["band"])
        scale, offset, unit = stack.scales[0], stack.offsets[0], stack.units[0]
    with rasterio.open(target / f"{Path(file).stem}_last.tif", "w", **profile) as out:
        out.write(values, 1)
        out.write(np.full_like(values, band["band"]), 2)
        out.scales, out.offsets, out.units = (scale, 1.0), (offset, 0.0), (unit or "", "")
        out.descriptions = (f"last, {band['date']}", "number of days")
(target / "table.csv").write_text("\n".join(lines) + "\n", "utf-8")
