"""Values of results within polygons."""

from portal.polygons import polygons_api
from portal.polygons.state import Polygons
from portal.serving.portal import Feature

FEATURE = Feature(routers=(polygons_api.router,), state=Polygons)
