"""Hosts that fail everything: at the start of each attempt, or without a cause that is known.

The first kind fails the worker's self-test, too, and may stay broken for good. The second passes
it: only what succeeds on other hosts shows it.
"""

from dataclasses import dataclass, field
from random import Random

from tasks.bag.categories import Category
from tests.simulation.world import ViolationError, World

TOOK = 0.1  # seconds of an attempt that fails so


@dataclass
class BrokenHosts:
    """Which worker's host is broken, from when, until when, and how."""

    world: World
    worker: str = ""
    start: float = 0.0
    end: float = 0.0
    fails: Category = Category.HOST_FAILED
    untested: set[str] = field(default_factory=set)  # workers that failed so

    @classmethod
    def of(cls, world: World, seed: int, storm: float, *, alone: bool) -> "BrokenHosts":
        """What a seed makes of it; nothing where it may be `alone`, since the others leave."""
        random = Random(f"broken {seed}")  # so that the other histories stay as they are
        if alone or random.random() >= 0.3:
            return cls(world)
        start = random.uniform(0.0, storm / 2)
        fails = random.choice([Category.HOST_FAILED, Category.HOST_FAILED, Category.UNKNOWN])
        for_good = fails is Category.HOST_FAILED and random.random() < 0.5
        end = float("inf") if for_good else start + random.uniform(60.0, storm / 2)
        return cls(world, f"worker-{random.randrange(3)}", start, end, fails)

    def among(self, workers: int, storm: float) -> None:
        """There are so many workers: a host that is the only one is mended after the storm."""
        if workers == 1:
            self.end = min(self.end, storm)

    def broken(self, worker: str) -> Category | None:
        """How attempts fail on a worker now; None: they do not."""
        if worker != self.worker or not self.start <= self.world.now < self.end:
            return None
        return self.fails

    def test(self, worker: str) -> str:
        """What the worker's self-test meets now."""
        fault = "broken" if self.broken(worker) is Category.HOST_FAILED else ""
        if not fault:
            self.untested.discard(worker)
        return fault

    def begins(self, worker: str) -> None:
        """A worker begins an attempt: not after it failed so, before its test has passed."""
        if worker in self.untested:
            raise ViolationError(f"{worker} begins an attempt on a host that failed one")

    def failed(self, worker: str) -> None:
        """An attempt has failed on a worker because of its host."""
        self.world.faults["host failed"] += 1
        self.untested.add(worker)

    def starts(self, worker: str) -> None:
        """The worker starts again, and tests itself first."""
        self.untested.discard(worker)
