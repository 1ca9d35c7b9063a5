"""Packages by the API and by pages; what is private stays unknown to everybody else."""

import hashlib
import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from portal.uploads import packages as core
from portal.uploads import state
from tasks.bag.runtime import Runtime
from tasks.requests import request_operations
from tasks.settings import Settings
from tasks.uploads.upload_table import upload_id
from tests.portal.scripted import LivePortal, live_portal, live_runtime, settings
from tests.portal.submissions import DOCUMENT, FORM
from tests.tasks.package_files import tar_of, upload_of

ADA, BEN = "ada@example.org", "ben@example.org"


def push(portal: LivePortal, owner: str = ADA, **how: str) -> dict[str, Any]:
    """Push a package by the API."""
    with portal.client(owner) as client:
        answer = client.post("/api/packages", content=upload_of(**how))
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_package_is_pushed_listed_shown_and_downloaded(portal: LivePortal) -> None:
    made = push(portal, more="description: What `it` does.\n")
    assert (made["owner"], made["visibility"], made["newest"]) == (ADA, "private", "1")
    with portal.client() as client:
        listed = {one["reference"]: one for one in client.get("/api/packages").json()}
        assert {"own", "mean", "monthly-mean"} <= listed.keys()
        assert listed["mean"]["source"] == "shipped"
        shown = client.get(f"/api/packages/{made['id']}").json()
        (version,) = shown["versions"]
        assert version["manifest"]["command"] == ["sh", "run.sh"]
        content = client.get(version["archive_url"]).content
        assert hashlib.sha256(content).hexdigest() == version["digest"]
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            assert tar.getnames() == ["package.yaml", "run.sh"]
        etag = {"If-None-Match": f'"{version["digest"]}"'}
        assert client.get(version["archive_url"], headers=etag).status_code == 304
        found = client.get("/api/packages/find", params={"reference": f"{ADA}/own@1"}).json()
        assert found["versions"][0]["digest"] == version["digest"]
        ours = client.get(f"/api/packages/{upload_id('swathmill', 'mean')}").json()
        shipped = client.get(ours["versions"][0]["archive_url"]).content
        assert hashlib.sha256(shipped).hexdigest() == ours["versions"][0]["digest"]


