"""A disk that all workers share and that has room for the files of one attempt, for long.

An attempt that has it to itself ends well. One that ends beside others finds no room: others filled
the disk (`worker/files/disk_use.py`), so it costs its task nothing.
"""

from dataclasses import dataclass, field
from random import Random

from tests.simulation.world import Process, World

TOLD = "other attempts held 1 GB of the disk"


@dataclass
class SharedDisk:
    """When it is full, and which attempts are at work."""

    world: World
    start: float = 0.0
    end: float = 0.0
    at_work: dict[str, Process] = field(default_factory=dict)  # by claim

    @classmethod
    def of(cls, world: World, seed: int, storm: float) -> "SharedDisk":
        """What a seed makes of it: in nearly half of the histories it is full for long."""
        random = Random(f"disk {seed}")  # so that the other histories stay as they are
        if random.random() >= 0.4:
            return cls(world)
        start = random.uniform(0.0, storm / 4)
        return cls(world, start, random.uniform(storm / 2, storm))

    def begins(self, claim: str, process: Process) -> None:
        """An attempt begins to write."""
        self.at_work[claim] = process

    def ends(self, claim: str) -> None:
        """What an attempt has written is removed."""
        self.at_work.pop(claim, None)

    def has_room(self, claim: str) -> bool:
        """Whether there is room for what an attempt writes beside what others have written."""
        others = (one for key, one in self.at_work.items() if key != claim and not one.dead)
        return not self.start <= self.world.now < self.end or not any(others)
