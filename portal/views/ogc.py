"""OGC API - Maps and Tiles of layers of granules and of results, below `/maps`.

A collection is a layer: of a product in the archive, `MCD15A2.005:Lai_1km`, or of a request's
results, `REQUEST:LAYER` with colons for the slashes of the layer.

Sources: OGC 20-057, "OGC API - Tiles - Part 1: Core"; OGC 20-058, "OGC API - Maps - Part 1: Core";
OGC 17-083r4, "Two Dimensional Tile Matrix Set and Tile Set Metadata".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Protocol
from urllib.parse import quote

from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from modis.box import LonLatBox
from modis.collection import parted, versioned
from portal.results.colour_scales import Colormap, Rescale
from portal.results.layer_legends import layers_of
from portal.results.layers import ResultLayer
from portal.serving.addresses import base_url
from portal.serving.identity import Caller, person
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import BadCallError, NotFoundError, answers_with
from portal.views import result_tiles, tiles_api
from portal.views.drawn import box_named, send_drawn
from portal.views.result_tiles import UNDATED, Band, box_of
from portal.views.state import NotShownError, TooCoarseError, Views
from portal.views.tile_matrix import CRS84, TileMatrixSet
from portal.views.tiles_api import Qa
from portal.views.wmts import WHOLE_EARTH
from reprojection import catalogue
from reprojection.grid.grids import Grid
from tasks.holdings import holdings
from tasks.requests import request_operations

router = Router(
    prefix="/maps",
    tags=["views"],
    dependencies=[Depends(person)],
    responses=answers_with(NotShownError, TooCoarseError),
)

_SPEC = "http://www.opengis.net/spec/"
_SPELLINGS = (_SPEC, _SPEC.replace("http:", "https:"))  # programs look for either one of Maps
CONFORMANCE = (
    *(f"{_SPEC}ogcapi-common-1/1.0/conf/{name}" for name in ("core", "landing-page", "json")),
    f"{_SPEC}ogcapi-common-2/1.0/conf/collections",
    *(
        f"{_SPEC}ogcapi-tiles-1/1.0/conf/{name}"
        for name in ("core", "tileset", "tilesets-list", "geodata-tilesets", "png")
    ),
    *(
        f"{spec}ogcapi-maps-1/1.0/conf/{name}"
        for spec in _SPELLINGS
        for name in ("core", "collection-map", "tilesets", "png")
    ),
    *(f"{_SPEC}tms/2.0/conf/{name}" for name in ("tilematrixset", "json-tilematrixset")),
)
_REL = "http://www.opengis.net/def/rel/ogc/1.0/"
_JSON, _PNG = "application/json", "image/png"
_LONGER = 1024  # pixels along the longer side of a map of which no size is said
_DAY = re.compile(r"\d{4}-\d\d-\d\d(?=$|T)")

Box = Annotated[str, Query(description="West, south, east, north in degrees; empty: all of it.")]
Pixels = Annotated[int | None, Query(ge=1, le=2048, description="Pixels along this side.")]
When = Annotated[
    str, Query(description="A day, a time, or a date of results; empty: the newest or best one.")
]


class Shown(Protocol):
    """A layer that maps show."""

    @property
    def title(self) -> str:
        """The name for people."""
        ...

    @property
    def box(self) -> LonLatBox:
        """The box around it, in degrees."""
        ...

    @property
    def days(self) -> tuple[str, str] | None:
        """The first and last day; None where it has none."""
        ...

    @property
    def when(self) -> str:
        """The day that is shown; empty where it has none."""
        ...

    async def draw(self, request: Request, grid: Grid, box: LonLatBox) -> tuple[str, bytes]:
        """Draw a PNG on a grid that lies in a box; return its tag, too."""
        ...


@dataclass(frozen=True, kw_only=True)
class _OfGranules:
    """A layer of a product on a day."""

    look: tiles_api.Look
    span: tuple[date, date] | None

    @property
    def title(self) -> str:
        return f"{self.look.layer}, {self.look.chosen.product}"

    @property
    def box(self) -> LonLatBox:
        return WHOLE_EARTH

    @property
    def days(self) -> tuple[str, str] | None:
        return None if self.span is None else (str(self.span[0]), str(self.span[1]))

    @property
    def when(self) -> str:
        return str(self.look.chosen.day)

    async def draw(self, request: Request, grid: Grid, box: LonLatBox) -> tuple[str, bytes]:
        return await tiles_api.drawn(request, self.look, grid, box, "png")


@dataclass(frozen=True, kw_only=True)
class _OfResults:
    """A layer of a request's results on a date."""

    look: result_tiles.Look

    @property
    def title(self) -> str:
        row = self.look.row
        return f"{self.look.layer.title} of {row.title or f'request {row.id}'}"

    @property
    def box(self) -> LonLatBox:
        return box_of(self.look.legend().said.grid.grid())

    @property
    def days(self) -> tuple[str, str] | None:
        days = [one[:10] for one in self.look.layer.dates if _DAY.match(one)]
        return (days[0], days[-1]) if days else None

    @property
    def when(self) -> str:
        day = _DAY.match(self.look.date)
        return day[0] if day else ""

    async def draw(
        self,
        request: Request,
        grid: Grid,
        box: LonLatBox,  # noqa: ARG002 - a raster knows where it lies
    ) -> tuple[str, bytes]:
        return await result_tiles.drawn(request, self.look, grid, "png")


