"""The map of a request's results: its page, legends, values at a place, statistics of a date."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

import numpy as np
from fastapi import Depends, Query, Response

from portal.results.colour_scales import Colormap, Rescale, ends_of
from portal.results.explanations import NotExplainedError
from portal.results.layer_legends import current, fields_of, layer_named, layers_of, legend_of
from portal.results.layers import ResultLayer
from portal.results.series import number_text, series_at
from portal.results.state import Results
from portal.results.statistics import Statistics, statistics_of
from portal.serving.attachments import csv_answer
from portal.serving.identity import Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.quantities import unit_text
from reprojection import catalogue
from reprojection.catalogue.layers import LayerKind
from reprojection.read.description import Description
from reprojection.read.raster import Raster
from reprojection.write.band_statistics import BandStatistics
from reprojection.write.palette import SCALES
from tasks.request.places import cities_within, labels_within
from tasks.requests.request_table import RequestRow
from tasks.storage.blobs import SigningBlobs

router = Router(include_in_schema=False)

# OpenLayers decodes GeoTIFF tiles in workers, which it starts from blobs.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src blob:",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_MOST_DATES = 400  # of a series that is drawn; its file has all

Lon = Annotated[float, Query(ge=-360, le=360)]
Lat = Annotated[float, Query(ge=-90, le=90)]
BandNumber = Annotated[int, Query(ge=0, le=4096)]
_OF_GRANULES = {
    "count": "granules with a value",
    "source": "number of the granule in the STAC item",
}


@dataclass(frozen=True, kw_only=True)
class BandValue:
    """One band of a pixel: its name, its value in words, and the decoded bit fields."""

    name: str
    text: str
    fields: tuple[tuple[str, str], ...] = ()


@router.get("/requests/{request_id}/map")
def show(
    request_id: str,
    caller: Reader,
    portal: CurrentPortal,
    layer: str = "",
    date: str = "",
    other: str = "",
    other_date: str = "",
    rescale: Rescale = "",
    colormap: Colormap = "swathmill",
) -> Response:
    """Show the map of the results, at a layer and a date; `other` is what it is compared with."""
    row, layers = layers_of(portal, caller, request_id)
    at = layers.get(layer) or _first(layers)
    beside = layers.get(other)
    response = portal.pages.page(
        "map.html",
        caller,
        "requests",
        200,
        row=row,
        layers=list(layers.values()),
        at=at,
        date=at.nearest(date) if date else at.best,
        other=beside,
        other_date=beside.nearest(other_date) if beside and other_date else "",
        ends=ends_of(rescale),
        colormap=colormap,
        scales=SCALES,
    )
    response.headers["Content-Security-Policy"] = _POLICY.replace(
        "connect-src 'self'", f"connect-src 'self' {_storage_origin(portal)}".rstrip()
    )
    return response


def _storage_origin(portal: Portal) -> str:
    """Return the origin of storage where answers lead to it for results; "" elsewhere."""
    blobs: object = portal.runtime.blobs
    if portal.settings.result_link_minutes > 0 and isinstance(blobs, SigningBlobs):
        return blobs.origin
    return ""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The layer that a call names, among all layers of its request."""

    row: RequestRow
    layers: Mapping[str, ResultLayer]
    found: ResultLayer


def _asked(request_id: str, caller: Reader, portal: CurrentPortal, layer: str) -> _Asked:
    row, layers = layers_of(portal, caller, request_id)
    return _Asked(row=row, layers=layers, found=layer_named(layers, layer))


Asked = Annotated[_Asked, Depends(_asked)]


