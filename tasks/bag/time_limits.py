"""How long an attempt may run: four times what is expected, within a floor and a ceiling."""

from dataclasses import dataclass

from tasks.bag.expectation import Times
from tasks.settings import Settings, default


@dataclass(frozen=True, kw_only=True)
class TimeLimits:
    """The monitor's rule. Times in seconds; `samples` successes make a class's mean count."""

    factor: float = 4.0
    samples: int = 5
    floor: float = 60.0
    ceiling: float = default("timeout_ceiling")

    @classmethod
    def of(cls, settings: Settings) -> "TimeLimits":
        """Return the rule that the settings ask for."""
        return cls(ceiling=settings.timeout_ceiling)

    def limit(self, times: Times, task_class: str, retries: int) -> float:
        """Return the time limit of an attempt in seconds.

        The limit is `factor` times what the task's class or similar work took, at least the floor,
        doubled with each retry, and at most the ceiling. Where nothing similar was timed, the limit
        is the ceiling. It never falls as the amount of work grows.
        """
        expected = times.limit(task_class)
        if expected is None:
            return self.ceiling
        base = max(self.floor, self.factor * expected)
        return float(min(self.ceiling, base * 2.0 ** min(retries, 60)))
