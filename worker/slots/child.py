"""The warm child: does the work of one phase after the other and reports how each ended."""

import faulthandler
import gc
import os
import pickle
import resource
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import structlog

from archives.errors import NoPlaceError
from tasks.bag.categories import Category
from tasks.bag.spec import ReduceSpec
from tasks.service.connect import connect
from tasks.storage.blobs import Blobs
from tasks.storage.file_blobs import FileBlobs
from tasks.storage.traffic import METER
from worker.files.cache import Cache
from worker.files.disk_use import filled_by_others
from worker.phases.context import Context, Spent, Tell
from worker.phases.reduce import UnsuitedError
from worker.sandbox.admission import NoRoomError
from worker.sandbox.makers import MakerEndedError, Makers
from worker.sandbox.messages import (
    Begun,
    ChildSettings,
    Failed,
    Job,
    Message,
    Postponed,
    Progress,
    Saved,
    SelfTest,
    Succeeded,
    encode,
)
from worker.slots.apart import Apart, FailedApartError
from worker.slots.lent_blobs import LentBlobs
from worker.slots.maker_answers import COLLECT
from worker.slots.making import failure, make
from worker.slots.self_testing import is_there, self_test, unwritable

_GB = 10**9
# What an attempt may end with that could not write: its words or errno are those of the caller.
_MAY_BE_THE_DISK = (
    Category.UNKNOWN,
    Category.BLOB_READ_FAILED,
    Category.STORAGE_CLIENT_ERROR,
    Category.USER_CODE_FAILED,
)


class WarmChild:
    """Does one job after the other; keeps its connection to storage, and a maker, between them."""

    def __init__(self, given: ChildSettings, makers: Makers) -> None:
        self._given = given
        self._apart = Apart(makers, given.settings, given.reading)
        faulthandler.enable()
        gc.set_threshold(*COLLECT)
        os.umask(0o022)  # a reduction with a user id of its own reads its inputs
        limit = int(2 * given.settings.attempt_memory_gb * _GB)
        # The guard ends an attempt at its limit; an absurd allocation fails here with a traceback.
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
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
        """Do a pickled job and report; return 0, or 1 after a failure, which ends the child.

        Where a maker ended without a report nothing is reported, and its code is returned.
        """

        turn = threading.Lock()  # a checkpoint is told by a thread of its own

        def send(message: Message) -> None:
            with turn:
                reports.send_bytes(encode(message))

        def save(size: int) -> None:
            send(Saved(size=size))

        def tell(fraction: float, note: str) -> None:
            send(Progress(fraction=min(1.0, max(0.0, fraction)), note=note))

        job: Job | SelfTest = pickle.loads(data)
        if isinstance(job, SelfTest):
            fault = self_test(job, self._given, self._connect, self._apart.fault)
            if fault:
                send(Failed(category=Category.HOST_FAILED, message=fault))
            else:
                send(Succeeded(files=()))
            return int(bool(fault))
        structlog.contextvars.bind_contextvars(request=job.request)
        begun = partial(send, Begun())
        apart = None if job.lent else self._apart
        blobs = partial(self._storage, job)
        try:
            message = perform(job, self._given, tell, blobs, begun, apart, save)
        except MakerEndedError as ended:
            return ended.code or 1
        send(message)
        return 1 if isinstance(message, Failed) else 0


def perform(
    job: Job,
    given: ChildSettings,
    tell: Tell,
    blobs: Callable[[], Blobs],
    begun: Callable[[], None] = lambda: None,
    apart: Apart | None = None,
    save: Callable[[int], None] | None = None,
) -> Succeeded | Failed | Postponed:
    """Do the job and return its outcome; every exception becomes a failure with its category.

    What fails before `begun` is called is the machine's. Files are made in this process, or
    `apart`. `save` is told the size of each state of a checkpoint; None: nobody keeps any.

    Raises:
        MakerEndedError: a maker ended without a report.
    """
    spent, began, before = Spent(), time.time(), METER.read()
    context: Context | None = None
    try:
        storage = blobs()
        is_there(storage, given.settings)
        local = isinstance(storage, FileBlobs)
        if apart is not None and not isinstance(job.spec, ReduceSpec):
            apart.begin(job)
        # With makers, nothing that this process fetched is opened in it.
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
            state=job.state,
            save=save,
            after_crash=job.after_crash and apart is None,
            given=None if apart is None or isinstance(job.spec, ReduceSpec) else apart.inputs,
            spent=spent,
        )
        begun()
        files = make(job, context) if apart is None else apart.make(job, context)
    except (NoRoomError, NoPlaceError) as error:
        return Postponed(message=str(error))
    except UnsuitedError as error:
        if not job.lent:  # in a pool all runners are alike
            return Postponed(message=str(error), tier=error.tier)
        failed = failure(error, job.scratch, context)
    except MakerEndedError:
        raise
    except FailedApartError as error:
        failed = error.failed
    except Exception as error:  # noqa: BLE001 - here exceptions become categories
        failed = failure(error, job.scratch, context)
        if context is None:
            failed = failed.model_copy(update={"category": Category.HOST_FAILED})
    else:
        return Succeeded(
            files=files,
            used=context.used,
            fetching=spent.fetching,
            storing=spent.storing,
            steps=tuple(spent.steps),
            traffic=METER.read() - before,
        )
    own = [job.scratch] if apart is None else [job.scratch, apart.home]
    return _judged(failed, own, began, given).model_copy(
        update={
            "used": context.used if context else None,
            "fetching": spent.fetching,
            "storing": spent.storing,
            "steps": tuple(spent.steps),
            "traffic": METER.read() - before,
        }
    )


def _judged(failed: Failed, own: Sequence[Path], began: float, given: ChildSettings) -> Failed:
    """Say of a failure that may be that of a disk whether it is: not writable, or others' as well.

    GDAL and HDF report it in many different ways. `own` are the attempt's folders, the scratch
    folder first.
    """
    if failed.category is Category.OUT_OF_DISK:
        scratch = given.settings.data_dir / "scratch"
        others = filled_by_others(scratch, given.cache, own, began)
        if not others:
            return failed
        said = {"category": Category.DISK_SHARED, "message": f"{failed.message}; {others}"}
        return failed.model_copy(update=said)
    if failed.category not in _MAY_BE_THE_DISK:
        return failed
    fault = unwritable(given.settings, given.cache, own[0])
    if not fault:
        return failed
    message = f"{fault}; the attempt met: {failed.message}"
    return failed.model_copy(update={"category": Category.HOST_FAILED, "message": message})
