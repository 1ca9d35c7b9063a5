"""Tiles of a layer of a day's granules, as maps ask for them: XYZ, TileJSON, WMTS.

Source: TileJSON 3.0.0; OGC 07-057r7, "Web Map Tile Service", RESTful encoding.
"""

import json
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import StrictInt, TypeAdapter, ValidationError

from archives.model import GranuleRecord
from modis.box import LonLatBox
from modis.collection import parted
from modis.sphere import METRES_PER_DEGREE
from portal.results.colour_scales import Colormap, Rescale, ends_of
from portal.serving.addresses import base_url
from portal.serving.identity import person
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import BadCallError, NotFoundError, answers_with
from portal.views.drawn import (
    FRESH,
    Form,
    Matrix,
    box_named,
    send_drawn,
)
from portal.views.state import (
    MOST_GRANULES,
    Chosen,
    NotShownError,
    TooCoarseError,
    Views,
    extent_of,
)
from portal.views.survey_chart import survey_chart
from portal.views.tile_matrix import DEEPEST, SIDE
from portal.views.wmts import WHOLE_EARTH, Layer, capabilities
from reprojection import catalogue
from reprojection.grid.grids import Grid
from reprojection.write.palette import Scale
from tasks.holdings import holdings

router = Router(
    prefix="/tiles",
    tags=["views"],
    dependencies=[Depends(person)],
    responses=answers_with(NotShownError, TooCoarseError),
)

_SURVEYED = 512  # pixels along the longer side
_SAMPLED = 4  # granules of a day, for the range of a map that names none
_MOST_OF_A_SURVEY = 48
_METRES = 1000.0  # of a pixel of a product that the catalogue does not know

Qa = Annotated[
    str, Query(description='"best", "good", or a rule as JSON: {"LAYER": {"FIELD": [VALUES]}}.')
]
Method = Annotated[str, Query(description="As in a request; empty: the layer's own.")]
Box = Annotated[str, Query(description="West, south, east, north in degrees.")]


@dataclass(frozen=True, kw_only=True)
class Look:
    """A layer of a day, and how it is shown."""

    chosen: Chosen
    layer: str
    options: dict[str, Any]
    rescale: tuple[float, float] | None
    colormap: Scale
    portal: Portal

    @property
    def views(self) -> Views:
        """The state of the portal's maps."""
        return self.portal.state(Views)


def look_of(
    portal: CurrentPortal,
    product: str,
    layer: str,
    day: date,
    qa: Qa = "",
    resampling: Method = "",
    merge: Annotated[
        Literal["nadir", "latest", "first", "mean"],
        Query(description="Which value counts where granules overlap."),
    ] = "nadir",
    units: Annotated[
        Literal["stored", "physical", "brightness"],
        Query(description="Which values: as in a request."),
    ] = "physical",
    rescale: Rescale = "",
    colormap: Colormap = "swathmill",
) -> Look:
    """Read what is asked for: PRODUCT, or PRODUCT.COLLECTION."""
    name, collection = parted(product)
    views = portal.state(Views)
    options: dict[str, Any] = {"merge": merge, "units": units}
    if resampling:
        options["resampling"] = resampling
    if qa:
        options["qa"] = _rule(qa)
    return Look(
        chosen=Chosen(product=name, collection=collection or views.collection(name), day=day),
        layer=layer,
        options=options,
        rescale=ends_of(rescale),
        colormap=colormap,
        portal=portal,
    )


Asked = Annotated[Look, Depends(look_of)]


@router.get(
    "/{product}/{layer}/{day}/{zoom}/{col}/{row}.{form}",
    summary="A tile of a layer",
    response_class=Response,
)
async def tile(
    request: Request, look: Asked, zoom: int, col: int, row: int, form: Form,
    tms: Matrix = "WebMercatorQuad",
) -> Response:  # fmt: skip
    """Draw 256 x 256 pixels of a layer: the pixels that a request makes on this grid.

    PNG is transparent where there is no value; `.npy` and `.tif` hold float32 with NaN there. A
    tile that too many granules touch is refused with 422: zoom in.
    """
    matrix = look.views.matrix_set(tms)
    grid, box = matrix.grid(zoom, col, row), matrix.box(zoom, col, row)
    return send_drawn(request, await drawn(request, look, grid, box, form), form)


