"""Children of the worker: started by a forkserver that has imported everything.

The forkserver is started before the worker has any thread or client, so that a fork never copies a
lock in use or a socket. It only imports modules.
"""

import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from processes import proctree
from processes.parents import become_subreaper
from worker.sandbox.guard import KILL, Work, guard
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
    "worker.slots.child",
    "worker.slots.frozen",
)

# A fork would lose threads that a library starts on import or at first use, and a slot should use
# one core. GDAL's cache is limited so that it does not dominate an attempt's memory.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GDAL_NUM_THREADS": "1",
    "GDAL_CACHEMAX": "128",
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".none",
}
# `Process.start` inspects all processes, also one that another thread is just closing.
_STARTING = threading.Lock()
_GUARDS: set[int] = set()  # process ids of the guards that threads follow
_FORKSERVER_DIED = 255  # multiprocessing's exit code when the real one is unknown
_DEAF_SECONDS = 10.0  # a guard that does not answer a kill within this time is killed itself


def start_forkserver(preload: Sequence[str] = PRELOADED) -> None:
    """Start the forkserver, which imports `preload`; call this before any thread or SDK client.

    This process becomes the parent of whatever a killed guard leaves behind, so that it can end it.
    """
    if threading.active_count() > 1:
        raise RuntimeError("the forkserver must be started before any thread")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    become_subreaper()
    forkserver.set_forkserver_preload(list(preload))
    forkserver.ensure_running()


def await_forkserver() -> None:
    """Wait until the forkserver has imported everything, so that no attempt waits for it."""
    probe = multiprocessing.get_context("forkserver").Process(target=_nothing)
    probe.start()
    probe.join()


def _nothing() -> None:
    return


class AttemptProcess:
    """One attempt's guard and child, as the supervisor's thread sees them."""

    def __init__(self, process: ForkServerProcess, control: Connection) -> None:
        self._process = process
        self._control = control
        self._sending = threading.Lock()
        self._deadline: threading.Timer | None = None

    @classmethod
    def start(cls, work: Work, memory_limit: int) -> "AttemptProcess":
        """Start `work` (picklable) under a guard; `memory_limit` in bytes is for the whole tree."""
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=guard, args=(theirs, pickle.dumps(work), memory_limit), daemon=False
        )
        with _STARTING:
            process.start()
            _GUARDS.add(process.pid or 0)
        theirs.close()
        return cls(process, ours)

    def follow(self, heard: Callable[[Message], None]) -> Ended | None:
        """Pass each report to `heard` until the tree is gone; return None if the guard was killed.

        A guard that fails by itself ends its tree with it; this is reported as the child's failure.
        """
        ended: Ended | None = None
        while ended is None:
            try:
                message = decode(self._control.recv_bytes())
            except (EOFError, ConnectionResetError):
                break
            if isinstance(message, Ended):
                ended = message
            else:
                heard(message)
        self._process.join()
        with _STARTING:
            _GUARDS.discard(self._process.pid or 0)
            if ended is None:
                _end_orphans()
        code = self._process.exitcode
        if ended is None and code is not None and 0 < code < _FORKSERVER_DIED:
            text = f"the guard ended with exit code {code}; its traceback is in the worker's log"
            ended = Ended(exit_code=code, peak_memory=0, over_memory=False, log=text)
        with self._sending:
            if self._deadline is not None:
                self._deadline.cancel()
            self._control.close()
            with _STARTING:
                self._process.close()
        return ended

    def kill(self) -> None:
        """Have the whole tree killed; `follow` returns soon after. Any thread may call this."""
        with self._sending:
            if self._control.closed or self._deadline is not None:
                return
            with suppress(BrokenPipeError, ConnectionResetError):  # the guard has just ended
                self._control.send_bytes(KILL)
            # A guard that hangs is killed, and `follow` ends the processes it leaves.
            self._deadline = threading.Timer(_DEAF_SECONDS, self._end_guard)
            self._deadline.daemon = True
            self._deadline.start()

    def _end_guard(self) -> None:
        with self._sending:
            if not self._control.closed:
                self._process.kill()


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
