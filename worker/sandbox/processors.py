"""The processors of a machine, shared by the packages that run on it: each run has its own.

A processor is taken by a lock on its file, which the kernel releases with the process that holds
it. One run at a time collects what it needs; it waits for runs that have all of theirs, so none
waits for ever.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from processes.locks import locked, try_lock

_LOOK = 0.02


@contextmanager
def processors(folder: Path, wanted: int) -> Iterator[tuple[int, ...]]:
    """Yield so many processors that no other run of this machine has, by their numbers.

    Where the machine has fewer, all of it is taken. Waits until they are free.
    """
    folder.mkdir(parents=True, exist_ok=True)
    allowed = sorted(os.sched_getaffinity(0))
    wanted = min(wanted, len(allowed))
    with ExitStack() as held:
        found: list[int] = []
        with locked(folder / "turn"):
            while True:
                for number in allowed:
                    if len(found) < wanted and number not in found:
                        lock = try_lock(folder / str(number))
                        if lock is not None:
                            held.enter_context(lock)
                            found.append(number)
                if len(found) == wanted:
                    break
                time.sleep(_LOOK)
        yield tuple(found)
