"""The request queue: wake-ups for requests that are new or have an order. The row is the truth."""

import threading
from collections.abc import Callable
from typing import Protocol

QUEUE = "requests"
FIRST = "*"
"""In place of a host: all workers, before what is kept for their hosts."""
_AT = "@"  # in no name of a host or place


def address(host: str, place: str) -> str:
    """Return to whom a message goes: a host of a place; without a host all workers there.

    Empty: all workers that have no place.
    """
    return f"{host}{_AT}{place}" if place else host


def of_address(text: str) -> tuple[str, str]:
    """Return the host and the place of an address."""
    host, _, place = text.partition(_AT)
    return host, place


Ack = Callable[[], None]


class RequestQueue(Protocol):
    """Request ids on their way to the manager; any may be lost or doubled."""

    def send(self, request: str) -> None:
        """Tell the manager to look at a request's row."""
        ...

    def receive(self) -> list[tuple[str, Ack]]:
        """Ids that have arrived, without waiting; call the second when it was looked at."""
        ...


class MemoryQueue:
    """The request queue in this process."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._lock = threading.Lock()

    def send(self, request: str) -> None:
        with self._lock:
            self._ids.append(request)

    def receive(self) -> list[tuple[str, Ack]]:
        with self._lock:
            found, self._ids = self._ids, []
        return [(request, lambda: None) for request in found]
