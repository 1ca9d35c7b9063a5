"""The structure of the file in which a user's own raster is kept."""

from reprojection.catalogue.user_raster import UserRaster
from reprojection.formats.structmetadata import FieldInfo, GridInfo, Structure

GRID = "raster"


def structure_of(raster: UserRaster) -> Structure:
    """Return the structure of the file in which a raster is kept."""
    a, _, left, _, e, top = raster.transform
    dims = ("date", "YDim", "XDim") if raster.days else ("YDim", "XDim")
    info = GridInfo(
        name=GRID,
        width=raster.width,
        height=raster.height,
        left=left,
        top=top,
        right=left + a * raster.width,
        bottom=top + e * raster.height,
        projection="",
        params=(),
        fields=tuple(FieldInfo(name=one.name, dtype=one.dtype, dims=dims) for one in raster.layers),
        own_crs=raster.crs,
    )
    return Structure(grids=(info,), swaths=())
