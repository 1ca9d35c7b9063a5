"""Packages and rasters that users bring."""

from functools import partial

from fastapi import FastAPI

from portal.serving.portal import Feature, Portal
from portal.submit.names import Names
from portal.submit.state import Submit
from portal.uploads import packages_api, packages_page, rasters_api, rasters_page
from portal.uploads.package_kind import PACKAGES
from portal.uploads.problems import PROBLEMS
from portal.uploads.raster_kind import RASTERS
from portal.uploads.state import Uploads


def _begin(_app: FastAPI, portal: Portal) -> None:
    portal.state(Submit).names = Names(
        library=portal.state(Uploads).library,
        packages=partial(PACKAGES.offered, portal),
        rasters=partial(RASTERS.offered, portal),
    )
    portal.pages.add_part("in the navigation", "uploads_navigation.html")


FEATURE = Feature(
    routers=(
        packages_api.router,
        rasters_api.router,
        packages_page.router,
        rasters_page.router,
    ),
    state=Uploads,
    begin=_begin,
    problems=PROBLEMS,
)
