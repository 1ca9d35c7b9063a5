"""A sampler of CPU time by what it is spent on, in each Python process of a stack.

Python loads it by its name from PYTHONPATH. A thread looks every millisecond or four at the CPU
time that each other thread has used since its last look, and adds it to the part that the thread's
innermost known module belongs to; what services do is told by their names. The sums are in a mapped
file: they outlive a process that is killed.

With SWATHMILL_BENCH_IN_CHILD it samples nothing: children open granules themselves, without makers.
"""

import _thread
import mmap
import os
import struct
import sys
import time
from types import CodeType, FrameType
from typing import Any

MODULES = {
    "decode": (
        "pyhdf/",
        "h5py/",
        *(f"reprojection/formats/{name}.py" for name in ("hdf4_data", "hdf5")),
        *(
            f"reprojection/read/{name}.py"
            for name in ("granule_layer", "qa", "geolocation", "interpolation", "kept")
        ),
    ),
    "kernel": ("reprojection/warp/", "reprojection/grid/", "reprojection/write/mosaic.py"),
    "encode": tuple(
        f"reprojection/write/{name}.py"
        for name in ("write", "tiff", "overviews", "band_statistics", "stack")
    ),
    "transfer": (
        "tasks/storage/azure/blobs.py",
        "tasks/storage/blobs.py",
        "tasks/storage/file_blobs.py",
        "tasks/storage/azure/transfers.py",
        "worker/files/",
        "archives/fetch/",
        "/shutil.py",
    ),
    "package": ("monthly_mean.py",),  # its own code, by which it is run in its folder
    "run of a package": (
        "worker/sandbox/confined.py",
        "worker/phases/reduce.py",
        "worker/phases/adopt.py",
        "worker/sandbox/reading/",
    ),
    "STAC": ("reprojection/write/stac.py",),
    "maker, child, guard": (
        "multiprocessing/",
        *(f"worker/sandbox/{name}.py" for name in ("guard", "makers", "children", "messages")),
        *(f"worker/slots/{name}.py" for name in ("child", "apart", "maker_answers")),
    ),
    "rows": ("tasks/bag/", "tasks/storage/sqlite_store.py", "worker/slots/supervisor.py"),
    "messages": ("celery/", "kombu/", "redis/"),
}
"""By part; parts of paths. What comes first counts where two hold of one path."""
SERVICES = {
    "service_manager": "manager",
    "portal": "portal",
    "mail_catcher": "rest",
    "swathmill": "rest",
}
"""The part of a process, by its name."""
SAMPLER = "sampler"
"""The part of the samplers themselves, which a request has not without them."""
PARTS = (*MODULES, "worker, other", "manager", "portal", "rest", SAMPLER)
USEFUL, PACKAGE = ("decode", "kernel", "encode", "transfer"), "package"
"""What a request is for, and the part of a package's own code, which is told apart."""
_WORKER = len(MODULES)
_LAYOUT = struct.Struct(f"={len(PARTS)}d")
_PERIOD, _SHORT = 0.004, 0.001  # seconds between two looks; the second while there is work
_NAMED = 50  # looks after which a process has its name
_SWITCH = 0.0002  # seconds that a thread keeps Python's lock once a look waits for it
_known: dict[CodeType, int | None] = {}


def read(path: str) -> dict[str, float]:
    """Return the seconds that a process has told."""
    with open(path, "rb") as file:  # noqa: PTH123 - loaded by every process of a stack
        told = file.read(_LAYOUT.size).ljust(_LAYOUT.size, b"\0")
    return dict(zip(PARTS, _LAYOUT.unpack(told), strict=True))


def _part_of(code: CodeType) -> int | None:
    if code not in _known:
        path = code.co_filename
        found = (n for n, known in enumerate(MODULES.values()) if any(m in path for m in known))
        _known[code] = next(found, None)
    return _known[code]


def _look(frame: FrameType | None) -> int:
    while frame is not None:
        part = _part_of(frame.f_code)
        if part is not None:
            return part
        frame = frame.f_back
    return _WORKER


def _service() -> int | None:
    """Return the part of this process where it is a service."""
    with open("/proc/self/comm") as file:  # noqa: PTH123
        part = SERVICES.get(file.read().strip())
    return None if part is None else PARTS.index(part)


def _clocks(but: int) -> dict[int, tuple[FrameType, float]]:
    """Return the frame of each other thread, with the CPU time that it has used."""
    found = {}
    for thread, frame in sys._current_frames().items():
        if thread != but:
            try:
                found[thread] = frame, time.clock_gettime(time.pthread_getcpuclockid(thread))
            except OSError:  # it has just ended
                continue
    return found


def _sample(told: mmap.mmap) -> None:
    me = _thread.get_ident()
    sums, last = [0.0] * len(PARTS), dict[int, float]()
    period, looks, looked = _SHORT, 0, time.monotonic()
    while True:
        time.sleep(period)
        # What a thread does in the end, before it waits, is told as waiting: up to a period of it.
        period, looks = _PERIOD, looks + 1
        if looks < _NAMED:
            service = _service()
        before, looked = looked, time.monotonic()
        for thread, (frame, now) in _clocks(me).items():
            used = now - last.get(thread, 0.0)
            if used > 0:
                part = _look(frame) if service is None else service
                sums[part] += min(used, looked - before)  # more is another thread's clock
                last[thread], period = now, _SHORT
        sums[-1] = time.thread_time()
        _LAYOUT.pack_into(told, 0, *sums)


def _start() -> None:
    folder = os.environ.get("SWATHMILL_BENCH_PROBE", "")
    if folder:
        # Else what keeps the lock for long is told as what it does next without it.
        sys.setswitchinterval(_SWITCH)
        # At once: a maker may open no file soon.
        with open(f"{folder}/{os.getpid()}", "w+b") as file:  # noqa: PTH123
            file.truncate(_LAYOUT.size)
            told = mmap.mmap(file.fileno(), _LAYOUT.size)
        _thread.start_new_thread(_sample, (told,))


def _open_in_child() -> None:
    """Have a child that is being forked do its jobs without makers, and keep granules as they do.

    It has makers still: a worker's test of itself asks for one.
    """
    child = sys.modules.get("worker.slots.child")
    kept = sys.modules.get("reprojection.read.kept")
    if child is None or kept is None or hasattr(child, "BENCH_IN_CHILD"):
        return
    perform = child.perform

    def without_makers(job: Any, given: Any, tell: Any, blobs: Any, begun: Any, _: Any) -> Any:
        memory = int(given.settings.attempt_memory_gb * 1e9) // 16
        kept.keep_granules(min(kept.KEPT_BYTES, memory))
        return perform(job, given, tell, blobs, begun)

    vars(child).update(perform=without_makers, BENCH_IN_CHILD=True)


if os.environ.get("SWATHMILL_BENCH_IN_CHILD"):
    os.register_at_fork(after_in_child=_open_in_child)
else:
    os.register_at_fork(after_in_child=_start)
    _start()
