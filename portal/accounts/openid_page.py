"""Sign in at an OpenID provider, and come back from it."""

from http import HTTPStatus
from typing import Annotated

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import StarletteOAuth2App
from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from joserfc.errors import JoseError

from portal.accounts.session_page import UNTOLD, request_page
from portal.accounts.state import Accounts
from portal.serving.identity import sign_in
from portal.serving.late_routes import Router
from portal.serving.openid import Claims
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotSignedInError, ProviderError
from portal.serving.tokens import Person, Use
from tasks.accounts import session_table

router = Router(include_in_schema=False)

_THEN = "then"
PATH = "/sign-in/provider"
BACK = f"{PATH}/back"


@router.get(PATH)
async def go(
    request: Request, portal: CurrentPortal, then: Annotated[str, Query(alias="next")] = ""
) -> Response:
    """Send the browser to the provider, and remember the page to go on to."""
    found = _provider(portal)
    request.session[_THEN] = request_page(then)
    try:
        sent = await found.authorize_redirect(
            request, portal.settings.portal_url.rstrip("/") + BACK
        )
    except (httpx2.HTTPError, RuntimeError, ValueError) as error:
        raise _silent(error) from error
    return Response(
        status_code=HTTPStatus.SEE_OTHER, headers={"Location": sent.headers["location"]}
    )


@router.get(BACK)
async def back(request: Request, portal: CurrentPortal) -> Response:
    """Start a session for whom the provider names."""
    found = _provider(portal)
    then = request_page(str(request.session.get(_THEN, "")))
    try:
        token = await found.authorize_access_token(request)
    except httpx2.HTTPError as error:
        raise _silent(error) from error
    except (AuthlibBaseError, JoseError) as error:
        raise NotSignedInError(
            f"The OpenID provider did not sign you in: {error}.", "Sign in again at /sign-in."
        ) from error
    finally:
        request.session.clear()
    person = Claims.of(portal.settings).person(token.get("userinfo") or {})
    response = RedirectResponse(then or "/", HTTPStatus.SEE_OTHER, UNTOLD)
    await run_in_threadpool(_note_role, portal, person)
    sign_in(request, response, person, use=Use.PROVIDED)
    return response


def _note_role(portal: Portal, person: Person) -> None:
    """End the rights of an operator whom the provider names as none."""
    if portal.settings.oidc_operators and not person.is_operator:
        session_table.end_operator(portal.runtime.store, portal.runtime.clock, person.owner)
        portal.sessions.forget(person.owner)


def _provider(portal: Portal) -> StarletteOAuth2App:
    assert portal.state(Accounts).provider is not None  # only then there are these routes
    return portal.state(Accounts).provider


def _silent(error: Exception) -> ProviderError:
    return ProviderError(
        f"The OpenID provider does not answer: {error}.",
        "Try again in a minute. If it persists, tell whoever runs this portal.",
    )
