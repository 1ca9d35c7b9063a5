"""Values of results within polygons."""

from fastapi import FastAPI

from portal.polygons import polygon_page, polygons_api
from portal.polygons.state import Polygons
from portal.serving.portal import Feature, Portal


def _begin(_app: FastAPI, portal: Portal) -> None:
    portal.pages.add_part("below the squares", "polygons_as_csv.html")
    portal.pages.add_part("below the results' map", "polygons.html")


FEATURE = Feature(routers=(polygons_api.router, polygon_page.router), state=Polygons, begin=_begin)
