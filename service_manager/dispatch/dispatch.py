"""Dispatch: which ready tasks are sent to the workers, fairly, and when one is sent again.

A message names a batch: tasks of one request, kind, product and shard, those of one family first,
as many as make some seconds of work by the history of their classes, or of similar ones. A task of
which nothing is known goes alone, and so does one whose latest attempt failed. Batches get smaller
as less is ready, so that no slot idles while another has a batch before it.

Among the tasks of a request the rank of the first result that each serves decides: so its results
are made one after another.

Pure: time comes in, keys come out. A message may get lost and a worker may be slow to say what it
claimed, so all counts here are estimates that the sweep puts right.
"""

import heapq
import itertools
from bisect import bisect
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from service_manager.dispatch.allowance import (
    Allowance,
    Need,
    held_places,
    host_of,
    package_of,
)
from service_manager.dispatch.fresh_tasks import FreshTasks
from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from service_manager.dispatch.preference import LOOK, TURNS, Preference
from service_manager.dispatch.rooms import Rooms
from service_manager.dispatch.unsuited import Unsuited
from tasks.bag.model import Phase
from tasks.bag.task_keys import family, mates
from tasks.bag.task_rows import ReadyMarker
from tasks.operators.manager_rows import HostQueue
from tasks.storage.queues import FIRST

_BACKLOG = 4.0  # seconds of work kept on the queue
_AHEAD = 64  # messages at most kept for slots that are busy, apart from that
_SPARE = 2  # further messages
_KEPT = 32  # windows of one request's ready tasks that are remembered,
_REMEMBERED = 64_000  # and no more tasks than these: some 30 MB
_BATCH = 20  # tasks at most; of their transactions the largest has four operations a task
_NEAR, _NEAREST = 512, 32  # tasks by rank that a batch is made of: 16 shards, some kinds
_SECONDS, _SHORTEST = 2.0, 0.5  # of work in a batch
_PART = 32  # of what a request has left: a batch takes no more of a slot's share of its time
_FINISHING = (Phase.AGGREGATION, Phase.REDUCTION)
_DOUBLINGS = 3  # of the time before a message is sent again

Unread = Mapping[str, Sequence[tuple[str, str]]]
"""By request, ranges of keys that were not read: behind the first, up to the second."""
BEHIND_ALL = "g"
"""Behind all keys, which are of hexadecimal digits."""


@dataclass(slots=True)
class _Sent:
    at: float
    message: int
    host: str = ""  # whose own queue has it, else the one of all
    bound: bool = False  # to the hosts that can run it: it is never sent to all
    tries: int = 1
    first: bool = False  # before what else is on the queue, as far as it is for any host


@dataclass(frozen=True, slots=True)
class _Task:
    sponsor: str
    task_class: str
    alone: bool
    need: Need
    rank: int = 0


@dataclass
class _Ready:
    fresh: FreshTasks = field(default_factory=FreshTasks)  # not sent yet
    sent: dict[str, _Sent] = field(default_factory=dict)
    messages: Counter[int] = field(default_factory=Counter)  # tasks of each that are in `sent`
    more: bool = False  # the table has more than is remembered
    passed: int = 0  # times in a row that another than the first was sent

    def send(self, key: str, sent: _Sent) -> None:
        self.drop(key)
        self.sent[key] = sent
        self.messages[sent.message] += 1

    def drop(self, key: str) -> bool:
        sent = self.sent.pop(key, None)
        if sent is None:
            return False
        self.messages[sent.message] -= 1
        if not self.messages[sent.message]:
            del self.messages[sent.message]
        return True


