"""Signing in and out, tokens for programs, groups."""

from fastapi import FastAPI
from starlette.middleware.sessions import SessionMiddleware

from portal.accounts import group_pages, session_page, token_pages
from portal.accounts.state import Accounts
from portal.serving.portal import Feature, Portal


def _begin(app: FastAPI, portal: Portal) -> None:
    """Add the sign-in at an OpenID provider, if there is one. Raises WrongSettingError."""
    if portal.state(Accounts).provider is None:
        return
    from portal.accounts import openid_page

    app.include_router(openid_page.router)
    app.add_middleware(
        SessionMiddleware,
        secret_key=f"{portal.settings.secret.get_secret_value()} sign-in",
        session_cookie="swathmill_sign_in",
        path=openid_page.PATH,
        max_age=600,
        https_only=portal.settings.portal_url.startswith("https://"),
    )


FEATURE = Feature(
    routers=(
        group_pages.api,
        session_page.router,
        token_pages.pages,
        token_pages.api,
        group_pages.pages,
    ),
    state=Accounts,
    begin=_begin,
)
