"""What all calls to archives over HTTP share: certificates, redirects and the names of errors."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from urllib.parse import urlsplit

import httpx

from archives.errors import (
    AnswerBrokenError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    DownloadFailedError,
    ProxyUnusableError,
)
from archives.fetch.answers import bare_url, followed
from archives.fetch.proxies import ProxiedTransport, UnusableProxyError
from archives.fetch.timing import Timing

USER_AGENT = f"swathmill/{version('swathmill')}"
"""How Swathmill names itself to archives."""

_CUT = ("peer closed connection", "Server disconnected")  # httpx uses one class for these and worse


def http_client(timing: Timing, context: ssl.SSLContext | None, **headers: str) -> httpx.Client:
    """Make a client that follows no redirects, over the proxies of the environment.

    `context` replaces the default certificates.

    Use it for one download or one call, so that cookies of a sign-in end with it.
    """
    return httpx.Client(
        transport=ProxiedTransport(context or _trusted()),
        follow_redirects=False,
        timeout=httpx.Timeout(timing.stall, connect=timing.connect),
        headers={"User-Agent": USER_AGENT, **headers},
    )


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Load the machine's certificates once in a process: that takes longer than a short call."""
    return ssl.create_default_context()


def redirected(url: str, location: str) -> str:
    """Return where an answer redirects to.

    Raises:
        AnswerBrokenError: it is no address.
        DownloadFailedError: the call would leave HTTPS.
    """
    to = followed(url, location)
    schemes = urlsplit(url).scheme, urlsplit(to).scheme
    if schemes[1] not in ("http", "https") or schemes == ("https", "http"):
        raise DownloadFailedError(
            f"{bare_url(url)} redirects to {bare_url(to)}, which is not protected by https"
        )
    return to


@contextmanager
def named_errors(where: str, timing: Timing) -> Iterator[None]:
    """Translate what httpx raises into errors of `archives`.

    `where` is the address without query.
    """
    try:
        yield
    except UnusableProxyError as error:
        raise ProxyUnusableError(str(error)) from None
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
        raise ConnectionFailedError(f"no connection to {where}: {error}") from None
    except httpx.TimeoutException:
        raise ArchiveTimeoutError(f"{where} was silent for {timing.stall:g} s") from None
    except httpx.NetworkError as error:
        raise ConnectionFailedError(f"{where} was cut off: {error}") from None
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise DownloadFailedError(f"{where} is not a valid address: {error}") from None
    except (httpx.TransportError, httpx.DecodingError) as error:
        if str(error).startswith(_CUT):
            raise ConnectionFailedError(f"{where} was cut off: {error}") from None
        raise AnswerBrokenError(f"{where} answered with broken HTTP: {error}") from None
