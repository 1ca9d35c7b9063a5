"""What operators look at: running attempts, tasks to try again, executions, workers."""

import datetime as dt
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from portal.operations.board import Sight
from portal.results.charts import Bar, Chart, bars
from tasks.bag import history
from tasks.bag.categories import Category
from tasks.bag.expectation import Times
from tasks.bag.history import ClassStatistics, DayCount
from tasks.bag.model import Phase
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import LaterMarker, RunningMarker
from tasks.bag.time_limits import TimeLimits
from tasks.bag.workers import Hold, RunningAttempt, WorkerRow
from tasks.operators import manager_rows
from tasks.operators.manager_rows import ManagerRow, PlaceQueue
from tasks.settings import Settings

DAYS = 14
_MOST_RUNNING = 500
_MOST_LATER = 50


@dataclass(frozen=True, kw_only=True)
class RunningTask:
    """A running attempt: its age, the mean of its class, and the age at which it is killed.

    Times are in seconds; `mean` is None until the class has enough successes.
    """

    key: str
    attempt: int
    phase: Phase
    task_class: str
    worker: str
    sponsor: str
    age: float
    mean: float | None
    limit: float
    progress: float
    note: str
    ordered: bool

    @property
    def late(self) -> bool:
        """True if it has run for more than twice the mean of its class."""
        return self.mean is not None and self.age > 2 * self.mean

    @property
    def share(self) -> float:
        """Its age as a share of the time limit, at most 1."""
        return min(1.0, self.age / self.limit) if self.limit else 0.0

    @property
    def mean_share(self) -> float:
        """The mean as a share of the time limit, at most 1; 0 if there is no mean."""
        return min(1.0, (self.mean or 0.0) / self.limit) if self.limit else 0.0


@dataclass(frozen=True, kw_only=True)
class Later:
    """A task that failed and will be tried again."""

    key: str
    due: float
    attempt: int
    category: Category | None
    task_class: str


@dataclass(frozen=True, kw_only=True)
class Health:
    """A worker and its state.

    The state is running, ready, unfit (its self-test fails), failing (everything fails on its
    host), drained or probing (it was slow, or its host is tried again), needed (it was slow, and
    takes what waits), draining (it ends), or lost.
    """

    worker: WorkerRow
    silence: float  # seconds since its last beat
    state: str


@dataclass(frozen=True, kw_only=True)
class ManagerHealth:
    """A manager's row, and how many seconds ago it was written."""

    row: ManagerRow
    silence: float


def managers(runtime: Runtime) -> list[ManagerHealth]:
    """List the managers, the acting one first. Raises StoreError."""
    now = runtime.clock.now()
    return [
        ManagerHealth(row=row, silence=max(0.0, now - row.beat_at))
        for row in manager_rows.managers(runtime.store, now)
    ]


def places(runtime: Runtime) -> tuple[PlaceQueue, ...]:
    """Return what the acting manager says of each place. Raises StoreError."""
    acting = next((one.row for one in managers(runtime) if one.row.acts), None)
    return acting.places if acting is not None else ()


@dataclass(frozen=True, kw_only=True)
class DailyOutcomes:
    """DailyOutcomes by day and outcome over the last days, oldest day first."""

    days: tuple[dt.date, ...]
    table: Mapping[str, tuple[int, ...]]  # outcome -> counts by day; "success" first
    seconds: Mapping[str, float]
    wasted: Mapping[str, float] = field(default_factory=dict)  # class -> seconds of what failed

    @property
    def most_wasteful(self) -> str:
        """The class whose failed attempts took most time; "" where none failed."""
        return min(self.wasted, key=lambda one: (-self.wasted[one], one), default="")

    @property
    def total(self) -> int:
        """Number of all executions."""
        return sum(map(sum, self.table.values()))

    @property
    def failed(self) -> int:
        """Number of executions that did not succeed."""
        return self.total - sum(self.table.get("success", ()))

    @property
    def by_day(self) -> tuple[tuple[int, int], ...]:
        """Successes and failures of each day."""
        succeeded = self.table.get("success", (0,) * len(self.days))
        return tuple(
            (succeeded[i], sum(counts[i] for counts in self.table.values()) - succeeded[i])
            for i in range(len(self.days))
        )

    def chart(self) -> Chart:
        """Draw the executions of each day; a bar leads to the attempts that failed."""
        drawn = [
            Bar(
                name=day.isoformat(),
                parts=[("", succeeded), ("failure", failed)],
                text=f"{day}: {succeeded:,} succeeded, {failed:,} failed",
                address=f"/operations/attempts?first={day}&last={day}" if failed else "",
            )
            for day, (succeeded, failed) in zip(self.days, self.by_day, strict=True)
        ]
        return bars(drawn, "executions", least=4)


