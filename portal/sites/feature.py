"""Values at sites on the pages of a request."""

from fastapi import FastAPI

from portal.serving.portal import Feature, Portal
from portal.sites import sites_page
from portal.sites.state import Sites


def _begin(_app: FastAPI, portal: Portal) -> None:
    portal.pages.add_part("above the squares", "request_sites.html")


FEATURE = Feature(routers=(sites_page.router,), state=Sites, begin=_begin)
