"""A runner's metrics for Prometheus, and whether it takes attempts."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tasks.service.probes import ProbeAnswers
from worker.pool.runner import Runner


def probe_answers(runner: Runner) -> ProbeAnswers:
    """Return what the probes tell."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Now(runner))
    return ProbeAnswers(
        live=lambda: "",
        ready=lambda: "it stops" if runner.stopping else runner.fitness.unready,
        metrics=lambda: generate_latest(registry),
    )


class _Now(Collector):
    """What is read off the runner at each scrape."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        runner = self._runner
        for name, what, value in (
            ("slots", "Attempts that it runs at once", runner.slots),
            ("slots_busy", "Attempts at work", runner.busy),
        ):
            yield GaugeMetricFamily(f"swathmill_runner_{name}", what, value=value)
        ended = CounterMetricFamily(
            "swathmill_runner_attempts", "Attempts that ended, by outcome", labels=["outcome"]
        )
        for outcome, number in runner.outcomes.items():
            ended.add_metric([outcome], number)
        yield ended
