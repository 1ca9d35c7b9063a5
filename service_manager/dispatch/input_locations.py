"""Which hosts hold inputs of tasks: what a worker made or took in lies in its host's cache.

Learnt from the ends of attempts and from the rows of inputs that were there already, without a
call. It is a guess: caches drop what was not used for long. A wrong one costs a fetch.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from zlib import crc32

from service_manager.dispatch.manager_cache import ManagerCache

REMEMBERED = 50_000  # inputs, and tasks; some tens of MB


@dataclass(slots=True)
class _Input:
    size: int
    hosts: dict[str, None] = field(default_factory=dict)  # in the order they took it in


class InputLocations:
    """The inputs of tasks, and the hosts that hold each.

    Bounded: the oldest entries are dropped first.
    """

    def __init__(self, cache: ManagerCache) -> None:
        self._cache = cache
        self._inputs: dict[str, _Input] = {}
        self._needs: dict[str, list[str]] = {}  # inputs by task
        self._failed: dict[str, str] = {}  # the host of a task's latest attempt, which failed

    def made(self, dependent: str, given: str, worker: str, size: int) -> None:
        """Take note that a worker has made an input of a task, and of its size in bytes."""
        if worker not in self._cache.workers:
            return
        found = self._inputs.get(given)
        if found is None:
            _bound(self._inputs)
            found = self._inputs[given] = _Input(size)
        found.hosts[self._cache.workers[worker][0]] = None
        if dependent not in self._needs:
            _bound(self._needs)
        self._needs.setdefault(dependent, []).append(given)

    def given(self, key: str, host: str) -> None:
        """Take note that a task was sent to a host, which will then hold its inputs."""
        for given in self._needs.get(key, ()):
            if given in self._inputs:
                self._inputs[given].hosts[host] = None

    def ended(self, key: str, worker: str, *, failed: bool = False) -> None:
        """Take note that an attempt has ended: its host has fetched the inputs.

        The task is forgotten, but for the host on which it failed: another one is tried first.
        """
        host = self._cache.workers[worker][0] if worker in self._cache.workers else ""
        if host:
            self.given(key, host)
        self._needs.pop(key, None)
        self._failed.pop(key, None)
        if failed and host:
            _bound(self._failed)
            self._failed[key] = host

    def host(self, key: str, among: Collection[str]) -> str:
        """Of these hosts the one that holds most bytes of a task's inputs; empty: none does.

        Of a task whose latest attempt failed, another host than that one.
        """
        if key in self._failed:
            others = sorted(host for host in among if host != self._failed[key])
            return others[crc32(key.encode()) % len(others)] if others else ""
        held: Counter[str] = Counter()
        for given in self._needs.get(key, ()):
            found = self._inputs.get(given)
            if found is not None:
                for host in found.hosts:
                    held[host] += found.size
        return max((host for host in held if host in among), key=held.__getitem__, default="")


def _bound(remembered: dict[str, _Input] | dict[str, list[str]] | dict[str, str]) -> None:
    if len(remembered) >= REMEMBERED:
        del remembered[next(iter(remembered))]
