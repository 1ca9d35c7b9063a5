"""The table `requests`: one row per request, with its progress; markers and lists of them.

All in one partition. By RowKey: `q|id` the request; `l|id`: the request has not ended; `d|id`: the
request has ended but its interests in tasks have not been released yet; `i|...` its places in the
lists (`request_lists`); `n|time|id` a request of an earlier build, which is in no list yet.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from tasks.errors import FencedError, SwathmillError
from tasks.model.keys import SHARDS
from tasks.model.model import Phase, RequestState
from tasks.model.plan import Gap
from tasks.request.request import Request, dump_request, parse_request
from tasks.storage import blobs
from tasks.storage.schema import SCHEMA, current
from tasks.storage.store import Delete, Entity, Insert, Operation, Replace, Row, Store, Upsert
from tasks.tables import rows, updates
from tasks.tables.request_lists import Listed, span
from tasks.tables.rows import Want
from tasks.tables.services import Services, new_id

TABLE = "requests"
PARTITION = "requests"
GAPS_ON_ROW = 50
ORDERS = ("", "cancel", "pause", "resume", "confirm")
_INLINE = 60_000  # bytes of a request document kept on its row


@dataclass(frozen=True, kw_only=True)
class PhaseCount:
    """A phase's tasks of one request. `done` includes `reused`, which were DONE before it asked;
    `cancelled` are those that were unfinished when the request was cancelled or failed."""

    total: int = 0
    done: int = 0
    failed: int = 0
    running: int = 0
    reused: int = 0
    cancelled: int = 0

    @property
    def left(self) -> int:
        """Tasks that have not ended, and are not cancelled."""
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


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How far a request is before its tasks run: days searched while PLANNING, tasks written while
    WRITING."""

    done: int = 0
    total: int
    unit: Literal["days", "tasks"]

    @property
    def text(self) -> str:
        """Say it in words: "12 of 366 days"."""
        return f"{self.done:,} of {self.total:,} {self.unit}"


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
    order: str = ""
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
    etag: str = field(default="", compare=False)


class NoSuchRequestError(SwathmillError):
    """There is no request of this id."""

    def __init__(self, request: str) -> None:
        super().__init__(f"there is no request {request}; list them with `swathmill status`")


def submit(
    services: Services,
    owner: str,
    request: Request,
    *,
    request_id: str | None = None,
    dry_run: bool = False,
    retry_of: str = "",
) -> str:
    """Store a new request and tell the manager. With an id given before, nothing happens anew.

    `retry_of` is the ended request that it tries again.

    Raises:
        FencedError: the id belongs to another owner's request.
        ValueError: the id has characters a row key cannot have.
    """
    now = services.clock.now()
    if request_id is not None and not _well_formed(request_id):
        raise ValueError(f"request id {request_id!r} must be 1 to 40 letters, digits, - or _")
    name = (
        request_id
        or f"{dt.datetime.fromtimestamp(now, dt.UTC):%y%m%d}-" + new_id(services.random)[:10]
    )
    document = dump_request(request)
    if len(document.encode()) > _INLINE:
        services.blobs.put_bytes(blobs.PLANS, _document_blob(name), document.encode())
    row = RequestRow(
        id=name,
        owner=owner,
        state=RequestState.SUBMITTED,
        submitted=now,
        title=request.title,
        document=document,
        dry_run=dry_run,
        retry_of=retry_of,
    )
    operations = (
        Insert(row=f"q|{name}", entity=dump(row)),
        Insert(row=f"l|{name}", entity={"schema": SCHEMA, "id": name}),
        *_listing(row),
    )

    def once(found: Row | None) -> tuple[Operation, ...]:
        if found is None:
            return operations
        if load_row(found).owner != owner:
            raise FencedError(f"request id {name} is taken; choose another")
        return ()

    updates.update(services.store, services.clock, TABLE, PARTITION, f"q|{name}", once)
    services.queue.send(name)
    return name


def load(services: Services, request: str) -> RequestRow:
    """A request's row with its document; NoSuchRequestError when there is none."""
    row = row_of(services, request)
    if not row.document:
        text = services.blobs.get_bytes(blobs.PLANS, _document_blob(request)).decode()
        row = replace(row, document=text)
    return row


def row_of(services: Services, request: str) -> RequestRow:
    """A request's row, without a document over 60 kB; NoSuchRequestError when there is none."""
    found = services.store.get(TABLE, PARTITION, f"q|{request}")
    if found is None:
        raise NoSuchRequestError(request)
    return load_row(found)


def document_of(row: RequestRow) -> Request:
    """The request of a row that `load` returned."""
    return parse_request(json.loads(row.document))


def list_requests(
    services: Services,
    owner: str | None = None,
    limit: int = 100,
    after: RequestRow | None = None,
) -> Iterator[RequestRow]:
    """Requests, newest first, of one owner or of all; those older than `after`, if it is given.

    Dry runs are in no list. Document, gaps and notes are left out.
    """
    start, end = span(owner, None if after is None else _place(after))
    for row in services.store.scan(TABLE, PARTITION, start, end, limit):
        yield load_row(row)


