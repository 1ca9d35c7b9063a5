"""The form for a request, and the catalogue."""

from portal.serving.portal import Feature
from portal.submit import catalogue_api, region_page, submit_page
from portal.submit.state import Submit

FEATURE = Feature(
    routers=(
        catalogue_api.router,
        submit_page.router,
        region_page.router,
    ),
    state=Submit,
)
