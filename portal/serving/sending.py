"""How answers are sent: compressed, empty if unchanged, to pages of other sites, in pieces."""

import hashlib
import re
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LEAST_BYTES = 500
_LEVEL = 6  # zlib's default: 9 takes twice the time to save 1 % of the bytes
_DOWNLOAD = re.compile(
    r"/api/(requests/[^/]+/((results|zarr)/.+|archive\.zip)|packages/.+/archive\.tar|.+/inputs\.zip)"
)


class Compressed:
    """Compress answers for callers that accept gzip.

    Downloads are left as they are (`portal/results/downloads.py` compresses texts): most are
    compressed already, and their length, checksum and ranges are those of the file.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._packing = GZipMiddleware(app, minimum_size=_LEAST_BYTES, compresslevel=_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] != "http" or _DOWNLOAD.fullmatch(scope["path"])
        await (self._plain if plain else self._packing)(scope, receive, send)


_TAGGED = (
    "text/html",
    "application/json",
    "application/geo+json",
    "application/vnd.oai.openapi+json",
)


class Unchanged:
    """Give whole JSON answers an ETag; answer 304 without a body to who has that already.

    Pages have an ETag of their own, or none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        had = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None
        same = False

        async def answer(message: Message) -> None:
            nonlocal start, same
            if message["type"] == "http.response.start" and message["status"] == 200:
                kind = Headers(raw=message["headers"]).get("content-type", "")
                if kind.startswith(_TAGGED):
                    start = message  # kept until the body is known
                    return
            elif message["type"] == "http.response.body" and start is not None:
                same = _tagged(start, message, had)
                await send(start)
                start = None
            if same and message["type"] == "http.response.body":
                message["body"] = b""
            await send(message)

        await self._app(scope, receive, answer)


def _tagged(start: Message, body: Message, had: str) -> bool:
    """Give an answer its ETag; tell whether the caller has it, which makes it a 304."""
    headers = MutableHeaders(scope=start)
    page = headers.get("content-type", "").startswith("text/html")
    whole = not body.get("more_body", False) and body.get("body", b"")
    if not page and whole and "etag" not in headers:
        digest = hashlib.sha256(body["body"]).hexdigest()[:32]
        headers["etag"] = f'W/"{digest}"'  # weak: the bytes that are sent may be compressed
    return unchanged(start, had)


def unchanged(start: Message, had: str) -> bool:
    """Make an answer a 304 if its ETag is in the If-None-Match header; tell whether it is."""
    headers = MutableHeaders(scope=start)
    if not _has(had, headers.get("etag", "")):
        return False
    start["status"] = 304
    for name in ("content-length", "content-type", "content-encoding"):
        del headers[name]
    return True


class OpenToPages:
    """Let pages of other sites call the API and read results (CORS), with a token of their own.

    They get no cookies: the browser does not send the caller's session to a wildcard origin.
    """

    _OPEN = re.compile(r"/(api/.*|conformance|(processes|jobs|collections|search)(/.*)?|)")

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._open = CORSMiddleware(
            app,
            allow_origins=("*",),
            allow_methods=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
            allow_headers=(
                "Authorization",
                "Content-Type",
                "Idempotency-Key",
                "If-Match",
                "If-None-Match",
                "If-Range",
                "Prefer",
                "Range",
            ),
            expose_headers=(
                "Accept-Ranges",
                "Content-Disposition",
                "Content-Length",
                "Content-Range",
                "ETag",
                "Link",
                "Location",
                "Repr-Digest",
                "Retry-After",
            ),
            max_age=3600,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] == "http" and self._OPEN.fullmatch(scope["path"])
        await (self._open if is_open else self._plain)(scope, receive, send)


class Line(Protocol):
    """The connection of an answer that goes on for minutes, once its head has been sent.

    The server has it as `line` in the extension `LINE` of the call's scope.
    """

    def write(self, piece: bytes) -> bool:
        """Write a piece that `chunk` made; False if its reader is gone or does not keep up."""
        ...


LINE = "swathmill.line"


def chunk(data: bytes) -> bytes:
    """Return a part of an answer's body as it is on the wire (RFC 9112, section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _has(had: str, etag: str) -> bool:
    """Tell whether an ETag is in an If-None-Match header, by the weak comparison."""
    return bool(etag) and etag.removeprefix("W/") in (
        one.strip().removeprefix("W/") for one in had.split(",")
    )
