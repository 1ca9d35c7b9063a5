"""Limit connections and requests per host, out of politeness."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from archives.errors import NoPlaceError

_LOOK = 0.05  # seconds between two attempts to get a place


class HostLimits(Protocol):
    """Grants connections to hosts."""

    def place(self, host: str) -> AbstractContextManager[None]:
        """Hold one of a host's connections for one request and its whole answer.

        Waits for a free one. Raises NoPlaceError if none becomes free in time.
        """
        ...


@dataclass
class _Host:
    held: int = 0
    next_request: float = 0.0


@dataclass
class LocalLimits:
    """Limits within this process: connections at once, and requests per second, for each host.

    `patience` is the longest wait for a connection, in seconds.
    """

    connections: int = 4
    rate: float = 10.0
    patience: float = 120.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def place(self, host: str) -> Iterator[None]:
        """Implement `HostLimits.place`."""
        wait_for_place(lambda: self._take(host), host, self.patience, self.clock, self.sleep)
        try:
            yield
        finally:
            with self._lock:
                self._hosts[host].held -= 1

    def _take(self, host: str) -> float:
        """Take a connection and return 0, or return the seconds after which to ask again."""
        with self._lock:
            found = self._hosts.setdefault(host, _Host())
            if found.held >= self.connections:
                return _LOOK
            now = self.clock()
            if now < found.next_request:
                return found.next_request - now
            found.held += 1
            found.next_request = now + 1 / self.rate
            return 0.0


def wait_for_place(
    take: Callable[[], float],
    host: str,
    patience: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Call `take` until it returns 0; any other value is the number of seconds to wait.

    Raises:
        NoPlaceError: no connection became free within `patience` seconds.
    """
    end = clock() + patience
    while wait := take():
        left = end - clock()
        if left <= 0:
            raise NoPlaceError(
                f"no connection to {host} came free within {patience:g} s: all that "
                "SWATHMILL_HOST_CONNECTIONS allows to it are in use"
            )
        sleep(min(wait, left))
