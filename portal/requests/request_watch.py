"""Tell those who follow requests when one has changed, by one look for all of them.

Pages and API calls that wait follow hundreds of requests. Each reading its own rows would be the
most of the portal's work, so one task reads the rows of all requests that are followed, and wakes
those whose request has another row than before.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog
from fastapi.concurrency import run_in_threadpool

from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.requests.request_table import RequestTable

log = structlog.get_logger(__name__)

FIRST, PART = 0.01, 0.04
"""Seconds between two looks at least, and as part of the time for which the request that was
followed last has been: what ends soon is told soon."""
SOON, LATE = 0.2, 1.0
"""Seconds between two looks at most: with few followers and requests, and with many."""
_FOLLOWERS, _REQUESTS = 1000, 100
"""For how many of each a look is made in a second, while that is not later than `LATE`."""
_REMEMBERED = 1000  # requests of which it is known since when they were followed
AT_ONCE, PAUSE = 20, 0.008
"""So many followers are told at once, and seconds between: a thousand at once would keep all other
calls waiting."""


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)


class Followed:
    """One request, and those who wait for it to change."""

    def __init__(self) -> None:
        self.followers = 0
        self.etag = ""
        self.changes = 0
        self._waiting: dict[asyncio.Future[None], None] = {}

    def changed(self, etag: str) -> "list[asyncio.Future[None]]":
        """Note the row's ETag; return those who are to be woken because it is another one."""
        if etag == self.etag:
            return []
        self.etag = etag
        self.changes += 1
        return self.all_waiting()

    def all_waiting(self) -> "list[asyncio.Future[None]]":
        """Return those who wait."""
        return list(self._waiting)

    async def wait(self, seconds: float) -> None:
        """Wait to be woken, or so long."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting[turn] = None
        late = loop.call_later(seconds, _wake, turn)
        try:
            await turn
        finally:
            late.cancel()
            del self._waiting[turn]


class Following:
    """What one follower knows of a request."""

    def __init__(self, followed: Followed, stopping: threading.Event) -> None:
        self._followed = followed
        self._known = followed.changes
        self._stopping = stopping

    @property
    def etag(self) -> str:
        """The findings of the latest look, the same for all followers; "" before the first one."""
        return self._followed.etag

    @property
    def changed(self) -> bool:
        """True if a look has found a change since the last call of `next`, or since the begin."""
        return self._known != self._followed.changes

    async def next(self, seconds: float) -> bool:
        """Wait for a change since the last call; False if there is none in time.

        A follower that comes first is also woken by the first look.
        """
        if not self.changed and not self._stopping.is_set():
            await self._followed.wait(seconds)
        changed = self.changed
        self._known = self._followed.changes
        return changed


class RequestWatch:
    """Looks at all requests that are followed. Belongs to the event loop of the portal."""

    def __init__(self, runtime: Runtime, stopping: threading.Event) -> None:
        self._runtime = runtime
        self._stopping = stopping
        self._followed: dict[str, Followed] = {}
        self._since: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        """Set when a request is followed that nobody followed before."""

    def is_followed(self, request: str) -> bool:
        """Tell whether anybody follows a request."""
        return request in self._followed

    @contextmanager
    def follow(self, request: str) -> Iterator[Following]:
        """Follow a request until the block ends.

        Read its row after the block has begun: any later change is told.
        """
        if request not in self._followed:
            self._begun.set()
        followed = self._followed.setdefault(request, Followed())
        followed.followers += 1
        self._since.setdefault(request, asyncio.get_running_loop().time())
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())
        try:
            yield Following(followed, self._stopping)
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._followed[request]

    async def _look(self) -> None:
        """Look until nobody follows a request."""
        while self._followed and not self._stopping.is_set():
            self._begun.clear()
            wanted = tuple(self._followed)
            try:
                found = await run_in_threadpool(RequestTable(self._runtime.store).etags, wanted)
            except StoreError as error:
                log.warning("requests that are followed could not be read", error=str(error))
                found = {}
            told = [
                turn
                for request, etag in found.items()
                if request in self._followed
                for turn in self._followed[request].changed(etag)
            ]
            for some in range(0, len(told), AT_ONCE):
                if some:
                    await asyncio.sleep(PAUSE)
                for turn in told[some : some + AT_ONCE]:
                    _wake(turn)
            followers = sum(followed.followers for followed in self._followed.values())
            often = max(followers / _FOLLOWERS, len(wanted) / _REQUESTS)
            if often <= FIRST:
                await self._pause(self._soon())
            else:  # of many, some are always new
                await asyncio.sleep(min(LATE, max(SOON, often)) - PAUSE * len(told) / AT_ONCE)
        for followed in self._followed.values():  # the portal stops
            for turn in followed.all_waiting():
                _wake(turn)

    async def _pause(self, seconds: float) -> None:
        """Wait so long, or for `FIRST` where a further request is followed meanwhile."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._begun.wait(), seconds - FIRST)
        await asyncio.sleep(FIRST)

    def _soon(self) -> float:
        """Return in how many seconds to look again for a few."""
        if len(self._since) > _REMEMBERED:
            for request in self._since.keys() - self._followed.keys():
                del self._since[request]
        newest = max((self._since[one] for one in self._followed), default=0.0)
        return pause_of(asyncio.get_running_loop().time() - newest)


def pause_of(age: float) -> float:
    """Return the seconds to the next look, where the newest request is followed for some."""
    return min(SOON, max(FIRST, PART * age))
