"""The table `tasks`. Its RowKeys are spelt, and its rows written and read, here alone.

One partition per shard (`keys.shard`). By RowKey prefix:

| row | is |
|---|---|
| `t|key` | the task, with its specification if that is small |
| `s|key|n` | else its specification, packed, in parts of at most 60 KiB |
| `w|request|key` | a request's interest in it: its name among the results, and its outcome |
| `e|key|dependent` | an edge: `dependent` waits for it, and which of its inputs it is |
| `e|key|ghash` | several edges that were written together |
| `a|key|k` | an ended attempt |
| `p|request` | the write fence: whether the request may still get interests in this shard |
| `o|key|name` | a completion event, not processed yet: an ended attempt, or an end without one |
| `r|request|key` | ready now, under its sponsor |
| `x|key` | running |
| `z|time|key` | ready later |
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tasks.bag import spec_packing
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec, load_spec
from tasks.bag.model import USE, ArtifactFile, Attempt, RunUse, State, Task, TaskOutcome
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import (
    CompletionEvent,
    Edge,
    Interest,
    LaterMarker,
    ReadyMarker,
    RunningMarker,
    WriteFence,
    dump_dependents,
    dump_files,
    dump_given,
    load_dependents,
    load_files,
    load_given,
)
from tasks.errors import StoreError
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import BITS, WORDS, WORDS_IN_BYTES, Codec, Form, cut, in_json
from tasks.storage.schema import BRIEF_ROWS, SPECS_IN_TASKS, written
from tasks.storage.store import (
    PROPERTY_BYTES,
    Entity,
    Insert,
    MergeEntity,
    Operation,
    Replace,
    Row,
    Store,
    Upsert,
)
from tasks.storage.updates import prefix_range

TABLE = "tasks"
_PART = 60 * 2**10
_IN_ROW = 2**10  # bytes of a specification in its task's row, which is written again and again
_INPUTS = 8  # that a task has at most whose row has their files,
_FILES_OF_INPUT = 2**10  # and bytes of the files of one
_MESSAGE = 500  # characters of a line for people
_LOG = 16 * 2**10  # characters of an attempt's log tail; Azure stores UTF-16
_APART = 8  # rows read for one that is wanted, at most, before it is read by itself
_EDGES_IN_ROW = 12  # at most: the row fits into a page of an SQLite file
_EDGES = 128  # rows read in one call for each task whose edges are wanted


class RowKind(StrEnum):
    """The kinds of rows, by the first letter of their RowKeys."""

    TASK = "t"
    SPEC = "s"
    INTEREST = "w"
    EDGE = "e"
    ATTEMPT = "a"
    WRITE_FENCE = "p"
    COMPLETION_EVENT = "o"
    READY = "r"
    RUNNING = "x"
    LATER = "z"


InputFiles = tuple[int, Sequence[ArtifactFile]]
"""Bits of the indices of an input, and the files that it was made of."""

MARKERS = (RowKind.READY, RowKind.RUNNING, RowKind.LATER)


@dataclass(frozen=True, kw_only=True)
class _SpecPart:
    json: bytes


def _part(number: int) -> Callable[[Row], str]:
    """Return how one part of a RowKey is read, from 1: the key, or a request."""
    return lambda row: row.row.split("|")[number]


@dataclass(frozen=True, kw_only=True)
class _EdgeGroup:
    dependents: bytes


def _tail(log: str) -> str:
    return log[-_LOG:]


def _given(stored: bytes) -> object:
    return load_given(stored) if stored else ()


_RANK = replace(BITS, sparse=True)  # more than 32 bits
_FILES = Form(write=dump_files, read=load_files)
_BRIEF = cut(_MESSAGE)
TASK = Codec(
    Task,
    "task",
    {
        "missing": BITS,
        "lacking": BITS,
        "interests": WORDS_IN_BYTES,
        "reason": cut(_MESSAGE, sparse=True),
        "losses": Form(sparse=True),
        "files": _FILES,
        "struck": replace(WORDS, sparse=True),
        "rank": _RANK,
        "spec": Form(sparse=True),
        "given": Form(write=dump_given, read=_given, sparse=True),
    },
    apart={"key": lambda row: row.row[2:]},
)
INTEREST = Codec(
    Interest,
    "interest",
    {
        "message": _BRIEF,
        "earlier": replace(WORDS, sparse=True),
        "stopped": Form(sparse=True),
        "files": _FILES,
    },
    named={"request": _part(1), "key": _part(2)},
)
COMPLETION_EVENT = Codec(
    CompletionEvent,
    "completion event",
    {
        "interests": WORDS_IN_BYTES,
        "message": _BRIEF,
        "files": _FILES,
        "rank": _RANK,
        "use": USE,
    },
    apart={"row": lambda row: row.row},
    named={"key": _part(1)},
)
EDGE = Codec(Edge, "edge", {"bits": BITS}, named={"key": _part(1), "dependent": _part(2)})
ATTEMPT = Codec(
    Attempt,
    "attempt",
    {
        "log": Form(write=_tail),
        "message": _BRIEF,
        "used": replace(in_json(RunUse | None), sparse=True),
        "reading": Form(sparse=True),
        "use": USE,
    },
    named={"key": _part(1)},
)
WRITE_FENCE = Codec(WriteFence, "write fence")
READY = Codec(
    ReadyMarker,
    "ready",
    {"rank": _RANK},
    apart={"request": _part(1)},
    named={"key": _part(2)},
)
LATER = Codec(
    LaterMarker,
    "later",
    apart={"due": lambda row: int(row.row.split("|")[1]) / 1000},
    named={"key": _part(2)},
)
RUNNING = Codec(RunningMarker, "running", named={"key": _part(1)})
_EDGE_GROUP = Codec(_EdgeGroup, "edges", {"dependents": Form()})
_SPEC = Codec(_SpecPart, "spec", {"json": Form()})


def kind_of(row: str) -> RowKind:
    """Return the kind of row that a RowKey is of."""
    return RowKind(row[0])


def task_row(key: str) -> str:
    """Return the RowKey of a task."""
    return f"t|{key}"


def interest_row(request: str, key: str) -> str:
    """Return the RowKey of a request's interest in a task."""
    return f"w|{request}|{key}"