def list_rows(row: RequestRow) -> dict[str, Entity]:
    """A request's rows in the lists: a function of its own row alone."""
    return {} if row.dry_run else dict.fromkeys(_place(row).rows, _summary(row))


def complete_lists(services: Services) -> int:
    """Put the requests of an earlier build into the lists; how many there were. May be repeated."""
    number = 0
    for marker in services.store.scan(TABLE, PARTITION, *rows.prefix_range("n|")):
        _list_earlier(services, str(marker.entity["id"]), marker.row)
        number += 1
    return number


def _list_earlier(services: Services, request: str, marker: str) -> None:
    def once(found: Row | None) -> tuple[Operation, ...]:
        if services.store.get(TABLE, PARTITION, marker) is None:
            return ()
        if found is None:
            return (Delete(row=marker),)
        row = load_row(found)
        same = Replace(row=found.row, entity=found.entity, etag=found.etag)
        return (same, Delete(row=marker), *_listing(row))

    updates.update(services.store, services.clock, TABLE, PARTITION, f"q|{request}", once)


def live_requests(store: Store) -> list[str]:
    """The ids of all requests that have not ended, or have an order that is not obeyed yet."""
    return [r.row[2:] for r in store.scan(TABLE, PARTITION, *rows.prefix_range("l|"))]


def ended_requests(store: Store) -> list[str]:
    """The ids of requests that have ended and still want what they need no more."""
    return [r.row[2:] for r in store.scan(TABLE, PARTITION, *rows.prefix_range("d|"))]


def settled(services: Services, request: str) -> None:
    """An ended request wants only what it needs. Raises StoreError."""

    def change(found: Row | None) -> tuple[Operation, ...]:
        return () if found is None else (Delete(row=found.row, etag=found.etag),)

    updates.update(services.store, services.clock, TABLE, PARTITION, f"d|{request}", change)


def order(services: Services, request: str, order: str) -> None:
    """Cancel a request, or ask the manager to pause or resume one, or confirm one that waits.

    One that has ended or is being cancelled stays as it is; one that waits can be confirmed or
    cancelled only, and only that one can be confirmed. A request of which nothing has begun is
    cancelled at once; any other is CANCELLING from now on, until the manager has withdrawn what is
    unfinished.

    Raises:
        NoSuchRequestError: there is none of this id.
        ValueError: there is no such order.
    """
    if order not in ORDERS[1:]:
        raise ValueError(f"there is no order {order!r}; there are {', '.join(ORDERS[1:])}")

    now = services.clock.now()

    def change(row: RequestRow) -> RequestRow:
        if row.state.ended or row.state is RequestState.CANCELLING:
            return row
        if order == "cancel":
            return _cancelled(row, now)
        held = row.state is RequestState.HELD
        if held != (order == "confirm"):
            return row
        return replace(row, order=order)

    change_request(services, request, change)
    services.queue.send(request)


def _cancelled(row: RequestRow, now: float) -> RequestRow:
    """A live request with the order to cancel it. Before its plan is written it wants no task, and
    none can be added: whoever plans it writes only over the state that it found."""
    match row.state:
        case RequestState.SUBMITTED:
            message = "cancelled before it was planned"
        case RequestState.PLANNING:
            message = "cancelled while it was being planned"
        case RequestState.HELD:
            message = "cancelled before it was confirmed"
        case _:
            return replace(row, state=RequestState.CANCELLING, order="", preparation=None)
    return replace(
        row,
        state=RequestState.CANCELLED,
        order="",
        message=message,
        ended=now,
        preparation=None,
    )


def change_request(
    services: Services, request: str, change: Callable[[RequestRow], RequestRow]
) -> RequestRow:
    """Change a request's row under its ETag; `change` sees each reading and may raise.

    Raises:
        NoSuchRequestError: there is none of this id.
    """
    result: list[RequestRow] = []

    def once(found: Row | None) -> tuple[Operation, ...]:
        if found is None:
            raise NoSuchRequestError(request)
        old = load_row(found)
        new = change(old)
        result[:] = [new]
        if new == old:
            return ()
        operations: list[Operation] = [
            Replace(row=f"q|{request}", entity=dump(new), etag=found.etag)
        ]
        if _summary(new) != _summary(old):
            operations += _listing(new)
        if new.state.ended and not old.state.ended:
            operations.append(Delete(row=f"l|{request}"))
            if not new.dry_run:
                marker: Entity = {"schema": SCHEMA, "id": request}
                operations.append(Upsert(row=f"d|{request}", entity=marker))
        return tuple(operations)

    updates.update(services.store, services.clock, TABLE, PARTITION, f"q|{request}", once)
    return result[0]


