"""Layers on a map before they are requested."""

from portal.serving.portal import Feature
from portal.views import tiles_api
from portal.views.state import Views

FEATURE = Feature(routers=(tiles_api.router,), state=Views)
