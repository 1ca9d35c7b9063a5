"""The portal's application: pages and API that share one set of services."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portal.accounts import session_page
from portal.description.openapi import describe
from portal.features import FEATURES
from portal.serving.addresses import page_above
from portal.serving.caller_limits import CallLimit
from portal.serving.identity import find_person
from portal.serving.pages import STATIC, Pages
from portal.serving.portal import Feature, Portal
from portal.serving.problems import (
    ForbiddenError,
    Problem,
    TooManyError,
    problem_json,
    problem_of,
    register_problems,
    wants_page,
)
from portal.serving.repeated_calls import Repeats
from portal.serving.sending import Compressed, OpenToPages, Unchanged
from portal.serving.tokens import Person
from portal.serving.traffic import Counting, Traffic
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.messages.redis_watch import RedisWatch
from tasks.operators.manager_lease import ManagerWatch
from tasks.service.sources import is_sample
from tasks.settings import Settings
from tasks.storage.store import LocalStore

DESCRIPTION = """
Swathmill turns MODIS granules into analysis-ready rasters on one grid.

Send `Authorization: Bearer TOKEN` with each call; whoever runs this portal can make you a token.
Errors are `application/problem+json` with `field` and `remedy`.
"""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # `no-referrer` would make browsers send the forms with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HTTPS_HEADERS = {"Strict-Transport-Security": "max-age=31536000"}
"""Where the portal's address is HTTPS. Other names below its host are not told."""
_WEEK = 7 * 86400
_NO_PAGE = Problem(
    status=HTTPStatus.METHOD_NOT_ALLOWED,
    title="Not a page",
    detail="This address takes what a page sends. There is nothing to read at it.",
    remedy="Nothing was done. Go on from the page above it.",
)


def routes_of(features: Sequence[Feature]) -> tuple[BaseRoute, ...]:
    """Return the routes of features, in the order in which they are looked at."""
    return tuple(
        route for feature in features for router in feature.routers for route in router.routes
    )


def _error(
    portal: Portal,
    request: Request,
    me: Person | None,
    problem: Problem,
    then: str = "",
    above: str = "",
) -> Response:
    """Show a problem as a page; one that passes, of what was only read, can be tried again."""
    passes = problem.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    shown = {"problem": problem, "then": then, "above": above}
    again = passes and request.method == "GET"
    return portal.pages.page("error.html", me, "", problem.status, again=again, **shown)


def create_app(
    settings: Settings,
    runtime: Runtime,
    count: Counting = lambda *_call: None,
    features: Sequence[Feature] = FEATURES,
) -> FastAPI:
    """Build the portal over the given services; `count` is told of each call.

    Raises ValueError for a secret too short to sign with.
    """
    # Not included as routers: a call would be matched with a router's routes twice, and wrapped
    # again.
    routes = routes_of(features)
    app = FastAPI(
        title="Swathmill",
        version=version("swathmill"),
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        routes=list(routes),
    )
    manager = ManagerWatch(runtime, settings.lease_seconds)
    redis = RedisWatch(settings.redis_url.get_secret_value(), runtime.clock.monotonic)
    stopping = threading.Event()
    portal = Portal(
        settings=settings,
        runtime=runtime,
        pages=Pages(runtime.clock, manager, redis, sample=is_sample(settings)),
        manager=manager,
        redis=redis,
        stopping=stopping,
    )
    app.state.settings = settings
    app.state.clock = runtime.clock
    app.state.portal = portal
    described: dict[str, Any] = {}

    def description() -> dict[str, Any]:
        if not described:
            described.update(describe(app, routes))
        return described

    app.openapi = description  # type: ignore[method-assign] # as FastAPI's documentation has it
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    for feature in features:
        if feature.state is not None:
            portal.state(feature.state)
        feature.begin(app, portal)

    def refusal(request: Request, error: TooManyError) -> Response:
        problem = problem_of(error)
        if not wants_page(request):
            return problem_json(problem)
        shown = _error(portal, request, None, problem)
        shown.headers.update(HEADERS | problem.headers)
        return shown

    app.add_middleware(Unchanged)
    app.add_middleware(Compressed)
    app.add_middleware(OpenToPages)
    is_https = settings.portal_url.startswith("https://")
    app.add_middleware(_Headers, headers=HEADERS | (HTTPS_HEADERS if is_https else {}))
    if isinstance(runtime.store, LocalStore):
        app.add_middleware(Repeats, store=runtime.store)
    app.add_middleware(CallLimit, limits=portal.limits, refusal=refusal)
    app.add_middleware(Traffic, count=count)

    def error_page(request: Request, problem: Problem) -> Response:
        try:
            me = find_person(request)
        except (ForbiddenError, StoreError):
            me = None
        asked = request.query_params.get("next", "") or request.url.path
        then = session_page.request_page(asked)
        above = ""
        if problem.status is HTTPStatus.METHOD_NOT_ALLOWED and request.method in ("GET", "HEAD"):
            problem, above = _NO_PAGE, quote(page_above(routes, request.scope))
        return _error(portal, request, me, problem, then, above)

    own = {kind: tell for feature in features for kind, tell in feature.problems.items()}
    register_problems(app, error_page, partial(_methods, routes), own)
    return app


def _methods(routes: Sequence[BaseRoute], request: Request) -> set[str]:
    """Return the methods that the address of a call has."""
    address = ""
    found: set[str] = set()
    for route in routes:
        if isinstance(route, APIRoute) and route.matches(request.scope)[0] is not Match.NONE:
            # `/api/packages/open` is also an `/api/packages/{id}`: the first one counts.
            address = address or route.path_format
            found |= (route.methods or set()) if route.path_format == address else set()
    return found


class _Headers:
    """Adds the security headers that browsers obey, and how long static files are cached."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/static/") and message["status"] == 200:
                    fresh = scope["query_string"].startswith(b"v=")
                    headers["Cache-Control"] = (
                        f"public, max-age={52 * _WEEK}, immutable" if fresh else "max-age=300"
                    )
            await send(message)

        await self._app(scope, receive, add)