def _found(
    collection_id: str,
    caller: Caller,
    portal: CurrentPortal,
    datetime: When = "",
    qa: Qa = "",
    band: Band = 0,
    rescale: Rescale = "",
    colormap: Colormap = "swathmill",
) -> Shown:
    """Find a collection. Raises NotFoundError, BadCallError."""
    first, _, rest = collection_id.partition(":")
    name, number = parted(first)
    of_results = catalogue.product(name, number) is None
    if of_results and qa:
        raise BadCallError("Results have their quality rule already.", "Leave it out.", field="qa")
    if band and not of_results:
        raise BadCallError("Layers of granules have one band.", "Leave it out.", field="band")
    if of_results:
        _, layers = layers_of(portal, caller, first)
        layer = next((one for one in layers.values() if _coloned(one) == rest), None)
        if layer is None:
            raise _no_collection(collection_id)
        day = _date_of(layer, datetime)
        look = result_tiles.look_of(first, layer.id, day, caller, portal, band, rescale, colormap)
        return _OfResults(look=look)
    known = holdings.read(portal.runtime.store)[0]
    held = known.of(name, number) if known is not None else None
    if not datetime and held is None:
        raise BadCallError(
            "It is not known which days the archive has.", "Name one.", field="datetime"
        )
    chosen = _day(datetime) if datetime else held.last if held is not None else date.min
    layer_look = tiles_api.look_of(
        portal, first, rest, chosen, qa, rescale=rescale, colormap=colormap
    )
    return _OfGranules(look=layer_look, span=(held.first, held.last) if held else None)


Found = Annotated[Shown, Depends(_found)]


@router.get("", summary="Landing page of OGC API - Maps and Tiles")
def landing_page(request: Request, portal: CurrentPortal) -> JSONResponse:
    """Lead to the collections, the tile matrix sets and the description."""
    base = base_url(request, portal.settings)
    return JSONResponse(
        {
            "title": "Swathmill: maps",
            "description": "Layers of granules and of results as maps and tiles.",
            "links": [
                _link("self", f"{base}/maps"),
                _link("service-desc", f"{base}/api/openapi.json"),
                _link("service-doc", f"{base}/docs", "text/html"),
                _link("conformance", f"{base}/maps/conformance"),
                _link(f"{_REL}conformance", f"{base}/maps/conformance"),
                _link("data", f"{base}/maps/collections"),
                _link(f"{_REL}data", f"{base}/maps/collections"),
                _link(f"{_REL}tiling-schemes", f"{base}/maps/tileMatrixSets"),
            ],
        }
    )


@router.get("/conformance", summary="Conformance classes of the maps")
def conformance() -> JSONResponse:
    """List the conformance classes that are kept."""
    return JSONResponse({"conformsTo": list(CONFORMANCE)})


@router.get("/collections", summary="Layers that maps can show")
def collections(
    request: Request,
    caller: Caller,
    portal: CurrentPortal,
    requests: Annotated[
        int, Query(ge=0, le=100, description="Newest requests whose layers are listed.")
    ] = 20,
) -> JSONResponse:
    """List layers of the caller's newest requests, and those of what the archive has."""
    base = base_url(request, portal.settings)
    found = [
        *_collections_of_results(portal, caller, base, requests),
        *_collections_of_granules(portal, base),
    ]
    return JSONResponse(
        {"links": [_link("self", f"{base}/maps/collections")], "collections": found}
    )


@router.get("/collections/{collection_id}", summary="A layer that maps can show")
def collection(
    request: Request, collection_id: str, portal: CurrentPortal, found: Found
) -> JSONResponse:
    """Describe a layer: where and when it is, and where its maps and tiles are."""
    base = base_url(request, portal.settings)
    said = _described(base, collection_id, found.title, found.box, found.days, _query(request))
    return JSONResponse(said)


