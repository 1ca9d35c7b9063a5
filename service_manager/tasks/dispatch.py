"""Dispatch: which ready tasks are sent to the workers, fairly, and when one is sent again.

Pure: time comes in, keys come out. A message may get lost and a worker may be slow to say what it
claimed, so all counts here are estimates that the sweep puts right.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from service_manager.tasks.input_locations import InputLocations
from service_manager.tasks.manager_cache import ManagerCache
from service_manager.tasks.preference import LOOK, Preference

_BACKLOG = 4.0  # seconds of work kept on the queue
_AHEAD = 64  # messages at most kept for slots that are busy, apart from that
_SPARE = 2  # further messages
_KEPT = 8  # windows of one request's ready tasks that are remembered
_DOUBLINGS = 3  # of the time before a message is sent again


@dataclass(slots=True)
class _Sent:
    at: float
    host: str = ""  # whose own queue has it, else the one of all
    tries: int = 1


@dataclass
class _Ready:
    fresh: dict[str, None] = field(default_factory=dict)  # not sent yet, in order
    sent: dict[str, _Sent] = field(default_factory=dict)
    more: bool = False  # the table has more than is remembered
    passed: int = 0  # times in a row that another than the first was sent


class Dispatch:
    """Ready tasks by sponsoring request.

    `window` limits what one request has on the queue, unless there are more slots; `resend` is the
    silence in seconds after which a message is sent again. With `locations`, a task is sent to the
    host that holds its inputs, and after `patience` seconds to all. Of a large request only a part
    is kept in memory; `hungry` says when more is to be read.
    """

    def __init__(
        self,
        window: int,
        resend: float,
        locations: InputLocations | None = None,
        patience: float = 6.0,
    ) -> None:
        self._window = window
        self._resend = resend
        self._locations = locations
        self._patience = patience
        self._ready: dict[str, _Ready] = {}
        self._sponsor: dict[str, str] = {}  # of each ready key
        self._freed: deque[float] = deque()  # when attempts ended
        self._slots = 0

    def __len__(self) -> int:
        return len(self._sponsor)

    def known(self) -> list[str]:
        """List the ready tasks in memory."""
        return list(self._sponsor)

    @property
    def most(self) -> int:
        """Ready tasks of one request that are remembered."""
        return _KEPT * self.wide

    @property
    def wide(self) -> int:
        """Tasks that one request may have on the queue."""
        return max(self._window, self._slots)

    def add(self, key: str, sponsor: str) -> None:
        """Add a ready task under a sponsor; a known task keeps its place."""
        if self._sponsor.get(key) == sponsor:
            return
        self.remove(key)
        ready = self._ready.setdefault(sponsor, _Ready())
        if len(ready.fresh) >= self.most:
            ready.more = True
            return
        self._sponsor[key] = sponsor
        ready.fresh[key] = None

    def freed(self, now: float) -> None:
        """Take note that an attempt has ended: its slot takes the next message."""
        self._freed.append(now)

    def remove(self, key: str) -> None:
        """Remove a task that is no longer ready."""
        sponsor = self._sponsor.pop(key, None)
        if sponsor is None:
            return
        ready = self._ready[sponsor]
        ready.fresh.pop(key, None)
        ready.sent.pop(key, None)
        self._forget(sponsor)

    def sent(self, sponsor: str) -> list[str]:
        """List the tasks of a request that workers may be about to take."""
        ready = self._ready.get(sponsor)
        return list(ready.sent) if ready is not None else []

    def backlog(self, cache: ManagerCache) -> dict[str, int]:
        """Count the ready tasks that a slot may take, by request.

        Of a request with more ready tasks than are remembered, all that have not ended count.
        """
        counts: dict[str, int] = {}
        for request, ready in self._ready.items():
            live = cache.requests.get(request)
            if not self._may(cache, request):
                continue
            counts[request] = len(ready.fresh) + len(ready.sent)
            if ready.more and live is not None:
                counts[request] = max(counts[request], live.pending)
        return counts

    def hungry(self) -> list[str]:
        """List the requests of which more ready tasks are to be read."""
        few = self.wide
        return [r for r, ready in self._ready.items() if ready.more and len(ready.fresh) < few]

    def fed(self, sponsor: str, *, more: bool) -> None:
        """Take note that a hungry request's ready tasks were added; `more` when not all of them."""
        ready = self._ready.get(sponsor)
        if ready is not None:
            ready.more = more
            self._forget(sponsor)

    def reconcile(
        self, shard: str, found: Mapping[str, str], until: Mapping[str, str] | None = None
    ) -> None:
        """Make the ready tasks of a shard those that a sweep found.

        `found` has the sponsor by key. Of requests in `until`, only the tasks up to that key were
        read.
        """
        read = until or {}
        gone = [
            key
            for key, sponsor in self._sponsor.items()
            if key[0] == shard and key not in found and not key > read.get(sponsor, "g")
        ]
        for key in gone:
            self.remove(key)
        for key, sponsor in found.items():
            self.add(key, sponsor)
        for sponsor in read:
            self._ready.setdefault(sponsor, _Ready()).more = True

    def _forget(self, sponsor: str) -> None:
        ready = self._ready[sponsor]
        if not ready.fresh and not ready.sent and not ready.more:
            del self._ready[sponsor]

    def choose(self, cache: ManagerCache, now: float) -> list[str]:
        """Choose the keys to send now.

        The owner with the least in flight comes first, then the request with the least, then the
        oldest: one request cannot hide another, however large.
        """
        self._slots = cache.slots
        allowed = self._allowed(cache, now)
        flying, owners = self._in_flight(cache)
        heap = [
            (*self._rank(cache, request, flying, owners), request)
            for request in self._ready
            if self._may(cache, request)
        ]
        heapq.heapify(heap)
        prefer = self._preference(cache)
        due = self._all_due(now)
        chosen: list[str] = []
        while heap and len(chosen) < allowed:
            *rank, request = heapq.heappop(heap)
            current = self._rank(cache, request, flying, owners)
            if tuple(rank) != current:  # the owner got another task meanwhile
                heapq.heappush(heap, (*current, request))
                continue
            key = self._next(request, due[request], now, prefer)
            if key is None:
                continue
            chosen.append(key)
            flying[request] = flying.get(request, 0) + 1
            owner = _owner(cache, request)
            owners[owner] = owners.get(owner, 0) + 1
            heapq.heappush(heap, (*self._rank(cache, request, flying, owners), request))
        return chosen

    def _allowed(self, cache: ManagerCache, now: float) -> int:
        """Return how many messages to send now.

        One for each idle slot, some ahead for busy slots, and as many as keep the queue filled at
        the recent rate. No more, because messages are taken in turn: a new request's tasks come
        behind all that is on the queue.
        """
        while self._freed and self._freed[0] < now - _BACKLOG / 2:
            self._freed.popleft()
        idle = max(0, cache.slots - len(cache.running))
        goal = idle + max(min(cache.slots, _AHEAD) + _SPARE, 2 * len(self._freed))
        waiting = sum(
            1
            for ready in self._ready.values()
            for sent in ready.sent.values()
            if not self._due(sent, now)
        )
        return max(0, goal - waiting)

    def _in_flight(self, cache: ManagerCache) -> tuple[dict[str, int], dict[str, int]]:
        requests = {request: len(ready.sent) for request, ready in self._ready.items()}
        for running in cache.running.values():
            if running.key not in self._sponsor:
                requests[running.sponsor] = requests.get(running.sponsor, 0) + 1
        owners: dict[str, int] = {}
        for request, number in requests.items():
            owner = _owner(cache, request)
            owners[owner] = owners.get(owner, 0) + number
        return requests, owners

    def _rank(
        self,
        cache: ManagerCache,
        request: str,
        flying: Mapping[str, int],
        owners: Mapping[str, int],
    ) -> tuple[int, int, float]:
        live = cache.requests.get(request)
        submitted = live.row.submitted if live else 0.0
        return owners.get(_owner(cache, request), 0), flying.get(request, 0), submitted

    def _may(self, cache: ManagerCache, request: str) -> bool:
        live = cache.requests.get(request)
        return live is None or live.dispatchable

    def host(self, key: str) -> str:
        """Return the host for which a task was chosen; empty means all hosts."""
        sponsor = self._sponsor.get(key)
        sent = self._ready[sponsor].sent.get(key) if sponsor is not None else None
        return sent.host if sent else ""

    def _preference(self, cache: ManagerCache) -> Preference | None:
        if self._locations is None:
            return None
        preference = Preference(cache, self._locations)
        for ready in self._ready.values():
            for sent in ready.sent.values():
                if sent.host:
                    preference.waiting(sent.host)
        return preference

    def _all_due(self, now: float) -> dict[str, deque[str]]:
        """By request, what was sent and is to be sent again."""
        return {
            request: deque(key for key, sent in ready.sent.items() if self._due(sent, now))
            for request, ready in self._ready.items()
        }

    def _next(
        self, request: str, due: deque[str], now: float, prefer: Preference | None
    ) -> str | None:
        ready = self._ready[request]
        if due:
            key = due.popleft()
            sent = ready.sent[key]
            # What one host was given and did not take is no silence of all.
            sent.at, sent.tries, sent.host = now, sent.tries + (not sent.host), ""
            return key
        if len(ready.sent) >= self.wide or not ready.fresh:
            return None
        key, host = self._first(ready, prefer)
        del ready.fresh[key]
        ready.sent[key] = _Sent(now, host)
        return key

    def _first(self, ready: _Ready, prefer: Preference | None) -> tuple[str, str]:
        """Return the next fresh task and its host.

        It is a task whose host is free for it, but the first task is not passed over for ever.
        """
        first = next(iter(ready.fresh))
        if prefer is None:
            return first, ""
        key = prefer.first(ready.fresh if ready.passed < LOOK else [first])
        ready.passed = ready.passed + 1 if key and key != first else 0
        if key:
            return key, prefer.give(key)
        prefer.give_all()
        return first, ""

    def _due(self, sent: _Sent, now: float) -> bool:
        if sent.host:
            return now - sent.at >= self._patience
        return now - sent.at >= self._resend * 2.0 ** min(sent.tries - 1, _DOUBLINGS)

    def unsend(self, keys: Iterable[str]) -> None:
        """Take note that the broker did not take these messages: they count as never sent."""
        for key in keys:
            sponsor = self._sponsor.get(key)
            if sponsor is None:
                continue
            ready = self._ready[sponsor]
            if ready.sent.pop(key, None) is not None:
                ready.fresh[key] = None


def _owner(cache: ManagerCache, request: str) -> str:
    live = cache.requests.get(request)
    return live.row.owner if live else ""
