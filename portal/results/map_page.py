"""The map of a request's results: its page, legends, values at a place, statistics of a date."""

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Query, Response

from portal.results.explanations import NotExplainedError
from portal.results.layers import ResultLayer
from portal.results.legends import Entry, Legend
from portal.results.numbers import number_text
from portal.results.result_files import ResultFile
from portal.results.series import series_at
from portal.results.state import Results
from portal.results.statistics import known_of, statistics_of
from portal.serving.access import read_for
from portal.serving.attachments import csv_answer
from portal.serving.identity import Reader
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError
from portal.serving.quantities import unit_text
from reprojection import catalogue
from reprojection.catalogue.layers import LayerKind
from reprojection.read.qa import Reason
from reprojection.read.raster import Description, Raster
from tasks.requests.request_table import RequestRow
from tasks.storage.blobs import SigningBlobs

router = APIRouter(include_in_schema=False)

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
_DATES_SAMPLED = 12  # of a layer, for a legend that holds for all dates
_SHOWN = (2.0, 98.0)  # percentiles at the ends of the scale
_MOST_VALUES = 64  # classes or bit patterns in a legend
_MOST_DATES = 400  # of a series that is drawn; its file has all

Lon = Annotated[float, Query(ge=-360, le=360)]
Lat = Annotated[float, Query(ge=-90, le=90)]
BandNumber = Annotated[int, Query(ge=0, le=4096)]
_REASONS: Mapping[int, str] = {
    Reason.VALID: "valid",
    Reason.FILL: "fill",
    Reason.CODE: "a code, or outside the valid range",
    Reason.QA: "quality",
    Reason.NO_GRANULE: "no granule",
}
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
    request_id: str, caller: Reader, portal: CurrentPortal, layer: str = "", date: str = ""
) -> Response:
    """Show the map of the results, at a layer and a date."""
    row, layers = _layers(portal, caller, request_id)
    at = layers.get(layer) or _first(layers)
    response = portal.pages.page(
        "map.html",
        caller,
        "requests",
        200,
        row=row,
        layers=list(layers.values()),
        at=at,
        date=at.nearest(date) if date else at.best,
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
    row, layers = _layers(portal, caller, request_id)
    return _Asked(row=row, layers=layers, found=_layer(layers, layer))


Asked = Annotated[_Asked, Depends(_asked)]


@router.get("/requests/{request_id}/map/layer")
def describe(asked: Asked, portal: CurrentPortal, band: BandNumber = 0) -> dict[str, object]:
    """Describe how a band of a layer is drawn: projection, extent, files by date, and colours."""
    row, found = asked.row, asked.found
    legend = _legend(portal, row, found, band)
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
        "continuous": said.kind == "continuous",
        "classes": [[entry.value, list(entry.colour)] for entry in legend.entries],
        "files": {
            day: f"/api/requests/{row.id}/results/{quote(found.rasters[day].path)}"
            for day in found.dates
        },
    }


@router.get("/requests/{request_id}/map/legend")
def legend_part(asked: Asked, portal: CurrentPortal, band: BandNumber = 0) -> Response:
    """Render the legend of a band of a layer."""
    legend = _legend(portal, asked.row, asked.found, band)
    chosen = legend.said.bands[band]
    about = "" if chosen.role == "data" else _OF_GRANULES.get(chosen.role, chosen.name)
    return portal.pages.part("legend.html", layer=asked.found, legend=legend, about=about)


