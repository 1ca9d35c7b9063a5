"""The running attempts as the manager watches them: kills ordered, lost ones given up."""

from collections import Counter
from collections.abc import Sequence

import structlog

from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from service_manager.events.sweep import look_again, read_running
from service_manager.fleet.leaving import Leaving
from service_manager.fleet.machines import DrainOrder
from service_manager.fleet.monitor import GiveUp, Kill, Monitor
from service_manager.options import ManagerOptions
from tasks.bag import history, protocol, workers
from tasks.bag.model import Attempt, State
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import CompletionEvent

log = structlog.get_logger("manager.attempts")

_FORGOTTEN = 86400.0
"""Seconds for which the row of a lost worker is kept, so that operators see it."""


class Attempts:
    """Looks at the workers' beats."""

    def __init__(
        self,
        runtime: Runtime,
        options: ManagerOptions,
        cache: ManagerCache,
        dispatch: FleetDispatch,
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._clock = runtime.clock
        self._options = options
        self._cache = cache
        self._dispatch = dispatch
        self._monitor = Monitor(options, cache)
        self._leaving: dict[str, Leaving] = {}  # by place
        self._statistics: dict[str, history.ClassStatistics] = {}
        self._statistics_due = 0.0
        self.workers: tuple[workers.WorkerRow, ...] = ()  # that beat, at the last look
        self.heard: dict[str, float] = {}  # when a worker of a place beat last, by the wall clock
        self._counted_until = runtime.clock.monotonic()
        self._strays: dict[str, int] = {}  # beats that listed a claim nobody knows

    def look(self) -> None:
        """One look. Raises StoreError; what was not done is found again by the next."""
        now = self._clock.monotonic()
        if now >= self._statistics_due:
            self._statistics = history.class_statistics(self._store)
            self._statistics_due = now + self._options.sweep
        found = workers.list_workers(self._store)
        # After the reading: in one that takes long, attempts would seem older than they are.
        now = self._clock.monotonic()
        self._monitor.hear(found, now)
        self.workers = tuple(one for one in found if not self._monitor.lost(one.name, now))
        for one in found:
            self.heard[one.place] = max(one.beat_at, self.heard.get(one.place, 0.0))
        self._forget(found, now)
        self._strays_of(found, now)
        for running in self._cache.running.values():
            self._dispatch.remove(running.key)
        for live in self._cache.requests.values():
            live.changed = True
        behind = now - self._counted_until
        verdicts = self._monitor.look(self._statistics, now, self._waiting, behind)
        for order in verdicts.holds:
            self._hold(order)
        for running in verdicts.moves:
            self._move(running)
        for kill in verdicts.kills:
            self._kill(kill)
        for verdict in self._still_running(verdicts.given_up, now):
            self._give_up(verdict)

    def _still_running(self, given_up: Sequence[GiveUp], now: float) -> list[GiveUp]:
        """Return the verdicts on attempts that their markers still name.

        The others have ended: their events come. While many wait to be processed, a read of a shard
        costs far fewer calls than one of each task.
        """
        for number in sorted({shard(one.running.key) for one in given_up}):
            look_again(self._runtime.tasks, number, self._cache.running, now)
        running = self._cache.running
        return [one for one in given_up if running.get(one.running.key) is one.running]

    def _waiting(self) -> dict[str, int]:
        looks = self._dispatch.looks(self._cache)
        return {look.place: sum(look.ready.values()) for look in looks}

    def scale_in(self, wanted: int, place: str = "") -> None:
        """Tell the workers of a place to leave that are more than the slots wanted there.

        Raises StoreError.
        """
        now = self._clock.monotonic()
        running = Counter(running.worker for running in self._cache.running.values())
        leaving = self._leaving.setdefault(place, Leaving(self._options.scale_in))
        here = [worker for worker in self.workers if worker.place == place]
        for worker in leaving.choose(here, running, wanted, now):
            log.info("worker asked to leave", worker=worker.name, place=place, wanted=wanted)
            workers.order_leave(self._store, self._clock, worker.name, worker.started)

    def _forget(self, found: Sequence[workers.WorkerRow], now: float) -> None:
        """Delete the rows of workers that were lost long ago."""
        for worker in found:
            if self._monitor.lost(worker.name, now, _FORGOTTEN):
                workers.leave(self._store, self._clock, worker.name, worker.started)

    def ended(self, event: CompletionEvent) -> None:
        """Count an ended attempt in the statistics of its class and of its worker."""
        running = self._cache.running.get(event.key)
        if running is not None and running.attempt <= event.number:
            del self._cache.running[event.key]
        mine = running if running is not None and running.attempt == event.number else None
        self._monitor.ended(event, mine, self._statistics, self._clock.monotonic())

    def counted(self, until: float) -> None:
        """Take note that the ends of all attempts until a time, or nearly all, are counted."""
        self._counted_until = until

    def returned(self, event: CompletionEvent) -> None:
        """Forget a claim whose task was given back."""
        self._cache.running.pop(event.key, None)

    def expected(self, task_class: str) -> float | None:
        """Return what an attempt of a class usually takes, or None while that is not known."""
        return self._monitor.expected(task_class, self._statistics)

    def _strays_of(self, found: list[workers.WorkerRow], now: float) -> None:
        """Return listed attempts that the cache lacks: new ones, or ones no longer wanted."""
        known = {running.claim for running in self._cache.running.values()}
        unknown = [
            (worker.name, attempt)
            for worker in found
            for attempt in worker.attempts
            if attempt.claim not in known and not self._monitor.lost(worker.name, now)
        ]
        # A scan of a shard costs no more calls than a read of one task, and tells of all its new:
        # also of those that wait in the same batch.
        running: dict[str, WatchedAttempt] = {}
        for number in sorted({shard(attempt.key) for _, attempt in unknown}):
            running |= read_running(self._runtime.tasks, number, now)
        waiting = {claim for worker in found for claim in worker.waiting} - known
        for one in running.values():
            if one.claim in waiting:
                one.begun = False
                self._cache.running[one.key] = one
        listed: dict[str, int] = {}
        for worker_name, attempt in unknown:
            new = running.get(attempt.key)
            if new is not None and new.claim == attempt.claim:
                new.since, new.begun = now - attempt.started_ago, True
                self._cache.running[attempt.key] = new
            elif self._stray(attempt):
                beats = listed[attempt.claim] = self._strays.get(attempt.claim, 0) + 1
                if beats > 1:
                    workers.order_kill(self._store, self._clock, worker_name, attempt.claim)
        self._strays = listed

    def _stray(self, attempt: workers.RunningAttempt) -> bool:
        """Tell whether nobody waits for an attempt any more; a commit may be under way just now."""
        task = self._runtime.tasks.task(attempt.key)
        return task is not None and (task.claim != attempt.claim or task.state is State.CANCELLED)

    def _kill(self, kill: Kill) -> None:
        running = kill.running
        log.warning(
            "attempt runs too long",
            task=running.key,
            attempt=running.attempt,
            worker=running.worker,
            limit=round(kill.limit, 1),
            least=round(kill.least, 1),
        )
        workers.order_kill(self._store, self._clock, running.worker, running.claim)
        running.ordered = self._clock.monotonic()

    def _move(self, running: WatchedAttempt) -> None:
        log.warning("attempt moved off a slow worker", task=running.key, worker=running.worker)
        workers.order_move(self._store, self._clock, running.worker, running.claim)
        running.ordered = self._clock.monotonic()

    def _hold(self, order: DrainOrder) -> None:
        log.warning(
            "worker held",
            worker=order.worker,
            hold=order.hold.value or "released",
            why=order.why,
        )
        workers.order_hold(
            self._store,
            self._clock,
            order.worker,
            order.started,
            order.hold,
            why=order.why,
            wait=order.wait,
            failing=order.failing,
        )

    def _give_up(self, verdict: GiveUp) -> None:
        running = verdict.running
        log.warning("attempt given up", task=running.key, why=verdict.message)
        if running.in_hand:
            self._end(verdict)
        else:
            claims = {running.key: running.claim}
            protocol.give_back(self._runtime, claims, verdict.category)
        self._cache.running.pop(running.key, None)

    def _end(self, verdict: GiveUp) -> None:
        running = verdict.running
        now = self._clock.now()
        attempt = Attempt(
            key=running.key,
            number=running.attempt,
            claim=running.claim,
            phase=running.phase,
            task_class=running.task_class,
            worker=running.worker,
            started=running.claimed_at,
            ended=now,
            duration=self._clock.monotonic() - running.since,
            category=verdict.category,
            message=verdict.message,
            log=verdict.message,
        )
        protocol.fail(self._runtime, attempt, self._options.retry)
