"""The child of an attempt: does the work of one phase and reports how it ended."""

import faulthandler
import resource
import shutil
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.spec import CollectSpec, CubeSpec, GroupSpec, MosaicSpec, ReduceSpec, ReprojectSpec
from tasks.run.classify import Diagnosis, classify
from tasks.run.connect import connect
from tasks.storage.blobs import Blobs
from tasks.storage.file_blobs import FileBlobs
from worker.files.cache import Cache
from worker.phases.collect import collect
from worker.phases.context import Context, Tell
from worker.phases.cube import cube
from worker.phases.group import group
from worker.phases.mosaic import mosaic
from worker.phases.reduce import reduce
from worker.phases.reproject import reproject
from worker.sandbox.messages import Failed, Job, Message, Progress, Succeeded, encode

_GB = 10**9
_FULL = 2**20  # bytes; a disk with less free space counts as full


def run(job: Job, reports: Connection) -> int:
    """Do the job and report; return the process's exit code."""
    faulthandler.enable()
    limit = int(2 * job.settings.attempt_memory_gb * _GB)
    # The guard ends an attempt at its limit; an absurd allocation fails here with a traceback.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def send(message: Message) -> None:
        reports.send_bytes(encode(message))

    def tell(fraction: float, note: str) -> None:
        send(Progress(fraction=min(1.0, max(0.0, fraction)), note=note))

    message = perform(job, tell, lambda settings: connect(settings, create=False).blobs)
    send(message)
    return 0 if isinstance(message, Succeeded) else 1


def perform(job: Job, tell: Tell, blobs_of: Callable[..., Blobs]) -> Succeeded | Failed:
    """Do the job and return its outcome; every exception becomes a failure with its category."""
    try:
        blobs = blobs_of(job.settings)
        local = isinstance(blobs, FileBlobs)
        context = Context(
            key=job.key,
            claim=job.claim,
            inputs=job.inputs,
            scratch=job.scratch,
            settings=job.settings,
            blobs=blobs,
            cache=None if local else Cache(job.cache, int(job.settings.cache_gb * _GB)),
            tell=tell,
            sandbox=job.sandbox,
        )
        return Succeeded(files=make(job, context))
    except Exception as error:  # noqa: BLE001 - here exceptions become categories
        return _failed(classify(error), job.scratch)


def make(job: Job, context: Context) -> tuple[ArtifactFile, ...]:
    """Make and store the artifact of the job's specification."""
    match job.spec:
        case CollectSpec():
            return collect(job.spec, context)
        case ReprojectSpec():
            return reproject(job.spec, context)
        case MosaicSpec():
            return mosaic(job.spec, context)
        case CubeSpec():
            return cube(job.spec, context)
        case GroupSpec():
            return group(job.spec, context)
        case ReduceSpec():
            return reduce(job.spec, context)


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < _FULL


def _failed(diagnosis: Diagnosis, scratch: Path) -> Failed:
    category = diagnosis.category
    if category is Category.UNKNOWN and _is_full(scratch):
        # GDAL and HDF report a full disk in many different ways.
        category = Category.OUT_OF_DISK
    sys.stderr.write(diagnosis.traceback)
    return Failed(
        category=category,
        message=diagnosis.message,
        asked=diagnosis.asked,
        healing=diagnosis.healing,
    )