def wants(services: Services, request: str) -> Iterator[Want]:
    """All a request wants, with what became of it."""
    for shard in SHARDS:
        found = services.store.scan(rows.TABLE, shard, *rows.prefix_range(f"w|{request}|"))
        yield from (rows.load_want(row) for row in found)


def results(services: Services, request: str) -> Iterator[Want]:
    """The results that are there, each with its files and its folder (`output`), by output. What
    stood in for one that was made after all is left out."""
    found = [w for w in wants(services, request) if w.output and w.outcome == "done"]
    stood_in = {key for want in found for key in want.successors}
    yield from sorted((w for w in found if w.key not in stood_in), key=lambda w: (w.output, w.name))


def failures(services: Services, request: str) -> Iterator[Want]:
    """What failed or could not be made, by phase and name."""
    order = list(Phase)
    found = [w for w in wants(services, request) if w.outcome in ("failed", "gap")]
    yield from sorted(found, key=lambda w: (order.index(w.phase), w.name))


def gaps(services: Services, row: RequestRow) -> tuple[Gap, ...]:
    """All that an ended request lacks, and why."""
    if row.gap_count <= len(row.gaps):
        return row.gaps
    text = services.blobs.get_bytes(blobs.RESULTS, gaps_blob(row.id))
    return tuple(Gap(what=what, reason=reason) for what, reason in json.loads(text))


def gaps_blob(request: str) -> str:
    """The blob in `results` with all gaps of a request."""
    return f"{request}/gaps.json"


def dump(row: RequestRow) -> Entity:
    """The row's entity."""
    document = row.document.encode()
    return {
        "schema": SCHEMA,
        "id": row.id,
        "owner": row.owner,
        "title": row.title,
        "state": row.state.value,
        "document": document if len(document) <= _INLINE else b"",
        "submitted": row.submitted,
        "ended": row.ended,
        "order": row.order,
        "paused": row.paused,
        "dry_run": row.dry_run,
        "preparation": json.dumps(row.preparation and asdict(row.preparation)),
        "phases": json.dumps({p.value: asdict(c) for p, c in row.phases.items()}),
        "outputs": row.outputs,
        "delivered": row.delivered,
        "gaps": json.dumps([[g.what[:200], g.reason[:200]] for g in row.gaps[:GAPS_ON_ROW]]),
        "gap_count": row.gap_count,
        "preview": json.dumps(asdict(row.preview)),
        "notes": json.dumps([note[:300] for note in row.notes[:20]]),
        "message": row.message[:2000],
        "attempts": row.attempts,
        "epoch": row.epoch,
        "retry_orders": json.dumps(row.retry_orders),
        "retry_of": row.retry_of,
        "retried_as": row.retried_as,
        "retried": row.retried,
    }


def load_row(row: Row) -> RequestRow:
    """The request of a `q|` row; a document over 60 kB is left out."""
    e = current("request", row)
    document = e["document"]
    phases = json.loads(str(e["phases"]))
    preparation = json.loads(str(e["preparation"]))
    return RequestRow(
        id=str(e["id"]),
        owner=str(e["owner"]),
        title=str(e["title"]),
        state=RequestState(str(e["state"])),
        document=document.decode() if isinstance(document, bytes) else "",
        submitted=float(e["submitted"]),
        ended=float(e["ended"]),
        order=str(e["order"]),
        paused=bool(e["paused"]),
        dry_run=bool(e["dry_run"]),
        preparation=Preparation(**preparation) if preparation else None,
        phases={Phase(p): PhaseCount(**c) for p, c in phases.items()},
        outputs=int(e["outputs"]),
        delivered=int(e["delivered"]),
        gaps=tuple(Gap(what=w, reason=r) for w, r in json.loads(str(e["gaps"]))),
        gap_count=int(e["gap_count"]),
        preview=Preview(**json.loads(str(e["preview"]))),
        notes=tuple(json.loads(str(e["notes"]))),
        message=str(e["message"]),
        attempts=int(e["attempts"]),
        epoch=int(e["epoch"]),
        retry_orders=tuple(json.loads(str(e["retry_orders"]))),
        retry_of=str(e["retry_of"]),
        retried_as=str(e["retried_as"]),
        retried=bool(e.get("retried", False)),
        etag=row.etag,
    )


def _place(row: RequestRow) -> Listed:
    return Listed(id=row.id, owner=row.owner, submitted=row.submitted)


def _summary(row: RequestRow) -> Entity:
    """What the lists say of a request."""
    return dump(replace(row, document="", gaps=(), notes=()))


def _listing(row: RequestRow) -> tuple[Operation, ...]:
    return tuple(Upsert(row=name, entity=entity) for name, entity in list_rows(row).items())


def _document_blob(request: str) -> str:
    return f"{request}.request.json"


def _well_formed(request: str) -> bool:
    plain = request.replace("-", "").replace("_", "")
    return len(request) <= 40 and plain.isascii() and plain.isalnum()
