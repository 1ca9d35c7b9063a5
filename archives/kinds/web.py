"""Ask catalogues over HTTP, a page at a time; each refusal is an error of its own class."""

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

import httpx

from archives.errors import (
    AnswerBrokenError,
    ArchiveError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    DownloadFailedError,
    ServerBusyError,
    TokenRefusedError,
)
from archives.fetch.answers import answer_error, bare_url, followed
from archives.fetch.download import USER_AGENT, Credentials
from archives.fetch.limits import HostLimits
from archives.fetch.timing import Timing

Parameters = Sequence[tuple[str, str]]

_HOPS = 5
_TRIES = 3
_MOST = 256 * 2**20  # bytes per answer; a page of 2,000 granules has about 8 MB
_LONGEST_PAUSE = 30.0  # seconds; if a server asks for more, a later attempt tries again
_SIGN_IN = ("/oauth/authorize", "/login")
_PASSING = (ServerBusyError, ConnectionFailedError, ArchiveTimeoutError, AnswerBrokenError)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A complete answer: the address that gave it, its headers (lower case) and its body."""

    url: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def json(self) -> object:
        """Parse the body as JSON; raise AnswerBrokenError if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise AnswerBrokenError(
                f"{bare_url(self.url)} answered with something that is not JSON ({error}): "
                f"{self.body[:80]!r}"
            ) from None


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Load the trusted certificates once in a process: that takes longer than a short answer."""
    return ssl.create_default_context()


class Web:
    """Reads pages of catalogues; repeats a call that failed temporarily, at most twice.

    `context` replaces the default TLS certificates.
    """

    def __init__(
        self,
        credentials: Credentials,
        limits: HostLimits,
        *,
        timing: Timing | None = None,
        context: ssl.SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._credentials = credentials
        self._limits = limits
        self._timing = timing or Timing()
        self._context = context or _trusted()
        self._sleep = sleep

    def get(
        self, url: str, parameters: Parameters = (), headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a GET and return the answer; raise ArchiveError, NotPublishedError for 404."""
        if parameters:
            url = str(httpx.URL(url, params=list(parameters)))
        return self._again(lambda: self._ask("GET", url, headers or {}, None))

    def post(self, url: str, document: object, headers: Mapping[str, str] | None = None) -> Answer:
        """POST a JSON document that changes nothing and return the answer; raise as `get` does."""
        body = json.dumps(document).encode()
        said = {"Content-Type": "application/json", **(headers or {})}
        return self._again(lambda: self._ask("POST", url, said, body))

    def _again(self, ask: Callable[[], Answer]) -> Answer:
        for number in range(1, _TRIES):
            try:
                return ask()
            except _PASSING as error:
                wanted = error.retry_after if isinstance(error, ServerBusyError) else None
                pause = self._timing.pause * number if wanted is None else wanted
                if pause > _LONGEST_PAUSE:
                    raise
                self._sleep(pause)
        return ask()

    def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        with self._client() as client:
            for _ in range(_HOPS):
                with self._answer(client, method, url, headers, body) as answer:
                    location = answer.headers.get("location", "")
                    if not (answer.is_redirect and location):
                        return self._whole(answer, url)
                    url, method, body = _follow(url, location, method, answer.status_code, body)
        raise DownloadFailedError(f"{bare_url(url)} redirects more than {_HOPS} times")

    @contextmanager
    def _client(self) -> Iterator[httpx.Client]:
        timing = self._timing
        with httpx.Client(
            verify=self._context,
            follow_redirects=False,
            timeout=httpx.Timeout(timing.stall, connect=timing.connect),
            headers={"User-Agent": USER_AGENT},
        ) as client:
            yield client

    @contextmanager
    def _answer(
        self,
        client: httpx.Client,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Iterator[httpx.Response]:
        where = bare_url(url)
        said = {**headers, **self._credentials.headers(url)}
        with (
            self._limits.place(urlsplit(url).netloc.rpartition("@")[2]),
            _named_errors(where),
            client.stream(method, url, headers=said, content=body) as answer,
        ):
            yield answer

    def _whole(self, answer: httpx.Response, url: str) -> Answer:
        """Read an answer that is not a redirect, or raise the error it means."""
        began, found = time.monotonic(), bytearray()
        for piece in answer.iter_bytes():
            found += piece
            if len(found) > _MOST:
                raise AnswerBrokenError(f"{bare_url(url)} sends more than {_MOST} bytes")
            if time.monotonic() - began > 10 * self._timing.stall:
                raise ArchiveTimeoutError(f"{bare_url(url)} sends too slowly: {len(found)} bytes")
        if answer.status_code != 200:
            text = bytes(found[:65536]).decode("utf-8", "replace")
            raise answer_error(answer.status_code, url, answer.headers, text, now=time.time())
        return Answer(url=url, headers=dict(answer.headers.items()), body=bytes(found))


def _follow(
    url: str, location: str, method: str, status: int, body: bytes | None
) -> tuple[str, str, bytes | None]:
    to = followed(url, location)
    schemes = urlsplit(url).scheme, urlsplit(to).scheme
    if schemes[1] not in ("http", "https") or schemes == ("https", "http"):
        raise DownloadFailedError(
            f"{bare_url(url)} redirects to {bare_url(to)}, which is not protected by https"
        )
    if urlsplit(to).path.startswith(_SIGN_IN):
        raise TokenRefusedError(
            f"{bare_url(url)} sends us to sign in: set SWATHMILL_EARTHDATA_TOKEN to a token that "
            "is not expired (https://urs.earthdata.nasa.gov/user_tokens); LAADS also does this for "
            "a folder that does not exist"
        )
    keep = status in (307, 308)
    return to, method if keep else "GET", body if keep else None


@contextmanager
def _named_errors(where: str) -> Iterator[None]:
    """Translate what the HTTP library raises; the address is named without its query."""
    try:
        yield
    except ArchiveError:
        raise
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
        raise ConnectionFailedError(f"no connection to {where}: {error}") from None
    except httpx.TimeoutException:
        raise ArchiveTimeoutError(f"{where} did not answer in time") from None
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise DownloadFailedError(f"{where} is not a valid address: {error}") from None
    except (httpx.DecodingError, httpx.RemoteProtocolError) as error:
        if isinstance(error, httpx.RemoteProtocolError) and "disconnect" in str(error).lower():
            raise ConnectionFailedError(f"{where} was cut off: {error}") from None
        if "peer closed" in str(error):
            raise ConnectionFailedError(f"{where} was cut off: {error}") from None
        raise AnswerBrokenError(f"{where} answered with broken HTTP: {error}") from None
    except httpx.TransportError as error:
        raise ConnectionFailedError(f"{where} was cut off: {error}") from None
