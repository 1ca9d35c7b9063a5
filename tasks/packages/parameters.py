"""Parameters of packages: what a request may set, its type, and what is wrong with a value."""

import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from tasks.refusal_wording import listed
from tasks.strict_model import StrictModel

_MONTH = re.compile(r"(?!0000)[0-9]{4}-(0[1-9]|1[0-2])")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEANS = ("true", "false")

Type = Literal["text", "integer", "number", "boolean", "date", "month"]

_EXPECTED: Mapping[Type, str] = {
    "text": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "date": "a day like 2012-07-01",
    "month": "a month like 2012-07",
}


def parameter_text(value: object) -> object:
    """Convert a number, a truth value or a day of YAML or JSON to text, as packages get it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | dt.date) else value


Text = Annotated[
    str,
    BeforeValidator(parameter_text, json_schema_input_type=str | int | float | bool),
    Field(max_length=1000),
]


class Parameter(StrictModel):
    """One parameter: its meaning, the values it takes, and what counts where it is not set.

    With `choices` it takes these alone. `least` and `most` bound numbers. A parameter that is
    required has no default.
    """

    about: str = Field("", max_length=1000)
    type: Type = "text"
    unit: str = Field("", max_length=40)
    choices: tuple[Text, ...] = Field((), max_length=256)
    least: float | None = Field(None, allow_inf_nan=False)
    most: float | None = Field(None, allow_inf_nan=False)
    default: Text = ""
    required: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        low, high = self._ends
        if low > high:
            raise ValueError("`least` is more than `most`")
        if (low, high) != (-math.inf, math.inf) and self.type not in ("integer", "number"):
            raise ValueError("`least` and `most` bound an integer or a number")
        for choice in self.choices:
            if not self._is_of_type(choice):
                raise ValueError(f"its choice {choice!r} is not {self._kind()}")
        if self.required and self.default:
            raise ValueError("a parameter that is required has no default")
        if self.default and (problem := self.problem(self.default)):
            raise ValueError(f"its default {problem}")
        return self

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> Any:
        """Write a parameter with a meaning alone as this text, as earlier builds do."""
        plain = self == Parameter(about=self.about)
        return self.about if plain else handler(self)

    def expected(self) -> str:
        """Say what a value may be."""
        if self.choices:
            return listed(self.choices)
        text = self._kind()
        return f"{text} ({self.unit})" if self.unit else text

    def problem(self, value: str) -> str:
        """Say what is wrong with a value, as "is ...; write ..."; "" if nothing is."""
        return "" if self.fits(value) else f"is {value!r}; write {self.expected()}"

    def fits(self, value: str) -> bool:
        """Tell whether the parameter takes a value."""
        return value in self.choices if self.choices else self._is_of_type(value)

    @property
    def _ends(self) -> tuple[float, float]:
        """The least and the greatest number, infinite where there is no bound."""
        low = -math.inf if self.least is None else self.least
        return low, math.inf if self.most is None else self.most

    def _kind(self) -> str:
        """Say what the type takes, with its bounds."""
        text = _EXPECTED[self.type]
        if self.least is not None and self.most is not None:
            return f"{text} from {self.least:.15g} to {self.most:.15g}"
        if self.least is not None:
            return f"{text}, at least {self.least:.15g}"
        return text if self.most is None else f"{text}, at most {self.most:.15g}"

    def _is_of_type(self, value: str) -> bool:
        match self.type:
            case "boolean":
                return value in _BOOLEANS
            case "month":
                return _MONTH.fullmatch(value) is not None
            case "date":
                return _is_day(value)
            case "integer" | "number":
                return self._is_number(value)
            case _:
                return True

    def _is_number(self, value: str) -> bool:
        """Tell whether a text is a number in every language: in digits of ASCII, without _."""
        form = _WHOLE if self.type == "integer" else _NUMBER
        low, high = self._ends
        return (
            form.fullmatch(value) is not None
            and math.isfinite(float(value))
            and low <= float(value) <= high
        )


def _is_day(value: str) -> bool:
    try:
        return dt.date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


ParameterText = Annotated[str, BeforeValidator(parameter_text)]
"""A parameter's value in a request document: a text, or what becomes one."""


def _of_meaning(value: object) -> object:
    """Take a text for the meaning of a parameter of any text."""
    return {"about": value} if isinstance(value, str) else value


Declared = Annotated[
    Parameter, BeforeValidator(_of_meaning, json_schema_input_type=str | Parameter)
]
"""A parameter as a manifest writes it: with its fields, or its meaning alone."""


def with_defaults(
    given: Mapping[str, str], known: Mapping[str, Parameter] | None
) -> dict[str, str]:
    """Return the parameters of a run: those given, and the defaults of all others."""
    defaults = {name: one.default for name, one in (known or {}).items() if one.default}
    return {**defaults, **given}
