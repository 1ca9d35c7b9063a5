"""Links in a mail that sign in whoever has them as an owner of requests, for an hour.

A token is the owner and the time of its expiry, under a salt of its own. It names no role: it never
signs in an operator.
"""

from urllib.parse import quote

from tasks.accounts import expiring

LIFETIME = 3600.0  # seconds
THEN = "next"  # the part of the address that names the page to go on to
_SALT = "swathmill.sign-in-mail"


def issue(secret: str, owner: str, expires: float) -> str:
    """Issue a token for an owner until a POSIX time."""
    return expiring.issue(secret, _SALT, owner, expires)


def read(secret: str, token: str, now: float) -> tuple[str, float]:
    """Read the owner that a token signs in, and when it expires; "" if it is forged or expired."""
    return expiring.read(secret, _SALT, token, now)


def page(portal_url: str, then: str = "") -> str:
    """Return the address where a sign-in link can be asked for.

    After signing in, the browser goes to the page `then`.
    """
    return f"{portal_url.rstrip('/')}/sign-in" + (f"?{THEN}={quote(then)}" if then else "")


def address(portal_url: str, secret: str, owner: str, expires: float) -> str:
    """Return the address that signs in whoever has it."""
    return f"{page(portal_url)}?token={quote(issue(secret, owner, expires))}"
