"""Subtract one layer from another: `difference.py INPUT_DIR OUTPUT_DIR`.

Each layer is its mean over the days of the group, by their weights. The parameters `of` and `less`
name the layers by their labels or parts of these (`monthly` is a step); without them there are two
layers, and the second is subtracted from the first, in the order of the group. NaN where either has
no value.
"""

import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from series import Group, Layer, empty_pixels, raster, read_group, refuse, weighted_mean


def chosen(group: Group) -> tuple[Layer, Layer]:
    """Return the layer from which is subtracted, and the one that is."""
    first, second = (named(group, name) for name in ("of", "less"))
    left = [layer for layer in group.layers if layer not in (first, second)]
    wanted = (first is None) + (second is None)
    if wanted and len(left) != wanted:
        refuse(f"there are {len(group.layers)} layers: {labels(group)}; name two, `of` and `less`")
    one = first or left.pop(0)
    other = second or left.pop(0)
    if one is other:
        refuse(f"`of` and `less` both name {one.label}")
    return one, other


def named(group: Group, parameter: str) -> Layer | None:
    """Return the layer that a parameter names; None where it is not set."""
    text = group.parameters.get(parameter, "")
    if not text:
        return None
    part = re.compile(rf"(^|[._]){re.escape(text)}($|[._])")
    found = [one for one in group.layers if part.search(one.label)]
    if len(found) != 1:
        refuse(f"`{parameter}` names {len(found)} of the layers {labels(group)}")
    return found[0]


def labels(group: Group) -> str:
    """Return the labels of a group's layers."""
    return ", ".join(layer.label for layer in group.layers)


def main() -> None:
    """Write the difference as one band."""
    group = read_group(Path(sys.argv[1]), Path(sys.argv[2]))
    first, second = chosen(group)
    units = first.units if first.units == second.units else ""
    band = f"{first.label} less {second.label}, {group.window}"
    with raster(group, "difference.tif", [band], units) as write:
        for rows in group.blocks(2 * (len(first.days) + len(second.days))):
            with empty_pixels():
                of, less = (weighted_mean(one.values(rows), one.weights) for one in (first, second))
            write((of - less)[np.newaxis], rows)


if __name__ == "__main__":
    main()
