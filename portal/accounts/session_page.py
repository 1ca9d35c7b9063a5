"""Sign in by a link, which can be sent by mail, and out; open the link in a request's mail."""

import math
import re
from http import HTTPStatus
from typing import Annotated

from fastapi import Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from portal.accounts.state import Accounts
from portal.serving import openid, tokens
from portal.serving.caller_limits import address_of
from portal.serving.identity import (
    Caller,
    check_origin,
    in_role_of_now,
    show_request,
    sign_in,
    sign_out,
)
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotSignedInError
from portal.serving.tokens import Person, Role, Use
from tasks.accounts import reader_links, sign_in_links
from tasks.mail_address import LONGEST, is_address
from tasks.requests.request_table import RequestTable

router = Router(include_in_schema=False)

_REQUEST_PAGE = re.compile(r"/requests/[A-Za-z0-9_-]{1,40}")
# The address holds a token: browsers must neither pass it on as referrer nor cache it.
UNTOLD = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


@router.get("/sign-in")
def enter(
    request: Request,
    portal: CurrentPortal,
    token: str = "",
    then: Annotated[str, Query(alias="next")] = "",
) -> Response:
    """Start a session for the person a sign-in link names, and go on to the page `next`.

    Without a link, offer to send one.
    """
    if not token:
        return _form(portal, then=then)
    found = _named_by(request, portal, token)
    if found is None:
        raise NotSignedInError(
            "This sign-in link is incomplete or has expired.",
            "Copy the whole link, or have a new one sent to you. Whoever runs this portal can make "
            "one, too: `swathmill sign-in ADDRESS`.",
        )
    response = RedirectResponse(request_page(then) or "/", 303, UNTOLD)
    sign_in(request, response, found)
    return response


@router.post("/sign-in")
def ask(
    request: Request,
    portal: CurrentPortal,
    address: Annotated[str, Form(max_length=LONGEST)] = "",
    then: Annotated[str, Form(alias="next", max_length=200)] = "",
) -> Response:
    """Send a sign-in link to an address if it is known; the answer does not reveal if it is."""
    check_origin(request)
    address = address.strip()
    if not is_address(address):
        return _form(
            portal,
            HTTPStatus.UNPROCESSABLE_ENTITY,
            address=address,
            then=then,
            wrong="This is not a mail address: it needs a name, an @ and a host.",
        )
    wait = portal.limits.asked.take(address_of(request.scope))
    if not wait and not portal.state(Accounts).desk.ask(address, request_page(then)):
        wait = 60.0
    if wait:
        minutes = math.ceil(wait / 60)
        shown = _form(
            portal,
            HTTPStatus.TOO_MANY_REQUESTS,
            address=address,
            then=then,
            wrong="Too many links are being asked for. Try again in "
            f"{'a minute' if minutes == 1 else f'{minutes} minutes'}.",
        )
        shown.headers["Retry-After"] = str(math.ceil(wait))
        return shown
    return _form(portal, address=address, then=then, sent=True)


@router.get("/open")
def open_request(request: Request, portal: CurrentPortal, token: str = "") -> Response:
    """Show a request, read-only, to whoever has a link to it."""
    response = RedirectResponse("/", 303, UNTOLD)
    shown = show_request(request, response, token)
    request_id = reader_links.request_of(shown)
    row = RequestTable(portal.runtime.store).request(request_id)
    if row is not None and shown != reader_links.key(row.id, row.links):
        raise NotSignedInError(
            "This link has been ended by the owner of the request.", "Ask for a new one."
        )
    response.headers["Location"] = f"/requests/{request_id}"
    return response


def request_page(path: str) -> str:
    """Return the path if it is the page of a request of this portal, else an empty string."""
    return path if _REQUEST_PAGE.fullmatch(path) else ""


@router.post("/sign-out")
def leave(request: Request, caller: Caller, portal: CurrentPortal) -> Response:
    """End the session, in this browser and wherever its cookie was copied to."""
    response = portal.pages.page("signed_out.html", None, "")
    sign_out(request, response, caller)
    return response


def _named_by(request: Request, portal: Portal, token: str) -> Person | None:
    """Find the person that a sign-in link names, whether it was handed over or mailed."""
    secret = portal.settings.secret.get_secret_value()
    link = tokens.read_signed(secret, token, use=Use.LINK)
    if link is not None:
        found, signed = link
        ended = portal.sessions.has_ended(found.owner, token, signed)
        return None if ended else in_role_of_now(request, found, signed)
    owner, expires = sign_in_links.read(secret, token, portal.runtime.clock.now())
    mailed = expires - sign_in_links.LIFETIME
    if not owner or portal.sessions.has_ended(owner, token, mailed):
        return None
    return Person(owner=owner, role=Role.SCIENTIST)


def _form(
    portal: Portal,
    status: HTTPStatus = HTTPStatus.OK,
    *,
    address: str = "",
    then: str = "",
    wrong: str = "",
    sent: bool = False,
) -> Response:
    return portal.pages.page(
        "sign_in.html",
        None,
        "",
        status,
        sends_mail=portal.state(Accounts).desk.sends_mail,
        provider=openid.name_of(portal.settings.oidc_issuer),
        address=address,
        then=request_page(then),
        wrong=wrong,
        sent=sent,
    )
