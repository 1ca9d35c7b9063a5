"""The warm child: does the work of one phase after the other and reports how each ended."""

import faulthandler
import gc
import os
import pickle
import resource
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import structlog

from archives.errors import NoPlaceError
from reprojection.errors import UnreadableGranuleError
from reprojection.read.kept import KEPT_BYTES, keep_granules
from tasks.model.categories import Category
from tasks.model.model import ArtifactFile
from tasks.model.spec import (
    CollectSpec,
    CubeSpec,
    ExtractSpec,
    GroupSpec,
    MosaicSpec,
    ReduceSpec,
    ReprojectSpec,
    SampleSpec,
    SitesSpec,
    TableSpec,
)
from tasks.run.classify import AttemptError, Diagnosis, classify
from tasks.run.connect import connect
from tasks.storage.blobs import Blobs
from tasks.storage.file_blobs import FileBlobs
from worker.files.cache import Cache
from worker.phases.collect import collect
from worker.phases.context import Context, Spent, Tell
from worker.phases.cube import cube
from worker.phases.extract import extract, sample, write_sites
from worker.phases.group import group
from worker.phases.mosaic import mosaic
from worker.phases.reduce import reduce
from worker.phases.reproject import reproject
from worker.phases.table import table
from worker.sandbox.admission import NoRoomError
from worker.sandbox.messages import (
    Begun,
    ChildSettings,
    Failed,
    Job,
    Message,
    Postponed,
    Progress,
    SelfTest,
    Succeeded,
    encode,
)
from worker.slots.lent_blobs import LentBlobs
from worker.slots.self_testing import is_there, self_test, unwritable

_GB = 10**9
_COLLECT = (20_000, 10, 10)  # metadata are many objects without a cycle
# What an attempt may end with that could not write: its words or errno are those of the caller.
_MAY_BE_THE_DISK = (
    Category.UNKNOWN,
    Category.BLOB_READ_FAILED,
    Category.STORAGE_CLIENT_ERROR,
    Category.USER_CODE_FAILED,
)
_FULL = 2**20  # bytes; a disk with less free space counts as full


class WarmChild:
    """Does one job after the other; keeps its connection to storage, and granules, between them."""

    def __init__(self, given: ChildSettings) -> None:
        self._given = given
        faulthandler.enable()
        gc.set_threshold(*_COLLECT)
        os.umask(0o022)  # a reduction with a user id of its own reads its inputs
        limit = int(2 * given.settings.attempt_memory_gb * _GB)
        # The guard ends an attempt at its limit; an absurd allocation fails here with a traceback.
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        # Half of what the guard lets the child keep.
        keep_granules(min(KEPT_BYTES, limit // 32))
        self._blobs: Blobs | None = None
        with suppress(Exception):  # the first attempt tries again, and reports what is wrong
            self._connect()

    def _connect(self) -> Blobs:
        if self._blobs is None:
            self._blobs = connect(self._given.settings, create=False).blobs
        return self._blobs

    def _storage(self, job: Job) -> Blobs:
        return LentBlobs(job.lent, job.scratch) if job.lent else self._connect()

    def __call__(self, data: bytes, reports: Connection) -> int:
        """Do a pickled job and report; return 0, or 1 after a failure, which ends the child."""

        def send(message: Message) -> None:
            reports.send_bytes(encode(message))

        def tell(fraction: float, note: str) -> None:
            send(Progress(fraction=min(1.0, max(0.0, fraction)), note=note))

        job: Job | SelfTest = pickle.loads(data)
        if isinstance(job, SelfTest):
            fault = self_test(job, self._given, self._connect)
            if fault:
                send(Failed(category=Category.HOST_FAILED, message=fault))
            else:
                send(Succeeded(files=()))
            return int(bool(fault))
        structlog.contextvars.bind_contextvars(request=job.request)
        begun = partial(send, Begun())
        message = perform(job, self._given, tell, partial(self._storage, job), begun)
        send(message)
        return 1 if isinstance(message, Failed) else 0


def perform(
    job: Job,
    given: ChildSettings,
    tell: Tell,
    blobs: Callable[[], Blobs],
    begun: Callable[[], None] = lambda: None,
) -> Succeeded | Failed | Postponed:
    """Do the job and return its outcome; every exception becomes a failure with its category.

    What fails before `begun` is called is the machine's.
    """
    spent = Spent()
    context: Context | None = None
    try:
        storage = blobs()
        is_there(storage, given.settings)
        local = isinstance(storage, FileBlobs)
        context = Context(
            key=job.key,
            claim=job.claim,
            inputs=job.inputs,
            scratch=job.scratch,
            settings=given.settings,
            blobs=storage,
            cache=None if local else Cache(given.cache, int(given.settings.cache_gb * _GB)),
            tell=tell,
            sandbox=given.sandbox,
            struck=job.struck,
            after_crash=job.after_crash,
            spent=spent,
        )
        begun()
        try:
            files = make(job, context)
        except UnreadableGranuleError as error:
            if healing := context.damaged_granules(error):
                raise AttemptError(
                    Category.UNREADABLE_INPUT_FILE, str(error), healing=healing
                ) from error
            raise
    except (NoRoomError, NoPlaceError) as error:
        return Postponed(message=str(error))
    except Exception as error:  # noqa: BLE001 - here exceptions become categories
        diagnosis = classify(error)
        if context is None:
            diagnosis = replace(diagnosis, category=Category.HOST_FAILED)
        failed = _failed(diagnosis, job.scratch, given, spent)
        return failed.model_copy(update={"used": context.used}) if context else failed
    return Succeeded(
        files=files,
        used=context.used,
        fetching=spent.fetching,
        storing=spent.storing,
        steps=tuple(spent.steps),
    )


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
        case SitesSpec():
            return write_sites(job.spec, context)
        case ExtractSpec():
            return extract(job.spec, context)
        case SampleSpec():
            return sample(job.spec, context)
        case TableSpec():
            return table(job.spec, context)


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL
    except OSError:  # it is gone: that is no full disk
        return False


def _failed(diagnosis: Diagnosis, scratch: Path, given: ChildSettings, spent: Spent) -> Failed:
    category, message = diagnosis.category, diagnosis.message
    # GDAL and HDF report a full disk, or one that cannot be written, in many different ways.
    if category is Category.UNKNOWN and _is_full(scratch):
        category = Category.OUT_OF_DISK
    elif category in _MAY_BE_THE_DISK and (
        fault := unwritable(given.settings, given.cache, scratch)
    ):
        category, message = Category.HOST_FAILED, f"{fault}; the attempt met: {message}"
    sys.stderr.write(diagnosis.traceback)
    return Failed(
        category=category,
        message=message,
        asked=diagnosis.asked,
        healing=diagnosis.healing,
        fetching=spent.fetching,
        storing=spent.storing,
        steps=tuple(spent.steps),
    )
