"""A small cache of what takes long to work out."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from fastapi.concurrency import run_in_threadpool

T = TypeVar("T")


class Kept(Generic[T]):
    """Keeps the values asked for last, by key. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, make: Callable[[], T]) -> T:
        """Return the value of a key; make it if it is not kept. Two callers may both make it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


class Shared(Generic[T]):
    """Keeps values for callers on an event loop: many that ask at once have it made once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[str, asyncio.Future[T]] = {}

    async def get(self, key: str, make: Callable[[], T]) -> T:
        """Return the value of a key; make it in a thread if it is not kept.

        Raises what `make` raises, to all that wait for it; the next caller has it made again.
        """
        making = self._made.get(key)
        if making is None:
            making = asyncio.ensure_future(run_in_threadpool(make))
            self._made[key] = making
            while len(self._made) > self._most:
                del self._made[next(iter(self._made))]
        try:
            return await asyncio.shield(making)  # who leaves does not take it from the others
        except Exception:
            self._made.pop(key, None)
            raise
