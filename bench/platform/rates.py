"""From calls to rates: how many a second, how long each took, what failed."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.platform.clients import Call

MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measurement: an operation with calls of one size, by so many clients at once.

    `apart`: calls of other points lie between them, so only the time of its own counts.
    """

    experiment: str
    operation: str
    size: int  # bytes of one call
    clients: int
    calls: tuple[Call, ...]
    apart: bool = False

    @property
    def key(self) -> tuple[str, str, int, int]:
        """The subject of the measurement."""
        return self.experiment, self.operation, self.size, self.clients


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The figures of a point. Times are in seconds; percentiles are of calls that succeeded."""

    experiment: str
    operation: str
    size: int
    clients: int
    calls: int
    failed: int
    seconds: float  # over which calls are counted
    per_second: float
    per_second_a_client: float
    mb_per_second: float
    mb_per_second_a_client: float
    mean: float
    deviation: float
    p50: float
    p90: float
    p99: float


def rate(point: Point) -> Rate:
    """Work out the figures of a point.

    Calls are counted that end while all clients are at work: after the last one has begun and
    before the first one has ended. Where that is less than half of the time, all calls are.
    """
    begin, end = _window(point.calls)
    counted = [call for call in point.calls if point.apart or begin < call.ended <= end]
    own = sum(call.ended - call.began for call in point.calls)
    seconds = max(own if point.apart else end - begin, 1e-9)
    good = [call for call in counted if not call.failure]
    times = sorted(call.ended - call.began for call in good) or [0.0]
    per_second = len(good) / seconds
    mb_per_second = sum(call.size for call in good) / MB / seconds
    return Rate(
        experiment=point.experiment,
        operation=point.operation,
        size=point.size,
        clients=point.clients,
        calls=len(point.calls),
        failed=sum(bool(call.failure) for call in point.calls),
        seconds=seconds,
        per_second=per_second,
        per_second_a_client=per_second / point.clients,
        mb_per_second=mb_per_second,
        mb_per_second_a_client=mb_per_second / point.clients,
        mean=statistics.fmean(times),
        deviation=statistics.pstdev(times),
        p50=percentile(times, 50),
        p90=percentile(times, 90),
        p99=percentile(times, 99),
    )


def failures(point: Point) -> Counter[str]:
    """Count the failed calls of a point by category."""
    return Counter(call.failure for call in point.calls if call.failure)


def percentile(ordered: Sequence[float], share: int) -> float:
    """Return the value that `share` percent of the values do not exceed (nearest rank)."""
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def _window(calls: Sequence[Call]) -> tuple[float, float]:
    if not calls:
        return 0.0, 0.0
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    for call in calls:
        begun[call.client] = min(call.began, begun.get(call.client, call.began))
        ended[call.client] = max(call.ended, ended.get(call.client, call.ended))
    first, last = min(begun.values()), max(ended.values())
    begin, end = max(begun.values()), min(ended.values())
    return (begin, end) if end - begin > (last - first) / 2 else (first, last)
