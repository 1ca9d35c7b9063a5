"""Values within polygons on the map of results: a chart and a table, and both as files."""

import json
from collections.abc import Sequence
from typing import Annotated

from fastapi import Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from starlette.datastructures import FormData, UploadFile

from portal.polygons.polygons_api import COLUMNS, chosen_of, computed, rows_of
from portal.results.charts import Chart, Line, Mark, chart
from portal.results.layers import ResultLayer, minute_of
from portal.results.state import Results
from portal.serving.access import read_for
from portal.serving.attachments import attachment, csv_answer
from portal.serving.documents import MOST_BYTES as MOST_TEXT
from portal.serving.documents import read_form_data
from portal.serving.identity import Asker
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import PortalError
from portal.serving.quantities import unit_text
from portal.serving.tokens import Person
from tasks.answers.polygons import PolygonsAnswer, PolygonSeries, PolygonValues
from tasks.errors import RequestRefusedError
from tasks.request.region.files import MOST_BYTES

router = Router(include_in_schema=False)


@router.post("/requests/{request_id}/map/polygons")
async def show(
    request_id: str,
    request: Request,
    caller: Asker,
    portal: CurrentPortal,
    hx_request: Annotated[bool, Header()] = False,
) -> Response:
    """Show the values of one layer within polygons that were drawn, or are in a file."""
    form = await _form(request)
    return await run_in_threadpool(_shown, portal, caller, request_id, form, part=hx_request)


@router.post("/requests/{request_id}/map/polygons.{kind}")
async def send(
    request_id: str, kind: str, request: Request, caller: Asker, portal: CurrentPortal
) -> Response:
    """Send the values of a layer, or of all, as CSV or JSON."""
    data, name, layer = await _form(request)
    made, _ = await run_in_threadpool(
        computed, portal, caller, request_id, data, name, layers=[layer] if layer else ()
    )
    if kind == "csv":
        return csv_answer(f"{made.request}.polygons", COLUMNS, rows_of(made.series))
    headers = {"Content-Disposition": attachment(f"{made.request}.polygons.json")}
    return JSONResponse(made.model_dump(mode="json"), headers=headers)


_Form = tuple[bytes, str, str]


async def _form(request: Request) -> _Form:
    """Return the polygons that a form has, the name of their file, and the layer."""
    form: FormData = await read_form_data(request, most=MOST_BYTES + MOST_TEXT, files=1)
    try:
        given = form.get("polygon_file")
        layer = str(form.get("layer", ""))
        if isinstance(given, UploadFile) and given.filename:
            return await given.read(), given.filename, layer
        return str(form.get("drawn", "")).encode(), "", layer
    finally:
        await form.close()


def _shown(portal: Portal, caller: Person, request_id: str, form: _Form, *, part: bool) -> Response:
    data, name, wanted = form
    row = read_for(portal.runtime, caller, request_id)
    every = portal.state(Results).arranged(row).layers
    layer = chosen_of(every, [wanted] if wanted else ())[0]
    found: PolygonsAnswer | None = None
    wrong, drawn = "", ""
    try:
        found, read = computed(portal, caller, request_id, data, name, layers=[layer.id])
        drawn = _as_text(read.features)
    except (RequestRefusedError, PortalError) as error:
        wrong = f"{error.problem} {error.remedy}".strip()
    shown = {
        "row": row,
        "layer": layer,
        "found": found,
        "wrong": wrong,
        "drawn": drawn,
        "has_classes": found is not None
        and any(at.classes for one in found.series for at in one.values),
        "chart": _chart(layer, found.series) if found is not None else None,
    }
    if part:
        return portal.pages.part("polygons_found.html", **shown)
    status = 422 if wrong else 200
    return portal.pages.page("polygons_page.html", caller, "requests", status, **shown)


def _as_text(features: Sequence[tuple[str, object]]) -> str:
    """Write polygons and points as GeoJSON, for the forms that send them again."""
    listed = [
        {"type": "Feature", "properties": {"name": name}, "geometry": geometry}
        for name, geometry in features
    ]
    return json.dumps({"type": "FeatureCollection", "features": listed})


def _chart(layer: ResultLayer, series: Sequence[PolygonSeries]) -> Chart | None:
    """Draw the means over time; the spread of one polygon alone, as bands hide one another."""
    units = unit_text(next((one.units for one in series), ""))
    some = [one for one in series if any(at.mean is not None for at in one.values)]

    def mark(at: PolygonValues) -> Mark:
        spread = "" if at.std is None else f" ± {at.std:.4g}"
        share = f"; {100 * at.valid_share:.4g}% of the area has a value"
        return Mark(
            name=at.date,
            moment=minute_of(at.date) if at.date else 0,
            value=at.mean,
            text="" if at.mean is None else f"{at.mean:.5g}{spread} {units}".rstrip() + share,
            spread=at.std or 0.0 if len(some) == 1 else 0.0,
            is_doubtful=layer.rasters[at.date].file.completeness.count > 0,
        )

    lines = [Line(name=one.polygon, marks=[mark(at) for at in one.values]) for one in some]
    return chart(lines, units) if lines else None
