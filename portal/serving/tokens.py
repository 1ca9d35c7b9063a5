"""Signed tokens: who someone is, and in which role, without a table of accounts.

They are for sign-in links, sessions, and programs of the machine that has the signing key. Tokens
that people make for their programs are stored (`tasks/accounts/token_table.py`).

A token is `itsdangerous` text: owner and role, of a session a random number and the provider's
groups, too, the second of signing, and a signature by the installation's secret. Each use has its
own salt, so that a sign-in link is not a valid API token. A new secret invalidates all of them.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from urllib.parse import quote

from itsdangerous import BadData, URLSafeTimedSerializer

from tasks.accounts import reader_links

SHORTEST_SECRET = 32
LONGEST_OWNER = 254
_LONGEST = 4096  # characters of a token; none that is issued has as many


class Role(StrEnum):
    """What someone may see: scientists see their own requests, operators see all."""

    SCIENTIST = "scientist"
    OPERATOR = "operator"


class Use(StrEnum):
    """What a token is for; the value is its salt."""

    API = "swathmill.api"
    LINK = "swathmill.link"
    SESSION = "swathmill.session"
    PROVIDED = "swathmill.provided"  # a session of whom an OpenID provider knows


LIFETIMES = {
    Use.API: 3600,
    Use.LINK: 7 * 86400,
    Use.SESSION: 30 * 86400,
    Use.PROVIDED: 12 * 3600,  # a group that somebody has left ends within it
}
"""Seconds after which a token is refused."""
_SESSIONS = (Use.SESSION, Use.PROVIDED)
"""Each ends by itself, so that no two of one person may be alike."""
_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Person:
    """The caller: an owner of requests (for example a mail address) and a role.

    `reads` is the key of the link by which this person may read a request, whoever owns it
    (`tasks/accounts/reader_links.py`). A guest has only that, and no owner's name. `by_token`: a
    program with a token that this person made. `groups` are those of the provider by which this
    person was let in.
    """

    owner: str
    role: Role
    reads: str = ""
    by_token: bool = False
    groups: tuple[str, ...] = ()

    @property
    def is_guest(self) -> bool:
        """True if this person is unknown and has only a link to a request."""
        return not self.owner

    @property
    def is_operator(self) -> bool:
        """True if this person sees everybody's requests and the operators' page."""
        return self.role is Role.OPERATOR

    def may_see(self, owner: str) -> bool:
        """Tell whether this person may see and give orders about a request of `owner`."""
        return self.is_operator or (not self.is_guest and self.owner == owner)

    def has_link(self, request: str, links: int) -> bool:
        """Tell whether this person has a link to a request whose links were ended `links` times."""
        return bool(self.reads) and self.reads == reader_links.key(request, links)


def issue(
    secret: str,
    owner: str,
    role: str = Role.SCIENTIST,
    *,
    use: Use = Use.API,
    groups: Sequence[str] = (),
) -> str:
    """Issue a token that says its bearer is `owner` in `role`, let in by groups of a provider.

    Raises ValueError for a secret too short to sign with, an empty owner or an unknown role.
    """
    if not owner or len(owner) > LONGEST_OWNER:
        raise ValueError(f"an owner must have 1 to {LONGEST_OWNER} characters, got {owner!r}")
    own = [secrets.token_urlsafe(_BYTES), list(groups)] if use in _SESSIONS else []
    return _serializer(secret, use).dumps([owner, Role(role).value, *own])


def read(secret: str, token: str, *, use: Use = Use.API) -> Person | None:
    """Return the person a token names; None if it is forged, expired or for another use."""
    signed = read_signed(secret, token, use=use)
    return signed[0] if signed is not None else None


def read_signed(secret: str, token: str, *, use: Use) -> tuple[Person, int] | None:
    """Return the person a token names and the POSIX second of its signature, as `read` does."""
    signed = _signed(secret, token, use) if len(token) <= _LONGEST else None
    if signed is None or not 0 <= int(time.time()) - signed[1] <= LIFETIMES[use]:
        return None
    return signed


@lru_cache(maxsize=1024)  # checking a signature takes as long as all else of a short call
def _signed(secret: str, token: str, use: Use) -> tuple[Person, int] | None:
    """Return whom a token with a good signature names, and when it was signed, of whatever age."""
    try:
        content, at = _serializer(secret, use).loads(token, return_timestamp=True)
    except BadData:
        return None
    match content:
        case [str(owner), str(role), *own] if role in {*Role}:
            groups = tuple(map(str, own[1])) if len(own) > 1 else ()
            return Person(owner=owner, role=Role(role), groups=groups), int(at.timestamp())
        case _:
            return None


def sign_in_link(portal_url: str, secret: str, owner: str, role: str = Role.SCIENTIST) -> str:
    """Build an address that signs its visitor in as `owner`; it is valid for a week."""
    token = issue(secret, owner, role, use=Use.LINK)
    return f"{portal_url.rstrip('/')}/sign-in?token={quote(token)}"


@lru_cache(maxsize=16)  # making one takes as long as reading a token
def _serializer(secret: str, use: Use) -> URLSafeTimedSerializer:
    if len(secret) < SHORTEST_SECRET:
        raise ValueError(
            f"the signing secret has {len(secret)} characters; set SWATHMILL_SECRET to at least "
            f"{SHORTEST_SECRET} random ones"
        )
    return URLSafeTimedSerializer(secret, salt=use.value)
