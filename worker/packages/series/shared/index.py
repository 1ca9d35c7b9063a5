"""Compute a vegetation index of reflectances: `index.py ndvi|evi INPUT_DIR OUTPUT_DIR`.

NDVI = (nir - red) / (nir + red). EVI = 2.5 (nir - red) / (nir + 6 red - 7.5 blue + 1), Huete et
al. (2002), Remote Sensing of Environment 83, 195-213. The index of each day is averaged over the
days of the group; with groups of a date it is that of the day. Reflectances outside -0.01 to 1.6
are left out, as MOD09's valid range says, and so are indices outside -1 to 1.
"""

import datetime as dt
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import Group, Layer, empty_pixels, raster, read_group, refuse

BANDS = {"red": "b01", "nir": "b02", "blue": "b03"}  # of MODIS land products
VALID = -0.01, 1.6


def chosen(group: Group, colour: str) -> Layer:
    """Return the layer of a colour: the one that a parameter names, else by MODIS' band."""
    named = group.parameters.get(colour, "")
    pattern = rf"(^|.*[._]){re.escape(named)}$" if named else rf".*_{BANDS[colour]}(_1)?$"
    found = [layer for layer in group.layers if re.fullmatch(pattern, layer.label)]
    if len(found) != 1:
        labels = ", ".join(layer.label for layer in group.layers)
        refuse(f"{len(found)} layers can be {colour}: name one of {labels} as `{colour}`")
    return found[0]


def index(red: np.ndarray, nir: np.ndarray, blue: np.ndarray | None) -> np.ndarray:
    """Return the index, NaN where it has no meaning."""
    for values in (red, nir, *([] if blue is None else [blue])):
        values[(values < VALID[0]) | (values > VALID[1])] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        if blue is None:
            found = (nir - red) / (nir + red)
        else:
            found = 2.5 * (nir - red) / (nir + 6 * red - 7.5 * blue + 1)
    found[~(np.abs(found) <= 1)] = np.nan
    return found


def main() -> None:
    """Write the index as one band."""
    name, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    group = read_group(source, target)
    colours = ("red", "nir") if name == "ndvi" else ("red", "nir", "blue")
    layers = [chosen(group, colour) for colour in colours]
    days = sorted(set.intersection(*(set(layer.days) for layer in layers)))
    if not days:
        refuse(f"no day has all of {', '.join(layer.label for layer in layers)}")
    with raster(group, f"{name}.tif", [f"{name} {group.window}"]) as write:
        for rows in group.blocks(6 * sum(len(layer.days) for layer in layers)):
            values = [_of_days(layer, layer.values(rows), days) for layer in layers]
            found = index(values[0], values[1], values[2] if len(values) > 2 else None)
            with empty_pixels():
                write(np.nanmean(found, axis=0)[np.newaxis], rows)


def _of_days(layer: Layer, values: np.ndarray, days: list[dt.date]) -> np.ndarray:
    return values[[layer.days.index(day) for day in days]]


if __name__ == "__main__":
    main()
