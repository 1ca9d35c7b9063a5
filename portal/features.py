"""The features of the portal: each is a folder, and stands here once."""

from portal.accounts import feature as accounts
from portal.description import feature as description
from portal.elsewhere import feature as elsewhere
from portal.operations import feature as operations
from portal.polygons import feature as polygons
from portal.requests import feature as requests
from portal.results import feature as results
from portal.sites import feature as sites
from portal.standards import feature as standards
from portal.submit import feature as submit
from portal.uploads import feature as uploads
from portal.views import feature as views

FEATURES = (
    standards.FEATURE,  # at `/` programs get its landing page, browsers the page of requests
    requests.FEATURE,
    results.FEATURE,
    polygons.FEATURE,
    sites.FEATURE,
    elsewhere.FEATURE,
    submit.FEATURE,
    views.FEATURE,
    uploads.FEATURE,
    accounts.FEATURE,
    operations.FEATURE,
    description.FEATURE,
)
"""In the order in which their routes are looked at."""
