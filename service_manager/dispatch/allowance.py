"""What may be sent now: the limits of operators, places of archive hosts, room for packages' runs.

A host's places are the connections that Swathmill allows itself to it, over all workers. A message
takes one, because its tasks run one after another; a task without a place waits as READY, without a
slot.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from service_manager.dispatch.manager_cache import WatchedAttempt
from tasks.bag import classes
from tasks.bag.model import Phase
from tasks.operators.restrictions import Restrictions


@dataclass(frozen=True, slots=True)
class Need:
    """What a task of a class takes: its phase, the archive host that it fetches from, a run's room.

    `package` is the family of the classes of a package's runs, which share what room there is.
    """

    phase: Phase | None = None
    host: str = ""
    package: str = ""

    @property
    def scarce(self) -> bool:
        """True if it may have to wait for a place or for room."""
        return bool(self.host or self.package)

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, task_class: str) -> "Need":
        """Return what a class takes."""
        package = classes.parse(task_class).family if classes.package(task_class) else ""
        return cls(classes.phase(task_class), classes.archive_host(task_class), package)


@dataclass
class Allowance:
    """How many more tasks may be sent, by owner and phase, and messages by host and package.

    `places` is what a host has; 0: no limit. `rooms` says for how many runs there is room, where
    that is known. `owners` and `phases` count tasks in flight, `hosts` and `packages` messages.
    """

    restrictions: Restrictions
    places: int = 0
    owners: Mapping[str, int] = field(default_factory=dict)
    phases: Counter[Phase] = field(default_factory=Counter)
    hosts: Counter[str] = field(default_factory=Counter)
    rooms: Mapping[str, int] = field(default_factory=dict)
    packages: Counter[str] = field(default_factory=Counter)

    @property
    def idle(self) -> bool:
        """True if no phase is restricted, no host is full, and no package lacks room."""
        restricted = self.restrictions.paused_phases or self.restrictions.phase_limits
        return not restricted and not self.full and not any(map(self._lacks_room, self.rooms))

    @property
    def full(self) -> bool:
        """True if all places of some host are taken."""
        return bool(self.places) and any(n >= self.places for n in self.hosts.values())

    def _lacks_room(self, package: str) -> bool:
        return self.packages[package] >= self.rooms[package]

    def paused(self, phase: Phase | None) -> bool:
        """Tell whether a phase is paused."""
        return phase in self.restrictions.paused_phases

    def passes(self, need: Need) -> bool:
        """Tell whether one more task may be sent."""
        if need.host and self.places and self.hosts[need.host] >= self.places:
            return False
        if need.package in self.rooms and self._lacks_room(need.package):
            return False
        if need.phase is None:
            return True
        limit = self.restrictions.phase_limits.get(need.phase)
        return not self.paused(need.phase) and (limit is None or self.phases[need.phase] < limit)

    def left(self, owner: str) -> bool:
        """Tell whether one more task of an owner may be sent."""
        limit = self.restrictions.owner_limits.get(owner)
        return limit is None or self.owners.get(owner, 0) < limit

    def most(self, most: int, owner: str, need: Need) -> int:
        """Return how many tasks a batch may have, of `most` at most."""
        limit = self.restrictions.owner_limits.get(owner)
        if limit is not None:
            most = min(most, limit - self.owners.get(owner, 0))
        limit = self.restrictions.phase_limits.get(need.phase) if need.phase is not None else None
        if limit is None or need.phase is None:
            return most
        return min(most, limit - self.phases[need.phase])

    def take(self, need: Need, tasks: int) -> None:
        """Count a message with so many tasks."""
        if need.phase is not None:
            self.phases[need.phase] += tasks
        if need.host:
            self.hosts[need.host] += 1
        if need.package:
            self.packages[need.package] += 1


def host_of(need: Need) -> str:
    """Return the archive host that a task fetches from; "" if none."""
    return need.host


def package_of(need: Need) -> str:
    """Return the package whose run a task is; "" if none."""
    return need.package


def held_places(running: Iterable[WatchedAttempt], of: Callable[[Need], str]) -> Counter[str]:
    """Count the places that attempts hold: one for each batch that a slot has claimed.

    What waits in a batch counts as well: when it begins, its worker has yet to say so.

    Args:
        running: The attempts.
        of: Whose places: `host_of` or `package_of`.
    """
    batches = {
        (held, one.worker, one.claimed_at)
        for one in running
        for held in [of(Need.of(one.task_class))]
        if held
    }
    return Counter(held for held, _, _ in batches)
