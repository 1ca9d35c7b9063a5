"""The table `history`: what executions have cost and how they ended.

All in one partition, so that a batch of ended attempts is counted in one transaction with the
cursor that names them: counting a batch again changes nothing.

| row | is |
|---|---|
| `cursor` | the attempts of the latest batch; the epoch of the manager that counted them |
| `c|class` | successes of a class: count, mean duration, sum of squared deviations |
| `d|day|phase|class|category` | executions of a day: count and total duration |
| `o|owner|day|phase|class|category` | the same, of one owner's requests |
| `w|worker|day|phase|class|category` | the same, on one worker |
| `r|request` | executions on account of a request |

Rows of an owner or a worker answer at any length of time by reading that one's rows.

Failed attempts are listed in a partition of their own, `failures`, the newest of a category first:
`category|time, counted down|key|number`. A failure is listed before it is counted, in a row whose
content its key determines, so that listing it again changes nothing.
"""

import datetime as dt
import heapq
import itertools
import math
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tasks.bag.categories import Category
from tasks.bag.model import NO_USE, USE, Phase, Use
from tasks.bag.task_rows import CompletionEvent
from tasks.errors import ConflictError, FencedError
from tasks.storage import updates
from tasks.storage.codec import Codec, Form, cut
from tasks.storage.store import (
    BATCH_OPERATIONS,
    Delete,
    Insert,
    Operation,
    Replace,
    Store,
    Upsert,
)

TABLE = "history"
PARTITION = "history"
FAILURES = "failures"
CURSOR = "cursor"
BATCH = 19  # attempts that fit in any transaction: five rows each at most, and the cursor
TOGETHER = 100  # attempts counted in one transaction at most: each may be a failure that is listed
_LATEST = 10**14 - 1  # milliseconds, from which the times of failures are counted down
_BRIEF = 200  # characters of a failure's message


