"""Quality rules as choices: what is offered, and that ticks and text make one rule."""

import pytest

from portal.submit.forms import Form, form_of, new_card, quality_of, request_of
from portal.submit.quality import quality_layers
from reprojection import catalogue
from tasks.request.document import parse_request
from tests.portal.submissions import DOCUMENT


def test_the_values_of_the_chosen_layers_quality_come_first_in_words() -> None:
    first, *others = quality_layers([("MOD11A1", "61", ["LST_Night_1km"])])
    assert (first.layer, first.judges) == ("QC_Night", ("LST_Night_1km",))
    assert [field.name for field in first.fields][:2] == ["Mandatory", "Data_Quality"]
    assert first.fields[0].bits == "bits 0 to 1"
    assert first.fields[0].values[0].key == "QC_Night|Mandatory|0"
    assert "good" in first.fields[0].values[0].meaning
    assert [each.layer for each in others] == ["QC_Day"]


def test_a_layer_of_classes_is_one_field() -> None:
    layers = quality_layers([("MOD13A2", "61", ["1 km 16 days NDVI"])])
    (field,) = layers[0].fields
    assert field.name == "value"
    assert field.values[0].meaning == "good data"


def test_every_value_offered_fits_into_its_field() -> None:
    offered = 0
    for product in catalogue.products():
        for layer in quality_layers([(product.name, product.collections[0], product.layer_names)]):
            entry = product.layer(layer.layer)
            assert entry is not None
            for field in layer.fields:
                offered += len(field.values)
                if field.name != "value":
                    most = 1 << entry.bits[field.name].length
                    assert all(value.number < most for value in field.values)
    assert offered > 1000


@pytest.mark.parametrize(
    ("rule", "ticked", "is_written"),
    [
        ({"FparLai_QC": {"MODLAND": [0], "CLOUDSTATE": [0, 3]}}, 3, False),
        ({"FparLai_QC": {"MODLAND": [0], "0-1": [1]}}, 1, True),
        ({"FparLai_QC": {"SCF_QC": [0, 6]}}, 0, True),
    ],
)
def test_a_rule_comes_back_out_of_ticks_and_text(
    rule: dict[str, dict[str, list[int]]], ticked: int, is_written: bool
) -> None:
    request = parse_request({**DOCUMENT, "qa": rule})
    form = form_of(request)
    assert len(form.qa_bits) == ticked
    assert bool(form.qa_rule) is is_written
    assert request_of(form) == request


def test_the_form_offers_the_layers_of_its_cards() -> None:
    cards = (new_card("MCD15A2", "5", ["Lai_1km"]), new_card("NEWPROD", "1", ["heat"]))
    assert quality_of(Form(products=cards))[0].layer == "FparLai_QC"
    assert quality_of(Form(products=cards[1:])) == ()
