"""Taking requests in, for the form and the API alike."""

import hashlib

from portal.core.problems import IdempotencyError, NotFoundError, StillPlanningError
from portal.core.tokens import Person
from tasks.errors import FencedError, RequestRefusedError
from tasks.model.model import RequestState
from tasks.model.packages import PackageError, Packages
from tasks.request.checks import Limits, check_request
from tasks.request.request import Request, dump_request
from tasks.tables import requests
from tasks.tables.requests import NoSuchRequestError, RequestRow
from tasks.tables.services import Services

LONGEST_KEY = 255
_POLL_SECONDS = 0.25


def check(request: Request, limits: Limits, packages: Packages) -> None:
    """Refuse a request by what its document says; RequestRefusedError names the field."""
    check_request(request, limits)
    if request.reduction is None:
        return
    try:
        packages.find(request.reduction.package)
    except PackageError as error:
        raise RequestRefusedError(
            "reduction.package",
            f"{request.reduction.package!r} cannot be used: {error}",
            f"Choose one of: {', '.join(packages.names())}.",
        ) from None


def accept(
    services: Services, person: Person, request: Request, *, key: str = "", dry_run: bool = False
) -> RequestRow:
    """Hand a checked request to the manager. Equal keys of one owner make one request.

    Raises IdempotencyError when the key was used for another document.
    """
    request_id = idempotent_id(person.owner, key) if key else None
    try:
        name = requests.submit(
            services, person.owner, request, request_id=request_id, dry_run=dry_run
        )
    except FencedError:
        raise IdempotencyError(f"The key {key!r} is taken.", "Choose another key.") from None
    row = requests.load(services, name)
    if row.document != dump_request(request) or row.dry_run != dry_run:
        raise IdempotencyError(
            f"The key {key!r} was used before, for another request.",
            "Send a new key with each new request.",
        )
    return row


def idempotent_id(owner: str, key: str) -> str:
    """The request id of an owner's idempotency key: nobody else can hit it."""
    return "k" + hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()[:20]


def wait_for_preview(services: Services, name: str, seconds: float) -> RequestRow:
    """The row of a dry run that has been counted.

    Raises:
        RequestRefusedError: planning refused it.
        StillPlanningError: it has not been counted within `seconds`.
    """
    limit = services.clock.monotonic() + seconds
    while True:
        row = requests.load(services, name)
        if row.state is RequestState.REFUSED:
            raise refusal(row)
        if row.state.ended:
            return row
        if services.clock.monotonic() >= limit:
            raise StillPlanningError(
                f"The dry run {name} has not been counted in {seconds:g} s.",
                f"Ask again at /api/requests/{name}/preview; the manager may be busy or stopped.",
            )
        services.clock.sleep(_POLL_SECONDS)


def refusal(row: RequestRow) -> RequestRefusedError:
    """What planning said of a request it refused: "field: problem remedy"."""
    name, colon, rest = row.message.partition(": ")
    if not colon or " " in name:
        return RequestRefusedError("document", row.message, "")
    return RequestRefusedError(name, rest, "")


def load_for(services: Services, person: Person, request: str) -> RequestRow:
    """A request that this person may see; NotFoundError otherwise, whichever the reason."""
    try:
        row = requests.load(services, request)
    except (NoSuchRequestError, ValueError):
        row = None
    if row is None or not person.may_see(row.owner):
        raise NotFoundError(
            f"There is no request {request}.", "Your requests are listed at /api/requests and /."
        )
    return row