def ready_row(request: str, key: str) -> str:
    """Return the RowKey of a ready task's marker."""
    return f"r|{request}|{key}"


def running_row(key: str) -> str:
    """Return the RowKey of a running task's marker."""
    return f"x|{key}"


def markers(task: Task) -> dict[str, Entity]:
    """Return the marker rows a task must have: a function of its row alone."""
    if task.state is State.READY and task.not_before:
        due = int(task.not_before * 1000)
        marker = LaterMarker(due=task.not_before, key=task.key)
        return {f"z|{due:015d}|{task.key}": LATER.dump(marker)}
    if task.state is State.READY:
        ready = ReadyMarker(
            key=task.key,
            request=task.sponsor,
            task_class=task.task_class,
            alone=task.alone,
            rank=task.rank,
        )
        return {ready_row(task.sponsor, task.key): READY.dump(ready)}
    if task.state is State.RUNNING:
        running = RunningMarker(
            key=task.key,
            claim=task.claim,
            worker=task.worker,
            claimed_at=task.claimed_at,
            attempt=task.attempt,
            retries=task.retries,
            phase=task.phase,
            task_class=task.task_class,
            sponsor=task.sponsor,
            place=task.place,
        )
        return {running_row(task.key): RUNNING.dump(running)}
    return {}


def insert_task(task: Task) -> Insert:
    """Write a new task's row."""
    return Insert(row=task_row(task.key), entity=TASK.dump(task))


def replace_task(task: Task, etag: str = "") -> Replace:
    """Write a task's row over the one of its ETag, or of another."""
    return Replace(row=task_row(task.key), entity=TASK.dump(task), etag=etag or task.etag)


