"""Build the absolute addresses that other programs follow."""

from urllib.parse import urlsplit

from fastapi import Request

from tasks.settings import Settings


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
