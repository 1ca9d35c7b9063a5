"""Warm children of the worker: started by a forkserver that has imported everything.

The forkserver is a fork of the worker, made before the worker has any thread, client or secret: so
a fork never copies a lock in use, a socket or a key. The worker has imported for both what both
use; what children alone need the forkserver imports.
"""

import gc
import importlib
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import structlog

from processes import handed_over, proctree
from processes.folders import remove_folder
from processes.one_thread import ONE_THREAD
from processes.parents import become_subreaper, name_process
from tasks.service.classify import host_failed
from tasks.settings import forget_secrets
from worker.sandbox.guard import JOB, KILL, MakeWork, guard, order
from worker.sandbox.messages import Ended, Message, decode

PRELOADED = (
    "numpy",
    "rasterio",
    "rasterio.io",
    "pyproj",
    "pyhdf.SD",
    "h5py",
    "shapely",
    "worker.sandbox.guard",
)
"""What a worker imports once for itself and its children."""
OF_CHILDREN = ("worker.slots.child", "worker.slots.frozen")
"""What the forkserver imports by itself, while the worker connects."""

# A fork would lose threads that a library starts on import or at first use, and a slot should use
# one core. GDAL's cache is limited so that it does not dominate an attempt's memory.
_ENVIRONMENT = {
    **ONE_THREAD,
    "GDAL_NUM_THREADS": "1",
    "GDAL_CACHEMAX": "128",
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".none",
}
# `Process.start` inspects all processes, also one that another thread is just closing.
_STARTING = threading.Lock()
_HOME = "makers-"
_log = structlog.get_logger("worker")
_GUARDS: set[int] = set()  # process ids of the guards that threads follow
_FORKSERVER_DIED = 255  # multiprocessing's exit code when the real one is unknown
_DEAF_SECONDS = 10.0  # a guard that does not answer a kill within this time is killed itself


def start_forkserver(
    preload: Sequence[str] = PRELOADED, beyond: Sequence[str] = OF_CHILDREN
) -> None:
    """Import `preload` and fork the forkserver; call this before any thread, SDK client or secret.

    The forkserver goes on to import what is `beyond`, while this process connects. This process
    becomes the parent of whatever a killed guard leaves behind, so that it can end it.
    A forkserver that ends is replaced by a new program, which imports all of it again: by then this
    process has threads.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    become_subreaper()
    forkserver.set_forkserver_preload([*preload, *beyond])
    gc.disable()  # what is imported stays
    for module in preload:
        with suppress(ImportError):  # as a forkserver does; what needs it says so
            importlib.import_module(module)
    gc.freeze()  # neither process copies it by looking for garbage
    gc.enable()
    if threading.active_count() > 1:
        raise RuntimeError("the forkserver must be started before any thread")
    spawn, opened = util.spawnv_passfds, _open_files()
    util.spawnv_passfds = partial(_fork_program, opened)
    try:
        resource_tracker.ensure_running()
        forkserver.ensure_running()
    finally:
        util.spawnv_passfds = spawn


def _open_files() -> set[int]:
    return {int(file.name) for file in Path("/dev/fd").iterdir()}


def _fork_program(opened: set[int], _path: str, words: Sequence[str], kept: Sequence[int]) -> int:
    """Run multiprocessing's code in a fork, in place of `util.spawnv_passfds` with `-c CODE`.

    Of the open files the fork has `kept`, and those of the libraries, which were `opened` before.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        handed_over.forgo()
        forget_secrets()
        for number in _open_files() - opened - {*kept}:
            with suppress(OSError):  # the list itself was among them
                os.close(number)
        # Their locks may have been held when they were copied.
        forkserver._forkserver.__init__()  # type: ignore[misc]
        resource_tracker._resource_tracker.__init__()  # type: ignore[misc]
        name_process("tracker" if "resource_tracker" in words[-1] else "forkserver")
        exec(words[-1], {})
    except SystemExit:
        code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as the worker
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Child:
    """A warm child under its guard, as this process sees them."""

    def __init__(self, process: ForkServerProcess, control: Connection, home: Path) -> None:
        self.process = process
        self.home = home  # of its makers
        self.control = control
        self.attempts = 0
        self.thread = 0  # the one that gave it its last job

    @classmethod
    def start(cls, make_work: bytes, memory_limit: int, homes: Path) -> "_Child":
        context = multiprocessing.get_context("forkserver")
        homes.mkdir(parents=True, exist_ok=True)
        home = Path(tempfile.mkdtemp(prefix=_HOME, dir=homes))
        ours, theirs = context.Pipe()
        process = context.Process(target=guard, args=(theirs, memory_limit, home), daemon=False)
        with _STARTING:
            process.start()
            _GUARDS.add(process.pid or 0)
        theirs.close()
        with suppress(BrokenPipeError, ConnectionResetError):  # the guard has just ended
            ours.send_bytes(make_work)
        return cls(process, ours, home)

    def give(self, job: bytes) -> None:
        """Begin the next attempt."""
        self.attempts += 1
        self.thread = threading.get_ident()
        with suppress(BrokenPipeError, ConnectionResetError):  # the guard has just ended
            self.control.send_bytes(order(JOB, self.attempts, job))

    def is_fit(self) -> bool:
        """Tell whether the idle child lives: its guard says nothing before the next attempt."""
        return not self.control.poll()

    def leave(self) -> None:
        """Have the guard end the child, and itself."""
        self.control.close()

    def end(self, *, orphans: bool) -> int | None:
        """Wait for the guard's end, with the processes it may have left; return its exit code."""
        self.control.close()
        self.process.join()
        with _STARTING:
            _GUARDS.discard(self.process.pid or 0)
            if orphans:
                _end_orphans()
            code = self.process.exitcode
            self.process.close()
        try:
            remove_folder(self.home)
        except (OSError, RecursionError) as error:
            _log.warning("home of makers not removed", folder=str(self.home), error=str(error))
        return code


