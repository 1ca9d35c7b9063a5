"""Wrong input is refused when it is submitted: by the form, the API and the command, in the same
words, beside its field, with no request stored.

Each case is a mistake that people make. The form says it at the control, the API and the command
name the field.
"""

import html
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from portal.serving import tokens
from swathmill import cli
from tasks.bag.runtime import Runtime
from tasks.holdings import holdings
from tasks.requests import request_operations
from tests.portal.archive import StillArchive, telling
from tests.portal.scripted import SECRET, LivePortal, live_portal, live_runtime, settings
from tests.portal.submissions import DOCUMENT, FORM

PROGRAMMERS_WORDS = (
    "should be",
    "should have",
    "should match",
    "after validation",
    "valid dictionary",
    "dictionary",
    "Tuple",
    "tuple",
    "pattern",
    "pydantic",
    "validation error",
    "Value error",
    "NoneType",
    "literal[",
    "dict[",
    "Traceback",
    "Error:",
    "Errno",
    "given:",
    "Correct this field",
    "2**40",
    "^[",
    "input_",
    "parse",
    "None",
    "bool",
)
POLYGON = {"type": "Polygon", "coordinates": [[[0, 50], [5, 50], [5, 55], [0, 50]]]}


def product(name: str = "MCD15A2", collection: object = "5", *layers: str) -> dict[str, Any]:
    return {"name": name, "collection": collection, "layers": list(layers or ("Lai_1km",))}


def card(name: str, collection: str = "5", more: str = "") -> dict[str, str]:
    return {
        "product": f"u|{name}|{collection}",
        "layer-u": "" if more else "Lai_1km",
        "more-u": more,
    }


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mistake. `change` is of the document (None drops a part), `form` of the form; without
    `form` it is loaded as a document. `control` is the form's control that is wrong."""

    name: str
    change: Mapping[str, Any]
    field: str
    said: str
    form: Mapping[str, str] | None = None
    control: str = ""
    as_text: bool = False  # the document is the one text in `change`
    form_said: str = ""  # where the form says it otherwise

    def document(self) -> str:
        """The document as YAML."""
        if self.as_text:
            return str(self.change["text"])
        made = {**DOCUMENT, **self.change}
        return yaml.safe_dump({k: v for k, v in made.items() if v is not None})


def case(
    name: str,
    change: Mapping[str, Any],
    at: str,
    said: str,
    form: Mapping[str, str] | None = None,
    control: str = "",
    form_said: str = "",
) -> Case:
    return Case(
        name=name,
        change=change,
        field=at,
        said=said,
        form=form,
        control=control,
        form_said=form_said,
    )


def region(**given: Any) -> dict[str, Any]:
    return {"region": given}


def grid(**given: Any) -> dict[str, Any]:
    return {"grid": given}


def days(start: object, end: object) -> dict[str, Any]:
    return {"time": {"start": start, "end": end}}


def reduction(**given: Any) -> dict[str, Any]:
    return {"reduction": {"package": "monthly-mean", **given}}


UTM = {"crs": "EPSG:32631", "resolution": "0.01"}

