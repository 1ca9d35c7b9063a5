"""The HTTP API as its OpenAPI description has it, and what pages of other sites may do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portal.description.openapi import as_openapi_30
from portal.description.request_schema import request_schema
from portal.serving import tokens
from tasks.bag.runtime import Runtime
from tasks.request.document import Request
from tests.portal.fuzz import check, furnish, served
from tests.portal.scripted import LivePortal, live_portal, put_result
from tests.portal.submissions import submitted


@pytest.mark.proof
def test_answers_are_as_described(runtime: Runtime, tmp_path: Path) -> None:
    """The short form of `make proofs ONLY=api`, which also calls as an operator and as nobody."""
    with live_portal(runtime, served(tmp_path)) as portal:
        furnish(portal, tmp_path)
        said = check(portal, tokens.Role.SCIENTIST, tmp_path, "--phases=examples,coverage")
    assert not said, said


def test_the_schema_of_a_request_is_the_model_s() -> None:
    schema = request_schema()
    named = {field.alias or name for name, field in Request.model_fields.items()}
    assert set(schema["properties"]) == named
    assert all(field["description"] for field in schema["properties"].values())
    assert "$ref" not in json.dumps(schema)


def test_types_of_generated_clients_have_names_of_their_own(portal: LivePortal) -> None:
    """As the proof `clients` generates one: by titles, and not for a type whose name is taken."""
    with portal.client() as client:
        schemas = client.get("/api/openapi.json").json()["components"]["schemas"]
    titles = [schema["title"] for schema in schemas.values() if "title" in schema]
    assert sorted(titles) == sorted(set(titles))
    parts = {name for name in schemas if f'schemas/{name}"' in json.dumps(schemas["Request"])}
    assert {"RequestProductChoice", "RequestRegion", "RequestTime", "RequestGridChoice"} <= parts


def test_each_parameter_says_what_it_is_for(portal: LivePortal) -> None:
    """One without a text may also be an argument of a dependency that no caller should set."""
    with portal.client() as client:
        described = client.get("/api/openapi.json").json()
    silent = [
        f"{method} {path}: {one['name']}"
        for path, calls in described["paths"].items()
        for method, call in calls.items()
        for one in call.get("parameters", ())
        if one["in"] != "path" and not one.get("description")
    ]
    assert silent == []


def test_a_caller_cannot_raise_the_limit_of_a_body(portal: LivePortal) -> None:
    with portal.client() as client:
        answer = client.post("/api/requests?most=99999999", content=b"#" * (2**21 + 1))
    assert answer.status_code == 413


def test_each_call_has_its_security_and_its_problems(portal: LivePortal) -> None:
    with portal.client() as client:
        described = client.get("/api/openapi.json").json()
    submit = described["paths"]["/api/requests"]["post"]
    body = submit["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/Request"}
    assert {"401", "403", "409", "413", "422", "503"} <= set(submit["responses"])
    assert set(submit["responses"]["422"]["content"]) == {"application/problem+json"}
    assert set(described["components"]["securitySchemes"]) == {"token", "session"}
    own = {
        ("/tiles/{product}/{layer}/{day}/{zoom}/{col}/{row}.{form}", "get"): {"422", "502"},
        ("/maps/collections/{collection_id}/map", "get"): {"422", "502"},
        ("/api/requests/{request_id}/copies", "post"): {"502"},
    }
    for (path, method), statuses in own.items():
        assert statuses <= set(described["paths"][path][method]["responses"]), path
    with portal.guest() as nobody:
        for path, calls in described["paths"].items():
            for method, call in calls.items():
                status = nobody.request(method, path.replace("{", "").replace("}", "")).status_code
                assert (status == 401) == bool(call["security"]), (method, path)


def _all(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _all(inner)


def test_the_older_description_has_nothing_of_openapi_31(portal: LivePortal) -> None:
    with portal.client() as client:
        older = client.get("/api/openapi-3.0.json").json()
    assert older["openapi"] == "3.0.3"
    for part in _all(older["components"]["schemas"]):
        assert part.get("type") != "null"
        assert not isinstance(part.get("const"), str)
        assert "prefixItems" not in part
        assert part.get("exclusiveMinimum") in (None, True)
    grid = older["components"]["schemas"]["RequestGridChoice"]["properties"]
    assert grid["resolution"]["nullable"] is True
    assert (grid["resolution"]["minimum"], grid["modis"]["nullable"]) == (0, True)


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ({"const": "a"}, {"enum": ["a"]}),
        (
            {"anyOf": [{"$ref": "#/a"}, {"type": "null"}]},
            {"allOf": [{"$ref": "#/a"}], "nullable": True},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "array"}], "nullable": True},
        ),
        ({"prefixItems": [{"type": "number"}] * 2}, {"items": {"type": "number"}}),
        ({"examples": [1, 2]}, {"example": 1}),
    ],
)
def test_what_openapi_30_cannot_say_is_said_otherwise(
    newer: dict[str, Any], older: dict[str, Any]
) -> None:
    assert as_openapi_30(newer) == older


def test_pages_of_other_sites_read_results_by_token(
    portal: LivePortal, runtime: Runtime, raster: bytes
) -> None:
    name = submitted(runtime)
    put_result(runtime, name, "MCD15A2.005/Lai_1km", "a.2012-01-01.tif", raster)
    path = f"/api/requests/{name}/results/MCD15A2.005/Lai_1km/a.2012-01-01.tif"
    asks = {
        "Origin": "https://stac-browser.example.org",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "authorization,range",
    }
    with portal.client() as client:
        allowed = client.options(path, headers=asks)
        part = client.get(path, headers={"Origin": asks["Origin"], "Range": "bytes=0-99"})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "*"
    assert part.status_code == 206
    assert part.headers["access-control-allow-origin"] == "*"
    assert "Content-Range" in part.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in part.headers


def test_pages_are_not_for_other_sites(portal: LivePortal) -> None:
    with portal.browser() as browser:
        answer = browser.get("/new", headers={"Origin": "https://other.example.org"})
    assert "access-control-allow-origin" not in answer.headers


def test_a_json_answer_that_has_not_changed_is_not_sent_again(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    with portal.client() as client:
        for path in (f"/jobs/{name}", "/api/requests", "/collections", "/api/products?q=ndvi"):
            first = client.get(path)
            again = client.get(path, headers={"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b""), path
        submitted(runtime)
        changed = client.get("/api/requests", headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200


def test_a_wrong_method_is_told_the_right_ones(portal: LivePortal) -> None:
    with portal.client() as client:
        assert client.put("/api/requests").headers["allow"] == "GET, POST"
        assert client.get("/api/packages/%0Bodd").status_code == 404
