"""Identify the caller: a bearer token for programs, a session cookie for people.

Forms that another site sends are refused. Roles are read at each call: a session or token says in
which role it was given, storage since when that holds no more, and the settings which groups of the
OpenID provider are operators.
"""

from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response

from portal.serving import tokens
from portal.serving.caller_limits import note_caller
from portal.serving.openid import Claims
from portal.serving.problems import ForbiddenError, NotSignedInError
from portal.serving.sessions import Sessions
from portal.serving.tokens import Person, Role, Use
from tasks.accounts import reader_links, session_table
from tasks.accounts.token_table import MARK, Scope, TokenTable
from tasks.bag.runtime import Runtime
from tasks.settings import Settings
from tasks.storage.clock import Clock

COOKIE = "swathmill_session"
READER_COOKIE = "swathmill_reader"
_SAFE = {"GET", "HEAD", "OPTIONS"}


async def person(request: Request) -> Person:
    """Return the caller. This and what depends on it needs no thread, but for stored tokens.

    A form or a script that changes something with a cookie must come from this portal's own pages:
    the cookie is SameSite=Lax, and the `Origin` header that browsers add is checked too.

    Raises:
        NotSignedInError: the call has no token or session that is valid now.
        ForbiddenError: another site's page asked for a change with a cookie.
    """
    found = await _found(request)
    if found is None:
        raise NotSignedInError(
            "No sign-in link was opened in this browser, or the session has ended.",
            "Open the sign-in link you were given, or have one sent to you at /sign-in. Programs "
            "send `Authorization: Bearer TOKEN`.",
        )
    return found


async def _found(request: Request) -> Person | None:
    """Return what `find_person` does, without holding up others while storage is asked."""
    portal = request.app.state.portal
    bearer = _bearer_text(request)
    stored = bearer.startswith(MARK)
    signed = _signed_api(request) if bearer else _session(request)
    if stored or (signed is not None and not portal.sessions.is_known(signed[0].owner)):
        found: Person | None = await portal.quickly(find_person, request)
    else:
        found = find_person(request)
    if found is not None:
        note_caller(request, found.owner)
    return found


def find_person(request: Request) -> Person | None:
    """Return the caller, or None if nobody is signed in.

    Raises ForbiddenError as `person` does, and StoreError.
    """
    bearer = _bearer_text(request)
    if bearer.startswith(MARK):
        return _bearer(request, bearer)
    known = _signed_api(request) if bearer else _session(request)
    if known is None:
        return None
    found, signed = known
    sessions: Sessions = request.app.state.portal.sessions
    if sessions.has_ended(found.owner, bearer or request.cookies[COOKIE], signed):
        return None
    if not bearer and request.method not in _SAFE:
        check_origin(request)
    return in_role_of_now(request, found, signed)


def in_role_of_now(request: Request, found: Person, given: float) -> Person:
    """Return a person to whom a role was given at a POSIX second, in the role that stands now.

    Raises StoreError.
    """
    sessions: Sessions = request.app.state.portal.sessions
    if found.is_operator and not sessions.is_operator(found.owner, given):
        return replace(found, role=Role.SCIENTIST)
    return found