ARCHIVE = [
    case(
        "a product that does not exist",
        {"products": [product("MCD15A9", "5", "a")]},
        "products.0.name",
        "Did you mean MCD15A2?",
        card("MCD15A9", more="a"),
        "card-u",
    ),
    case(
        "a product that the archive does not have",
        {"products": [product("MOD13A2", "6", "1 km 16 days NDVI")]},
        "products.0.name",
        "The archive has: MCD15A2 005",
        card("MOD13A2", "6", "1 km 16 days NDVI"),
        "card-u",
    ),
    case(
        "a collection that the archive does not have",
        {"products": [product("MCD15A2", "7")]},
        "products.0.collection",
        "Of MCD15A2 it has collection 005",
        card("MCD15A2", "7"),
        "card-u",
    ),
    case(
        "a second product that the archive does not have",
        {"products": [product(), product("MOD11A1", "6", "LST_Day_1km")]},
        "products.1.name",
        "the archive has no granule of MOD11A1",
    ),
    case(
        "days to come",
        days("2031-01-01", "2031-02-01"),
        "time.start",
        "it has days from 2012-01-01 to 2012-04-30",
        {"start": "2031-01-01", "end": "2031-02-01"},
        "start",
    ),
    case(
        "days before the archive's",
        days("2005-01-01", "2005-02-01"),
        "time.end",
        "it has days from 2012-01-01 to 2012-04-30",
        {"start": "2005-01-01", "end": "2005-02-01"},
        "end",
    ),
    case(
        "days between two composites",
        days("2012-01-02", "2012-01-05"),
        "time",
        "The nearest are 2012-01-01 and 2012-01-09",
        {"start": "2012-01-02", "end": "2012-01-05"},
        "start",
    ),
    case(
        "a region without granules",
        region(bbox=[100, 0, 110, 10]),
        "region.bbox",
        "it has tiles h17v03, h18v03",
        {"west": "100", "south": "0", "east": "110", "north": "10"},
        "west",
    ),
    case(
        "a region beside the granules",
        region(bbox=[-8, 36, 0, 39]),
        "region.bbox",
        "none touches the region",
        {"west": "-8", "south": "36", "east": "0", "north": "39"},
        "west",
    ),
    case(
        "tiles without granules",
        {**region(tiles=["h09v05"]), **grid(modis=1000)},
        "region.tiles",
        "none touches the region",
        {"region_kind": "tiles", "tiles": "h09v05", "grid_kind": "modis", "modis": "1000"},
        "tiles",
    ),
    case(
        "swaths elsewhere",
        {
            "products": [product("MYD04_L2", "6", "Optical_Depth_Land_And_Ocean")],
            **region(bbox=[100, -40, 110, -30]),
        },
        "region.bbox",
        "none touches the region",
        {
            **card("MYD04_L2", "6", "Optical_Depth_Land_And_Ocean"),
            **{"west": "100", "south": "-40", "east": "110", "north": "-30"},
        },
        "west",
    ),
    case(
        "a layer that no granule has",
        {"products": [product("MCD15A2", "5", "Lai_2km")]},
        "products.0.layers.0",
        "Did you mean Lai_1km",
        card("MCD15A2", "5", "Lai_2km"),
        "more-u",
    ),
    case(
        "a layer of a product nobody has described",
        {"products": [product("NEWPROD", "1", "haet")]},
        "products.0.layers.0",
        "Did you mean heat?",
        card("NEWPROD", "1", "haet"),
        "more-u",
    ),
    case(
        "a layer of several bands of such a product",
        {"products": [product("NEWPROD", "1", "heat", "waves")]},
        "products.0.layers.1",
        "from waves[0] to waves[3]",
        card("NEWPROD", "1", "heat, waves"),
        "more-u",
    ),
    case(
        "a band that a layer does not have",
        {"products": [product("NEWPROD", "1", "waves[4]")]},
        "products.0.layers.0",
        "has no band [4]",
        card("NEWPROD", "1", "waves[4]"),
        "more-u",
    ),
    case(
        "a band of a layer of one",
        {"products": [product("NEWPROD", "1", "heat[0]")]},
        "products.0.layers.0",
        "Write heat without a number",
        card("NEWPROD", "1", "heat[0]"),
        "more-u",
    ),
]