def stored_spec(key: str, spec: Spec) -> tuple[bytes, list[Insert]]:
    """Return what a new task's row has of its specification, and the rows of one that is large."""
    data = spec.model_dump_json().encode()
    if written() >= BRIEF_ROWS:
        data = spec_packing.pack(data)
    if len(data) <= _IN_ROW and written() >= SPECS_IN_TASKS:
        return data, []
    parts = [data[start : start + _PART] for start in range(0, len(data), _PART)]
    return b"", [
        Insert(row=f"s|{key}|{n:03d}", entity=_SPEC.dump(_SpecPart(json=part)))
        for n, part in enumerate(parts)
    ]


def with_inputs(task: Task, made: int, files: Sequence[InputFiles]) -> Task:
    """Return a task with the files of inputs, of the bits `made`, as far as its row has room."""
    if task.inputs > _INPUTS:
        return task
    small = [one for one in files if one[0] & made and len(dump_files(one[1])) <= _FILES_OF_INPUT]
    given = dict(task.given)
    for bits, some in small:
        given |= {i: tuple(some) for i in range(task.inputs) if (made & bits) >> i & 1}
    return replace(task, given=tuple(sorted(given.items())))


def put_interest(interest: Interest) -> Upsert:
    """Write an interest's row."""
    return Upsert(row=interest_row(interest.request, interest.key), entity=INTEREST.dump(interest))


def put_edge(edge: Edge) -> Upsert:
    """Write an edge's row."""
    return Upsert(row=f"e|{edge.key}|{edge.dependent}", entity=EDGE.dump(edge))


def put_edges(edges: Sequence[Edge]) -> tuple[Upsert, ...]:
    """Write edges from one task, several in a row, whose RowKey is made of what it says."""
    if len(edges) < 2 or written() < BRIEF_ROWS:
        return tuple(map(put_edge, edges))
    return tuple(
        _put_group(edges[start : start + _EDGES_IN_ROW])
        for start in range(0, len(edges), _EDGES_IN_ROW)
    )


def _put_group(edges: Sequence[Edge]) -> Upsert:
    group = _EdgeGroup(dependents=dump_dependents(edges))
    name = hashlib.sha256(group.dependents).hexdigest()[:16]
    return Upsert(row=f"e|{edges[0].key}|g{name}", entity=_EDGE_GROUP.dump(group))


def load_edges(row: Row) -> tuple[Edge, ...]:
    """Return the edges that a row has."""
    if "dependents" not in row.entity:
        return (EDGE.load(row),)
    return load_dependents(first_in(row), _EDGE_GROUP.load(row).dependents)


def insert_attempt(attempt: Attempt) -> Insert:
    """Write an ended attempt; of a long log the end is kept."""
    return Insert(row=_attempt_row(attempt.key, attempt.number), entity=ATTEMPT.dump(attempt))


def put_fence(request: str, *, is_open: bool) -> Upsert:
    """Write a request's write fence in a shard."""
    return Upsert(row=f"p|{request}", entity=WRITE_FENCE.dump(WriteFence(open=is_open)))


def holds(files: Sequence[ArtifactFile]) -> bool:
    """Tell whether a task's row can name these files (about 200)."""
    return len(dump_files(files)) <= PROPERTY_BYTES


def record_outcome(
    request: str,
    key: str,
    outcome: TaskOutcome,
    *,
    category: Category | None = None,
    message: str = "",
    files: Sequence[ArtifactFile] = (),
    stopped: bool | None = None,
) -> MergeEntity:
    """Record a task's outcome in an interest; `stopped` stays as it is if not given."""
    recorded: Entity = {
        "outcome": outcome.value,
        "category": category.value if category else "",
        "message": message,
        "files": dump_files(files),
    }
    if stopped is not None:
        recorded["stopped"] = stopped
    return MergeEntity(row=interest_row(request, key), entity=recorded)


