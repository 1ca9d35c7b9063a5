"""Tasks of one request that are ready and not sent yet, in the order in which they are wanted.

Those of the first result come first. Of one result, what was ready first comes first, and before it
what was taken back from the queue.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator


class _Ranked(Collection[str]):
    """Keys by rank, then by turn. Adding and removing cost a search and a move of a list."""

    def __init__(self) -> None:
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


class FreshTasks(Collection[str]):
    """Keys in order; those that need a place at an archive's host are counted apart, too."""

    def __init__(self) -> None:
        self._free = _Ranked()
        self.placed = _Ranked()
        """Those that need a place, in order."""
        self._turns = 0, 0  # of the next one taken back, and of the next one added

    def __len__(self) -> int:
        return len(self._free) + len(self.placed)

    def __contains__(self, key: object) -> bool:
        return key in self._free or key in self.placed

    def __iter__(self) -> Iterator[str]:
        return (key for _, _, key in heapq.merge(self._free.order, self.placed.order))

    def add(self, key: str, rank: int, *, placed: bool) -> None:
        """Add a key behind those of its rank."""
        first, last = self._turns
        self._turns = first, last + 1
        self._part(placed=placed).add(key, rank, last)

    def put_back(self, keys: Iterable[tuple[str, int, bool]]) -> None:
        """Put keys, each with rank and `placed`, before all of their ranks, in their order."""
        some = list(keys)
        first, last = self._turns
        self._turns = first - len(some), last
        for turn, (key, rank, placed) in enumerate(some, first - len(some)):
            self._part(placed=placed).add(key, rank, turn)

    def discard(self, key: str) -> None:
        """Remove a key if it is there."""
        self._free.discard(key) or self.placed.discard(key)

    def number(self, *, placed: bool) -> int:
        """Return how many keys need a place, or how many do not."""
        return len(self._part(placed=placed))

    def last(self, *, placed: bool) -> tuple[int, str]:
        """Return rank and key of the last that needs a place, or of the last that does not."""
        rank, _, key = self._part(placed=placed).order[-1]
        return rank, key

    def _part(self, *, placed: bool) -> _Ranked:
        return self.placed if placed else self._free
