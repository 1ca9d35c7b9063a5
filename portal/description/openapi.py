"""The portal's OpenAPI description, complete enough that programs are generated from it.

FastAPI describes parameters and answers. This adds the request document, how to sign in, and the
problems with which each address may answer.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from portal.description.request_schema import request_schemas
from portal.serving import identity
from portal.serving.late_routes import Router
from portal.serving.problems import ProblemAnswer, described

router = Router(include_in_schema=False)

Schema = dict[str, Any]
REQUEST_REF = {"$ref": "#/components/schemas/Request"}
REQUEST_BODY: Schema = {
    "requestBody": {
        "required": True,
        "description": "A request document; docs/requests.md describes each field.",
        "content": {
            "application/json": {"schema": REQUEST_REF},
            "application/yaml": {"schema": REQUEST_REF},
        },
    }
}
OPENAPI_30 = "application/vnd.oai.openapi+json;version=3.0"
_SIGNED_IN: set[Callable[..., Any]] = {
    *(identity.person, identity.reader, identity.asker, identity.operator),
}
_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "What the page /tokens shows once.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": identity.COOKIE,
        "description": "The cookie that a browser has after signing in.",
    },
}


def describe(app: FastAPI, routes: Iterable[BaseRoute]) -> Schema:
    """Return the description of an application's API (OpenAPI 3.1), which has these routes."""
    schema = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    # Readers of the page look for the portal's own addresses before those of standards.
    own = sorted(schema["paths"].items(), key=lambda path: not path[0].startswith("/api/"))
    schema["paths"] = dict(own)
    schemas = schema["components"]["schemas"]
    # Generated clients name types after titles.
    schemas |= {name: {**part, "title": name} for name, part in request_schemas().items()}
    problem = ProblemAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs")
    schemas["ProblemAnswer"] = problem
    schema["components"]["securitySchemes"] = _SCHEMES
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for route in routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        for method in route.methods or ():
            call = schema["paths"].get(route.path_format, {}).get(method.lower())
            if call is not None:
                _complete(call, route, method)
    return schema


def _complete(call: Schema, route: APIRoute, method: str) -> None:
    # By this name generated clients name their functions.
    call["operationId"] = f"{route.tags[0]}_{route.name}" if route.tags else route.name
    for answer in call["responses"].values():
        for body in answer.get("content", {}).values():
            if body.get("schema", {}).get("title", "").startswith("Response "):
                del body["schema"]["title"]  # FastAPI's, which says nothing
    signed_in = bool(_SIGNED_IN & set(_calls(route.dependant)))
    call["security"] = [{"token": []}, {"session": []}] if signed_in else []
    if "application/json" in call["responses"].get("422", {}).get("content", {}):
        del call["responses"]["422"]  # FastAPI's, whose words no answer of ours has
    for status in _statuses(route, method, signed_in=signed_in, has_body="requestBody" in call):
        call["responses"].setdefault(str(status.value), described(status))


def _calls(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    if dependant.call is not None:
        yield dependant.call
    for inner in dependant.dependencies:
        yield from _calls(inner)


def _statuses(
    route: APIRoute, method: str, *, signed_in: bool, has_body: bool
) -> Iterator[HTTPStatus]:
    """Yield the statuses of the problems that an address may answer with."""
    yield HTTPStatus.BAD_REQUEST
    yield HTTPStatus.INTERNAL_SERVER_ERROR
    yield HTTPStatus.SERVICE_UNAVAILABLE
    if signed_in:
        yield HTTPStatus.UNAUTHORIZED
        yield HTTPStatus.FORBIDDEN
        yield HTTPStatus.NOT_FOUND
    elif "{" in route.path_format:
        yield HTTPStatus.NOT_FOUND
    if method == "GET" and "{" in route.path_format:
        yield HTTPStatus.GONE
    if method != "GET":
        yield HTTPStatus.CONFLICT
        yield HTTPStatus.UNPROCESSABLE_ENTITY
    if has_body:
        yield HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        yield HTTPStatus.GATEWAY_TIMEOUT


@router.get("/api/openapi-3.0.json")
def older(request: Request) -> JSONResponse:
    """Return the description as OpenAPI 3.0, which many generators and OGC's tools want."""
    return JSONResponse(_older(request.app), media_type=OPENAPI_30)


@lru_cache(maxsize=4)
def _older(app: FastAPI) -> Schema:
    found: Schema = as_openapi_30(app.openapi())
    return {**found, "openapi": "3.0.3"}


def as_openapi_30(value: Any) -> Any:
    """Write what only OpenAPI 3.1 can say as OpenAPI 3.0 says it, or leave it out."""
    if isinstance(value, list):
        return [as_openapi_30(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: as_openapi_30(one) for key, one in value.items()}
    if isinstance(found.get("anyOf"), list):
        found = _nullable(found)
    if "const" in found and not isinstance(found["const"], dict):
        found["enum"] = [found.pop("const")]
    if isinstance(found.get("prefixItems"), list):
        kinds = found.pop("prefixItems")
        same = [kind for number, kind in enumerate(kinds) if kind not in kinds[:number]]
        found["items"] = same[0] if len(same) == 1 else {"anyOf": same}
    for bound, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(found.get(bound), int | float) and not isinstance(found[bound], bool):
            found[inclusive], found[bound] = found[bound], True
    if isinstance(found.get("examples"), list):
        found["example"] = found.pop("examples")[0]
    for name in ("propertyNames", "contentMediaType"):
        if not isinstance(found.get(name), dict) or name == "propertyNames":
            found.pop(name, None)
    return found


def _nullable(schema: Schema) -> Schema:
    """Say by `nullable` that null is among the choices."""
    choices = [one for one in schema["anyOf"] if one != {"type": "null"}]
    if len(choices) == len(schema["anyOf"]):
        return schema
    rest = {key: one for key, one in schema.items() if key != "anyOf"}
    if len(choices) > 1:
        return {**rest, "anyOf": choices, "nullable": True}
    only = choices[0]
    return {**rest, **({"allOf": [only]} if "$ref" in only else only), "nullable": True}
