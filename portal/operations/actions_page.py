"""What operators do: a page that asks before, one that lists what was done, also as CSV."""

import datetime as dt
from typing import Annotated, Self

from fastapi import Depends, Form, Query, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from portal.operations import actions
from portal.operations.actions import Action, Order
from portal.serving.attachments import csv_answer
from portal.serving.identity import Operator, operator
from portal.serving.late_routes import Router
from portal.serving.pages import iso_text
from portal.serving.portal import CurrentPortal, PageNumber, Portal
from portal.serving.quantities import moment
from portal.serving.tokens import Person
from tasks.answers.answer import Answer
from tasks.bag.model import Phase
from tasks.operators import audit, restrictions
from tasks.operators.restrictions import Kind

pages = Router(include_in_schema=False, dependencies=[Depends(operator)])
api = Router(prefix="/api/operations", tags=["operations"])

LISTED = 100


class ActionBody(BaseModel):
    """An action on something: a worker, a task that runs, a request, a phase or an owner."""

    model_config = ConfigDict(extra="forbid")

    action: Action
    subject: str = Field(max_length=200)
    value: str = Field("", max_length=20, description="Of a limit or quota; empty lifts it.")
    reason: str = Field("", max_length=500, description="Why, for the audit.")


class AuditEntryAnswer(Answer):
    """What an operator did. An empty result: it was interrupted and may have taken effect."""

    at: dt.datetime
    who: str
    action: str
    subject: str
    reason: str
    result: str

    @classmethod
    def of(cls, entry: audit.AuditRow) -> Self:
        """Build the answer for a row of the audit."""
        return cls(
            at=moment(entry.at),
            who=entry.who,
            action=entry.action,
            subject=entry.subject,
            reason=entry.reason,
            result=entry.result,
        )


@api.get("/actions", summary="What operators did (operators)", dependencies=[Depends(operator)])
def list_actions(
    portal: CurrentPortal,
    limit: Annotated[int, Query(ge=1, le=1000, description="So many at most.")] = LISTED,
) -> tuple[AuditEntryAnswer, ...]:
    """List what operators did, the newest first."""
    return tuple(AuditEntryAnswer.of(one) for one in audit.entries(portal.runtime.store, limit))


@api.post("/actions", summary="Act (operators)", status_code=202)
def do_action(caller: Operator, portal: CurrentPortal, body: ActionBody) -> AuditEntryAnswer:
    """Drain, release, kill, cancel, pause, resume, limit or set a quota, at once.

    The answer is the row of the audit.
    """
    order = Order(action=body.action, subject=body.subject.strip(), value=body.value.strip())
    return AuditEntryAnswer.of(_acted(portal, caller, order, body.reason))


@pages.get("/operations/actions")
def show(caller: Operator, portal: CurrentPortal, page: PageNumber = 0) -> Response:
    """Show what is restricted, and what operators did, the newest first."""
    skip = page * LISTED
    entries = list(audit.entries(portal.runtime.store, LISTED + 1, skip))
    found = restrictions.load(portal.runtime.store)
    now = portal.runtime.clock.now()
    return portal.pages.page(
        "operations_actions.html",
        caller,
        "operations",
        200,
        entries=entries[:LISTED],
        more=len(entries) > LISTED,
        number=max(0, page),
        restrictions=found,
        used={
            (one.kind, one.subject): restrictions.spent_hours(
                portal.runtime.store, (one.kind, one.subject), now
            )
            for one in found
            if one.kind in restrictions.QUOTAS
        },
        all_phases=[phase.value for phase in Phase],
        paused={one.subject for one in found if one.kind is Kind.PAUSE_PHASE},
        limits={one.subject: one for one in found if one.kind is Kind.LIMIT_PHASE},
    )


@pages.get("/operations/actions.csv")
def download(portal: CurrentPortal) -> Response:
    """Download the whole audit, the newest action first."""
    head = ("at", "who", "action", "subject", "reason", "result")
    rows = (
        (iso_text(one.at), one.who, one.action, one.subject, one.reason, one.result)
        for one in audit.entries(portal.runtime.store)
    )
    return csv_answer("actions", head, rows)


@pages.get("/operations/act")
def ask(
    caller: Operator, portal: CurrentPortal, action: Action, subject: str = "", value: str = ""
) -> Response:
    """Say what an action would do, and ask whether to do it."""
    order = Order(action=action, subject=subject.strip(), value=value.strip())
    return portal.pages.page(
        "operations_act.html",
        caller,
        "operations",
        200,
        order=order,
        words=actions.describe(portal.runtime, order),
    )


@pages.post("/operations/act")
def act(
    caller: Operator,
    portal: CurrentPortal,
    action: Annotated[Action, Form()],
    subject: Annotated[str, Form(max_length=200)],
    value: Annotated[str, Form(max_length=20)] = "",
    reason: Annotated[str, Form(max_length=500)] = "",
) -> RedirectResponse:
    """Do it, and show the audit."""
    order = Order(action=action, subject=subject.strip(), value=value.strip())
    _acted(portal, caller, order, reason)
    return RedirectResponse("/operations/actions", 303)


def _acted(portal: Portal, caller: Person, order: Order, reason: str) -> audit.AuditRow:
    done = actions.act(portal.runtime, caller.owner, order, reason.strip())
    portal.sessions.forget(order.subject)  # what has ended, if it is an owner
    return done
