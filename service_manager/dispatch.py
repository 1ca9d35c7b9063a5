"""Dispatch: which ready tasks are sent to the workers, fairly, and when one is sent again.

Pure: time comes in, keys come out. A message may get lost and a worker may be slow to say what it
claimed, so all counts here are estimates that the sweep puts right.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from service_manager.view import View

_BACKLOG = 4.0  # seconds of work kept on the queue
_SPARE = 2  # messages kept on the queue beyond two for each slot
_DOUBLINGS = 3  # of the time before a message is sent again


@dataclass(slots=True)
class _Sent:
    at: float
    tries: int = 1


@dataclass
class _Ready:
    fresh: dict[str, None] = field(default_factory=dict)  # not sent yet, in order
    sent: dict[str, _Sent] = field(default_factory=dict)


class Dispatch:
    """Ready tasks by sponsoring request. `window` bounds what one request has on the queue or
    running; `resend` is the silence in seconds after which a message is sent again."""

    def __init__(self, window: int, resend: float) -> None:
        self._window = window
        self._resend = resend
        self._ready: dict[str, _Ready] = {}
        self._sponsor: dict[str, str] = {}  # of each ready key
        self._taken: deque[float] = deque()  # when sent tasks left the queue

    def __len__(self) -> int:
        return len(self._sponsor)

    def add(self, key: str, sponsor: str) -> None:
        """A task is ready under a sponsor; one that was known keeps its place."""
        if self._sponsor.get(key) == sponsor:
            return
        self.remove(key)
        self._sponsor[key] = sponsor
        self._ready.setdefault(sponsor, _Ready()).fresh[key] = None

    def remove(self, key: str, now: float | None = None) -> None:
        """A task is not ready any more; `now` when a worker took it."""
        sponsor = self._sponsor.pop(key, None)
        if sponsor is None:
            return
        ready = self._ready[sponsor]
        ready.fresh.pop(key, None)
        if ready.sent.pop(key, None) is not None and now is not None:
            self._taken.append(now)
        if not ready.fresh and not ready.sent:
            del self._ready[sponsor]

    def reconcile(self, shard: str, found: Mapping[str, str]) -> None:
        """Make the ready tasks of a shard those that a sweep found: sponsor by key."""
        gone = [key for key in self._sponsor if key[0] == shard and key not in found]
        for key in gone:
            self.remove(key)
        for key, sponsor in found.items():
            self.add(key, sponsor)

    def choose(self, view: View, now: float) -> list[str]:
        """The keys to send now.

        The owner with the least in flight comes first, then the request with the least, then the
        oldest: one request cannot hide another, however large.
        """
        allowed = self._allowed(view, now)
        flying, owners = self._in_flight(view)
        heap = [
            (*self._rank(view, request, flying, owners), request)
            for request in self._ready
            if self._may(view, request)
        ]
        heapq.heapify(heap)
        chosen: list[str] = []
        while heap and len(chosen) < allowed:
            *rank, request = heapq.heappop(heap)
            current = self._rank(view, request, flying, owners)
            if tuple(rank) != current:  # the owner got another task meanwhile
                heapq.heappush(heap, (*current, request))
                continue
            key = self._next(request, flying.get(request, 0), now)
            if key is None:
                continue
            chosen.append(key)
            flying[request] = flying.get(request, 0) + 1
            owner = _owner(view, request)
            owners[owner] = owners.get(owner, 0) + 1
            heapq.heappush(heap, (*self._rank(view, request, flying, owners), request))
        return chosen

    def _allowed(self, view: View, now: float) -> int:
        """Messages to send now: what keeps the queue filled at the pace of late."""
        while self._taken and self._taken[0] < now - _BACKLOG / 2:
            self._taken.popleft()
        goal = max(2 * view.slots + _SPARE, 2 * len(self._taken))
        waiting = sum(
            1
            for ready in self._ready.values()
            for sent in ready.sent.values()
            if not self._due(sent, now)
        )
        return max(0, goal - waiting)

    def _in_flight(self, view: View) -> tuple[dict[str, int], dict[str, int]]:
        requests = {request: len(ready.sent) for request, ready in self._ready.items()}
        for running in view.running.values():
            if running.key not in self._sponsor:
                requests[running.sponsor] = requests.get(running.sponsor, 0) + 1
        owners: dict[str, int] = {}
        for request, number in requests.items():
            owner = _owner(view, request)
            owners[owner] = owners.get(owner, 0) + number
        return requests, owners

    def _rank(
        self, view: View, request: str, flying: Mapping[str, int], owners: Mapping[str, int]
    ) -> tuple[int, int, float]:
        live = view.requests.get(request)
        submitted = live.row.submitted if live else 0.0
        return owners.get(_owner(view, request), 0), flying.get(request, 0), submitted

    def _may(self, view: View, request: str) -> bool:
        live = view.requests.get(request)
        return live is None or live.dispatchable

    def _next(self, request: str, flying: int, now: float) -> str | None:
        ready = self._ready[request]
        for key, sent in ready.sent.items():
            if self._due(sent, now):
                sent.at, sent.tries = now, sent.tries + 1
                return key
        if flying >= self._window or not ready.fresh:
            return None
        key = next(iter(ready.fresh))
        del ready.fresh[key]
        ready.sent[key] = _Sent(now)
        return key

    def _due(self, sent: _Sent, now: float) -> bool:
        return now - sent.at >= self._resend * 2.0 ** min(sent.tries - 1, _DOUBLINGS)

    def unsend(self, keys: Iterable[str]) -> None:
        """The broker did not take these: they are as good as never sent."""
        for key in keys:
            sponsor = self._sponsor.get(key)
            if sponsor is None:
                continue
            ready = self._ready[sponsor]
            if ready.sent.pop(key, None) is not None:
                ready.fresh[key] = None


def _owner(view: View, request: str) -> str:
    live = view.requests.get(request)
    return live.row.owner if live else ""
