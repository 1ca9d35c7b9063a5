"""What every process needs to take part: store, blobs, queues, clock, randomness."""

from dataclasses import dataclass, field
from functools import cached_property
from random import Random, SystemRandom

from tasks.bag.task_table import TaskTable
from tasks.messages.wakeups import WakeUps
from tasks.storage.blobs import Blobs
from tasks.storage.clock import Clock
from tasks.storage.queues import RequestQueue
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


def new_id(source: Random) -> str:
    """Return a random id of 16 hexadecimal digits."""
    return f"{source.getrandbits(64):016x}"
