"""What can be done with requests: submit, order, list and change them, and read what they have."""

import datetime as dt
import itertools
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from tasks.accounts.group_table import name_of
from tasks.bag.model import Phase, RequestOrder, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime, new_id
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import Interest, in_effect
from tasks.errors import FencedError, SwathmillError
from tasks.messages.wakeups import LOOK
from tasks.request.document import Request, dump_request, parse_request
from tasks.request.heading import heading
from tasks.requests.plan import Gap
from tasks.requests.request_table import (
    INLINE,
    REQUEST,
    RequestRow,
    RequestTable,
    insert_request,
    list_of,
    replace_request,
    request_row,
)
from tasks.storage import blobs
from tasks.storage.store import Operation, Row

_PAGE = 1000  # rows, as one answer has


class NoSuchRequestError(SwathmillError):
    """There is no request of this id."""

    def __init__(self, request: str) -> None:
        super().__init__(f"there is no request {request}; list them with `swathmill status`")


def submit(
    runtime: Runtime,
    owner: str,
    request: Request,
    *,
    request_id: str | None = None,
    dry_run: bool = False,
    retry_of: str = "",
    response: str = "",
    continues: str = "",
    group: str = "",
) -> str:
    """Store a new request and tell the manager. With an id given before, nothing happens again.

    `retry_of` is the ended request that it tries again, `continues` the one that it goes on from
    with new data, `response` how a job wants its results, `group` the key of the group
    that the document names.

    Raises:
        FencedError: the id belongs to another owner's request.
        ValueError: the id has characters a row key cannot have.
    """
    now = runtime.clock.now()
    if request_id is not None and not _well_formed(request_id):
        raise ValueError(f"request id {request_id!r} must be 1 to 40 letters, digits, - or _")
    name = (
        request_id
        or f"{dt.datetime.fromtimestamp(now, dt.UTC):%y%m%d}-" + new_id(runtime.random)[:10]
    )
    document = dump_request(request)
    if len(document.encode()) > INLINE:
        runtime.blobs.put_bytes(blobs.PLANS, _document_blob(name), document.encode())
    row = RequestRow(
        id=name,
        owner=owner,
        state=RequestState.SUBMITTED,
        submitted=now,
        title=heading(request),
        document=document,
        dry_run=dry_run,
        retry_of=retry_of,
        response=response,
        labels=request.labels,
        group=group or request.group,
        standing=request.standing,
        continues=continues,
    )

    def once(found: Row | None) -> tuple[Operation, ...]:
        if found is None:
            return insert_request(row)
        if REQUEST.load(found).owner != owner:
            raise FencedError(f"request id {name} is taken; choose another")
        return ()

    RequestTable(runtime.store).update(runtime.clock, request_row(name), once)
    wake(runtime, name)
    return name


def wake(runtime: Runtime, request: str) -> None:
    """Tell the manager to look at a request; both messages may be lost."""
    runtime.queue.send(request)
    runtime.wakeups.publish(LOOK)


def load(runtime: Runtime, request: str) -> RequestRow:
    """Load a request's row with its document; raise NoSuchRequestError when there is none."""
    row = row_of(runtime, request)
    if not row.document:
        text = runtime.blobs.get_bytes(blobs.PLANS, _document_blob(request)).decode()
        row = replace(row, document=text)
    return row


def row_of(runtime: Runtime, request: str) -> RequestRow:
    """Load a request's row, without a document over 60 kB.

    Raises NoSuchRequestError when there is none.
    """
    found = RequestTable(runtime.store).request(request)
    if found is None:
        raise NoSuchRequestError(request)
    return found


def document_of(row: RequestRow) -> Request:
    """Return the request of a row that `load` returned."""
    return parse_request(json.loads(row.document))


def repeated(row: RequestRow, document: Request, *, standing: int = 0) -> Request:
    """Return the document with which a request is submitted again, with labels and group of now.

    It has the group's name; the key goes beside it.
    """
    as_now = {"labels": row.labels, "group": name_of(row.group), "standing": standing}
    return document.model_copy(update=as_now)


def list_requests(
    runtime: Runtime,
    owner: str | None = None,
    limit: int = 100,
    after: RequestRow | None = None,
    *,
    label: str = "",
    group: str = "",
) -> Iterator[RequestRow]:
    """Yield the requests of one owner or of all, or of a group, newest first.

    Of an owner's requests, only those with `label` are yielded, if it is given. Only requests older
    than `after` are yielded, if it is given. Dry runs are in no list. Document, gaps and notes are
    left out.
    """
    return RequestTable(runtime.store).page(list_of(owner, label=label, group=group), limit, after)


