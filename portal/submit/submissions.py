"""Accept requests from the form and the API."""

import hashlib
import re
from collections.abc import Callable

from portal.serving.portal import Portal
from portal.serving.problems import (
    IdempotencyError,
    NoManagerError,
    StillPlanningError,
)
from portal.serving.tokens import Person
from portal.serving.traffic import note_submitted
from portal.submit.state import Submit
from tasks.accounts.group_table import GroupTable
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.errors import FencedError, RequestRefusedError
from tasks.request.admission import admitted
from tasks.request.document import Request, dump_request
from tasks.requests import request_operations
from tasks.requests.request_operations import NoSuchRequestError
from tasks.requests.request_table import RequestRow

LONGEST_KEY = 255
_OF_FORM = re.compile(r"form-(\d{6})-")


_POLL_SECONDS = 0.25


def submitted(
    portal: Portal,
    caller: Person,
    request: Request,
    *,
    key: str = "",
    dry_run: bool = False,
    response: str = "",
) -> RequestRow:
    """Check a request and hand it to the manager; return its row.

    A key sent again gives the request that it made. `response` says how a job of OGC API -
    Processes wants its results.

    Raises:
        RequestRefusedError: the request cannot work.
        IdempotencyError: the key was used for another request.
    """
    row = resent(portal.runtime, caller, request, key, dry_run=dry_run)
    if row is not None:
        return row
    check_for(portal, caller, request)
    return accept(portal.runtime, caller, request, key=key, dry_run=dry_run, response=response)


def check_for(portal: Portal, person: Person, request: Request) -> None:
    """Refuse a person's request that cannot work; RequestRefusedError names the field."""
    kept = portal.state(Submit)
    resolved = admitted(kept.names.library, person.owner, request, portal.settings)
    kept.holdings.check(resolved)


def resent(
    runtime: Runtime, person: Person, request: Request, key: str, *, dry_run: bool = False
) -> RequestRow | None:
    """Return the request that this key has already made, or None.

    That request was checked when it was made; what the archive and the packages hold now does not
    matter.

    Raises IdempotencyError if the key was used for another document.
    """
    if not key:
        return None
    try:
        row = request_operations.load(runtime, idempotent_id(person.owner, key))
    except NoSuchRequestError:
        return None
    return _same(row, request, key, dry_run)


def accept(
    runtime: Runtime,
    person: Person,
    request: Request,
    *,
    key: str = "",
    dry_run: bool = False,
    response: str = "",
) -> RequestRow:
    """Hand a checked request to the manager; equal keys of one owner make one request.

    Raises:
        IdempotencyError: the key was used for another document.
        NoSuchGroupError: the person is in no group that the request names, or in several.
    """
    group = (
        GroupTable(runtime.store).meant(request.group, person.owner).key if request.group else ""
    )
    request_id = idempotent_id(person.owner, key) if key else None
    try:
        name = request_operations.submit(
            runtime,
            person.owner,
            request,
            request_id=request_id,
            dry_run=dry_run,
            response=response,
            group=group,
        )
    except FencedError:
        raise IdempotencyError(f"The key {key!r} is taken.", "Choose another key.") from None
    note_submitted(name)
    return _same(request_operations.load(runtime, name), request, key, dry_run)


def _same(row: RequestRow, request: Request, key: str, dry_run: bool) -> RequestRow:
    if row.document != dump_request(request) or row.dry_run != dry_run:
        raise IdempotencyError(
            f"The key {key!r} was used before, for another request.",
            "Send a new key with each new request.",
        )
    return row


def idempotent_id(owner: str, key: str) -> str:
    """Derive the request id from an owner's idempotency key; no other owner can derive it.

    The form's keys have the day on which it was opened: their ids are written as all others.
    """
    digest = hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()
    day = _OF_FORM.match(key)
    return f"{day[1]}-{digest[:10]}" if day else f"k{digest[:20]}"


def wait_for_preview(
    runtime: Runtime, name: str, seconds: float, *, acts: Callable[[], bool]
) -> RequestRow:
    """Wait until planning has counted a dry run; return its row.

    `acts` tells whether a service manager acts.

    Raises:
        RequestRefusedError: planning refused the request.
        NoManagerError: no service manager acts, so nothing counts it.
        StillPlanningError: the counts are not ready within `seconds`.
    """
    limit = runtime.clock.monotonic() + seconds
    while True:
        row = request_operations.load(runtime, name)
        if row.state is RequestState.REFUSED:
            raise refusal(row)
        if row.state.ended:
            return row
        if not acts():
            raise NoManagerError(
                f"The dry run {name} is not counted: no service manager is at work.",
                "Ask again when one is; see /healthz.",
            )
        if runtime.clock.monotonic() >= limit:
            raise StillPlanningError(
                f"The dry run {name} has not been counted in {seconds:g} s.",
                f"Ask again at /api/requests/{name}/preview; the manager is busy.",
            )
        runtime.clock.sleep(_POLL_SECONDS)


def refusal(row: RequestRow) -> RequestRefusedError:
    """Rebuild the error with which planning refused a request, from "field: problem remedy"."""
    name, colon, rest = row.message.partition(": ")
    if not colon or " " in name:
        return RequestRefusedError("document", row.message, "")
    return RequestRefusedError(name, rest, "")
