"""A model says itself what each place of its documents takes, and what pages call it."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from tasks.field_guide import ModelGuide
from tasks.refusal_wording import FieldWords


def words(what: str, label: str = "") -> FieldWords:
    return FieldWords(what=what, remedy=f"Write {what}.", label=label)


class Step(BaseModel):
    package: Annotated[str, words("a package", "Package")]
    size: Annotated[Literal["small", "large"], FieldWords(label="Size")] = "small"
    limits: Annotated[
        dict[str, Annotated[int, Field(ge=0), words("a limit")]], words("limits", "Limits")
    ] = Field(default_factory=dict)


class Document(BaseModel):
    title: str = ""
    edges: tuple[
        Annotated[float, words("a west", "West")], Annotated[float, words("an east", "East")]
    ]
    rule: Annotated[str | dict[str, Annotated[int, words("a bit")]], words("a rule", "Rule")] = ""
    steps: Annotated[tuple[Annotated[Step, words("a step")], ...], words("steps", "Steps")] = Field(
        (), alias="reduction"
    )


GUIDE = ModelGuide(Document, words("a document", "The document"), also={Step: ("record",)})


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("", "a document"),
        ("title", None),
        ("edges.0", "a west"),
        ("edges.1", "an east"),
        ("edges.2", None),
        ("rule", "a rule"),
        ("rule.cloud", "a bit"),
        ("reduction", "steps"),
        ("steps", None),
        ("reduction.3", "a step"),
        ("reduction.3.package", "a package"),
        ("reduction.package", "a package"),
        ("reduction.size", None),
        ("reduction.0.limits.most", "a limit"),
        ("reduction.0.package.deeper", None),
        ("nowhere.0", None),
    ],
)
def test_what_a_place_takes_is_said_where_it_is_declared(path: str, what: str | None) -> None:
    found = GUIDE.wanted(path)
    assert (found.what if found else None) == what


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("document", "The document"),
        ("edges.1", "East"),
        ("reduction.0", "Steps"),
        ("reduction.0.size", "Size"),
        ("reduction.0.limits.most", "Limits"),
        ("reduction.0.unheard", "Steps"),
        ("title", "title"),
        ("nowhere.0", "nowhere.0"),
    ],
)
def test_a_place_without_a_label_has_that_of_the_part_around_it(path: str, label: str) -> None:
    assert GUIDE.label(path) == label


def test_names_are_those_of_the_part_with_what_it_takes_besides() -> None:
    assert GUIDE.names("") == ("title", "edges", "rule", "reduction")
    assert GUIDE.names("reduction.0") == ("package", "size", "limits", "record")
    assert GUIDE.names("title") == ()
    assert GUIDE.home("package") == "reduction"
    assert GUIDE.home("title") == ""
    assert [path for path, _ in GUIDE.parts()] == ["", "reduction"]
