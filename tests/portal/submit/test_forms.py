"""The form means the document it shows, and a document comes back out of its form."""

import datetime as dt
import json
from dataclasses import replace

import pytest
import shapely
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.datastructures import FormData

from portal.serving.documents import decode
from portal.submit.forms import (
    STEPS,
    Form,
    form_of,
    name_and_value,
    new_card,
    read_form,
    request_of,
    request_yaml,
)
from tasks.errors import RequestRefusedError
from tasks.request.document import Request, parse_request

PLAIN = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}
POLYGON = {"type": "Polygon", "coordinates": [[[5, 50], [8, 50], [8, 53], [5, 50]]]}

FULL = [
    PLAIN,
    {**PLAIN, "region": {"tiles": ["h17v03", "h18v03"]}, "grid": {"modis": 500}},
    {**PLAIN, "region": {"geojson": POLYGON, "clip": True}},
    {**PLAIN, "region": {"place": "Bayern, Germany", "clip": True}},
    {
        **PLAIN,
        "region": {"sites": "id,latitude,longitude\nMoor,56.6,-6.7"},
        "grid": {"modis": 1000},
    },
    {
        **PLAIN,
        "measurements": {
            "table": "site,time,LAI\nMoor,2012-04-13,2.5",
            "sites": "id,latitude,longitude\nMoor,56.6,-6.7",
            "compare": {"Lai_1km": {"column": "LAI", "scale": 2.0}},
            "time_zone": "+01:00",
            "join": "day",
            "tolerance": 20,
            "least_share": 0.5,
        },
    },
    {
        **PLAIN,
        "title": "All of it: ü",
        "products": [
            {
                "name": "MYD04_L2",
                "collection": "6.1",
                "layers": ["A", "B[1]"],
                "day_night": "day",
                "overpasses": "all",
            },
            {"name": "MOD13A2", "collection": "61", "layers": ["1 km 16 days NDVI"]},
        ],
        "resampling": {"A": "average"},
        "merge": "latest",
        "qa": {"Q": {"value": [0, 1]}},
        "mask": False,
        "units": "physical",
        "codes": "keep",
        "extra_bands": ["count", "reason"],
        "cells": True,
        "weight": "days",
        "on_missing": "fail",
        "reduction": {
            "package": "mean",
            "group_by": ["cell", "all"],
            "parameters": {"least": "3"},
        },
        "notify": "ada@example.org",
    },
    {**PLAIN, "resampling": "nearest", "qa": "best"},
    {**PLAIN, "units": "brightness", "first": "newest"},
    {**PLAIN, "first": ["2012-01-01"]},
    {
        **PLAIN,
        "products": [
            {"name": "MYD04_L2", "collection": "61", "layers": ["A"]},
            {"name": "MCD15A2", "collection": "5", "layers": ["B"], "use": "covering"},
            {
                "name": "MCD12Q1",
                "collection": "61",
                "layers": ["C"],
                "use": "static",
                "look_back": 800,
                "look_ahead": 0,
            },
        ],
        "time": {
            "start": "2012-01-01",
            "end": "2014-12-31",
            "every": {"from": "12-01", "to": "02-29"},
        },
        "reduction": {"package": "mean", "group_by": ["cell", "10-day"]},
        "deliver": "results",
    },
    {
        **PLAIN,
        "reduction": [
            {"name": "daily", "package": "own", "group_by": ["cell", "date"], "requires": "all"},
            {
                "name": "monthly",
                "package": "mean",
                "takes": ["daily/et"],
                "requires": {"dates": 0.5, "pixels": 0.25},
                "parameters": {"least": "3"},
                "deliver": True,
            },
        ],
        "deliver": "cells",
    },
    {**PLAIN, "reduction": {"package": "mean", "rehearse": False}, "deliver": "inputs"},
]


_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
_HARD = st.sampled_from(["a:b", " a b ", '"', '"a": 1', '"a": "b"', "a\\", "a: ", "\u2028x", "{a}"])


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        (_HARD | _TEXTS).filter(str.strip), _HARD | _TEXTS.filter(str.strip), max_size=4
    )
)
@example({"a:b": "3", "least share": "4", '"x': '"y"'})
def test_parameters_of_any_names_come_back_out_of_the_form(given_ones: dict[str, str]) -> None:
    reduction = {"package": "mean", "group_by": ["cell", "all"], "parameters": given_ones}
    request = parse_request({**PLAIN, "reduction": reduction})
    assert request_of(form_of(request)) == request
    fields = [(f"parameter-{name}", value) for name, value in given_ones.items()]
    sent = dict(map(name_and_value, read_form(FormData(dict(fields))).parameters.splitlines()))
    assert sent == {name: " ".join(value.split()) for name, value in given_ones.items()}


@pytest.mark.parametrize("made", FULL)
def test_a_request_comes_back_out_of_its_form(made: dict[str, object]) -> None:
    request = parse_request(made)
    assert request_of(form_of(request)) == request