@dataclass(frozen=True, kw_only=True)
class ClassStatistics:
    """Hold the durations in seconds of a task class's successful attempts.

    Mean and variance follow Welford's recurrence (Knuth, The Art of Computer Programming, volume 2,
    4.2.2). `use` is what `metered` of them used together: earlier builds did not measure it.
    """

    task_class: str
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    metered: int = 0
    use: Use = NO_USE

    def add(self, duration: float, use: Use = NO_USE) -> "ClassStatistics":
        """With one more success."""
        count = self.count + 1
        mean = self.mean + (duration - self.mean) / count
        squares = self.squares + (duration - self.mean) * (duration - mean)
        return replace(
            self,
            count=count,
            mean=mean,
            squares=squares,
            metered=self.metered + (use != NO_USE),
            use=self.use + use,
        )

    @property
    def deviation(self) -> float:
        """The standard deviation; 0 below two successes."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class DayCount:
    """Executions of one day, phase, class and outcome; `seconds` is their total duration.

    `use` is what they used of processors and storage, where it was measured. `owner` or `worker` is
    whose they are, in the rows of one owner or worker.
    """

    day: dt.date
    phase: Phase
    task_class: str
    category: Category | None
    count: int = 0
    seconds: float = 0.0
    use: Use = NO_USE
    owner: str = ""
    worker: str = ""


@dataclass(frozen=True, kw_only=True)
class RequestUse:
    """What was executed on account of a request: all attempts, in seconds, and those that failed.

    `made` are the bytes of the artifacts. A task that several requests want runs on account of one.
    """

    request: str
    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    wasted: float = 0.0
    made: int = 0
    use: Use = NO_USE

    def add(self, event: CompletionEvent) -> "RequestUse":
        """With one more attempt."""
        failed = event.category is not None
        return RequestUse(
            request=self.request,
            count=self.count + 1,
            failed=self.failed + failed,
            seconds=self.seconds + event.duration,
            wasted=self.wasted + failed * event.duration,
            made=self.made + (0 if failed else sum(file.size for file in event.files)),
            use=self.use + event.use,
        )


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An attempt that did not succeed, as operators look for it; its log is with the task."""

    key: str
    number: int
    category: Category
    phase: Phase
    task_class: str
    worker: str
    owner: str
    request: str  # on whose account it ran
    ended: float
    duration: float
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The attempts of the latest batch: counted, but their events may still exist."""

    epoch: int = 0
    counted: frozenset[str] = frozenset()
    etag: str = field(default="", compare=False)


_CLASS = Codec(ClassStatistics, "class", {"metered": Form(sparse=True), "use": USE})
_DAY = Codec(DayCount, "day", {"owner": Form(sparse=True), "worker": Form(sparse=True), "use": USE})
_REQUEST = Codec(RequestUse, "request use", {"use": USE})
_FAILURE = Codec(Failure, "failure", {"message": cut(_BRIEF)})
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
    return executions_between(store, today - dt.timedelta(days=days - 1), dt.date.max)


def executions_between(
    store: Store, first: dt.date, last: dt.date, *, owner: str = "", worker: str = ""
) -> Iterator[DayCount]:
    """Yield the executions of some days, both included: all, or one owner's or worker's.

    Raises ValueError if both an owner and a worker are named: they are counted apart.
    """
    if owner and worker:
        raise ValueError("executions are counted by owner or by worker, not by both")
    before = _counts(owner, worker)
    start, end = f"{before}{first.isoformat()}|", f"{before}{last.isoformat()}}}"
    return map(_DAY.load, store.scan(TABLE, PARTITION, start, end))


def used_by(store: Store, request: str) -> RequestUse:
    """Return what was executed on account of a request so far. Raises StoreError."""
    row = store.get(TABLE, PARTITION, _request_row(request))
    return _REQUEST.load(row) if row else RequestUse(request=request)


def owners(store: Store) -> Iterator[str]:
    """Yield the owners of whose requests executions are counted; a call each. StoreError."""
    start = "o|"
    while row := next(iter(store.scan(TABLE, PARTITION, start, "o}", limit=1)), None):
        quoted = row.row.split("|")[1]
        yield urllib.parse.unquote(quoted)
        start = f"o|{quoted}}}"


def failures(
    store: Store, first: float, last: float, categories: Iterable[Category]
) -> Iterator[Failure]:
    """Yield the failed attempts of some categories that ended in a time, the newest first.

    `first` and `last` are POSIX seconds.
    """
    listed = [
        map(
            _FAILURE.load,
            store.scan(
                TABLE,
                FAILURES,
                f"{category.value}|{_counted_down(last)}",
                f"{category.value}|{_counted_down(first)}}}",
            ),
        )
        for category in categories
    ]
    return heapq.merge(*listed, key=lambda one: (-one.ended, one.key))


def forgetting(store: Store, before: float) -> Iterator[int]:
    """Delete failed attempts that ended before a time, and counts by worker of days before it.

    What ended in the very millisecond stays, as the counts of the very day do, and as mails do.
    Each replica of a fleet that scales has a name of its own, so that these counts would grow for
    ever. Yields how many rows went each time, also 0, so that the caller can pause. Raises
    StoreError; a row that somebody else deletes meanwhile is left to the next call.
    """
    for category in Category:
        name = category.value
        old = store.scan(TABLE, FAILURES, f"{name}|{_counted_down(before)}}}", f"{name}}}")
        yield from _deleted(store, FAILURES, (row.row for row in old))
    day = dt.datetime.fromtimestamp(before, dt.UTC).date().isoformat()
    counts = store.scan(TABLE, PARTITION, "w|", "w}")
    yield from _deleted(
        store, PARTITION, (row.row if row.row.split("|")[2] < day else "" for row in counts)
    )


def _deleted(store: Store, partition: str, names: Iterable[str]) -> Iterator[int]:
    """Delete rows; an empty name is of a row that stays."""
    names = iter(names)
    while some := list(itertools.islice(names, BATCH_OPERATIONS)):
        old = [Delete(row=name) for name in some if name]
        if old:
            with suppress(ConflictError):
                store.transact(TABLE, partition, old)
        yield len(old)


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


@dataclass(frozen=True)
class Batch:
    """Ended attempts that `count` writes in one transaction, and the RowKeys of their counts."""

    events: Sequence[CompletionEvent]
    rows: Collection[str]


def batches(events: Iterable[CompletionEvent], owners: Mapping[str, str]) -> Iterator[Batch]:
    """Divide ended attempts into as few batches as can be written, in order.

    Attempts that have rows in common fill no more of a transaction than one of them. `owners` is as
    for `count`.
    """
    batch: list[CompletionEvent] = []
    rows: set[str] = set()
    for event in events:
        own = _rows(event, owners)
        if len(batch) == TOGETHER or len(rows | own) >= BATCH_OPERATIONS:  # and the cursor
            yield Batch(batch, rows)
            batch, rows = [], set()
        batch.append(event)
        rows |= own
    if batch:
        yield Batch(batch, rows)


def _rows(event: CompletionEvent, owners: Mapping[str, str]) -> set[str]:
    """Return the RowKeys of what counts an attempt."""
    found = {name for name, _, _ in _day_rows(event, owners)}
    if event.category is None:
        found.add(_class_row(event.task_class))
    if event.sponsor:
        found.add(_request_row(event.sponsor))
    return found


def count(
    store: Store,
    batch: Sequence[CompletionEvent],
    *,
    epoch: int,
    keep: Iterable[str] = (),
    owners: Mapping[str, str] | None = None,
) -> None:
    """Count ended attempts, one of `batches` at most, each once however often this is called.

    `keep` are attempts counted before whose events may still exist. `owners` has the owners of the
    requests on whose account they ran.

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
        of = owners or {}
        listed = [_listed(n, of) for n in fresh if n.category is not None]
        if listed:
            store.transact(TABLE, FAILURES, listed)
        counted = frozenset(attempt_id(n) for n in batch) | (known & frozenset(keep))
        head = _cursor(cursor, epoch, counted)
        counts = [*_classes(store, fresh), *_days(store, fresh, of), *_requests(store, fresh)]
        store.transact(TABLE, PARTITION, [head, *counts])


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
                new = new.add(event.duration, event.use)
        yield updates.write(row, _class_row(name), _CLASS.dump(new))


