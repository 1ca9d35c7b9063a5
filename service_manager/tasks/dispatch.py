"""Dispatch: which ready tasks are sent to the workers, fairly, and when one is sent again.

A message names a batch: tasks of one request, kind, product and shard, those of one family first,
as many as make some seconds of work by the history of their classes. A task of a class without
history goes alone, and so does one whose latest attempt failed. Batches get smaller as less is
ready, so that no slot idles while another has a batch before it.

Pure: time comes in, keys come out. A message may get lost and a worker may be slow to say what it
claimed, so all counts here are estimates that the sweep puts right.
"""

import heapq
import itertools
from bisect import bisect
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from service_manager.tasks.input_locations import InputLocations
from service_manager.tasks.manager_cache import ManagerCache
from service_manager.tasks.preference import LOOK, Preference
from tasks.messages.queues import FIRST
from tasks.model import classes
from tasks.model.model import Phase
from tasks.model.task_keys import family, mates
from tasks.tables.restrictions import Restrictions
from tasks.tables.task_rows import ReadyMarker

_BACKLOG = 4.0  # seconds of work kept on the queue
_AHEAD = 64  # messages at most kept for slots that are busy, apart from that
_SPARE = 2  # further messages
_KEPT = 32  # windows of one request's ready tasks that are remembered
_BATCH = 20  # tasks at most; of their transactions the largest has four operations a task
_SECONDS = 2.0  # of work in a batch
_DOUBLINGS = 3  # of the time before a message is sent again


@dataclass(slots=True)
class _Sent:
    at: float
    message: int
    host: str = ""  # whose own queue has it, else the one of all
    tries: int = 1
    first: bool = False  # before what is kept for hosts: its request has less in flight


@dataclass(frozen=True, slots=True)
class _Task:
    sponsor: str
    task_class: str
    alone: bool