@router.get("/requests/{request_id}/map/layer")
def describe(asked: Asked, portal: CurrentPortal, band: BandNumber = 0) -> dict[str, object]:
    """Describe how a band of a layer is drawn: projection, extent, files by date, and colours."""
    row, found = asked.row, asked.found
    legend = legend_of(portal, row, found, band)
    said = legend.said
    grid = said.grid.grid()
    return {
        "id": found.id,
        "projection": _proj_string(grid.crs),
        "extent": grid.bounds,
        "resolution": abs(grid.transform[0]),
        "nodata": legend.nodata,
        "band": band,
        "bands": [one.name for one in said.bands],
        "low": None if legend.low is None else (legend.low - said.offset) / said.scale,
        "high": None if legend.high is None else (legend.high - said.offset) / said.scale,
        "scale": said.scale,
        "offset": said.offset,
        "continuous": said.kind == "continuous",
        "classes": [[entry.value, list(entry.colour)] for entry in legend.entries],
        "files": {
            day: f"/api/requests/{row.id}/results/{quote(found.rasters[day].path)}"
            for day in found.dates
        },
    }


@router.get("/requests/{request_id}/map/legend")
def legend_part(
    asked: Asked,
    portal: CurrentPortal,
    band: BandNumber = 0,
    rescale: Rescale = "",
    colormap: Colormap = "swathmill",
) -> Response:
    """Render the legend of a band of a layer, in its own range or another."""
    legend = legend_of(portal, asked.row, asked.found, band)
    chosen = legend.said.bands[band]
    about = "" if chosen.role == "data" else _OF_GRANULES.get(chosen.role, chosen.name)
    own = ends_of(rescale)
    return portal.pages.part(
        "legend.html",
        layer=asked.found,
        legend=legend,
        about=about,
        own=own,
        ends=own or (legend.low, legend.high),
        colormap=colormap,
    )


@router.get("/requests/{request_id}/map/names")
def names(_asked: Asked, west: Lon, south: Lat, east: Lon, north: Lat) -> list[dict[str, object]]:
    """Return names of countries, states and cities within a box of degrees, large ones first.

    `size` is in degrees of latitude: the side of a square as large as a country or a state; how far
    the next larger city is from a city.
    """
    box = west, south, east, north
    found = sorted((*labels_within(*box), *cities_within(*box)), key=lambda one: -one.size)
    return [
        {"name": one.name, "at": one.at, "size": one.size, "city": one.is_city} for one in found
    ]


@router.get("/requests/{request_id}/map/statistics")
def statistics_part(
    asked: Asked, portal: CurrentPortal, date: str, band: BandNumber = 0
) -> Response:
    """Render the histogram and the statistics of a band of a layer on a date."""
    day = asked.found.nearest(date)
    counted = _counted(portal, asked, day, band)
    reduced, whole = counted.is_reduced, counted.whole
    return portal.pages.part(
        "statistics.html",
        row=asked.row,
        layer=asked.found,
        date=day,
        band=band,
        said=counted.said,
        reduced=reduced and whole is None,
        drawn_reduced=reduced and whole is not None and not whole.counts,
        stats=counted.statistics,
    )


@router.get("/requests/{request_id}/map/histogram.csv")
def histogram_file(
    asked: Asked, portal: CurrentPortal, date: str, band: BandNumber = 0
) -> Response:
    """Return the histogram of a band of a layer on a date as CSV."""
    day = asked.found.nearest(date)
    drawn = _counted(portal, asked, day, band).statistics.histogram
    name = ".".join(filter(None, (asked.found.name, day, "histogram")))
    return csv_answer(name, ["from", "to", "pixels"], drawn.bins() if drawn else ())


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """What a band holds on a date: what its file says of all pixels, and what was counted."""

    said: Description
    whole: BandStatistics | None
    is_reduced: bool
    statistics: Statistics


def _counted(portal: Portal, asked: _Asked, day: str, band: int) -> _Counted:
    pictures = portal.state(Results).pictures
    reader = portal.state(Results).index.reader(portal.runtime, asked.row)
    result = current(portal, asked.row, asked.found.rasters[day])
    raster, said = pictures.counted(reader, result, band)
    whole = pictures.statistics(reader, result, band)
    legend = legend_of(portal, asked.row, asked.found, band)
    return _Counted(
        said=said,
        whole=whole,
        is_reduced=raster.data.shape[1:] != (said.grid.height, said.grid.width),
        statistics=statistics_of(raster, whole, legend),
    )