def _days(
    store: Store, fresh: Sequence[CompletionEvent], owners: Mapping[str, str]
) -> Iterator[Operation]:
    groups: dict[str, list[CompletionEvent]] = {}
    empty: dict[str, DayCount] = {}
    for event in fresh:
        for name, owner, worker in _day_rows(event, owners):
            if name not in groups:
                groups[name] = []
                empty[name] = DayCount(
                    day=_day(event),
                    phase=event.phase,
                    task_class=event.task_class,
                    category=event.category,
                    owner=owner,
                    worker=worker,
                )
            groups[name].append(event)
    for name, members in sorted(groups.items()):
        row = store.get(TABLE, PARTITION, name)
        old = _DAY.load(row) if row is not None else empty[name]
        seconds = old.seconds + sum(n.duration for n in members)
        use = sum((n.use for n in members), old.use)
        new = replace(old, count=old.count + len(members), seconds=seconds, use=use)
        yield updates.write(row, name, _DAY.dump(new))


def _day_rows(event: CompletionEvent, owners: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the counts of a day that an attempt belongs to: RowKey, owner and worker.

    It is counted among all, its owner's, and those of its worker.
    """
    what = _outcome(_day(event), event.phase, event.task_class, event.category)
    yield f"{_counts('', '')}{what}", "", ""
    owner = owners.get(event.sponsor, "")
    if owner:
        yield f"{_counts(owner, '')}{what}", owner, ""
    if event.worker:
        yield f"{_counts('', event.worker)}{what}", "", event.worker


def _requests(store: Store, fresh: Sequence[CompletionEvent]) -> Iterator[Operation]:
    for request in sorted({n.sponsor for n in fresh if n.sponsor}):
        name = _request_row(request)
        row = store.get(TABLE, PARTITION, name)
        new = _REQUEST.load(row) if row is not None else RequestUse(request=request)
        for event in fresh:
            if event.sponsor == request:
                new = new.add(event)
        yield updates.write(row, name, _REQUEST.dump(new))


def _listed(event: CompletionEvent, owners: Mapping[str, str]) -> Upsert:
    category = event.category or Category.UNKNOWN
    failure = Failure(
        key=event.key,
        number=event.number,
        category=category,
        phase=event.phase,
        task_class=event.task_class,
        worker=event.worker,
        owner=owners.get(event.sponsor, ""),
        request=event.sponsor,
        ended=event.ended,
        duration=event.duration,
        message=event.message,
    )
    name = f"{category.value}|{_counted_down(event.ended)}|{event.key}|{event.number}"
    return Upsert(row=name, entity=_FAILURE.dump(failure))


def _counted_down(moment: float) -> str:
    return f"{_LATEST - int(moment * 1000):014d}"


def _request_row(request: str) -> str:
    return f"r|{request}"


def _class_row(task_class: str) -> str:
    return "c|" + urllib.parse.quote(task_class, safe=" .,")


def _day(event: CompletionEvent) -> dt.date:
    return dt.datetime.fromtimestamp(event.ended, dt.UTC).date()


def _outcome(day: dt.date, phase: Phase, task_class: str, category: Category | None) -> str:
    """Return what the RowKeys of the counts of a day end with."""
    outcome = category.value if category else "success"
    return f"{day}|{phase.value}|{_quoted(task_class)}|{outcome}"


def _counts(owner: str, worker: str) -> str:
    """Return what the RowKeys of all counts begin with, or of one owner's or worker's."""
    if owner:
        return f"o|{_quoted(owner)}|"
    return f"w|{_quoted(worker)}|" if worker else "d|"


@lru_cache(50_000)  # names of workers, owners and classes
def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe=" .,@")
