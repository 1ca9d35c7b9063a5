"""Aggregation into one raster: cells of one layer and date, cropped to the region."""

from pathlib import Path

import rasterio
from rasterio.errors import RasterioIOError
from shapely import MultiPolygon, Polygon, from_geojson

from reprojection.errors import BadFormatError
from reprojection.grids import Grid
from reprojection.mosaic import mosaic as mosaic_cells
from reprojection.raster import Band, Pixels, Provenance, Raster
from reprojection.write import open_raster, write_cog
from tasks.categories import Category
from tasks.classify import AttemptError
from tasks.model import ArtifactFile
from tasks.spec import MosaicSpec
from worker.context import Context
from worker.reproject import grid_of


def mosaic(spec: MosaicSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Assemble the cells into `<name>.tif`, a Cloud Optimized GeoTIFF."""
    fetched = context.fetch_inputs()
    adopted = context.folder("adopted")
    # An input may have gone without the file: a reduction over fewer layers than were planned.
    paths = [
        _adopt(path, adopted / f"{index:04d}.tif", spec)
        for index, files in fetched.items()
        for path in files
    ]
    if not paths:
        raise AttemptError(
            Category.USER_CODE_FAILED, f"none of the {len(spec.inputs)} inputs has a raster"
        )
    context.tell(0.5, f"assembling {len(paths)} cells")
    raster = mosaic_cells(paths, grid_of(spec.grid), _clip(spec))
    context.tell(0.75, f"writing {spec.name}.tif")
    folder = context.folder("mosaic")
    image = folder / f"{spec.name}.tif"
    write_cog(raster, image)
    context.tell(0.9, f"storing {spec.name}.tif")
    return (context.upload(image, keep=False),)


def _clip(spec: MosaicSpec) -> Polygon | MultiPolygon | None:
    if not spec.clip:
        return None
    shape = from_geojson(spec.clip)
    if not isinstance(shape, Polygon | MultiPolygon):
        raise ValueError(f"a mosaic is clipped to a polygon, not to a {shape.geom_type}")
    return shape


def _adopt(path: Path, to: Path, spec: MosaicSpec) -> Path:
    """A cell as it is, or a package's own GeoTIFF described as a raster of ours."""
    try:
        open_raster(path)
    except BadFormatError:
        write_cog(_foreign(path, spec), to, overviews=False, compress="none")
        return to
    return path


def _foreign(path: Path, spec: MosaicSpec) -> Raster:
    """A GeoTIFF that a package wrote, as a raster.

    Raises:
        AttemptError: user code failed, when it cannot be read or has no place or no nodata.
    """
    try:
        with rasterio.open(path) as dataset:
            data: Pixels = dataset.read()
            nodata = dataset.nodata
            names = [text or f"band {n}" for n, text in enumerate(dataset.descriptions, 1)]
            crs = dataset.crs
            scale, offset = float(dataset.scales[0]), float(dataset.offsets[0])
            units = str(dataset.units[0] or "")
            a, b, c, d, e, f = tuple(dataset.transform)[:6]
    except RasterioIOError as error:
        raise AttemptError(
            Category.USER_CODE_FAILED, f"the package's {path.name} cannot be read: {error}"
        ) from error
    if crs is None:
        raise AttemptError(
            Category.USER_CODE_FAILED,
            f"the package's {path.name} has no CRS: copy the input's grid to the output",
        )
    height, width = data.shape[1:]
    return Raster(
        data=data,
        # The cells' CRS in the words of the target, so that equal grids compare equal.
        grid=Grid(crs=spec.grid.crs, transform=(a, b, c, d, e, f), width=width, height=height),
        nodata=_nodata(data, nodata, path),
        kind="continuous",
        bands=tuple(Band(name=name) for name in names),
        scale=scale,
        offset=offset,
        units=units,
        provenance=Provenance(product="", collection="", layer=path.stem, granules=()),
    )


def _nodata(data: Pixels, nodata: float | None, path: Path) -> float | int:
    if nodata is None and data.dtype.kind == "f":
        return float("nan")
    if nodata is None:
        raise AttemptError(
            Category.USER_CODE_FAILED,
            f"the package's {path.name} has {data.dtype} pixels and no nodata value, so cells that "
            "are missing could not be told from data: set nodata, or write floats",
        )
    return nodata if data.dtype.kind == "f" else int(nodata)
