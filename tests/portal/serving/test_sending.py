"""How answers are sent: compressed, not at all where nothing changed, results as they are."""

import gzip
import hashlib

import httpx
import pytest

from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tests.portal.scripted import LivePortal, put_result, set_row
from tests.portal.submissions import submitted


def raw(client: httpx.Client, path: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """An answer, and its bytes as they were sent."""
    with client.stream("GET", path, headers={"Accept-Encoding": "gzip", **headers}) as answer:
        return answer, b"".join(answer.iter_raw())


@pytest.mark.parametrize("path", ["/new", "/api/products", "/static/vendor/htmx.min.js"])
def test_what_is_text_is_sent_compressed(portal: LivePortal, path: str) -> None:
    with portal.browser() as client:
        answer, sent = raw(client, path)
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) == len(sent)
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(sent) == plain.content or "submission" in plain.text
    assert 2 * len(sent) < len(plain.content)


def test_results_that_are_no_texts_are_sent_as_they_are_stored(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    data = b"which packs well " * 500
    put_result(runtime, name, "layer", "x.nc", data)
    set_row(runtime, name, delivered=1, outputs=1)
    file = f"/api/requests/{name}/results/layer/x.nc"
    with portal.client() as client:
        whole, sent = raw(client, file)
        part, piece = raw(client, file, Range="bytes=5-1204")
        archive, _ = raw(client, f"/api/requests/{name}/archive.zip")
        listed, _ = raw(client, f"/api/requests/{name}/manifest")
    assert sent == data
    assert whole.headers["content-length"] == str(len(data))
    assert hashlib.sha256(data).hexdigest() in whole.headers["etag"]
    assert (part.status_code, piece) == (206, data[5:1205])
    for answer in (whole, part, archive):
        assert "content-encoding" not in answer.headers
    assert listed.status_code == 200


def test_pages_of_other_sites_may_make_each_call_of_the_api(portal: LivePortal) -> None:
    origin = {"Origin": "https://other.example.org"}
    with portal.client() as client:
        paths = client.get("/api/openapi.json").json()["paths"]
        for path, calls in paths.items():
            if not path.startswith("/api/"):
                continue
            for method in sorted({call.upper() for call in calls} - {"PARAMETERS"}):
                asked = {**origin, "Access-Control-Request-Method": method}
                answer = client.options(path.replace("{", "").replace("}", ""), headers=asked)
                assert answer.status_code == 200, (method, path)


def test_a_page_that_has_not_changed_is_not_sent_again(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    with portal.browser() as client, portal.browser("bob@example.org") as other:
        first = client.get("/")
        etag = {"If-None-Match": first.headers["etag"]}
        again = client.get("/", headers=etag)
        theirs = other.get("/", headers=etag)
        set_row(runtime, name, delivered=3)
        changed = client.get("/", headers=etag)
        client.cookies.clear()
        stranger = client.get("/", headers=etag)
    assert first.headers["cache-control"] == "private, no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert [changed.status_code, theirs.status_code, stranger.status_code] == [200, 200, 401]
    assert stranger.headers["cache-control"] == "no-store"


def test_pages_go_on_to_the_last_request_and_previews_take_no_place(
    portal: LivePortal, runtime: Runtime
) -> None:
    with portal.client() as client, portal.browser() as browser, portal.browser("bob") as bob:
        names = [submitted(runtime) for _ in range(103)]
        for _ in range(3):
            request_operations.submit(
                runtime,
                "ada@example.org",
                request_operations.document_of(request_operations.load(runtime, names[0])),
                dry_run=True,
            )
        few = client.get("/api/requests?limit=3").json()
        older = client.get(f"/api/requests?limit=1000&before={few[-1]['id']}").json()
        seen: list[str] = []
        page = "/"
        pages = 0
        while page:
            text = browser.get(page).text
            pages += 1
            seen += [name for name in names if f'href="/requests/{name}"' in text]
            assert ("Newest" in text) == (pages > 1)
            _, found, rest = text.partition('href="/?before=')
            page = f"/?before={rest.split(chr(34))[0]}" if found else ""
        foreign = bob.get(f"/?before={names[3]}")
    assert len(few) == 3
    assert sorted(one["id"] for one in (*few, *older)) == sorted(names)
    assert sorted(seen) == sorted(names)
    assert pages == 3
    assert foreign.status_code == 404
