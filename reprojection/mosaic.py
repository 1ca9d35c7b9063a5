"""Cells to one raster on a region's grid."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shapely import MultiPolygon, Polygon

from reprojection.raster import Raster

if TYPE_CHECKING:
    from reprojection.grids import Grid


def mosaic(
    cell_paths: Sequence[Path], grid: "Grid", clip: Polygon | MultiPolygon | None = None
) -> Raster:
    """Assemble cells of one layer and date into one raster on `grid`.

    `clip` is in EPSG:4326 (longitude, latitude); pixels whose centre is outside become nodata.
    A cell that is missing leaves nodata.
    """
    raise NotImplementedError
