"""What a package's run has used, told in its log."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from worker.sandbox.sandbox import Places, SandboxLimits


@contextmanager
def told_use(places: Places, bounds: SandboxLimits) -> Iterator[None]:
    """Print a last line that says what the run within the block has used, however it ends.

    CPU time is that of all its processes which have ended, as all have when the run is over.
    """
    start, before = time.monotonic(), _cpu()
    try:
        yield
    finally:
        took, cpu = time.monotonic() - start, _cpu() - before
        sys.stdout.write(
            f"swathmill: it took {took:.1f} s of the {bounds.seconds:g} s it may take, {cpu:.1f} s "
            f"of CPU, and left {_written(places) / 1e6:,.1f} MB of the {bounds.output / 1e6:,g} MB "
            "it may write\n"
        )
        sys.stdout.flush()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _written(places: Places) -> int:
    """Return the bytes in a program's folders of outputs and temporary files."""
    found = 0
    for top in (places.outputs, places.temporary):
        for place, _, files in os.walk(top):
            for file in files:
                with suppress(OSError):
                    found += (Path(place) / file).lstat().st_size
    return found
