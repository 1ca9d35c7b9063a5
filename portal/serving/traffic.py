"""Each call to the portal: its id, its line in the log, its span, and whoever counts calls."""

import re
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasks.service import tracing
from tasks.service.tracing import Link, Span, span_of, trace_of

HEADER = "X-Request-Id"
TRACE = "X-Trace-Id"
_SOUND = re.compile(r"[A-Za-z0-9_.-]{8,64}\Z")
# W3C Trace Context, section 3.2.
_PARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")
_TRACE = re.compile(r"(?!0{32})[0-9a-f]{32}\Z")
_QUIET = ("/static", "/livez", "/readyz", "/healthz", "/service-notice")

Counting = Callable[[str, str, int, float], None]
"""Takes method, route, status and seconds of a call."""


@dataclass(kw_only=True)
class Call:
    """A call under way. `request` is the one that it submitted, or that its address names."""

    id: str
    trace: str
    parent: str = ""  # the caller's span
    request: str = ""
    submitted: bool = False

    @classmethod
    def of(cls, headers: Headers) -> "Call":
        """Take the caller's ids, or make one."""
        above = _PARENT.match(headers.get("traceparent", ""))
        trace, parent = above.groups() if above else ("", "")
        given = headers.get(HEADER, "")
        name = given if _SOUND.match(given) else trace or uuid.uuid4().hex
        return cls(
            id=name,
            trace=trace or (name if _TRACE.match(name) else trace_of(name)),
            parent=parent,
        )


_current: ContextVar[Call] = ContextVar("call")


def note_submitted(request: str) -> None:
    """Note the request that this call has submitted."""
    call = _current.get(None)
    if call is not None:
        call.request, call.submitted = request, True


class Traffic:
    """Gives each call an id, or keeps the caller's, for the answer and for all lines of the log.

    A line names the route and not the address, which may hold a token. Where the call is about a
    request, line and answer have the request's trace, too.
    """

    def __init__(self, app: ASGIApp, count: Counting) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = Call.of(Headers(scope=scope))
        status = 500
        clock, began = time.monotonic(), time.time()

        async def add(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])  # not a name in the log
                headers = MutableHeaders(scope=message)
                headers[HEADER] = call.id
                if status < 400 and not call.request:
                    call.request = scope.get("path_params", {}).get("request_id", "")
                if call.request:
                    headers[TRACE] = trace_of(call.request)
            await send(message)

        token = _current.set(call)
        with structlog.contextvars.bound_contextvars(call=call.id):
            try:
                await self._app(scope, receive, add)
            finally:
                _current.reset(token)
                seconds = time.monotonic() - clock
                route = _route(scope)
                self._count(scope["method"], route, status, seconds)
                if not route.startswith(_QUIET):
                    about = {"request": call.request} if call.request else {}
                    structlog.get_logger("portal.calls").info(
                        "answered",
                        method=scope["method"],
                        route=route,
                        status=status,
                        seconds=round(seconds, 3),
                        **about,
                    )
                    if tracing.is_on():
                        _record(call, scope["method"], route, status, began, began + seconds)


def _record(call: Call, method: str, route: str, status: int, began: float, ended: float) -> None:
    """Record the call in its own trace, and a submission in the request's, too."""
    own = span_of(call.trace, "call", call.id, str(began))
    about = {"swathmill.request": call.request} if call.request else {}
    tracing.record(
        Span(
            name=f"{method} {route}",
            trace=call.trace,
            id=own,
            parent=call.parent,
            began=began,
            ended=ended,
            failure=f"status {status}" if status >= 500 else "",
            attributes={
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "swathmill.call": call.id,
                **about,
            },
        )
    )
    if call.submitted:
        tracing.record_for(
            call.request,
            "submit",
            began,
            ended,
            attributes={"swathmill.call": call.id},
            link=Link(trace=call.trace, id=own),
        )


def _route(scope: Scope) -> str:
    """Return the route's pattern, or a word where there is none: few labels, and no secrets."""
    if scope["path"].startswith("/static/"):
        return "/static"
    return str(getattr(scope.get("route"), "path", "none"))
