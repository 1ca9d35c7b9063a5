"""Requests after they were submitted: their API and their pages."""

from portal.requests import api, request_page, retries, run_pages, sharing, task_page
from portal.requests.state import Requests
from portal.serving.portal import Feature

FEATURE = Feature(
    routers=(
        api.router,
        sharing.router,
        retries.api,
        run_pages.api,
        retries.pages,
        sharing.pages,
        request_page.router,
        task_page.router,
        run_pages.pages,
    ),
    state=Requests,
)
