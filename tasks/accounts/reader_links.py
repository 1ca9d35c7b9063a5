"""Links that show one request to whoever has them: signed, for a time, to read only.

A token is the request's id and the time of its expiry, under a salt of its own: it is no sign-in
link, no session and no API token. It also has the number of times that the owner has ended all
links to the request, so that each time ends those given before.
"""

from urllib.parse import quote

from tasks.accounts import expiring

LIFETIME = 30 * 86_400.0  # seconds, in a request's mail
ASKED_LIFETIME = 86_400.0  # in a mail that somebody asked for
_SALT = "swathmill.reader"


def key(request: str, links: int) -> str:
    """Return what a link to a request opens after its links were ended `links` times."""
    return f"{request}/{links}" if links else request


def request_of(opened: str) -> str:
    """Return the request that a `key` opens."""
    return opened.partition("/")[0]


def issue(secret: str, opened: str, expires: float) -> str:
    """Issue a token for a request's page, named by its `key`, until a POSIX time."""
    return expiring.issue(secret, _SALT, opened, expires)


def read(secret: str, token: str, now: float) -> tuple[str, float]:
    """Read the `key` that a token has and its end; ("", 0.0) when forged or expired."""
    return expiring.read(secret, _SALT, token, now)


def page(portal_url: str, request: str) -> str:
    """Return the address of a request's page, for those who are signed in."""
    return f"{portal_url.rstrip('/')}/requests/{request}"


def address(portal_url: str, secret: str, opened: str, expires: float) -> str:
    """Return the address that shows a request, named by its `key`, to whoever has it."""
    return f"{portal_url.rstrip('/')}/open?token={quote(issue(secret, opened, expires))}"
