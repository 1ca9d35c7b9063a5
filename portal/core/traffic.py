"""Each call to the portal: its id, its line in the log, and whoever counts calls."""

import re
import time
import uuid
from collections.abc import Callable

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Request-Id"
_SOUND = re.compile(r"[A-Za-z0-9_.-]{8,64}\Z")
_QUIET = ("/static", "/livez", "/readyz", "/healthz", "/service-notice")

Counting = Callable[[str, str, int, float], None]
"""Takes method, route, status and seconds of a call."""


class Traffic:
    """Gives each call an id, or keeps the caller's, for the answer and for all lines of the log.

    A line names the route and not the address, which may hold a token.
    """

    def __init__(self, app: ASGIApp, count: Counting) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        call = given if _SOUND.match(given) else uuid.uuid4().hex
        status = 500
        began = time.monotonic()

        async def add(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = call
            await send(message)

        with structlog.contextvars.bound_contextvars(call=call):
            try:
                await self._app(scope, receive, add)
            finally:
                seconds = time.monotonic() - began
                route = _route(scope)
                self._count(scope["method"], route, status, seconds)
                if not route.startswith(_QUIET):
                    structlog.get_logger("portal.calls").info(
                        "answered",
                        method=scope["method"],
                        route=route,
                        status=status,
                        seconds=round(seconds, 3),
                    )


def _route(scope: Scope) -> str:
    """Return the route's pattern, or a word where there is none: few labels, and no secrets."""
    if scope["path"].startswith("/static/"):
        return "/static"
    return str(getattr(scope.get("route"), "path", "none"))
