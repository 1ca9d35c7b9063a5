"""Tell the results that are data from those that say how well pixels were seen, by their folders.

A first picture, and what a script opens unasked, is of data.
"""

import re
from functools import lru_cache

from reprojection import catalogue
from reprojection.catalogue.about_pixels import layers_about_pixels
from tasks.packages.file_names import layer_name

_FOLDER = re.compile(
    r"(?:^|\.)(?P<name>[A-Z][A-Z0-9_]+)\.(?P<collection>\d{3})(?:\.(?:day|night))?/"
)


@lru_cache(maxsize=1024)
def is_data(folder: str) -> bool:
    """Tell whether the layer of a folder, "MCD15A2.005/Lai_1km", is data.

    What is not in the catalogue, such as an output of a package, counts as data.
    """
    found = _FOLDER.search(folder)
    product = catalogue.product(found["name"], found["collection"]) if found else None
    if found is None or product is None:
        return True
    layer = folder[found.end() :].partition("/")[0]
    return layer not in {layer_name(name) for name in layers_about_pixels(product)}
