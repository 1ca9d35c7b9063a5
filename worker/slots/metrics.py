"""A worker's metrics for Prometheus, and whether it lives; imported only where somebody asks."""

from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tasks.messages.redis_watch import RedisWatch
from tasks.service.probes import ProbeAnswers
from worker.slots.heartbeat import Heartbeat
from worker.slots.supervisor import EndedAttempt, Supervisor

STUCK = 4.0  # leases without a turn of the heartbeat after which the process is to be started again


class WorkerMetrics:
    """Counts ended attempts. Its names are a contract: infra/monitoring reads them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._ended = Counter(
            "swathmill_worker_attempts",
            "Attempts that ended, by phase and outcome",
            ["phase", "outcome"],
            registry=self._registry,
        )
        self._spent = Counter(
            "swathmill_worker_attempt_seconds",
            "Where the time of attempts went: wait, fetch, compute, store",
            ["phase", "part"],
            registry=self._registry,
        )

    def hears(self, ended: EndedAttempt) -> None:
        """Count an attempt."""
        self._ended.labels(ended.phase.value, ended.outcome).inc()
        for part, seconds in ended.parts.items():
            self._spent.labels(ended.phase.value, part).inc(seconds)

    def probe_answers(
        self, supervisor: Supervisor, heartbeat: Heartbeat, redis: RedisWatch
    ) -> ProbeAnswers:
        """Return what the probes tell."""
        self._registry.register(_Now(supervisor))
        clock, lease = supervisor.runtime.clock, supervisor.lease

        def dead() -> str:
            silent = clock.monotonic() - heartbeat.turned
            return (
                f"no heartbeat was tried for {silent:.0f} s"
                if silent > STUCK * lease.seconds
                else ""
            )

        def unready() -> str:
            if not lease.fresh:
                why = f": {lease.missed}" if lease.missed else ""
                return f"no heartbeat has succeeded for {lease.silence:.0f} s{why}"
            return supervisor.fitness.unready or redis.found

        return ProbeAnswers(
            live=dead, ready=unready, metrics=lambda: generate_latest(self._registry)
        )


class _Now(Collector):
    """What is read off the supervisor at each scrape."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        supervisor = self._supervisor
        for name, what, value in (
            ("slots", "Attempts that it runs at once", supervisor.settings.slots),
            ("slots_busy", "Attempts at work", len(supervisor.running())),
            (
                "lease_age_seconds",
                "Time since the last heartbeat that succeeded",
                supervisor.lease.silence,
            ),
            (
                "held",
                "1: the manager holds it, since it is slow or fails",
                int(bool(supervisor.hold.value)),
            ),
            ("fit", "0: its self-test fails, or was not made yet", int(supervisor.fitness.fit)),
            ("draining", "1: it ends when its attempts have ended", int(supervisor.draining)),
        ):
            yield GaugeMetricFamily(f"swathmill_worker_{name}", what, value=value)
