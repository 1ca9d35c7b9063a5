"""Build the absolute addresses that other programs follow, and the parts of long lists."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Query, Request, Response
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from tasks.settings import Settings

_SO_MANY = Query(ge=1, le=10_000, description="So many; the header `Link` leads to the next ones.")
ListLimit = Annotated[int, _SO_MANY]
PartLimit = Annotated[int | None, _SO_MANY]
"""The limit of a list that is whole without one."""
PAGE = 1000
"""Entries of a list that is asked for without a limit."""


def base_url(request: Request, settings: Settings) -> str:
    """Return the portal's address as the caller sees it, without a slash at its end.

    Behind a proxy that ends TLS, the portal's own server sees plain HTTP. So the address of the
    settings is taken where it names the host that the caller called.
    """
    named = urlsplit(settings.portal_url)
    if named.netloc == request.headers.get("host", ""):
        return settings.portal_url.rstrip("/")
    return str(request.base_url).rstrip("/")


def this_url(request: Request, settings: Settings, **changes: str) -> str:
    """Return the address that was called, with some query parameters changed."""
    url = request.url.include_query_params(**changes)
    query = f"?{url.query}" if url.query else ""
    return f"{base_url(request, settings)}{url.path}{query}"


def page_above(routes: Sequence[BaseRoute], scope: Scope) -> str:
    """Return the nearest path above that of a call at which something can be read."""
    path: str = scope["path"]
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        above = {**scope, "path": path, "method": "GET"}
        if any(route.matches(above)[0] is Match.FULL for route in routes):
            break
    return path


def part_of_list(
    settings: Settings,
    request: Request,
    response: Response,
    keys: Sequence[str],
    begin: int,
    limit: int | None,
) -> slice:
    """Return which part of a list to send, and link to the rest of it (RFC 8288).

    `keys` are what `after` is in the addresses of the following pages.
    """
    end = begin + limit if limit else len(keys)
    if end < len(keys):
        following = this_url(request, settings, after=keys[end - 1])
        response.headers["Link"] = f'<{following}>; rel="next"'
    return slice(begin, end)


def numbers_of(found: Sequence[object]) -> list[str]:
    """Return the keys of a list whose entries have none: their numbers, counted from 1."""
    return [str(number) for number in range(1, len(found) + 1)]
