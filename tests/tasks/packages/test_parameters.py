"""Parameters of packages: types, bounds, choices, defaults, and manifests that name them."""

import pytest
from pydantic import TypeAdapter, ValidationError

from tasks.packages.packages import Package, Packages
from tasks.packages.parameters import Declared, Parameter, with_defaults
from tasks.settings import Settings

READ = TypeAdapter(Declared)


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        (
            {"type": "month"},
            ["2012-07"],
            ["", "2012", "2012-13", "2012-7", "2012-07-01", "0000-07"],
        ),
        ({"type": "date"}, ["2012-02-29"], ["2013-02-29", "20120229", "soon"]),
        (
            {"type": "integer", "least": 3},
            ["3", "12"],
            ["2", "3.0", "1e3", "x", " 3", "3\n", "1_0", "١٢"],
        ),
        (
            {"type": "number", "least": 0, "most": 100},
            ["0", "99.5", "1e2"],
            ["-1", "nan", "inf", "1_0", "1e999"],
        ),
        ({"type": "boolean"}, ["true", "false"], ["yes", "True", "1"]),
        ({"choices": ["mean", "median"]}, ["mean"], ["Mean", "", "mode"]),
        ({}, ["anything"], []),
    ],
)
def test_a_value_is_held_to_its_type(
    declared: dict[str, object], good: list[str], bad: list[str]
) -> None:
    one = READ.validate_python(declared)
    assert [one.problem(value) for value in good] == ["" for _ in good]
    assert all(f"is {value!r}; write " in one.problem(value) for value in bad)


def test_a_default_is_a_value_and_no_default_is_required() -> None:
    assert READ.validate_python({"type": "integer", "default": 8}).default == "8"
    with pytest.raises(ValidationError, match="its default is 'x'"):
        Parameter(type="number", default="x")
    with pytest.raises(ValidationError, match="no default"):
        Parameter(required=True, default="x")


@pytest.mark.parametrize(
    ("declared", "wrong"),
    [
        ({"type": "number", "least": 5, "most": 1}, "more than"),
        ({"type": "number", "least": "nan"}, "finite"),
        ({"type": "date", "least": 3}, "bound an integer or a number"),
        ({"type": "boolean", "choices": ["yes", "no"]}, "'yes' is not true or false"),
        ({"type": "integer", "most": 3, "choices": [2, 4]}, "'4' is not a whole number"),
    ],
)
def test_what_no_value_can_be_is_no_parameter(declared: dict[str, object], wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong):
        READ.validate_python(declared)


def test_a_bound_is_told_with_all_its_digits() -> None:
    one = Parameter(type="integer", least=1234567, unit="m")
    assert one.expected() == "a whole number, at least 1234567 (m)"


def test_a_meaning_alone_is_read_and_written_as_earlier_builds_do() -> None:
    made = {"name": "a", "command": ["true"], "outputs": ["a.tif"], "parameters": {"x": "how many"}}
    package = Package.model_validate(made)
    assert package.parameters == {"x": Parameter(about="how many")}
    assert package.model_dump(mode="json")["parameters"] == {"x": "how many"}
    typed = Package.model_validate({**made, "parameters": {"x": {"type": "number", "unit": "d"}}})
    assert Package.model_validate(typed.model_dump(mode="json")) == typed


def test_defaults_are_given_to_a_run_and_yield_to_what_is_set() -> None:
    known = {"a": Parameter(default="1"), "b": Parameter(), "c": Parameter(default="3")}
    assert with_defaults({"c": "4", "b": "x"}, known) == {"a": "1", "b": "x", "c": "4"}
    assert with_defaults({"any": "1"}, None) == {"any": "1"}


def test_every_shipped_parameter_says_what_it_takes() -> None:
    for found in Packages.of(Settings()).every():
        for name, one in (found.package.parameters or {}).items():
            assert one.about, (found.name, name)
            assert one.about[0].isupper(), (found.name, name)
