"""The table `requests`: one row per request, with its progress; markers and lists of them.

Its RowKeys are spelt here alone. By RowKey, in one partition:

| row | is |
|---|---|
| `q|id` | the request |
| `l|id` | it has not ended, or has an order that is not obeyed yet |
| `d|id` | it has ended and still has interests that it needs no more |
| `y|id` | how many sections of its plan are written |
| `i|list|time|id` | its place in a list: of all requests, of an owner, label or group |
| `manager` | the lease of the manager that acts |
| `restoring` | a backup is being restored |
| `schema` | how rows are written (`row_schema.py`) |
| `s|id` | it stands: it is to go on when the archive has later days |
| `g|key`, `m|person|key` | a group, and that somebody is in it (`group_table.py`) |

A list's row carries what lists show, so that a page is one range of rows, newest first: `time`
counts down. It is written in the transaction that writes the request's own row, under whose ETag it
is therefore kept. The partition `holdings` has what the archive holds.
"""

import json
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from tasks.bag.model import NO_USE, Phase, RequestOrder, RequestState, Use
from tasks.requests.plan import Gap, PlannedWindow
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec, Form, cut, in_json, up_to_a_word
from tasks.storage.store import (
    Delete,
    Entity,
    Insert,
    LocalStore,
    Operation,
    Replace,
    Row,
    Store,
    Upsert,
)
from tasks.storage.updates import hashed, prefix_range

TABLE = "requests"
PARTITION = "requests"
HOLDINGS = "holdings"  # another partition
HELD, ASKED = "held", "asked"  # its rows
MANAGER, RESTORING, WRITTEN = "manager", "restoring", "schema"
GAPS_ON_ROW = 50
INLINE = 60_000  # bytes of a request document kept on its row
_FEW = 32  # requests whose rows are read one by one
_LISTED = 1000  # rows of a list that are looked through in place of that: one page of Azure's
_NEWEST = 10**13  # milliseconds; RowKeys of lists count down from it


@dataclass(frozen=True, kw_only=True)
class PhaseCount:
    """Count a phase's tasks of one request.

    `done` includes `reused`: tasks that were DONE before the request asked for them. `cancelled`
    counts the tasks that were unfinished when the request was cancelled or failed.
    """

    total: int = 0
    done: int = 0
    failed: int = 0
    running: int = 0
    reused: int = 0
    cancelled: int = 0

    @property
    def left(self) -> int:
        """Number of tasks that have neither ended nor been cancelled."""
        return self.total - self.done - self.failed - self.cancelled


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What planning counted."""

    granules: int = 0
    tasks: int = 0
    gaps: int = 0
    reused: int = 0
    size: int = 0  # bytes to fetch
    exact: bool = True  # or reuse is known of a sample only
    stored: int = 0  # bytes to keep, at most
    busy: float = 0.0  # expected seconds of slots, by what such tasks took
    similar: int = 0  # tasks in `busy` by what similar ones took
    unmeasured: int = 0  # tasks of which nothing similar was timed, not in `busy`
    elapsed: float = 0.0  # expected seconds with the slots there were; 0: unknown
    cost: float = 0.0  # expected, in the prices' currency, with a month of storage
    currency: str = ""  # "": there were no prices, and `cost` is 0
    use: Use = NO_USE  # expected
    windows: tuple[PlannedWindow, ...] = ()  # the first of a reduction's
    window_count: int = 0  # all of them


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How far a request is before its tasks run.

    It counts days searched while PLANNING, tasks written while WRITING.
    """

    done: int = 0
    total: int
    unit: Literal["days", "tasks"]

    @property
    def text(self) -> str:
        """Say it in words: "12 of 366 days"."""
        return f"{self.done:,} of {self.total:,} {self.unit}"


class Rehearsal(StrEnum):
    """How far the rehearsal of a request's package is."""

    NONE = "none"
    DUE = "due"  # it is planned
    RUNS = "runs"  # it is all that runs; HELD: it has failed
    OVER = "over"


