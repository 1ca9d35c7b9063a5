"""The portal's metrics for Prometheus; imported only where somebody asks for them."""

import threading

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from tasks.operators.manager_lease import ManagerWatch
from tasks.service.probes import ProbeAnswers

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


class PortalMetrics:
    """Counts calls. Its names are a contract: infra/monitoring reads them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._calls = Counter(
            "swathmill_portal_calls",
            "Calls, by method, route and status",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "swathmill_portal_call_seconds",
            "Time of a call, by route",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._acts = Gauge(
            "swathmill_portal_manager_acts",
            "1: a service manager acts, as this portal sees it",
            registry=self._registry,
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a call."""
        self._calls.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def probe_answers(self, manager: ManagerWatch, stopping: threading.Event) -> ProbeAnswers:
        """Return what the probes tell. Trouble in storage does not make it unready.

        Its pages say what is wrong, and no other portal would do better.
        """

        def metrics() -> bytes:
            self._acts.set(1 if manager.look().acts else 0)
            return generate_latest(self._registry)

        return ProbeAnswers(
            live=lambda: "", ready=lambda: "it stops" if stopping.is_set() else "", metrics=metrics
        )
