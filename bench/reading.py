"""Everything a reader can be asked of one granule, as one call for a process of its own."""

from pathlib import Path

import numpy as np

from reprojection.errors import ReprojectionError
from reprojection.grid.crs import MODIS_SINUSOIDAL, Crs
from reprojection.grid.grids import Grid
from reprojection.inspect.inspect import report
from reprojection.read.granule import open_granule
from reprojection.reproject import Options, reproject

_GRID = Grid(crs="EPSG:4326", transform=(0.25, 0.0, -5.0, 0.0, -0.25, 62.0), width=100, height=60)
_OPTIONS = (Options(extra_bands=("source", "reason")), Options(qa="best", units="physical"))

# What every call's process would else prepare for itself.
for _crs in (_GRID.crs, MODIS_SINUSOIDAL):
    Crs.of(_crs).to_lonlat(np.zeros(1), np.zeros(1))


def read_everything(path: Path) -> str:
    """Read all layers, reproject the last two; says how many there were, and were placed.

    Raises what opening raises. A layer that is refused with a named error is not placed.
    """
    with open_granule(path) as granule:
        found = report(granule)
        names = [name for name, layer in granule.layers.items() if not layer.bands]
    placed = 0
    for name, options in zip(reversed(names), _OPTIONS, strict=False):
        try:
            reproject([path], name, _GRID, options)
            placed += 1
        except ReprojectionError:
            continue
    return f"{len(found.layers)} layers, {placed} placed"
