"""What a package's run has used: written into its log, and kept with its attempt."""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.bag.model import RunUse
from worker.sandbox.sandbox import Places, SandboxLimits, Tier


@contextmanager
def reported_use(
    places: Places,
    bounds: SandboxLimits,
    tier: Tier | None,
    note: Callable[[RunUse], None],
    waited: float,
) -> Iterator[None]:
    """Print a last line that says what the run within the block has used, and note it.

    `tier` is None for a package that comes with Swathmill and runs in no sandbox. CPU time is that
    of all its processes which have ended, as all have when the run is over.
    """
    start, before = time.monotonic(), _cpu()
    try:
        yield
    finally:
        used = RunUse(
            seconds=round(time.monotonic() - start, 3),
            cpu_seconds=round(_cpu() - before, 3),
            written=_written(places),
            cores=len(bounds.processors),
            waited=round(waited, 3),
            most_seconds=bounds.seconds,
            most_written=bounds.output,
            most_memory=bounds.memory,
            tier=tier or "none",
        )
        note(used)
        sys.stdout.write(
            f"swathmill: it took {used.seconds:.1f} s of the {bounds.seconds:g} s it may take, "
            f"{used.cpu_seconds:.1f} s of CPU on {used.cores} "
            f"core{'s' if used.cores != 1 else ''}, and left {used.written / 1e6:,.1f} MB of the "
            f"{bounds.output / 1e6:,g} MB it may write; "
            f"{f'tier of the sandbox: {tier}' if tier else 'no sandbox: it comes with Swathmill'}\n"
        )
        sys.stdout.flush()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _written(places: Places) -> int:
    """Return the bytes in the folders in which a program writes."""
    found = 0
    for top in places.written:
        for place, _, files in os.walk(top):
            for file in files:
                with suppress(OSError):
                    found += (Path(place) / file).lstat().st_size
    return found