MEANING = [
    case(
        "a layer of several bands",
        {"products": [product("MYD04_L2", "6", "Corrected_Optical_Depth_Land")]},
        "products.0.layers.0",
        "from Corrected_Optical_Depth_Land[0] to Corrected_Optical_Depth_Land[2]",
        {"product": "u|MYD04_L2|6", "layer-u": "Corrected_Optical_Depth_Land"},
        "layer-u-Corrected_Optical_Depth_Land",
    ),
    case(
        "a layer of another collection",
        {"products": [product("MYD10A1", "5", "NDSI_Snow_Cover")]},
        "products.0.layers.0",
        "MYD10A1.005 has no layer 'NDSI_Snow_Cover'",
        card("MYD10A1", "5", "NDSI_Snow_Cover"),
        "more-u",
    ),
    case(
        "a layer in other letters",
        {"products": [product("MCD15A2", "5", "LAI_1KM")]},
        "products.0.layers.0",
        "Did you mean Lai_1km?",
        card("MCD15A2", "5", "LAI_1KM"),
        "more-u",
    ),
    case(
        "a layer twice",
        {"products": [product("MCD15A2", "5", "Lai_1km", "Lai_1km")]},
        "products.0.layers",
        "names a layer twice",
    ),
    case(
        "a product twice",
        {"products": [product(), product()]},
        "products.1.layers",
        "is asked for twice",
    ),
    case(
        "degrees taken for metres",
        grid(crs="EPSG:32631", resolution=0.01),
        "grid.resolution",
        "0.01 metre",
        UTM,
        "resolution",
    ),
    case(
        "metres taken for degrees",
        grid(crs="EPSG:4326", resolution=1000),
        "grid.resolution",
        "1000 degrees",
        {"resolution": "1000"},
        "resolution",
    ),
    case(
        "pixels too small for the region",
        grid(crs="EPSG:4326", resolution=0.00002),
        "grid.resolution",
        "2e-05 degree",
        {"resolution": "0.00002"},
        "resolution",
    ),
    case(
        "a coordinate system that does not exist",
        grid(crs="EPSG:999999", resolution=0.1),
        "grid.crs",
        "Give an EPSG code",
        {"crs": "EPSG:999999"},
        "crs",
    ),
    case(
        "a coordinate system made for elsewhere",
        {**grid(crs="EPSG:27700", resolution=1000), **region(bbox=[100, 0, 110, 10])},
        "region.bbox",
        "outside the domain",
        {
            **{"crs": "EPSG:27700", "resolution": "1000"},
            **{"west": "100", "south": "0", "east": "110", "north": "10"},
        },
        "west",
    ),
    case(
        "a tile off the Earth",
        region(tiles=["h00v00"]),
        "region.tiles",
        "off the Earth",
        {"region_kind": "tiles", "tiles": "h00v00"},
        "tiles",
    ),
    case(
        "a polygon that crosses itself",
        region(
            geojson={
                "type": "Polygon",
                "coordinates": [[[0, 50], [5, 55], [5, 50], [0, 55], [0, 50]]],
            }
        ),
        "region.geojson",
        "does not cross or touch itself",
        {
            "region_kind": "geojson",
            "geojson": '{"type": "Polygon", "coordinates": [[[0,50],[5,55],[5,50],[0,55],[0,50]]]}',
        },
        "geojson",
    ),
    case(
        "a point for a region",
        region(geojson={"type": "Point", "coordinates": [5, 50]}),
        "region.geojson",
        "Give a GeoJSON polygon: {",
        {"region_kind": "geojson", "geojson": '{"type": "Point", "coordinates": [5, 50]}'},
        "geojson",
    ),
    case(
        "days before MODIS",
        days("1999-01-01", "1999-02-01"),
        "time.end",
        "before the first MODIS data",
        {"start": "1999-01-01", "end": "1999-02-01"},
        "end",
    ),
    case(
        "a method by a layer that is not asked for",
        {"resampling": {"Lai": "nearest"}},
        "resampling.Lai",
        "Did you mean Lai_1km?",
        {"resampling": "map", "resampling_map": "Lai: nearest"},
        "resampling_map",
    ),
    case(
        "a QA field that does not exist",
        {"qa": {"FparLai_QC": {"MODLND": [0]}}},
        "qa.FparLai_QC.MODLND",
        "Did you mean MODLAND?",
        {"qa": "rule", "qa_rule": "FparLai_QC: {MODLND: [0]}"},
        "qa_rule",
    ),
    case(
        "a QA value that a field cannot have",
        {"qa": {"FparLai_QC": {"MODLAND": [7]}}},
        "qa.FparLai_QC.MODLAND",
        "7",
        {"qa": "rule", "qa_rule": "FparLai_QC: {MODLAND: [7]}"},
        "qa_rule",
    ),
    case(
        "a QA rule without mask",
        {"qa": "best", "mask": False},
        "qa",
        "one of the two",
        {"qa": "best", "mask": ""},
        "qa",
    ),
    case(
        "a package that does not exist",
        reduction(package="monthly-maen"),
        "reduction.package",
        "Did you mean monthly-mean?",
        {"package": "monthly-maen"},
        "package",
    ),
    case(
        "a parameter that the package does not know",
        reduction(parameters={"foo": "bar"}),
        "reduction.parameters.foo",
        "has no parameter 'foo'",
        {"package": "monthly-mean", "parameters": "foo: bar"},
        "parameters",
    ),
    case(
        "a parameter that is required and not set",
        reduction(package="anomaly", group_by=["cell", "all"]),
        "reduction.parameters.month",
        "needs the parameter 'month'",
        {"package": "anomaly", "window": "all", "parameter-month": ""},
        "parameter-month",
    ),
    case(
        "a parameter of another type",
        reduction(package="anomaly", group_by=["cell", "all"], parameters={"month": "July"}),
        "reduction.parameters.month",
        "Write a month like 2012-07.",
        {"package": "anomaly", "window": "all", "parameter-month": "July"},
        "parameter-month",
    ),
    case(
        "a parameter beyond its bounds",
        reduction(package="percentile", parameters={"percentile": 120}),
        "reduction.parameters.percentile",
        "a number from 0 to 100 (%)",
        {"package": "percentile", "parameter-percentile": "120"},
        "parameter-percentile",
    ),
]

