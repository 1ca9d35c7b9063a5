"""What work costs and wastes, how fast workers are, what fails most, and which kills were right."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from modis.formats import is_granule_file
from portal.operations.executions import ClassCost, Executions, Filters, executions, failures
from tasks.bag import classes, history
from tasks.bag.categories import Category
from tasks.bag.history import Failure
from tasks.bag.model import NO_USE, Attempt, Phase, Use
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec, PartsSpec
from tasks.bag.workers import WorkerRow
from tasks.errors import StoreError
from tasks.operators import overhead, restrictions
from tasks.operators.restrictions import Kind

_TOP = 10
_PACED_DAYS = 7
JUDGED = 50  # kills, on a page


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the executions of an owner, or of a package, took in seconds.

    `use` is what they used of processors and storage, where it was measured. `quota` is what
    operators allow in this calendar month, in hours of one slot; None: they set none. `spent` are
    the hours of this month, where there is one.
    """

    name: str
    count: int
    failed: int
    seconds: float
    wasted: float
    use: Use = NO_USE
    quota: float | None = None
    spent: float = 0.0


def by_package(runtime: Runtime, made: Executions) -> list[Account]:
    """Add up what runs of each package took; the dearest comes first. Raises StoreError."""
    found: dict[str, list[ClassCost]] = {}
    for one in made.costs:
        if name := classes.package(one.task_class):
            found.setdefault(name, []).append(one)
    quotas = _quotas(runtime, Kind.QUOTA_PACKAGE)
    of = (_under(_account(name, some), quotas) for name, some in found.items())
    return sorted(of, key=_dearest)


def by_owner(runtime: Runtime, filters: Filters) -> list[Account]:
    """Add up what the requests of each owner took; the dearest comes first. Raises StoreError.

    Executions are counted by owner or by worker: where a worker is meant, there is nothing to say.
    """
    if filters.worker:
        return []
    quotas = _quotas(runtime, Kind.QUOTA_OWNER)
    found = []
    for owner in [filters.owner] if filters.owner else [*history.owners(runtime.store)]:
        made = executions(runtime.store, replace(filters, owner=owner))
        if made.total or owner in quotas:
            found.append(_under(_account(owner, made.costs), quotas))
    return sorted(found, key=_dearest)


@dataclass(frozen=True, kw_only=True)
class OwnCalls:
    """What managers, portals and workers called of storage for no attempt, of some days.

    `share` is its share of all calls, from 0 to 1.
    """

    use: Use
    share: float


def overhead_of(runtime: Runtime, filters: Filters, made: Executions) -> OwnCalls | None:
    """Return the service's own calls; None where only some executions are meant.

    Also None where storage is embedded, which has no calls. Raises StoreError.
    """
    if filters != Filters(first=filters.first, last=filters.last):
        return None
    use = overhead.between(runtime.store, filters.first, filters.last)
    own = use.reads + use.writes
    others = sum(one.use.reads + one.use.writes for one in made.costs)
    return OwnCalls(use=use, share=own / (own + others)) if own else None


def _quotas(runtime: Runtime, kind: Kind) -> dict[str, tuple[float, float]]:
    """Return the quotas of a kind, and what of each is spent, in hours."""
    now = runtime.clock.now()
    return {
        one.subject: (
            one.value,
            restrictions.spent_hours(runtime.store, (kind, one.subject), now),
        )
        for one in restrictions.load(runtime.store)
        if one.kind is kind
    }


def _under(one: Account, quotas: Mapping[str, tuple[float, float]]) -> Account:
    quota, spent = quotas.get(one.name, (None, 0.0))
    return replace(one, quota=quota, spent=spent)


def _account(name: str, some: Iterable[ClassCost]) -> Account:
    kept = tuple(some)
    return Account(
        name=name,
        count=sum(one.count for one in kept),
        failed=sum(one.failed for one in kept),
        seconds=sum(one.seconds for one in kept),
        wasted=sum(one.wasted for one in kept),
        use=sum((one.use for one in kept), NO_USE),
    )


