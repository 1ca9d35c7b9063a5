"""Compute the Theil-Sen slope of each layer: `theil_sen.py INPUT_DIR OUTPUT_DIR`.

Of n dates each pixel has n (n - 1) / 2 slopes, so a long series takes long. The rows that are done
are kept in $SWATHMILL_CHECKPOINT, one file a layer. A run that is ended in the midst goes on behind
them, on whichever machine, and makes the same bytes.
"""

# ruff: noqa: T201 - a package prints to the log of its run

import json
import os
import sys
from datetime import date
from pathlib import Path

import numpy as np
import rasterio
from rasterio.windows import Window

ROWS = 16


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    kept = Path(os.environ["SWATHMILL_CHECKPOINT"])
    bands = json.loads((source / "manifest.json").read_text("utf-8"))["bands"]
    for file in dict.fromkeys(band["file"] for band in bands):
        days = {
            band["band"]: date.fromisoformat(band["date"]).toordinal()
            for band in bands
            if band["file"] == file
        }
        name = Path(file).stem
        with rasterio.open(source / file) as stack:
            slopes = of_stack(stack, days, kept / f"{name}.npy")
            profile = {**stack.profile, "driver": "GTiff", "count": 1, "dtype": "float32"}
            profile.update(nodata=np.nan, predictor=3)
        with rasterio.open(target / f"{name}_slope.tif", "w", **profile) as out:
            out.write(slopes, 1)


def of_stack(stack: rasterio.DatasetReader, days: dict[int, int], kept: Path) -> np.ndarray:
    """Compute the slopes by day of all rows, the first of which may be in the file `kept`."""
    done = np.load(kept) if kept.exists() else np.empty((0, stack.width), np.float32)
    if len(done):
        print(f"{stack.name}: {len(done)} of {stack.height} rows were done")
    for row in range(len(done), stack.height, ROWS):
        block = Window(0, row, stack.width, min(ROWS, stack.height - row))
        values = [physical(stack, band, block) for band in days]
        done = np.concatenate([done, slope(np.array(values), np.array([*days.values()]))])
        keep(done, kept)
        print(f"{stack.name}: {len(done)} of {stack.height} rows")
    return done


def physical(stack: rasterio.DatasetReader, band: int, block: Window) -> np.ndarray:
    """Read a block of a band in its units, NaN where it has no value."""
    stored = stack.read(band, window=block, masked=True).astype(np.float64)
    return (stored * stack.scales[band - 1] + stack.offsets[band - 1]).filled(np.nan)


def slope(values: np.ndarray, days: np.ndarray) -> np.ndarray:
    """Return the median of the slopes of all pairs of dates, NaN where there is no pair."""
    first, last = np.triu_indices(len(days), 1)
    apart = (days[last] - days[first]).astype(np.float64)
    apart[apart == 0] = np.nan
    slopes = (values[last] - values[first]) / apart[:, None, None]
    found = np.full(values.shape[1:], np.nan, np.float32)
    some = np.isfinite(slopes).any(axis=0)
    found[some] = np.nanmedian(slopes[:, some], axis=0)
    return found


def keep(done: np.ndarray, kept: Path) -> None:
    """Replace the file of what is done by renaming: whenever this ends, one of them is whole."""
    half = kept.with_name(f".{kept.name}")
    with half.open("wb") as file:
        np.save(file, done)
    half.replace(kept)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    main()
