"""What a piece of work holds of memory of its own, beyond what the process held before."""

import os
import threading
from collections.abc import Callable

from processes import proctree

_LOOK = 0.002  # seconds


def most_held(work: Callable[[], object]) -> int:
    """Return the most bytes that some work held, of anonymous memory; it runs in this thread."""
    pid = os.getpid()
    before, most, ended = proctree.memory(pid), 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not ended.wait(_LOOK):
            most = max(most, proctree.memory(pid) - before)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        work()
    finally:
        ended.set()
        looking.join()
    return most
