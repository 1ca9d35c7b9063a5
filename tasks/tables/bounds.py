"""How long an attempt may run: four times the mean of its class, within bounds."""

from dataclasses import dataclass

from tasks.settings import Settings
from tasks.tables.history import ClassStatistics


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The monitor's rule. Times in seconds; `samples` successes make a class's mean count."""

    factor: float = 4.0
    samples: int = 5
    floor: float = 60.0
    ceiling: float = 3600.0

    @classmethod
    def of(cls, settings: Settings) -> "Bounds":
        """The rule that the settings ask for."""
        return cls(
            factor=settings.timeout_factor,
            samples=settings.timeout_samples,
            floor=settings.timeout_floor,
            ceiling=settings.timeout_ceiling,
        )

    def mean(self, statistics: ClassStatistics | None) -> float | None:
        """The mean of a class, in seconds; None while it has too few successes."""
        if statistics is None or statistics.count < self.samples:
            return None
        return statistics.mean

    def bound(self, statistics: ClassStatistics | None, retries: int) -> float:
        """Seconds an attempt may run: `factor` times its class's mean, at least the floor, doubled
        with each retry, at most the ceiling, which alone holds for a class without a mean."""
        mean = self.mean(statistics)
        if mean is None:
            return self.ceiling
        base = max(self.floor, self.factor * mean)
        return float(min(self.ceiling, base * 2.0 ** min(retries, 60)))
