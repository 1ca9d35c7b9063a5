"""Tiles of a request's results for maps: XYZ, TileJSON, WMTS, as `tiles_api.py` has of granules.

They are of rasters that exist, also while the request runs. Sources: as there.
"""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from modis.box import LonLatBox
from portal.results.colour_scales import Colormap, Rescale, ends_of
from portal.results.layer_legends import current, layer_named, layers_of, legend_of
from portal.results.layers import ResultLayer
from portal.results.legends import Legend
from portal.results.state import Results
from portal.serving.addresses import base_url
from portal.serving.identity import Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError, answers_with
from portal.views.drawn import FRESH, Form, Matrix, send_drawn
from portal.views.state import NotShownError, Views
from portal.views.tile_matrix import DEEPEST, SIDE, WEB_MERCATOR
from portal.views.wmts import WHOLE_EARTH, Layer, capabilities
from reprojection.errors import ReprojectionError
from reprojection.grid.grids import Grid
from reprojection.grid.targets import pixel_metres
from reprojection.write.palette import Scale
from tasks.requests.request_table import RequestRow

UNDATED = "all"
"""The date in addresses of rasters that have none, as among STAC items."""

router = Router(
    prefix="/api/requests/{request_id}/tiles",
    tags=["views"],
    responses=answers_with(NotShownError),
)

_POINTS = 33  # along a side of a raster, from which its box in degrees is told

Band = Annotated[int, Query(ge=0, le=4096, description="A band of the rasters, from 0.")]


@dataclass(frozen=True, kw_only=True)
class Look:
    """A layer of a request's results on a date, and how it is shown."""

    row: RequestRow
    layer: ResultLayer
    date: str
    band: int
    rescale: tuple[float, float] | None
    colormap: Scale
    portal: Portal

    @property
    def title(self) -> str:
        """The name for people."""
        return f"{self.layer.title} {self.date or 'without a date'}"

    def legend(self) -> Legend:
        """Return how the layer is drawn on all dates, as on the map of results."""
        return legend_of(self.portal, self.row, self.layer, self.band)


def look_of(
    request_id: str,
    layer: str,
    date: str,
    caller: Reader,
    portal: CurrentPortal,
    band: Band = 0,
    rescale: Rescale = "",
    colormap: Colormap = "swathmill",
) -> Look:
    """Read what is asked for. Raises NotFoundError, BadCallError."""
    row, layers = layers_of(portal, caller, request_id)
    found = layer_named(layers, layer)
    day = "" if date == UNDATED else date
    if day not in found.rasters:
        raise NotFoundError(
            f"{layer} has no finished raster of {date!r}.",
            f"It has {len(found.rasters)}, from {found.dates[0] or UNDATED} "
            f"to {found.dates[-1] or UNDATED}.",
        )
    return Look(
        row=row,
        layer=found,
        date=day,
        band=band,
        rescale=ends_of(rescale),
        colormap=colormap,
        portal=portal,
    )


Asked = Annotated[Look, Depends(look_of)]
_PLACE = "/{layer:path}/{date}"


@router.get(_PLACE + "/legend.json", summary="Colours of a result")
def legend(look: Asked) -> JSONResponse:
    """Tell the ends of the colour scale, or the classes with their colours, of all dates."""
    return JSONResponse(_legend(look), headers={"Cache-Control": FRESH})


@router.get(_PLACE + "/tilejson.json", summary="TileJSON of a result")
def tilejson(request: Request, look: Asked) -> JSONResponse:
    """Describe the tiles of a result by TileJSON 3.0.0, for Leaflet, MapLibre and OpenLayers."""
    query = f"?{request.url.query}" if request.url.query else ""
    address = f"{base_url(request, look.portal.settings)}{_folder(request)}"
    grid = look.legend().said.grid.grid()
    box = box_of(grid)
    answer = {
        "tilejson": "3.0.0",
        "name": look.title,
        "scheme": "xyz",
        "tiles": [f"{address}/{{z}}/{{x}}/{{y}}.png{query}"],
        "minzoom": 0,
        "maxzoom": zoom_of(grid),
        "tileSize": SIDE,
        "bounds": [box.west, box.south, box.east, box.north],
        "legend": f"{address}/legend.json{query}",
    }
    return JSONResponse(answer, headers={"Cache-Control": FRESH})


