"""Executions by phase, outcome and day, beside what ModisAzure had in 2010.

The numbers of 2010 are from Hill, Li, Mao, Ruiz-Alvarez, Humphrey, Early observations on the
performance of Windows Azure (Scientific Programming 19, 2011), Table 2 and Figure 7: executions
from February to September 2010.
"""

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from modis.collection import short_text
from portal.results.charts import Bar, Chart, bars
from portal.serving.problems import BadCallError
from tasks.bag import classes, history
from tasks.bag.categories import Category
from tasks.bag.history import DayCount, Failure
from tasks.bag.model import NO_USE, Phase, Use
from tasks.storage.store import Store

TOTAL_2010 = 3_054_430
_PHASES_2010 = {
    Phase.COLLECTION: ("source download", 139_609),
    Phase.REPROJECTION: ("reprojection", 1_704_002),
    Phase.AGGREGATION: ("aggregation", 8_706),
    Phase.REDUCTION: ("reduction", 1_202_113),
}
_Outcomes = tuple[Category | None, ...]
_OUTCOMES_2010: tuple[tuple[str, int, _Outcomes], ...] = (
    ("success", 2_000_656, (None,)),
    ("unknown failure", 345_180, (Category.UNKNOWN,)),
    # The execution was in vain, because its product was there, or nobody wanted it any more.
    ("blob already exists", 182_726, (Category.CANCELLED,)),
    # The execution ended, and nothing of it was written down.
    ("unknown, null log", 139_609, (Category.WORKER_LOST,)),
    ("download source data failed", 125_164, (Category.DOWNLOAD_FAILED,)),
    ("connection failure", 8_966, (Category.CONNECTION_FAILURE,)),
    ("VM execution timeout", 5_300, (Category.EXECUTION_TIMEOUT,)),
    ("operation timeout", 4_178, (Category.OPERATION_TIMEOUT,)),
    ("corrupt blob read", 3_107, (Category.CORRUPT_BLOB_READ,)),
    ("server busy", 1_287, (Category.SERVER_BUSY,)),
    ("blob read fail", 638, (Category.BLOB_READ_FAILED,)),
    ("non-existent source blob", 519, (Category.SOURCE_BLOB_MISSING,)),
    ("unable to read input file", 20, (Category.UNREADABLE_INPUT_FILE,)),
    ("bad image format", 15, (Category.BAD_IMAGE_FORMAT,)),
    ("transport error", 12, (Category.TRANSPORT_ERROR,)),
    ("internal storage client error", 10, (Category.STORAGE_CLIENT_ERROR,)),
    ("out of disk space", 7, (Category.OUT_OF_DISK,)),
)
_NAMED = {outcome for _, _, outcomes in _OUTCOMES_2010 for outcome in outcomes}
_REST: _Outcomes = tuple(category for category in Category if category not in _NAMED)
_LONGEST = 3660  # days
LOOKED_AT = 20_000  # failures


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which executions are meant: those of some days, both included, that fit all that is named."""

    first: dt.date
    last: dt.date
    phase: Phase | None = None
    product: str = ""
    package: str = ""
    owner: str = ""
    worker: str = ""
    task_class: str = ""

    def address(self, path: str, **more: object) -> str:
        """Return the address of a page with these filters."""
        named = {
            "first": self.first,
            "last": self.last,
            "phase": self.phase.value if self.phase else "",
            "product": self.product,
            "package": self.package,
            "owner": self.owner,
            "worker": self.worker,
            "class": self.task_class,
            **more,
        }
        return f"{path}?{urlencode({name: value for name, value in named.items() if value})}"

    def of(self, field: str, value: str) -> "Filters":
        """Return the same filters for one owner or one package."""
        return replace(self, **{field: value})  # type: ignore[arg-type]

    def of_day(self, day: dt.date) -> "Filters":
        """Return the same filters on one day."""
        return replace(self, first=day, last=day)

    def fit(self, phase: Phase, task_class: str) -> bool:
        """Tell whether a phase and a class are among what is meant."""
        if (self.phase and phase is not self.phase) or self.task_class not in ("", task_class):
            return False
        if self.product and classes.product(task_class) != self.product:
            return False
        return not self.package or classes.package(task_class) == self.package


def parse_filters(today: dt.date, days: int, named: Mapping[str, str]) -> Filters:
    """Read filters from the fields of an address; by default the last `days` days are meant.

    Raises BadCallError, which names the field.
    """
    first = _day(named.get("first", ""), today - dt.timedelta(days=days - 1), "first")
    last = _day(named.get("last", ""), max(today, first), "last")
    if not dt.timedelta() <= last - first <= dt.timedelta(days=_LONGEST):
        raise BadCallError(
            f"The last day is {last} and the first is {first}.",
            f"Name a first day before the last one, at most {_LONGEST} days earlier.",
            field="last",
        )
    phase = named.get("phase", "")
    if phase and phase not in {one.value for one in Phase}:
        known = ", ".join(Phase)
        raise BadCallError(f"There is no phase {phase!r}.", f"Name one of {known}.", field="phase")
    if named.get("owner") and named.get("worker"):
        raise BadCallError(
            "An owner and a worker are named.",
            "Name one of them: executions are counted by owner and by worker, not by both.",
            field="worker",
        )
    return Filters(
        first=first,
        last=last,
        phase=Phase(phase) if phase else None,
        product=short_text(named.get("product", "")[:200]),
        **{name: named.get(name, "")[:200] for name in ("package", "owner", "worker")},
        task_class=short_text(named.get("class", "")[:200]),
    )


def _day(text: str, usual: dt.date, field: str) -> dt.date:
    if not text:
        return usual
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        problem = f"{text!r} is not a day."
        raise BadCallError(problem, "Write it as 2010-02-28.", field=field) from None


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the table of 2010: how many executions there are, and how many there were.

    `parts` has our outcomes with their counts.
    """

    name: str
    count: int
    total: int
    then: int
    parts: tuple[tuple[str, int], ...] = ()

    @property
    def percent(self) -> float:
        """The share of all executions."""
        return 100 * self.count / self.total if self.total else 0.0

    @property
    def percent_then(self) -> float:
        """The share in 2010."""
        return 100 * self.then / TOTAL_2010


