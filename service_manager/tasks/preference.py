"""Which tasks are kept for the host that holds their inputs, as of one look at the fleet.

A task is kept while that host takes it soon: while it has been given no more than its slots take
in two turns, and while no other host is idle when it is not. So a host that holds all inputs is no
bottleneck.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from service_manager.tasks.input_locations import InputLocations
from service_manager.tasks.manager_cache import ManagerCache

LOOK = 64  # tasks looked at for one that has its host
_TURNS = 2  # running, which the manager may not know yet, and next


class Preference:
    """Chooses tasks and hosts for the messages of one round."""

    def __init__(self, cache: ManagerCache, locations: InputLocations) -> None:
        self._locations = locations
        self._room: Counter[str] = Counter()
        self._idle: Counter[str] = Counter()
        for host, slots in cache.workers.values():
            if slots:
                self._room[host] += _TURNS * slots
                self._idle[host] += slots
        self._hosts = tuple(self._room)
        for running in cache.running.values():
            if not running.in_hand:
                continue
            host = cache.workers.get(running.worker, ("", 0))[0]
            if host in self._hosts:
                self._idle[host] -= 1
        self._found: dict[str, str] = {}

    def waiting(self, host: str) -> None:
        """Take note that an earlier message waits for this host."""
        self._room[host] -= 1

    def first(self, keys: Iterable[str]) -> str:
        """Of the first keys the first that has its host; empty: none."""
        if len(self._hosts) < 2 or not any(self._room[host] > 0 for host in self._hosts):
            return ""
        return next((key for key in islice(keys, LOOK) if self._has_room(self.host(key))), "")

    def alike(self, key: str, other: str) -> bool:
        """Whether two tasks are best run on the same host."""
        return self.host(key) == self.host(other)

    def give(self, keys: Sequence[str]) -> None:
        """Have a batch wait for its host, which `first` found for the first of its tasks."""
        host = self.host(keys[0])
        self._room[host] -= 1
        self._idle[host] -= 1
        for key in keys:
            self._locations.given(key, host)

    def give_all(self) -> None:
        """Take note that a batch was sent to all hosts: an idle slot takes it."""
        idle = next((host for host in self._hosts if self._idle[host] > 0), "")
        if idle:
            self._idle[idle] -= 1

    def host(self, key: str) -> str:
        """Return the host that a task is best run on; empty: any."""
        if key not in self._found:
            self._found[key] = self._locations.host(key, self._hosts)
        return self._found[key]

    def _has_room(self, host: str) -> bool:
        if self._room[host] <= 0:
            return False
        return self._idle[host] > 0 or not any(self._idle[other] > 0 for other in self._hosts)
