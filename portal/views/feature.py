"""Layers on a map before they are requested."""

from fastapi import FastAPI

from portal.serving.portal import Feature, Portal
from portal.views import tiles_api
from portal.views.state import Views


def _begin(_app: FastAPI, portal: Portal) -> None:
    portal.pages.add_part("below the map", "layer_view.html")


FEATURE = Feature(routers=(tiles_api.router,), state=Views, begin=_begin)
