"""Making the artifact of a job, in this process; and what an error of it means."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reprojection.errors import NotHeldError, UnreadableGranuleError
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import (
    BaseSpec,
    CollectSpec,
    CubeSpec,
    GroupSpec,
    MosaicSpec,
    OverlapSpec,
    PartsSpec,
    RasterSpec,
    ReduceSpec,
    ReprojectSpec,
)
from tasks.service.classify import AttemptError, classify
from tasks.storage.writable import is_full
from worker.phases.collect import collect
from worker.phases.context import Context, Maker
from worker.phases.cube import cube
from worker.phases.group import group
from worker.phases.mosaic import mosaic, overlap, whole_raster
from worker.phases.parts import collect_parts
from worker.phases.reduce import reduce
from worker.phases.reproject import reproject
from worker.phases.sites import makers as sites
from worker.sandbox.messages import Failed, Job

MAKERS: Mapping[type[BaseSpec], Maker] = {
    CollectSpec: collect,
    PartsSpec: collect_parts,
    ReprojectSpec: reproject,
    RasterSpec: whole_raster,
    MosaicSpec: mosaic,
    OverlapSpec: overlap,
    CubeSpec: cube,
    GroupSpec: group,
    ReduceSpec: reduce,
    **sites.MAKERS,
}
"""What makes the artifact of each kind of task. A feature adds its own here."""

COPIERS: Mapping[type[BaseSpec], Callable[[Any, Context], None]] = {
    **sites.COPIERS,
}
"""What copies files that are no inputs to where a maker reads them. A feature adds its own here."""


def make(job: Job, context: Context) -> tuple[ArtifactFile, ...]:
    """Make and store the artifact of the job's specification."""
    return MAKERS[type(job.spec)](job.spec, context)


def failure(error: Exception, scratch: Path, context: Context | None) -> Failed:
    """Say what an error means, and print its traceback.

    Of a granule that cannot be read it is found out which of the inputs it is.
    """
    if context is not None and isinstance(error, UnreadableGranuleError | NotHeldError):
        error = _with_inputs(error, context)
    diagnosis = classify(error)
    category = diagnosis.category
    if category is Category.UNKNOWN and is_full(scratch):
        # GDAL and HDF report a full disk in many different ways.
        category = Category.OUT_OF_DISK
    sys.stderr.write(diagnosis.traceback)
    return Failed(
        category=category,
        message=diagnosis.message,
        asked=diagnosis.asked,
        healing=diagnosis.healing,
    )


def _with_inputs(error: UnreadableGranuleError | NotHeldError, context: Context) -> Exception:
    healing = context.damaged_granules(error)
    if not healing:
        return error
    found = AttemptError(Category.UNREADABLE_INPUT_FILE, str(error), healing=healing)
    found.__cause__ = error
    return found
