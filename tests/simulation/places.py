"""The places at an archive host, as Redis counts them for all workers."""

from dataclasses import dataclass, field
from random import Random

from tests.simulation.world import Process, World

_SEARCH = "a search"
LEASE = 10.0
"""Seconds for which the place of a process that has died, or stalls, is not free."""


@dataclass
class Places:
    """So many connections at once; who does not live gives its place up after a while."""

    world: World
    number: int
    random: Random
    held: dict[str, tuple[Process, float]] = field(default_factory=dict)  # by claim; seen alive

    def take(self, claim: str, process: Process) -> bool:
        """Take a place, if one is free."""
        now = self.world.now
        for other, (holder, seen) in list(self.held.items()):
            if not holder.dead and holder.stalled_until <= now:
                self.held[other] = holder, now
            elif now - seen > LEASE:
                del self.held[other]
        if len(self.held) >= self.number:
            return False
        self.held[claim] = process, now
        return True

    def search(self) -> None:
        """Somebody who is no worker holds all places for a while, again and again."""
        if self.world.calm:
            self.held.pop(_SEARCH, None)
            return
        if _SEARCH in self.held:
            del self.held[_SEARCH]
            self.world.at(self.random.uniform(10, 60), self.search)
            return
        self.held[_SEARCH] = Process(name=_SEARCH), self.world.now
        self.world.at(self.random.uniform(5, 40), self.search)

    def leave(self, claim: str) -> None:
        """Give a place up."""
        self.held.pop(claim, None)