SHAPE = [
    case(
        "no product",
        {"products": []},
        "products",
        "is empty",
        {"product": ""},
        "product-search",
        "none is chosen",
    ),
    case(
        "no layer",
        {"products": [{**product(), "layers": []}]},
        "products.0.layers",
        "ayer",
        {"layer-u": ""},
        "layers-u",
    ),
    case(
        "a short name that is none",
        {"products": [product("M!")]},
        "products.0.name",
        "is not the short name of a product",
        card("M!"),
        "card-u",
    ),
    case(
        "a collection that is none",
        {"products": [product("MCD15A2", "five")]},
        "products.0.collection",
        "'five' is not the number of a collection",
        card("MCD15A2", "five"),
        "card-u",
    ),
    case(
        "layers as text",
        {"products": [{**product(), "layers": "Lai_1km"}]},
        "products.0.layers",
        "not a list of layers",
    ),
    case(
        "half of the day",
        {"products": [{**product(), "day_night": "dusk"}]},
        "products.0.day_night",
        "Choose any, day or night",
        {"day_night-u": "dusk"},
        "card-u",
    ),
    case(
        "overpasses",
        {"products": [{**product(), "overpasses": "each"}]},
        "products.0.overpasses",
        "Choose merged or all",
        {"overpasses-u": "each"},
        "card-u",
    ),
    case("products as a name", {"products": "MCD15A2"}, "products", "is not a list of products"),
    case("no edge", {"region": {}}, "region", "bbox, tiles, geojson, place or sites"),
    case(
        "three edges",
        region(bbox=[-8, 50, 6]),
        "region.bbox.3",
        "west, south, east, north",
    ),
    case("five edges", region(bbox=[-8, 50, 6, 58, 9]), "region.bbox", "5 entries"),
    case(
        "latitude 95",
        region(bbox=[-8, 50.5, 6, 95]),
        "region.bbox.3",
        "95 is not a latitude",
        {"north": "95"},
        "north",
    ),
    case(
        "longitude 200",
        region(bbox=[-8, 50.5, 200, 58]),
        "region.bbox.2",
        "200 is not a longitude",
        {"east": "200"},
        "east",
    ),
    case(
        "south above north",
        region(bbox=[-8, 58.5, 6, 50.5]),
        "region.bbox",
        "is not below north",
        {"south": "58.5", "north": "50.5"},
        "west",
    ),
    case(
        "west at east",
        region(bbox=[6, 50.5, 6, 58.5]),
        "region.bbox",
        "the same longitude",
        {"west": "6"},
        "west",
    ),
    case(
        "an edge in words",
        region(bbox=["abc", 50.5, 6, 58.5]),
        "region.bbox.0",
        "'abc' is not a longitude",
        {"west": "abc"},
        "west",
    ),
    case(
        "a decimal comma",
        region(bbox=[-8, "50,5", 6, 58.5]),
        "region.bbox.1",
        "Write a decimal point: 50.5",
        {"south": "50,5"},
        "south",
    ),
    case(
        "two regions",
        region(bbox=[-8, 50.5, 6, 58.5], tiles=["h17v03"]),
        "region",
        "bbox and tiles",
    ),
    case(
        "a tile that is none",
        region(tiles=["h18v4"]),
        "region.tiles",
        "rite it like h18v04",
        {"region_kind": "tiles", "tiles": "h18v4"},
        "tiles",
    ),
    case(
        "a tile off the grid",
        region(tiles=["h36v04"]),
        "region.tiles",
        "off the tile grid",
        {"region_kind": "tiles", "tiles": "h36v04"},
        "tiles",
    ),
    case("tiles as text", region(tiles="h18v04"), "region.tiles", "not a list of tiles"),
    case(
        "WKT of points",
        region(geojson="MULTIPOINT((5 50), (8 50))"),
        "region.geojson",
        "these are points, which have no area. Give them as sites.",
        {"region_kind": "geojson", "geojson": "MULTIPOINT((5 50), (8 50))"},
        "geojson",
    ),
    case(
        "WKT with a bracket that is not closed",
        region(geojson="POLYGON ((5 50, 8 50, 8 53, 5 50)"),
        "region.geojson",
        "the WKT cannot be read. Write it like POLYGON ((5 50, 8 50, 8 53, 5 50)), where",
        {"region_kind": "geojson", "geojson": "POLYGON ((5 50, 8 50, 8 53, 5 50)"},
        "geojson",
    ),
    case(
        "WKT whose ring is open",
        region(geojson="POLYGON ((5 50, 8 50, 8 53))"),
        "region.geojson",
        "a ring ends with its first point",
        {"region_kind": "geojson", "geojson": "POLYGON ((5 50, 8 50, 8 53))"},
        "geojson",
    ),
    case(
        "broken KML",
        region(geojson="<?xml version='1.0'?><kml><Polygon></kml>"),
        "region.geojson",
        "the text is damaged or cut KML: mismatched tag",
        {"region_kind": "geojson", "geojson": "<?xml version='1.0'?>\n<kml><Polygon></kml>"},
        "geojson",
    ),
    case(
        "GeoJSON that is a word",
        region(geojson="Ireland"),
        "region.geojson",
        "'Ireland' is not a polygon as GeoJSON, WKT or KML",
        {"region_kind": "geojson", "geojson": "Ireland"},
        "geojson",
    ),
    case(
        "GeoJSON without a type",
        region(geojson={}),
        "region.geojson",
        'has no type. Give a GeoJSON polygon: {"type": "Polygon", "coordinates"',
        {"region_kind": "geojson", "geojson": "{}"},
        "geojson",
    ),
    case(
        "GeoJSON without coordinates",
        region(geojson={"type": "Feature", "geometry": {"type": "Polygon"}}),
        "region.geojson",
        "has no coordinates, or coordinates that form no polygon. Give a GeoJSON polygon: {",
        {
            "region_kind": "geojson",
            "geojson": '{"type": "Feature", "geometry": {"type": "Polygon"}}',
        },
        "geojson",
    ),
    case(
        "a feature whose geometry is empty",
        region(geojson={"type": "Feature", "geometry": {}}),
        "region.geojson",
        "has no type. Give a GeoJSON polygon: {",
        {"region_kind": "geojson", "geojson": '{"type": "Feature", "geometry": {}}'},
        "geojson",
    ),
    case(
        "a day that does not exist",
        days("2012-02-31", "2012-04-30"),
        "time.start",
        "2012-02-31' is not a day",
        {"start": "2012-02-31"},
        "start",
    ),
    case(
        "a day in other order",
        days("01.02.2012", "2012-04-30"),
        "time.start",
        "like 2012-01-31",
        {"start": "01.02.2012"},
        "start",
    ),
    case("a year for a day", days(2012, 2013), "time.start", "2012 is not a day"),
    case(
        "an end before the start",
        days("2012-04-30", "2012-01-01"),
        "time.end",
        "before the first day",
        {"start": "2012-04-30", "end": "2012-01-01"},
        "end",
    ),
    case(
        "no end",
        {"time": {"start": "2012-01-01"}},
        "time.end",
        "is missing",
        {"end": ""},
        "end",
        "Last day is empty",
    ),
    case("time as a text", {"time": "2012"}, "time", "is not a span of days"),
    case(
        "a pixel of no size",
        grid(crs="EPSG:4326", resolution=0),
        "grid.resolution",
        "0 is not the side of a pixel",
        {"resolution": "0"},
        "resolution",
    ),
    case(
        "a negative pixel",
        grid(crs="EPSG:4326", resolution=-1),
        "grid.resolution",
        "greater than 0",
        {"resolution": "-1"},
        "resolution",
    ),
    case(
        "a pixel in words",
        grid(crs="EPSG:4326", resolution="fine"),
        "grid.resolution",
        "'fine' is not the side of a pixel",
        {"resolution": "fine"},
        "resolution",
    ),
    case(
        "an endless pixel",
        grid(crs="EPSG:4326", resolution=float("inf")),
        "grid.resolution",
        "is not the side of a pixel",
        {"resolution": "inf"},
        "resolution",
    ),
    case(
        "a MODIS grid of another size",
        grid(modis=750),
        "grid.modis",
        "Choose 250, 500 or 1000",
        {"grid_kind": "modis", "modis": "750"},
        "modis",
    ),
    case(
        "a MODIS grid that is no number",
        grid(modis="\N{SUPERSCRIPT TWO}"),
        "grid.modis",
        "Choose 250, 500 or 1000",
        {"grid_kind": "modis", "modis": "\N{SUPERSCRIPT TWO}"},
        "modis",
    ),
    case(
        "half a grid",
        grid(crs="EPSG:4326"),
        "grid",
        "has no resolution",
        {"resolution": ""},
        "resolution",
        "Pixel side is empty",
    ),
    case("two grids", grid(modis=500, crs="EPSG:4326"), "grid", "Give modis, or crs"),
    case("no grid", {"grid": None}, "grid", "is missing"),
    case(
        "a method that does not exist",
        {"resampling": "bilnear"},
        "resampling",
        "Did you mean bilinear?",
        {"resampling": "bilnear"},
        "resampling",
    ),
    case(
        "a method of other programs",
        {"resampling": "lanczos"},
        "resampling",
        "Choose nearest, bilinear, cubic, average, gdal-average, mode, min, max, median, count "
        "or std.",
    ),
    case(
        "a method that begins as one of ours",
        {"resampling": "cubic_spline"},
        "resampling",
        "Did you mean cubic?",
    ),
    case("a name too short to be like another", {"a": 1}, "a", "The fields are: title, products"),
    case(
        "such a method for a layer",
        {"resampling": {"Lai_1km": "best"}},
        "resampling.Lai_1km",
        "'best' is not a choice",
        {"resampling": "map", "resampling_map": "Lai_1km: best"},
        "resampling_map",
    ),
    case(
        "a quality that does not exist",
        {"qa": "better"},
        "qa",
        "Did you mean best?",
        {"qa": "better"},
        "qa",
    ),
    case(
        "a QA rule that is a word",
        {"qa": "???"},
        "qa",
        "'???' is not a quality rule. Write best, good, or a rule by QA layer: {FparLai_QC: {",
        {"qa": "rule", "qa_rule": "???"},
        "qa_rule",
    ),
    case(
        "a QA rule that is a list",
        {"qa": [0]},
        "qa",
        "a list is not a quality rule. Write best, good, or a rule by QA layer",
        {"qa": "rule", "qa_rule": "[0"},
        "qa_rule",
        form_said="cannot be read at line 1. Write best, good, or a rule by QA layer",
    ),
    case(
        "a QA rule without values",
        {"qa": {"FparLai_QC": 5}},
        "qa.FparLai_QC",
        "5 is not a rule of a QA layer",
        {"qa": "rule", "qa_rule": "FparLai_QC: 5"},
        "qa_rule",
    ),
    case("yes and no", {"mask": "perhaps"}, "mask", "Write true or false"),
    case(
        "an extra band that does not exist",
        {"extra_bands": ["cnt"]},
        "extra_bands.0",
        "Did you mean count?",
        {"extra_bands": "cnt"},
        "extra_bands",
    ),
    case("a cube that does not exist", {"cube": "hdf"}, "cube", "Choose", {"cube": "hdf"}, "cube"),
    case(
        "a name of a package that is none",
        reduction(package="Mean 2"),
        "reduction.package",
        "not the name of a package",
        {"package": "Mean 2"},
        "package",
    ),
    case(
        "a group without cells",
        reduction(group_by=["month"]),
        "reduction.group_by",
        "[cell, month]",
    ),
    case(
        "a parameter that is a list",
        reduction(parameters={"threshold": [5]}),
        "reduction.parameters.threshold",
        "a list is not text",
    ),
    case(
        "half an address",
        {"notify": "nobody@"},
        "notify",
        "not an e-mail address",
        {"notify": "nobody@"},
        "notify",
    ),
    case(
        "a long title",
        {"title": "x" * 300},
        "title",
        "200 are the most",
        {"title": "x" * 300},
        "title",
    ),
]