@router.get("/collections/{collection_id}/map", summary="A map of a layer", response_class=Response)
async def draw_map(
    request: Request, found: Found, bbox: Box = "", width: Pixels = None, height: Pixels = None
) -> Response:
    """Draw a layer as PNG in a box of degrees; of one side, the other follows from the box."""
    box = box_named(bbox) if bbox else await run_in_threadpool(lambda: found.box)
    grid = _grid(box, width, height)
    answer = send_drawn(request, await found.draw(request, grid, box), "png")
    sides = grid.bounds
    answer.headers["Content-Bbox"] = f"{sides.west},{sides.south},{sides.east},{sides.north}"
    if found.when:
        answer.headers["Content-Datetime"] = found.when
    return answer


@router.get("/collections/{collection_id}/map/tiles", summary="Tile sets of a layer")
def tilesets(
    request: Request, collection_id: str, portal: CurrentPortal, found: Found
) -> JSONResponse:
    """List the tile sets of a layer, one for each tile matrix set."""
    place = _place(base_url(request, portal.settings), collection_id)
    query = _query(request)
    listed = [
        {
            "title": f"{found.title}, {one.name}",
            "dataType": "map",
            "crs": one.official,
            **({"tileMatrixSetURI": one.uri} if one.uri else {}),
            "links": [_link("self", f"{place}/map/tiles/{one.name}{query}")],
        }
        for one in portal.state(Views).matrix_sets.values()
    ]
    return JSONResponse({"links": [_link("self", f"{place}/map/tiles{query}")], "tilesets": listed})


@router.get("/collections/{collection_id}/map/tiles/{tms}", summary="A tile set of a layer")
def tileset(
    request: Request, collection_id: str, tms: str, portal: CurrentPortal, found: Found
) -> JSONResponse:
    """Describe a tile set."""
    matrix = portal.state(Views).matrix_set(tms)
    base = base_url(request, portal.settings)
    place, query = f"{_place(base, collection_id)}/map/tiles/{tms}", _query(request)
    item = f"{place}/{{tileMatrix}}/{{tileRow}}/{{tileCol}}{query}"
    box = found.box
    answer = {
        "title": f"{found.title}, {tms}",
        "dataType": "map",
        "crs": matrix.official,
        **({"tileMatrixSetURI": matrix.uri} if matrix.uri else {}),
        "boundingBox": {
            "crs": CRS84,
            "lowerLeft": [box.west, box.south],
            "upperRight": [box.east, box.north],
        },
        # All tiles; GDAL 3.6 reads limits at random places where a tile set has none.
        "tileMatrixSetLimits": [_limits(matrix, zoom) for zoom in matrix.zooms],
        "links": [
            _link("self", f"{place}{query}"),
            _link(f"{_REL}tiling-scheme", f"{base}/maps/tileMatrixSets/{tms}"),
            {**_link("item", item, _PNG), "templated": True},
        ],
    }
    return JSONResponse(answer)


@router.get(
    "/collections/{collection_id}/map/tiles/{tms}/{matrix}/{row}/{col}",
    summary="A tile of a layer",
    response_class=Response,
)
async def tile(
    request: Request, portal: CurrentPortal, found: Found, tms: str, matrix: int, row: int, col: int
) -> Response:
    """Draw 256 x 256 pixels of a layer as PNG, transparent where there is no value."""
    chosen = portal.state(Views).matrix_set(tms)
    grid, box = chosen.grid(matrix, col, row), chosen.box(matrix, col, row)
    return send_drawn(request, await found.draw(request, grid, box), "png")


@router.get("/tileMatrixSets", summary="Tile matrix sets")
def tile_matrix_sets(request: Request, portal: CurrentPortal) -> JSONResponse:
    """List the tile matrix sets."""
    base = base_url(request, portal.settings)
    listed = [
        {
            "id": one.name,
            "title": one.name,
            **({"uri": one.uri} if one.uri else {}),
            "crs": one.official,
            "links": [_link("self", f"{base}/maps/tileMatrixSets/{one.name}")],
        }
        for one in portal.state(Views).matrix_sets.values()
    ]
    return JSONResponse({"tileMatrixSets": listed})


@router.get("/tileMatrixSets/{tms}", summary="A tile matrix set")
def one_tile_matrix_set(portal: CurrentPortal, tms: str) -> JSONResponse:
    """Describe a tile matrix set."""
    matrix = portal.state(Views).matrix_set(tms)
    answer = {
        "id": matrix.name,
        "title": matrix.name,
        **({"uri": matrix.uri} if matrix.uri else {}),
        "crs": matrix.official,
        "orderedAxes": list(matrix.axes),
        "tileMatrices": [_matrix(matrix, zoom) for zoom in matrix.zooms],
        # Names of version 1.0, beside those of 2.0, for programs that know only these.
        "type": "TileMatrixSetType",
        "identifier": matrix.name,
        "supportedCRS": matrix.official,
    }
    return JSONResponse(answer)


