"""The fields of a package's parameters on the form."""

from collections.abc import Mapping
from dataclasses import dataclass

from portal.serving.portal import Portal
from portal.serving.tokens import Person
from portal.submit.forms import STEPS, Form, name_and_value
from portal.submit.state import Submit
from tasks.packages.packages import PackageError
from tasks.packages.parameters import Parameter

_INPUTS = {"month": "month", "date": "date", "integer": "number", "number": "number"}
BOOLEANS = ("true", "false")


@dataclass(frozen=True, kw_only=True)
class ParameterField:
    """A parameter as the form shows it, and what is filled in."""

    name: str
    parameter: Parameter
    value: str

    @property
    def label(self) -> str:
        """The name for people: "least share" of `least-share`."""
        words = self.name.replace("-", " ").replace("_", " ")
        return words[:1].upper() + words[1:]

    @property
    def options(self) -> tuple[str, ...]:
        """The values to choose among; none where one types.

        A value that is not offered any more is among them: else another one would be chosen unseen.
        """
        found = BOOLEANS if self.parameter.type == "boolean" else self.parameter.choices
        return (*found, self.value) if found and self.value and not self.is_offered else found

    @property
    def is_offered(self) -> bool:
        """Tell whether the parameter takes what is filled in."""
        return self.parameter.fits(self.value)

    @property
    def input(self) -> str:
        """The type of its input."""
        return _INPUTS.get(self.parameter.type, "text")

    @property
    def step(self) -> str:
        """The step of a number: any, or whole numbers."""
        return "1" if self.parameter.type == "integer" else "any"


@dataclass(frozen=True, kw_only=True)
class ParameterFields:
    """The fields of a package, and the text for what has none; `has_text` if the form shows it."""

    fields: tuple[ParameterField, ...] = ()
    text: str = ""
    has_text: bool = False


def parameter_fields(portal: Portal, person: Person, form: Form) -> ParameterFields:
    """Return what the form shows of the parameters of its package.

    A package that declares none has the text alone, and one that cannot be used, too.
    """
    if not form.package or form.package == STEPS:
        return ParameterFields(text=form.parameters)
    try:
        packages = portal.state(Submit).names.library.packages_of(person.owner)
        known = packages.find(form.package).package.parameters
    except PackageError:
        known = None
    lines = [line.strip() for line in form.parameters.splitlines() if line.strip()]
    given = dict(map(name_and_value, lines))
    rest = "\n".join(line for line in lines if name_and_value(line)[0] not in (known or {}))
    return ParameterFields(
        fields=_fields(known or {}, given), text=rest, has_text=known is None or bool(rest)
    )


def _fields(known: Mapping[str, Parameter], given: Mapping[str, str]) -> tuple[ParameterField, ...]:
    return tuple(
        ParameterField(name=name, parameter=one, value=given.get(name, one.default))
        for name, one in known.items()
    )
