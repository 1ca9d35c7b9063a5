"""Records in a request document: how one is named, what it stands for, what is refused."""

from typing import Any

import jsonschema
import pytest

import reprojection.records
from tasks.errors import RequestRefusedError
from tasks.request import record_products
from tasks.request.checks import check_request
from tasks.request.document import Request, dump_request, parse_request
from tasks.request.heading import heading
from tasks.request.records import part
from tasks.request.resolved import ResolvedRequest, resolve
from tasks.settings import Settings
from tasks.storage.schema import PARTS_AND_RECORDS

INDEX: dict[str, Any] = {"record": "ndvi-16day", "layers": ["NDVI"]}
PLAIN: dict[str, Any] = {
    "region": {"tiles": ["h18v04"]},
    "time": {"start": "2025-12-01", "end": "2026-02-10"},
    "grid": {"modis": 1000},
}


def document(*products: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**PLAIN, "products": [*products], **changes}


def checked(*products: dict[str, Any], **changes: Any) -> ResolvedRequest:
    resolved = resolve(parse_request(document(*products, **changes)))
    check_request(resolved, Settings())
    return resolved


def test_names_are_spelt_alike_where_records_are_asked_for_and_where_they_are_kept() -> None:
    known = (reprojection.records.PREFIX, reprojection.records.NAME)
    assert known == (part.RECORD, part.RECORD_NAME)


def test_a_record_may_be_named_in_two_ways_and_is_kept_in_one() -> None:
    short = parse_request(document(INDEX))
    assert short == parse_request(document({"name": "record:ndvi-16day", "layers": ["NDVI"]}))
    assert parse_request(dict(PLAIN) | {"products": [INDEX]}) == short
    again = Request.model_validate_json(dump_request(short))
    assert again == short
    assert heading(short).startswith("ndvi-16day in h18v04")


