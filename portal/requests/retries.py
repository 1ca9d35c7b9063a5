"""Retry failed tasks: through the API, a request's page and the operators' page."""

from typing import Annotated

from fastapi import Depends, Form, Query, Response
from fastapi.responses import RedirectResponse

from portal.operations import overview
from portal.requests.answers import request_answer
from portal.serving.access import audited, audited_for_others, load_to_change
from portal.serving.identity import Caller, Operator, operator
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import BadCallError, BeingCancelledError, NotNowError
from portal.serving.tokens import Person
from tasks.answers.answer import Answer
from tasks.answers.requests import RequestAnswer
from tasks.bag.categories import RULES
from tasks.bag.model import RequestState
from tasks.requests import retrying
from tasks.requests.request_table import RequestRow
from tasks.requests.retrying import CancellingError, NothingToRetryError, Reach, Scope

api = Router(prefix="/api", tags=["requests"])
pages = Router(include_in_schema=False)

Category = Annotated[str, Query(description="Only what failed of this category.")]
Task = Annotated[str, Query(description="Only this task, by its key.")]
TaskClass = Annotated[
    str, Query(alias="class", description="In place of a category: only what failed of this class.")
]
Reason = Annotated[str, Query(description="Why, for the audit.", max_length=500)]


class ReachAnswer(Answer):
    """What a retry of a category would include.

    `tasks` failed with this category, in requests that are `running` and in requests that have
    `ended`; `more` says that not all of these are named.
    """

    tasks: int
    running: tuple[str, ...]
    ended: tuple[str, ...]
    more: bool


class RetriedAnswer(Answer):
    """How many tasks are tried again, and by which requests.

    `requests` are all requests that try again; `made` are the new ones, made in place of requests
    that have ended. `more` says that other requests have ended with this failure, too.
    """

    tasks: int
    requests: tuple[str, ...]
    made: tuple[str, ...]
    more: bool


@api.post("/requests/{request_id}/retry", status_code=202, summary="Try again what failed")
def retry(
    request_id: str, caller: Caller, portal: CurrentPortal, category: Category = "", task: Task = ""
) -> RequestAnswer:
    """Try again all that failed, what failed in one category, or one task.

    A running request tries again itself. A request that has ended does not change: the answer is a
    new request with the same document, which reuses the finished tasks and tries all others.
    """
    return request_answer(_retry(portal, caller, request_id, category, task))


@api.get(
    "/operations/retry",
    tags=["operations"],
    summary="What a retry of a category would reach (operators)",
    dependencies=[Depends(operator)],
)
def reach_everywhere(
    portal: CurrentPortal, category: Category = "", task_class: TaskClass = ""
) -> ReachAnswer:
    """Count the failures of one category or class in requests that run or ended in 14 days.

    This tries nothing again yet.
    """
    found = _reach(portal, _everywhere_scope(category, task_class))
    return ReachAnswer(
        tasks=found.tasks,
        running=tuple(one.row.id for one in found.running),
        ended=tuple(one.row.id for one in found.ended),
        more=found.more,
    )


@api.post(
    "/operations/retry",
    status_code=202,
    tags=["operations"],
    summary="Try a category or class again in all requests (operators)",
)
def retry_everywhere(
    caller: Operator,
    portal: CurrentPortal,
    category: Category = "",
    task_class: TaskClass = "",
    reason: Reason = "",
) -> RetriedAnswer:
    """Try again what failed of one category or class, in running and recently ended requests.

    Each request that ended in the last 14 days is replaced by a new request with the same document.
    """
    return _everywhere(portal, caller, _everywhere_scope(category, task_class), reason)


@pages.post("/requests/{request_id}/retry")
def retry_by_page(
    request_id: str, caller: Caller, portal: CurrentPortal, category: str = "", task: str = ""
) -> RedirectResponse:
    """Try again, and show the request that does it."""
    row = _retry(portal, caller, request_id, category, task)
    return RedirectResponse(f"/requests/{row.id}", 303)


