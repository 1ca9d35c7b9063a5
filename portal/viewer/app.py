"""A portal of one page, which shows a folder of granules to whoever is on this machine."""

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from portal.app import create_app
from portal.serving import tokens
from portal.serving.portal import Feature, Portal
from portal.viewer import page
from portal.views import feature as views
from tasks.bag.runtime import Runtime
from tasks.settings import Settings

HOSTS = ("127.0.0.1", "localhost")
"""The names by which it answers: another site's name that leads here reads nothing."""
_OWNER = "you"

VIEWER = Feature(routers=(page.router,), begin=lambda _app, portal: portal.pages.stand_alone())


def viewer_app(settings: Settings, runtime: Runtime) -> FastAPI:
    """Build the page over the folder that the settings name as archive; it needs no sign-in.

    It is to be served on a loopback address alone. It has no route that changes anything.
    """
    app = create_app(settings, runtime, features=(views.FEATURE, VIEWER))
    portal: Portal = app.state.portal
    app.add_middleware(_SignedIn, secret=portal.settings.secret.get_secret_value())
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))
    return app


class _SignedIn:
    """Gives each call the token of the one person who uses the page."""

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app = app
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = MutableHeaders(scope=scope)
            headers["authorization"] = f"Bearer {tokens.issue(self._secret, _OWNER)}"
        await self._app(scope, receive, send)
