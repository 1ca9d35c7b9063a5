"""The landing page of the standards that the portal speaks, and the conformance classes it keeps.

OGC API - Processes 1.0 (processes_api.py) and STAC API 1.0 with OGC API - Features 1.0
(stac_api.py). Browsers get the portal's own page at `/` (request_page.py).
"""

from fastapi import Depends, Request
from fastapi.responses import JSONResponse
from pydantic import JsonValue
from starlette.routing import Match
from starlette.types import Scope

from portal.description.openapi import OPENAPI_30
from portal.serving.addresses import base_url
from portal.serving.late_routes import LateRoute, Router
from portal.serving.portal import CurrentPortal
from portal.serving.problems import BadCallError, wants_page
from portal.standards.stac_items import GEOJSON, VERSION, Object, link
from tasks.answers.answer import Answer

_PROCESSES = "http://www.opengis.net/spec/ogcapi-processes-1/1.0/conf/"
_FEATURES = "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/"
_STAC = "https://api.stacspec.org/v1.0.0/"
CONFORMANCE = (
    *(
        _PROCESSES + name
        for name in ("core", "ogc-process-description", "json", "oas30", "job-list", "dismiss")
    ),
    *(_FEATURES + name for name in ("core", "geojson", "oas30")),
    *(_STAC + name for name in ("core", "collections", "ogcapi-features", "item-search")),
)


async def known_parameters(request: Request) -> None:
    """Refuse a query parameter that the address does not have (OGC API - Features, 7.5)."""
    route = request.scope["route"]
    known = {parameter.alias for parameter in route.dependant.query_params}
    for name in request.query_params:
        if name not in known:
            has = f"It has {', '.join(sorted(known))}." if known else "It has none."
            raise BadCallError(f"{name!r} is not a parameter of this address.", has, field=name)


STRICT = [Depends(known_parameters)]
router = Router(tags=["standards"], dependencies=STRICT)


class GeoJsonAnswer(JSONResponse):
    """A GeoJSON document."""

    media_type = GEOJSON


class ConformanceAnswer(Answer):
    """The conformance classes that this portal keeps."""

    conformsTo: tuple[str, ...]  # noqa: N815 - the standard's spelling


@router.get("/conformance", summary="Conformance classes of OGC API and STAC API")
def conformance() -> ConformanceAnswer:
    """List the conformance classes."""
    return ConformanceAnswer(conformsTo=CONFORMANCE)


class _ForPrograms(LateRoute):
    """A route that browsers do not see, since a page has the same address."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and wants_page(Request(scope)):
            return Match.NONE, {}
        return super().matches(scope)


root = Router(tags=["standards"], dependencies=STRICT, route_class=_ForPrograms)


@root.get("/", summary="Landing page of OGC API and STAC API; browsers get the page of requests")
def landing_page(
    request: Request,
    portal: CurrentPortal,
) -> Object:
    """Return the landing page: a STAC catalogue with links to all that the standards name."""
    base = base_url(request, portal.settings)
    rel = "http://www.opengis.net/def/rel/ogc/1.0"
    links: JsonValue = [
        link("self", f"{base}/"),
        link("root", f"{base}/"),
        link("service-desc", f"{base}/api/openapi-3.0.json", OPENAPI_30),
        link("service-desc", f"{base}/api/openapi.json"),
        link("service-doc", f"{base}/docs", "text/html"),
        link("conformance", f"{base}/conformance"),
        link(f"{rel}/conformance", f"{base}/conformance"),
        link(f"{rel}/processes", f"{base}/processes"),
        link(f"{rel}/job-list", f"{base}/jobs"),
        link("data", f"{base}/collections"),
        link("search", f"{base}/search", GEOJSON, method="GET"),
        link("search", f"{base}/search", GEOJSON, method="POST"),
    ]
    return {
        "type": "Catalog",
        "stac_version": VERSION,
        "id": "swathmill",
        "title": "Swathmill",
        "description": "Analysis-ready rasters made from MODIS granules: a process that makes "
        "them, and a collection for each request.",
        "conformsTo": list(CONFORMANCE),
        "links": links,
    }