class AttemptProcess:
    """One attempt in a warm child, as the supervisor's thread sees it."""

    def __init__(self, child: _Child, give_back: Callable[[_Child, bool], None]) -> None:
        self._child = child
        self._number = child.attempts
        self._give_back = give_back
        self._sending = threading.Lock()
        self._deadline: threading.Timer | None = None
        self._over = False

    def follow(self, heard: Callable[[Message], None]) -> Ended | None:
        """Pass each report to `heard` until the attempt's end; return None if the guard was killed.

        A guard that fails by itself ends its tree with it; this is reported as the child's failure.
        """
        ended: Ended | None = None
        try:
            while ended is None:
                message = decode(self._child.control.recv_bytes())
                if isinstance(message, Ended):
                    ended = message
                else:
                    heard(message)
        except (EOFError, ConnectionResetError):
            pass
        except BaseException:
            self._child.process.kill()  # what is read from it makes no sense
            raise
        finally:
            # No order to kill may be on its way when the child is given its next job.
            with self._sending:
                self._over = True
                if self._deadline is not None:
                    self._deadline.cancel()
            code = None
            if ended is None or not ended.kept:
                code = self._child.end(orphans=ended is None)
            self._give_back(self._child, ended is not None and ended.kept)
        if ended is None and code is not None and 0 < code < _FORKSERVER_DIED:
            text = f"the guard ended with exit code {code}; its traceback is in the worker's log"
            ended = Ended(exit_code=code, peak_memory=0, over_memory=False, log=text)
        return ended

    def kill(self) -> None:
        """Have the whole tree killed; `follow` returns soon after. Any thread may call this."""
        with self._sending:
            if self._over or self._deadline is not None:
                return
            with suppress(BrokenPipeError, ConnectionResetError):  # the guard has just ended
                self._child.control.send_bytes(order(KILL, self._number))
            # A guard that hangs is killed, and `follow` ends the processes it leaves.
            self._deadline = threading.Timer(_DEAF_SECONDS, self._end_guard)
            self._deadline.daemon = True
            self._deadline.start()

    def _end_guard(self) -> None:
        with self._sending:
            if not self._over:
                self._child.process.kill()


class Children:
    """The warm children of a worker's slots.

    A child serves one attempt after the other. One that was killed, crashed, failed or grew is
    replaced at once, so that the next attempt finds a child that has been prepared.
    """

    def __init__(self, make_work: MakeWork, memory_limit: int, slots: int, homes: Path) -> None:
        """Make children that prepare themselves by `make_work` (picklable); start none yet.

        `memory_limit` in bytes is for the whole tree of an attempt. The folders of makers lie in
        `homes`, best on the file system of storage and caches.
        """
        self._homes = homes
        self._make_work = pickle.dumps(make_work)
        self._memory_limit = memory_limit
        self._slots = slots
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._living = 0

    def fill(self) -> None:
        """Start a child for each slot that has none."""
        while self._count(1, most=self._slots):
            child = self._started()
            with self._lock:
                self._idle.append(child)

    def start(self, job: object) -> AttemptProcess:
        """Give a job to an idle child, best to the one that served this thread before.

        The child's work gets the job pickled.

        Raises:
            AttemptError: host failed, if no child can be started.
        """
        data = pickle.dumps(job)
        child = self._take()
        if child is None:
            self._count(1)
            try:
                child = self._started()
            except (OSError, EOFError) as error:  # EOFError: the forkserver has died
                raise host_failed("no child can be started", error) from error
        child.give(data)
        return AttemptProcess(child, self._give_back)

    def close(self) -> None:
        """End the idle children; those that serve an attempt end with it."""
        with self._lock:
            self._slots = 0
            idle, self._idle = self._idle, []
        for child in idle:
            child.leave()
        for child in idle:
            child.end(orphans=False)
            self._count(-1)

    def _count(self, change: int, most: int | None = None) -> bool:
        """Change the number of living children, unless it would exceed `most`."""
        with self._lock:
            if most is not None and self._living + change > most:
                return False
            self._living += change
            return True

    def _started(self) -> _Child:
        try:
            return _Child.start(self._make_work, self._memory_limit, self._homes)
        except BaseException:
            self._count(-1)
            raise

    def _take(self) -> _Child | None:
        me = threading.get_ident()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                child = next((one for one in self._idle if one.thread == me), self._idle[-1])
                self._idle.remove(child)
            if child.is_fit():
                return child
            child.end(orphans=True)
            self._count(-1)

    def _give_back(self, child: _Child, kept: bool) -> None:
        with self._lock:
            if kept and self._living <= self._slots:
                self._idle.append(child)
                return
        if kept:
            child.leave()
            child.end(orphans=False)
        self._count(-1)
        with suppress(EOFError, OSError):  # the forkserver has died: the next start revives it
            self.fill()


def _end_orphans() -> None:
    """Kill the processes that a killed guard has left to this process, detached ones too."""
    kept = _GUARDS | _servers()
    end = time.monotonic() + _DEAF_SECONDS  # do not wait for an unkillable process
    while time.monotonic() < end:
        orphans = [pid for pid in proctree.children(os.getpid()) if pid not in kept]
        if not orphans:
            return
        for pid in orphans:
            proctree.kill_descendants(pid)
            proctree.kill_and_reap(pid)
        time.sleep(0.001)


def _servers() -> set[int]:
    """Return the ids of the forkserver and the resource tracker, private to multiprocessing."""
    return {
        getattr(forkserver._forkserver, "_forkserver_pid", None) or 0,
        getattr(resource_tracker._resource_tracker, "_pid", None) or 0,
    }
