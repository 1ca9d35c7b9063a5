"""The HTTP API of requests, for the command line and for scientists' scripts."""

import hashlib
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from portal.description.openapi import REQUEST_BODY
from portal.requests.answers import (
    AttemptAnswer,
    TaskAnswer,
    failure_answer,
    preview_answer,
    request_answer,
    spending_answer,
)
from portal.requests.state import Requests
from portal.results.result_files import SHORTLY
from portal.results.results_api import gaps_of
from portal.results.state import Results
from portal.serving.access import audited_for_others, load_for, load_to_change, read_for
from portal.serving.addresses import PAGE, ListLimit, numbers_of, part_of_list
from portal.serving.documents import decode, read_body
from portal.serving.identity import Caller, Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import (
    BadCallError,
    BeingCancelledError,
    NotFoundError,
    NotNowError,
    StillPlanningError,
    begun,
)
from portal.serving.repeated_calls import made_from_list, made_from_row
from portal.serving.tokens import Person
from portal.serving.traffic import note_submitted
from portal.submit.estimates import raster_text
from portal.submit.state import Submit
from portal.submit.submissions import (
    LONGEST_KEY,
    submitted,
    wait_for_preview,
)
from tasks.accounts.group_table import GroupTable, NoSuchGroupError
from tasks.answers.requests import FailureAnswer, PreviewAnswer, RequestAnswer, SpendingAnswer
from tasks.answers.results import GapAnswer
from tasks.bag import history
from tasks.bag.model import RequestOrder, RequestState, Task
from tasks.bag.task_keys import is_key
from tasks.bag.task_rows import Interest
from tasks.errors import RequestRefusedError
from tasks.holdings.held import doubts
from tasks.operators import prices
from tasks.request.admission import admitted
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.request_table import Rehearsal, RequestRow, list_of

router = Router(prefix="/api", tags=["requests"])

PREVIEW_SECONDS = 50.0
_FAILURES_ON_STATUS = 100
_CONNECTED_SECONDS = 2.0  # between two looks at whether who waits is still there

Body = Annotated[bytes, Depends(read_body)]


@router.post(
    "/requests",
    status_code=202,
    response_model=RequestAnswer | PreviewAnswer,
    openapi_extra=REQUEST_BODY,
    summary="Submit a request, or count what it would take",
)
def submit(
    body: Body,
    response: Response,
    caller: Caller,
    portal: CurrentPortal,
    dry_run: Annotated[bool, Query(description="Only count granules, tasks, bytes, gaps.")] = False,
    idempotency_key: Annotated[
        str, Header(max_length=LONGEST_KEY, description="Sent again, it makes no second request.")
    ] = "",
) -> RequestAnswer | PreviewAnswer:
    """Check a request document, JSON or YAML, and hand it to the manager.

    With `dry_run` the call waits for planning and answers with its counts.
    """
    row = submitted(
        portal, caller, parse_request(decode(body)), key=idempotency_key, dry_run=dry_run
    )
    if not dry_run:
        response.headers["Location"] = f"/api/requests/{row.id}"
        return request_answer(row)
    response.status_code = 200
    if not portal.state(Requests).waiting.acquire(blocking=False):  # each wait holds a thread
        raise StillPlanningError(
            "Too many calls wait for a dry run.",
            f"Ask at /api/requests/{row.id}/preview in a minute.",
        )
    try:
        counted = wait_for_preview(
            portal.runtime, row.id, PREVIEW_SECONDS, acts=lambda: portal.pages.manager().acts
        )
        return _counts(portal, caller, counted)
    finally:
        portal.state(Requests).waiting.release()


@router.get("/requests", summary="Requests, newest first")
def list_requests(
    request: Request,
    caller: Caller,
    portal: CurrentPortal,
    limit: Annotated[int, Query(ge=1, le=1000, description="So many at most.")] = 100,
    everybody: Annotated[bool, Query(description="Operators: all owners' requests.")] = False,
    before: Annotated[str, Query(description="A request's id: only those older than it.")] = "",
    label: Annotated[str, Query(description="Only yours with this label.")] = "",
    group: Annotated[str, Query(description="Those shared with this group of yours.")] = "",
) -> list[RequestAnswer]:
    """List the caller's requests without their gaps; an operator may ask for everybody's."""
    everybody = everybody and caller.is_operator
    found = listed(
        portal,
        caller,
        limit,
        before=before,
        everybody=everybody,
        label=label,
        group=group,
    )
    if not (before or group):
        of = list_of(None if everybody else caller.owner, label="" if everybody else label)
        made_from_list(request, caller, of, limit, found)
    return [request_answer(row) for row in found]


