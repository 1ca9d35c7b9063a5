"""Dispatch over all places of the fleet: each task goes to the workers of its class's place.

Every place has a dispatch of its own, with its own slots, messages, batches and order: what waits
at one holds up nothing at another. Limits of operators, connections to archive hosts and room for
packages are of the whole fleet. Without places there is one dispatch, which has everything.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from service_manager.dispatch.dispatch import Dispatch, Unread
from service_manager.dispatch.manager_cache import ManagerCache
from tasks.bag.model import Phase
from tasks.bag.task_rows import ReadyMarker
from tasks.operators.manager_rows import HostQueue
from tasks.setting_values import WorkPlaces

WITHOUT_PLACES = WorkPlaces()


@dataclass(frozen=True, kw_only=True)
class PlaceLook:
    """What a place has, as of one look: its own view of the cache, and its ready tasks."""

    place: str
    cache: ManagerCache
    ready: Mapping[str, int]  # that a slot may take, by request


class FleetDispatch:
    """The dispatches of all places; `make` makes one.

    What each method does is said at `Dispatch`.
    """

    def __init__(
        self, make: Callable[[], Dispatch], work_places: WorkPlaces = WITHOUT_PLACES
    ) -> None:
        self._work = work_places
        self.places = {place: make() for place in ("", *work_places.names)}
        """The dispatches by place; that without a name has all other work."""
        for one in self.places.values():
            one.beside = tuple(other for other in self.places.values() if other is not one)

    def __len__(self) -> int:
        return sum(map(len, self.places.values()))

    def __iter__(self) -> Iterator[Dispatch]:
        return iter(self.places.values())

    def _at(self, task_class: str) -> Dispatch:
        return self.places[self._work.of(task_class)]

    def _views(self, cache: ManagerCache) -> Iterator[tuple[Dispatch, ManagerCache]]:
        for place, one in self.places.items():
            yield one, cache.view(place, self._work)

    def _by_place(
        self, found: Iterable[ReadyMarker]
    ) -> Iterator[tuple[Dispatch, list[ReadyMarker]]]:
        markers: dict[str, list[ReadyMarker]] = {place: [] for place in self.places}
        for marker in found:
            markers[self._work.of(marker.task_class)].append(marker)
        for place, mine in markers.items():
            yield self.places[place], mine

    def place(self, key: str) -> str:
        """Return the place to which a ready task is sent; empty: that of all other work."""
        return next((place for place, one in self.places.items() if one.knows(key)), "")

    def host(self, key: str) -> str:
        """Return the host for which a task was chosen."""
        return next((host for one in self if (host := one.host(key))), "")

    def known(self) -> list[str]:
        """List the ready tasks in memory."""
        return [key for one in self for key in one.known()]

    @property
    def most(self) -> int:
        """Ready tasks of one request that a place remembers at most."""
        return max(one.most for one in self)

    @property
    def wide(self) -> int:
        """Messages that one request may have on the queue of a place at most."""
        return max(one.wide for one in self)

    def add(
        self, key: str, sponsor: str, task_class: str = "", *, alone: bool = False, rank: int = 0
    ) -> None:
        """Add a ready task under a sponsor."""
        self._at(task_class).add(key, sponsor, task_class, alone=alone, rank=rank)

    def freed(self, now: float, task_class: str = "") -> None:
        """Take note that an attempt of a class has ended."""
        self._at(task_class).freed(now)

    def remove(self, key: str) -> None:
        """Remove a task that is no longer ready."""
        for one in self:
            one.remove(key)

    def has(self, sponsor: str) -> bool:
        """Tell whether tasks of a request are ready, or more of them are to be read."""
        return any(one.has(sponsor) for one in self)

    def sent(self, sponsor: str) -> list[str]:
        """List the tasks of a request that workers may be about to take."""
        return [key for one in self for key in one.sent(sponsor)]

    def looks(self, cache: ManagerCache) -> list[PlaceLook]:
        """Return what each place has."""
        left = dict(cache.restrictions.owner_limits)
        return [
            PlaceLook(place=place, cache=view, ready=one.backlog(view, left))
            for place, (one, view) in zip(self.places, self._views(cache), strict=True)
        ]

    def backlog(self, cache: ManagerCache) -> dict[str, int]:
        """Count the ready tasks that a slot may take, by request."""
        found = Counter[str]()
        for look in self.looks(cache):
            found.update(look.ready)
        return dict(found)

    def queues(self, now: float) -> dict[Phase, tuple[int, float]]:
        """Count the ready tasks in memory by phase, with the seconds since the first was seen."""
        found: dict[Phase, tuple[int, float]] = {}
        for one in self:
            for phase, (number, oldest) in one.queues(now).items():
                others, older = found.get(phase, (0, 0.0))
                found[phase] = (others + number, max(older, oldest))
        return found

    def hungry(self) -> list[str]:
        """List the requests of which more ready tasks are to be read."""
        return list(dict.fromkeys(request for one in self for request in one.hungry()))

    def feed(self, sponsor: str, found: Iterable[ReadyMarker], *, more: bool) -> None:
        """Add the ready tasks of a hungry request that were read; `more` when not all were.

        A place of which none was read is not hungry: the same would be read again.
        """
        for one, mine in self._by_place(found):
            for first in mine[:1]:
                one.add(first.key, sponsor, first.task_class, alone=first.alone, rank=first.rank)
            one.feed(sponsor, mine, more=more and (bool(mine) or len(self.places) == 1))

    def reconcile(
        self, shard: str, found: Mapping[str, ReadyMarker], unread: Unread | None = None
    ) -> None:
        """Make the ready tasks of a shard those that a sweep found."""
        if len(self.places) == 1:
            self.places[""].reconcile(shard, found, unread)
            return
        for one, mine in self._by_place(found.values()):
            more = {marker.request for marker in mine} & (unread or {}).keys()
            one.reconcile(shard, {marker.key: marker for marker in mine}, unread, more)

    def sendable(self, cache: ManagerCache) -> Callable[[ReadyMarker], bool]:
        """Return what tells whether a task may be sent now, but for the limit of its owner."""
        takes = {
            place: one.sendable(view) if view.slots or not place else _nothing
            for place, (one, view) in zip(self.places, self._views(cache), strict=True)
        }
        return lambda marker: takes[self._work.of(marker.task_class)](marker)

    def choose(self, cache: ManagerCache, now: float) -> list[tuple[str, ...]]:
        """Choose the batches to send now.

        None to a place that has a name and no slot: nobody might take them for long.
        """
        return [
            batch
            for place, (one, view) in zip(self.places, self._views(cache), strict=True)
            if view.slots or not place
            for batch in one.choose(view, now)
        ]

    def held_up(self, cache: ManagerCache) -> Iterator[tuple[str, str]]:
        """Yield each task that waits for its request or its owner, with one that may have it."""
        for one, view in self._views(cache):
            yield from one.held_up(view)

    def overtaken(self, cache: ManagerCache) -> bool:
        """Tell whether what waits on the queue of a place is no longer in fair order."""
        return any(one.overtaken(view) for one, view in self._views(cache))

    def waiting_for_places(self, cache: ManagerCache) -> list[HostQueue]:
        """List the archive hosts of which all places are taken, with the tasks that wait."""
        return _together(one.waiting_for_places(view) for one, view in self._views(cache))

    def waiting_for_room(self, cache: ManagerCache) -> list[HostQueue]:
        """List the packages for whose runs there is no more room, with the runs that wait."""
        return _together(one.waiting_for_room(view) for one, view in self._views(cache))

    def no_room(self, cache: ManagerCache, task_class: str, why: str) -> None:
        """Take note that a worker found no room for a run of a package and gave its task back."""
        view = cache.view(self._work.of(task_class), self._work)
        self._at(task_class).no_room(view, task_class, why)

    def unsuited(self, task_class: str, host: str, why: str) -> None:
        """Take note that a host cannot run a package, and gave its task back."""
        self._at(task_class).unsuited(task_class, host, why)

    def unsend(self, keys: Iterable[str]) -> None:
        """Take note that no slot will get these messages."""
        some = list(keys)
        for one in self:
            one.unsend(some)


def _nothing(_marker: ReadyMarker) -> bool:
    return False


def _together(queues: Iterable[list[HostQueue]]) -> list[HostQueue]:
    """Add up what waits at several places for the same."""
    found: dict[str, HostQueue] = {}
    for queue in (queue for some in queues for queue in some):
        before = found.get(queue.host)
        waiting = queue.waiting + (before.waiting if before else 0)
        found[queue.host] = replace(queue, waiting=waiting)
    return list(found.values())
