"""Compose the days with the greatest value of one layer: `greenest.py INPUT_DIR OUTPUT_DIR`.

At each pixel the day is taken on which the layer `by` has its maximum (Holben 1986, International
Journal of Remote Sensing 7, 1417-1434), the first of equal ones, and with it the values of all
layers on that day. `day_of_maximum.tif` has its day of the year.
"""

import sys
from pathlib import Path

import numpy as np
from rasterio.windows import Window

sys.path.insert(0, str(Path(__file__).parent))
from series import Group, Layer, raster, read_group, refuse


def driver(group: Group) -> Layer:
    """Return the layer that the parameter `by` names, else one of NDVI, else the first."""
    named = group.parameters.get("by", "")
    labels = [layer.label for layer in group.layers]
    if named and named not in labels:
        refuse(f"there is no layer {named!r}; `by` should be one of {', '.join(labels)}")
    found = [layer for layer in group.layers if layer.label == named or "NDVI" in layer.label]
    return next((layer for layer in found if layer.label == named), (found or group.layers)[0])


def main() -> None:
    """Write a band for each layer, and the day of the maximum."""
    group = read_group(Path(sys.argv[1]), Path(sys.argv[2]))
    by = driver(group)
    print(f"by the maximum of {by.label}")
    numbers = np.array([day.timetuple().tm_yday for day in by.days], float)
    for layer in group.layers:
        with raster(
            group, f"{layer.label}_mvc.tif", [f"{layer.label} {group.window}"], layer.units
        ) as write:
            for rows in group.blocks(3 * (len(by.days) + len(layer.days))):
                write(_picked(layer, by, rows)[np.newaxis], rows)
    with raster(group, "day_of_maximum.tif", [f"day of the year {group.window}"]) as write:
        for rows in group.blocks(2 * len(by.days)):
            best, valid = _best(by, rows)
            write(np.where(valid, numbers[best], np.nan)[np.newaxis], rows)


def _best(by: Layer, rows: Window) -> tuple[np.ndarray, np.ndarray]:
    values = by.values(rows)
    return np.nan_to_num(values, nan=-np.inf).argmax(axis=0), np.isfinite(values).any(axis=0)


def _picked(layer: Layer, by: Layer, rows: Window) -> np.ndarray:
    best, valid = _best(by, rows)
    at = np.array([layer.days.index(day) if day in layer.days else -1 for day in by.days])[best]
    values = layer.values(rows)
    found = np.take_along_axis(values, np.maximum(at, 0)[np.newaxis], axis=0)[0]
    return np.where(valid & (at >= 0), found, np.nan)


if __name__ == "__main__":
    main()