NAMES = [
    case(
        "regoin",
        {"region": None, "regoin": {"bbox": [1, 2, 3, 4]}},
        "regoin",
        "Did you mean region?",
    ),
    case(
        "a misspelt field beside other errors",
        {"products": [], "regoin": {}, "region": None},
        "regoin",
        "Did you mean region?",
    ),
    case(
        "a misspelt field of a product",
        {"products": [{"name": "MCD15A2", "colection": 5, "layers": ["Lai_1km"]}]},
        "products.0.colection",
        "Did you mean collection?",
    ),
    case(
        "a misspelt field of the region",
        region(box=[1, 2, 3, 4]),
        "region.box",
        "Did you mean bbox?",
    ),
    case(
        "a misspelt field of the reduction",
        reduction(parmeters={}),
        "reduction.parmeters",
        "Did you mean parameters?",
    ),
    case("a field at the wrong place", {"start": "2012-01-01"}, "start", "It belongs under time"),
    case("a field from nowhere", {"zzz": 1}, "zzz", "The fields are: title, products"),
    case("a field that is a number", {5: 1}, "5", "there is no field '5'"),  # type: ignore[dict-item]
]

TEXTS = [
    Case(name=name, change={"text": text}, field="document", said=said, as_text=True)
    for name, text, said in (
        ("a list", "[]", "is not a request document"),
        ("a word", "hello", "is not a request document"),
        ("half a bracket", "title: [", "is neither JSON nor YAML"),
    )
]

