"""Trying again what failed: by the API, a request's page, the operators' page."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict

from portal.core.answers import RequestAnswer
from portal.core.identity import Caller, operator
from portal.core.problems import BadCallError
from portal.core.submissions import load_for
from portal.core.tokens import Person
from portal.web.context import Here, Portal
from tasks.tables import requests, retrying
from tasks.tables.requests import RequestRow
from tasks.tables.retrying import NothingToRetryError, Scope

api = APIRouter(prefix="/api", tags=["requests"])
pages = APIRouter(include_in_schema=False)

Category = Annotated[str, Query(description="Only what failed of this category.")]
Task = Annotated[str, Query(description="Only this task, by its key.")]


class RetriedAnswer(BaseModel):
    """The running requests that try again."""

    model_config = ConfigDict(frozen=True)

    requests: tuple[str, ...]


@api.post("/requests/{request_id}/retry", status_code=202, summary="Try again what failed")
def retry(
    request_id: str, caller: Caller, here: Here, category: Category = "", task: Task = ""
) -> RequestAnswer:
    """Try again all that failed, what failed of one category, or one task.

    A running request tries again itself. One that has ended stays as it is: its answer is another
    request of the same document, which reuses what was made and tries all of the rest.
    """
    return RequestAnswer.of(_retry(here, caller, request_id, category, task))


@api.post(
    "/operations/retry",
    status_code=202,
    tags=["operations"],
    summary="Try a category again in all running requests (operators)",
    dependencies=[Depends(operator)],
)
def retry_everywhere(here: Here, category: Category) -> RetriedAnswer:
    """Try again what failed of one category, or everything, in all requests that are running."""
    return RetriedAnswer(requests=tuple(_everywhere(here, category)))


@pages.post("/requests/{request_id}/retry")
def retry_by_page(
    request_id: str, caller: Caller, here: Here, category: str = "", task: str = ""
) -> RedirectResponse:
    """Try again, and show the request that does it."""
    row = _retry(here, caller, request_id, category, task)
    return RedirectResponse(f"/requests/{row.id}", 303)


@pages.post("/operations/retry", dependencies=[Depends(operator)])
def retry_by_operator(here: Here, category: str) -> RedirectResponse:
    """Try a category again in all running requests, and show the operators' page."""
    _everywhere(here, category)
    return RedirectResponse("/operations", 303)


def may_retry(row: RequestRow) -> bool:
    """Whether a request has something that could be tried again."""
    lacks = any(count.failed for count in row.phases.values()) or row.gap_count
    return bool(lacks) and row.order != "cancel" and not row.retry_orders and not row.dry_run


def _retry(here: Portal, caller: Person, request_id: str, category: str, task: str) -> RequestRow:
    row = load_for(here.services, caller, request_id)
    scope = _scope(category, task)
    try:
        return retrying.retry(here.services, row.id, scope)
    except (NothingToRetryError, ValueError) as error:
        raise BadCallError(f"{error}.", "See the request's failures.") from None


def _everywhere(here: Portal, category: str) -> list[str]:
    scope = _scope(category, "")
    found: list[str] = []
    for name in requests.live_requests(here.services.store):
        row = requests.load(here.services, name)
        if may_retry(row):
            found.append(retrying.retry(here.services, name, scope).id)
    return found


def _scope(category: str, task: str) -> Scope:
    try:
        return Scope.of(category, task)
    except ValueError as error:
        raise BadCallError(f"{error}.", "Or name neither, for all that failed.") from None