@dataclass(frozen=True, kw_only=True)
class RequestRow:
    """A request as everybody sees it. `document` is the request as JSON text."""

    id: str
    owner: str
    state: RequestState
    submitted: float
    title: str = ""
    document: str = ""
    ended: float = 0.0
    order: RequestOrder | None = None
    paused: bool = False
    dry_run: bool = False
    preparation: Preparation | None = None  # while PLANNING or WRITING
    phases: dict[Phase, PhaseCount] = field(default_factory=dict)
    outputs: int = 0  # results planned
    delivered: int = 0  # results made
    gaps: tuple[Gap, ...] = ()  # the first 50; all of them by `gaps()`
    gap_count: int = 0
    preview: Preview = field(default_factory=Preview)
    notes: tuple[str, ...] = ()  # what planning has to say to the scientist
    message: str = ""
    attempts: int = 0  # tries to plan it
    epoch: int = 0
    retry_orders: tuple[str, ...] = ()  # `retrying.Scope`s whose failures are to be tried again
    retry_of: str = ""  # the ended request that this one tries again
    retried_as: str = ""  # the request that tries this one again
    retried: bool = False  # something of it was to be tried again while it ran
    rehearsal: Rehearsal = Rehearsal.NONE
    package: str = ""  # the version that its reduction runs, and the digest
    response: str = ""  # of a job of OGC API - Processes: "raw" or "document"
    labels: tuple[str, ...] = ()
    group: str = ""  # the key of the one whose members may read it
    standing: int = 0  # days after which it goes on with new data, at the earliest; 0: never
    continues: str = ""  # the request that it goes on from
    continued_as: str = ""  # the request that goes on from it
    links: int = 0  # how often the links that show it were ended
    etag: str = field(default="", compare=False)


def _document(text: str) -> bytes:
    """Return what a row has of a document: nothing of one over 60 kB."""
    data = text.encode()
    return data if len(data) <= INLINE else b""


def _gaps(some: tuple[Gap, ...]) -> str:
    return json.dumps([[gap.what[:200], gap.reason[:200]] for gap in some[:GAPS_ON_ROW]])


def _load_gaps(text: str | bytes) -> tuple[Gap, ...]:
    return tuple(Gap(what=what, reason=reason) for what, reason in json.loads(text))


REQUEST = Codec(
    RequestRow,
    "request",
    {
        "document": Form(write=_document, read=bytes.decode),
        "preparation": in_json(Preparation | None),
        "phases": in_json(dict[Phase, PhaseCount]),
        "gaps": Form(write=_gaps, read=_load_gaps),
        "preview": in_json(Preview),
        "notes": in_json(
            tuple[str, ...], lambda notes: tuple(up_to_a_word(note, 300) for note in notes[:20])
        ),
        "message": cut(2000),
        "retry_orders": in_json(tuple[str, ...]),
        "package": cut(500, sparse=True),
        "response": cut(20, sparse=True),
        "labels": in_json(tuple[str, ...], sparse=True),
        "group": Form(sparse=True),
        "standing": Form(sparse=True),
        "continues": Form(sparse=True),
        "continued_as": Form(sparse=True),
        "links": Form(sparse=True),
        "rehearsal": Form(write=str, read=Rehearsal, sparse=True),
    },
)


@dataclass(frozen=True, kw_only=True)
class _Marker:
    """A row that says something of a request by being there."""

    id: str


@dataclass(frozen=True, kw_only=True)
class _Written:
    """How many sections of a request's plan are in the table `tasks`, and seen to."""

    sections: int = 0