@router.get("/requests/{request_id}/map/point")
def point_part(asked: Asked, portal: CurrentPortal, date: str, lon: Lon, lat: Lat) -> Response:
    """Render what all layers hold at a place on a date, and one layer's series there."""
    row, found = asked.row, asked.found
    day = found.nearest(date)
    reader = portal.state(Results).index.reader(portal.runtime, row)
    values = []
    for each in asked.layers.values():
        if day in each.rasters:
            read = portal.state(Results).pictures.pixel(
                reader, current(portal, row, each.rasters[day]), lon, lat
            )
            if read is not None:
                values.append((each, read[1], _bands(*read)))
    units = next((said.units for each, said, _ in values if each.id == found.id), "")
    series = series_at(portal, row, found, lon, lat, _MOST_DATES) if values else None
    return portal.pages.part(
        "point.html",
        row=row,
        layer=found,
        date=day,
        lon=lon,
        lat=lat,
        values=values,
        is_bits=any(each.id == found.id and said.kind == "bitfield" for each, said, _ in values),
        series=series,
        chart=series.chart(units, day) if series is not None else None,
        file=found.rasters[day].path.rpartition("/")[2],
        granules=next(
            (said.provenance.granules for each, said, _ in values if each.id == found.id), ()
        ),
    )


@router.get("/requests/{request_id}/map/explained")
def explained_part(asked: Asked, portal: CurrentPortal, date: str, lon: Lon, lat: Lat) -> Response:
    """Render which granule, row and column a value came from, with its quality decoded."""
    row, found = asked.row, asked.found
    result = current(portal, row, found.rasters[found.nearest(date)])
    reader = portal.state(Results).index.reader(portal.runtime, row)
    try:
        if not portal.state(Results).explaining.acquire(blocking=False):
            raise NotExplainedError("Other pixels are being explained.", "Try again in a minute.")
        try:
            made = portal.state(Results).explainer.explain(portal.runtime, reader, result, lon, lat)
        finally:
            portal.state(Results).explaining.release()
    except NotExplainedError as error:
        return portal.pages.part("explained.html", problem=error)
    return portal.pages.part("explained.html", problem=None, found=made)


@router.get("/requests/{request_id}/map/series.csv")
def series_file(asked: Asked, portal: CurrentPortal, lon: Lon, lat: Lat) -> Response:
    """Return a layer's values at a place as CSV: date and value, empty where there is none."""
    found = asked.found
    series = series_at(portal, asked.row, found, lon, lat, len(found.dates))
    rows = ((day, lon, lat, text) for day, text in zip(series.dates, series.texts, strict=True))
    name = f"{found.name}.{lon:.4f}_{lat:.4f}"
    return csv_answer(name, ["date", "lon", "lat", found.name], rows)


def _proj_string(crs: str) -> str:
    """Write a CRS for proj4js; a map needs no more than a PROJ string holds."""
    import pyproj

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return pyproj.CRS.from_user_input(crs).to_proj4()


def _first(layers: Mapping[str, ResultLayer]) -> ResultLayer:
    """Choose the layer that the map opens with: the first one that holds no quality bits."""
    for layer in layers.values():
        place, _, name = layer.folder.partition("/")
        product, _, collection = place.partition(".")
        entry = None
        if collection[:1].isdigit() and (known := catalogue.product(product, collection)):
            entry = known.layer(name)
        if entry is None or entry.kind is not LayerKind.BITFIELD:
            return layer
    return next(iter(layers.values()))


def _bands(raster: Raster, said: Description) -> list[BandValue]:
    found = []
    for number, band in enumerate(said.bands):
        value = float(raster.values(number)[0, 0])
        if not np.isfinite(value):
            found.append(BandValue(name=band.name, text="no value"))
        elif band.role == "data" and said.kind == "continuous":
            text = f"{number_text(value, raster.data.dtype)} {unit_text(said.units)}".rstrip()
            found.append(BandValue(name=band.name, text=text))
        else:
            stored = int(raster.data[number, 0, 0])
            name = said.codes.get(stored, "") if band.role in ("data", "class") else ""
            text = f"{stored} ({name})" if name else str(stored)
            fields = fields_of(said, stored) if band.role == "data" else ()
            found.append(BandValue(name=band.name, text=text, fields=fields))
    return found
