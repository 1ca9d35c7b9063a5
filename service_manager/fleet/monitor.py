"""The monitor: which running attempts are killed or given up, and which workers are lost.

Decisions only; `Monitor.look` says what is to be done. All times are durations on the manager's own
monotonic clock: no other machine's clock is trusted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from service_manager.dispatch.attempt_statistics import AttemptStatistics
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from service_manager.fleet.machines import DrainOrder, Machines
from service_manager.options import ManagerOptions
from tasks.bag.categories import Category
from tasks.bag.expectation import Times
from tasks.bag.history import ClassStatistics
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.workers import Ask, WorkerRow
from tasks.operators.worker_beats import Beats

_BEATS = 2  # of a worker that does not list a claim, before the claim counts as lost
_SEEN = 0.5  # of its time limit that an attempt has, before its progress is held against it
_MISSES = 1.5  # times its time limit that it would take at least, to be killed for that


@dataclass(frozen=True, kw_only=True)
class Kill:
    """Order the worker to kill this attempt: over its limit, or on its way to `least` seconds."""

    running: WatchedAttempt
    limit: float
    least: float = 0.0


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """End this attempt for its worker, which will not.

    One that was not in hand is not charged: its task goes back.
    """

    running: WatchedAttempt
    category: Category
    message: str


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """What is to be done. `moves` are to be killed and handed back: others end them sooner."""

    kills: list[Kill] = field(default_factory=list)
    given_up: list[GiveUp] = field(default_factory=list)
    moves: list[WatchedAttempt] = field(default_factory=list)
    holds: list[DrainOrder] = field(default_factory=list)


class Monitor:
    """Watches workers' heartbeats, attempts' ages and progress, and the pace of machines."""

    def __init__(self, options: ManagerOptions, cache: ManagerCache) -> None:
        self._cache = cache
        self._limits = options.time_limits
        self._statistics = AttemptStatistics(options.time_limits.samples)
        self._machines = Machines(self._statistics, self._limits, options.probe, options.heartbeat)
        self._beats = Beats()
        self._orders: list[DrainOrder] = []
        self._silence = options.lease + 2 * options.heartbeat

    def hear(self, workers: Iterable[WorkerRow], now: float) -> None:
        """Take note of the workers' rows."""
        present: dict[str, WorkerRow] = {w.name: w for w in workers}
        running: dict[str, list[WatchedAttempt]] = {}
        for one in self._cache.running.values():
            running.setdefault(one.worker, []).append(one)
        for worker in self._beats.hear(present.values(), now):
            self._listed(worker, running.get(worker.name, ()), now)
        in_hand = {name: [one for one in some if one.in_hand] for name, some in running.items()}
        self._statistics.hear(one.task_class for some in in_hand.values() for one in some)
        beating = [w for w in present.values() if not self.lost(w.name, now)]
        self._orders = self._machines.hear(beating, in_hand, now)
        self._cache.workers = {
            w.name: (w.host, self._machines.slots(w))
            for w in beating
            if not w.draining and w.asked is not Ask.DRAIN and (w.able or self._machines.slots(w))
        }
        self._cache.slots = sum(slots for _, slots in self._cache.workers.values())
        self._cache.worker_places = {w.name: w.place for w in beating if w.place}

    def lost(self, worker: str, now: float, since: float = 0.0) -> bool:
        """Tell whether a worker is silent for `since`, and longer than it goes on by itself."""
        heard = self._beats.at(worker)
        return heard is None or now - heard > max(self._silence, since)

    def ended(
        self,
        event: CompletionEvent,
        running: WatchedAttempt | None,
        statistics: Mapping[str, ClassStatistics],
        now: float,
    ) -> None:
        """Take note of an ended attempt; `running` is what was known of it."""
        self._machines.ended(event, statistics, now)
        if event.category is None and not self._machines.slow(event.worker):
            self._statistics.learn(
                event.task_class, event.duration, running.course if running else None
            )

    def expected(self, task_class: str, statistics: Mapping[str, ClassStatistics]) -> float | None:
        """Return what an attempt of a class usually takes, or None while nothing is known.

        While it has too few successes, that is a generous guess by those that there are, and by
        those of other amounts of the same work.
        """
        usual = self._statistics.usual(task_class, statistics.get(task_class))
        if usual is not None:
            return usual.seconds
        return self._statistics.guess(task_class, statistics)

    def look(
        self,
        statistics: Mapping[str, ClassStatistics],
        now: float,
        waiting: Callable[[], Mapping[str, int]] = dict,
        behind: float = 0.0,
    ) -> Verdicts:
        """Decide what to do about the running attempts and the workers.

        `waiting` counts the tasks that a slot may take and none has taken, by place. The ends of
        attempts are counted until `behind` seconds ago. What they took is held against what runs as
        of then: of many that began together, the short ones end first.
        """
        holds, moves = self._machines.look(statistics, now, waiting)
        verdicts = Verdicts(holds=self._orders + holds, moves=moves)
        self._orders = []
        times = Times(statistics, self._limits.samples)
        moved = {running.key for running in moves}
        for running in self._cache.running.values():
            if running.key in moved:
                continue
            verdict = self._judge(running, times, now, behind)
            if isinstance(verdict, Kill):
                verdicts.kills.append(verdict)
            elif verdict is not None:
                verdicts.given_up.append(verdict)
        return verdicts

    def _listed(self, worker: WorkerRow, running: Iterable[WatchedAttempt], now: float) -> None:
        listed = {a.claim: a for a in worker.attempts}
        waiting = {*worker.waiting}
        for one in running:
            attempt = listed.get(one.claim)
            one.missed = 0 if attempt or one.claim in waiting else one.missed + 1
            if attempt:
                begun = now - max(0.0, attempt.started_ago)
                # What waited in a batch was known before it began.
                one.since = min(one.since, begun) if one.begun else begun
                one.begun = True
                one.course.note(attempt.progress, attempt.started_ago)
            elif one.claim in waiting:
                one.begun, one.since = False, now

    def _judge(
        self, running: WatchedAttempt, times: Times, now: float, behind: float
    ) -> Kill | GiveUp | None:
        age = now - running.since
        lost = self.lost(running.worker, now)
        if lost and age > self._silence:
            text = f"worker {running.worker} was silent for {self._silence:.0f} s"
            return GiveUp(running=running, category=Category.WORKER_LOST, message=text)
        # An order to end it may be under way, and its end may be about to be recorded.
        order_over = running.ordered is None or now - running.ordered > self._silence
        if not lost and running.missed > _BEATS and order_over:
            text = f"worker {running.worker} does not run it (any more)"
            return GiveUp(running=running, category=Category.WORKER_LOST, message=text)
        if not running.begun:
            return None  # it waits in a batch, or its worker has yet to list it
        limit = self._limits.limit(times, running.task_class, running.retries)
        limit = limit * self._machines.longer(running.worker) + behind
        limit = min(self._limits.ceiling, limit)
        if running.ordered is None:
            return self._late(running, age, limit)
        if age > limit and now - running.ordered > self._silence:
            text = f"ran longer than {limit:.0f} s, and its worker did not end it"
            return GiveUp(running=running, category=Category.EXECUTION_TIMEOUT, message=text)
        return None

    def _late(self, running: WatchedAttempt, age: float, limit: float) -> Kill | None:
        """Return the kill of an attempt that is beyond its time limit, or that will miss it.

        Progress alone kills nothing: the attempt has used half of its time limit and has made less
        progress than earlier attempts of its class made in the first third of their time. It would
        need one and a half times its limit. A phase that is always slow is slow in the earlier
        attempts, too.
        """
        if age > limit:
            return Kill(running=running, limit=limit)
        if age < _SEEN * limit:
            return None
        least = self._statistics.least(running.task_class, age, running.course)
        if least > _MISSES * limit:
            return Kill(running=running, limit=limit, least=least)
        return None
