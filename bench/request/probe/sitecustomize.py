"""A sampler of CPU time by what it is spent on, in each Python process of a stack.

Python loads it by its name from PYTHONPATH. A thread looks every 10 ms at the CPU time that the
main thread has used since its last look, and adds it to the part that the main thread's innermost
known module belongs to. The sums are in a mapped file: they outlive a process that is killed.

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

PARTS = ("decode", "kernel", "encode", "transfer", "other")
MODULES = {
    "decode": (
        "pyhdf/",
        "h5py/",
        *(f"reprojection/formats/{name}.py" for name in ("hdf4_data", "hdf5")),
        *(
            f"reprojection/read/{name}.py"
            for name in ("granule_layer", "qa", "geolocation", "interpolation")
        ),
    ),
    "kernel": (
        "reprojection/warp/",
        "reprojection/grid/",
        "reprojection/write/mosaic.py",
        "monthly_mean.py",  # a shipped package's own code, by which it is run in its folder
    ),
    "encode": tuple(f"reprojection/write/{name}.py" for name in ("write", "tiff", "overviews")),
    "transfer": (
        "tasks/storage/azure/blobs.py",
        "tasks/storage/blobs.py",
        "tasks/storage/file_blobs.py",
        "tasks/storage/azure/transfers.py",
        "worker/files/",
        "archives/fetch/",
        "/shutil.py",
    ),
}
_LAYOUT = struct.Struct(f"={len(PARTS)}d")
_PERIOD = 0.01
_known: dict[CodeType, int | None] = {}


def read(path: str) -> dict[str, float]:
    """Return the seconds that a process has told."""
    with open(path, "rb") as file:  # noqa: PTH123 - loaded by every process of a stack
        told = file.read(_LAYOUT.size).ljust(_LAYOUT.size, b"\0")
    return dict(zip(PARTS, _LAYOUT.unpack(told), strict=True))


def _part_of(code: CodeType) -> int | None:
    if code not in _known:
        path = code.co_filename
        found = (n for n, part in enumerate(PARTS[:-1]) if any(m in path for m in MODULES[part]))
        _known[code] = next(found, None)
    return _known[code]


def _look(frame: FrameType | None) -> int:
    while frame is not None:
        part = _part_of(frame.f_code)
        if part is not None:
            return part
        frame = frame.f_back
    return len(PARTS) - 1


def _sample(main: int, folder: str) -> None:
    clock = time.pthread_getcpuclockid(main)
    with open(f"{folder}/{os.getpid()}", "w+b") as file:  # noqa: PTH123
        file.truncate(_LAYOUT.size)
        told = mmap.mmap(file.fileno(), _LAYOUT.size)
    sums, last = [0.0] * len(PARTS), 0.0
    while True:
        time.sleep(_PERIOD)
        now = time.clock_gettime(clock)
        if now > last:
            sums[_look(sys._current_frames().get(main))] += now - last
            _LAYOUT.pack_into(told, 0, *sums)
            last = now


def _start() -> None:
    folder = os.environ.get("SWATHMILL_BENCH_PROBE", "")
    if folder:
        _thread.start_new_thread(_sample, (_thread.get_ident(), folder))


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