@dataclass(frozen=True, kw_only=True)
class DayShare:
    """The executions of a day, and those that were killed for their age (Figure 7)."""

    day: dt.date
    count: int
    failed: int
    timeouts: int

    @property
    def percent(self) -> float:
        """The share of executions that were killed."""
        return 100 * self.timeouts / self.count if self.count else 0.0


@dataclass(frozen=True, kw_only=True)
class ClassCost:
    """What the executions of a class took, in seconds of slots, and how much of it was in vain.

    `use` is what they used of processors and storage, where that was measured.
    """

    task_class: str
    phase: Phase
    count: int
    failed: int
    seconds: float
    wasted: float
    use: Use = NO_USE


@dataclass(frozen=True, kw_only=True)
class Executions:
    """The executions that some filters mean."""

    phases: tuple[Line, ...]
    outcomes: tuple[Line, ...]
    days: tuple[DayShare, ...]
    costs: tuple[ClassCost, ...]  # the most wasteful class first
    products: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The number of them."""
        return sum(line.count for line in self.phases)

    @property
    def worst(self) -> DayShare | None:
        """The day with the largest share of timeouts, if any had one."""
        worst = max(self.days, key=lambda one: one.percent, default=None)
        return worst if worst is not None and worst.timeouts else None

    def chart(self, filters: Filters) -> Chart:
        """Draw Figure 7: the share of timeouts of each day; a bar leads to the attempts."""
        drawn = [
            Bar(
                name=str(one.day),
                parts=[("failure", one.percent)],
                text=f"{one.day}: {one.percent:.2f}%, {one.timeouts:,} of {one.count:,}",
                address=filters.of_day(one.day).address(
                    "/operations/attempts", category=Category.EXECUTION_TIMEOUT.value
                )
                if one.timeouts
                else "",
            )
            for one in self.days
        ]
        return bars(drawn, "% of executions", least=1)


@dataclass(slots=True)
class _Sums:
    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    wasted: float = 0.0
    use: Use = NO_USE

    def add(self, one: DayCount) -> None:
        self.use += one.use
        self.count += one.count
        self.seconds += one.seconds
        if one.category is not None:
            self.failed += one.count
            self.wasted += one.seconds


@dataclass(slots=True)
class _Tally:
    phases: Counter[Phase] = field(default_factory=Counter)
    outcomes: Counter[Category | None] = field(default_factory=Counter)
    days: dict[dt.date, _Sums] = field(default_factory=dict)
    timeouts: Counter[dt.date] = field(default_factory=Counter)
    classes: dict[tuple[Phase, str], _Sums] = field(default_factory=dict)


def executions(store: Store, filters: Filters) -> Executions:
    """Add up the executions that filters mean. Raises StoreError."""
    tally = _Tally()
    seen: dict[tuple[Phase, str], bool] = {}
    for one in history.executions_between(
        store, filters.first, filters.last, owner=filters.owner, worker=filters.worker
    ):
        kind = (one.phase, one.task_class)
        if kind not in seen:
            seen[kind] = filters.fit(*kind)
        if not seen[kind]:
            continue
        tally.phases[one.phase] += one.count
        tally.outcomes[one.category] += one.count
        tally.days.setdefault(one.day, _Sums()).add(one)
        tally.classes.setdefault(kind, _Sums()).add(one)
        if one.category is Category.EXECUTION_TIMEOUT:
            tally.timeouts[one.day] += one.count
    total = tally.phases.total()
    costs = [
        ClassCost(
            task_class=name,
            phase=phase,
            count=sums.count,
            failed=sums.failed,
            seconds=sums.seconds,
            wasted=sums.wasted,
            use=sums.use,
        )
        for (phase, name), sums in tally.classes.items()
    ]
    return Executions(
        phases=tuple(
            Line(name=phase.value, count=tally.phases[phase], total=total, then=then)
            for phase, (_, then) in _PHASES_2010.items()
        ),
        outcomes=tuple(_outcomes(tally.outcomes, total)),
        days=tuple(_days(filters, tally)),
        costs=tuple(sorted(costs, key=lambda one: (-one.wasted, -one.seconds, one.task_class))),
        products=tuple(sorted({classes.product(name) for _, name in seen} - {""})),
        packages=tuple(sorted({classes.package(name) for _, name in seen} - {""})),
    )


def _outcomes(counts: Counter[Category | None], total: int) -> Iterator[Line]:
    rest = TOTAL_2010 - sum(then for _, then, _ in _OUTCOMES_2010)
    for name, then, outcomes in (*_OUTCOMES_2010, ("others", rest, _REST)):
        parts = [(one.value if one else "success", counts[one]) for one in outcomes]
        if len(parts) > 1:
            parts = sorted((part for part in parts if part[1]), key=lambda part: -part[1])
        count = sum(number for _, number in parts)
        yield Line(name=name, count=count, total=total, then=then, parts=tuple(parts))


def _days(filters: Filters, tally: _Tally) -> Iterator[DayShare]:
    for number in range((filters.last - filters.first).days + 1):
        day = filters.first + dt.timedelta(days=number)
        sums = tally.days.get(day, _Sums())
        yield DayShare(day=day, count=sums.count, failed=sums.failed, timeouts=tally.timeouts[day])


def failures(
    store: Store,
    filters: Filters,
    categories: Sequence[Category],
    looked_at: int | None = LOOKED_AT,
) -> Iterator[Failure]:
    """Yield the failed attempts that filters mean, the newest first. Raises StoreError.

    At most `looked_at` failures of the time are looked at; with None, all.
    """
    first = dt.datetime.combine(filters.first, dt.time(), dt.UTC).timestamp()
    last = dt.datetime.combine(filters.last, dt.time(), dt.UTC).timestamp() + 86_400.0
    found = history.failures(store, first, last - 0.001, categories)
    for one in itertools.islice(found, looked_at):
        named = filters.owner in ("", one.owner) and filters.worker in ("", one.worker)
        if named and filters.fit(one.phase, one.task_class):
            yield one