def name_fallbacks(interest: Interest) -> MergeEntity:
    """Write the fallback tasks that an interest names, and leave the rest of its row."""
    named: Entity = {"fallback": interest.fallback, "earlier": " ".join(interest.earlier)}
    return MergeEntity(row=interest_row(interest.request, interest.key), entity=named)


def note_counted(event: CompletionEvent) -> MergeEntity:
    """Note that an attempt is in the statistics, though its event still exists."""
    return MergeEntity(row=event.row, entity={"counted": True})


def attempt_event(task: Task, attempt: Attempt) -> Upsert:
    """Write the event that an attempt has ended; `task` is the row after the change."""
    return _put_event(
        task,
        f"{attempt.number:06d}",
        number=attempt.number,
        category=attempt.category,
        duration=attempt.duration,
        ended=attempt.ended,
        worker=attempt.worker,
        message=attempt.message,
        use=attempt.use,
    )


def end_event(task: Task, said: str = "") -> Upsert:
    """Write the completion event of a task that ended without an attempt of its own.

    `said` is reported in place of the task's reason.
    """
    message = said or task.reason
    return _put_event(task, f"g{task.generation:06d}", category=task.category, message=message)


def wait_event(task: Task) -> Upsert:
    """Write the completion event of a task that is waiting on inputs again.

    Its inputs may have ended before the task could be notified, so the manager looks at each.
    """
    return _put_event(task, f"w{task.generation:06d}")


def return_event(task: Task, worker: str, why: str = "") -> Upsert:
    """Write the event that a worker gave a task back that it had claimed, without an attempt."""
    name = f"b{task.attempt:06d}"
    return _put_event(task, name, category=task.category, worker=worker, message=why)


def _attempt_row(key: str, number: int) -> str:
    return f"a|{key}|{number:06d}"


def _put_event(task: Task, name: str, **said: Any) -> Upsert:
    event = CompletionEvent(
        key=task.key,
        row=f"o|{task.key}|{name}",
        state=task.state,
        phase=task.phase,
        task_class=task.task_class,
        has_dependents=task.has_dependents,
        interests=task.interests,
        not_before=task.not_before,
        fallback=task.fallback,
        sponsor=task.sponsor,
        files=task.files,
        rank=task.rank,
        **said,
    )
    return Upsert(row=event.row, entity=COMPLETION_EVENT.dump(event))


def attempt_number(row: Row) -> int:
    """Return the number of the attempt that a row is of."""
    return int(row.row.rpartition("|")[2])


def returned(event: CompletionEvent) -> bool:
    """Tell whether an event says that a task that was claimed is ready again."""
    return event.row.rpartition("|")[2].startswith("b")


def first_in(row: Row) -> str:
    """Return what a RowKey names first: a task's key, or a request."""
    return row.row.split("|", 2)[1]


def _distinct(rows: Iterable[Row]) -> Iterator[Edge]:
    """Yield the edges of rows; one that has a row of its own may be in a group, too."""
    key, met = "", set[Edge]()
    for row in rows:
        for edge in load_edges(row):
            if edge.key != key:
                key, met = edge.key, set()
            if edge not in met:
                met.add(edge)
                yield edge


