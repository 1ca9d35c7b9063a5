"""Every error that pydantic knows becomes a plain sentence."""

from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import InitErrorDetails
from pydantic_core import ValidationError as CoreError
from pydantic_core._pydantic_core import list_all_errors

from tasks import refusal_wording
from tasks.errors import RequestRefusedError
from tasks.refusal_wording import NoGuide, refusal
from tasks.request.document import GUIDE, parse_request

PRODUCT = {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}
REQUEST: dict[str, Any] = {
    "title": "t",
    "region": {"bbox": [-8.0, 51.0, -2.0, 57.0]},
    "time": {"start": "2012-01-01", "end": "2012-01-08"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.5},
}
FIELDS = ("title", "region.bbox.1", "time.start", "products.0.name", "qa", "grid.resolution")
OF_A_PROGRAMMER = ("should", "Input", "valid ", "pydantic", "expected", "instance", "subclass")


def details(kind: str, context: dict[str, Any], field: str) -> CoreError:
    path = tuple(int(part) if part.isdigit() else part for part in field.split("."))
    made = InitErrorDetails(type=kind, loc=path, input="oops", ctx=context)
    return CoreError.from_exception_data("Request", [made])


@pytest.mark.parametrize("known", list_all_errors(), ids=lambda known: known["type"])
def test_no_sentence_of_pydantic_s_is_left(known: dict[str, Any]) -> None:
    context = dict(known.get("example_context") or {})
    if known["type"] in ("value_error", "assertion_error"):
        context = {"error": ValueError("the sky is green; wait for the night")}
    template = known["message_template_python"].split("{")[0].strip()
    for guide, fields in ((GUIDE, FIELDS), (NoGuide(), ("anything",))):
        for field in fields:
            error = details(known["type"], context, field)
            refused = refusal(error, None, guide)
            told = f"{refused.problem} {refused.remedy}"
            if known["type"] == "value_error":
                assert told == "the sky is green. Wait for the night."
                continue
            assert refused.problem.endswith(".")
            assert refused.remedy.endswith((".", "?"))
            if len(template) > 12:
                assert template not in told
            for words in OF_A_PROGRAMMER:
                assert words not in told


class Inner(BaseModel, extra="forbid"):
    size: int = Field(1, ge=1)


class Outer(BaseModel, extra="forbid"):
    inner: Inner
    words: tuple[str, ...] = Field((), min_length=1)


def wrong(document: object) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(document)
    refused = refusal(caught.value, document, NoGuide())
    return [(each.field, each.problem) for each in (refused, *refused.also)]


def test_a_list_is_not_called_empty_for_what_is_in_it() -> None:
    assert wrong({"inner": {}, "words": [5]}) == [("words.0", "5 is not a text that fits here.")]
    assert wrong({"inner": {}, "words": []}) == [("words", "is empty.")]


def test_an_empty_document_is_not_called_a_field() -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(None)
    assert refusal(caught.value, None, NoGuide()).remedy.startswith("Fill it in. ")


def test_misspelt_names_come_first() -> None:
    assert wrong({"inner": {"size": 0, "szie": 1}})[0][0] == "inner.szie"


def test_every_field_of_a_request_says_what_it_takes() -> None:
    for path, model in GUIDE.parts():
        for name, field in model.model_fields.items():
            at = f"{path}.{field.alias or name}".lstrip(".")
            choices = [one for one in get_args(field.annotation) if isinstance(one, str | int)]
            literal = [one for one in get_args(field.annotation) if get_origin(one) is Literal]
            assert choices or literal or GUIDE.wanted(at) is not None, at


@pytest.mark.parametrize(
    ("change", "meant"),
    [
        ({"collection": "\u201c61\u201d"}, "61"),
        ({"name": "\u201eMCD15A2\u201c"}, "MCD15A2"),
        ({"\u201ccollection\u201d": "5"}, "collection"),
        ({"day_night": "\u2018day\u2019"}, "day"),
    ],
)
def test_quotes_of_a_word_processor_are_named(change: dict[str, str], meant: str) -> None:
    document = {**REQUEST, "products": [{**PRODUCT, **change}]}
    with pytest.raises(RequestRefusedError) as caught:
        parse_request(document)
    remedy = 'Write straight quotes (") or none, not those of a word processor: '
    assert f"{remedy}{meant}." in str(caught.value)


def test_a_long_value_is_cut() -> None:
    assert refusal_wording._LONGEST == 60
    assert refusal_wording.shown("x" * 60) == repr("x" * 60)
    assert refusal_wording.shown("x" * 61) == repr("x" * 60 + "...")
    assert refusal_wording.shown(10**80) == "1" + "0" * 59