_MARKER = Codec(_Marker, "marker")
_WRITTEN = Codec(_Written, "written")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The ETags that the first `limit` rows of a range had."""

    start: str
    end: str
    limit: int
    etags: tuple[str, ...]

    def are_same(self, store: LocalStore) -> bool:
        """Tell whether the rows have these ETags still; raise StoreError."""
        found = store.etags(TABLE, PARTITION, self.start, self.end, self.limit)
        return found == self.etags


class RequestTable:
    """The table `requests` in a store. Every call may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, row: str) -> Row | None:
        """Return a row."""
        return self._store.get(TABLE, PARTITION, row)

    def update(self, clock: Clock, row: str, change: updates.Change) -> None:
        """Change a row under its ETag, as `updates.update`."""
        updates.update(self._store, clock, TABLE, PARTITION, row, change)

    def request(self, request: str) -> RequestRow | None:
        """Return a request's row, without a document over 60 kB."""
        found = self.get(request_row(request))
        return REQUEST.load(found) if found else None

    def etags(self, requests: Collection[str]) -> dict[str, str]:
        """Return a mark of each request that is there, which changes whenever its row does.

        Many requests are looked for in the list of the newest ones. A change of a request's gaps
        and notes alone may not be told: they change together with its state.
        """
        found: dict[str, str] = {}
        if len(requests) > _FEW:
            start, end = prefix_range(list_of(None))
            listed = self._store.scan(TABLE, PARTITION, start, end, _LISTED)
            found = {row.row.rpartition("|")[2]: row.etag for row in listed}
        for request in requests:
            if request not in found and (row := self.get(request_row(request))) is not None:
                found[request] = row.etag
        return {request: found[request] for request in requests if request in found}

    def live(self) -> list[str]:
        """Return the ids of all live requests.

        A request is live if it has not ended, or if it has an order that has not been obeyed yet.
        """
        return [_MARKER.load(row).id for row in self._scan("l|")]

    def standing(self) -> list[str]:
        """Return the ids of the requests that are to go on with new data."""
        return [_MARKER.load(row).id for row in self._scan("s|")]

    def unsettled(self) -> list[str]:
        """Return the ids of ended requests that still have interests they need no more."""
        return [_MARKER.load(row).id for row in self._scan("d|")]

    def settled(self, clock: Clock, request: str) -> None:
        """Note that an ended request has only the interests that it needs."""

        def change(found: Row | None) -> tuple[Operation, ...]:
            return () if found is None else (Delete(row=found.row, etag=found.etag),)

        self.update(clock, f"d|{request}", change)

    def page(self, of: str, limit: int, after: RequestRow | None) -> Iterator[RequestRow]:
        """Yield the requests of a list, newest first; only those older than `after`, if given."""
        start, end = prefix_range(of)
        if after is not None:
            # "!" comes before all characters of an id.
            start = f"{of}{_time(after)}|{after.id}!"
        return map(REQUEST.load, self._store.scan(TABLE, PARTITION, start, end, limit))

    def sections_written(self, request: str) -> int:
        """Return how many sections of a request's plan are in the table `tasks`, and seen to."""
        row = self.get(f"y|{request}")
        return _WRITTEN.load(row).sections if row else 0

    def note_written(self, clock: Clock, request: str, sections: int) -> None:
        """Note how many sections of a request's plan are in the table `tasks`, and seen to."""
        row = f"y|{request}"
        written = Upsert(row=row, entity=_WRITTEN.dump(_Written(sections=sections)))
        self.update(clock, row, lambda _found: (written,))

    def request_rows(self) -> Iterator[Row]:
        """Yield the rows of all requests as they are stored."""
        return self._scan("q|")

    def rows_beside(self, settled: Container[str]) -> Iterator[Row]:
        """Yield the rows that no request's row implies: see `implied_rows`.

        What is noted of requests is yielded of those that are `settled`.
        """
        for start, end in (("", "i|"), ("i}", "q|"), ("q}", "\uffff")):
            for row in self._store.scan(TABLE, PARTITION, start, end):
                kind, _, name = row.row.partition("|")
                if kind not in ("l", "s") and (kind not in ("d", "y") or name in settled):
                    yield row

    def _scan(self, prefix: str) -> Iterator[Row]:
        return self._store.scan(TABLE, PARTITION, *prefix_range(prefix))


