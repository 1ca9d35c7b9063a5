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

from tasks.errors import StoreError
from tasks.tables.runtime import Runtime

log = structlog.get_logger(__name__)

SOON, LATE = 0.2, 1.0
"""Seconds between two looks: with few requests to follow, and with many."""
SPREAD = 0.8
"""Seconds over which the followers of one request are told, when there are a thousand of them: told
at once, they would keep all other calls waiting."""
_A_SECOND = 100  # requests looked at in a second, while that is not later than `LATE`


_GOLDEN = 0.618034  # multiples of it lie evenly between whole numbers


class Followed:
    """One request, and those who wait for it to change."""

    def __init__(self) -> None:
        self.followers = 0
        self.etag = ""
        self.changes = 0
        self.changed = asyncio.Event()

    def tell(self, etag: str) -> None:
        """Wake those who wait, if the row is another one."""
        if etag == self.etag:
            return
        self.etag = etag
        self.changes += 1
        self.changed.set()
        self.changed = asyncio.Event()


class Following:
    """What one follower knows of a request."""

    def __init__(self, followed: Followed, stopping: threading.Event) -> None:
        self._followed = followed
        self._known = followed.changes
        self._stopping = stopping
        self._turn = followed.followers * _GOLDEN % 1.0

    @property
    def etag(self) -> str:
        """What the latest look has found, the same for all followers; "" before the first one."""
        return self._followed.etag

    async def next(self, seconds: float) -> bool:
        """Wait for a change since the last call; False if there is none in time.

        A follower that comes first is also woken by the first look.
        """
        end = asyncio.get_running_loop().time() + seconds
        while self._known == self._followed.changes:
            left = end - asyncio.get_running_loop().time()
            if left <= 0 or self._stopping.is_set():
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._followed.changed.wait(), left)
        # Few are told at once.
        await asyncio.sleep(self._turn * SPREAD * min(1.0, self._followed.followers // 50 / 20))
        self._known = self._followed.changes
        return True


class RequestWatch:
    """Looks at all requests that are followed. Belongs to the event loop of the portal."""

    def __init__(self, runtime: Runtime, stopping: threading.Event) -> None:
        self._runtime = runtime
        self._stopping = stopping
        self._followed: dict[str, Followed] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def follow(self, request: str) -> Iterator[Following]:
        """Follow a request until the block ends.

        Read its row after the block has begun: any later change is told.
        """
        followed = self._followed.setdefault(request, Followed())
        followed.followers += 1
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
            wanted = tuple(self._followed)
            try:
                found = await run_in_threadpool(self._runtime.requests.etags, wanted)
            except StoreError as error:
                log.warning("requests that are followed could not be read", error=str(error))
                found = {}
            for request, etag in found.items():
                if request in self._followed:
                    self._followed[request].tell(etag)
            await asyncio.sleep(min(LATE, max(SOON, len(wanted) / _A_SECOND)))
        for followed in self._followed.values():
            followed.changed.set()  # the portal stops
