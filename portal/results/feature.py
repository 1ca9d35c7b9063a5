"""A request's results: downloads, and the map."""

from portal.results import map_page, results_api
from portal.results.state import Results
from portal.serving.portal import Feature

FEATURE = Feature(
    routers=(
        results_api.router,
        map_page.router,
    ),
    state=Results,
)
