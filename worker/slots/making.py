"""Making the artifact of a job, in this process; and what an error of it means."""

import sys
from pathlib import Path

from reprojection.errors import NotHeldError, UnreadableGranuleError
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import (
    CollectSpec,
    CubeSpec,
    ExtractSpec,
    GroupSpec,
    MosaicSpec,
    OverlapSpec,
    PartsSpec,
    ReduceSpec,
    ReprojectSpec,
    SampleSpec,
    SitesSpec,
    TableSpec,
)
from tasks.service.classify import AttemptError, classify
from tasks.storage.writable import is_full
from worker.phases.collect import collect
from worker.phases.context import Context
from worker.phases.cube import cube
from worker.phases.extract import extract, sample, write_sites
from worker.phases.group import group
from worker.phases.mosaic import mosaic, overlap
from worker.phases.parts import collect_parts
from worker.phases.reduce import reduce
from worker.phases.reproject import reproject
from worker.phases.table import table
from worker.sandbox.messages import Failed, Job


def make(job: Job, context: Context) -> tuple[ArtifactFile, ...]:
    """Make and store the artifact of the job's specification."""
    match job.spec:
        case CollectSpec():
            return collect(job.spec, context)
        case PartsSpec():
            return collect_parts(job.spec, context)
        case ReprojectSpec():
            return reproject(job.spec, context)
        case MosaicSpec():
            return mosaic(job.spec, context)
        case OverlapSpec():
            return overlap(job.spec, context)
        case CubeSpec():
            return cube(job.spec, context)
        case GroupSpec():
            return group(job.spec, context)
        case ReduceSpec():
            return reduce(job.spec, context)
        case SitesSpec() | ExtractSpec() | SampleSpec() | TableSpec():
            return _of_sites(job.spec, context)


def _of_sites(
    spec: SitesSpec | ExtractSpec | SampleSpec | TableSpec, context: Context
) -> tuple[ArtifactFile, ...]:
    match spec:
        case SitesSpec():
            return write_sites(spec, context)
        case ExtractSpec():
            return extract(spec, context)
        case SampleSpec():
            return sample(spec, context)
        case TableSpec():
            return table(spec, context)


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