@pytest.mark.parametrize("most", [0, 1])
def test_so_many_uploads_are_read_at_once(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_UPLOADING", most)
    with live_portal(live_runtime(), settings()) as portal, portal.client() as client:
        answers = [
            client.post("/api/packages", content=upload_of()),
            client.post("/api/packages", content=upload_of()),  # the first turn has ended
            client.post("/api/rasters", data={"name": "dem"}, files={"file": ("a.tif", b"no map")}),
            client.post("/api/rasters", data={"name": "dem"}, files={"file": ("a.tif", b"no map")}),
        ]
    assert [answer.status_code for answer in answers] == (
        [201, 201, 422, 422] if most else [503, 503, 503, 503]
    )
    assert most or "Other uploads are being read" in answers[0].json()["detail"]


def test_refusals_of_an_upload_name_the_reason(portal: LivePortal) -> None:
    push(portal)
    with portal.client() as client:
        climbing = client.post("/api/packages", content=tar_of(("../x", b"1")))
        assert climbing.status_code == 422
        assert "does not lie below the package's folder" in climbing.json()["detail"]
        other = client.post("/api/packages", content=upload_of(program="echo other"))
        assert other.status_code == 409
        assert "Raise `version`" in other.json()["detail"]
    with portal.client("swathmill") as client:
        ours = client.post("/api/packages", content=upload_of())
        assert ours.status_code == 422


def test_an_upload_that_is_too_large_ends_early(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "MOST_UPLOADED", 10_000)
    with portal.client() as client:
        assert client.post("/api/packages", content=b"x" * 10_001).status_code == 413
        parts = (b"x" * 1000 for _ in range(11))  # of unknown length
        assert client.post("/api/packages", content=parts).status_code == 413


def test_the_page_uploads_shares_deprecates_and_deletes(portal: LivePortal) -> None:
    with portal.browser() as browser:
        page = browser.post("/packages", files={"file": ("own.zip", upload_of())})
        assert page.status_code == 200
        at = page.url.path
        assert "Package own" in page.text
        assert "you alone" in browser.get("/packages").text
        linked = browser.post(f"{at}/share", data={"visibility": "link"}).text
        assert "/packages/open?link=" in linked
        dropped = browser.post(f"{at}/deprecate", data={"version": "1", "why": "wrong"}).text
        assert "deprecated: wrong" in dropped
        browser.post(f"{at}/deprecate", data={"version": "1", "why": ""})
        chosen = browser.get("/new", params={"package": "own"}).text
        assert '<option value="own" selected>own 1</option>' in chosen
        assert browser.post(f"{at}/delete").url.path == "/packages"
        assert browser.get(at).status_code == 404


def test_the_page_says_why_it_refuses_an_upload(portal: LivePortal) -> None:
    with portal.browser() as browser:
        page = browser.post("/packages", files={"file": ("own.tar", tar_of(("a", b"1")))})
        assert page.status_code == 422
        assert "has no package.yaml" in page.text
        page = browser.post("/packages", files={"other": ("own.tar", b"")})
        assert "Choose a file" in page.text
        foreign = browser.post(
            "/packages",
            files={"file": ("own.zip", upload_of())},
            headers={"Origin": "http://elsewhere.example"},
        )
        assert foreign.status_code == 403


def test_a_request_names_a_package_of_ones_own(portal: LivePortal) -> None:
    push(portal, more="parameters: {low: The least.}\n")
    document = {**DOCUMENT, "reduction": {"package": "own", "parameters": {"low": "1"}}}
    with portal.client() as client:
        made = client.post("/api/requests", json=document)
        assert made.status_code == 202, made.text
        wrong = {**document, "reduction": {"package": "own", "parameters": {"high": "1"}}}
        refused = client.post("/api/requests", json=wrong).json()
        assert refused["field"] == "reduction.parameters.high"


@pytest.mark.parametrize(
    ("resource", "what"), [("memory_gb", "memory, and a run here has 4"), ("output_gb", "disk")]
)
def test_a_package_that_needs_more_than_a_run_gets_is_refused(
    portal: LivePortal, resource: str, what: str
) -> None:
    push(portal, more=f"resources: {{{resource}: 1000}}\n")
    with portal.client() as client:
        refused = client.post("/api/requests", json={**DOCUMENT, "reduction": {"package": "own"}})
        assert refused.status_code == 422, refused.text
        assert refused.json()["field"] == "reduction.package"
        assert f"needs 1000 GB of {what}" in refused.text


def test_hosts_that_the_operator_does_not_allow_are_refused(portal: LivePortal) -> None:
    with portal.client() as client:
        refused = client.post(
            "/api/packages", content=upload_of(more="network: [data.example.org]\n")
        )
        assert refused.status_code == 422, refused.text
        assert "names hosts that packages may not connect to here" in refused.text
        assert client.get("/api/packages/find", params={"reference": "own"}).status_code == 404


def test_a_package_whose_hosts_are_not_allowed_any_more_is_refused(
    portal: LivePortal, tmp_path: Path
) -> None:
    upload = tmp_path / "own.tar"
    upload.write_bytes(upload_of(more="network: [data.example.org]\n"))
    core.push(portal.runtime, Settings(network_hosts="data.example.org"), ADA, upload)
    with portal.client() as client:
        refused = client.post("/api/requests", json={**DOCUMENT, "reduction": {"package": "own"}})
        assert refused.status_code == 422, refused.text
        assert refused.json()["field"] == "reduction.package"
        assert "may not connect to here: data.example.org" in refused.text


def test_a_package_whose_dependencies_cannot_be_had_is_refused_at_once(portal: LivePortal) -> None:
    made = tar_of(
        ("package.yaml", b"name: needy\ncommand: [python, run.py]\noutputs: [a.txt]\n"),
        ("run.py", b"# /// script\n# dependencies = ['x @ file:///etc']\n# ///\n"),
    )
    with portal.client() as client:
        refused = client.post("/api/packages", content=made)
        assert refused.status_code == 422, refused.text
        assert "run.py: x is given by an address" in refused.text
        assert "needy" not in client.get("/api/packages").text


def test_a_link_gives_a_package_to_who_opens_it(portal: LivePortal) -> None:
    made = push(portal)
    with portal.client() as ada, portal.browser(BEN) as ben:
        shared = ada.post(f"/api/packages/{made['id']}/share?visibility=link").json()
        assert ben.get(f"/packages/{made['id']}").status_code == 404
        asked = ben.get(shared["link"].replace("http://127.0.0.1/", "/"))
        token = re.search(r'name="link" value="([^"]+)"', asked.text)
        assert token
        page = ben.post("/packages/open", data={"link": token[1]})
        assert page.status_code == 200
        assert "Package own" in page.text
        assert shared["link"] not in page.text
        assert f'value="{ADA}/own"' in ben.get("/new").text
    with portal.client("cleo@example.org") as cleo:
        opened = cleo.post("/api/packages/open", params={"link": shared["link"]})
        assert opened.json()["reference"] == f"{ADA}/own"


Call = Callable[[httpx.Client, dict[str, Any]], httpx.Response]


def requested(package: str, *, dry: bool = False) -> Call:
    """Try to run it."""

    def call(client: httpx.Client, made: dict[str, Any]) -> httpx.Response:
        name = package.format(owner=ADA, digest=made["versions"][0]["digest"])
        document = {**DOCUMENT, "reduction": {"package": name}}
        return client.post("/api/requests", json=document, params={"dry_run": dry})

    return call


def form(path: str, package: str) -> Call:
    """Try to run it by the form."""

    def call(client: httpx.Client, made: dict[str, Any]) -> httpx.Response:
        name = package.format(owner=ADA, digest=made["versions"][0]["digest"])
        return client.post(path, data={**FORM, "package": name, "window": "month"})

    return call


def at(method: str, path: str, **how: Any) -> Call:
    """Call an address."""

    def call(client: httpx.Client, made: dict[str, Any]) -> httpx.Response:
        digest = made["versions"][0]["digest"]
        place = path.format(id=made["id"], digest=digest, owner=ADA)
        return client.request(method, place, **how)

    return call


NONE = "0" * 20
WAYS: dict[str, tuple[Call, Call]] = {
    "show": (at("GET", "/api/packages/{id}"), at("GET", f"/api/packages/{NONE}")),
    "show page": (at("GET", "/packages/{id}"), at("GET", f"/packages/{NONE}")),
    "head": (at("HEAD", "/packages/{id}"), at("HEAD", f"/packages/{NONE}")),
    "download": (
        at("GET", "/api/packages/{id}/versions/1/archive.tar"),
        at("GET", f"/api/packages/{NONE}/versions/1/archive.tar"),
    ),
    "download part": (
        at("GET", "/api/packages/{id}/versions/1/archive.tar", headers={"Range": "bytes=0-9"}),
        at("GET", f"/api/packages/{NONE}/versions/1/archive.tar"),
    ),
    "download by etag": (
        at("GET", "/api/packages/{id}/versions/1/archive.tar", headers={"If-None-Match": "*"}),
        at("GET", f"/api/packages/{NONE}/versions/1/archive.tar"),
    ),
    "download another version": (
        at("GET", "/api/packages/{id}/versions/2/archive.tar"),
        at("GET", f"/api/packages/{NONE}/versions/2/archive.tar"),
    ),
    "download by a shipped package's address": (
        at("GET", f"/api/packages/{upload_id('swathmill', 'mean')}/versions/../{{id}}/1"),
        at("GET", f"/api/packages/{upload_id('swathmill', 'mean')}/versions/../{NONE}/1"),
    ),
    "find by name": (
        at("GET", "/api/packages/find", params={"reference": f"{ADA}/secret"}),
        at("GET", "/api/packages/find", params={"reference": f"{ADA}/nosuch"}),
    ),
    "find by version": (
        at("GET", "/api/packages/find", params={"reference": f"{ADA}/secret@1"}),
        at("GET", "/api/packages/find", params={"reference": f"{ADA}/nosuch@1"}),
    ),
    "find a bare name": (
        at("GET", "/api/packages/find", params={"reference": "secret"}),
        at("GET", "/api/packages/find", params={"reference": "nosuch"}),
    ),
    "find as a shipped one": (
        at("GET", "/api/packages/find", params={"reference": "swathmill/secret"}),
        at("GET", "/api/packages/find", params={"reference": "swathmill/nosuch"}),
    ),
    "run by name": (requested("{owner}/secret"), requested("{owner}/nosuch")),
    "run by version": (requested("{owner}/secret@1"), requested("{owner}/nosuch@1")),
    "run by digest": (
        requested("{owner}/secret@{digest}"),
        requested("{owner}/nosuch@{digest}"),
    ),
    "run by digest alone": (requested("secret@{digest}"), requested("nosuch@{digest}")),
    "run by a shipped name's digest": (
        requested("swathmill/mean@{digest}"),
        requested("swathmill/mean@" + "f" * 64),
    ),
    "count by name": (
        requested("{owner}/secret", dry=True),
        requested("{owner}/nosuch", dry=True),
    ),
    "run by the form": (form("/new", "{owner}/secret"), form("/new", "{owner}/nosuch")),
    "check by the form": (
        form("/new/check", "{owner}/secret"),
        form("/new/check", "{owner}/nosuch"),
    ),
    "preview by the form": (
        form("/new/preview", "{owner}/secret"),
        form("/new/preview", "{owner}/nosuch"),
    ),
    "share": (
        at("POST", "/api/packages/{id}/share?visibility=everyone"),
        at("POST", f"/api/packages/{NONE}/share?visibility=everyone"),
    ),
    "share by page": (
        at("POST", "/packages/{id}/share", data={"visibility": "everyone"}),
        at("POST", f"/packages/{NONE}/share", data={"visibility": "everyone"}),
    ),
    "deprecate": (
        at("POST", "/api/packages/{id}/versions/1/deprecate?why=x"),
        at("POST", f"/api/packages/{NONE}/versions/1/deprecate?why=x"),
    ),
    "deprecate by page": (
        at("POST", "/packages/{id}/deprecate", data={"version": "1", "why": "x"}),
        at("POST", f"/packages/{NONE}/deprecate", data={"version": "1", "why": "x"}),
    ),
    "delete": (at("DELETE", "/api/packages/{id}"), at("DELETE", f"/api/packages/{NONE}")),
    "delete a version": (
        at("DELETE", "/api/packages/{id}/versions/1"),
        at("DELETE", f"/api/packages/{NONE}/versions/1"),
    ),
    "delete by page": (
        at("POST", "/packages/{id}/delete"),
        at("POST", f"/packages/{NONE}/delete"),
    ),
    "open without a secret": (
        at("POST", "/api/packages/open", params={"link": upload_id(ADA, "secret") + "."}),
        at("POST", "/api/packages/open", params={"link": NONE + "."}),
    ),
    "open with a wrong secret": (
        at("POST", "/packages/open", data={"link": upload_id(ADA, "secret") + "." + "0" * 32}),
        at("POST", "/packages/open", data={"link": NONE + "." + "0" * 32}),
    ),
    "push one of the same name": (
        at("POST", "/api/packages", content=upload_of("secret", program="echo other")),
        at("POST", "/api/packages", content=upload_of("nosuch", program="echo other")),
    ),
}


def plain(answer: httpx.Response, made: dict[str, Any]) -> tuple[int, str]:
    """An answer without what the caller has said himself, and without digests and times."""
    text = answer.text
    for said in (made["id"], NONE, upload_id(BEN, "secret"), upload_id(BEN, "nosuch")):
        text = text.replace(said, "ID")
    text = re.sub(r"[0-9a-f]{64}|\d{4}-\d\d-\d\dT[\d:.]+Z?|\d{6}-[0-9a-f]{10}", "X", text)
    return answer.status_code, text.replace("nosuch", "secret")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("withdrawn", [False, True], ids=["never shared", "withdrawn"])
def test_a_private_package_is_to_others_as_one_that_does_not_exist(
    portal: LivePortal, way: str, withdrawn: bool
) -> None:
    made = push(portal, name="secret", more="description: Hidden words.\n")
    if withdrawn:
        with portal.client() as ada, portal.client(BEN) as ben:
            path = f"/api/packages/{made['id']}/share"
            link = ada.post(path, params={"visibility": "link"}).json()["link"]
            assert ben.post("/api/packages/open", params={"link": link}).status_code == 200
            ada.post(path, params={"visibility": "private"})
    tried, control = WAYS[way]
    by_page = "form" in way or "page" in way or way in ("head", "open with a wrong secret")
    with portal.browser(BEN) if by_page else portal.client(BEN) as ben:
        found, other = tried(ben, made), control(ben, made)
        assert plain(found, made) == plain(other, made)
        assert "Hidden words" not in found.text
        if way != "push one of the same name":
            assert made["id"] not in ben.get("/api/packages" if not by_page else "/packages").text
    with portal.client() as ada:
        left = ada.get(f"/api/packages/{made['id']}").json()
    assert (left["visibility"], left["newest"], len(left["versions"])) == ("private", "1", 1)
    assert left["versions"][0]["digest"] == made["versions"][0]["digest"]


@pytest.mark.parametrize("way", [one for one in WAYS if one.startswith(("share", "de"))])
def test_only_its_owner_changes_a_package_that_everyone_sees(portal: LivePortal, way: str) -> None:
    made = push(portal)
    with portal.client() as ada:
        shared = f"/api/packages/{made['id']}"
        ada.post(f"{shared}/share?visibility=everyone").raise_for_status()
        before = ada.get(shared).json()
        with portal.browser(BEN) if "page" in way else portal.client(BEN) as ben:
            assert ben.get(f"/packages/{made['id']}" if "page" in way else shared).is_success
            tried, _ = WAYS[way]
            assert tried(ben, made).status_code == 404
        assert ada.get(shared).json() == before


def test_neither_a_guest_nor_an_operator_sees_a_private_package(
    portal: LivePortal, runtime: Runtime
) -> None:
    made = push(portal)
    with portal.guest() as guest:
        assert guest.get(f"/api/packages/{made['id']}").status_code == 401
        assert guest.get("/api/packages").status_code == 401
        assert guest.post("/api/packages", content=upload_of()).status_code == 401
    with portal.client("op@example.org", "operator") as operator:
        assert operator.get(f"/api/packages/{made['id']}").status_code == 404
    assert not [*request_operations.list_requests(runtime)]
