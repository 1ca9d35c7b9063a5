"""Which hosts hold inputs of tasks: what a worker made or took in lies in its host's cache.

Learnt from the ends of attempts and from the rows of inputs that were there already, without a
call. It is a guess: caches drop what was not used for long. A wrong one costs a fetch.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from service_manager.tasks.manager_cache import ManagerCache

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

    def ended(self, key: str, worker: str) -> None:
        """Take note that an attempt has ended: its host has fetched the inputs.

        The task is forgotten: if it failed, it is not sent to that host again.
        """
        if worker in self._cache.workers:
            self.given(key, self._cache.workers[worker][0])
        self._needs.pop(key, None)

    def host(self, key: str, among: Collection[str]) -> str:
        """Of these hosts the one that holds most bytes of a task's inputs; empty: none does."""
        held: Counter[str] = Counter()
        for given in self._needs.get(key, ()):
            found = self._inputs.get(given)
            if found is not None:
                for host in found.hosts:
                    held[host] += found.size
        return max((host for host in held if host in among), key=held.__getitem__, default="")


def _bound(remembered: dict[str, _Input] | dict[str, list[str]]) -> None:
    if len(remembered) >= REMEMBERED:
        del remembered[next(iter(remembered))]
