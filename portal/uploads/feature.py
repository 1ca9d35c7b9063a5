"""Packages and rasters that users bring."""

from portal.serving.portal import Feature
from portal.uploads import packages_api, packages_page, rasters_api, rasters_page
from portal.uploads.state import Uploads

FEATURE = Feature(
    routers=(
        packages_api.router,
        rasters_api.router,
        packages_page.router,
        rasters_page.router,
    ),
    state=Uploads,
)
