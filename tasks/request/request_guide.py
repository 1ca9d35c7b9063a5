"""What each field of a request takes, in a scientist's words: for messages and for labels."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from tasks.refusal_wording import ExpectedValue

_T = TypeVar("_T")

_MAPPING_OF_LAYERS = "Write a method by layer: {Lai_1km: nearest}."
_BBOX = "Write four numbers in degrees: west, south, east, north."
_TILES = "Write a list of tiles: [h17v03, h18v03]."
_PRODUCTS = "Write a list: [{name: MCD15A2, collection: 5, layers: [Lai_1km]}]."
_GEOJSON = (
    'Give a GeoJSON polygon: {"type": "Polygon", "coordinates": [[[5, 50], [8, 50], [8, 53], '
    "[5, 50]]]}."
)
_QA = "Write best, good, or a rule by QA layer: {FparLai_QC: {MODLAND: [0]}}."
_DAY = ExpectedValue(what="a day", remedy="Write year, month and day, like 2012-01-31.")
_LONGITUDE = ExpectedValue(what="a longitude", remedy=f"Longitudes go from -180 to 180. {_BBOX}")
_LATITUDE = ExpectedValue(what="a latitude", remedy=f"Latitudes go from -90 to 90. {_BBOX}")
_LOOK = ExpectedValue(what="a number of days", remedy="Write a whole number from 0 to 3700.")
_YES_NO = ExpectedValue(what="true or false", remedy="Write true or false.")

_STEP = {
    "name": ExpectedValue(
        what="the name of a step",
        remedy="A name has small letters, digits and dashes, like daily-et.",
    ),
    "package": ExpectedValue(
        what="the name of a package",
        remedy="A name has small letters, digits and dashes, like monthly-mean.",
    ),
    "group_by": ExpectedValue(
        what="a way to group",
        remedy="Write cell and a window of time, like date, 8-day, month, season: [cell, month].",
    ),
    "takes": ExpectedValue(
        what="a list of products, layers and earlier steps",
        remedy="Write a list: [MOD11A1, MCD15A2H/Lai_500m, daily-et].",
    ),
    "requires": ExpectedValue(
        what="what a run must have",
        remedy="Write any, all, a share of the dates like 0.75, or {dates: 0.75, pixels: 0.5}.",
    ),
    "parameters": ExpectedValue(
        what="a list of parameters", remedy="Write names with values as text: {name: value}."
    ),
    "parameters.*": ExpectedValue(
        what="text", remedy='Write each value as text, in quotes: {name: "5"}.'
    ),
    "deliver": _YES_NO,
    "rehearse": _YES_NO,
}
_OF_A_STEP = {
    f"{at}.{name}": value for at in ("reduction", "reduction.*") for name, value in _STEP.items()
}

WANTED: Mapping[str, ExpectedValue] = {
    "": ExpectedValue(
        what="a request document",
        remedy="A request names its fields: products, region, time and grid. Copy an example.",
    ),
    "title": ExpectedValue(what="a title", remedy="Write one line of at most 200 characters."),
    "products": ExpectedValue(what="a list of products", remedy=_PRODUCTS),
    "products.*": ExpectedValue(what="a product", remedy=_PRODUCTS),
    "products.*.name": ExpectedValue(
        what="the short name of a product",
        remedy="A short name has 3 to 20 letters, digits and underscores, like MCD15A2.",
    ),
    "products.*.collection": ExpectedValue(
        what="the number of a collection", remedy="Write its number, like 6.1 or 61."
    ),
    "products.*.layers": ExpectedValue(
        what="a list of layers", remedy="Name at least one layer and at most 64: [Lai_1km]."
    ),
    "products.*.layers.*": ExpectedValue(
        what="the name of a layer", remedy="Name each layer as its granules do: [Lai_1km]."
    ),
    "products.*.use": ExpectedValue(
        what="a way to use dates",
        remedy="Choose same-day, covering, previous, nearest or static.",
    ),
    "products.*.look_back": _LOOK,
    "products.*.look_ahead": _LOOK,
    "region": ExpectedValue(
        what="a region",
        remedy="Give one of bbox, tiles, geojson, place or sites: {bbox: [-8.0, 50.5, 6.0, 58.5]}.",
    ),
    "region.bbox": ExpectedValue(what="a box of four numbers", remedy=_BBOX),
    "region.bbox.0": _LONGITUDE,
    "region.bbox.1": _LATITUDE,
    "region.bbox.2": _LONGITUDE,
    "region.bbox.3": _LATITUDE,
    "region.tiles": ExpectedValue(what="a list of tiles", remedy=_TILES),
    "region.tiles.*": ExpectedValue(what="the name of a tile", remedy=_TILES),
    "region.geojson": ExpectedValue(what="a polygon as GeoJSON, WKT or KML", remedy=_GEOJSON),
    "region.place": ExpectedValue(
        what="a country or a state",
        remedy="Name a country, or a state with its country: Bayern, Germany.",
    ),
    "region.sites": ExpectedValue(
        what="a table of sites",
        remedy="Give a CSV table that begins with id,latitude,longitude, or a FeatureCollection.",
    ),
    "region.clip": _YES_NO,
    "time": ExpectedValue(
        what="a span of days", remedy="Write {start: 2012-01-01, end: 2012-04-30}."
    ),
    "time.start": _DAY,
    "time.end": _DAY,
    "time.every": ExpectedValue(
        what="a season", remedy='Write {from: "06-01", to: "08-31"}: month and day.'
    ),
    "grid": ExpectedValue(
        what="a grid", remedy='Write {crs: "EPSG:4326", resolution: 0.01} or {modis: 500}.'
    ),
    "grid.crs": ExpectedValue(
        what="a coordinate reference system",
        remedy="Write an EPSG code, like EPSG:4326, or WKT.",
    ),
    "grid.resolution": ExpectedValue(
        what="the side of a pixel",
        remedy="Write a number greater than 0, in the units of the coordinate system.",
    ),
    "resampling": ExpectedValue(what="a method", remedy=_MAPPING_OF_LAYERS),
    "resampling.*": ExpectedValue(what="a method", remedy=_MAPPING_OF_LAYERS),
    "qa": ExpectedValue(what="a quality rule", remedy=_QA),
    "qa.*": ExpectedValue(what="a rule of a QA layer", remedy=_QA),
    "qa.*.*": ExpectedValue(what="a list of values to keep", remedy=_QA),
    "qa.*.*.*": ExpectedValue(
        what="a value of a QA field", remedy=f"Values are whole numbers. {_QA}"
    ),
    "mask": _YES_NO,
    "clamp": _YES_NO,
    "cells": _YES_NO,
    "extra_bands": ExpectedValue(
        what="a list of bands", remedy="Choose any of count, source, reason: [count]."
    ),
    "reduction": ExpectedValue(
        what="a reduction",
        remedy="Write {package: monthly-mean, group_by: [cell, month]}, or a list of such steps.",
    ),
    "reduction.*": ExpectedValue(
        what="a step of a reduction",
        remedy="Write {name: monthly, package: monthly-mean, group_by: [cell, month]}.",
    ),
    **_OF_A_STEP,
    "measurements": ExpectedValue(
        what="measurements to compare with",
        remedy="Write {table: towers.csv, compare: {Lai_1km: LAI}}.",
    ),
    "measurements.table": ExpectedValue(
        what="a table of measurements",
        remedy="Give a CSV table: FLUXNET, AmeriFlux BASE, or with columns site, time and values.",
    ),
    "measurements.compare": ExpectedValue(
        what="layers with columns of the table",
        remedy="Write each layer with its column: {Lai_1km: LAI}.",
    ),
    "measurements.compare.*": ExpectedValue(
        what="a column of the table",
        remedy="Write its name, or {column: LE_F_MDS, scale: 0.0353}.",
    ),
    "measurements.sites": ExpectedValue(
        what="a table of sites",
        remedy="Give a CSV table that begins with id,latitude,longitude.",
    ),
    "measurements.time_zone": ExpectedValue(
        what="a time zone", remedy='Write UTC, or hours ahead of it: "+01:00".'
    ),
    "measurements.join": ExpectedValue(
        what="a way to join", remedy="Choose auto, overpass or day."
    ),
    "measurements.tolerance": ExpectedValue(
        what="a number of minutes", remedy="Write a whole number from 0 to 720."
    ),
    "measurements.least_share": ExpectedValue(
        what="a share", remedy="Write a number from 0 to 1, like 0.75."
    ),
    "first": ExpectedValue(
        what="an order of the results",
        remedy="Write oldest, newest, or a list of up to 50 days of `time`: [2012-01-31].",
    ),
    "notify": ExpectedValue(
        what="an e-mail address", remedy="Write one address, like scientist@example.org."
    ),
    "labels": ExpectedValue(
        what="a list of labels", remedy="Write at most 10 words: [thesis, drought]."
    ),
    "labels.*": ExpectedValue(
        what="a label", remedy="Write a word or a few, at most 40 characters, without a comma."
    ),
    "group": ExpectedValue(
        what="the name of a group",
        remedy="A name has small letters, digits and dashes, like forest-team.",
    ),
    "standing": ExpectedValue(
        what="a number of days", remedy="Write a whole number from 1 to 366; 0: it does not stand."
    ),
}

_LABELS: Mapping[str, str] = {
    "document": "The document",
    "title": "Title",
    "products": "Products",
    "products.*": "Product",
    "products.*.name": "Product",
    "products.*.collection": "Collection",
    "products.*.layers": "Layers",
    "products.*.layers.*": "Layers",
    "region": "Region",
    "region.bbox": "Box",
    "region.bbox.0": "West",
    "region.bbox.1": "South",
    "region.bbox.2": "East",
    "region.bbox.3": "North",
    "region.tiles": "Tiles",
    "region.geojson": "Polygon",
    "region.place": "Place",
    "region.sites": "Sites",
    "time": "Time",
    "measurements": "Measurements",
    "measurements.table": "Table of measurements",
    "measurements.compare": "The list of compared layers, under Measurements,",
    "measurements.sites": "Sites of the measurements",
    "measurements.time_zone": "Time zone",
    "products.*.use": "Dates of a product",
    "products.*.look_back": "Days before",
    "products.*.look_ahead": "Days after",
    "time.start": "First day",
    "time.end": "Last day",
    "time.every": "Season",
    "time.every.from": "First day of the season",
    "time.every.to": "Last day of the season",
    "grid": "Grid",
    "grid.crs": "Coordinate system",
    "grid.resolution": "Pixel side",
    "grid.modis": "Resolution",
    "resampling": "Resampling",
    "qa": "Quality",
    "merge": "Where granules overlap",
    "mask": "Mask",
    "units": "Values",
    "codes": "Special codes",
    "extra_bands": "Extra bands",
    "clamp": "Hold to the valid range",
    "cells": "Cells",
    "cube": "Layers over time",
    "weight": "Composites",
    "on_missing": "When an input is missing",
    "first": "Make first",
    "reduction": "Reduction",
    "reduction.package": "Package",
    "reduction.group_by": "Group",
    "reduction.parameters": "Parameters",
    "deliver": "Deliver",
    "notify": "Mail",
    "labels": "Labels",
    "group": "Group",
    "standing": "Go on with new data",
}


def label(field: str) -> str:
    """Return the name that the form gives to a field: "region.bbox.1" is "South"."""
    parts = field.split(".")
    while parts:
        found = _at(_LABELS, ".".join(parts))
        if found is not None:
            return found
        parts.pop()
    return field


class RequestGuide:
    """As `wording.Guide`, of requests. `names` are the fields of each part of the document."""

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self._names = names

    def wanted(self, path: str) -> ExpectedValue | None:
        return _at(WANTED, path)

    def names(self, path: str) -> Sequence[str]:
        return _at(self._names, path) or ()

    def home(self, name: str) -> str:
        homes = [path for path, names in self._names.items() if path and name in names]
        return homes[0].removesuffix(".*") if homes else ""


def _at(table: Mapping[str, _T], path: str) -> _T | None:
    """Return the entry of a path, in which `*` stands for any one part."""
    if path in table:
        return table[path]
    parts = path.split(".")
    for pattern, entry in table.items():
        wild = pattern.split(".")
        if len(wild) == len(parts) and all(
            w in ("*", part) for w, part in zip(wild, parts, strict=True)
        ):
            return entry
    return None
