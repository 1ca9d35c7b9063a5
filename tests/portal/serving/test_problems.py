"""What a caller is told of an error, by the kind of the error."""

import re
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from portal.app import routes_of
from portal.features import FEATURES
from portal.serving.problems import PortalError, problem_of
from tasks.bag.runtime import Runtime
from tasks.errors import ConflictError, FencedError, StorageFullError, StoreError
from tests.portal.scripted import LivePortal
from tests.portal.submissions import submitted


class RefusedTransactionError(ConflictError):
    """A kind that the table does not name."""


@pytest.mark.parametrize(
    ("error", "status", "title"),
    [
        (StoreError("x"), 503, "Storage unavailable"),
        (StorageFullError("x"), 503, "Storage full"),
        (ConflictError("x"), 409, "Changed meanwhile"),
        (RefusedTransactionError("x"), 409, "Changed meanwhile"),
        (FencedError("x"), 500, "The portal failed"),
        (ZeroDivisionError(), 500, "The portal failed"),
    ],
)
def test_the_nearest_kind_counts(error: Exception, status: int, title: str) -> None:
    found = problem_of(error)
    assert (found.status, found.title) == (status, title)


def kinds(of: type[PortalError]) -> Iterator[type[PortalError]]:
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


def test_every_error_of_the_portal_has_a_status_that_there_is() -> None:
    """Else telling of the error is an error itself."""
    assert FEATURES  # which have all features' errors imported
    for kind in kinds(PortalError):
        assert 400 <= HTTPStatus(kind.status) < 600, kind


def test_only_a_bad_request_is_told_in_the_words_of_the_library() -> None:
    assert problem_of(HTTPException(400, "Too many files.")).detail == "Too many files."
    assert problem_of(HTTPException(400)).detail == "Bad request syntax or unsupported method."
    assert problem_of(HTTPException(404, "secret")).detail == "There is nothing at this address."
    assert "secret" not in problem_of(HTTPException(405, "secret")).detail


@pytest.mark.parametrize(
    ("content", "kind", "why"),
    [
        (b"{bad", "application/json", "the body is not JSON: Expecting property name"),
        (b"labels=x", "text/plain", "the body is not JSON. Send JSON"),
    ],
)
def test_a_body_that_is_not_json_is_told_so(
    portal: LivePortal, content: bytes, kind: str, why: str
) -> None:
    with portal.client() as client:
        answer = client.patch("/api/requests/x", content=content, headers={"Content-Type": kind})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(why)


def test_a_call_that_cannot_be_read_is_refused_with_the_reason(portal: LivePortal) -> None:
    with portal.client() as client:
        answer = client.post(
            "/api/rasters", content=b"x", headers={"Content-Type": "multipart/form-data"}
        )
    assert answer.status_code == 400
    assert answer.json()["detail"] == "Missing boundary in multipart."
    assert answer.json()["remedy"] == "See /docs for what this address takes."
    with portal.browser() as browser:
        two = [("file", ("a.zip", b"x")), ("file", ("b.zip", b"x"))]
        page = browser.post("/packages", files=two)
    assert page.status_code == 400
    assert "Too many files. Maximum number of files is 1." in page.text


def test_an_address_that_only_takes_forms_leads_to_the_page_above(
    runtime: Runtime, portal: LivePortal
) -> None:
    """Typed by hand, or by a browser that goes back to it."""
    methods: dict[str, set[str]] = {}
    for route in routes_of(FEATURES):
        if isinstance(route, APIRoute) and not route.path_format.startswith("/api/"):
            methods.setdefault(route.path_format, set()).update(route.methods or ())
    parts = {"request_id": submitted(runtime), "what": "files", "kind": "csv"}
    led: set[str] = set()
    with portal.browser() as client:
        for path in (path for path, taken in methods.items() if "GET" not in taken):
            answer = client.get(re.sub(r"{(\w+)}", lambda part: parts.get(part[1], "x y"), path))
            assert (answer.status_code, answer.headers["Allow"]) == (405, "POST"), path
            assert "There is nothing to read at it." in answer.text, path
            (above,) = re.findall(r'href="([^"]+)">Go to ', answer.text)
            assert answer.url.raw_path.startswith(above.encode()), path
            led.add(above)
        shown = {"/", "/new", "/tokens", "/groups", f"/requests/{parts['request_id']}"}
        assert shown <= led
        assert {client.get(page).status_code for page in shown} == {200}
        assert {client.get(page).status_code for page in led - shown} == {404}  # no such one


def test_a_part_of_a_page_typed_by_hand_is_the_whole_page(
    runtime: Runtime, portal: LivePortal
) -> None:
    name = submitted(runtime)
    leads = {
        f"/requests/{name}/matrix?page=2": f"/requests/{name}#by-date",
        f"/requests/{name}/lacks": f"/requests/{name}#lacks",
        f"/requests/{name}/results?find=Lai": f"/requests/{name}#results",
        f"/requests/{name}/sites": f"/requests/{name}#sites",
        f"/previews/{name}": f"/new?again={name}",
        "/new/products?q=leaf": "/new",
        "/service-notice": "/",
    }
    with portal.browser() as client:
        for path, page in leads.items():
            typed = client.get(path, follow_redirects=False)
            assert (typed.status_code, typed.headers.get("location")) == (303, page), path
            assert "<html" in client.get(page).text, path
            from_script = client.get(path, headers={"HX-Request": "true"})
            assert from_script.status_code == 200, path
            assert "<html" not in from_script.text, path
