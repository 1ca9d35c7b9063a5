"""Which workers leave when the fleet has more slots than are wanted.

A platform that takes a worker away does not know which one is idle. So where it starts workers by
the number of wanted slots, and leaves their end to them, the manager says who goes: such a worker
takes no more work, finishes what it runs, and ends.

Pure: rows and time come in, decisions come out. Times in seconds on the manager's monotonic clock.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from tasks.bag.workers import Hold, WorkerRow


class Leaving:
    """Chooses workers that leave when they have been too many for `patience` seconds; 0: never."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._most: deque[tuple[float, int]] = deque()  # slots wanted, falling: the first counts

    def choose(
        self, workers: Iterable[WorkerRow], running: Mapping[str, int], wanted: int, now: float
    ) -> list[WorkerRow]:
        """Choose workers without which the others still have the slots that were wanted of late.

        `running` counts the attempts of each worker. Slow and unfit ones go first, then those with
        the fewest attempts, then those that started last.
        """
        if not self._patience:
            return []
        self._since = now if self._since is None else self._since
        while self._most and self._most[-1][1] <= wanted:
            self._most.pop()
        self._most.append((now, wanted))
        while self._most[0][0] < now - self._patience:
            self._most.popleft()
        if now - self._since < self._patience:
            return []
        staying = [worker for worker in workers if not worker.draining]
        spare = sum(worker.slots for worker in staying) - self._most[0][1]
        staying.sort(
            key=lambda w: (w.hold is Hold.NONE and not w.unfit, running.get(w.name, 0), -w.started)
        )
        chosen = []
        for worker in staying:
            if worker.slots <= spare:
                spare -= worker.slots
                chosen.append(worker)
        return chosen
