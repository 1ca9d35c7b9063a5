"""The tokens that somebody has made for programs: on a page, and as JSON.

A token that is made here never has the rights of an operator: it would keep them when its owner has
lost them. `swathmill sign-in NAME --token --role operator` makes one that has.
"""

import datetime as dt
from http import HTTPStatus
from typing import Annotated

from fastapi import Form, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from portal.accounts.session_page import UNTOLD
from portal.serving.identity import Human
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError, NotNowError
from portal.serving.quantities import moment
from portal.serving.tokens import Person, Role
from tasks.accounts.token_table import (
    MOST_DAYS,
    Scope,
    TokenRow,
    TokenTable,
    TooManyTokensError,
    make_token,
)
from tasks.answers.answer import Answer
from tasks.strict_model import StrictModel

api = Router(prefix="/api/tokens", tags=["tokens"])
pages = Router(include_in_schema=False)

LONGEST_NAME = 80
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Days = Annotated[int, Field(ge=1, le=MOST_DAYS)]


class NewToken(StrictModel):
    """What a token is for, what it may do, and for how many days it is good."""

    name: Name
    scope: Scope = Scope.READ
    days: Days = 90


class TokenAnswer(Answer):
    """A token, without its text."""

    id: str
    name: str
    scope: Scope
    role: str
    created: dt.datetime
    expires: dt.datetime


class MadeAnswer(Answer):
    """A new token: its text is shown this once."""

    token: str
    about: TokenAnswer


@api.get("", summary="Your tokens")
def list_tokens(caller: Human, portal: CurrentPortal) -> list[TokenAnswer]:
    """List the tokens that you have made and that are good, the newest first."""
    return [_answer(row) for row in _good(portal, caller)]


@api.post("", status_code=HTTPStatus.CREATED, summary="Make a token")
def create(body: NewToken, caller: Human, portal: CurrentPortal, response: Response) -> MadeAnswer:
    """Make a token for a program. It acts for you as a scientist; its text is shown this once."""
    text, row = _make(portal, caller, body)
    response.headers["Cache-Control"] = "no-store"
    return MadeAnswer(token=text, about=_answer(row))


@api.delete("/{token_id}", status_code=HTTPStatus.NO_CONTENT, summary="Revoke a token")
def delete(token_id: str, caller: Human, portal: CurrentPortal) -> None:
    """Revoke a token: it is refused from now on."""
    _revoke(portal, caller, token_id)


@pages.get("/tokens")
def show(caller: Human, portal: CurrentPortal) -> Response:
    """List the caller's tokens, with a form to make one."""
    return _page(portal, caller)


@pages.post("/tokens")
def make(
    caller: Human,
    portal: CurrentPortal,
    name: Annotated[str, Form(min_length=1, max_length=LONGEST_NAME)],
    scope: Annotated[Scope, Form()] = Scope.READ,
    days: Annotated[int, Form(ge=1, le=MOST_DAYS)] = 90,
) -> Response:
    """Make a token, and show its text this once."""
    text, _ = _make(portal, caller, NewToken(name=name, scope=scope, days=days))
    shown = _page(portal, caller, text)
    shown.headers.update(UNTOLD)
    return shown


@pages.post("/tokens/{token_id}/revoke")
def revoke(token_id: str, caller: Human, portal: CurrentPortal) -> Response:
    """Revoke a token."""
    _revoke(portal, caller, token_id)
    return RedirectResponse("/tokens", HTTPStatus.SEE_OTHER)


def _page(portal: Portal, caller: Person, text: str = "") -> Response:
    return portal.pages.page(
        "tokens.html",
        caller,
        "tokens",
        200,
        tokens=_good(portal, caller),
        text=text,
        longest=LONGEST_NAME,
        most=MOST_DAYS,
    )


def _good(portal: Portal, caller: Person) -> list[TokenRow]:
    now = portal.runtime.clock.now()
    return [row for row in TokenTable(portal.runtime.store).of(caller.owner) if row.expires > now]


def _make(portal: Portal, caller: Person, wanted: NewToken) -> tuple[str, TokenRow]:
    try:
        return make_token(
            portal.runtime.store,
            owner=caller.owner,
            role=Role.SCIENTIST,
            scope=wanted.scope,
            name=wanted.name,
            now=portal.runtime.clock.now(),
            days=wanted.days,
        )
    except TooManyTokensError as error:
        raise NotNowError(
            f"You have {error.most} tokens, the most there may be.",
            "Revoke one on the page /tokens.",
        ) from error


def _revoke(portal: Portal, caller: Person, token_id: str) -> None:
    if not TokenTable(portal.runtime.store).revoke(caller.owner, token_id):
        raise NotFoundError(f"You have no token {token_id!r}.", "GET /api/tokens lists yours.")


def _answer(row: TokenRow) -> TokenAnswer:
    return TokenAnswer(
        id=row.id,
        name=row.name,
        scope=row.scope,
        role=row.role,
        created=moment(row.created),
        expires=moment(row.expires),
    )
