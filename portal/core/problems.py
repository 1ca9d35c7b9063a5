"""Errors as the portal tells them: one table from exception to status, problem+json or a page.

The JSON form is RFC 9457 with members of our own: `field`, `remedy`, and `also`, the other errors
of a request document.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from azure.core.exceptions import AzureError
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tasks.errors import (
    BlobMissingError,
    ConflictError,
    CorruptBlobError,
    RequestRefusedError,
    StoreError,
    SwathmillError,
)
from tasks.wording import sentence

log = structlog.get_logger(__name__)

PROBLEM_JSON = "application/problem+json"


class PortalError(SwathmillError):
    """A call that cannot be answered: what is wrong, with what value, and what to do."""

    status = HTTPStatus.BAD_REQUEST

    def __init__(self, problem: str, remedy: str, *, field: str = "") -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy
        self.field = field


class BadCallError(PortalError):
    """The call itself is malformed."""


class NotSignedInError(PortalError):
    """Nobody known is calling."""

    status = HTTPStatus.UNAUTHORIZED


class ForbiddenError(PortalError):
    """The caller may not do this."""

    status = HTTPStatus.FORBIDDEN


class NotFoundError(PortalError):
    """There is no such thing, or the caller may not know of it."""

    status = HTTPStatus.NOT_FOUND


class GoneError(PortalError):
    """Storage has lost a result."""

    status = HTTPStatus.GONE


class IdempotencyError(PortalError):
    """An idempotency key was used before, for another request document."""

    status = HTTPStatus.CONFLICT


class NotNowError(PortalError):
    """A request is in no state for what is asked of it."""

    status = HTTPStatus.CONFLICT


class BeingCancelledError(NotNowError):
    """A request is being cancelled: no other order can be given meanwhile."""

    def __init__(self, request: str) -> None:
        super().__init__(
            f"Request {request} is being cancelled.",
            "Wait until it is cancelled; then retry it or submit it again.",
        )


class TooLargeError(PortalError):
    """The body sent is larger than any request document."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class StillPlanningError(PortalError):
    """A dry run has not been counted within the time a call may take."""

    status = HTTPStatus.GATEWAY_TIMEOUT


class NoManagerError(PortalError):
    """No manager acts, so this would wait for nothing."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error for the one who called."""

    status: HTTPStatus
    title: str
    detail: str
    remedy: str = ""
    field: str = ""
    also: tuple[RequestRefusedError, ...] = ()


def problem_of(error: Exception) -> Problem:
    """The table: what an exception means to a caller."""
    match error:
        case RequestRefusedError():
            return Problem(
                status=HTTPStatus.UNPROCESSABLE_ENTITY,
                title="Request refused",
                detail=error.problem,
                remedy=error.remedy,
                field=error.field,
                also=error.also,
            )
        case PortalError():
            return Problem(
                status=error.status,
                title=error.status.phrase,
                detail=error.problem,
                remedy=error.remedy,
                field=error.field,
            )
        case RequestValidationError():
            first = error.errors()[0]
            return Problem(
                status=HTTPStatus.UNPROCESSABLE_ENTITY,
                title="Malformed call",
                detail=sentence(first),
                remedy="See /docs for what this address takes.",
                field=".".join(str(part) for part in first["loc"]),
            )
        case BlobMissingError():
            return Problem(
                status=HTTPStatus.GONE,
                title="Lost",
                detail="Storage does not have this any more.",
                remedy="Submit the request again.",
            )
        case CorruptBlobError():
            return Problem(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                title="Damaged on its way",
                detail="This came from storage damaged, and read differently the second time.",
                remedy="Try again in a moment.",
            )
        case ConflictError():
            return Problem(
                status=HTTPStatus.CONFLICT,
                title="Changed meanwhile",
                detail="Someone else changed this at the same moment.",
                remedy="Look at it again and repeat the call if it is still wanted.",
            )
        case StoreError() | AzureError():
            return Problem(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                title="Storage unavailable",
                detail="Storage does not answer, so nothing certain can be said.",
                remedy="Try again in a moment.",
            )
        case ClientDisconnect():
            return Problem(
                status=HTTPStatus.BAD_REQUEST,
                title="Call broken off",
                detail="The connection ended before the call was whole.",
                remedy="Repeat the call.",
            )
        case HTTPException():
            status = HTTPStatus(error.status_code)
            return Problem(
                status=status,
                title=status.phrase,
                detail=_http_detail(status),
                remedy="Check the address; /docs lists the API, / the pages.",
            )
        case _:
            return Problem(
                status=HTTPStatus.INTERNAL_SERVER_ERROR,
                title="The portal failed",
                detail="Something went wrong inside the portal; its log has the traceback.",
                remedy="Try again; if it persists, report it to whoever runs this portal.",
            )


def _http_detail(status: HTTPStatus) -> str:
    if status is HTTPStatus.NOT_FOUND:
        return "There is nothing at this address."
    return f"{status.description or status.phrase}."


_KINDS = (
    SwathmillError,
    AzureError,
    RequestValidationError,
    HTTPException,
    ClientDisconnect,
    Exception,
)

ErrorPage = Callable[[Request, Problem], Response]


def register_problems(app: FastAPI, page: ErrorPage) -> None:
    """Answer every exception by the table: JSON under /api, `page` for people elsewhere."""

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("call failed", path=request.url.path, exc_info=error)
        if wants_page(request):
            return page(request, problem)
        return problem_json(problem)

    for kind in _KINDS:
        app.add_exception_handler(kind, answer)


def problem_json(problem: Problem) -> JSONResponse:
    """A problem as RFC 9457 JSON."""
    content = {
        "type": "about:blank",
        "title": problem.title,
        "status": problem.status.value,
        "detail": problem.detail,
        "field": problem.field,
        "remedy": problem.remedy,
        "also": [{"field": e.field, "detail": e.problem, "remedy": e.remedy} for e in problem.also],
    }
    headers = {"Cache-Control": "no-store"}
    if problem.status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(content, problem.status, headers, PROBLEM_JSON)


def wants_page(request: Request) -> bool:
    """Whether a person with a browser asks, rather than a program."""
    path = request.url.path
    if path.startswith("/api/") or path in ("/healthz", "/livez"):
        return False
    return "text/html" in request.headers.get("accept", "") or "hx-request" in request.headers
