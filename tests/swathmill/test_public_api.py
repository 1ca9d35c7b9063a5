"""Every public name is imported from `swathmill`, and its docstring names every parameter."""

import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest

import swathmill
from swathmill import Request

NAMES = [name for name in swathmill.__all__ if name != "__version__"]


def documented(thing: object) -> set[str]:
    """The names under `Args:` and `Attributes:` of a docstring."""
    text = inspect.getdoc(thing) or ""
    sections = re.findall(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    return set(re.findall(r"^    (\w+): \S", "".join(sections), re.MULTILINE))


def parameters(function: object) -> set[str]:
    assert callable(function)
    return set(inspect.signature(function).parameters) - {"self", "cls"}


def calls() -> Iterator[tuple[str, object, set[str]]]:
    """Each public callable with its parameters: functions, classes and their methods."""
    for name in NAMES:
        thing = getattr(swathmill, name)
        if not inspect.isclass(thing):
            yield name, thing, parameters(thing)
            continue
        if dataclasses.is_dataclass(thing):
            yield name, thing, {field.name for field in dataclasses.fields(thing)}
        for method, function in vars(thing).items():
            plain = function.__func__ if isinstance(function, classmethod) else function
            if inspect.isfunction(plain) and not method.startswith("_"):
                yield f"{name}.{method}", plain, parameters(plain)
    yield "Request", Request, set(Request.model_fields)


CALLS = list(calls())


@pytest.mark.parametrize(
    ("thing", "names"), [call[1:] for call in CALLS], ids=[call[0] for call in CALLS]
)
def test_the_docstring_names_every_parameter(thing: object, names: set[str]) -> None:
    assert documented(thing) == names


def test_the_public_names_are_imported_from_one_place() -> None:
    assert {"reproject", "explain", "Grid", "Options", "Client"} <= set(NAMES)
    client_errors = (swathmill.RefusedError, swathmill.RequestRefusedError, swathmill.ApiError)
    assert all(issubclass(error, swathmill.SwathmillError) for error in client_errors)
    assert set(NAMES) == set(swathmill._HOMES)
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        swathmill.absent  # noqa: B018


def test_the_package_alone_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'httpx', 'email'}"
    program = f"import sys, swathmill; sys.exit(int(bool({heavy} & sys.modules.keys())))"
    subprocess.run([sys.executable, "-P", "-c", program], check=True)


def test_the_version_is_that_of_the_installation() -> None:
    assert swathmill.__version__ == version("swathmill")