@pytest.mark.parametrize("made", FULL)
def test_the_document_shown_means_the_same_request(made: dict[str, object]) -> None:
    request = parse_request(made)
    text = request_yaml(request)
    assert parse_request(yaml.safe_load(text)) == request
    assert parse_request(decode(text.encode())) == request


def test_a_polygon_of_many_vertices_is_one_line_of_the_document() -> None:
    polygon = json.loads(shapely.to_geojson(shapely.Point(7, 50).buffer(3, quad_segs=2000)))
    request = parse_request(
        {**PLAIN, "title": "Ä: b", "region": {"geojson": polygon, "clip": True}}
    )
    text = request_yaml(request)
    assert len(text.splitlines()) < 30
    assert 'region: {clip: true, geojson: {"type": "Polygon"' in text
    assert parse_request(decode(text.encode())) == request


def test_a_browser_s_form_is_read() -> None:
    data = FormData(
        [
            ("product", "u1|MCD15A2|5"),
            ("layer-u1", "Lai_1km"),
            ("layer-u1", "Fpar_1km"),
            ("more-u1", "Extra, Lai_1km"),
            ("region_kind", "bbox"),
            ("west", "-8"),
            ("south", "50.5"),
            ("east", "6"),
            ("north", " 58.5 "),
            ("start", "2012-01-01"),
            ("end", "2012-01-31"),
            ("grid_kind", "crs"),
            ("crs", "EPSG:3035"),
            ("resolution", "1000"),
            ("mask", "yes"),
        ]
    )
    request = request_of(read_form(data))
    assert request.products[0].layers == ("Lai_1km", "Fpar_1km", "Extra")
    assert request.region.bbox == (-8.0, 50.5, 6.0, 58.5)
    assert request.time.end == dt.date(2012, 1, 31)
    assert request.mask


def filled() -> Form:
    card = replace(new_card("MCD15A2", "5"), layers=("Lai_1km",))
    return replace(form_of(parse_request(PLAIN)), products=(card,))


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"products": ()}, "products", "none is chosen"),
        ({"products": (new_card("MCD15A2", "5"),)}, "products.0.layers", "no layer"),
        ({"west": "", "east": ""}, "region.bbox", "west and east are empty"),
        ({"west": "abc"}, "region.bbox.0", "'abc' is not a longitude"),
        ({"south": "70", "north": "60"}, "region.bbox", "is not below north"),
        ({"region_kind": "tiles"}, "region.tiles", "none is named"),
        ({"region_kind": "tiles", "tiles": "h99v03"}, "region.tiles", "off the tile grid"),
        ({"region_kind": "place"}, "region.place", "none is named"),
        ({"region_kind": "place", "place": "Atlantis"}, "region.place", "there is no place"),
        ({"region_kind": "geojson", "geojson": "{"}, "region.geojson", "cannot be read"),
        ({"start": ""}, "time.start", "is empty"),
        ({"end": "2011-01-01"}, "time.end", "before the first day"),
        ({"crs": ""}, "grid.crs", "is empty"),
        ({"resolution": "-1"}, "grid.resolution", "-1 is not the side of a pixel"),
        ({"grid_kind": "modis", "modis": "300"}, "grid.modis", "300 is not a choice"),
        (
            {"resampling": "map", "resampling_map": "nearest"},
            "resampling",
            "not a name with a value",
        ),
        ({"qa": "rule"}, "qa", "keeps no value"),
        ({"qa": "rule", "qa_rule": "[" * 65 + "]" * 65}, "qa", "cannot be read"),
        ({"package": STEPS, "steps": "[" * 65 + "]" * 65}, "reduction", "cannot be read"),
        ({"package": STEPS}, "reduction", "has no step"),
        ({"notify": "nobody"}, "notify", "not an e-mail address"),
    ],
)
def test_what_is_wrong_is_told_with_its_field(
    changes: dict[str, object], field: str, said: str
) -> None:
    form = replace(filled(), **changes)  # type: ignore[arg-type]
    with pytest.raises(RequestRefusedError) as caught:
        request_of(form)
    assert caught.value.field == field
    assert said in caught.value.problem
    assert caught.value.remedy


def test_aliases_and_depth_cannot_blow_a_document_up() -> None:
    laughs = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    for text in (laughs, b"[" * 100_000, b"{" + b'"a":{' * 50_000, b"\xff\xfe\x00"):
        with pytest.raises(RequestRefusedError):
            decode(text)


def test_json_and_yaml_are_both_read() -> None:
    assert decode(b'{"a": 1}') == {"a": 1}
    assert decode(b"a: 1") == {"a": 1}


def test_form_defaults_make_a_document_of_defaults() -> None:
    made = request_of(filled())
    assert made.model_dump(exclude_defaults=True).keys() == {"products", "region", "time", "grid"}
    assert isinstance(made, Request)
