"""Signed tokens that name something until a POSIX time.

Equal names and times give equal tokens: a mail is the same each time it is sent. Each use has a
salt of its own, so that no token is good for another use. Changing the secret ends all of them.
"""

from itsdangerous import BadData, URLSafeSerializer


def issue(secret: str, salt: str, name: str, expires: float) -> str:
    """Issue a token for a name until a POSIX time."""
    return str(URLSafeSerializer(secret, salt=salt).dumps([name, int(expires)]))


def read(secret: str, salt: str, token: str, now: float) -> tuple[str, float]:
    """Read the name in a token and its end; ("", 0.0) when it is forged or expired."""
    try:
        content = URLSafeSerializer(secret, salt=salt).loads(token)
    except BadData:
        return "", 0.0
    match content:
        case [str(name), int(expires)] if expires > now:
            return name, float(expires)
        case _:
            return "", 0.0
