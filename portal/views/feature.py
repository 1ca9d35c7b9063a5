"""Layers on maps: of granules before they are requested, and of results."""

from fastapi import FastAPI

from portal.serving.portal import Feature, Portal
from portal.views import ogc, result_tiles, tiles_api
from portal.views.state import Views


def _begin(_app: FastAPI, portal: Portal) -> None:
    portal.pages.add_part("below the map", "layer_view.html")
    portal.pages.add_part("beside a layer", "layer_addresses.html")


FEATURE = Feature(
    routers=(tiles_api.router, result_tiles.router, ogc.router), state=Views, begin=_begin
)