def request_row(request: str) -> str:
    """Return the RowKey of a request."""
    return f"q|{request}"


def seen_row(row: RequestRow) -> Seen:
    """Return by what to tell later whether a request's row is the same."""
    name = request_row(row.id)
    return Seen(start=name, end=f"{name}\0", limit=1, etags=(row.etag,))


def seen_in_list(of: str, limit: int, rows: Iterable[RequestRow]) -> Seen:
    """Return by what to tell later whether the first rows of a list are the same."""
    start, end = prefix_range(of)
    return Seen(start=start, end=end, limit=limit, etags=tuple(row.etag for row in rows))


def insert_request(row: RequestRow) -> tuple[Operation, ...]:
    """Write a new request, live and in its lists."""
    return (
        Insert(row=request_row(row.id), entity=REQUEST.dump(row)),
        Insert(row=f"l|{row.id}", entity=_MARKER.dump(_Marker(id=row.id))),
        *list_operations(row),
        *([_stands(row)] if row.standing and not row.dry_run else []),
    )


def replace_request(old: RequestRow, new: RequestRow) -> tuple[Operation, ...]:
    """Write a request over the row that was read, with its lists and markers."""
    operations: list[Operation] = [
        Replace(row=request_row(new.id), entity=REQUEST.dump(new), etag=old.etag)
    ]
    listed, before = list_rows(new), list_rows(old)
    if listed != before:
        operations += [Upsert(row=name, entity=entity) for name, entity in listed.items()]
        operations += [Delete(row=name) for name in before.keys() - listed.keys()]
    if old.standing and not new.standing:
        operations.append(Delete(row=f"s|{new.id}"))
    elif new.standing and not old.standing and not new.dry_run:
        operations.append(_stands(new))
    if new.state.ended and not old.state.ended:
        operations.append(Delete(row=f"l|{new.id}"))
        if not new.dry_run:
            marker = _MARKER.dump(_Marker(id=new.id))
            operations.append(Upsert(row=f"d|{new.id}", entity=marker))
    return tuple(operations)


def implied_rows(row: RequestRow) -> dict[str, Entity]:
    """Return the rows that a request has beside its own: places in lists, and markers."""
    marker = _MARKER.dump(_Marker(id=row.id))
    found = list_rows(row)
    if not row.state.ended:
        found[f"l|{row.id}"] = marker
    if row.standing and not row.dry_run:
        found[f"s|{row.id}"] = marker
    return found


def list_rows(row: RequestRow) -> dict[str, Entity]:
    """Return a request's rows in the lists: a function of its own row alone."""
    if row.dry_run:
        return {}
    lists = [list_of(None), list_of(row.owner)]
    lists += [list_of(row.owner, label=label) for label in row.labels]
    lists += [list_of(None, group=row.group)] if row.group else []
    place = f"{_time(row)}|{row.id}"
    return dict.fromkeys((each + place for each in lists), _summary(row))


def _summary(row: RequestRow) -> Entity:
    """Return what the lists say of a request."""
    return REQUEST.dump(replace(row, document="", gaps=(), notes=()))


def list_operations(row: RequestRow) -> tuple[Operation, ...]:
    """Write a request's rows in the lists."""
    return tuple(Upsert(row=name, entity=entity) for name, entity in list_rows(row).items())


def _stands(row: RequestRow) -> Operation:
    return Upsert(row=f"s|{row.id}", entity=_MARKER.dump(_Marker(id=row.id)))


def list_of(owner: str | None, *, label: str = "", group: str = "") -> str:
    """Return the part of a RowKey that names a list.

    It is that of a group, of an owner's requests with a label, of an owner, or of all.
    """
    if group:
        return f"i|group {group}|"
    if owner is None:
        return "i|all|"
    return f"i|{hashed(f'{owner} {label}' if label else owner)}|"


def _time(row: RequestRow) -> str:
    return f"{_NEWEST - int(row.submitted * 1000):013d}"