@router.get("/readers", status_code=204, include_in_schema=False)
def readers(portal: CurrentPortal) -> None:
    """Start what draws: a form is open on which a layer can be shown."""
    portal.state(Views).begin()


@router.get("/{product}/{layer}/{day}/survey.json", summary="What a layer holds in a box")
async def survey(request: Request, look: Asked, bbox: Box) -> JSONResponse:
    """Count a layer in a box: ends of a colour scale, shares with and without its quality rule."""
    box = box_named(bbox)
    records = await run_in_threadpool(look.views.granules, look.chosen, box, _MOST_OF_A_SURVEY)
    found = await _surveyed(request, look, records, box)
    return JSONResponse({**found, "granules": len(records)}, headers={"Cache-Control": FRESH})


@router.get("/{product}/{layer}/{day}/legend", include_in_schema=False)
async def legend_part(request: Request, look: Asked, bbox: Box) -> Response:
    """Render what the survey of a box counts: a histogram, or classes with their shares."""
    box = box_named(bbox)
    records = await run_in_threadpool(look.views.granules, look.chosen, box, _MOST_OF_A_SURVEY)
    said = await _surveyed(request, look, records, box)
    has_rule = "qa" in look.options
    drawn = None
    if said["bins"]:
        drawn = survey_chart(said["edges"], said["bins"], said["bins_before"], has_rule=has_rule)
    return look.portal.pages.part(
        "survey.html", "/new", said=said, layer=look.layer, has_rule=has_rule, chart=drawn
    )


@router.get(
    "/{product}/{layer}/{day}/picture.png", summary="A small picture", response_class=Response
)
async def picture(
    request: Request,
    look: Asked,
    bbox: Box,
    side: Annotated[int, Query(ge=16, le=512, description="Pixels of the longer side.")] = 128,
) -> Response:
    """Draw a layer in a box, in degrees, its longer side of so many pixels."""
    box = box_named(bbox)
    records = await run_in_threadpool(look.views.granules, look.chosen, box, _MOST_OF_A_SURVEY)
    ends = look.rescale or await _range_of_day(request, look)
    found = await _drawn(request, look, records, _grid_over(box, side), "png", ends)
    return send_drawn(request, found, "png")


@router.get("/{product}/{layer}/{day}/value.json", summary="A layer's value at a place")
async def value(
    request: Request,
    look: Asked,
    lon: Annotated[float, Query(ge=-360, le=360, description="Longitude in degrees.")],
    lat: Annotated[float, Query(ge=-90, le=90, description="Latitude in degrees.")],
) -> JSONResponse:
    """Say what a pixel of the product's size holds at a place, from which source pixel, and why.

    Bit fields of quality layers are decoded.
    """
    grid = _grid_at(look, lon, lat)
    west, south, east, north = grid.bounds
    records = await run_in_threadpool(
        look.views.granules, look.chosen, LonLatBox(west, south, east, north), MOST_GRANULES
    )
    if not records:
        raise _nothing_here(look)

    def explain() -> dict[str, Any]:
        from portal.views import drawing

        found = look.views.run(
            records,
            lambda process, files, folders: process.run(
                drawing.value, _asked(look, grid, files, folders)
            ),
        )
        told = ("layer", "value", "units", "note")
        return {name: getattr(found, name) for name in told} | {
            "origin": None if found.origin is None else asdict(found.origin)
        }

    found = await look.views.in_turn(request, explain)
    return JSONResponse({"lon": lon, "lat": lat, **found}, headers={"Cache-Control": FRESH})