@dataclass
class _Ready:
    fresh: dict[str, None] = field(default_factory=dict)  # not sent yet, in order
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
    """Ready tasks by sponsoring request.

    `window` limits the messages of one request on the queue, unless there are more slots; `resend`
    is the silence in seconds after which tasks are sent again. With `locations`, a batch is sent to
    the host that holds its inputs, and after `patience` seconds to all. `expected` returns the
    seconds that a task of a class takes, None while unknown. Of a large request only a part is kept
    in memory; `hungry` says when more is to be read.
    """

    def __init__(
        self,
        window: int,
        resend: float,
        locations: InputLocations | None = None,
        patience: float = 6.0,
        expected: Callable[[str], float | None] = lambda _: None,
    ) -> None:
        self.expected = expected
        self.turns = 2  # messages for each slot, at least, that the ready tasks are divided into
        self._window = window
        self._resend = resend
        self._locations = locations
        self._patience = patience
        self._ready: dict[str, _Ready] = {}
        self._tasks: dict[str, _Task] = {}  # by key
        self._seen: dict[str, float] = {}  # when each was first seen by `queues`
        self._messages = 0
        self._freed: deque[float] = deque()  # when attempts ended
        self._slots = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def known(self) -> list[str]:
        """List the ready tasks in memory."""
        return list(self._tasks)

    @property
    def most(self) -> int:
        """Ready tasks of one request that are remembered."""
        return _KEPT * self.wide

    @property
    def wide(self) -> int:
        """Messages that one request may have on the queue."""
        return max(self._window, self._slots)

    def add(self, key: str, sponsor: str, task_class: str = "", *, alone: bool = False) -> None:
        """Add a ready task under a sponsor; a known task keeps its place.

        One that is to run `alone` goes into no batch.
        """
        task = _Task(sponsor, task_class, alone)
        known = self._tasks.get(key)
        if known is not None and known.sponsor == sponsor:
            self._tasks[key] = task
            return
        self.remove(key)
        ready = self._ready.setdefault(sponsor, _Ready())
        if len(ready.fresh) >= self.most:
            ready.more = True
            return
        self._tasks[key] = task
        ready.fresh[key] = None

    def freed(self, now: float) -> None:
        """Take note that an attempt has ended: its slot takes the next message."""
        self._freed.append(now)

    def remove(self, key: str) -> None:
        """Remove a task that is no longer ready."""
        task = self._tasks.pop(key, None)
        if task is None:
            return
        ready = self._ready[task.sponsor]
        ready.fresh.pop(key, None)
        ready.drop(key)
        self._forget(task.sponsor)

    def sent(self, sponsor: str) -> list[str]:
        """List the tasks of a request that workers may be about to take."""
        ready = self._ready.get(sponsor)
        return list(ready.sent) if ready is not None else []

    def backlog(self, cache: ManagerCache) -> dict[str, int]:
        """Count the ready tasks that a slot may take, by request.

        Of a request with more ready tasks than are remembered, all that have not ended count; of an
        owner under a limit no more than that.
        """
        counts: dict[str, int] = {}
        paused, left = cache.restrictions.paused_phases, dict(cache.restrictions.owner_limits)
        for request, ready in self._ready.items():
            live = cache.requests.get(request)
            if not self._may(cache, request):
                continue
            keys = itertools.chain(ready.fresh, ready.sent)
            counts[request] = sum(self._phase(key) not in paused for key in keys)
            if ready.more and live is not None and not paused:
                counts[request] = max(counts[request], live.pending)
            if (owner := _owner(cache, request)) in left:
                counts[request] = min(counts[request], left[owner])
                left[owner] -= counts[request]
        return counts

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
        few = self.wide
        return [r for r, ready in self._ready.items() if ready.more and len(ready.fresh) < few]

    def fed(self, sponsor: str, *, more: bool) -> None:
        """Take note that a hungry request's ready tasks were added; `more` when not all of them."""
        ready = self._ready.get(sponsor)
        if ready is not None:
            ready.more = more
            self._forget(sponsor)

    def reconcile(
        self, shard: str, found: Mapping[str, ReadyMarker], until: Mapping[str, str] | None = None
    ) -> None:
        """Make the ready tasks of a shard those that a sweep found.

        `found` has the markers by key. Of requests in `until`, only the tasks up to that key were
        read.
        """
        read = until or {}
        gone = [
            key
            for key, task in self._tasks.items()
            if key[0] == shard and key not in found and not key > read.get(task.sponsor, "g")
        ]
        for key in gone:
            self.remove(key)
        for key, marker in found.items():
            self.add(key, marker.request, marker.task_class, alone=marker.alone)
        for sponsor in read:
            self._ready.setdefault(sponsor, _Ready()).more = True

    def _forget(self, sponsor: str) -> None:
        ready = self._ready[sponsor]
        if not ready.fresh and not ready.sent and not ready.more:
            del self._ready[sponsor]

    def choose(self, cache: ManagerCache, now: float) -> list[tuple[str, ...]]:
        """Choose the batches to send now.

        The owner with the least in flight comes first, then the request with the least, then the
        oldest: one request cannot hide another, however large.
        """
        self._slots = cache.slots
        allowance = self._allowance(cache)
        due = self._all_due(now, allowance)
        room = self._room(cache, due, now)
        unsent = sum(len(self._ready[r].fresh) + len(due[r]) for r in due if self._may(cache, r))
        most = min(_BATCH, max(1, unsent // max(1, self.turns * cache.slots)))
        flying, owners = self._in_flight(cache)
        allowance.owners = owners
        heap = [
            (*self._rank(cache, request, flying, owners), request)
            for request in self._ready
            if self._may(cache, request)
        ]
        heapq.heapify(heap)
        prefer = self._preference(cache)
        chosen: list[tuple[str, ...]] = []
        while heap and room.left:
            *rank, request = heapq.heappop(heap)
            current = self._rank(cache, request, flying, owners)
            if tuple(rank) != current:  # the owner got another task meanwhile
                heapq.heappush(heap, (*current, request))
                continue
            owner, again = _owner(cache, request), bool(due[request])
            batch = self._next(request, due[request], now, prefer, most, allowance, owner)
            if not batch:
                continue
            if not again:  # what was sent before is counted already
                allowance.take(self._phase(batch[0]), len(batch))
            chosen.append(batch)
            if prefer is not None and flying[request] < max(flying.values()):
                for key in batch:
                    self._ready[request].sent[key].first = True
            room.take(len(batch))
            flying[request] += len(batch)
            owners[owner] += len(batch)
            heapq.heappush(heap, (*self._rank(cache, request, flying, owners), request))
        return chosen

    def overtaken(self, cache: ManagerCache) -> bool:
        """Whether what waits on the queue is no longer in fair order.

        It is not when a request has nothing there and should go before one that has several
        messages: their tasks are to be chosen again.
        """
        allowance = self._allowance(cache)
        allowance.owners = self._in_flight(cache)[1]
        behind = [
            request
            for request, ready in self._ready.items()
            if ready.fresh
            and not ready.sent
            and self._may(cache, request)
            and allowance.left(_owner(cache, request))
            and (allowance.idle or any(allowance.passes(self._phase(key)) for key in ready.fresh))
        ]
        before = [request for request, ready in self._ready.items() if len(ready.messages) > 1]
        if not behind or not before:
            return False
        flying, owners = self._in_flight(cache)
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
            sent.message
            for request, ready in self._ready.items()
            for again in [{*due[request]}]
            for key, sent in ready.sent.items()
            if key not in again
        ]
        messages = cache.idle + min(cache.slots, _AHEAD) + _SPARE
        tasks = cache.idle + 2 * len(self._freed)
        return _Room(messages - len(set(waiting)), tasks - len(waiting))

    def _in_flight(self, cache: ManagerCache) -> tuple[dict[str, int], dict[str, int]]:
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
        return classes.phase(self._tasks[key].task_class)

    def _allowance(self, cache: ManagerCache) -> "_Allowance":
        allowance = _Allowance(cache.restrictions)
        if cache.restrictions.phase_limits:
            sent = (key for ready in self._ready.values() for key in ready.sent)
            allowance.phases.update(
                phase for key in sent if (phase := self._phase(key)) is not None
            )
            running = cache.running.values()
            allowance.phases.update(one.phase for one in running if one.key not in self._tasks)
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
        preference = Preference(cache, self._locations)
        seen: set[int] = set()
        for ready in self._ready.values():
            for sent in ready.sent.values():
                if sent.host and sent.message not in seen:
                    seen.add(sent.message)
                    preference.waiting(sent.host)
        return preference

    def _all_due(self, now: float, allowance: "_Allowance") -> dict[str, deque[str]]:
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

    def _next(
        self,
        request: str,
        due: deque[str],
        now: float,
        prefer: Preference | None,
        most: int,
        allowance: "_Allowance",
        owner: str,
    ) -> tuple[str, ...]:
        """Take the next batch of a request, at most so many tasks; empty when there is none.

        What was sent already is under the limits of operators.
        """
        ready = self._ready[request]
        fresh: Mapping[str, None] = ready.fresh
        if not allowance.idle:
            fresh = {key: None for key in fresh if allowance.passes(self._phase(key))}
        if due:
            first, host = due.popleft(), ""
            batch = self._batch(first, due, None, most)
            for key in {*batch} - {first}:
                due.remove(key)
        elif len(ready.messages) >= self.wide or not fresh or not allowance.left(owner):
            return ()
        else:
            first, host = self._first(ready, fresh, prefer)
            most = allowance.most(most, owner, self._phase(first))
            batch = self._batch(first, fresh, prefer, most)
            if prefer is not None and host:
                prefer.give(batch)
            elif prefer is not None:
                prefer.give_all()
        self._messages += 1
        for key in batch:
            ready.fresh.pop(key, None)
            old = ready.sent.get(key)
            # What one host was given and did not take is no silence of all.
            tries = old.tries + (not old.host) if old else 1
            ready.send(key, _Sent(now, self._messages, host, tries))
        return batch

    def _batch(
        self, first: str, among: Iterable[str], prefer: Preference | None, most: int
    ) -> tuple[str, ...]:
        """Return a task with those beside it that make a batch of some seconds, in order of key.

        Those of its family come first.
        """
        task = self._tasks[first]
        usual = self.expected(task.task_class)
        if task.alone or usual is None or most < 2:
            return (first,)
        prefix, seconds = mates(first), usual
        beside = [
            key
            for key in among
            if key.startswith(prefix) and key != first and not self._tasks[key].alone
        ]
        own = family(first)
        beside.sort()
        after = bisect(beside, first)
        nearest = [*beside[after:], *reversed(beside[:after])]
        nearest.sort(key=lambda key: not key.startswith(own))
        batch = [first]
        known: dict[str, float | None] = {}
        for key in nearest:
            if len(batch) >= most:
                break
            name = self._tasks[key].task_class
            usual = known[name] if name in known else known.setdefault(name, self.expected(name))
            if usual is None or seconds + usual > _SECONDS:
                continue
            if prefer is not None and not prefer.alike(key, first):
                continue
            batch.append(key)
            seconds += usual
        return tuple(sorted(batch))

    def _first(
        self, ready: _Ready, fresh: Mapping[str, None], prefer: Preference | None
    ) -> tuple[str, str]:
        """Return the next fresh task and its host.

        It is a task whose host is free for it, but the first task is not passed over for ever.
        """
        first = next(iter(fresh))
        if prefer is None:
            return first, ""
        key = prefer.first(fresh if ready.passed < LOOK else [first])
        ready.passed = ready.passed + 1 if key and key != first else 0
        return (key, prefer.host(key)) if key else (first, "")

    def _due(self, sent: _Sent, now: float) -> bool:
        if sent.host:
            return now - sent.at >= self._patience
        return now - sent.at >= self._resend * 2.0 ** min(sent.tries - 1, _DOUBLINGS)

    def unsend(self, keys: Iterable[str]) -> None:
        """Take note that no slot will get these messages: their tasks are the next to be sent."""
        back: dict[str, dict[str, None]] = {}
        for key in keys:
            task = self._tasks.get(key)
            if task is not None and self._ready[task.sponsor].drop(key):
                back.setdefault(task.sponsor, {})[key] = None
        for sponsor, some in back.items():
            ready = self._ready[sponsor]
            ready.fresh = {**some, **ready.fresh}


@dataclass
class _Room:
    """How many messages may be sent, or how many tasks, whichever is more."""

    messages: int
    tasks: int

    @property
    def left(self) -> bool:
        return self.messages > 0 or self.tasks > 0

    def take(self, tasks: int) -> None:
        self.messages -= 1
        self.tasks -= tasks


def _owner(cache: ManagerCache, request: str) -> str:
    live = cache.requests.get(request)
    return live.row.owner if live else ""


@dataclass
class _Allowance:
    """What operators let pass: how many tasks may be in flight, by owner and by phase."""

    restrictions: Restrictions
    owners: Mapping[str, int] = field(default_factory=dict)  # tasks in flight
    phases: Counter[Phase] = field(default_factory=Counter)

    @property
    def idle(self) -> bool:
        """Whether no phase is restricted."""
        return not self.restrictions.paused_phases and not self.restrictions.phase_limits

    def paused(self, phase: Phase | None) -> bool:
        return phase in self.restrictions.paused_phases

    def passes(self, phase: Phase | None) -> bool:
        """Whether one more task of a phase may be sent."""
        if phase is None:
            return True
        limit = self.restrictions.phase_limits.get(phase)
        return not self.paused(phase) and (limit is None or self.phases[phase] < limit)

    def left(self, owner: str) -> bool:
        """Whether one more task of an owner may be sent."""
        limit = self.restrictions.owner_limits.get(owner)
        return limit is None or self.owners.get(owner, 0) < limit

    def most(self, most: int, owner: str, phase: Phase | None) -> int:
        """Return how many tasks a batch may have, of `most` at most."""
        limit = self.restrictions.owner_limits.get(owner)
        if limit is not None:
            most = min(most, limit - self.owners.get(owner, 0))
        limit = self.restrictions.phase_limits.get(phase) if phase is not None else None
        return most if limit is None or phase is None else min(most, limit - self.phases[phase])

    def take(self, phase: Phase | None, tasks: int) -> None:
        if phase is not None:
            self.phases[phase] += tasks