CASES = [*ARCHIVE, *MEANING, *SHAPE, *NAMES, *TEXTS]


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return live_runtime()


@pytest.fixture(scope="module")
def portal(runtime: Runtime) -> Iterator[LivePortal]:
    with telling(runtime, StillArchive()), live_portal(runtime, settings()) as running:
        for _ in range(500):
            if holdings.read(runtime.store)[0] is not None:
                break
            runtime.clock.sleep(0.02)
        yield running


def plain(text: str) -> str:
    """Words of a page, without its tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def assert_plain(text: str) -> None:
    for words in PROGRAMMERS_WORDS:
        assert words not in text, f"{words!r} in {text!r}"
    assert not re.search(r"[Pp]roducts \d", text), text


def test_there_are_as_many_as_were_tried() -> None:
    assert len(CASES) >= 56
    assert len({each.name for each in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_api_refuses_at_once(portal: LivePortal, runtime: Runtime, case: Case) -> None:
    before = [*request_operations.list_requests(runtime)]
    with portal.client() as client:
        answer = client.post("/api/requests", content=case.document())
    assert answer.status_code == 422, answer.text
    assert [*request_operations.list_requests(runtime)] == before
    problem = answer.json()
    told = f"{problem['detail']} {problem['remedy']}"
    assert problem["field"] == case.field, told
    assert case.said in told
    assert problem["remedy"]
    assert_plain(" ".join([told, *(f"{e['detail']} {e['remedy']}" for e in problem["also"])]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_form_says_it_beside_the_field(
    portal: LivePortal, runtime: Runtime, case: Case
) -> None:
    before = [*request_operations.list_requests(runtime)]
    with portal.browser() as client:
        if case.form is None:
            answer = client.post("/new/document", data={"document": case.document()})
        else:
            sent = {**FORM, **case.form}
            sent = {name: value for name, value in sent.items() if (name, value) != ("product", "")}
            answer = client.post("/new", data=sent)
    if case.form is None and answer.status_code == 200:
        return  # it has the form of a document: the form is filled in from it, and says the rest
    assert answer.status_code == 422
    assert [*request_operations.list_requests(runtime)] == before
    if case.form is None:
        told = plain(answer.text[answer.text.index('id="error-document"') :].split("</ul>")[0])
        assert case.said in told
        assert case.field in told
        assert '<details class="card" open>' in answer.text
    else:
        slots = re.findall(
            r'<p class="error" id="error-[\w-]+" data-for="([^"]+)"[^>]*>(.*?)</p>', answer.text
        )
        told = plain(" ".join(text for _, text in slots))
        controls = " ".join(controls for controls, _ in slots).split()
        assert (case.form_said or case.said) in told, told
        assert controls[0] == case.control
        assert re.search(rf'(id|name)="{re.escape(case.control)}"', answer.text), case.control
    assert_plain(told)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_command_prints_the_same_words(
    portal: LivePortal,
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "request.yaml"
    path.write_text(case.document())
    monkeypatch.setenv("SWATHMILL_PORTAL_URL", portal.url)
    token = tokens.issue(SECRET, "ada@example.org", "scientist")
    monkeypatch.setattr(sys, "argv", ["swathmill", "submit", str(path), "--token", token])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == cli.EXIT_REFUSED, told
    assert told.startswith("Refused:")
    if case.said != "is neither JSON nor YAML":
        assert case.said in told
        assert f"{case.field}:" in told
    assert_plain(told)


def test_all_errors_are_told_together(portal: LivePortal) -> None:
    document = {"regoin": {}, "products": [], "time": {"start": "x"}, "grid": {"modis": 3}}
    with portal.client() as client:
        problem = client.post("/api/requests", content=json.dumps(document)).json()
    told = [problem["field"], *(each["field"] for each in problem["also"])]
    assert told == ["regoin", "products", "time.start", "time.end", "grid.modis"]


def test_what_the_archive_can_serve_is_taken(portal: LivePortal, runtime: Runtime) -> None:
    with portal.client() as client:
        answer = client.post("/api/requests", json=DOCUMENT)
    assert answer.status_code == 202, answer.text
    assert request_operations.load(runtime, answer.json()["id"]).title == DOCUMENT["title"]
