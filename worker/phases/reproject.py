"""Reprojection: put one layer of one date's granules onto one cell, as `cell.tif`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import TypeAdapter

from reprojection.catalogue import product
from reprojection.grid.grids import Grid
from reprojection.read.completeness import WHOLE
from reprojection.reproject import Driver, ExtraBand, Merge, Options
from reprojection.reproject import reproject as reproject_granules
from reprojection.write.write import write_cog
from tasks.model.model import ArtifactFile
from tasks.model.rasters import is_raster
from tasks.model.spec import Driver as Followed
from tasks.model.spec import GridSpec, ReprojectSpec
from worker.phases.completeness import completeness_of
from worker.phases.context import Context

CELL = "cell.tif"
_PRESETS = ("best", "good")
_MERGE: TypeAdapter[Merge] = TypeAdapter(Merge)
_EXTRA: TypeAdapter[tuple[ExtraBand, ...]] = TypeAdapter(tuple[ExtraBand, ...])


def reproject(spec: ReprojectSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Put the granules onto the cell; the file is small and read whole, so it has no overviews."""
    fetched = context.fetch_inputs()
    paths = [path for files in fetched.values() for path in files]
    context.tell(0.5, f"reprojecting {spec.layer} of {len(paths)} granules")
    raster = reproject_granules(
        paths,
        spec.layer,
        grid_of(spec.grid),
        options_of(spec),
        product=product(spec.product, spec.collection),
    )
    if is_raster(spec.product):  # the file does not know which version it is
        own = replace(raster.provenance, collection=spec.collection)
        raster = replace(raster, provenance=own)
    context.tell(0.8, f"writing {CELL}")
    path = context.folder("cell") / CELL
    said = completeness_of(spec, [WHOLE] * len(paths))
    write_cog(replace(raster, completeness=said), path, overviews=False, compress="quick")
    context.tell(0.9, f"storing {CELL}")
    return (context.upload(path, completeness=said, valid_share=raster.valid_share),)


def grid_of(spec: GridSpec) -> Grid:
    """Make the grid that a specification describes."""
    return Grid(crs=spec.crs, transform=spec.transform, width=spec.width, height=spec.height)


def options_of(spec: ReprojectSpec) -> Options:
    """Make the options of reprojection that a specification gives."""
    return Options(
        resampling=_method(spec.resampling),
        merge=_MERGE.validate_python(spec.merge),
        qa=qa_rule(spec.qa),
        mask=spec.mask,
        units=spec.units,
        codes=spec.codes,
        extra_bands=_EXTRA.validate_python(spec.extra_bands),
        clamp=spec.clamp,
        driver=_driver(spec.driver),
    )


def _driver(given: Followed | None) -> Driver | None:
    if given is None:
        return None
    return Driver(layer=given.layer, resampling=_method(given.resampling), qa=qa_rule(given.qa))


def _method(text: str) -> str | None:
    return None if text == "default" else text


def qa_rule(text: str) -> str | Mapping[str, Mapping[str, Sequence[int]]] | None:
    """Read the QA rule of a specification."""
    if not text or text in _PRESETS:
        return text or None
    rule: Mapping[str, Mapping[str, Sequence[int]]] = json.loads(text)
    return rule
