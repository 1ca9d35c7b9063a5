"""What a plan will take: tasks that are there already, time and cost by what such tasks took."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from service_manager.options import ManagerOptions
from service_manager.planner.counts import Counts, stored_bytes
from tasks.model.model import Phase
from tasks.model.plan import PlannedTask
from tasks.model.spec import CollectSpec
from tasks.tables.expectation import Times

LOOKED_AT = 2000
"""Tasks whose rows are read, about; of larger plans evenly spread ones stand for all."""

_GB = 1e9
_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Prices:
    """In one currency: of a GB kept for a month, of an hour of one core, of a GB fetched."""

    storage: float = 0.0
    core_hour: float = 0.0
    download: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is left to do for a plan.

    `reused` counts, by phase, the tasks whose artifact exists; `exact` says whether all tasks were
    looked at. `download` is the bytes to fetch, `stored` the most bytes to keep, `busy` the seconds
    of slots. `similar` counts the tasks for which only similar work was timed (`busy` includes
    them); `unmeasured` those for which nothing like them was timed (`busy` leaves them out).
    `elapsed` is the seconds with all slots at work, 0 without any slot; `cost` includes a month of
    storage.
    """

    reused: Mapping[Phase, int]
    exact: bool
    download: int
    stored: int
    busy: float
    similar: int
    unmeasured: int
    elapsed: float
    cost: float


@dataclass
class _Sample:
    """Tasks looked at, by class, and their bytes; and those of them that are there."""

    phases: dict[str, Phase] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    there: Counter[str] = field(default_factory=Counter)
    bytes_seen: Counter[str] = field(default_factory=Counter)
    bytes_there: Counter[str] = field(default_factory=Counter)

    def look(self, planned: PlannedTask, there: bool) -> None:
        spec = planned.spec
        sizes = {"stored": stored_bytes(spec)}
        if isinstance(spec, CollectSpec):
            sizes["download"] = spec.size
        kind = spec.task_class
        self.phases[kind] = spec.phase
        self.seen[kind] += 1
        self.bytes_seen.update(sizes)
        if there:
            self.there[kind] += 1
            self.bytes_there.update(sizes)

    def done(self, kind: str, count: int) -> int:
        """How many of the tasks of a class are there."""
        return round(count * self.there[kind] / self.seen[kind]) if self.seen[kind] else 0

    def left(self, kind: str, count: int) -> int:
        """How many of the bytes of a kind are not."""
        seen = self.bytes_seen[kind]
        return round(count * (1 - self.bytes_there[kind] / seen)) if seen else count


def prices(options: ManagerOptions) -> Prices:
    """Return the prices that the settings name."""
    return Prices(
        storage=options.price_storage,
        core_hour=options.price_core_hour,
        download=options.price_download,
    )


def forecast(
    counts: Counts,
    sample: Iterable[PlannedTask],
    there: Callable[[str], bool],
    times: Times,
    prices: Prices,
    slots: int,
) -> Forecast:
    """Forecast what a plan takes.

    `sample` holds all its tasks, or some that stand for all; `there` says of a task key whether its
    artifact is in the store; `times` is what attempts took; `slots` is the number of slots at work.
    """
    looked = _Sample()
    for planned in sample:
        looked.look(planned, there(planned.key))
    reused: Counter[Phase] = Counter()
    busy = 0.0
    similar = unmeasured = 0
    for kind, count in counts.classes.items():
        done = looked.done(kind, count)
        if done:
            reused[looked.phases[kind]] += done
        left = count - done
        seconds = times.seconds(kind)
        if seconds is None:
            unmeasured += left
            continue
        busy += left * seconds
        if times.mean(kind) is None:
            similar += left
    download = looked.left("download", counts.download)
    stored = looked.left("stored", counts.stored)
    return Forecast(
        reused=dict(reused),
        exact=looked.seen.total() >= counts.tasks,
        download=download,
        stored=stored,
        busy=busy,
        similar=similar,
        unmeasured=unmeasured,
        elapsed=busy / slots if slots else 0.0,
        cost=busy / _HOUR * prices.core_hour
        + download / _GB * prices.download
        + stored / _GB * prices.storage,
    )
