"""The request document: what parses, and what a refusal says."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import RequestRefusedError
from tasks.request import document
from tasks.request.document import dump_request, parse_request
from tasks.request.request_file import load_request

PLAIN: dict[str, Any] = {
    "title": "Leaf area, British Isles and North Sea coast",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}


def test_defaults() -> None:
    request = parse_request(PLAIN)
    assert request.time.start == dt.date(2012, 1, 1)
    assert (request.resampling, request.merge, request.on_missing) == (None, "nadir", "skip")
    assert request.mask
    assert not request.cells


def test_yaml_and_json_are_one_document(tmp_path: Path) -> None:
    path = tmp_path / "request.yaml"
    path.write_text(
        "products:\n- {name: MCD15A2, collection: 5, layers: [Lai_1km, Fpar_1km]}\n"
        "region: {bbox: [-8.0, 50.5, 6.0, 58.5]}\n"
        "time: {start: 2012-01-01, end: 2012-04-30}\n"
        "grid: {crs: 'EPSG:4326', resolution: 0.01}\n"
        "title: Leaf area, British Isles and North Sea coast\n"
    )
    assert load_request(path) == parse_request(PLAIN)


def test_dump_is_read_back_equal() -> None:
    request = parse_request({**PLAIN, "qa": {"FparLai_QC": {"MODLAND": [0]}}, "cells": True})
    assert parse_request(json.loads(dump_request(request))) == request


@pytest.mark.parametrize(
    ("written", "meant"),
    [("6", "6"), ("006", "6"), (6, "6"), (6.1, "61"), ("6.1", "61"), ("061", "61"), (6.0, "6")],
)
def test_collections_have_one_spelling(written: object, meant: str) -> None:
    products = [{"name": "MOD13A2", "collection": written, "layers": ["NDVI"]}]
    assert parse_request({**PLAIN, "products": products}).products[0].collection == meant


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"titel": "x"}, "titel", "Did you mean title?"),
        ({"region": {"bbox": [-8, 50, 6, 58], "clipp": 1}}, "region.clipp", "Did you mean clip?"),
        (
            {"time": {"start": "2012-04-30", "end": "2012-01-01"}},
            "time.end",
            "before the first day",
        ),
        ({"time": {"start": "2012-04-31", "end": "2012-05-01"}}, "time.start", "2012-04-31"),
        ({"region": {"bbox": [-8, 50.5, 6, 98]}}, "region.bbox.3", "98 is not a latitude"),
        ({"region": {"bbox": [-8, 58.5, 6, 50.5]}}, "region.bbox", "south before north"),
        ({"region": {"bbox": [-8, 50, 606, 58]}}, "region.bbox.2", "606 is not a longitude"),
        ({"region": {"bbox": [5, 50, 5, 58]}}, "region.bbox", "same longitude"),
        ({"region": {}}, "region", "Give one of bbox, tiles, geojson, place or sites"),
        ({"region": {"tiles": []}}, "region", "empty"),
        ({"region": {"tiles": ["h18v4"]}}, "region.tiles", "h18v04"),
        ({"region": {"tiles": ["h36v04"]}}, "region.tiles", "off the tile grid"),
        ({"grid": {"crs": "EPSG:4326"}}, "grid", "resolution"),
        (
            {"grid": {"crs": "EPSG:4326", "resolution": -1}},
            "grid.resolution",
            "-1 is not the side of a pixel",
        ),
        ({"grid": {"modis": 750}}, "grid.modis", "250, 500 or 1000"),
        ({"grid": {"modis": 500, "crs": "EPSG:4326"}}, "grid", "Give modis, or crs"),
        ({"resampling": "best"}, "resampling", "nearest"),
        ({"notify": "nobody"}, "notify", "nobody"),
        ({"reduction": {"package": "mean", "group_by": ["month"]}}, "reduction.group_by", "cell"),
        ({"products": []}, "products", "is empty"),
        ({"first": "latest"}, "first", "Write oldest, newest, or a list"),
        ({"first": []}, "first", "an empty list"),
        ({"first": ["2012-02-30"]}, "first.0", "2012-02-30"),
        ({"first": ["2012-02-01", "2019-01-01"]}, "first", "2019-01-01 is not among the days"),
        (
            {
                "region": {"sites": "id,latitude,longitude\nMoor,56.6,-6.7"},
                "grid": {"modis": 1000},
                "first": "newest",
            },
            "document",
            "`first` has no meaning for sites",
        ),
    ],
)
def test_refusals_name_field_and_problem(change: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        parse_request({**PLAIN, **change})
    assert refused.value.field.startswith(field)
    assert said in f"{refused.value.problem} {refused.value.remedy}"
    assert refused.value.remedy


def test_a_missing_field_is_named() -> None:
    with pytest.raises(RequestRefusedError, match="time: is missing"):
        parse_request({key: value for key, value in PLAIN.items() if key != "time"})


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_what_is_no_document_is_refused(document: object) -> None:
    with pytest.raises(RequestRefusedError):
        parse_request(document)


def test_a_file_that_is_not_yaml(tmp_path: Path) -> None:
    path = tmp_path / "request.yaml"
    path.write_text("title: [")
    with pytest.raises(RequestRefusedError, match="is not YAML"):
        load_request(path)
    with pytest.raises(RequestRefusedError, match="no such file"):
        load_request(tmp_path / "absent.yaml")


def layers_of(*layers: str, name: str = "MYD04_L2", collection: str = "61") -> tuple[str, ...]:
    products = [{"name": name, "collection": collection, "layers": [*layers]}]
    return parse_request({**PLAIN, "products": products}).products[0].layers


def test_a_star_stands_for_every_band_of_a_layer() -> None:
    depth = "Corrected_Optical_Depth_Land"
    assert layers_of(f"{depth}[*]", "Solar_Zenith") == (
        f"{depth}[0]",
        f"{depth}[1]",
        f"{depth}[2]",
        "Solar_Zenith",
    )
    assert layers_of("FireMask[*]", name="MOD14A1")[-1] == "FireMask[7]"


@pytest.mark.parametrize(
    ("layer", "product"),
    [("Solar_Zenith[*]", "MYD04_L2"), ("Depth[*]", "MYD04_L2"), ("Lai[*]", "XYZ99A1")],
)
def test_a_star_needs_bands_that_the_catalogue_knows(layer: str, product: str) -> None:
    with pytest.raises(RequestRefusedError, match=r"knows no bands of .*one by one"):
        layers_of(layer, name=product)


def test_so_many_layers_of_a_product_are_taken_and_no_more() -> None:
    most = document._MOST_LAYERS
    names = [f"layer{number}" for number in range(most + 1)]
    assert len(layers_of(*names[:most])) == 64
    with pytest.raises(RequestRefusedError, match="has 65 entries; 64 are the most"):
        layers_of(*names)
    bands = ["Corrected_Optical_Depth_Land[*]", *names[: most - 3]]  # it has three
    assert len(layers_of(*bands)) == 64
    with pytest.raises(RequestRefusedError, match="are 65 layers, and 64 are allowed"):
        layers_of(*bands, "more")


def test_so_many_labels_are_taken_and_no_more() -> None:
    labels = [f"label {number}" for number in range(document.MOST_LABELS + 1)]
    assert len(parse_request({**PLAIN, "labels": labels[:10]}).labels) == 10
    with pytest.raises(RequestRefusedError, match="labels: has 11 entries; 10 are the most"):
        parse_request({**PLAIN, "labels": labels})


def test_every_band_counts_as_a_layer() -> None:
    ocean = ("Effective_Optical_Depth_Best_Ocean", "Asymmetry_Factor_Best_Ocean")
    models = ("Mean_Reflectance_Land", "Mean_Reflectance_Ocean", "STD_Reflectance_Land")
    more = ("STD_Reflectance_Ocean", "Number_Pixels_Used_Land", "Number_Pixels_Used_Ocean")
    with pytest.raises(RequestRefusedError, match="74 layers, and 64 are allowed"):
        layers_of(*(f"{name}[*]" for name in (*ocean, *models, *more)))


def _step(**said: Any) -> dict[str, Any]:
    return {"reduction": {"package": "monthly-mean", **said}}


def _measured(**said: Any) -> dict[str, Any]:
    table = "site,time,x\nMoor,2012-04-13T10:30,1\n"
    return {
        "region": {"sites": "id,latitude,longitude\nMoor,56.6,-6.7\n"},
        "measurements": {"table": table, "compare": {"Lai_1km": "x"}, **said},
    }


def _choice(**said: Any) -> dict[str, Any]:
    return {"products": [{**PLAIN["products"][0], **said}], **_step()}


BOUNDS: dict[str, tuple[int, str, Callable[[int], dict[str, Any]]]] = {
    "title": (200, "201 characters; 200", lambda n: {"title": "x" * n}),
    "products": (20, "21 entries; 20", lambda n: {"products": PLAIN["products"] * n}),
    "reduction": (
        20,
        "21 entries; 20",
        lambda n: {"reduction": [{**_step()["reduction"], "name": f"s{i}"} for i in range(n)]},
    ),
    "reduction.takes": (
        100,
        "101 entries; 100",
        lambda n: _step(takes=[f"L{i}" for i in range(n)]),
    ),
    "reduction.takes.0": (200, "201 characters; 200", lambda n: _step(takes=["L" * n])),
    "first": (50, "up to 50 days", lambda n: {**_step(), "first": ["2012-01-01"] * n}),
    "products.0.look_back": (
        3700,
        "from 0 to 3700",
        lambda n: _choice(use="nearest", look_back=n),
    ),
    "products.0.look_ahead": (
        3700,
        "from 0 to 3700",
        lambda n: _choice(use="nearest", look_ahead=n),
    ),
    "standing": (366, "from 1 to 366", lambda n: {"standing": n}),
    "labels.0": (40, "41 characters; 40", lambda n: {"labels": ["x" * n]}),
    "notify": (254, "255 characters; 254", lambda n: {"notify": "a" * (n - 12) + "@example.org"}),
    "measurements.compare": (
        20,
        "21 entries; 20",
        lambda n: _measured(compare={f"L{i}": "x" for i in range(n)}),
    ),
    "measurements.tolerance": (720, "from 0 to 720", lambda n: _measured(tolerance=n)),
}
"""By field: the most, what a refusal of one more says, and the document with so many."""


@pytest.mark.parametrize("field", BOUNDS)
def test_a_field_takes_so_much_and_no_more(field: str) -> None:
    most, said, made = BOUNDS[field]
    without_grid = {name: value for name, value in PLAIN.items() if name != "grid"}
    plain = without_grid if "measurements" in made(1) else PLAIN
    parse_request({**plain, **made(most)})
    with pytest.raises(RequestRefusedError) as refused:
        parse_request({**plain, **made(most + 1)})
    assert refused.value.field == field
    assert said in f"{refused.value.problem} {refused.value.remedy}"


@pytest.mark.parametrize(
    ("most", "made", "field"),
    [
        (100, lambda n: _measured(compare={"Lai_1km": "x" * n}), "measurements.compare.Lai_1km"),
        (200, lambda n: {"region": {"place": "x" * n}}, "region.place"),
    ],
)
def test_a_name_has_so_many_characters(
    most: int, made: Callable[[int], dict[str, Any]], field: str
) -> None:
    """One that fits is looked for, and there is none."""
    without_grid = {name: value for name, value in PLAIN.items() if name != "grid"}
    plain = without_grid if "measurements" in made(1) else PLAIN
    for size, is_long in ((most, False), (most + 1, True)):
        with pytest.raises(RequestRefusedError) as refused:
            parse_request({**plain, **made(size)})
        words = f"has {size} characters; {most} are the most"
        assert (refused.value.field == field and words in refused.value.problem) == is_long
