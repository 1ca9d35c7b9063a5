"""The HTTP API of values within polygons: mean, spread, valid share and count by date."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from portal.polygons.state import Polygons
from portal.polygons.zones import zones_of
from portal.results.layers import ResultLayer
from portal.results.state import Results
from portal.serving.access import read_for
from portal.serving.attachments import csv_answer
from portal.serving.documents import read_body_up_to, turn
from portal.serving.identity import Asker
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError
from portal.serving.tokens import Person
from tasks.answers.polygons import PolygonsAnswer, PolygonSeries, PolygonValues
from tasks.request.region.child import features_apart
from tasks.request.region.files import MOST_BYTES, ReadFeatures, RegionFileError
from tasks.request.request_file import file_refusal

router = Router(prefix="/api", tags=["requests"])

COLUMNS = (
    *("polygon", "kind", "layer", "date", "units", "mean", "std", "valid_share", "count"),
    *("pixels", "area_km2", "note", "classes"),
)
_GEOJSON = {
    "type": "object",
    "description": "GeoJSON in degrees: a polygon, a point, or features of them with names.",
    "required": ["type"],
    "properties": {"type": {"type": "string"}},
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Polygons and points: GeoJSON, KML, WKT, GeoPackage, a zipped shapefile, or "
        "a CSV table of sites. What it is is seen by its content.",
        "content": {
            "application/geo+json": {"schema": _GEOJSON},
            "application/json": {"schema": _GEOJSON},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post(
    "/requests/{request_id}/polygons",
    response_model=PolygonsAnswer,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    openapi_extra=_BODY,
    summary="Values within polygons",
)
async def polygons(
    request_id: str,
    request: Request,
    caller: Asker,
    portal: CurrentPortal,
    layer: Annotated[
        list[str] | None,
        Query(description="Only these layers, such as Lai_1km; else all."),
    ] = None,
    start: Annotated[str, Query(description="Only dates from this one on.")] = "",
    end: Annotated[str, Query(description="Only dates up to this one.")] = "",
    form: Annotated[
        str, Query(alias="format", pattern="^(json|csv)$", description="JSON, or a table.")
    ] = "json",
) -> PolygonsAnswer | Response:
    """Compute mean, standard deviation, valid share and count within each polygon, by date.

    Pixels count with the share of them that lies inside, and the mean weighs them by their area on
    the ellipsoid. A point has the value of its pixel. Nothing is kept.
    """
    data = await read_body_up_to(request, MOST_BYTES)
    made, _ = await run_in_threadpool(
        computed, portal, caller, request_id, data, layers=layer or (), dates=(start, end)
    )
    if form == "json":
        return made
    return csv_answer(f"{made.request}.polygons", COLUMNS, rows_of(made.series))


def computed(
    portal: Portal,
    caller: Person,
    request_id: str,
    data: bytes,
    name: str = "",
    *,
    layers: Sequence[str] = (),
    dates: tuple[str, str] = ("", ""),
) -> tuple[PolygonsAnswer, ReadFeatures]:
    """Compute the values within the polygons of a file; return what was read of it, too.

    Raises:
        NotFoundError: the caller may not read the request, or it has no such layer.
        RequestRefusedError: the file gives no polygons.
        BusyError: others are being computed. Raises what `zones_of` does.
    """
    row = read_for(portal.runtime, caller, request_id)
    results = portal.state(Results)
    chosen = chosen_of(results.arranged(row).layers, layers)
    with turn(portal.state(Polygons).computing):
        try:
            read = features_apart(data, name)
        except RegionFileError as error:
            raise file_refusal(error, "polygons", name or "the document") from None
        reader = results.index.reader(portal.runtime, row)
        series = tuple(zones_of(reader, chosen, read.features, *dates))
    return PolygonsAnswer(request=row.id, notes=read.notes, series=series), read


def chosen_of(every: Mapping[str, ResultLayer], names: Sequence[str]) -> list[ResultLayer]:
    """Return the layers that are called so, by their ids or their folders' last names, or all.

    Raises NotFoundError where there is none.
    """
    if not every:
        raise NotFoundError("The request has no finished raster yet.", "Wait until it has results.")
    found: dict[str, ResultLayer] = {}
    for name in names or every:
        called = [one for one in every.values() if name in (one.id, PurePosixPath(one.folder).name)]
        if not called:
            raise NotFoundError(
                f"The results have no layer {name!r}.", f"They have: {', '.join(every)}."
            )
        found |= {one.id: one for one in called}
    return [*found.values()]


def rows_of(series: Sequence[PolygonSeries]) -> Iterator[Sequence[object]]:
    """Yield a row of `COLUMNS` for each date; a polygon without values has one row."""
    for one in series:
        head = one.polygon, one.kind, one.layer
        tail = one.pixels, one.area_km2, one.note
        if not one.values:
            yield *head, "", one.units, "", "", "", "", *tail, ""
        for at in one.values:
            yield (
                *head,
                at.date,
                one.units,
                "" if at.mean is None else at.mean,
                "" if at.std is None else at.std,
                at.valid_share,
                at.count,
                *tail,
                classes_text(at),
            )


def classes_text(at: PolygonValues) -> str:
    """Write the shares of classes: "1 water 0.25; 2 forest 0.75"."""
    return "; ".join(
        f"{' '.join(filter(None, (str(one.value), one.name)))} {one.share:.6g}"
        for one in at.classes
    )