@router.get("/{product}/days.json", summary="Days with granules of a product")
def days(
    portal: CurrentPortal,
    product: str,
    start: Annotated[date, Query(description="The first day.")],
    end: Annotated[date, Query(description="The last day.")],
    most: Annotated[int, Query(ge=1, le=400, description="So many days at most.")] = 60,
) -> JSONResponse:
    """List days on which granules start, at most so many, evenly spread over the span.

    Empty where it is not known what the archive holds.
    """
    name, collection = parted(product)
    known = holdings.read(portal.runtime.store)[0]
    held = None
    if known is not None:
        numbers = (collection,) if collection else known.collections(name)[-1:]
        held = next((one for one in map(partial(known.of, name), numbers) if one), None)
    found = held.days(start, end) if held is not None else []
    if len(found) > most:
        found = [found[round(at * (len(found) - 1) / max(most - 1, 1))] for at in range(most)]
    return JSONResponse({"days": [str(day) for day in found]})


@router.get("/{product}/{layer}/{day}/tilejson.json", summary="TileJSON of a layer")
async def tilejson(request: Request, look: Asked) -> JSONResponse:
    """Describe the tiles of a layer by TileJSON 3.0.0, for Leaflet, MapLibre and OpenLayers."""
    views = look.views
    every = await run_in_threadpool(views.granules, look.chosen, WHOLE_EARTH, 10**6)
    query = f"?{request.url.query}" if request.url.query else ""
    address = f"{base_url(request, look.portal.settings)}{request.url.path.rpartition('/')[0]}"
    answer = {
        "tilejson": "3.0.0",
        "name": f"{look.layer}, {look.chosen.product} of {look.chosen.day}",
        "scheme": "xyz",
        "tiles": [f"{address}/{{z}}/{{x}}/{{y}}.png{query}"],
        "minzoom": 0,
        "maxzoom": DEEPEST,
        "tileSize": SIDE,
        "granules": len(every),
    }
    return JSONResponse(answer, headers={"Cache-Control": FRESH})


@router.get(
    "/{product}/{layer}/{day}/WMTSCapabilities.xml",
    summary="WMTS of a layer",
    response_class=Response,
)
async def wmts(request: Request, look: Asked) -> Response:
    """Describe the tiles of a layer by WMTS 1.0.0, RESTful encoding, for GDAL and GIS programs."""
    address = f"{base_url(request, look.portal.settings)}{request.url.path.rpartition('/')[0]}"
    title = f"{look.layer}, {look.chosen.product} of {look.chosen.day}"
    layer = Layer(name=look.layer, title=title, tiles=address, query=request.url.query)
    text = capabilities(title, [layer], look.views.matrix_sets.values())
    return Response(text, media_type="application/xml", headers={"Cache-Control": FRESH})


async def drawn(
    request: Request, look: Look, grid: Grid, box: LonLatBox, form: Form
) -> tuple[str, bytes]:
    """Draw a layer on a grid that lies in a box, in the colours of its day; return its tag, too."""
    records = await run_in_threadpool(look.views.granules, look.chosen, box, MOST_GRANULES)
    ends = look.rescale
    if form == "png" and ends is None:
        ends = await _range_of_day(request, look)
    return await _drawn(request, look, records, grid, form, ends)


async def _drawn(
    request: Request,
    look: Look,
    records: tuple[GranuleRecord, ...],
    grid: Grid,
    form: Form,
    ends: tuple[float, float] | None,
) -> tuple[str, bytes]:
    """Draw a layer on a grid, or take it from what was drawn; return its tag, too."""
    views = look.views
    what = look.layer, sorted(look.options.items()), grid.crs, grid.transform, form, ends
    key = f"{views.identity(records)}-{look.colormap}-{json.dumps(what)}"
    found = views.kept(key)
    if found is None:
        low, high = ends or (None, None)

        def draw() -> bytes:
            from portal.views import drawing

            return views.run(
                records,
                lambda process, files, folders: process.run(
                    drawing.draw, _asked(look, grid, files, folders), form, low, high, look.colormap
                ),
            )

        found = await views.in_turn(request, draw) if records else _blank(form, look, grid)
        views.keep(key, found)
    return views.tag(key), found


