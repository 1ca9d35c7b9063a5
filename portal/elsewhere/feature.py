"""Copies of results, Zarr stores, and the texts that go with results."""

from functools import partial

from fastapi import FastAPI

from portal.elsewhere import copies_api, takeaway_api, zarr_api
from portal.elsewhere.state import Elsewhere
from portal.results.state import Results
from portal.serving.portal import Feature, Portal


def _begin(_app: FastAPI, portal: Portal) -> None:
    """Add the texts to ZIPs of results, and both to the page of a request."""
    portal.pages.add_part("below files", "copy_results.html")
    portal.pages.add_part("with a ZIP", "scripts.html")
    portal.state(Results).beside.append(partial(takeaway_api.texts_beside, portal))


FEATURE = Feature(
    routers=(
        takeaway_api.router,
        copies_api.router,
        zarr_api.router,
    ),
    state=Elsewhere,
    begin=_begin,
)