def running(sight: Sight, settings: Settings, now: float) -> list[RunningTask]:
    """List the running attempts, the nearest to its time limit first."""
    limits = TimeLimits.of(settings)
    times = Times(sight.statistics, limits.samples)
    by_claim = {
        attempt.claim: (worker, attempt) for worker in sight.workers for attempt in worker.attempts
    }
    found = [_running(marker, limits, times, by_claim, now) for marker in sight.running]
    return sorted(found, key=lambda one: -one.share)[:_MOST_RUNNING]


def _running(
    marker: RunningMarker,
    limits: TimeLimits,
    times: Times,
    by_claim: Mapping[str, tuple[WorkerRow, RunningAttempt]],
    now: float,
) -> RunningTask:
    task_class, claim = marker.task_class, marker.claim
    worker, beat = by_claim.get(claim, (None, None))
    age = now - marker.claimed_at
    if worker is not None and beat is not None:
        # The worker's own monotonic count, and the time since its last beat.
        age = beat.started_ago + max(0.0, now - worker.beat_at)
    return RunningTask(
        key=marker.key,
        attempt=marker.attempt,
        phase=marker.phase,
        task_class=task_class,
        worker=marker.worker,
        sponsor=marker.sponsor,
        age=max(0.0, age),
        mean=times.mean(task_class),
        limit=limits.limit(times, task_class, marker.retries),
        progress=beat.progress if beat else 0.0,
        note=beat.note if beat else "",
        ordered=worker is not None and claim in (*worker.orders, *worker.moves),
    )


def later(runtime: Runtime, sight: Sight) -> list[Later]:
    """List the tasks that failed and wait for another attempt, the earliest first."""
    return [*_later(runtime, heapq.nsmallest(_MOST_LATER, sight.later))]


def _later(runtime: Runtime, markers: Sequence[LaterMarker]) -> Iterator[Later]:
    for marker in markers:
        task = runtime.tasks.task(marker.key)
        if task is not None:
            yield Later(
                key=marker.key,
                due=marker.due,
                attempt=task.attempt,
                category=task.category,
                task_class=task.task_class,
            )


def is_lost(worker: WorkerRow, settings: Settings, now: float) -> bool:
    """Tell whether a worker has been silent for longer than a lease."""
    return now - worker.beat_at > settings.lease_seconds


def health(sight: Sight, settings: Settings, now: float) -> list[Health]:
    """List the workers by name."""
    found = []
    for worker in sorted(sight.workers, key=lambda w: w.name):
        silence = max(0.0, now - worker.beat_at)
        state = "running" if worker.attempts else "ready"
        if worker.unfit:
            state = "unfit"
        if worker.hold is not Hold.NONE:
            state = "drained" if worker.hold is Hold.DRAINED else "probing"
        if worker.failing and worker.hold is Hold.DRAINED:
            state = "failing"
        if worker.needed:
            state = "needed"
        if worker.draining:
            state = "draining"
        if is_lost(worker, settings, now):
            state = "lost"
        found.append(Health(worker=worker, silence=silence, state=state))
    return found


def daily_outcomes(runtime: Runtime, days: int = DAYS) -> DailyOutcomes:
    """Count the executions of the last days by outcome.

    Success comes first, then the failures in order of frequency.
    """
    today = dt.datetime.fromtimestamp(runtime.clock.now(), dt.UTC).date()
    span = tuple(today - dt.timedelta(days=days - 1 - i) for i in range(days))
    place = {day: i for i, day in enumerate(span)}
    table: dict[str, list[int]] = {"success": [0] * days}
    seconds: dict[str, float] = {}
    wasted: dict[str, float] = {}
    for one in history.executions(runtime.store, days, today):
        if one.day in place:
            outcome = _outcome(one)
            table.setdefault(outcome, [0] * days)[place[one.day]] += one.count
            seconds[outcome] = seconds.get(outcome, 0.0) + one.seconds
            if one.category is not None:
                wasted[one.task_class] = wasted.get(one.task_class, 0.0) + one.seconds
    order = sorted(table, key=lambda outcome: (outcome != "success", -sum(table[outcome]), outcome))
    return DailyOutcomes(
        days=span,
        table={name: tuple(table[name]) for name in order},
        seconds=seconds,
        wasted=wasted,
    )


def classes(runtime: Runtime) -> list[ClassStatistics]:
    """List the statistics of all task classes, by name."""
    return sorted(history.class_statistics(runtime.store).values(), key=lambda s: s.task_class)


def _outcome(one: DayCount) -> str:
    return one.category.value if one.category else "success"
