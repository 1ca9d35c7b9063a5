"""Which tasks are kept for the host that holds their inputs, as of one look at the fleet.

A task is kept while that host takes it soon: while it has been given no more than its slots take
in two turns, and while no other host is idle when it is not. So a host that holds all inputs is no
bottleneck.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import ManagerCache

LOOK = 64  # tasks looked at for one that has its host
TURNS = 2  # running, which the manager may not know yet, and next


def _none(_key: str) -> Collection[str]:
    return ()


class Preference:
    """Chooses tasks and hosts for the messages of one round.

    `unsuited` returns the hosts that cannot run a task: it is bound to the others then.
    """

    def __init__(
        self,
        cache: ManagerCache,
        locations: InputLocations,
        unsuited: Callable[[str], Collection[str]] = _none,
    ) -> None:
        self._locations = locations
        self._unsuited = unsuited
        self._room: Counter[str] = Counter()
        self._free: Counter[str] = Counter()
        for host, slots in cache.workers.values():
            if slots:
                self._room[host] += TURNS * slots
                self._free[host] += slots
        self._hosts = frozenset(self._room)
        for running in cache.running.values():
            if running.in_hand and running.worker in cache.workers:
                self._free[cache.workers[running.worker][0]] -= 1
        self._open = len(self._hosts)  # with room
        self._idle = {host: None for host, free in self._free.items() if free > 0}
        self._found: dict[str, str] = {}

    def waiting(self, host: str) -> None:
        """Take note that an earlier message waits for this host."""
        if host in self._hosts:
            self._room[host] -= 1
            self._open -= self._room[host] == 0

    def first(self, keys: Iterable[str]) -> str:
        """Of the first keys the first that has its host; empty: none."""
        if len(self._hosts) < 2 or not self._open:
            return ""
        return next((key for key in islice(keys, LOOK) if self._has_room(key)), "")

    def anywhere(self, keys: Iterable[str]) -> str:
        """Of the first keys the first of which no host has inputs; empty: none."""
        if len(self._hosts) < 2:
            return ""
        return next((key for key in islice(keys, LOOK) if not self.host(key)), "")

    def alike(self, key: str, other: str) -> bool:
        """Tell whether two tasks are best run on the same host."""
        return self.host(key) == self.host(other)

    def give(self, keys: Sequence[str]) -> None:
        """Have a batch wait for its host, which `first` found for the first of its tasks."""
        host = self.host(keys[0])
        self.waiting(host)
        self._take(host)
        for key in keys:
            self._locations.given(key, host)

    def give_all(self) -> None:
        """Take note that a batch was sent to all hosts: an idle slot takes it."""
        self._take(next(iter(self._idle), ""))

    def host(self, key: str) -> str:
        """Return the host that a task is best run on; empty: any."""
        if self.bound(key):
            able = self._hosts.difference(self._unsuited(key))
            return max(sorted(able), key=self._idleness, default="")
        if key not in self._found:
            self._found[key] = self._locations.host(key, self._hosts)
        return self._found[key]

    def bound(self, key: str) -> bool:
        """Tell whether some host cannot run a task."""
        return bool(self._unsuited(key))

    def _idleness(self, host: str) -> tuple[bool, int, int]:
        return self._room[host] > 0, self._free[host], self._room[host]

    def _has_room(self, key: str) -> bool:
        host = self.host(key)
        if self._room[host] <= 0:
            return False
        return host in self._idle or not self._idle or self.bound(key)

    def _take(self, host: str) -> None:
        """Take note that a slot of a host has work."""
        self._free[host] -= 1
        if self._free[host] <= 0:
            self._idle.pop(host, None)