def order(runtime: Runtime, request: str, order: RequestOrder) -> None:
    """Cancel a request, or ask the manager to pause or resume one, or confirm one that waits.

    One that has ended or is being cancelled stays as it is; one that waits can be confirmed or
    cancelled only, and only that one can be confirmed. A request of which nothing has begun is
    cancelled at once; any other is CANCELLING from now on, until the manager has withdrawn what is
    unfinished.

    Raises:
        NoSuchRequestError: there is none of this id.
    """
    now = runtime.clock.now()

    def change(row: RequestRow) -> RequestRow:
        if row.state.ended or row.state is RequestState.CANCELLING:
            return row
        if order is RequestOrder.CANCEL:
            return _cancelled(row, now)
        held = row.state is RequestState.HELD
        if held != (order is RequestOrder.CONFIRM):
            return row
        return replace(row, order=order)

    change_request(runtime, request, change)
    wake(runtime, request)


def _cancelled(row: RequestRow, now: float) -> RequestRow:
    """Return a live request with the order to cancel it.

    Before its plan is written, the request has no interest in any task, and none can be added: a
    manager that plans it writes the plan only if the state is still the one that it found.
    """
    match row.state:
        case RequestState.SUBMITTED:
            message = "cancelled before it was planned"
        case RequestState.PLANNING:
            message = "cancelled while it was being planned"
        case RequestState.HELD:
            message = "cancelled before it was confirmed"
        case _:
            return replace(
                row, state=RequestState.CANCELLING, order=None, preparation=None, standing=0
            )
    return replace(
        row,
        state=RequestState.CANCELLED,
        order=None,
        message=message,
        ended=now,
        preparation=None,
        standing=0,
        phases={
            phase: replace(count, cancelled=count.cancelled + count.left)
            for phase, count in row.phases.items()
        },
    )


def change_request(
    runtime: Runtime, request: str, change: Callable[[RequestRow], RequestRow]
) -> RequestRow:
    """Change a request's row under its ETag; `change` sees each reading and may raise.

    Raises:
        NoSuchRequestError: there is none of this id.
    """
    result: list[RequestRow] = []

    def once(found: Row | None) -> tuple[Operation, ...]:
        if found is None:
            raise NoSuchRequestError(request)
        old = REQUEST.load(found)
        new = change(old)
        result[:] = [new]
        return () if new == old else replace_request(old, new)

    RequestTable(runtime.store).update(runtime.clock, request_row(request), once)
    return result[0]


def interests(runtime: Runtime, request: str) -> Iterator[Interest]:
    """Yield all interests of a request, with their outcomes, a page of each shard in turn.

    So as many rows come in a second as all partitions give, not as one does.
    """
    left = deque(runtime.tasks.interests(request, shard) for shard in SHARDS)
    while left:
        page = list(itertools.islice(left[0], _PAGE))
        yield from page
        left.rotate(-1)
        if len(page) < _PAGE:
            left.pop()


def notable(runtime: Runtime, request: str) -> list[Interest]:
    """Return the interests that readers ask for: in results, and in what failed."""
    return in_effect([one for shard in SHARDS for one in runtime.tasks.notable(request, shard)])


def results(runtime: Runtime, request: str) -> Iterator[Interest]:
    """Yield the results that exist, as `results_in`."""
    yield from results_in(notable(runtime, request))


def results_in(notable: Collection[Interest]) -> list[Interest]:
    """Return the results that exist, each with its files and its folder (`output`), by output."""
    found = (w for w in in_effect(notable) if w.output and w.outcome is TaskOutcome.DONE)
    return sorted(found, key=lambda w: (w.output, w.name))


def failures(runtime: Runtime, request: str) -> Iterator[Interest]:
    """Yield what failed or could not be made, as `failures_in`."""
    yield from failures_in(notable(runtime, request))


def failures_in(notable: Iterable[Interest]) -> list[Interest]:
    """Return what failed or could not be made, by phase and name."""
    order = list(Phase)
    found = [w for w in notable if w.outcome in (TaskOutcome.FAILED, TaskOutcome.GAP)]
    return sorted(found, key=lambda w: (order.index(w.phase), w.name))


def gaps(runtime: Runtime, row: RequestRow) -> tuple[Gap, ...]:
    """All that an ended request lacks, and why."""
    if row.gap_count <= len(row.gaps):
        return row.gaps
    text = runtime.blobs.get_bytes(blobs.RESULTS, gaps_blob(row.id))
    return tuple(Gap(what=what, reason=reason) for what, reason in json.loads(text))


def gaps_blob(request: str) -> str:
    """Return the name of the blob in `results` that has all gaps of a request."""
    return f"{request}/gaps.json"


def _document_blob(request: str) -> str:
    return f"{request}.request.json"


def _well_formed(request: str) -> bool:
    plain = request.replace("-", "").replace("_", "")
    return len(request) <= 40 and plain.isascii() and plain.isalnum()