class TaskTable:
    """The table `tasks` in a store. Every call may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def transact(self, shard: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Apply all operations on rows of a shard, or none, as `Store.transact`."""
        return self._store.transact(TABLE, shard, operations)

    def etag(self, shard: str, row: str) -> str:
        """Return a row's ETag; empty when there is no such row."""
        found = self._store.get(TABLE, shard, row)
        return found.etag if found else ""

    def update(self, clock: Clock, key: str, change: updates.Change) -> tuple[str, ...]:
        """Change a task's row under its ETag, as `updates.update`."""
        return updates.update(self._store, clock, TABLE, shard(key), task_row(key), change)

    def task(self, key: str) -> Task | None:
        """Return a task."""
        row = self._store.get(TABLE, shard(key), task_row(key))
        return TASK.load(row) if row else None

    def is_done(self, key: str) -> bool:
        """Tell whether the artifact of a task is in storage."""
        task = self.task(key)
        return task is not None and task.state is State.DONE

    def done(self, keys: Iterable[str]) -> set[str]:
        """Return those of some tasks, of any shards, whose artifact is in storage."""
        found = self.tasks_of_all(keys)
        return {key for key, task in found.items() if task.state is State.DONE}

    def tasks(self, shard: str, keys: Sequence[str]) -> dict[str, Task]:
        """Return tasks of a shard, by key.

        `keys` are in order. Rows that lie close together are read as one range; where many others
        lie between them, each row is read by itself.
        """
        if len(keys) == 1:  # a read of one row costs less than a range
            task = self.task(keys[0])
            return {keys[0]: task} if task is not None else {}
        return {task.key: task for task in map(TASK.load, self._near(shard, RowKind.TASK, keys))}

    def specs(self, shard: str, tasks: Mapping[str, Task]) -> dict[str, Spec]:
        """Return the specifications of tasks of a shard, by key.

        Those that have rows of their own are read as `tasks` reads rows. StoreError when a task has
        none.
        """
        parts = {key: [task.spec] for key, task in tasks.items() if task.spec}
        apart = sorted(tasks.keys() - parts.keys())
        for row in self._near(shard, RowKind.SPEC, apart):
            parts.setdefault(first_in(row), []).append(_SPEC.load(row).json)
        absent = [key for key in apart if key not in parts]
        if absent:
            raise StoreError(f"task {absent[0]} has no specification")
        return {key: load_spec(spec_packing.unpack(b"".join(parts[key]))) for key in tasks}

    def tasks_of_all(self, keys: Iterable[str]) -> dict[str, Task]:
        """Return tasks of any shards, by key, read as `tasks` reads them."""
        by_shard: dict[str, list[str]] = {}
        for key in sorted(set(keys)):
            by_shard.setdefault(shard(key), []).append(key)
        found: dict[str, Task] = {}
        for number, some in by_shard.items():
            found |= self.tasks(number, some)
        return found

    def _near(
        self, shard: str, kind: RowKind, keys: Sequence[str], most_each: int = _APART
    ) -> Iterator[Row]:
        """Yield the rows of a kind that belong to keys of a shard, in order, in as few calls.

        Each key has one row, or several side by side. What lies close together is read as one
        range, in one call as many rows as `most_each` for each key.
        """
        left = list(keys)
        start = f"{kind}|{left[0]}" if left else ""
        while left:
            most = most_each * len(left)
            page = list(self._store.scan(TABLE, shard, start, f"{kind}|{left[-1]}}}", limit=most))
            wanted = set(left)
            met = [row for row in page if first_in(row) in wanted]
            yield from met
            if len(page) < most:
                return
            start, reached = page[-1].row + "\0", first_in(page[-1])
            left = [key for key in left if key >= reached]
            if _APART * len(met) < len(page):
                for key in left:
                    first = max(start, f"{kind}|{key}")
                    yield from self._store.scan(TABLE, shard, first, f"{kind}|{key}}}")
                return

    def all_tasks(self, shard: str) -> Iterator[Task]:
        """Yield all tasks of a shard."""
        return map(TASK.load, self.rows(shard, RowKind.TASK))

    def rows(self, shard: str, kind: RowKind) -> Iterator[Row]:
        """Yield the rows of a kind of a shard as they are stored."""
        return self._scan(shard, f"{kind}|")

    def spec(self, key: str) -> Spec:
        """Return a task's specification; StoreError when it has none."""
        task = self.task(key)
        if task is None:
            raise StoreError(f"there is no task {key}")
        return self.spec_of(task)

    def spec_of(self, task: Task) -> Spec:
        """Return the specification of a task that was read; StoreError when it has none."""
        return self.specs(shard(task.key), {task.key: task})[task.key]

    def attempts(self, key: str) -> list[Attempt]:
        """Return all ended attempts of a task, oldest first."""
        return [ATTEMPT.load(row) for row in self._scan(shard(key), f"a|{key}|")]

    def attempt(self, key: str, number: int) -> Attempt | None:
        """Return an ended attempt of a task."""
        row = self._store.get(TABLE, shard(key), _attempt_row(key, number))
        return ATTEMPT.load(row) if row else None

    def interest(self, request: str, key: str) -> Interest | None:
        """Return a request's interest in a task."""
        row = self._store.get(TABLE, shard(key), interest_row(request, key))
        return INTEREST.load(row) if row else None

    def interests(self, request: str, shard: str) -> Iterator[Interest]:
        """Yield a request's interests in tasks of a shard, in order of key."""
        return map(INTEREST.load, self._scan(shard, f"w|{request}|"))

    def notable(self, request: str, shard: str) -> Iterator[Interest]:
        """Yield those interests of a request that a reader asks for: results, and what failed.

        The others are many more, and are not decoded: that takes most of the time of a read.
        """
        lost = {TaskOutcome.FAILED.value, TaskOutcome.GAP.value}
        for row in self._scan(shard, f"w|{request}|"):
            if row.entity.get("output") or row.entity.get("outcome") in lost:
                yield INTEREST.load(row)

    def edges_of(self, shard: str, keys: Sequence[str]) -> Iterator[Edge]:
        """Yield the edges to the dependents of tasks of a shard; `keys` are in order.

        Edges that lie close together are read as one range.
        """
        if len(keys) == 1:
            return self.edges(keys[0])
        return _distinct(self._near(shard, RowKind.EDGE, keys, _EDGES))

    def edges(self, key: str) -> Iterator[Edge]:
        """Yield the edges to a task's dependents."""
        return _distinct(self._scan(shard(key), f"e|{key}|"))

    def fence(self, request: str, shard: str) -> WriteFence | None:
        """Return a request's write fence in a shard."""
        row = self._store.get(TABLE, shard, f"p|{request}")
        return WRITE_FENCE.load(row) if row else None

    def events(
        self, shard: str, limit: int, after: CompletionEvent | None = None
    ) -> list[CompletionEvent]:
        """Return the first completion events of a shard, or those after one."""
        start, end = prefix_range("o|")
        start = f"{after.row}\0" if after else start
        return [
            COMPLETION_EVENT.load(row)
            for row in self._store.scan(TABLE, shard, start, end, limit=limit)
        ]

    def ready(
        self,
        shard: str,
        limit: int,
        request: str = "",
        after: ReadyMarker | None = None,
        *,
        skip: bool = False,
    ) -> list[ReadyMarker]:
        """Return the first ready tasks of a shard, by request, or those of one request.

        If `after` is given, the tasks after that marker are returned; with `skip`, those after all
        tasks of that marker's request.
        """
        start, end = prefix_range(f"r|{request}|" if request else "r|")
        if after:
            start = f"r|{after.request}" + ("}" if skip else f"|{after.key}\0")
        return [READY.load(row) for row in self._store.scan(TABLE, shard, start, end, limit=limit)]

    def running(self, shard: str) -> Iterator[RunningMarker]:
        """Yield the running tasks of a shard."""
        return map(RUNNING.load, self._scan(shard, "x|"))

    def begun(
        self, shard: str, limit: int | None = None
    ) -> tuple[list[RunningMarker], list[LaterMarker]]:
        """Return the tasks that are running and those that are ready later, the soonest first.

        The markers of the two are neighbours, and read as one range. `limit` is the most of both
        together.
        """
        found = list(self._store.scan(TABLE, shard, "x|", "z}", limit=limit))
        running = [RUNNING.load(row) for row in found if row.row.startswith("x|")]
        return running, [LATER.load(row) for row in found if row.row.startswith("z|")]

    def _scan(self, shard: str, prefix: str) -> Iterator[Row]:
        return self._store.scan(TABLE, shard, *prefix_range(prefix))
