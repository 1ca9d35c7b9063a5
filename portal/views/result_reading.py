"""Read of a result what a tile of a map shows, by byte ranges where it is stored."""

import math

import numpy as np
from rasterio.windows import Window

from portal.results.picture_reading import band_of, nodata_of, opened
from portal.results.result_files import ResultFile, ResultReader
from portal.views.tile_views import turns_of, view_of
from reprojection.grid.grids import Grid
from reprojection.read.raster import Raster
from reprojection.warp.warp import SourceTile, warp

MOST_PIXELS = 2**22
"""Pixels of a raster that are read for one tile."""


def read_onto(reader: ResultReader, result: ResultFile, band: int, grid: Grid) -> Raster:
    """Read the pixels of a band that are nearest to those of a grid, as float64 with NaN for none.

    They come from the overview that is next finer than the grid, or from a coarser one where the
    grid's pixels lie so far apart that more than `MOST_PIXELS` would have to be read.

    Raises what `read_picture` raises, and GridError for a rotated raster.
    """
    with opened(reader, result) as (dataset, said):
        halvings = [1, *dataset.overviews(1)]
        nodata = nodata_of(dataset)
    one = band_of(said, result, band)
    source, values = said.grid.grid(), np.full(grid.shape, np.nan)
    for turned in turns_of(source):
        view = view_of(turned, grid, halvings, MOST_PIXELS)
        if view is None:
            continue
        level = halvings.index(view.halving) - 1
        with opened(reader, result, None if level < 0 else level) as (dataset, _):
            stored = dataset.read(band + 1, window=Window(*view.window))
        plane = stored.astype(np.float64)
        if nodata is not None and not one.bands[0].is_index:
            plane[stored == nodata] = np.nan
        tile = SourceTile(bands=[plane], grid=view.grid)
        near = warp([tile], grid, "nearest", fill=math.nan)[0]
        values = np.where(np.isnan(values), near, values)
    return Raster.of(one, values[np.newaxis], math.nan, grid)