@router.get("/WMTSCapabilities.xml", summary="WMTS of all results", response_class=Response)
def wmts(request: Request, request_id: str, caller: Reader, portal: CurrentPortal) -> Response:
    """Describe the tiles of all layers, with the dates as `Time`, by WMTS 1.0.0 (RESTful)."""
    row, layers = layers_of(portal, caller, request_id)
    address = f"{base_url(request, portal.settings)}{_folder(request)}"
    described = [
        Layer(
            name=layer.id,
            title=layer.title,
            tiles=f"{address}/{layer.id}/{{Time}}",
            query=request.url.query,
            box=box_of(legend_of(portal, row, layer, 0).said.grid.grid()),
            dates=tuple(day or UNDATED for day in layer.dates),
            shown=layer.best or UNDATED,
        )
        for layer in layers.values()
    ]
    sets = portal.state(Views).matrix_sets.values()
    text = capabilities(row.title or f"Request {row.id}", described, sets)
    return Response(text, media_type="application/xml", headers={"Cache-Control": "no-cache"})


# Below the others: their names are also a {row}.{form}.
@router.get(
    _PLACE + "/{zoom}/{col}/{row}.{form}", summary="A tile of a result", response_class=Response
)
async def tile(
    request: Request, look: Asked, zoom: int, col: int, row: int, form: Form,
    tms: Matrix = "WebMercatorQuad",
) -> Response:  # fmt: skip
    """Draw 256 x 256 pixels of a result: of its pixels, or of an overview's, the nearest ones.

    PNG has the colours of the map of results, transparent where there is no value; `.npy` and
    `.tif` hold float32 with NaN there.
    """
    grid = look.portal.state(Views).matrix_set(tms).grid(zoom, col, row)
    return send_drawn(request, await drawn(request, look, grid, form), form)


async def drawn(request: Request, look: Look, grid: Grid, form: Form) -> tuple[str, bytes]:
    """Draw a result on a grid, or take it from what was drawn; return its tag, too."""
    views, results = look.portal.state(Views), look.portal.state(Results)
    result = await run_in_threadpool(current, look.portal, look.row, look.layer.rasters[look.date])
    ends = look.rescale
    if form == "png" and ends is None:
        told = await run_in_threadpool(look.legend)
        ends = None if told.low is None or told.high is None else (told.low, told.high)
    what = grid.crs, grid.transform, grid.shape, look.band, form, ends, look.colormap
    key = f"{result.file.sha256}-{json.dumps(what)}"
    found = views.kept(key)
    if found is None:

        def draw() -> bytes:
            from portal.views import drawing, result_reading

            reader = results.index.reader(look.portal.runtime, look.row)
            try:
                raster = result_reading.read_onto(reader, result, look.band, grid)
            except ReprojectionError as error:
                raise NotShownError(f"{error}.", "Download the file.") from error
            low, high = ends or (None, None)
            return drawing.drawn(raster, form, low, high, look.colormap)

        found = await views.in_turn(request, draw)
        views.keep(key, found)
    return views.tag(key), found


def box_of(grid: Grid) -> LonLatBox:
    """Return a box in degrees around a grid; the whole Earth where it is not known."""
    import numpy as np

    a, b, c, d, e, f = grid.transform
    cols, rows = np.meshgrid(
        np.linspace(0, grid.width, _POINTS), np.linspace(0, grid.height, _POINTS)
    )
    lon, lat = grid.system.to_lonlat(
        (a * cols + b * rows + c).ravel(), (d * cols + e * rows + f).ravel()
    )
    known = np.isfinite(lon) & np.isfinite(lat)
    if not known.all() or np.ptp(lon) > 180.0:
        return WHOLE_EARTH
    return LonLatBox(float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max()))


def zoom_of(grid: Grid) -> int:
    """Return the first zoom whose pixels are as small as a grid's, at the equator."""
    wanted = WEB_MERCATOR.metres(0) / pixel_metres(grid)
    return min(DEEPEST, max(0, math.ceil(math.log2(max(wanted, 1.0)))))


def _folder(request: Request) -> str:
    return request.url.path.rpartition("/")[0]


def _legend(look: Look) -> dict[str, Any]:
    told = look.legend()
    low, high = look.rescale or (told.low, told.high)
    return {
        "layer": look.layer.title,
        "kind": told.said.kind,
        "units": told.said.units,
        "colormap": look.colormap,
        "low": low,
        "high": high,
        "classes": [
            {"value": entry.value, "meaning": entry.text,
             "colour": "#{:02x}{:02x}{:02x}".format(*entry.colour[:3])}
            for entry in told.entries
        ],
    }  # fmt: skip
