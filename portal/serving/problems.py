"""Map each exception to a status code, and answer with problem+json or a page.

The JSON form is RFC 9457 with members of our own: `field`, `remedy`, and `also`, which holds the
other errors of a request document.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tasks.answers.answer import Answer
from tasks.errors import (
    BlobMissingError,
    ConflictError,
    CorruptBlobError,
    RequestRefusedError,
    StorageFullError,
    StoreError,
    SwathmillError,
)
from tasks.refusal_wording import sentence
from tasks.shown_text import shown_in_json
from tasks.storage.schema import OtherSchemaError

log = structlog.get_logger(__name__)

PROBLEM_JSON = "application/problem+json"
BLANK = "about:blank"
_SEE_DOCS = "See /docs for what this address takes."


class PortalError(SwathmillError):
    """A call that cannot be answered; says what is wrong, with which value, and what to do."""

    status: int = HTTPStatus.BAD_REQUEST
    title = ""  # empty: the status in words
    type = BLANK

    def __init__(self, problem: str, remedy: str, *, field: str = "") -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy
        self.field = field


class BadCallError(PortalError):
    """The call itself is malformed."""


class NotSignedInError(PortalError):
    """The caller is not known."""

    status = HTTPStatus.UNAUTHORIZED
    title = "You are not signed in"


class ForbiddenError(PortalError):
    """The caller may not do this."""

    status = HTTPStatus.FORBIDDEN


class NotFoundError(PortalError):
    """No such thing exists, or the caller may not know of it."""

    status = HTTPStatus.NOT_FOUND


class GoneError(PortalError):
    """Storage has lost a result."""

    status = HTTPStatus.GONE


class IdempotencyError(PortalError):
    """The idempotency key was used before for another request document."""

    status = HTTPStatus.CONFLICT


class NotNowError(PortalError):
    """The state of the request does not allow what the call asks for."""

    status = HTTPStatus.CONFLICT


class BeingCancelledError(NotNowError):
    """The request is being cancelled; meanwhile no other order can be given."""

    def __init__(self, request: str) -> None:
        super().__init__(
            f"Request {request} is being cancelled.",
            "Wait until it is cancelled; then retry it or submit it again.",
        )


class TooLargeError(PortalError):
    """The body is larger than any request document may be."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class BusyError(PortalError):
    """Too many such calls are being answered."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class TooManyError(PortalError):
    """The caller asks for more than one caller may; in `seconds` it may again."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    title = "Too much at once"

    def __init__(self, problem: str, remedy: str, *, seconds: float) -> None:
        super().__init__(problem, remedy)
        self.seconds = seconds


class StillPlanningError(PortalError):
    """The counts of a dry run are not ready within the time a call may take."""

    status = HTTPStatus.GATEWAY_TIMEOUT


