"""Time as an argument, so that tests and the simulation can own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for people and back-off, monotonic time for durations, and waiting."""

    def now(self) -> float:
        """POSIX seconds; differs between machines, by minutes if need be."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when told to, or when somebody sleeps. For unit tests."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._start = now

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now - self._start

    def sleep(self, seconds: float) -> None:
        self._now += seconds
