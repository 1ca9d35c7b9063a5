"""When workers were last heard: a row whose beats have ceased is no worker.

The row of a worker that was killed stays for a day, for operators to see. Clocks of machines may
differ by minutes, so a beat's time of day is not compared: whoever watches notes on a monotonic
clock of its own when it saw a row change.
"""

from collections.abc import Collection

from tasks.bag.workers import WorkerRow


class Beats:
    """The latest beat of each worker, and when it was seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[tuple[float, int], float]] = {}

    def hear(self, rows: Collection[WorkerRow], now: float) -> list[WorkerRow]:
        """Take note of all rows; return those of workers that are new or have beaten since."""
        heard = []
        for row in rows:
            beat = (row.started, row.sequence)
            if row.name not in self._seen or self._seen[row.name][0] != beat:
                self._seen[row.name] = beat, now
                heard.append(row)
        for name in self._seen.keys() - {row.name for row in rows}:
            del self._seen[name]
        return heard

    def at(self, worker: str) -> float | None:
        """Return when a worker was last heard; None if it has no row."""
        seen = self._seen.get(worker)
        return seen[1] if seen is not None else None
