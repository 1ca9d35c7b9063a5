"""Who calls: a bearer token for programs, a session cookie for people, and forged forms refused."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response

from portal.core import tokens
from portal.core.problems import ForbiddenError, NotSignedInError
from portal.core.tokens import Person, Use
from tasks.settings import Settings

COOKIE = "swathmill_session"
_SAFE = {"GET", "HEAD", "OPTIONS"}


def person(request: Request) -> Person:
    """The person calling.

    A form or a script that changes something by cookie must come from this portal's own pages:
    the cookie is SameSite=Lax, and the `Origin` that browsers add is checked besides.

    Raises:
        NotSignedInError: without a token or session that is valid now.
        ForbiddenError: a cookie came with a change that another site asked for.
    """
    found = find_person(request)
    if found is None:
        raise NotSignedInError(
            "You are not signed in, or your session has ended.",
            "Open the sign-in link you were given, or send `Authorization: Bearer TOKEN`. "
            "Whoever runs this portal can make you a link.",
        )
    return found


def find_person(request: Request) -> Person | None:
    """The person calling, or None; raises ForbiddenError as `person`."""
    secret = _settings(request).secret.get_secret_value()
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return tokens.read(secret, token.strip(), use=Use.API)
    found = tokens.read(secret, request.cookies.get(COOKIE, ""), use=Use.SESSION)
    if found is not None and request.method not in _SAFE:
        _check_origin(request)
    return found


def operator(caller: Annotated[Person, Depends(person)]) -> Person:
    """The person calling, who must be an operator; raises ForbiddenError."""
    if not caller.is_operator:
        raise ForbiddenError(
            "This is for operators.", "Ask whoever runs this portal for an operator's link."
        )
    return caller


Caller = Annotated[Person, Depends(person)]
Operator = Annotated[Person, Depends(operator)]


def sign_in(request: Request, response: Response, found: Person) -> None:
    """Give the browser a session cookie."""
    settings = _settings(request)
    session = tokens.issue(
        settings.secret.get_secret_value(), found.owner, found.role, use=Use.SESSION
    )
    response.set_cookie(
        COOKIE,
        session,
        max_age=tokens.LIFETIMES[Use.SESSION],
        httponly=True,
        samesite="lax",
        secure=settings.portal_url.startswith("https://"),
    )


def sign_out(response: Response) -> None:
    """Take the session cookie away."""
    response.delete_cookie(COOKIE)


def _check_origin(request: Request) -> None:
    origin = urlsplit(request.headers.get("origin", "")).netloc
    ours = {request.headers.get("host", ""), urlsplit(_settings(request).portal_url).netloc}
    if not origin or origin not in ours:
        raise ForbiddenError(
            f"This change was asked for by {origin or 'an unnamed page'}, not by a page of this "
            "portal.",
            "Open the portal's own page and repeat it there.",
        )


def _settings(request: Request) -> Settings:
    settings = request.app.state.settings
    if not isinstance(settings, Settings):
        raise TypeError("the application has no settings")
    return settings
