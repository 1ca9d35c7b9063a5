"""Rasters of the results: of cells, or of granules; and two sensors' cells as a table."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from shapely import MultiPolygon, Polygon, from_geojson

from reprojection.read.raster import Raster
from reprojection.write.mosaic import Joined, joined, mosaic_of_cell, write_joined
from reprojection.write.record_layer import record_mosaic
from reprojection.write.sensor_overlap import SeenCell, write_overlap
from reprojection.write.stac import item_of
from reprojection.write.write import Opened, write_result
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import MosaicSpec, OverlapSpec, RasterSpec
from tasks.service.classify import AttemptError
from worker.phases.completeness import completeness_of, missing_of, unnamed_of, without_file
from worker.phases.context import Context
from worker.phases.reproject import grid_of, make_cell


def mosaic(spec: MosaicSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Join the cells into `<name>.tif`, a Cloud Optimized GeoTIFF, with its STAC item."""
    fetched = context.fetch_inputs()
    paths = [path for files in fetched.values() for path in files]
    if not paths:
        raise AttemptError(
            Category.CHOICE_REFUSED,
            f"none of the {len(spec.inputs)} inputs has a raster: the reduction had no granule of "
            "its layer, or does not take what the layer holds",
        )
    context.tell(0.5, f"assembling {len(paths)} cells")
    without = without_file(spec, fetched)
    assemble: Callable[..., Joined] = joined
    if (of := spec.record) is not None:
        assemble = partial(record_mosaic, named=(of.record, of.layer, of.units))
    raster = assemble(
        paths,
        grid_of(spec.grid),
        clip=read_clip(spec.clip),
        clip_text=spec.clip,
        absent=spec.absent_parts + len(without),
        missing=(*missing_of(spec), *without),
        unnamed=unnamed_of(spec),
    )
    return _stored(raster, spec.name, context, keep=False)


def whole_raster(spec: RasterSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Make of granules what `mosaic` makes of their cell, with the cell in memory."""
    cell = make_cell(spec, context)
    raster = mosaic_of_cell(cell, read_clip(spec.clip), clip_text=spec.clip)
    return _stored(raster, spec.name, context, keep=True)  # a group may take it


def _stored(
    raster: Raster | Joined, name: str, context: Context, *, keep: bool
) -> tuple[ArtifactFile, ...]:
    """Write and store a raster of the results and its STAC item."""
    context.tell(0.75, f"writing {name}.tif")
    folder = context.folder("mosaic")
    image, item = folder / f"{name}.tif", folder / f"{name}.json"
    if isinstance(raster, Raster):
        made, share = write_result(raster, image)
    else:
        made, share = write_joined(raster, image)
    write_item(made, item)
    context.tell(0.9, f"storing {name}")
    return (
        context.upload(image, keep=keep, completeness=made.said.completeness, valid_share=share),
        context.upload(item, keep=False),
    )


def overlap(spec: OverlapSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Compare the sensors of a record in the cells that both have, as `<name>.csv`."""
    fetched = context.fetch_inputs()
    paths = {
        SeenCell(one.product, one.day, one.cell): files[0]
        for one, files in ((spec.cells[n], files) for n, files in fetched.items())
        if files
    }
    to = context.folder("overlap") / f"{spec.name}.csv"
    named = spec.record.record, spec.record.layer, spec.record.units
    write_overlap(paths, spec.pairs, named, to)
    said = completeness_of(spec, [files[0].completeness for files in context.inputs.values()])
    return (context.upload(to, keep=False, completeness=said),)


def write_item(raster: Opened, to: Path) -> None:
    """Write the STAC item of a raster's file."""
    to.write_text(json.dumps(item_of(raster), indent=1, sort_keys=True) + "\n", "utf-8")


def read_clip(geojson: str) -> Polygon | MultiPolygon | None:
    """Read the region that a mosaic is clipped to; empty: none."""
    if not geojson:
        return None
    shape = from_geojson(geojson)
    if not isinstance(shape, Polygon | MultiPolygon):
        raise ValueError(f"a mosaic is clipped to a polygon, not to a {shape.geom_type}")
    return shape
