"""Ask catalogues over HTTP, a page at a time; each refusal is an error of its own class."""

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from archives.errors import (
    AnswerBrokenError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    DownloadFailedError,
    ProxyUnusableError,
    ServerBusyError,
    TokenRefusedError,
)
from archives.fetch.answers import answer_error, bare_url
from archives.fetch.http import Credentials, http_client, named_errors, redirected
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
        self._context = context
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
            except ProxyUnusableError:
                raise
            except _PASSING as error:
                wanted = error.retry_after if isinstance(error, ServerBusyError) else None
                pause = self._timing.pause * number if wanted is None else wanted
                if pause > _LONGEST_PAUSE:
                    raise
                self._sleep(pause)
        return ask()

    def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        with http_client(self._timing, self._context) as asking:
            for _ in range(_HOPS):
                with self._answer(asking, method, url, headers, body) as answer:
                    location = answer.headers.get("location", "")
                    if not (answer.is_redirect and location):
                        return self._whole(answer, url)
                    url, method, body = _follow(url, location, method, answer.status_code, body)
        raise DownloadFailedError(f"{bare_url(url)} redirects more than {_HOPS} times")

    @contextmanager
    def _answer(
        self,
        client: httpx.Client,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Iterator[httpx.Response]:
        said = {**headers, **self._credentials.headers(url)}
        with (
            self._limits.place(urlsplit(url).netloc.rpartition("@")[2]),
            named_errors(bare_url(url), self._timing),
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
    to = redirected(url, location)
    if urlsplit(to).path.startswith(_SIGN_IN):
        raise TokenRefusedError(
            f"{bare_url(url)} sends us to sign in: set SWATHMILL_EARTHDATA_TOKEN to a token that "
            "is not expired (https://urs.earthdata.nasa.gov/user_tokens); LAADS also does this for "
            "a folder that does not exist"
        )
    keep = status in (307, 308)
    return to, method if keep else "GET", body if keep else None