def _bearer_text(request: Request) -> str:
    """Return the token of the header `Authorization`, or ""; a wrong scheme has none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or "-" if scheme.lower() == "bearer" else ""


def _signed_api(request: Request) -> tuple[Person, int] | None:
    """Return whom a signed API token names, and when it was signed; it may have ended since."""
    secret = _settings(request).secret.get_secret_value()
    return tokens.read_signed(secret, _bearer_text(request), use=Use.API)


def _session(request: Request) -> tuple[Person, int] | None:
    """Return whom the session cookie names, and when it was signed; it may have ended since."""
    secret, session = _settings(request).secret.get_secret_value(), request.cookies.get(COOKIE, "")
    if not session:
        return None
    found = tokens.read_signed(secret, session, use=Use.SESSION)
    if found is not None:
        return found
    provided = tokens.read_signed(secret, session, use=Use.PROVIDED)
    if provided is None:
        return None
    person, signed = provided
    now = Claims.of(_settings(request)).now(person.owner, person.groups)
    return None if now is None else (now, signed)


def _bearer(request: Request, token: str) -> Person | None:
    """Return the owner of a stored token; raise ForbiddenError where it only reads."""
    runtime: Runtime = request.app.state.portal.runtime
    row = TokenTable(runtime.store).find(token, runtime.clock.now())
    if row is None:
        return None
    if row.scope is Scope.READ and not _only_reads(request):
        raise ForbiddenError(
            f"The token {row.name!r} only reads.", "Make one that may write, on the page /tokens."
        )
    found = Person(owner=row.owner, role=Role(row.role), by_token=True)
    return in_role_of_now(request, found, row.created)


async def reader(request: Request) -> Person:
    """Return the caller who reads one request's pages or files; the path holds the request's id.

    The caller is signed in, or has a link to this request. Only addresses that read may depend on
    this function.

    Raises NotSignedInError as `person` does.
    """
    shown = _shown_by_link(request)
    if not shown:
        return await person(request)
    known = await _found(request) or Person(owner="", role=Role.SCIENTIST)
    return replace(known, reads=shown)


async def asker(request: Request) -> Person:
    """Return the caller who asks about one request's results, by a question in the body.

    Such a call changes nothing, so whoever may read may make it: a token that only reads, too, and
    a link. Raises as `reader` does, and ForbiddenError as `person` does.
    """
    request.state.asks = True
    return await reader(request)


def _only_reads(request: Request) -> bool:
    return request.method in _SAFE or bool(getattr(request.state, "asks", False))


async def operator(caller: Annotated[Person, Depends(person)]) -> Person:
    """Return the caller, who must be an operator; raise ForbiddenError otherwise."""
    if not caller.is_operator:
        raise ForbiddenError(
            "This is for operators.", "Ask whoever runs this portal for an operator's link."
        )
    return caller


async def human(caller: Annotated[Person, Depends(person)]) -> Person:
    """Return the caller, who must not be a program with a token; raise ForbiddenError otherwise."""
    if caller.by_token:
        raise ForbiddenError(
            "A token cannot see, make or revoke tokens.", "Sign in and open the page /tokens."
        )
    return caller


Caller = Annotated[Person, Depends(person)]
Human = Annotated[Person, Depends(human)]
Reader = Annotated[Person, Depends(reader)]
Asker = Annotated[Person, Depends(asker)]
Operator = Annotated[Person, Depends(operator)]


def sign_in(request: Request, response: Response, found: Person, *, use: Use = Use.SESSION) -> None:
    """Give the browser a session cookie."""
    settings = _settings(request)
    secret = settings.secret.get_secret_value()
    session = tokens.issue(secret, found.owner, found.role, use=use, groups=found.groups)
    response.set_cookie(
        COOKIE,
        session,
        max_age=tokens.LIFETIMES[use],
        httponly=True,
        samesite="lax",
        secure=settings.portal_url.startswith("https://"),
    )


def show_request(request: Request, response: Response, token: str) -> str:
    """Give the browser a cookie that shows the request of a link's token; return the link's key.

    The cookie only reads. The browser sends it to the addresses of that request alone, and it ends
    with the link.

    Raises:
        NotSignedInError: the link is incomplete or has expired.
    """
    settings, now = _settings(request), _now(request)
    shown, expires = reader_links.read(settings.secret.get_secret_value(), token, now)
    if not shown:
        raise NotSignedInError(
            "This link is incomplete or has expired.",
            "Copy the whole link, or sign in and look among your requests.",
        )
    request_id = reader_links.request_of(shown)
    for folder in ("/requests/", "/api/requests/"):
        response.set_cookie(
            READER_COOKIE,
            token,
            max_age=int(expires - now),
            path=folder + request_id,
            httponly=True,
            samesite="lax",
            secure=settings.portal_url.startswith("https://"),
        )
    return shown


def _shown_by_link(request: Request) -> str:
    """Return the key of the link to the request in the path that this browser has opened, or ""."""
    token = request.cookies.get(READER_COOKIE, "")
    wanted = request.path_params.get("request_id", "")
    if not token or not wanted or not _only_reads(request):
        return ""
    secret = _settings(request).secret.get_secret_value()
    shown, _ = reader_links.read(secret, token, _now(request))
    return shown if reader_links.request_of(shown) == wanted else ""


def sign_out(request: Request, response: Response, found: Person) -> None:
    """End the session, of whoever has its cookie; delete that, and the pages that are cached.

    Raises StoreError: the session may go on.
    """
    token = request.cookies.get(COOKIE, "")
    portal = request.app.state.portal
    if token:
        session_table.end_one(portal.runtime.store, portal.runtime.clock, found.owner, token)
        portal.sessions.forget(found.owner)
    response.delete_cookie(COOKIE)
    response.headers["Clear-Site-Data"] = '"cache"'


def check_origin(request: Request) -> None:
    """Refuse a change that another site's page asks for; raise ForbiddenError."""
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


def _now(request: Request) -> float:
    clock: Clock = request.app.state.clock
    return clock.now()