def test_the_json_schema_accepts_what_the_model_does() -> None:
    schema = Request.model_json_schema()
    jsonschema.validate(document(INDEX), schema)
    jsonschema.validate(document({"name": "record:ndvi-16day", "layers": ["NDVI"]}), schema)
    for wrong in ({"layers": ["NDVI"]}, {**INDEX, "name": "MOD13A2"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document(wrong), schema)
        with pytest.raises(RequestRefusedError):
            parse_request(document(wrong))


def test_a_bridge_is_short_for_a_reduction_over_each_sensor() -> None:
    way = "linear"
    reduction = {"package": "bridge", "group_by": ["cell", "all"], "parameters": {"method": way}}
    long = document({**INDEX, "overlap": "all"}, reduction=reduction, deliver="results")
    short = document({**INDEX, "bridge": way}, deliver="results")
    assert parse_request(short) == parse_request(long)
    jsonschema.validate(short, Request.model_json_schema())
    assert parse_request(document({**INDEX, "bridge": "none"})) == parse_request(document(INDEX))


def test_a_bridge_is_of_one_layer_of_one_record_and_the_only_reduction() -> None:
    plain = {"name": "MOD13A2", "collection": "61", "layers": ["x"]}
    linear = {**INDEX, "bridge": "linear"}
    for told, asked, more in (
        ("Write none, offset or linear", [{**INDEX, "bridge": "cubic"}], {}),
        ("of records alone", [{**plain, "bridge": "none"}], {}),
        ("Leave overlap out", [{**linear, "overlap": "prefer"}], {}),
        ("one layer of one record", [{**linear, "layers": ["NDVI", "EVI"]}], {}),
        ("one layer of one record", [linear, plain], {}),
        ("is a reduction itself", [linear], {"reduction": {"package": "mean"}}),
    ):
        with pytest.raises(RequestRefusedError, match=told):
            parse_request(document(*asked, **more))


def test_a_record_stands_for_its_products_in_order() -> None:
    leaf = {"record": "leaf-area-8day", "layers": ["Lai"], "prefer": ["VIIRS"]}
    found = checked(leaf, {"name": "MOD11A1", "collection": "61", "layers": ["LST_Day_1km"]})
    named = [(one.choice.name, one.choice.collection, one.choice.layers) for one in found.products]
    assert named == [
        ("VNP15A2H", "2", ("Lai",)),
        ("VJ115A2H", "2", ("Lai",)),
        ("VJ215A2H", "2", ("Lai",)),
        ("MCD15A2H", "61", ("Lai_500m",)),
        ("MOD15A2H", "61", ("Lai_500m",)),
        ("MYD15A2H", "61", ("Lai_500m",)),
        ("MOD11A1", "61", ("LST_Day_1km",)),
    ]
    assert [one.head for one in found.products] == [0] * 6 + [6]
    assert [one.field for one in found.products] == ["products.0"] * 6 + ["products.1"]
    assert [one.layers[0].units for one in found.products] == ["physical"] * 6 + ["stored"]
    assert {one.period for one in found.products[:6]} == {8}


def test_classes_stay_as_they_are_stored() -> None:
    (first, *_) = checked({"record": "burned-area-monthly", "layers": ["Burn_Date"]}).products
    assert first.layers[0].units == "stored"


def test_a_rule_in_words_and_methods_by_name_go_to_each_sensor() -> None:
    found = checked(INDEX, qa="good", resampling={"NDVI": "cubic"})
    assert {one.layers[0].qa for one in found.products} == {"good"}
    assert {one.layers[0].resampling for one in found.products} == {"cubic"}


@pytest.mark.parametrize(
    ("product", "changes", "field", "told"),
    [
        ({**INDEX, "record": "ndvi"}, {}, "products.0.name", "there is no record 'ndvi'"),
        ({**INDEX, "collection": "61"}, {}, "products.0.collection", "which collection"),
        ({**INDEX, "layers": ["VI"]}, {}, "products.0.layers.0", "Its layers are NDVI and EVI"),
        ({**INDEX, "prefer": ["Envisat"]}, {}, "products.0.prefer.0", "no sensor or product"),
        ({**INDEX, "overpasses": "all"}, {}, "products.0.overpasses", "for each overpass"),
        (
            {**INDEX, "use": "nearest"},
            {"reduction": {"package": "monthly-mean"}},
            "products.0.use",
            "several products",
        ),
        (
            {"name": "MOD13A2", "collection": "61", "layers": ["x"], "prefer": ["Terra"]},
            {},
            "products.0",
            "of records alone",
        ),
        (
            {**INDEX, "overlap": "mean"},
            {"reduction": {"package": "mean", "group_by": ["cell", "month"]}},
            "products.0.overlap",
            "not of a reduction",
        ),
        (
            {"record": "snow-daily", "layers": ["NDSI_Snow_Cover"], "overlap": "mean"},
            {"cells": True},
            "products.0.overlap",
            "not of cells",
        ),
        (
            {"record": "burned-area-monthly", "layers": ["Burn_Date"], "overlap": "mean"},
            {},
            "products.0.overlap",
            "not of the classes of Burn_Date",
        ),
        (INDEX, {"units": "brightness"}, "units", "physical"),
        (
            {"record": "active-fire", "layers": ["Fire_Mask"]},
            {"qa": "good"},
            "qa",
            "not every sensor has a rule 'good'",
        ),
        (
            {"record": "reflectance-daily", "layers": ["red"]},
            {"qa": "good"},
            "qa",
            "one leaves clouds out and another does not",
        ),
        (
            {"record": "ndvi-16day", "layers": ["NDVI"]},
            {"resampling": {"NDVI": "cubic", "1 km 16 days NDVI": "nearest"}},
            "resampling.1 km 16 days NDVI",
            "the layer of MOD13A2 in the record",
        ),
        (
            INDEX,
            {"qa": {"1 km 16 days VI Quality": {"MODLAND": [0]}}},
            "qa.1 km 16 days VI Quality",
            "bits are not those of the other",
        ),
        (
            INDEX,
            {
                "measurements": {
                    "compare": {"NDVI": "ndvi"},
                    "sites": "id,lon,lat\na,10,45\n",
                    "table": "site,time,ndvi\na,2025-12-03,0.5\n",
                }
            },
            "measurements.compare.NDVI",
            "a layer of the record ndvi-16day",
        ),
    ],
)
def test_what_has_no_meaning_over_several_sensors_is_refused(
    product: dict[str, Any], changes: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        checked(product, **changes)
    assert refused.value.field == field
    assert told in str(refused.value)


def test_a_record_waits_for_the_end_of_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of the version before cannot read its layers."""
    monkeypatch.setattr(record_products, "written", lambda: PARTS_AND_RECORDS - 1)
    with pytest.raises(RequestRefusedError, match="while this service is upgraded"):
        checked(INDEX)


def test_a_product_beside_its_own_record_is_asked_for_twice() -> None:
    same = {"name": "MOD13A2", "collection": "61", "layers": ["1 km 16 days NDVI"]}
    with pytest.raises(RequestRefusedError, match="as a product of ndvi-16day") as refused:
        checked(INDEX, same)
    assert refused.value.field == "products.1.layers"
