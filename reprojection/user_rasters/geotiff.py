"""Read a user's raster from a GeoTIFF, by GDAL's one driver for it and without files beside it."""

import warnings
from dataclasses import dataclass

import numpy as np
import pyproj
import rasterio
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.windows import Window

from reprojection.catalogue.layers import LayerKind, guess_kind
from reprojection.catalogue.user_raster import LAYER, RasterLayer
from reprojection.grid.grids import Grid
from reprojection.user_rasters.source import (
    Block,
    RasterFile,
    RasterRefusedError,
    Source,
    check_type,
    finite,
    plain_crs,
)

_ALONE = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_GEOREF_SOURCES": "INTERNAL",
    "GDAL_PAM_ENABLED": "NO",
    "GDAL_CACHEMAX": 64,
}
"""GDAL's settings by which it looks at no file beside the one named."""


@dataclass(frozen=True, kw_only=True)
class _TiffSource(Source):
    """The bands of a GeoTIFF; `upward`: its rows are stored from the south."""

    file: rasterio.DatasetReader
    upward: bool

    def read(self, key: int | str, number: int, first: int, rows: int) -> Block:
        del number  # a file is of one date
        if self.upward:
            first = self.grid.height - first - rows
        window = Window(0, first, self.grid.width, rows)
        with rasterio.Env(**_ALONE):
            values: Block = self.file.read(int(key), window=window)
        return values[::-1] if self.upward else values


def open_geotiff(file: RasterFile) -> Source:
    """Open a GeoTIFF, whose bands are layers.

    Raises RasterRefusedError for one that does not say where it lies, or that cannot be read.
    """
    try:
        with rasterio.Env(**_ALONE), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)  # refused below
            opened = rasterio.open(file.path, driver="GTiff")
            return _source(file.name, opened)
    except RasterioError as error:
        raise RasterRefusedError(
            f"{file.name} cannot be read: {error}. It is damaged or cut off; make it again."
        ) from None


def _source(name: str, opened: rasterio.DatasetReader) -> Source:
    if opened.crs is None or not opened.crs.to_wkt():
        raise RasterRefusedError(
            f"{name} does not say its CRS. Write it into the file: gdal_edit -a_srs EPSG:4326 FILE."
        )
    a, b, c, d, e, f = tuple(opened.transform)[:6]
    if (a, b, c, d, e, f) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0):
        raise RasterRefusedError(
            f"{name} does not say where its pixels lie. Write the corners into the file: "
            "gdal_edit -a_ullr WEST NORTH EAST SOUTH FILE."
        )
    if b or d or a <= 0:
        raise RasterRefusedError(
            f"{name} is rotated or mirrored. Put it onto an upright grid: gdalwarp FILE NEW."
        )
    top = f if e < 0 else f + e * opened.height
    grid = Grid(
        crs=plain_crs(name, pyproj.CRS.from_wkt(opened.crs.to_wkt())),
        transform=(a, 0.0, c, 0.0, -abs(e), top),
        width=opened.width,
        height=opened.height,
    )
    layers = tuple((_layer(name, opened, band), band) for band in opened.indexes)
    return _TiffSource(grid=grid, layers=layers, days=(), file=opened, upward=e > 0)


def _layer(name: str, opened: rasterio.DatasetReader, band: int) -> RasterLayer:
    at = band - 1
    said = opened.descriptions[at] or ""
    label = said if LAYER.fullmatch(said) else f"band_{band}"
    flags = opened.mask_flag_enums[at]
    if opened.colorinterp[at] is ColorInterp.alpha or MaskFlags.per_dataset in flags:
        raise RasterRefusedError(
            f"{name} has a mask or a band of opacity. Write a nodata value in its place: "
            "gdal_translate -a_nodata VALUE -mask none."
        )
    dtype = check_type(name, label, np.dtype(opened.dtypes[at]))
    scale, offset = opened.scales[at], opened.offsets[at]
    units = opened.units[at] or ""
    painted = opened.colorinterp[at] is ColorInterp.palette
    scaled = (scale, offset) != (1.0, 0.0)
    kind = LayerKind.CLASS if painted else guess_kind(label, np.dtype(dtype), units, scaled=scaled)
    nodata = opened.nodatavals[at]
    return RasterLayer(
        name=label,
        dtype=dtype,
        kind=kind,
        units=units,
        title=said[:200],
        nodata=finite(nodata) if nodata is not None else None,
        scale=float(scale),
        offset=float(offset),
    )
