"""A manager's metrics for Prometheus, and whether it lives; imported only where somebody asks."""

import threading
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from service_manager.leader.leadership import Leadership
from service_manager.leader.manager import Manager
from service_manager.leader.watch import Watch
from tasks.bag.categories import Category
from tasks.bag.model import Phase
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.workers import WorkerRow
from tasks.messages.redis_watch import RedisWatch
from tasks.operators.manager_rows import PlaceQueue, RefusedMails
from tasks.service.probes import ProbeAnswers
from tasks.storage.clock import Clock

log = structlog.get_logger("manager.fleet")

STUCK = 20.0  # leases without a round after which the process is to be started again
SILENT = 1.5  # leases without reading or renewing the lease after which it cannot work
_LOOK = 5.0  # seconds between two counts of what the manager has in hand
_LINE = 60.0  # seconds between two lines of the log that say so, for alerts that read logs
_ATTEMPT_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)
_ROUND_SECONDS = (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30)


class ManagerMetrics(Watch):
    """Counts what it is told. Its names are a contract: infra/monitoring reads them."""

    def __init__(
        self,
        clock: Clock,
        lease: float,
        redis: RedisWatch,
        refused: Callable[[], RefusedMails] = RefusedMails,
    ) -> None:
        self._clock = clock
        self._redis = redis
        self._refused = refused
        self._lease = lease
        self._turned = clock.monotonic()
        self._due = self._line_due = 0.0
        self._leadership: Leadership | None = None
        self._lock = threading.Lock()
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._acting = Gauge(
            "swathmill_manager_acting", "1: it acts; 0: it stands by", [], registry=registry
        )
        self._epoch = Gauge(
            "swathmill_manager_epoch", "Managers that have acted", [], registry=registry
        )
        self._silence = Gauge(
            "swathmill_manager_lease_age_seconds",
            "Time since the lease was read or renewed",
            [],
            registry=registry,
        )
        self._silence.set_function(self._age)
        Gauge(
            "swathmill_manager_redis_silent_seconds",
            "Time for which the message server has not answered; 0 while it does",
            [],
            registry=registry,
        ).set_function(lambda: redis.silence)
        self._rounds = Histogram(
            "swathmill_manager_round_seconds",
            "Time of a round",
            [],
            buckets=_ROUND_SECONDS,
            registry=registry,
        )
        self._wanted = Gauge(
            "swathmill_slots_wanted",
            "Slots that the fleet should have, but for those of places",
            [],
            registry=registry,
        )
        self._place_slots = Gauge(
            "swathmill_place_slots",
            "Slots of the able workers of a place",
            ["place"],
            registry=registry,
        )
        self._place_wanted = Gauge(
            "swathmill_place_slots_wanted",
            "Slots that a place should have",
            ["place"],
            registry=registry,
        )
        self._ready = Gauge(
            "swathmill_tasks_ready",
            "Tasks that a slot may take, but for those of places",
            [],
            registry=registry,
        )
        self._running = Gauge(
            "swathmill_attempts_running", "Attempts at work", [], registry=registry
        )
        self._requests = Gauge(
            "swathmill_requests",
            "Requests that have not ended, by state",
            ["state"],
            registry=registry,
        )
        self._mails = Gauge(
            "swathmill_mails_waiting",
            "Mails that the mail server has not taken, and that are still tried",
            [],
            registry=registry,
        )
        self._workers = Gauge(
            "swathmill_workers", "Workers, by state", ["state"], registry=registry
        )
        self._slots = Gauge(
            "swathmill_slots",
            "Slots of the workers that beat, are able and have no place",
            [],
            registry=registry,
        )
        self._ended = Counter(
            "swathmill_attempts",
            "Attempts that ended, by phase and outcome",
            ["phase", "outcome"],
            registry=registry,
        )
        # Each from zero on: what is born at 1 never increased, and no rule sees it.
        for phase in Phase:
            for outcome in ("success", *(category.value for category in Category)):
                self._ended.labels(phase.value, outcome)
        self._seconds = Histogram(
            "swathmill_attempt_seconds",
            "Time of an attempt",
            ["phase"],
            buckets=_ATTEMPT_SECONDS,
            registry=registry,
        )

    def stands_by(self, leadership: Leadership) -> None:
        """Note that the process lives, and forget what it had in hand while it acted."""
        self._turned = self._clock.monotonic()
        self._leadership = leadership
        self._acting.set(0)
        for gauge in (self._wanted, self._ready, self._running, self._slots, self._mails):
            gauge.set(0)
        with self._lock:
            self._requests.clear()
            self._workers.clear()
            self._show_places(())

    def acts(self, leadership: Leadership, manager: Manager, seconds: float) -> None:
        """Note the round, and every few seconds what the manager has in hand."""
        now = self._turned = self._clock.monotonic()
        self._leadership = leadership
        self._rounds.observe(seconds)
        self._acting.set(1)
        self._epoch.set(leadership.epoch)
        if now < self._due:
            return
        self._due = now + _LOOK
        here = [worker for worker in manager.workers if not worker.place]
        if now >= self._line_due:
            self._line_due = now + _LINE
            log.info(
                "fleet",
                epoch=leadership.epoch,
                ready=manager.ready,
                running=manager.cache.busy,
                slots=sum(worker.slots for worker in here),
                wanted=manager.wanted_slots,
            )
        self._wanted.set(manager.wanted_slots)
        self._ready.set(manager.ready)
        self._running.set(manager.cache.busy)
        self._mails.set(self._refused().count)
        self._slots.set(sum(worker.slots for worker in here if worker.able))
        with self._lock:
            _show(
                self._requests,
                Tally(live.row.state.value for live in manager.cache.requests.values()),
            )
            _show(self._workers, Tally(map(_state, manager.workers)))
            self._show_places(manager.places())

    def _show_places(self, places: Sequence[PlaceQueue]) -> None:
        """Show what each place has that has a name; nothing where none has."""
        named = [one for one in places if one.place]
        _show(self._place_slots, {one.place: one.slots for one in named})
        _show(self._place_wanted, {one.place: one.wanted_slots for one in named})

    def hears(self, events: Sequence[CompletionEvent]) -> None:
        """Count the attempts."""
        for event in events:
            outcome = event.category.value if event.category else "success"
            self._ended.labels(event.phase.value, outcome).inc()
            self._seconds.labels(event.phase.value).observe(event.duration)

    def probe_answers(self) -> ProbeAnswers:
        """Return what the probes tell."""
        return ProbeAnswers(live=self._dead, ready=self._unready, metrics=self._scrape)

    def _scrape(self) -> bytes:
        with self._lock:
            return generate_latest(self._registry)

    def _age(self) -> float:
        if self._leadership is None:
            return self._clock.monotonic() - self._turned
        return self._clock.monotonic() - self._leadership.confirmed

    def _dead(self) -> str:
        silent = self._clock.monotonic() - self._turned
        if silent > STUCK * self._lease:
            return f"no round has ended for {silent:.0f} s"
        return ""

    def _unready(self) -> str:
        if self._leadership is None:
            return "it starts"
        if self._age() > SILENT * self._lease:
            return f"storage has not answered for {self._age():.0f} s"
        return self._redis.found


def _state(worker: WorkerRow) -> str:
    if worker.failing:
        return "failing"
    return worker.hold.value or ("unfit" if worker.unfit else "free")


def _show(gauge: Gauge, counts: Mapping[str, int]) -> None:
    gauge.clear()
    for label, number in counts.items():
        gauge.labels(label).set(number)
