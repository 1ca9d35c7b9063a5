"""What every process needs to take part: store, blobs, queues, clock, randomness."""

from dataclasses import dataclass, field
from functools import cached_property
from random import Random, SystemRandom

from tasks.bag.task_table import TaskTable
from tasks.messages.wakeups import MemoryWakeUps, WakeUps
from tasks.storage.blobs import Blobs, MemoryBlobs
from tasks.storage.clock import Clock, ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.queues import MemoryQueue, RequestQueue
from tasks.storage.store import BATCH_OPERATIONS, Store


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The outside world as arguments.

    `most_operations` is how many operations the store takes in one transaction.
    """

    store: Store
    blobs: Blobs
    queue: RequestQueue
    wakeups: WakeUps
    clock: Clock
    random: Random = field(default_factory=SystemRandom)
    most_operations: int = BATCH_OPERATIONS

    @cached_property
    def tasks(self) -> TaskTable:
        """The table `tasks`."""
        return TaskTable(self.store)


def memory_runtime(clock: Clock | None = None, seed: int = 0) -> Runtime:
    """Services that live in this process, for tests."""
    return Runtime(
        store=MemoryStore(),
        blobs=MemoryBlobs(),
        queue=MemoryQueue(),
        wakeups=MemoryWakeUps(),
        clock=clock or ManualClock(),
        random=Random(seed),
    )


def new_id(source: Random) -> str:
    """Return a random id of 16 hexadecimal digits."""
    return f"{source.getrandbits(64):016x}"
