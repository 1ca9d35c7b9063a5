"""The description of the HTTP API, for programs and as a page."""

from portal.description import docs_page, openapi
from portal.serving.portal import Feature

FEATURE = Feature(
    routers=(
        docs_page.router,
        openapi.router,
    ),
)
