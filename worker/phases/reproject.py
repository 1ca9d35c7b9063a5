"""Reprojection: put one layer of one date's granules onto one cell, as `cell.tif`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from pydantic import TypeAdapter

from reprojection.catalogue import product
from reprojection.grid.grids import Grid
from reprojection.read.completeness import WHOLE, Completeness, found_besides
from reprojection.read.description import SourceGranule
from reprojection.read.lineage import CellRecord, InputRecord, Lineage
from reprojection.read.raster import Raster
from reprojection.reproject import Driver, ExtraBand, Merge, Options
from reprojection.reproject import reproject as reproject_granules
from reprojection.write.write import write_cog
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import GridSpec, LayerSpec, ReprojectSpec
from tasks.packages.rasters import is_raster
from tasks.spec_parts import Driver as Followed
from worker.files.held_granules import granules_of
from worker.phases.completeness import completeness_of
from worker.phases.context import Context

Rule = str | Mapping[str, Mapping[str, Sequence[int]]] | None

CELL = "cell.tif"
_PRESETS = ("best", "good")
_MERGE: TypeAdapter[Merge] = TypeAdapter(Merge)
_EXTRA: TypeAdapter[tuple[ExtraBand, ...]] = TypeAdapter(tuple[ExtraBand, ...])


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What determines a cell besides its granules; `day` is its nominal date."""

    product: str
    collection: str
    layer: str
    day: date
    grid: Grid
    options: Options


def reproject(spec: ReprojectSpec, context: Context) -> tuple[ArtifactFile, ...]:
    """Put the granules onto the cell; the file is small and read whole, so it has no overviews."""
    raster = make_cell(spec, context)
    context.tell(0.8, f"writing {CELL}")
    path = context.folder("cell") / CELL
    write_cell(raster, path)
    context.tell(0.9, f"storing {CELL}")
    said, share = raster.completeness, raster.valid_share
    return (context.upload(path, completeness=said, valid_share=share),)


def make_cell(spec: LayerSpec, context: Context) -> Raster:
    """Fetch the granules of a layer and put them onto its grid, with what is said of them."""
    fetched = context.fetch_inputs()
    paths = granules_of((path for files in fetched.values() for path in files), context.folder)
    # Nobody has read all bytes of a granule that is held in part: it has no digest.
    digests = {
        Path(file.name).name: file.sha256 for files in context.inputs.values() for file in files
    }
    context.tell(0.5, f"reprojecting {spec.layer} of {len(paths)} granules")
    cell = cell_of(spec)
    raster = cell_pixels(cell, paths)
    said = found_besides(completeness_of(spec, [WHOLE] * len(paths)), raster.completeness)
    return with_lineage(raster, cell, paths, digests, said)


def cell_pixels(cell: Cell, paths: Sequence[Path]) -> Raster:
    """Make a cell of granules; its completeness says which of them do not hold the layer."""
    raster = reproject_granules(
        paths,
        cell.layer,
        cell.grid,
        cell.options,
        product=product(cell.product, cell.collection),
    )
    if not is_raster(cell.product):
        return raster
    # The file does not know which version it is.
    own = replace(raster.provenance, collection=cell.collection)
    return replace(raster, provenance=own)


def with_lineage(
    raster: Raster,
    cell: Cell,
    paths: Sequence[Path],
    digests: Mapping[str, str],
    said: Completeness,
) -> Raster:
    """Add to a cell how it was made, and what it lacks; `digests` are SHA-256 by granule's name."""
    own = raster.provenance
    granules = tuple(replace(one, sha256=digests.get(one.name, "")) for one in own.granules)
    others = sorted({path.name for path in paths} - {one.name for one in granules})
    beside = tuple(SourceGranule(name=name, sha256=digests.get(name, "")) for name in others)
    own = replace(own, granules=granules, beside=beside)
    raster = replace(raster, provenance=own, completeness=said)
    grid = cell.grid
    lineage = Lineage(
        cells=(CellRecord(transform=grid.transform, width=grid.width, height=grid.height),),
        layers=(raster.description().layer_record(),),
        inputs=(
            InputRecord(
                layer=0,
                date=cell.day.isoformat(),
                start=own.start,
                end=own.end,
                pieces=((0, tuple(range(1, len(own.files) + 1))),),
                lacking=() if said == WHOLE else ((0, said),),
            ),
        ),
    )
    return replace(raster, provenance=replace(own, lineage=lineage))


def write_cell(raster: Raster, to: Path) -> None:
    """Write a cell, which is soon read again."""
    write_cog(raster, to, overviews=False, statistics=False, compress="quick")


def cell_of(spec: LayerSpec) -> Cell:
    """Return what a specification says of a cell."""
    return Cell(
        product=spec.product,
        collection=spec.collection,
        layer=spec.layer,
        day=spec.day,
        grid=grid_of(spec.grid),
        options=options_of(spec),
    )


def grid_of(spec: GridSpec) -> Grid:
    """Make the grid that a specification describes."""
    return Grid(crs=spec.crs, transform=spec.transform, width=spec.width, height=spec.height)


def options_of(spec: LayerSpec) -> Options:
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


def layers_of(layers: Sequence[str], qa: Sequence[str], band: int | None) -> list[tuple[str, Rule]]:
    """Return layers as they are called in a granule, with their QA rules."""
    which = "" if band is None else f"[{band}]"
    return [(f"{layer}{which}", qa_rule(rule)) for layer, rule in zip(layers, qa, strict=True)]


def qa_rule(text: str) -> Rule:
    """Read the QA rule of a specification."""
    if not text or text in _PRESETS:
        return text or None
    rule: Mapping[str, Mapping[str, Sequence[int]]] = json.loads(text)
    return rule