async def _range_of_day(request: Request, look: Look) -> tuple[float, float] | None:
    """Return the ends of a scale that holds for all tiles of a day, from some of its granules."""
    views = look.views
    every = await run_in_threadpool(views.granules, look.chosen, WHOLE_EARTH, 10**6)
    own = [one for one in every if one.product == look.chosen.product]
    sample = own[:: max(1, -(-len(own) // _SAMPLED))]
    found: list[tuple[float, float]] = []
    for record in sample:
        box = extent_of(record)
        if box is None:
            continue
        near = tuple(one for one in every if one.start == record.start)
        said = await _surveyed(request, look, near, box)
        if said["low"] is not None:
            found.append((said["low"], said["high"]))
    if not found:
        return None
    return min(low for low, _ in found), max(high for _, high in found)


async def _surveyed(
    request: Request, look: Look, records: tuple[GranuleRecord, ...], box: LonLatBox
) -> dict[str, Any]:
    views = look.views
    grid = _grid_over(box)
    what = look.layer, sorted(look.options.items()), grid.transform
    key = f"{views.identity(records)}-{json.dumps(what)}"

    def count() -> bytes:
        from portal.views import drawing

        found = views.run(
            records,
            lambda process, files, folders: process.run(
                drawing.survey, _asked(look, grid, files, folders)
            ),
        )
        return json.dumps(asdict(found)).encode()

    said = views.kept(key)
    if said is None:
        if not records:
            raise _nothing_here(look)
        said = await views.in_turn(request, count)
        views.keep(key, said)
    found: dict[str, Any] = json.loads(said)
    return found


def _asked(look: Look, grid: Grid, files: tuple[str, ...], folders: tuple[Any, ...]) -> Any:
    from portal.views.drawing import Asked as Wanted
    from reprojection.reproject import Options

    return Wanted(
        files=files, folders=folders, layer=look.layer, grid=grid, options=Options(**look.options)
    )


def _grid_over(box: LonLatBox, side: int = _SURVEYED) -> Grid:
    """Return a grid in degrees over a box, whose longer side has so many pixels."""
    width, height = box.width, box.north - box.south
    pixel = max(width, height) / side
    return Grid(
        crs="EPSG:4326",
        transform=(pixel, 0.0, box.west, 0.0, -pixel, box.north),
        width=max(1, round(width / pixel)),
        height=max(1, round(height / pixel)),
    )


def _nothing_here(look: Look) -> NotFoundError:
    return NotFoundError(
        f"No granule of {look.chosen.product} lies here on {look.chosen.day}.",
        "Choose another day or place.",
    )


def _grid_at(look: Look, lon: float, lat: float) -> Grid:
    """Return a grid of one pixel around a place, as large as the product's, in degrees."""
    entry = catalogue.product(look.chosen.product, look.chosen.collection)
    pixel = (entry.resolution if entry is not None else _METRES) / METRES_PER_DEGREE
    corner = lon - pixel / 2, min(lat + pixel / 2, 90.0)
    return Grid(
        crs="EPSG:4326",
        transform=(pixel, 0.0, corner[0], 0.0, -pixel, corner[1]),
        width=1,
        height=1,
    )


def _blank(form: Form, look: Look, grid: Grid) -> bytes:
    """Return a picture of nothing, where no granule lies; of numbers there are none."""
    if form != "png":
        raise _nothing_here(look)
    import numpy as np

    from reprojection.write.picture import encode_png

    return encode_png(np.zeros((*grid.shape, 4), np.uint8))


_RULES = TypeAdapter(dict[str, dict[str, tuple[StrictInt, ...]]])


def _rule(text: str) -> str | dict[str, dict[str, tuple[int, ...]]]:
    if text in ("best", "good"):
        return text
    try:
        return _RULES.validate_json(text)
    except ValidationError:
        raise BadCallError(
            f"{text!r} is no quality rule.",
            'Write best, good, or JSON as {"FparLai_QC": {"MODLAND": [0]}}.',
            field="qa",
        ) from None