def _dearest(one: Account) -> tuple[float, str]:
    return -one.seconds, one.name


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long a worker's successes took, as a multiple of the whole fleet's of the same classes.

    `factor` is None where nothing compares.
    """

    worker: WorkerRow
    attempts: int
    failed: int
    factor: float | None


def paces(runtime: Runtime, workers: Sequence[WorkerRow], today: dt.date) -> list[Pace]:
    """Compare workers with the fleet over the last days; the slowest come first. StoreError."""
    first = today - dt.timedelta(days=_PACED_DAYS - 1)
    fleet: dict[str, tuple[int, float]] = {}
    for one in history.executions_between(runtime.store, first, today):
        if one.category is None:
            number, seconds = fleet.get(one.task_class, (0, 0.0))
            fleet[one.task_class] = (number + one.count, seconds + one.seconds)
    found = [_pace(runtime, worker, fleet, first, today) for worker in workers]
    return sorted(found, key=lambda pace: (-(pace.factor or 0.0), pace.worker.name))


def _pace(
    runtime: Runtime,
    worker: WorkerRow,
    fleet: Mapping[str, tuple[int, float]],
    first: dt.date,
    last: dt.date,
) -> Pace:
    attempts = failed = 0
    took = usual = 0.0
    for one in history.executions_between(runtime.store, first, last, worker=worker.name):
        attempts += one.count
        if one.category is not None:
            failed += one.count
            continue
        number, seconds = fleet.get(one.task_class, (0, 0.0))
        if number:
            took += one.seconds
            usual += one.count * seconds / number
    return Pace(
        worker=worker, attempts=attempts, failed=failed, factor=took / usual if usual else None
    )


@dataclass(frozen=True, kw_only=True)
class Failing:
    """Something that fails often: its name, how often, and an address with its attempts."""

    name: str
    count: int
    address: str


@dataclass(frozen=True, kw_only=True)
class TopFailures:
    """What fails most, of the failures that some filters mean. `looked_at` were counted."""

    granules: tuple[Failing, ...]
    workers: tuple[Failing, ...]
    packages: tuple[Failing, ...]
    hosts: tuple[tuple[str, int], ...]
    looked_at: int


def top_failures(runtime: Runtime, meant: Filters, workers: Iterable[WorkerRow]) -> TopFailures:
    """Count what fails most. Raises StoreError."""
    host_of = {worker.name: worker.host for worker in workers}
    keys, by_worker, packages = Counter[str](), Counter[str](), Counter[str]()
    hosts, granules = Counter[str](), Counter[str]()
    pages: dict[str, str] = {}  # the task to look at, by granule
    # What was not needed any more is no failure.
    counted = [one for one in Category if one is not Category.CANCELLED]
    looked_at = 0
    for one in failures(runtime.store, meant, counted):
        looked_at += 1
        if one.phase is Phase.COLLECTION:
            keys[one.key] += 1
        elif granule := _blamed(one):
            granules[granule] += 1
            pages[granule] = one.key
        if one.worker:
            by_worker[one.worker] += 1
            hosts[host_of.get(one.worker, "of workers that have left")] += 1
        if package := classes.package(one.task_class):
            packages[package] += 1
    for key, count in keys.most_common(_TOP):
        name = _granule(runtime, key)
        granules[name] += count
        pages[name] = key
    return TopFailures(
        granules=tuple(
            Failing(name=name, count=count, address=f"/tasks/{pages[name]}")
            for name, count in granules.most_common(_TOP)
        ),
        workers=tuple(
            Failing(name=name, count=count, address=meant.address(_ATTEMPTS, worker=name))
            for name, count in by_worker.most_common(_TOP)
        ),
        packages=tuple(
            Failing(name=name, count=count, address=meant.address(_ATTEMPTS, package=name))
            for name, count in packages.most_common(_TOP)
        ),
        hosts=tuple(hosts.most_common(_TOP)),
        looked_at=looked_at,
    )


_ATTEMPTS = "/operations/attempts"


def _blamed(failure: Failure) -> str:
    """Return the granule for which a reprojection failed, with which its message begins; or ""."""
    if failure.phase is not Phase.REPROJECTION:
        return ""
    word = failure.message.partition(" ")[0].rstrip(":")
    return word if is_granule_file(word) else ""


def _granule(runtime: Runtime, key: str) -> str:
    try:
        spec = runtime.tasks.spec(key)
    except StoreError:
        return key[-12:]  # its specification is gone
    return spec.granule if isinstance(spec, CollectSpec | PartsSpec) else key[-12:]


class Verdict(StrEnum):
    """What the next attempts say of a kill by the time limit."""

    RIGHT = "right"  # the next that succeeded took less time than the killed one had had
    EARLY = "too early"  # it took longer than that: the killed one was at honest work
    AGAIN = "killed again"
    OPEN = "not known"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A kill by the time limit, and the attempt that followed; `after` is None before it ends."""

    kill: Failure
    after: Attempt | None

    @property
    def verdict(self) -> Verdict:
        """True if the kill was right."""
        if self.after is None:
            return Verdict.OPEN
        if self.after.category is Category.EXECUTION_TIMEOUT:
            return Verdict.AGAIN
        if self.after.category is not None:
            return Verdict.OPEN
        return Verdict.RIGHT if self.after.duration < self.kill.duration else Verdict.EARLY


def judged_kills(runtime: Runtime, meant: Filters) -> Iterator[Judged]:
    """Judge the kills that filters mean, the latest first. Raises StoreError."""
    kills = failures(runtime.store, meant, [Category.EXECUTION_TIMEOUT], looked_at=None)
    return (_judged(runtime, kill) for kill in kills)


def _judged(runtime: Runtime, kill: Failure) -> Judged:
    after = [one for one in runtime.tasks.attempts(kill.key) if one.number > kill.number]
    # What was handed back or lost says nothing of the work.
    says = (one for one in after if one.category in (None, Category.EXECUTION_TIMEOUT))
    return Judged(kill=kill, after=next(says, after[-1] if after else None))