def listed(
    portal: Portal,
    caller: Person,
    limit: int,
    *,
    before: str = "",
    everybody: bool = False,
    label: str = "",
    group: str = "",
) -> list[RequestRow]:
    """List somebody's requests, with a label if one is given, a group's, or everybody's.

    They are the newest, or those older than the request `before`.

    Raises:
        NotFoundError: there is no request `before` or no such group, or the caller may not see it.
    """
    try:
        shared = GroupTable(portal.runtime.store).meant(group, caller.owner).key if group else ""
    except NoSuchGroupError as error:
        raise NotFoundError(begun(error.problem), error.remedy) from None
    after = read_for(portal.runtime, caller, before) if before else None
    return list(
        request_operations.list_requests(
            portal.runtime,
            None if everybody else caller.owner,
            limit,
            after,
            label="" if everybody else label,
            group=shared,
        )
    )


@router.get(
    "/requests/{request_id}",
    response_model=RequestAnswer,
    summary="Where a request stands",
    responses={304: {"description": "It is as the ETag says."}},
)
async def status(
    request_id: str,
    request: Request,
    response: Response,
    caller: Reader,
    portal: CurrentPortal,
    wait: Annotated[
        float, Query(ge=0, le=60, description="Seconds to wait for another ETag.")
    ] = 0.0,
    if_none_match: Annotated[str, Header(description="The ETag of an earlier answer.")] = "",
) -> RequestAnswer | Response:
    """Return state, progress by phase, the first gaps and the failures.

    With the ETag of an earlier answer, the call returns as soon as the answer is another one, or
    with status 304 after `wait` seconds.
    """
    had = if_none_match.removeprefix("W/")
    row, etag = await _standing(portal, caller, request_id)
    if etag == had and wait:
        end = portal.runtime.clock.monotonic() + wait
        with portal.state(Requests).watch.follow(request_id) as following:
            while etag == had and not portal.stopping.is_set():
                left = end - portal.runtime.clock.monotonic()
                if left <= 0:
                    break
                if await following.next(min(left, _CONNECTED_SECONDS)):
                    row, etag = await _standing(portal, caller, request_id)
                elif await request.is_disconnected():
                    raise ClientDisconnect
    if not wait:
        made_from_row(request, caller, row, SHORTLY)
    if etag == had:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
    response.headers["ETag"] = etag
    failed = any(count.failed for count in row.phases.values()) or row.gap_count
    found: tuple[Interest, ...] = ()
    if failed:
        found = await run_in_threadpool(portal.state(Results).index.failures, portal.runtime, row)
    return request_answer(row, failures=found[:_FAILURES_ON_STATUS])


async def _standing(portal: Portal, caller: Person, request: str) -> tuple[RequestRow, str]:
    """Return a request's row and its ETag. Raises NotFoundError."""
    row = await portal.quickly(read_for, portal.runtime, caller, request)
    # The answer is a function of the row, whose own ETag may have characters that a header has not.
    return row, f'"{hashlib.sha256(row.etag.encode()).hexdigest()[:32]}"'


@router.get("/requests/{request_id}/preview", summary="What a dry run has counted")
def preview(request_id: str, caller: Caller, portal: CurrentPortal) -> PreviewAnswer:
    """Return the counts of a dry run; they are zero until its state is `previewed`."""
    return _counts(portal, caller, load_for(portal.runtime, caller, request_id))


def _counts(portal: Portal, caller: Person, row: RequestRow) -> PreviewAnswer:
    """Answer with a dry run's counts, and with what the archive's granules state oddly."""
    kept = portal.state(Submit)
    held = kept.holdings.known()
    try:
        resolved = kept.names.resolved(caller, request_operations.document_of(row))
    except RequestRefusedError:  # what it names has changed since it was taken
        return preview_answer(row)
    told = doubts(resolved, held) if held is not None else ()
    return preview_answer(row, told, raster_text(resolved))