class NoManagerError(PortalError):
    """No service manager acts, so waiting would not help."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class ProviderError(PortalError):
    """The OpenID provider does not answer."""

    status = HTTPStatus.BAD_GATEWAY


def answers_with(*errors: type[PortalError]) -> dict[int | str, dict[str, Any]]:
    """Describe problems that routes answer with beside those of all, for their `responses`."""
    return {error.status: described(error.status) for error in errors}


def described(status: int) -> dict[str, Any]:
    """Describe the problem of a status, for OpenAPI."""
    schema = {"$ref": "#/components/schemas/ProblemAnswer"}
    return {
        "description": HTTPStatus(status).phrase,
        "content": {PROBLEM_JSON: {"schema": schema}},
    }


class AlsoAnswer(Answer):
    """Another error of a request document."""

    field: str
    detail: str
    remedy: str


class ProblemAnswer(Answer):
    """An error (RFC 9457), with the field that is wrong and what to do."""

    type: str
    title: str
    status: int
    detail: str
    field: str
    remedy: str
    also: tuple[AlsoAnswer, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error as the caller sees it."""

    status: HTTPStatus
    title: str
    detail: str
    remedy: str = ""
    field: str = ""
    also: tuple[RequestRefusedError, ...] = ()
    type: str = BLANK
    seconds: float = 0.0  # after which it is worth to ask again; 0.0: not known

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an answer that follow from it."""
        found = {"Cache-Control": "no-store"}
        if self.status is HTTPStatus.UNAUTHORIZED:
            found["WWW-Authenticate"] = "Bearer"
        if self.seconds:
            found["Retry-After"] = str(math.ceil(self.seconds))  # RFC 9110, 10.2.3
        return found


def problem_of(error: Exception) -> Problem:
    """Translate an exception into what the caller is told."""
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
                status=HTTPStatus(error.status),
                title=error.title or HTTPStatus(error.status).phrase.capitalize(),
                detail=error.problem,
                remedy=error.remedy,
                field=error.field,
                type=error.type,
                seconds=error.seconds if isinstance(error, TooManyError) else 0.0,
            )
        case RequestValidationError():
            first = error.errors()[0]
            body = first["loc"][0] == "body"
            return Problem(
                status=HTTPStatus.UNPROCESSABLE_ENTITY if body else HTTPStatus.BAD_REQUEST,
                title="Malformed call",
                detail=sentence(first),
                remedy=_SEE_DOCS,
                field=".".join(str(part) for part in first["loc"]),
            )
        case HTTPException():
            return _http_problem(error)
        case _:
            return next(_FIXED[kind] for kind in type(error).__mro__ if kind in _FIXED)


_FIXED: Mapping[type, Problem] = {
    BlobMissingError: Problem(
        status=HTTPStatus.GONE,
        title="Lost",
        detail="Storage does not have this any more.",
        remedy="Submit the request again.",
    ),
    CorruptBlobError: Problem(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        title="Damaged in transit",
        detail="Storage sent damaged data, and other data when it was read again.",
        remedy="Try again in a moment.",
    ),
    ConflictError: Problem(
        status=HTTPStatus.CONFLICT,
        title="Changed meanwhile",
        detail="Someone else changed this at the same moment.",
        remedy="Look at it again, and repeat the call if you still want the change.",
    ),
    StorageFullError: Problem(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        title="Storage full",
        detail="The disk of the service's storage is full, so nothing can be written. Nothing is "
        "lost, and finished results can be downloaded.",
        remedy="Tell whoever runs this portal to make room there; then repeat the call.",
    ),
    StoreError: Problem(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        title="Storage unavailable",
        detail="Storage does not answer, so the portal cannot tell the present state.",
        remedy="Try again in a moment.",
    ),
    OtherSchemaError: Problem(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        title="An older build",
        detail="A newer build of the service has written what this call reads.",
        remedy="Whoever runs this portal has to install the newer build here, too.",
    ),
    ClientDisconnect: Problem(
        status=HTTPStatus.BAD_REQUEST,
        title="Incomplete call",
        detail="The connection ended before the whole call had arrived.",
        remedy="Repeat the call.",
    ),
    Exception: Problem(
        status=HTTPStatus.INTERNAL_SERVER_ERROR,
        title="The portal failed",
        detail="Something went wrong inside the portal; its log has the traceback.",
        remedy="Try again; if it persists, report it to whoever runs this portal.",
    ),
}
"""What the caller is told of errors of which the kind says all; the nearest base class counts."""


def _http_problem(error: HTTPException) -> Problem:
    """Translate an error of Starlette's or FastAPI's own."""
    status = HTTPStatus(error.status_code)
    detail = f"{status.description or status.phrase}."
    remedy = "Check the address; /docs lists the API, / the pages."
    if status is HTTPStatus.NOT_FOUND:
        detail = "There is nothing at this address."
    elif status is HTTPStatus.BAD_REQUEST and error.detail != status.phrase:
        detail = f"{error.detail.rstrip('.')}."
        remedy = _SEE_DOCS
    return Problem(status=status, title=status.phrase, detail=detail, remedy=remedy)


def begun(text: str) -> str:
    """Begin a text with a capital letter, unless it begins with the name of a file."""
    return text if "." in text.split(" ", 1)[0] else f"{text[:1].upper()}{text[1:]}"


_KINDS = (
    SwathmillError,
    RequestValidationError,
    HTTPException,
    ClientDisconnect,
    Exception,
)

_BAD_BODIES = ("/search",)
"""Addresses where a wrong body is a bad request: STAC API - Item Search has it so."""

ErrorPage = Callable[[Request, Problem], Response]
Translate = Callable[[Exception], Problem]


def register_problems(
    app: FastAPI,
    page: ErrorPage,
    methods: Callable[[Request], Iterable[str]],
    of_features: Mapping[type[Exception], Translate],
) -> None:
    """Answer every exception by the tables: with JSON under /api, with `page` elsewhere.

    `methods` tells which methods the address of a call has; `of_features` are what features say of
    exceptions of their own.
    """

    async def answer(request: Request, error: Exception) -> Response:
        own = next((kind for kind in type(error).__mro__ if kind in of_features), None)
        problem = problem_of(error) if own is None else of_features[own](error)
        if isinstance(error, RequestValidationError) and request.url.path in _BAD_BODIES:
            problem = replace(problem, status=HTTPStatus.BAD_REQUEST)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("call failed", path=request.url.path, exc_info=error)
        answer: Response = problem_json(problem)
        if wants_page(request):
            answer = page(request, problem)
            answer.headers.update(problem.headers)
        if problem.status is HTTPStatus.METHOD_NOT_ALLOWED:
            answer.headers["Allow"] = ", ".join(sorted(methods(request)))
        return answer

    for kind in (*_KINDS, *of_features):
        app.add_exception_handler(kind, answer)


class _SeenJson(JSONResponse):
    """JSON that a terminal shows: what a caller wrote comes back in it."""

    def render(self, content: object) -> bytes:
        return shown_in_json(super().render(content).decode()).encode()


def problem_json(problem: Problem) -> JSONResponse:
    """Encode a problem as RFC 9457 JSON."""
    content = ProblemAnswer(
        type=problem.type,
        title=problem.title,
        status=problem.status.value,
        detail=problem.detail,
        field=problem.field,
        remedy=problem.remedy,
        also=tuple(
            AlsoAnswer(field=e.field, detail=e.problem, remedy=e.remedy) for e in problem.also
        ),
    ).model_dump()
    return _SeenJson(content, problem.status, problem.headers, PROBLEM_JSON)


def wants_page(request: Request) -> bool:
    """Tell whether the caller is a person with a browser rather than a program."""
    path = request.url.path
    if path.startswith("/api/") or path in ("/healthz", "/livez"):
        return False
    return "text/html" in request.headers.get("accept", "") or "hx-request" in request.headers
