"""Requests and results by the standards of OGC and STAC."""

from portal.serving.portal import Feature
from portal.standards import landing_page, processes_api, stac_api
from portal.standards.state import Standards

FEATURE = Feature(
    routers=(
        landing_page.root,
        landing_page.router,
        processes_api.router,
        stac_api.router,
    ),
    state=Standards,
)
