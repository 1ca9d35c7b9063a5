"""Signing in by a link, and out."""

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from portal.core import tokens
from portal.core.identity import person, sign_in, sign_out
from portal.core.problems import NotSignedInError
from portal.core.tokens import Use
from portal.web.context import Here

router = APIRouter(include_in_schema=False)


@router.get("/sign-in")
def enter(request: Request, here: Here, token: str = "") -> Response:
    """Start a session for the person a sign-in link names."""
    found = tokens.read(here.settings.secret.get_secret_value(), token, use=Use.LINK)
    if found is None:
        raise NotSignedInError(
            "This sign-in link is incomplete or has expired.",
            "Copy the whole link, or ask whoever runs this portal for a new one.",
        )
    response = RedirectResponse("/", 303, {"Cache-Control": "no-store"})
    sign_in(request, response, found)
    return response


@router.post("/sign-out", dependencies=[Depends(person)])
def leave(here: Here) -> Response:
    """End the session."""
    response = here.pages.page("signed_out.html", None, "")
    sign_out(response)
    return response