@router.get("/requests/{request_id}/spending", summary="What was spent on a request")
def spending(request_id: str, caller: Reader, portal: CurrentPortal) -> SpendingAnswer:
    """Return what was executed on account of a request so far, and what that costs."""
    row = read_for(portal.runtime, caller, request_id)
    store = portal.runtime.store
    return spending_answer(history.used_by(store, row.id), prices.load(store))


@router.get("/requests/{request_id}/document", summary="The request document")
def document(request_id: str, caller: Reader, portal: CurrentPortal) -> Response:
    """Return the document as it was submitted, without the fields left at their default."""
    row = read_for(portal.runtime, caller, request_id)
    return Response(row.document, media_type="application/json")


@router.post("/requests/{request_id}/cancel", status_code=202, summary="Cancel a request")
def cancel(request_id: str, caller: Caller, portal: CurrentPortal) -> RequestAnswer:
    """Stop a request.

    It stays `cancelling` until its unfinished tasks are withdrawn. Its finished results stay, and
    tasks that other requests want continue. A request that has ended does not change.
    """
    return request_answer(order(portal, caller, request_id, RequestOrder.CANCEL))


@router.post("/requests/{request_id}/pause", status_code=202, summary="Pause a request")
def pause(request_id: str, caller: Caller, portal: CurrentPortal) -> RequestAnswer:
    """Start no new tasks of a request; running tasks will finish."""
    return request_answer(order(portal, caller, request_id, RequestOrder.PAUSE))


@router.post("/requests/{request_id}/resume", status_code=202, summary="Resume a request")
def resume(request_id: str, caller: Caller, portal: CurrentPortal) -> RequestAnswer:
    """Resume a paused request."""
    return request_answer(order(portal, caller, request_id, RequestOrder.RESUME))


@router.post("/requests/{request_id}/confirm", status_code=202, summary="Confirm a request")
def confirm(request_id: str, caller: Caller, portal: CurrentPortal) -> RequestAnswer:
    """Start a request that waits for confirmation because it takes so much."""
    return request_answer(order(portal, caller, request_id, RequestOrder.CONFIRM))


@router.post(
    "/requests/{request_id}/mended",
    status_code=202,
    summary="Go on with a mended package after a rehearsal that failed",
)
def go_on_mended(request_id: str, caller: Caller, portal: CurrentPortal) -> RequestAnswer:
    """Cancel a request whose rehearsal failed, and submit its document again.

    The answer is the new request. It runs the version that the document's reference means now, and
    reuses all that is made already.
    """
    return request_answer(mended(portal, caller, request_id))


def rehearsal_failed(row: RequestRow) -> bool:
    """Tell whether a request waits because its package failed in the rehearsal."""
    return row.state is RequestState.HELD and row.rehearsal is Rehearsal.RUNS


def mended(portal: Portal, caller: Person, request_id: str) -> RequestRow:
    """Put a new request in place of one whose rehearsal failed.

    Raises:
        NotNowError: no rehearsal of the request has failed.
        RequestRefusedError: the package is not there any more.
    """
    row = load_to_change(portal.runtime, caller, request_id)
    if not rehearsal_failed(row):
        raise NotNowError(
            f"Request {row.id} does not wait because of its rehearsal: it is {row.state.value}.",
            "Only a request whose rehearsal failed can go on with a mended package.",
        )
    document = request_operations.document_of(row)
    admitted(portal.state(Submit).names.library, row.owner, document, portal.settings)
    again = request_operations.repeated(row, document, standing=row.standing)
    with audited_for_others(portal.runtime, caller, row, "mend"):
        made = request_operations.submit(
            portal.runtime,
            row.owner,
            again,
            request_id=f"{row.id}m"[-40:],
            retry_of=row.id,
            group=row.group,
        )
        note_submitted(made)
        request_operations.order(portal.runtime, row.id, RequestOrder.CANCEL)
    return request_operations.load(portal.runtime, made)


def order(portal: Portal, caller: Person, request_id: str, what: RequestOrder) -> RequestRow:
    """Give the manager an order about a request this person may see; the row afterwards.

    Cancelling a request that has ended changes nothing.

    Raises:
        NotNowError: the state of the request does not allow this order.
    """
    row = load_to_change(portal.runtime, caller, request_id)
    with audited_for_others(portal.runtime, caller, row, what.value):
        _check_order(row, what)
        request_operations.order(portal.runtime, row.id, what)
    return request_operations.load(portal.runtime, row.id)


