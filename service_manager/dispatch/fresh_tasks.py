"""Tasks of one request that are ready and not sent yet, in the order in which they are wanted.

Those of the first result come first. Of one result, what was ready first comes first, and before it
what was taken back from the queue.

Tasks that take the same are kept together: whether they may be sent is asked once for all of them,
however many wait.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from service_manager.dispatch.allowance import Need


class _Ranked(Collection[str]):
    """Keys by rank, then by turn. Adding and removing cost a search and a move of a list."""

    def __init__(self, need: Need) -> None:
        self.need = need
        self.order: list[tuple[int, int, str]] = []
        self._places: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.order)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return (key for _, _, key in self.order)

    def add(self, key: str, rank: int, turn: int) -> None:
        self._places[key] = rank, turn
        insort(self.order, (rank, turn, key))

    def discard(self, key: str) -> bool:
        place = self._places.pop(key, None)
        if place is None:
            return False
        del self.order[bisect_left(self.order, (*place, key))]
        return True


@dataclass(frozen=True, slots=True)
class Among(Collection[str]):
    """Keys of some needs, in order; they are read one by one, as far as they are looked at."""

    parts: tuple[_Ranked, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self.parts)

    def __iter__(self) -> Iterator[str]:
        return (key for _, _, key in heapq.merge(*(part.order for part in self.parts)))


class FreshTasks(Collection[str]):
    """Keys in order, by what their tasks need."""

    def __init__(self) -> None:
        self._parts: dict[Need, _Ranked] = {}  # none is empty
        self._places: dict[str, _Ranked] = {}  # by key
        self._turns = 0, 0  # of the next one taken back, and of the next one added

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self.among(lambda _: True))

    def add(self, key: str, rank: int, need: Need) -> None:
        """Add a key behind those of its rank."""
        first, last = self._turns
        self._turns = first, last + 1
        self._put(key, rank, last, need)

    def put_back(self, keys: Iterable[tuple[str, int, Need]]) -> None:
        """Put keys, each with rank and need, before all of their ranks, in their order."""
        some = list(keys)
        first, last = self._turns
        self._turns = first - len(some), last
        for turn, (key, rank, need) in enumerate(some, first - len(some)):
            self._put(key, rank, turn, need)

    def discard(self, key: str) -> None:
        """Remove a key if it is there."""
        part = self._places.pop(key, None)
        if part is not None:
            part.discard(key)
            if not part:
                del self._parts[part.need]

    def needs(self) -> dict[Need, int]:
        """Count the keys by need."""
        return {need: len(part) for need, part in self._parts.items()}

    def among(self, takes: Callable[[Need], bool]) -> Among:
        """Return the keys of the needs that are taken; it is no longer good once keys change."""
        return Among(tuple(part for need, part in self._parts.items() if takes(need)))

    def number(self, *, scarce: bool) -> int:
        """Return how many keys need something scarce, or how many do not."""
        return sum(len(part) for need, part in self._parts.items() if need.scarce == scarce)

    def last(self, *, scarce: bool) -> tuple[int, str]:
        """Return rank and key of the last that needs something scarce, or of those that do not."""
        lasts = (part.order[-1] for need, part in self._parts.items() if need.scarce == scarce)
        rank, _, key = max(lasts)
        return rank, key

    def _put(self, key: str, rank: int, turn: int, need: Need) -> None:
        part = self._parts.get(need) or self._parts.setdefault(need, _Ranked(need))
        part.add(key, rank, turn)
        self._places[key] = part
