"""Standing requests: each goes on, as a new request, when the archive has later days.

The new request has the whole span again, up to the last day that all its products have: what was
made before is reused, and granules that the archive got late are used, too. It stands in place of
the old one. Its id follows from that one's, so that a manager that ended in between, or a second
one, makes it once.
"""

import datetime as dt
import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import structlog

from archives.errors import ArchiveError
from archives.model import Archive
from service_manager.planner.listing import newest_day, search_box
from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError, StoreError
from tasks.request.document import Request
from tasks.request.library import NO_UPLOADS, Library
from tasks.request.resolved import resolve
from tasks.requests import request_operations
from tasks.requests.request_table import RequestRow, RequestTable

log = structlog.get_logger("manager.continuing")

DAY = 86_400.0
PERIOD = 3_600.0  # seconds between two searches for later days
_REACH = 0.0  # metres: the search is about the days, not about the pixels at the edge

Newest = Callable[[Request], dt.date | None]
"""Searches the archive for the last day of a request that all its products have. ArchiveError."""


class Continuing:
    """Looks at the standing requests from time to time; `beside` runs that outside the rounds."""

    def __init__(
        self,
        runtime: Runtime,
        newest: Newest,
        beside: Callable[[Callable[[], None]], "Future[None]"],
        period: float = PERIOD,
        library: Library = NO_UPLOADS,
    ) -> None:
        self._runtime = runtime
        self._newest = newest
        self._beside = beside
        self._period = period
        self._library = library
        self._running: Future[None] | None = None
        self._due = 0.0

    def tick(self) -> None:
        """Run one round: begin to look if it is time. It never waits and never raises."""
        now = self._runtime.clock.monotonic()
        if now < self._due or (self._running is not None and not self._running.done()):
            return
        if self._running is not None and (error := self._running.exception()) is not None:
            log.error("standing requests were not looked at", exc_info=error)
        self._due = now + self._period
        self._running = self._beside(self.look)

    def look(self) -> None:
        """Let each standing request go on if it is time and there are later days."""
        try:
            for request in RequestTable(self._runtime.store).standing():
                try:
                    self._consider(request)
                except Exception as error:  # a fault of one keeps no other from going on
                    log.error("not looked at", request=request, exc_info=error)
        except StoreError as error:
            log.warning("standing requests were not looked at", error=str(error))

    def _consider(self, request: str) -> None:
        row = request_operations.load(self._runtime, request)
        if not row.state.ended or row.submitted + row.standing * DAY > self._runtime.clock.now():
            return
        document = request_operations.document_of(row)
        today = dt.datetime.fromtimestamp(self._runtime.clock.now(), dt.UTC).date()
        first = document.time.end + dt.timedelta(days=1)
        if first > today:
            return
        try:
            later = document.time.until(today, since=first)
            asked = document.model_copy(update={"time": later})
            found = later and self._newest(self._library.described(row.owner, asked))
        except (ArchiveError, RequestRefusedError) as error:
            log.warning("no later days were found", request=request, error=str(error))
            return
        if found:
            self._go_on(row, document, found)

    def _go_on(self, row: RequestRow, document: Request, newest: dt.date) -> None:
        again = request_operations.repeated(row, document, standing=row.standing)
        made = request_operations.submit(
            self._runtime,
            row.owner,
            again.model_copy(update={"time": document.time.until(newest)}),
            request_id=continued_id(row.id),
            continues=row.id,
            group=row.group,
        )

        def gone_on(current: RequestRow) -> RequestRow:
            return replace(current, standing=0, continued_as=made)

        request_operations.change_request(self._runtime, row.id, gone_on)
        log.info("a standing request goes on", request=row.id, continued_as=made, until=str(newest))


def continued_id(request: str) -> str:
    """Return the id of the request that goes on from another one."""
    return "s" + hashlib.sha256(request.encode()).hexdigest()[:20]


def newest_in(archive: Archive, request: Request) -> dt.date | None:
    """Return the last day of a request that all its products have in an archive. ArchiveError."""
    resolved = resolve(request)
    return newest_day(resolved, archive, search_box(resolved.target.area, _REACH))
