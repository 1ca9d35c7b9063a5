"""The table `history`: what executions have cost and how they ended.

All in one partition, so that a batch of ended attempts is counted in one transaction with the
cursor that names them: counting a batch again changes nothing.

| row | is |
|---|---|
| `cursor` | the attempts of the latest batch; the epoch of the manager that counted them |
| `c|class` | successes of a class: count, mean duration, sum of squared deviations |
| `d|day|phase|class|category` | executions of a day: count and total duration |
"""

import datetime as dt
import math
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tasks.errors import FencedError
from tasks.model.categories import Category
from tasks.model.model import Phase
from tasks.storage.codec import Codec, Form
from tasks.storage.store import Insert, Operation, Replace, Store
from tasks.tables import updates
from tasks.tables.task_rows import CompletionEvent

TABLE = "history"
PARTITION = "history"
CURSOR = "cursor"
BATCH = 40  # attempts counted in one transaction: two rows each at most, and the cursor


@dataclass(frozen=True, kw_only=True)
class ClassStatistics:
    """Hold the durations in seconds of a task class's successful attempts.

    Mean and variance follow Welford's recurrence (Knuth, The Art of Computer Programming, volume 2,
    4.2.2).
    """

    task_class: str
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, duration: float) -> "ClassStatistics":
        """With one more success."""
        count = self.count + 1
        mean = self.mean + (duration - self.mean) / count
        squares = self.squares + (duration - self.mean) * (duration - mean)
        return replace(self, count=count, mean=mean, squares=squares)

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 below two successes."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class DayCount:
    """Executions of one day, phase, class and outcome; `seconds` is their total duration."""

    day: dt.date
    phase: Phase
    task_class: str
    category: Category | None
    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The attempts of the latest batch: counted, but their events may still exist."""

    epoch: int = 0
    counted: frozenset[str] = frozenset()
    etag: str = field(default="", compare=False)


_CLASS = Codec(ClassStatistics, "class")
_DAY = Codec(DayCount, "day")
_CURSOR = Codec(
    Cursor,
    "cursor",
    {
        "counted": Form(
            write=lambda names: " ".join(sorted(names)), read=lambda text: frozenset(text.split())
        )
    },
)


def class_statistics(store: Store) -> dict[str, ClassStatistics]:
    """Statistics by task class."""
    found = store.scan(TABLE, PARTITION, "c|", "c}")
    return {s.task_class: s for s in map(_CLASS.load, found)}


def executions(store: Store, days: int, today: dt.date) -> Iterator[DayCount]:
    """Yield the executions of the last `days` days, by day, phase, class and outcome.

    `today` is the last of these days.
    """
    first = today - dt.timedelta(days=days - 1)
    for row in store.scan(TABLE, PARTITION, f"d|{first.isoformat()}|", "d}"):
        yield _DAY.load(row)


def load_cursor(store: Store) -> Cursor:
    """Load the cursor as it is stored."""
    row = store.get(TABLE, PARTITION, CURSOR)
    return _CURSOR.load(row) if row else Cursor()


def take_over(store: Store, epoch: int) -> frozenset[str]:
    """Stop all managers of a lower epoch from counting.

    Returns:
        The attempts that are counted but whose completion events may still exist.

    Raises:
        FencedError: a manager of a higher epoch counts now.
        ConflictError, StoreError: nothing is known; call again.
    """
    cursor = load_cursor(store)
    if cursor.epoch > epoch:
        raise FencedError(f"manager epoch {epoch} is over; epoch {cursor.epoch} acts")
    store.transact(TABLE, PARTITION, [_cursor(cursor, epoch, cursor.counted)])
    return cursor.counted


def attempt_id(event: CompletionEvent) -> str:
    """Return the name of an ended attempt in the cursor."""
    return f"{event.key[-20:]}.{event.number}"


def count(
    store: Store, batch: Sequence[CompletionEvent], *, epoch: int, keep: Iterable[str] = ()
) -> None:
    """Count ended attempts, at most `BATCH`, each once however often this is called.

    `keep` are attempts counted before whose events may still exist.

    Raises:
        FencedError: a manager of a higher epoch counts now.
        ConflictError, StoreError: nothing is known; call again.
    """
    cursor = load_cursor(store)
    if cursor.epoch > epoch:
        raise FencedError(f"manager epoch {epoch} is over; epoch {cursor.epoch} acts")
    known = cursor.counted
    fresh = [n for n in batch if attempt_id(n) not in known and not n.counted]
    if fresh:
        counted = frozenset(attempt_id(n) for n in batch) | (known & frozenset(keep))
        head = _cursor(cursor, epoch, counted)
        store.transact(TABLE, PARTITION, [head, *_classes(store, fresh), *_days(store, fresh)])


def _cursor(old: Cursor, epoch: int, counted: frozenset[str]) -> Operation:
    entity = _CURSOR.dump(Cursor(epoch=epoch, counted=counted))
    if old.etag:
        return Replace(row=CURSOR, entity=entity, etag=old.etag)
    return Insert(row=CURSOR, entity=entity)


def _classes(store: Store, fresh: Sequence[CompletionEvent]) -> Iterator[Operation]:
    for name in sorted({n.task_class for n in fresh if n.category is None}):
        row = store.get(TABLE, PARTITION, _class_row(name))
        new = _CLASS.load(row) if row else ClassStatistics(task_class=name)
        for event in fresh:
            if event.category is None and event.task_class == name:
                new = new.add(event.duration)
        yield updates.write(row, _class_row(name), _CLASS.dump(new))


def _days(store: Store, fresh: Sequence[CompletionEvent]) -> Iterator[Operation]:
    groups: dict[str, list[CompletionEvent]] = {}
    for event in fresh:
        groups.setdefault(_day_row(event), []).append(event)
    for name, members in sorted(groups.items()):
        row = store.get(TABLE, PARTITION, name)
        first = members[0]
        old = DayCount(
            day=_day(first),
            phase=first.phase,
            task_class=first.task_class,
            category=first.category,
        )
        if row is not None:
            old = _DAY.load(row)
        seconds = old.seconds + sum(n.duration for n in members)
        new = replace(old, count=old.count + len(members), seconds=seconds)
        yield updates.write(row, name, _DAY.dump(new))


def _class_row(task_class: str) -> str:
    return "c|" + urllib.parse.quote(task_class, safe=" .,")


def _day(event: CompletionEvent) -> dt.date:
    return dt.datetime.fromtimestamp(event.ended, dt.UTC).date()


def _day_row(event: CompletionEvent) -> str:
    category = event.category.value if event.category else "success"
    name = urllib.parse.quote(event.task_class, safe=" .,")
    return f"d|{_day(event)}|{event.phase.value}|{name}|{category}"
