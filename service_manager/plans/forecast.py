"""What a plan will take: tasks that are there already, time and cost by what such tasks took."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field

from service_manager.planner.counts import Counts, stored_bytes
from tasks.bag.expectation import Times
from tasks.bag.model import NO_USE, Phase
from tasks.bag.spec import CollectSpec, PartsSpec
from tasks.operators.prices import PriceList
from tasks.requests.plan import PlannedTask
from tasks.requests.request_table import Preview

LOOKED_AT = 2000
"""Tasks whose rows are read, about; of larger plans evenly spread ones stand for all."""


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
        if isinstance(spec, CollectSpec | PartsSpec):
            sizes["download"] = sizes["stored"]
        kind = spec.task_class
        self.phases[kind] = spec.phase
        self.seen[kind] += 1
        self.bytes_seen.update(sizes)
        if there:
            self.there[kind] += 1
            self.bytes_there.update(sizes)

    def done(self, kind: str, count: int) -> int:
        """Return how many of the tasks of a class are there."""
        return round(count * self.there[kind] / self.seen[kind]) if self.seen[kind] else 0

    def left(self, kind: str, count: int) -> int:
        """Return how many of the bytes of a kind are not."""
        seen = self.bytes_seen[kind]
        return round(count * (1 - self.bytes_there[kind] / seen)) if seen else count


def forecast(
    counts: Counts,
    sample: Iterable[PlannedTask],
    there: Callable[[Collection[str]], Container[str]],
    times: Times,
    known: PriceList,
    slots: int,
) -> tuple[Preview, Mapping[Phase, int]]:
    """Forecast what a plan takes; say by phase how many tasks' artifacts exist, too.

    `sample` holds all its tasks, or some that stand for all; `there` finds of some task keys those
    whose artifact is in the store; `times` is what attempts took; `known` are the prices; `slots`
    is the number of slots at work.
    """
    looked = _Sample()
    looked_at = list(sample)
    made = there([planned.key for planned in looked_at])
    for planned in looked_at:
        looked.look(planned, planned.key in made)
    reused: Counter[Phase] = Counter()
    busy, use = 0.0, NO_USE
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
        use += times.use(kind).times(left)
        if times.mean(kind) is None:
            similar += left
    download = looked.left("download", counts.download)
    stored = looked.left("stored", counts.stored)
    preview = Preview(
        granules=counts.granules,
        tasks=counts.tasks,
        reused=reused.total(),
        size=download,
        exact=looked.seen.total() >= counts.tasks,
        stored=stored,
        busy=busy,
        similar=similar,
        unmeasured=unmeasured,
        elapsed=busy / slots if slots else 0.0,
        cost=known.prices.amount(use, stored=stored, fetched=download),
        currency=known.currency,
        use=use,
    )
    return preview, reused
