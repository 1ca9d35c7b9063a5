"""What an engine offers to a fleet, and how many workers it is to start."""

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Started:
    """A worker that was started and has not ended: its name, and whether its machine runs it.

    `why` is what the engine says of one that waits: no machine, no quota, an image that it cannot
    pull; empty where it says nothing.
    """

    name: str
    running: bool
    why: str = ""


class Engine(Protocol):
    """An engine that starts workers of one class.

    A worker bears the name under which it is listed. It ends by itself when the manager has told it
    to leave, and what the engine had for it ends, too.
    """

    def there(self) -> list[Started]:
        """List the workers that wait for a machine or run. Raises StackError."""
        ...

    def start(self, count: int) -> None:
        """Start more workers. Raises StackError."""
        ...

    def end(self, names: Sequence[str]) -> None:
        """End workers that still wait; what runs by now stays. Raises StackError."""
        ...


@dataclass(frozen=True, kw_only=True)
class Moves:
    """How many workers to start, and which of those that wait to end."""

    start: int = 0
    end: tuple[str, ...] = ()


@dataclass
class Fleet:
    """Decides what an engine is to do, look by look.

    Nothing that runs is ever ended here: who leaves is the manager's choice. Workers that wait for
    a machine end when there were too many for `patience` seconds, the last ones first. What was
    started and is not listed yet counts as there for `settling` seconds: engines list it late.
    """

    slots: int
    most: int
    patience: float = 300.0
    settling: float = 120.0
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)  # falling: the first counts
    _known: set[str] = field(default_factory=set)  # listed at the latest look
    _unlisted: int = 0  # started, and in no list yet
    _started: float = -math.inf  # when some were started last

    def moves(
        self, wanted_slots: int, there: Sequence[Started], leaving: Collection[str], now: float
    ) -> Moves:
        """Return what to do for so many slots; `leaving` are workers that were told to go."""
        wanted = min(self.most, math.ceil(wanted_slots / self.slots))
        while self._wanted and self._wanted[-1][1] <= wanted:
            self._wanted.pop()
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - self.patience:
            self._wanted.popleft()
        staying = [one for one in there if one.name not in leaving]
        unlisted = self._look(there, now)
        more = min(wanted - len(staying), self.most - len(there)) - unlisted
        if more > 0:
            self._unlisted, self._started = unlisted + more, now
            return Moves(start=more)
        spare = max(0, len(staying) - self._wanted[0][1])
        waiting = [one.name for one in staying if not one.running]
        return Moves(end=tuple(waiting[len(waiting) - min(spare, len(waiting)) :]))

    def _look(self, there: Sequence[Started], now: float) -> int:
        """Return how many were started lately and are not listed yet."""
        names = {one.name for one in there}
        listed = len(names - self._known)
        self._known = names
        late = now - self._started > self.settling
        self._unlisted = 0 if late else max(0, self._unlisted - listed)
        return self._unlisted