@pages.get("/operations/retry")
def ask_operator(
    caller: Operator, portal: CurrentPortal, category: str = "", task_class: TaskClass = ""
) -> Response:
    """Show what a retry of a category or class would include, before it is ordered."""
    scope = _everywhere_scope(category, task_class)
    return portal.pages.page(
        "retry.html",
        caller,
        "operations",
        200,
        scope=scope,
        rule=RULES[scope.category] if scope.category else None,
        reach=_reach(portal, scope),
        most=retrying.MOST_ENDED,
        days=overview.DAYS,
        done=None,
    )


@pages.post("/operations/retry")
def retry_by_operator(
    caller: Operator,
    portal: CurrentPortal,
    category: str = "",
    task_class: TaskClass = "",
    reason: Annotated[str, Form(max_length=500)] = "",
) -> Response:
    """Try a category or class again in all requests, and show what is tried again."""
    scope = _everywhere_scope(category, task_class)
    done = _everywhere(portal, caller, scope, reason)
    return portal.pages.page(
        "retry.html", caller, "operations", 200, scope=scope, done=done, days=overview.DAYS
    )


def may_retry(row: RequestRow) -> bool:
    """Tell whether a request has something that could be tried again."""
    waits = row.state in (RequestState.CANCELLING, RequestState.HELD)
    if waits or row.retry_orders or row.dry_run:
        return False
    return any(count.failed for count in row.phases.values()) or bool(row.gap_count)


def _retry(portal: Portal, caller: Person, request_id: str, category: str, task: str) -> RequestRow:
    row = load_to_change(portal.runtime, caller, request_id)
    if row.state is RequestState.HELD:
        raise NotNowError(f"Request {row.id} waits for confirmation.", "Confirm it, or cancel it.")
    scope = _scope(category, task)
    with audited_for_others(portal.runtime, caller, row, "retry"):
        try:
            return retrying.retry(portal.runtime, row.id, scope)
        except CancellingError:
            raise BeingCancelledError(row.id) from None
        except NothingToRetryError as error:
            raise BadCallError(_sentence(error), "See the request's failures.") from None


def _everywhere_scope(category: str, task_class: str) -> Scope:
    if not category and not task_class:
        raise BadCallError(
            "No category or class is named.", "Name one, such as category=server busy."
        )
    return _scope(category, "", task_class)


def _reach(portal: Portal, scope: Scope) -> Reach:
    since = portal.runtime.clock.now() - overview.DAYS * 86_400.0
    return retrying.reach(portal.runtime, scope, since)


def _everywhere(portal: Portal, caller: Person, scope: Scope, reason: str) -> RetriedAnswer:
    what, _, subject = str(scope).partition("|")
    with audited(portal.runtime, caller.owner, f"retry {what}", subject, reason) as record:
        done = _retry_all(portal, scope)
        record.result = (
            f"{done.tasks} tasks tried again by {len(done.requests)} requests: "
            f"{', '.join(done.requests)}"
        )
    return done


def _retry_all(portal: Portal, scope: Scope) -> RetriedAnswer:
    found = _reach(portal, scope)
    tried: list[str] = []
    made: list[str] = []
    tasks: set[str] = set()
    for one in (*found.running, *found.ended):
        try:
            row = retrying.retry(portal.runtime, one.row.id, scope)
        except NothingToRetryError:
            continue  # it was cancelled, has ended, or was tried again since it was read
        tried.append(row.id)
        tasks |= one.tasks
        if row.id != one.row.id:
            made.append(row.id)
    return RetriedAnswer(tasks=len(tasks), requests=tuple(tried), made=tuple(made), more=found.more)


def _scope(category: str, task: str, task_class: str = "") -> Scope:
    try:
        return Scope.of(category, task, task_class)
    except ValueError as error:
        raise BadCallError(
            _sentence(error), "To retry all that failed, name neither category nor task."
        ) from None


def _sentence(error: Exception) -> str:
    said = str(error)
    return f"{said[:1].upper()}{said[1:]}."