@router.get("/requests/{request_id}/map/statistics")
def statistics_part(
    asked: Asked, portal: CurrentPortal, date: str, band: BandNumber = 0
) -> Response:
    """Render the histogram and the statistics of a band of a layer on a date."""
    row, found = asked.row, asked.found
    day = found.nearest(date)
    reader = portal.state(Results).index.reader(portal.runtime, row)
    result = _current(portal, row, found.rasters[day])
    raster, said = portal.state(Results).pictures.counted(reader, result, band)
    whole = portal.state(Results).pictures.statistics(reader, result, band)
    legend = _legend(portal, row, found, band)
    reduced = raster.data.shape[1:] != (said.grid.height, said.grid.width)
    return portal.pages.part(
        "statistics.html",
        layer=found,
        date=day,
        said=said,
        reduced=reduced and whole is None,
        drawn_reduced=reduced and whole is not None and not whole.counts,
        stats=statistics_of(raster, whole, legend),
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
                reader, _current(portal, row, each.rasters[day]), lon, lat
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
    result = _current(portal, row, found.rasters[found.nearest(date)])
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


def _layers(
    portal: Portal, caller: Reader, request_id: str
) -> tuple[RequestRow, Mapping[str, ResultLayer]]:
    row = read_for(portal.runtime, caller, request_id)
    layers = portal.state(Results).arranged(row).layers
    if not layers:
        raise NotFoundError(
            f"Request {request_id} has no finished raster yet.",
            "Its map opens when its page shows results.",
        )
    return row, layers


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


def _layer(layers: Mapping[str, ResultLayer], name: str) -> ResultLayer:
    if name not in layers:
        raise NotFoundError(
            f"The results have no layer {name!r}.", f"They have: {', '.join(layers)}."
        )
    return layers[name]


def _current(portal: Portal, row: RequestRow, result: ResultFile) -> ResultFile:
    return portal.state(Results).index.reader(portal.runtime, row).current(result)


def _legend(portal: Portal, row: RequestRow, layer: ResultLayer, band: int) -> Legend:
    """Work out the colours from some of the dates, evenly spaced."""
    dates = layer.dates
    step = max(1, -(-len(dates) // _DATES_SAMPLED))
    files = [layer.rasters[day] for day in dates[::step]]
    key = f"{band} " + "".join(file.file.sha256[:16] for file in files)
    return portal.state(Results).legends.get(key, lambda: _new_legend(portal, row, files, band))


def _new_legend(portal: Portal, row: RequestRow, files: list[ResultFile], band: int) -> Legend:
    reader = portal.state(Results).index.reader(portal.runtime, row)
    read = [
        portal.state(Results).pictures.small(reader, _current(portal, row, file), band)
        for file in files
    ]
    said, nodata = read[0][1], read[0][0].nodata
    if said.kind == "continuous":
        every = np.concatenate([known_of(raster) for raster, _ in read])
        low, high = _ends(every)
        return Legend(said=said, nodata=nodata, low=low, high=high, entries=())
    counts: Counter[int] = Counter()
    for raster, _ in read:
        values, times = np.unique(known_of(raster).astype(np.int64), return_counts=True)
        counts.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
    colours = {code: colour for _, one in read for code, colour in one.colours.items()}
    names = {code: name for _, one in read for code, name in one.codes.items()}
    if said.bands[band].is_index:
        colours, names = {}, {**_REASONS} if said.bands[band].role == "reason" else {}
    from reprojection.write.palette import class_colour

    shown = sorted(value for value, _ in counts.most_common(_MOST_VALUES))
    entries = tuple(
        Entry(
            value=value,
            text=names.get(value) or _in_words(said, value),
            colour=colours.get(value) or class_colour(value),
        )
        for value in shown
    )
    return Legend(said=said, nodata=nodata, low=None, high=None, entries=entries)


def _ends(values: npt.NDArray[np.float64]) -> tuple[float | None, float | None]:
    if not values.size:
        return None, None
    low, high = (float(end) for end in np.percentile(values, _SHOWN))
    return low, high if high > low else low + 1.0


def _fields(said: Description, value: int) -> tuple[tuple[str, str], ...]:
    """Decode the bit fields of a stored value by the catalogue."""
    origin = said.provenance
    product = catalogue.product(origin.product, origin.collection)
    entry = product.layer(origin.layer) if product else None
    if entry is None or said.kind != "bitfield":
        return ()
    found = []
    for name, bits in entry.bits.items():
        number = (value >> bits.start) & ((1 << bits.length) - 1)
        found.append((name, bits.values.get(number, f"value {number}")))
    return tuple(found)


def _in_words(said: Description, value: int) -> str:
    return "; ".join(f"{name}: {text}" for name, text in _fields(said, value))


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
            fields = _fields(said, stored) if band.role == "data" else ()
            found.append(BandValue(name=band.name, text=text, fields=fields))
    return found
