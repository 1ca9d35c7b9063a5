"""Each text that a page's form sends has a bound, and one character more is refused."""

from collections.abc import Iterable, Iterator
from typing import Any

from annotated_types import MaxLen
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from portal.app import create_app
from tests.portal.scripted import live_runtime, settings


def routes(found: Iterable[BaseRoute]) -> Iterator[APIRoute]:
    for one in found:
        if isinstance(one, APIRoute):
            yield one
        else:
            yield from routes(getattr(one, "routes", None) or ())


def texts(one: Dependant) -> Iterator[Any]:
    """The texts of a call's body, those of what it depends on, too."""
    yield from (field for field in one.body_params if field.field_info.annotation is str)
    for inner in one.dependencies:
        yield from texts(inner)


def test_each_text_of_a_form_has_a_bound() -> None:
    app, seen = create_app(settings(), live_runtime()), set()
    for route in routes(app.routes):
        for field in texts(route.dependant):
            name = f"{route.path} {field.name}"
            bounds = [
                one.max_length for one in field.field_info.metadata if isinstance(one, MaxLen)
            ]
            assert bounds, f"{name} has no max_length"
            (most,) = bounds
            assert not field.validate("x" * most, {}, loc=("body",))[1], name
            (error,) = field.validate("x" * (most + 1), {}, loc=("body",))[1]
            assert error["type"] == "string_too_long", name
            seen.add(name)
    assert "/operations/act reason" in seen
    assert len(seen) >= 10
