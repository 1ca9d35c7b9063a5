"""What all calls to archives over HTTP share: certificates, redirects and the names of errors."""

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Protocol
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
from archives.fetch.limits import HostLimits
from archives.fetch.proxies import ProxiedTransport, UnusableProxyError
from archives.fetch.timing import Timing

USER_AGENT = f"swathmill/{version('swathmill')}"
"""How Swathmill names itself to archives."""

HOPS = 10
"""Redirects that are followed."""

AS_STORED = {"Accept-Encoding": "identity"}
"""Headers that ask for a file's own bytes."""

CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)$")

_BODY = 64 * 1024  # bytes read from the body of an error
_CUT = ("peer closed connection", "Server disconnected")  # httpx uses one class for these and worse


class Credentials(Protocol):
    """Chooses the headers that are sent to each address."""

    def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers that permit a request to this URL; empty for an unknown host."""
        ...


@dataclass(frozen=True, kw_only=True)
class Manners:
    """How hosts are called: with which permission, how many at once, with how much patience.

    `context` replaces the default TLS certificates.
    """

    credentials: Credentials
    limits: HostLimits
    timing: Timing
    context: ssl.SSLContext | None
    sleep: Callable[[float], None]

    @contextmanager
    def answer(
        self, client: httpx.Client, url: str, headers: Mapping[str, str]
    ) -> Iterator[httpx.Response]:
        """Ask one address for a file, and hold a connection to its host until all is read.

        Raises ArchiveError for what httpx raises.
        """
        said = {**self.credentials.headers(url), **headers}
        with (
            self.limits.place(urlsplit(url).netloc.rpartition("@")[2]),
            named_errors(bare_url(url), self.timing),
            client.stream("GET", url, headers=said) as answer,
        ):
            yield answer


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


def redirection(answer: httpx.Response, url: str) -> str | None:
    """Return where an answer redirects to; None if it does not."""
    location = str(answer.headers.get("location", ""))
    if answer.status_code not in (301, 302, 303, 307, 308) or not location:
        return None
    return redirected(url, location)


def announced_length(answer: httpx.Response) -> int:
    """Return the bytes that an answer says it has; 0 if it does not say."""
    text = str(answer.headers.get("content-length", ""))
    return int(text) if text.isdecimal() else 0


def validator_of(answer: httpx.Response) -> str:
    """Return what later proves that the file is unchanged: a strong ETag, or its date."""
    tag = str(answer.headers.get("etag", ""))
    if tag.startswith('"'):
        return tag
    return str(answer.headers.get("last-modified", ""))


def some_text(answer: httpx.Response) -> str:
    """Read the text of an answer that is an error, or the beginning of it."""
    body = b""
    for piece in answer.iter_raw():
        body += piece
        if len(body) >= _BODY:
            break
    return body[:_BODY].decode("utf-8", "replace")