def _check_order(row: RequestRow, what: RequestOrder) -> None:
    if what is RequestOrder.CANCEL:
        return
    if row.state is RequestState.CANCELLING:
        raise BeingCancelledError(row.id)
    held = row.state is RequestState.HELD
    if what is RequestOrder.CONFIRM and not held:
        raise NotNowError(
            f"Request {row.id} does not wait for confirmation: it is {row.state.value}.",
            "Only a request that waits for confirmation can be confirmed.",
        )
    if what is not RequestOrder.CONFIRM and held:
        raise NotNowError(f"Request {row.id} waits for confirmation.", "Confirm it, or cancel it.")
    if row.state.ended:
        raise NotNowError(
            f"Request {row.id} has ended: it is {row.state.value}.",
            f"Only a request that has not ended can be {what}d.",
        )


@router.get("/requests/{request_id}/failures", summary="What failed, and why")
def failures(
    request_id: str,
    request: Request,
    response: Response,
    caller: Reader,
    portal: CurrentPortal,
    limit: ListLimit = PAGE,
    after: Annotated[str, Query(description="A task's key: only those after it.")] = "",
) -> list[FailureAnswer]:
    """List every task that failed for good, with category, cause and remedy."""
    row = read_for(portal.runtime, caller, request_id)
    made_from_row(request, caller, row, SHORTLY)
    every = portal.state(Results).index.failures(portal.runtime, row)
    keys = [interest.key for interest in every]
    if after and after not in keys:
        raise BadCallError(
            f"{after!r} is not among these failures.", "Begin again without it.", field="after"
        )
    begin = keys.index(after) + 1 if after else 0
    page = part_of_list(portal.settings, request, response, keys, begin, limit)
    return [failure_answer(interest) for interest in every[page]]


@router.get("/requests/{request_id}/gaps", summary="What cannot be had, and why")
def gaps(
    request_id: str,
    request: Request,
    response: Response,
    caller: Reader,
    portal: CurrentPortal,
    limit: ListLimit = PAGE,
    after: Annotated[int, Query(ge=0, le=2**53, description="Leave out so many.")] = 0,
) -> list[GapAnswer]:
    """List all gaps of a request, each with the results that lack it."""
    every = gaps_of(portal, read_for(portal.runtime, caller, request_id))
    return every[part_of_list(portal.settings, request, response, numbers_of(every), after, limit)]


@router.get("/tasks/{key}", tags=["tasks"], summary="A task and its attempts")
def task(key: str, caller: Caller, portal: CurrentPortal) -> TaskAnswer:
    """Return the state of a task and all its ended attempts, including retried ones."""
    found = task_for(portal, caller, key)
    return TaskAnswer.of(found, portal.runtime.tasks.attempts(found.key))


@router.get("/tasks/{key}/attempts/{number}", tags=["tasks"], summary="An attempt with its log")
def attempt(key: str, number: int, caller: Caller, portal: CurrentPortal) -> AttemptAnswer:
    """Return outcome, duration, peak memory and the tail of the log."""
    found = task_for(portal, caller, key)
    for ended in portal.runtime.tasks.attempts(found.key):
        if ended.number == number:
            return AttemptAnswer.of(ended, with_log=True)
    raise NotFoundError(
        f"Task {key} has no ended attempt {number}.", f"Its attempts are at /api/tasks/{key}."
    )


def task_for(portal: Portal, caller: Person, key: str) -> Task:
    """Load a task that belongs to a request this person may see.

    Raises NotFoundError if it does not exist or this person may not see it.
    """
    if not is_key(key):
        raise BadCallError(f"{key!r} is not a task key.", "A key has 64 hexadecimal digits.")
    found = portal.runtime.tasks.task(key)
    if found is not None and (caller.is_operator or _wanted_by(portal, caller, found)):
        return found
    raise NotFoundError(f"There is no task {key}.", "Follow the links on a request's page.")


def _wanted_by(portal: Portal, caller: Person, found: Task) -> bool:
    owners = (request_operations.load(portal.runtime, request).owner for request in found.interests)
    return caller.owner in owners
