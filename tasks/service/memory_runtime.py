"""Services that live in one process, for tests and measurements."""

from random import Random

from tasks.bag.runtime import Runtime
from tasks.messages.wakeups import MemoryWakeUps
from tasks.storage.blobs import MemoryBlobs
from tasks.storage.clock import Clock, ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.queues import MemoryQueue


def memory_runtime(clock: Clock | None = None, seed: int = 0) -> Runtime:
    """Return services in memory; the clock is set by hand if none is given."""
    return Runtime(
        store=MemoryStore(),
        blobs=MemoryBlobs(),
        queue=MemoryQueue(),
        wakeups=MemoryWakeUps(),
        clock=clock or ManualClock(),
        random=Random(seed),
    )
