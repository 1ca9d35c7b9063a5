"""Adjust layers of several sensors to one of them: `bridge.py INPUT_DIR OUTPUT_DIR`.

At each pixel the dates on which both a layer and the reference have a value are paired; a date is
the first day of a composite, so sensors that begin on other days have no pairs. `LAYER_bridge.tif`
says of the pairs their number, the mean of layer less reference, its root mean square, the
correlation, and the line by which the layer is adjusted: slope * value + offset. With the parameter
`method` "offset" the slope is 1 and the offset the negative mean; with "linear" both are by least
squares of the reference on the layer; with "none" they are 1 and 0. `bridged.tif` has a band for
each date: of the first layer, in the order of the group, that has it, adjusted. A pixel with fewer
pairs than `least` has no line, and no values of that layer.
"""

import datetime as dt
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import Group, Layer, empty_pixels, raster, read_group, refuse
from series import Window as Rows

NAMES = ["pairs", "bias", "root mean square difference", "correlation", "slope", "offset"]


def reference_of(group: Group) -> Layer:
    """Return the layer to which the others are adjusted."""
    kinds = {layer.label.rpartition(".")[2] for layer in group.layers}
    if len(kinds) > 1:
        refuse(
            f"the layers are {', '.join(sorted(kinds))}; a bridge is of one, so name it in takes"
        )
    text = group.parameters.get("reference", "")
    if not text:
        return max(group.layers, key=lambda layer: len(layer.days))
    part = re.compile(rf"(^|[._]){re.escape(text)}($|[._])")
    found = [one for one in group.layers if part.search(one.label)]
    if len(found) != 1:
        labels = ", ".join(layer.label for layer in group.layers)
        refuse(f"`reference` names {len(found)} of the layers {labels}")
    return found[0]


def fitted(own: np.ndarray, reference: np.ndarray, method: str, least: int) -> np.ndarray:
    """Return the bands of `LAYER_bridge.tif` of values on the same dates."""
    there = np.isfinite(own) & np.isfinite(reference)
    x, y = np.where(there, own, np.nan), np.where(there, reference, np.nan)
    count = there.sum(axis=0).astype(np.float64)
    mean_x, mean_y = np.nanmean(x, axis=0), np.nanmean(y, axis=0)
    bias = mean_x - mean_y
    spread_x, spread_y = np.nanvar(x, axis=0), np.nanvar(y, axis=0)
    together = np.nanmean((x - mean_x) * (y - mean_y), axis=0)
    slope = np.ones_like(bias)
    if method == "linear":
        slope = np.where(spread_x > 0, together / spread_x, np.nan)
    offset = np.zeros_like(bias) if method == "none" else mean_y - slope * mean_x
    flat = (spread_x <= 0) | (spread_y <= 0)
    bands = np.stack(
        [
            count,
            bias,
            np.sqrt(np.nanmean((x - y) ** 2, axis=0)),
            np.where(flat, np.nan, together / np.sqrt(spread_x * spread_y)),
            slope,
            offset,
        ]
    )
    bands[1:4, count == 0] = np.nan
    if method != "none":
        bands[4:, count < least] = np.nan
    return bands


def itself(values: np.ndarray) -> np.ndarray:
    """Return the bands of the reference, which is not adjusted."""
    count = np.isfinite(values).sum(axis=0).astype(np.float64)
    zero, one = np.zeros_like(count), np.ones_like(count)
    return np.stack([count, zero, zero, one, one, zero])


def lines(group: Group, reference: Layer, rows: Rows) -> dict[str, np.ndarray]:
    """Return the bands of each layer, by label, in a block of rows."""
    method = group.parameters.get("method", "") or "offset"
    if method not in ("offset", "linear", "none"):
        refuse(f"method is {method!r}; it should be offset, linear or none")
    least = int(group.number("least", 10, 3, 10_000))
    base = dict(zip(reference.days, reference.values(rows), strict=True))
    found = {}
    for layer in group.layers:
        own = layer.values(rows)
        if layer is reference:
            found[layer.label] = itself(own)
            continue
        shared = [n for n, day in enumerate(layer.days) if day in base]
        if not shared:
            empty = np.full((len(NAMES), *own.shape[1:]), np.nan)
            empty[0] = 0.0
            if method == "none":
                empty[4], empty[5] = 1.0, 0.0
            found[layer.label] = empty
            continue
        same = np.stack([base[layer.days[n]] for n in shared])
        found[layer.label] = fitted(own[shared], same, method, least)
    return found


def bridged(group: Group, found: dict[str, np.ndarray], rows: Rows) -> np.ndarray:
    """Return a band for each date, of the first layer that has it, adjusted."""
    made: dict[dt.date, np.ndarray] = {}
    for layer in group.layers:
        slope, offset = found[layer.label][4:]
        for day, values in zip(layer.days, layer.values(rows), strict=True):
            own = slope * values + offset
            there = made.get(day)
            made[day] = own if there is None else np.where(np.isfinite(there), there, own)
    return np.stack([made[day] for day in sorted(made)])


def main() -> None:
    """Write the fit of each layer, then the series."""
    group = read_group(Path(sys.argv[1]), Path(sys.argv[2]))
    reference = reference_of(group)
    depth = 3 * sum(len(layer.days) for layer in group.layers)
    days = sorted({day for layer in group.layers for day in layer.days})
    with empty_pixels():
        for layer in group.layers:
            names = [f"{name}, {layer.label} against {reference.label}" for name in NAMES]
            with raster(group, f"{layer.label}_bridge.tif", names) as write:
                for rows in group.blocks(depth):
                    write(lines(group, reference, rows)[layer.label], rows)
        units = reference.units
        with raster(group, "bridged.tif", [day.isoformat() for day in days], units) as write:
            for rows in group.blocks(depth):
                write(bridged(group, lines(group, reference, rows), rows), rows)


if __name__ == "__main__":
    main()
