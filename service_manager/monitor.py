"""The monitor: which running attempts are killed or given up, and which workers are lost.

Decisions only; `Monitor.look` says what is to be done. All times are durations on the manager's own
monotonic clock: no other machine's clock is trusted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from service_manager.options import Options
from service_manager.view import Running, View
from tasks.categories import Category
from tasks.history import ClassStatistics
from tasks.workers import WorkerRow

_BEATS = 2  # of a worker that does not list a claim, before the claim counts as lost


@dataclass(frozen=True, kw_only=True)
class Kill:
    """Order the worker to kill this attempt."""

    running: Running
    bound: float


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """End this attempt for its worker, which will not."""

    running: Running
    category: Category
    message: str


@dataclass(slots=True)
class _Seen:
    beat: tuple[float, int]  # incarnation and number of the latest beat
    at: float


def bound(running: Running, statistics: Mapping[str, ClassStatistics], options: Options) -> float:
    """How long an attempt may run, in seconds: `factor` times its class's mean, which counts with
    enough samples; at least the floor; doubled with each retry; at most the ceiling, which alone
    holds for a class without a mean."""
    found = statistics.get(running.task_class)
    if found is None or found.count < options.samples:
        return options.ceiling
    base = max(options.floor, options.factor * found.mean)
    return min(options.ceiling, base * 2.0**running.retries)


class Monitor:
    """Watches workers' heartbeats and attempts' ages."""

    def __init__(self, options: Options, view: View) -> None:
        self._options = options
        self._view = view
        self._seen: dict[str, _Seen] = {}
        self._silence = options.lease + 2 * options.heartbeat

    def hear(self, workers: Iterable[WorkerRow], now: float) -> None:
        """Take note of the workers' rows."""
        present: dict[str, WorkerRow] = {w.name: w for w in workers}
        for worker in present.values():
            beat = (worker.started, worker.sequence)
            old = self._seen.get(worker.name)
            if old is not None and old.beat == beat:
                continue
            self._seen[worker.name] = _Seen(beat, now)
            self._listed(worker, now)
        for name in [n for n in self._seen if n not in present]:
            del self._seen[name]
        self._view.slots = sum(
            w.slots for w in present.values() if not w.draining and not self.lost(w.name, now)
        )

    def lost(self, worker: str, now: float) -> bool:
        """Whether a worker has been silent for longer than it goes on by itself."""
        seen = self._seen.get(worker)
        return seen is None or now - seen.at > self._silence

    def look(
        self, statistics: Mapping[str, ClassStatistics], now: float
    ) -> tuple[list[Kill], list[GiveUp]]:
        """What is to be done about the running attempts."""
        kills: list[Kill] = []
        given_up: list[GiveUp] = []
        for running in self._view.running.values():
            verdict = self._judge(running, statistics, now)
            if isinstance(verdict, Kill):
                kills.append(verdict)
            elif verdict is not None:
                given_up.append(verdict)
        return kills, given_up

    def _listed(self, worker: WorkerRow, now: float) -> None:
        listed = {a.claim: a for a in worker.attempts}
        for running in self._view.running.values():
            if running.worker != worker.name:
                continue
            attempt = listed.get(running.claim)
            running.missed = 0 if attempt else running.missed + 1
            if attempt:
                running.since = min(running.since, now - max(0.0, attempt.started_ago))

    def _judge(
        self, running: Running, statistics: Mapping[str, ClassStatistics], now: float
    ) -> Kill | GiveUp | None:
        age = now - running.since
        lost = self.lost(running.worker, now)
        if lost and age > self._silence:
            text = f"worker {running.worker} was silent for {self._silence:.0f} s"
            return GiveUp(running=running, category=Category.WORKER_LOST, message=text)
        if not lost and running.missed > _BEATS and running.ordered is None:
            text = f"worker {running.worker} does not run it (any more)"
            return GiveUp(running=running, category=Category.WORKER_LOST, message=text)
        limit = bound(running, statistics, self._options)
        if age <= limit:
            return None
        if running.ordered is None:
            return Kill(running=running, bound=limit)
        if now - running.ordered > self._silence:
            text = f"ran longer than {limit:.0f} s, and its worker did not end it"
            return GiveUp(running=running, category=Category.EXECUTION_TIMEOUT, message=text)
        return None