def _limits(matrix: TileMatrixSet, zoom: int) -> dict[str, object]:
    one = matrix.at(zoom)
    return {
        "tileMatrix": str(zoom),
        "minTileRow": 0,
        "maxTileRow": one.rows - 1,
        "minTileCol": 0,
        "maxTileCol": one.columns - 1,
    }


def _matrix(matrix: TileMatrixSet, zoom: int) -> dict[str, object]:
    one, origin = matrix.at(zoom), list(matrix.origin(zoom))
    return {
        "id": str(zoom),
        "identifier": str(zoom),
        "scaleDenominator": matrix.scale(zoom),
        "cellSize": one.cell,
        "cornerOfOrigin": "topLeft",
        "pointOfOrigin": origin,
        "topLeftCorner": origin,
        "tileWidth": one.side,
        "tileHeight": one.side,
        "matrixWidth": one.columns,
        "matrixHeight": one.rows,
    }


def _collections_of_results(
    portal: Portal, caller: Caller, base: str, most: int
) -> Iterator[dict[str, object]]:
    for row in request_operations.list_requests(portal.runtime, caller.owner, most):
        try:
            _, layers = layers_of(portal, caller, row.id)
        except NotFoundError:
            continue  # it has no raster
        for layer in layers.values():
            look = result_tiles.look_of(
                row.id, layer.id, layer.best or UNDATED, caller, portal, 0, "", "swathmill"
            )
            one = _OfResults(look=look)
            yield _described(base, f"{row.id}:{_coloned(layer)}", one.title, one.box, one.days)


def _collections_of_granules(portal: Portal, base: str) -> Iterator[dict[str, object]]:
    known = holdings.read(portal.runtime.store)[0]
    for held in known.products if known is not None else ():
        entry = catalogue.product(held.name, held.collection)
        for layer in entry.layers if entry is not None else ():
            name = f"{versioned(held.name, held.collection)}:{layer}"
            days = str(held.first), str(held.last)
            yield _described(base, name, f"{layer}, {held.name}", WHOLE_EARTH, days)


def _described(
    base: str,
    name: str,
    title: str,
    box: LonLatBox,
    days: tuple[str, str] | None,
    query: str = "",
) -> dict[str, object]:
    place = _place(base, name)
    extent: dict[str, object] = {
        "spatial": {"bbox": [[box.west, box.south, box.east, box.north]], "crs": CRS84}
    }
    if days is not None:
        first, last = days
        extent["temporal"] = {"interval": [[f"{first}T00:00:00Z", f"{last}T23:59:59Z"]]}
    return {
        "id": name,
        "title": title,
        "dataType": "map",
        "extent": extent,
        "crs": [CRS84],
        "links": [
            _link("self", f"{place}{query}"),
            _link(f"{_REL}map", f"{place}/map{query}", _PNG),
            _link(f"{_REL}tilesets-map", f"{place}/map/tiles{query}"),
        ],
    }


def _grid(box: LonLatBox, width: int | None, height: int | None) -> Grid:
    """Return a grid of degrees over a box, of the sides that are said."""
    across, down = box.width, box.north - box.south
    if width is None and height is None:
        width = max(1, round(_LONGER * min(1.0, across / down)))
    if width is None:
        width = max(1, round((height or 1) * across / down))
    if height is None:
        height = max(1, round(width * down / across))
    if max(width, height) > 8 * _LONGER:
        raise BadCallError("The map is too long.", "Name both sides.", field="width")
    return Grid(
        crs="EPSG:4326",
        transform=(across / width, 0.0, box.west, 0.0, -down / height, box.north),
        width=width,
        height=height,
    )


def _date_of(layer: ResultLayer, datetime: str) -> str:
    """Return the date that is asked for, the best where none is; that of a time is its day."""
    if not datetime:
        return layer.best or UNDATED
    if datetime in layer.rasters:
        return datetime
    return str(_day(datetime))


def _day(text: str) -> date:
    day = _DAY.match(text)
    try:
        return date.fromisoformat(day[0] if day else "")
    except ValueError:
        raise BadCallError(
            f"{text!r} is no day and no time.", "Write 2012-03-07.", field="datetime"
        ) from None


def _coloned(layer: ResultLayer) -> str:
    return layer.id.replace("/", ":")


def _place(base: str, name: str) -> str:
    return f"{base}/maps/collections/{quote(name, safe=':.')}"


def _query(request: Request) -> str:
    return f"?{request.url.query}" if request.url.query else ""


def _link(rel: str, href: str, media: str = _JSON) -> dict[str, Any]:
    return {"rel": rel, "href": href, "type": media}


def _no_collection(name: str) -> NotFoundError:
    return NotFoundError(f"There is no collection {name!r}.", "/maps/collections lists them.")