class Dispatch:
    """Ready tasks by sponsoring request, for the workers of one place.

    `window` limits the messages of one request on the queue, unless there are more slots; `resend`
    is the silence in seconds after which tasks are sent again. With `locations`, a batch is sent to
    the host that holds its inputs, and after `patience` seconds to all. `expected` returns the
    seconds that a task of a class takes, None while unknown. Of a large request only a part is kept
    in memory; `hungry` says when more is to be read. `places` is the number of messages for one
    archive host that may be in flight; 0: no limit.

    What is in flight at other places, of which `beside` has the dispatches, counts in all limits.
    """

    def __init__(
        self,
        window: int,
        resend: float,
        locations: InputLocations | None = None,
        patience: float = 6.0,
        expected: Callable[[str], float | None] = lambda _: None,
        places: int = 0,
    ) -> None:
        self.expected = expected
        self.turns = 2  # messages for each slot, at least, that the ready tasks are divided into
        self._window = window
        self._resend = resend
        self._locations = locations
        self._patience = patience
        self._places = places
        self._rooms = Rooms()
        self._unsuited = Unsuited()
        self._now = 0.0  # of the latest choice
        self._ready: dict[str, _Ready] = {}
        self._tasks: dict[str, _Task] = {}  # by key
        self._seen: dict[str, float] = {}  # when each was first seen by `queues`
        self._messages = 0
        self.beside: Sequence[Dispatch] = ()
        self._freed: deque[float] = deque()  # when attempts ended
        self._slots = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def knows(self, key: str) -> bool:
        """Tell whether a task is ready here."""
        return key in self._tasks

    def has(self, sponsor: str) -> bool:
        """Tell whether tasks of a request are ready here, or more of them are to be read."""
        return sponsor in self._ready

    def known(self) -> list[str]:
        """List the ready tasks in memory."""
        return list(self._tasks)

    @property
    def most(self) -> int:
        """Ready tasks of one request that are remembered."""
        return min(_KEPT * self.wide, _REMEMBERED)

    @property
    def wide(self) -> int:
        """Messages that one request may have on the queue."""
        return max(self._window, self._slots)

    def add(
        self, key: str, sponsor: str, task_class: str = "", *, alone: bool = False, rank: int = 0
    ) -> None:
        """Add a ready task under a sponsor; a known task of the same rank keeps its place.

        One that is to run `alone` goes into no batch. What has a lower rank goes first.
        """
        task = _Task(sponsor, task_class, alone, Need.of(task_class), rank)
        known = self._tasks.get(key)
        sent = known is not None and key not in self._ready[known.sponsor].fresh
        same = known is not None and (known.rank, known.need) == (rank, task.need)
        if known is not None and known.sponsor == sponsor and (sent or same):
            self._tasks[key] = task
            return
        self.remove(key)
        ready = self._ready.setdefault(sponsor, _Ready())
        # What needs a place may wait for long: it takes no room from what needs none.
        scarce = task.need.scarce
        if ready.fresh.number(scarce=scarce) >= self.most:
            ready.more = True
            last, other = ready.fresh.last(scarce=scarce)
            if last <= rank:
                return
            self.remove(other)
        self._tasks[key] = task
        ready.fresh.add(key, rank, task.need)

    def freed(self, now: float) -> None:
        """Take note that an attempt has ended: its slot takes the next message."""
        self._freed.append(now)

    def remove(self, key: str) -> None:
        """Remove a task that is no longer ready."""
        task = self._tasks.pop(key, None)
        if task is None:
            return
        ready = self._ready[task.sponsor]
        ready.fresh.discard(key)
        ready.drop(key)
        self._forget(task.sponsor)

    def sent(self, sponsor: str) -> list[str]:
        """List the tasks of a request that workers may be about to take."""
        ready = self._ready.get(sponsor)
        return list(ready.sent) if ready is not None else []

    def backlog(self, cache: ManagerCache, left: dict[str, int] | None = None) -> dict[str, int]:
        """Count the ready tasks that a slot may take, by request.

        `left` is what the limits of owners leave after the backlogs of other places; it is updated.

        Of a request with more ready tasks than are remembered, all that have not ended count; of an
        owner under a limit no more than that, of an archive host no more than its free places, and
        of a package no more runs than there is room for.
        """
        counts: dict[str, int] = {}
        paused = cache.restrictions.paused_phases
        left = dict(cache.restrictions.owner_limits) if left is None else left
        free = self._free_places(cache)
        for request, ready in self._ready.items():
            live = cache.requests.get(request)
            if not self._may(cache, request):
                continue
            scarce = Counter[str]()
            for need, number in self._needs(ready).items():
                if need.phase not in paused:
                    scarce[need.host or need.package] += number
            counts[request] = scarce.pop("", 0)
            for what, number in scarce.items():
                some = min(number, free.get(what, number))
                counts[request] += some
                if what in free:
                    free[what] -= some
            if ready.more and live is not None and not paused and not free.keys() & scarce.keys():
                counts[request] = max(counts[request], live.pending)
            if (owner := _owner(cache, request)) in left:
                counts[request] = min(counts[request], left[owner])
                left[owner] -= counts[request]
        return counts

    def _needs(self, ready: _Ready) -> Counter[Need]:
        """Count the tasks of a request by need, those that are sent as well."""
        return Counter(ready.fresh.needs()) + Counter(self._tasks[key].need for key in ready.sent)

    def queues(self, now: float) -> dict[Phase, tuple[int, float]]:
        """Count the ready tasks in memory by phase, with the seconds since the first was seen.

        Call it now and then: a task is seen by the first call after it became ready.
        """
        self._seen = {key: self._seen.get(key, now) for key in self._tasks}
        found: dict[Phase, tuple[int, float]] = {}
        for key, since in self._seen.items():
            phase = self._phase(key)
            if phase is not None:
                number, oldest = found.get(phase, (0, 0.0))
                found[phase] = (number + 1, max(oldest, now - since))
        return found

    def hungry(self) -> list[str]:
        """List the requests of which more ready tasks are to be read."""
        few = min(self.wide, _REMEMBERED // 2)
        return [r for r, ready in self._ready.items() if ready.more and len(ready.fresh) < few]

    def feed(self, sponsor: str, found: Iterable[ReadyMarker], *, more: bool) -> None:
        """Add the ready tasks of a hungry request that were read; `more` when not all were."""
        if sponsor not in self._ready:
            return
        self._ready[sponsor].more = more
        for marker in found:
            self._find(marker, sponsor)
        if sponsor in self._ready:
            self._forget(sponsor)

    def _find(self, marker: ReadyMarker, sponsor: str) -> None:
        self.add(marker.key, sponsor, marker.task_class, alone=marker.alone, rank=marker.rank)

    def reconcile(
        self,
        shard: str,
        found: Mapping[str, ReadyMarker],
        unread: Unread | None = None,
        more: Collection[str] | None = None,
    ) -> None:
        """Make the ready tasks of a shard those that a sweep found.

        `found` has the markers by key. Of requests in `unread` not all was read; of those in
        `more`, which else are the same, more is to be read.
        """
        left = unread or {}
        gone = [
            key
            for key, task in self._tasks.items()
            if key[0] == shard
            and key not in found
            and not any(after < key <= end for after, end in left.get(task.sponsor, ()))
        ]
        for key in gone:
            self.remove(key)
        for marker in found.values():
            self._find(marker, marker.request)
        for sponsor in left if more is None else more:
            self._ready.setdefault(sponsor, _Ready()).more = True

    def sendable(self, cache: ManagerCache) -> Callable[[ReadyMarker], bool]:
        """Return what tells whether a task may be sent now, but for the limit of its owner."""
        allowance = self._allowance(cache)
        return lambda marker: allowance.passes(Need.of(marker.task_class))

    def _forget(self, sponsor: str) -> None:
        ready = self._ready[sponsor]
        if not ready.fresh and not ready.sent and not ready.more:
            del self._ready[sponsor]

    def choose(self, cache: ManagerCache, now: float) -> list[tuple[str, ...]]:
        """Choose the batches to send now.

        The owner with the least in flight comes first, then the request with the least, then the
        oldest: one request cannot hide another, however large.
        """
        self._slots, self._now = cache.slots, now
        if not self._ready:
            return []
        allowance = self._allowance(cache)
        due = self._all_due(now, allowance)
        room = self._room(cache, due, now)
        unsent = sum(len(self._ready[r].fresh) + len(due[r]) for r in due if self._may(cache, r))
        # What was sent is work for all slots as well, save that some may have begun it.
        sent = sum(len(ready.sent) - len(due[r]) for r, ready in self._ready.items())
        left = unsent + max(0, sent - cache.slots)
        most = min(_BATCH, max(1, left // max(1, self.turns * cache.slots)))
        flying, owners = self._in_flight(cache)
        allowance.owners = limited = self._of_owners(cache)
        heap = [
            (*self._rank(cache, request, flying, owners), request)
            for request in self._ready
            if self._may(cache, request)
        ]
        heapq.heapify(heap)
        farthest = {
            request: max(self._tasks[key].rank for key in ready.sent)
            for request, ready in self._ready.items()
            if ready.sent
        }
        look = _Look(cache, now, most, self._preference(cache), allowance, due, farthest)
        chosen: list[tuple[str, ...]] = []
        while heap and (room.left or room.first > 0):
            *rank, request = heapq.heappop(heap)
            current = self._rank(cache, request, flying, owners)
            if tuple(rank) != current:  # the owner got another task meanwhile
                heapq.heappush(heap, (*current, request))
                continue
            if not room.left and not self._finishing(request, look):
                continue
            owner, again = _owner(cache, request), bool(due[request])
            batch = self._next(request, owner, look, finishing=not room.left)
            if not batch:
                continue
            if not again:  # what was sent before is counted already
                allowance.take(self._tasks[batch[0]].need, len(batch))
            chosen.append(batch)
            some = [self._tasks[key] for key in batch]
            if look.prefer is not None and (
                flying[request] < max(flying.values()) or look.finishes(request, some[0])
            ):
                for key in batch:
                    self._ready[request].sent[key].first = True
            look.farthest[request] = max(look.farthest.get(request, 0), *(t.rank for t in some))
            room.take(len(batch))
            flying[request] += len(batch)
            owners[owner] += len(batch)
            limited[owner] = limited.get(owner, 0) + len(batch)
            heapq.heappush(heap, (*self._rank(cache, request, flying, owners), request))
        return chosen

    def held_up(self, cache: ManagerCache) -> Iterator[tuple[str, str]]:
        """Yield each task that waits for its request or its owner, while another may have it sent.

        With it comes that other request: its interest is live, and neither it nor its owner waits.
        """
        allowance = self._allowance(cache)
        allowance.owners = self._of_owners(cache)

        def may(request: str) -> bool:
            return self._may(cache, request) and allowance.left(_owner(cache, request))

        held = [request for request in self._ready if not may(request)]
        others = [live for live in cache.requests.values() if may(live.id)] if held else []
        for request in held:
            for key in self._ready[request].fresh:
                other = next((live.id for live in others if live.wants(key)), "")
                if other:
                    yield key, other

    def overtaken(self, cache: ManagerCache) -> bool:
        """Tell whether what waits on the queue is no longer in fair order.

        It is not when a request has nothing there and should go before one that has several
        messages: their tasks are to be chosen again.
        """
        before = [request for request, ready in self._ready.items() if len(ready.messages) > 1]
        if not before:
            return False
        allowance = self._allowance(cache)
        flying, owners = self._in_flight(cache)
        allowance.owners = self._of_owners(cache)
        behind = [
            request
            for request, ready in self._ready.items()
            if ready.fresh
            and not ready.sent
            and self._may(cache, request)
            and allowance.left(_owner(cache, request))
            and (allowance.idle or any(map(allowance.passes, ready.fresh.needs())))
        ]
        if not behind:
            return False
        first = min(self._rank(cache, request, flying, owners)[:2] for request in behind)
        return any(self._rank(cache, request, flying, owners)[:2] > first for request in before)

    def _room(self, cache: ManagerCache, due: Mapping[str, Collection[str]], now: float) -> "_Room":
        """Return how much to send now.

        A message for each idle slot and some ahead for busy slots, or as many tasks as keep the
        queue filled at the recent rate. No more, because all of it is chosen again when a new
        request comes.
        """
        while self._freed and self._freed[0] < now - _BACKLOG / 2:
            self._freed.popleft()
        waiting = [
            sent
            for request, ready in self._ready.items()
            for again in [{*due[request]}]
            for key, sent in ready.sent.items()
            if key not in again
        ]
        number = len({sent.message for sent in waiting})
        messages = cache.idle + min(cache.slots, _AHEAD) + _SPARE
        tasks = cache.idle + 2 * len(self._freed)
        first = cache.slots - len({sent.message for sent in waiting if sent.first})
        return _Room(messages - number, tasks - len(waiting), first)

    def _finishing(self, request: str, look: "_Look") -> bool:
        """Tell whether what a request sends next goes before what it has on the queue."""
        first = next(iter(self._ready[request].fresh.among(look.allowance.passes)), "")
        if not first or look.due[request] or look.prefer is None:
            return False
        return look.finishes(request, self._tasks[first])

    @property
    def _all(self) -> "tuple[Dispatch, ...]":
        return (self, *self.beside)

    def _unsent(self, cache: ManagerCache) -> Iterator[WatchedAttempt]:
        """Yield the attempts at any place, without those of tasks that count as sent still."""
        if not self.beside:
            return (one for one in cache.running.values() if one.key not in self._tasks)
        ready = [one._tasks for one in self._all]
        return (one for one in cache.all_running if not any(one.key in tasks for tasks in ready))

    def _of_owners(self, cache: ManagerCache) -> dict[str, int]:
        """Count what each owner has in flight at all places."""
        if not self.beside:
            return self._in_flight(cache)[1]
        found = Counter[str](_owner(cache, one.sponsor) for one in self._unsent(cache))
        for one in self._all:
            for request, ready in one._ready.items():
                found[_owner(cache, request)] += len(ready.sent)
        return found

    def _in_flight(self, cache: ManagerCache) -> tuple[dict[str, int], dict[str, int]]:
        """Count what is in flight at this place, by request and by owner."""
        requests = {request: len(ready.sent) for request, ready in self._ready.items()}
        for running in cache.running.values():
            if running.key not in self._tasks:
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
        return owners[_owner(cache, request)], flying[request], submitted

    def _phase(self, key: str) -> Phase | None:
        return self._tasks[key].need.phase

    def waiting_for_places(self, cache: ManagerCache) -> list[HostQueue]:
        """List the archive hosts of which all places are taken, with the tasks that wait for one.

        What was sent waits for a slot.
        """
        if not self._places:
            return []
        taken = self._taken(cache, host_of)
        waiting = self._waiting(cache, host_of)
        return [
            HostQueue(host=host, places=self._places, waiting=waiting[host])
            for host in sorted(taken)
            if taken[host] >= self._places and waiting[host]
        ]

    def no_room(self, cache: ManagerCache, task_class: str, why: str) -> None:
        """Take note that a worker found no room for a run of a package and gave its task back."""
        package = Need.of(task_class).package
        if package:
            at_work = self._taken(cache, package_of)[package]
            self._rooms.lacked(package, at_work, why, self._now)

    def unsuited(self, task_class: str, host: str, why: str) -> None:
        """Take note that a host cannot run a package, and gave its task back."""
        package = Need.of(task_class).package
        if package:
            self._unsuited.gave_back(package, host, why, self._now)

    def _limits(self, cache: ManagerCache) -> dict[str, int]:
        """Return how many runs of a package may be on their way, where that is limited."""
        found = self._rooms.limits(self._now, self._slots)
        for package in self._unsuited.families():
            if unsuited := self._unsuited.hosts(package, self._now):
                able = sum(slots for host, slots in cache.workers.values() if host not in unsuited)
                found[package] = min(TURNS * able, found.get(package, TURNS * able))
        return found

    def waiting_for_room(self, cache: ManagerCache) -> list[HostQueue]:
        """List the packages for whose runs there is no more room, with the runs that wait."""
        rooms = self._limits(cache)
        taken = self._taken(cache, package_of)
        waiting = self._waiting(cache, package_of)
        return [
            HostQueue(
                host=package.partition(" ")[2],
                places=number,
                waiting=waiting[package],
                why=self._rooms.why(package) or self._unsuited.why(package),
            )
            for package, number in sorted(rooms.items())
            if taken[package] >= number and waiting[package]
        ]

    def _waiting(self, cache: ManagerCache, of: Callable[[Need], str]) -> Counter[str]:
        """Count the tasks that are not sent, of requests that may send some, by what they need."""
        found = Counter[str]()
        for request, ready in self._ready.items():
            if self._may(cache, request):
                for need, number in ready.fresh.needs().items():
                    found[of(need)] += number
        return found

    def _taken(self, cache: ManagerCache, of: Callable[[Need], str]) -> Counter[str]:
        """Count the places of hosts, or of packages: of sent messages, and of what runs."""
        taken = held_places(self._unsent(cache), of)
        for one in self._all:
            taken.update(
                held
                for ready in one._ready.values()
                for _, held in {
                    (sent.message, of(one._tasks[key].need)) for key, sent in ready.sent.items()
                }
                if held
            )
        return taken

    def _free_places(self, cache: ManagerCache) -> dict[str, int]:
        """Return the places of hosts, and the room of packages, that no attempt holds."""
        rooms = self._limits(cache)
        held = held_places(cache.all_running, package_of) if rooms else Counter[str]()
        free = {package: max(0, number - held[package]) for package, number in rooms.items()}
        if self._places:
            held = held_places(cache.all_running, host_of)
            hosts = {need.host for ready in self._ready.values() for need in self._needs(ready)}
            free |= {host: max(0, self._places - held[host]) for host in hosts}
        return free

    def _allowance(self, cache: ManagerCache) -> Allowance:
        allowance = Allowance(cache.restrictions, self._places)
        if self._places:
            allowance.hosts = self._taken(cache, host_of)
        allowance.rooms = self._limits(cache)
        if allowance.rooms:
            allowance.packages = self._taken(cache, package_of)
        if cache.restrictions.phase_limits:
            for one in self._all:
                sent = (key for ready in one._ready.values() for key in ready.sent)
                allowance.phases.update(
                    phase for key in sent if (phase := one._phase(key)) is not None
                )
            allowance.phases.update(one.phase for one in self._unsent(cache))
        return allowance

    def _may(self, cache: ManagerCache, request: str) -> bool:
        live = cache.requests.get(request)
        return live is None or live.dispatchable

    def host(self, key: str) -> str:
        """Return the host for which a task was chosen; empty means all hosts, FIRST all at once."""
        task = self._tasks.get(key)
        sent = self._ready[task.sponsor].sent.get(key) if task is not None else None
        if sent is None:
            return ""
        return sent.host or (FIRST if sent.first else "")

    def _preference(self, cache: ManagerCache) -> Preference | None:
        if self._locations is None:
            return None
        preference = Preference(cache, self._locations, self._unsuited_for)
        seen: set[int] = set()
        for ready in self._ready.values():
            for sent in ready.sent.values():
                if sent.host and sent.message not in seen:
                    seen.add(sent.message)
                    preference.waiting(sent.host)
        return preference

    def _unsuited_for(self, key: str) -> frozenset[str]:
        package = self._tasks[key].need.package
        return self._unsuited.hosts(package, self._now) if package else frozenset()

    def _all_due(self, now: float, allowance: Allowance) -> dict[str, deque[str]]:
        """By request, what was sent and is to be sent again."""
        return {
            request: deque(
                key
                for key, sent in ready.sent.items()
                if self._due(sent, now)
                and (allowance.idle or not allowance.paused(self._phase(key)))
            )
            for request, ready in self._ready.items()
        }

    def _next(self, request: str, owner: str, look: "_Look", *, finishing: bool) -> tuple[str, ...]:
        """Take the next batch of a request, or of what it is `finishing`; empty: there is none.

        What was sent already is under the limits of operators.
        """
        ready, due = self._ready[request], look.due[request]
        prefer, allowance, left = look.prefer, look.allowance, self._left(request, look)
        fresh = ready.fresh.among(
            lambda need: allowance.passes(need) and (not finishing or need.phase in _FINISHING)
        )
        if due:
            first = due.popleft()
            host = prefer.host(first) if prefer is not None and prefer.bound(first) else ""
            batch = self._batch(first, due, None, look.most, left)
            for key in {*batch} - {first}:
                due.remove(key)
        elif len(ready.messages) >= self.wide or not fresh or not allowance.left(owner):
            return ()
        else:
            scarce = "" if finishing else self._scarce(request, look)
            first, host = self._first(ready, [scarce] if scarce else fresh, prefer)
            need = self._tasks[first].need
            most = allowance.most(self._share(look, ready, need), owner, need)
            beside = ready.fresh.among(lambda one: one.scarce) if scarce else fresh
            near = min(_NEAR, max(_NEAREST, left // _PART))
            batch = self._batch(first, itertools.islice(beside, near), prefer, most, left)
            if prefer is not None and host:
                prefer.give(batch)
            elif prefer is not None:
                prefer.give_all()
        self._messages += 1
        bound = prefer is not None and prefer.bound(first)
        for key in batch:
            ready.fresh.discard(key)
            old = ready.sent.get(key)
            # What one host was given and did not take is no silence of all.
            tries = old.tries + (old.bound or not old.host) if old else 1
            ready.send(key, _Sent(look.now, self._messages, host, bound, tries))
        return batch

    def _scarce(self, request: str, look: "_Look") -> str:
        """Return the first fresh task that is to have a free place of its host; empty: none.

        Where hosts have fewer places than there are slots, reprojections of earlier results leave
        them no free place. At most half of the slots go by this.
        """
        if not self._places or self._places >= self._slots:
            return ""
        least = min(self._places, self._slots // 2)
        allowance = look.allowance
        full = {""} | {host for host, taken in allowance.hosts.items() if taken >= least}
        free = self._ready[request].fresh.among(
            lambda need: need.host not in full and allowance.passes(need)
        )
        return next(iter(free), "")

    def _share(self, look: "_Look", ready: _Ready, first: Need) -> int:
        """Return how many tasks a batch may have; where places are fewer than slots, by these."""
        if not first.host or not self._places or self._places >= self._slots:
            return look.most
        number = sum(
            number
            for need, number in ready.fresh.needs().items()
            if need.host == first.host and look.allowance.passes(need)
        )
        return min(_BATCH, max(1, number // max(1, self.turns * self._places)))

    def _left(self, request: str, look: "_Look") -> int:
        """Count the tasks of a request that have not ended, as far as they are known."""
        live = look.cache.requests.get(request)
        ready = self._ready[request]
        return max(live.pending if live is not None else 0, len(ready.fresh) + len(ready.sent))

    def _batch(
        self, first: str, among: Iterable[str], prefer: Preference | None, most: int, left: int
    ) -> tuple[str, ...]:
        """Return a task with those beside it that make a batch of some seconds, in order of key.

        Those of its family come first, and of these the ones of the lowest rank. Of a request with
        little work `left` it takes less: what finishes a result waits until a slot has done its
        batch.
        """
        task = self._tasks[first]
        usual = self.expected(task.task_class)
        if task.alone or usual is None or most < 2:
            return (first,)
        prefix, seconds = mates(first), usual
        longest = usual * left / (max(1, self._slots) * _PART)
        longest = min(_SECONDS, max(_SHORTEST, longest))
        beside = [
            key
            for key in among
            if key.startswith(prefix)
            and key != first
            and not self._tasks[key].alone
            and self._tasks[key].need.host == task.need.host
        ]
        own = family(first)
        beside.sort()
        after = bisect(beside, first)
        nearest = [*beside[after:], *reversed(beside[:after])]
        nearest.sort(key=lambda key: (not key.startswith(own), self._tasks[key].rank))
        batch = [first]
        known: dict[str, float | None] = {}
        for key in nearest:
            if len(batch) >= most:
                break
            name = self._tasks[key].task_class
            usual = known[name] if name in known else known.setdefault(name, self.expected(name))
            if usual is None or seconds + usual > longest:
                continue
            if prefer is not None and not prefer.alike(key, first):
                continue
            batch.append(key)
            seconds += usual
        return tuple(sorted(batch))

    def _first(
        self, ready: _Ready, fresh: Iterable[str], prefer: Preference | None
    ) -> tuple[str, str]:
        """Return the next fresh task and its host.

        It is a task whose host is free for it, or else one that any host may have; but the first
        task is not passed over for ever.
        """
        first = next(iter(fresh))
        if prefer is None:
            return first, ""
        some = fresh if ready.passed < LOOK else [first]
        key = prefer.first(some) or prefer.anywhere(some)
        ready.passed = ready.passed + 1 if key and key != first else 0
        key = key or (first if prefer.bound(first) else "")
        return (key, prefer.host(key)) if key else (first, "")

    def _due(self, sent: _Sent, now: float) -> bool:
        if sent.host and not sent.bound:
            return now - sent.at >= self._patience
        return now - sent.at >= self._resend * 2.0 ** min(sent.tries - 1, _DOUBLINGS)

    def unsend(self, keys: Iterable[str]) -> None:
        """Take note that no slot will get these messages.

        Of each rank their tasks are the next to be sent.
        """
        back: dict[str, dict[str, None]] = {}
        for key in keys:
            task = self._tasks.get(key)
            if task is not None and self._ready[task.sponsor].drop(key):
                back.setdefault(task.sponsor, {})[key] = None
        for sponsor, some in back.items():
            tasks = ((key, self._tasks[key]) for key in some)
            self._ready[sponsor].fresh.put_back((key, task.rank, task.need) for key, task in tasks)


@dataclass
class _Look:
    """What one choice of batches goes by.

    `most` is how many tasks a batch has, `due` what is sent again. `farthest` is the highest rank
    of what each request has on the queue.
    """

    cache: ManagerCache
    now: float
    most: int
    prefer: Preference | None
    allowance: Allowance
    due: dict[str, deque[str]]
    farthest: dict[str, int]

    def finishes(self, request: str, task: _Task) -> bool:
        """Tell whether a task goes before what its request alone has on the queue.

        It puts a result together, or goes on with what is, and later results are on the queue.
        """
        later = task.rank < self.farthest.get(request, 0)
        return later and task.need.phase in _FINISHING and len(self.farthest) == 1


@dataclass
class _Room:
    """How many messages may be sent, or how many tasks, whichever is more.

    Beyond that, `first` messages may be sent that go before what is on the queue.
    """

    messages: int
    tasks: int
    first: int

    @property
    def left(self) -> bool:
        return self.messages > 0 or self.tasks > 0

    def take(self, tasks: int) -> None:
        if not self.left:
            self.first -= 1
        self.messages -= 1
        self.tasks -= tasks


def _owner(cache: ManagerCache, request: str) -> str:
    live = cache.requests.get(request)
    return live.row.owner if live else ""
