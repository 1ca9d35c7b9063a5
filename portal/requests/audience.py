"""Write to all pages that follow a request, without an answer's way through the portal for each.

A page's stream begins as any answer. Then it takes a seat: what the request's page is sent is made
once for each change, and written to the connections of all seats. The way through the middleware
costs more processor time than all else that an event needs.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from portal.requests.request_watch import AT_ONCE, PAUSE, Following, RequestWatch
from portal.serving.sending import Line, chunk
from portal.serving.tokens import Person

QUIET_SECONDS = 20.0
"""After which a page is told that all is the same: a proxy takes a silent connection for dead."""
_THE_SAME = b": the same\n\n"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a request's page is sent: a server-sent event, the same for all who look at it.

    With `mine` it is for those who may give orders. Of others `links` and `members` tell who may
    read the request, as of when the event was made.
    """

    event: bytes
    ended: bool
    request: str
    mine: bool
    links: int = 0
    members: frozenset[str] = frozenset()

    def is_for(self, person: Person) -> bool:
        """Tell whether a person, who may see what is `mine`, may be told."""
        return (
            self.mine or person.has_link(self.request, self.links) or person.owner in self.members
        )


Current = Callable[[bool], Awaitable[Progress | None]]
"""Makes what a request's page is sent now, with `mine` or without; None if that fails."""


class _Seat:
    def __init__(self, person: Person, line: Line, sent: Progress) -> None:
        self._person = person
        self._line = line
        self.sent = sent
        self.mine = sent.mine
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(self, found: Progress | None, new: bytes, same: bytes) -> None:
        """Write an event, or that it is the same; leave after the last one."""
        told = (
            found is not None
            and found.is_for(self._person)
            and self._line.write(same if found == self.sent else new)
        )
        if found is None or not told or found.ended:
            self.leave()
        else:
            self.sent = found

    def leave(self) -> None:
        if not self.left.done():
            self.left.set_result(None)


class Audience:
    """The seats of all requests. Belongs to the event loop of the portal."""

    def __init__(self, watch: RequestWatch, stopping: threading.Event) -> None:
        self._watch = watch
        self._stopping = stopping
        self._seats: dict[str, dict[_Seat, None]] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}

    async def sit(
        self,
        person: Person,
        line: Line,
        sent: Progress,
        following: Following,
        current: Current,
        seconds: float,
    ) -> None:
        """Be told all that follows `sent`, until that ends or so many seconds are over.

        `following` has begun before what was sent was made.

        It ends with the request, with the right to read it, with the connection or its reader's
        silence, when the portal stops, and when `current` fails.
        """
        with self._seated(_Seat(person, line, sent), sent.request, current) as seat:
            if following.changed:  # before the seat was taken
                found = await current(sent.mine)
                if found != sent and seat.sent is sent:
                    seat.tell(found, _chunk_of(found), _SAME)
            await asyncio.wait((seat.left,), timeout=seconds)

    @contextmanager
    def _seated(self, seat: _Seat, request: str, current: Current) -> Iterator[_Seat]:
        seats = self._seats.setdefault(request, {})
        seats[seat] = None
        if request not in self._telling:
            loop = asyncio.get_running_loop()
            self._telling[request] = loop.create_task(self._tell(request, current))
        try:
            yield seat
        finally:
            del seats[seat]
            if not seats and self._seats.get(request) is seats:
                self._telling[request].cancel()  # it waits for a change
                self._close(request)

    async def _tell(self, request: str, current: Current) -> None:
        """Tell a request's seats each change, until none is taken."""
        seats = self._seats[request]
        try:
            with self._watch.follow(request) as following:
                while seats and not self._stopping.is_set():
                    await following.next(QUIET_SECONDS)
                    for mine in {seat.mine for seat in seats}:
                        found = await current(mine)
                        new = _chunk_of(found)
                        told = [seat for seat in seats if seat.mine is mine]
                        for some in range(0, len(told), AT_ONCE):
                            for seat in told[some : some + AT_ONCE]:
                                seat.tell(found, new, _SAME)
                            await asyncio.sleep(PAUSE)
        finally:
            if self._seats.get(request) is seats:
                self._close(request)
            for seat in seats:
                seat.leave()

    def _close(self, request: str) -> None:
        del self._seats[request], self._telling[request]


_SAME = chunk(_THE_SAME)


def _chunk_of(found: Progress | None) -> bytes:
    return b"" if found is None else chunk(found.event)
