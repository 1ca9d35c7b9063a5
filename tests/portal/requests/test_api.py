"""The HTTP API, over HTTP."""

import hashlib
import io
import json
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

from portal.requests.state import MOST_WAITING, Requests
from portal.serving import tokens
from portal.serving.tokens import Role
from portal.submit import submissions
from reprojection.grid import crs
from reprojection.grid.crs import Crs
from swathmill.client import Client
from swathmill.errors import RefusedError
from tasks.bag import task_table
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState, State
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import shard
from tasks.errors import RequestRefusedError, StoreError
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, Preparation, RequestTable
from tasks.storage.blobs import split_blob
from tasks.storage.store import Upsert
from tests.portal.scripted import (
    SECRET,
    LivePortal,
    ScriptedManager,
    put_failed_task,
    put_interest,
    put_result,
    put_task_of_result,
    set_row,
    take_all,
)

DOCUMENT = {
    "title": "Leaf area",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}


def submitted(runtime: Runtime, owner: str = "ada@example.org") -> str:
    return request_operations.submit(runtime, owner, parse_request(DOCUMENT))


def test_health_needs_no_token(portal: LivePortal) -> None:
    with portal.client() as client:
        del client.headers["Authorization"]
        assert client.get("/healthz").json()["status"] == "ok"
        refused = client.get("/api/requests")
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["www-authenticate"] == "Bearer"


def test_a_forged_token_is_nobody(portal: LivePortal) -> None:
    with portal.client() as client:
        client.headers["Authorization"] = "Bearer " + "x" * 60
        assert client.get("/api/requests").status_code == 401


def test_a_request_is_taken_in_json_and_in_yaml(portal: LivePortal, runtime: Runtime) -> None:
    with portal.client() as client:
        first = client.post("/api/requests", json=DOCUMENT)
        second = client.post(
            "/api/requests",
            content=yaml.safe_dump(DOCUMENT),
            headers={"Content-Type": "application/yaml"},
        )
        listed = client.get("/api/requests").json()
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.headers["location"] == f"/api/requests/{first.json()['id']}"
    assert {item["id"] for item in listed} == {first.json()["id"], second.json()["id"]}
    row = request_operations.load(runtime, first.json()["id"])
    assert request_operations.document_of(row) == parse_request(DOCUMENT)
    assert row.owner == "ada@example.org"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"regoin": {}}, "regoin"),
        ({"time": {"start": "2012-04-30", "end": "2012-01-01"}}, "time.end"),
        ({"region": {"bbox": [-8, 50, 6, 95]}}, "region.bbox.3"),
        ({"products": [{**DOCUMENT["products"][0], "layers": ["Lai"]}]}, "products.0.layers.0"),  # type: ignore[index]
        ({"grid": {"crs": "EPSG:999999", "resolution": 1}}, "grid.crs"),
        ({"grid": {"crs": "EPSG:4326", "resolution": 0.0001}}, "grid.resolution"),
        ({"reduction": {"package": "no-such-package"}}, "reduction.package"),
    ],
)
@pytest.mark.parametrize("dry_run", ["false", "true"])
def test_a_bad_request_is_refused_with_field_and_remedy(
    portal: LivePortal, runtime: Runtime, change: dict[str, object], field: str, dry_run: str
) -> None:
    with portal.client() as client:
        answer = client.post(f"/api/requests?dry_run={dry_run}", json={**DOCUMENT, **change})
    problem = answer.json()
    assert answer.status_code == 422
    assert problem["field"] == field
    assert problem["detail"]
    assert problem["remedy"]
    assert not RequestTable(runtime.store).live()


@pytest.mark.parametrize(
    "body",
    [b"{", b"a: [", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"just text", b""],
    ids=["brace", "bracket", "bytes", "deep YAML", "deep JSON", "text", "nothing"],
)
def test_what_is_no_document_is_refused(portal: LivePortal, body: bytes) -> None:
    with portal.client() as client:
        assert client.post("/api/requests", content=body).status_code == 422


def test_a_document_without_end_is_refused(portal: LivePortal) -> None:
    with portal.client() as client:
        answer = client.post("/api/requests", content=b"a" * (3 << 20))
    assert answer.status_code == 413


def test_a_key_sent_again_makes_no_second_request(portal: LivePortal, runtime: Runtime) -> None:
    key = {"Idempotency-Key": "run 7"}
    with portal.client() as client, portal.client("bob@example.org") as other:
        first = client.post("/api/requests", json=DOCUMENT, headers=key)
        again = client.post("/api/requests", json=DOCUMENT, headers=key)
        changed = client.post("/api/requests", json={**DOCUMENT, "title": "x"}, headers=key)
        theirs = other.post("/api/requests", json=DOCUMENT, headers=key)
    assert first.json()["id"] == again.json()["id"]
    assert changed.status_code == 409
    assert theirs.status_code == 202
    assert theirs.json()["id"] != first.json()["id"]
    assert len(list(request_operations.list_requests(runtime))) == 2


@pytest.mark.parametrize(
    "changed",
    ["portal.submit.known_holdings.KnownHoldings.check", "portal.submit.submissions.admitted"],
)
def test_a_key_sent_again_after_the_archive_has_changed_gives_the_same_request(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    def refuse(*_: object) -> None:
        raise RequestRefusedError("products.0.name", "it is there no more.", "")

    key = {"Idempotency-Key": "run 8"}
    with portal.client() as client:
        first = client.post("/api/requests", json=DOCUMENT, headers=key)
        monkeypatch.setattr(changed, refuse)
        again = client.post("/api/requests", json=DOCUMENT, headers=key)
        other = client.post("/api/requests", json={**DOCUMENT, "title": "x"}, headers=key)
        new = client.post("/api/requests", json=DOCUMENT, headers={"Idempotency-Key": "run 9"})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert (other.status_code, new.status_code) == (409, 422)


def test_a_dry_run_counts_and_is_not_listed(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    with ScriptedManager(runtime, tmp_path).running(), portal.client() as client:
        answer = client.post("/api/requests?dry_run=true", json=DOCUMENT)
        assert client.get("/api/requests").json() == []
    assert answer.status_code == 200
    counts = answer.json()
    assert (counts["granules"], counts["tasks"], counts["bytes"]) == (32, 107, 123_456_789)
    assert "pixels of 0." in counts["raster"]
    assert "N to " in counts["raster"]
    assert counts["gaps"] == 1
    assert "not published" in counts["missing"][0]


def test_a_dry_run_that_is_not_counted_in_time_can_be_asked_for_later(
    portal: LivePortal, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.requests.api.PREVIEW_SECONDS", 0.1)
    with portal.client() as client:
        late = client.post("/api/requests?dry_run=true", json=DOCUMENT)
        (name,) = RequestTable(runtime.store).live()
        before = client.get(f"/api/requests/{name}/preview").json()
        ScriptedManager(runtime, tmp_path).tick()
        after = client.get(f"/api/requests/{name}/preview").json()
    assert late.status_code == 504
    assert f"/api/requests/{name}/preview" in late.json()["remedy"]
    assert (before["state"], before["granules"]) == ("submitted", 0)
    assert (after["state"], after["granules"]) == ("previewed", 32)


def test_a_dry_run_beside_many_is_told_where_to_ask(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.requests.api.PREVIEW_SECONDS", 0.0)
    turns = portal.inner.state(Requests).waiting
    take_all(turns, MOST_WAITING)
    with portal.client() as client:
        late = client.post("/api/requests?dry_run=true", json=DOCUMENT)
        (name,) = RequestTable(runtime.store).live()
        turns.release()
        for _ in range(2):  # a turn is given back
            last = client.post("/api/requests?dry_run=true", json=DOCUMENT)
            assert "Too many calls" not in last.text
    assert late.status_code == 504
    assert late.json()["detail"] == "Too many calls wait for a dry run."
    assert f"/api/requests/{name}/preview" in late.json()["remedy"]


def test_what_planning_refuses_is_told_with_its_field(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    set_row(runtime, name, dry_run=True, state=RequestState.REFUSED, message="time: too long.")
    key = {"Idempotency-Key": "one"}
    with portal.client() as client:
        first = client.post("/api/requests", json=DOCUMENT, headers=key).json()["id"]
        set_row(
            runtime,
            first,
            dry_run=True,
            state=RequestState.REFUSED,
            message="products.0: 60,000 tasks are over the limit. Raise SWATHMILL_MAX_TASKS.",
        )
        refused = client.post("/api/requests?dry_run=true", json=DOCUMENT, headers=key)
    assert refused.status_code == 422
    assert refused.json()["field"] == "products.0"
    assert "60,000 tasks" in refused.json()["detail"]


def test_owners_see_their_own_and_operators_all(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with (
        portal.client("bob@example.org") as other,
        portal.client("eve@example.org", "operator") as operator,
    ):
        for path in ("", "/results", "/failures", "/manifest", "/archive.zip", "/gaps"):
            assert other.get(f"/api/requests/{name}{path}").status_code == 404
        assert other.post(f"/api/requests/{name}/cancel").status_code == 404
        assert other.get("/api/requests?everybody=true").json() == []
        assert other.get("/api/operations").status_code == 403
        assert operator.get(f"/api/requests/{name}").status_code == 200
        assert len(operator.get("/api/requests?everybody=true").json()) == 1
    assert request_operations.load(runtime, name).order is None


def test_results_are_listed_fetched_and_verified(
    portal: LivePortal, runtime: Runtime, raster: bytes
) -> None:
    name = submitted(runtime)
    path = "MCD15A2.005/Lai 1km/Lai_1km_2012-01-01.tif"
    put_result(runtime, name, "MCD15A2.005/Lai 1km", "Lai_1km_2012-01-01.tif", raster)
    digest = hashlib.sha256(raster).hexdigest()
    with portal.client() as client:
        (item,) = client.get(f"/api/requests/{name}/results").json()
        assert (item["name"], item["size"], item["sha256"]) == (path, len(raster), digest)
        assert runtime.blobs.get_bytes(*split_blob(item["blob"])) == raster
        whole = client.get(item["url"])
        head = client.head(item["url"])
        part = client.get(item["url"], headers={"Range": "bytes=10-109"})
        beyond = client.get(item["url"], headers={"Range": f"bytes={len(raster)}-"})
        fresh = client.get(item["url"], headers={"If-None-Match": f'"{digest}"'})
        stale = client.get(item["url"], headers={"Range": "bytes=0-1", "If-Range": '"other"'})
        text = client.get(f"/api/requests/{name}/manifest?format=sha256").text
        manifest = client.get(f"/api/requests/{name}/manifest").json()
        archive = client.get(f"/api/requests/{name}/archive.zip")
    assert whole.content == raster
    assert whole.headers["content-length"] == head.headers["content-length"] == str(len(raster))
    assert whole.headers["etag"] == f'"{digest}"'
    assert head.content == b""
    assert (part.status_code, part.content) == (206, raster[10:110])
    assert part.headers["content-range"] == f"bytes 10-109/{len(raster)}"
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{len(raster)}"
    assert (fresh.status_code, fresh.content) == (304, b"")
    assert (stale.status_code, stale.content) == (200, raster)
    assert text == f"{digest}  {path}\n"
    assert [file["sha256"] for file in manifest["files"]] == [digest]
    assert zipfile.ZipFile(io.BytesIO(archive.content)).read(path) == raster


def test_a_text_goes_compressed_to_who_accepts_it_and_its_ranges_are_the_files(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    text = b"site,date,value\n" * 600_000
    put_result(runtime, name, "sites", "sites.csv", text)
    digest = hashlib.sha256(text).hexdigest()
    address = f"/api/requests/{name}/results/sites/sites.csv"
    gzip, plain = {"Accept-Encoding": "br, gzip"}, {"Accept-Encoding": "gzip;q=0, identity"}
    with portal.client() as client:
        with client.stream("GET", address, headers=gzip) as packed:
            sent = b"".join(packed.iter_raw())
        head = client.head(address, headers=gzip)
        whole = client.get(address, headers=plain)
        part = client.get(address, headers={**gzip, "Range": "bytes=10-109"})
        resumed = {**gzip, "Range": "bytes=10-109", "If-Range": packed.headers["etag"]}
        stale = client.get(address, headers=resumed)
        tags = [packed.headers["etag"], whole.headers["etag"]]
        fresh = [client.get(address, headers={"If-None-Match": tag}) for tag in tags]
    assert zlib.decompress(sent, wbits=31) == text
    assert len(sent) < len(text) / 20
    for answer in (packed, head, stale):
        assert answer.headers["content-encoding"] == "gzip"
        assert not {"content-length", "repr-digest"} & {*answer.headers}
    assert tags == [f'"{digest}-gzip"', f'"{digest}"']
    assert whole.content == text
    assert whole.headers["content-length"] == str(len(text))
    assert (part.status_code, part.content) == (206, text[10:110])
    assert (part.headers["etag"], "content-encoding" in part.headers) == (tags[1], False)
    assert (stale.status_code, stale.content) == (200, text)
    for answer, tag in zip(fresh, tags, strict=True):
        assert (answer.status_code, answer.headers["etag"], answer.content) == (304, tag, b"")
    for answer in (packed, whole, part, *fresh):
        assert "Accept-Encoding" in answer.headers["vary"]


def test_planning_and_writing_are_told_as_they_go_on(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    with portal.client() as client:
        assert client.get(f"/api/requests/{name}").json()["preparation"] is None
        at = Preparation(done=12, total=366, unit="days")
        set_row(runtime, name, state=RequestState.PLANNING, preparation=at)
        told = client.get(f"/api/requests/{name}").json()
    assert told["state"] == "planning"
    assert told["preparation"] == {"done": 12, "total": 366, "unit": "days"}


def test_results_come_while_the_rest_is_made(portal: LivePortal, runtime: Runtime) -> None:
    name = submitted(runtime)
    set_row(runtime, name, state=RequestState.RUNNING, outputs=2)
    with portal.client() as client:
        assert client.get(f"/api/requests/{name}/results").json() == []
        assert client.get(f"/api/requests/{name}/archive.zip").status_code == 404
        for number in (1, 2):
            put_result(runtime, name, "notes", f"{number}.txt", b"x")
            set_row(runtime, name, delivered=number)
            assert len(client.get(f"/api/requests/{name}/results").json()) == number
            assert client.get(f"/api/requests/{name}/results/notes/{number}.txt").content == b"x"
        missing = client.get(f"/api/requests/{name}/results/notes/3.txt")
    assert missing.status_code == 404
    assert "3.txt" in missing.json()["detail"]


@pytest.mark.parametrize("left", [b"", b"contenu"])
def test_a_lost_or_damaged_blob_is_told_before_anything_is_sent(
    portal: LivePortal, runtime: Runtime, left: bytes
) -> None:
    name = submitted(runtime)
    put_result(runtime, name, "a", "b.tif", b"content")
    (blob,) = runtime.blobs.names("artifacts")
    runtime.blobs.delete("artifacts", blob)
    if left:
        runtime.blobs.put_bytes("artifacts", blob, left)
    with portal.client() as client:
        answer = client.get(f"/api/requests/{name}/results/a/b.tif")
    assert answer.status_code == 410
    assert "again" in answer.json()["remedy"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_lost_result_is_known_to_be_and_there_once_it_is_made_again(
    portal: LivePortal, runtime: Runtime, raster: bytes, damaged: bool
) -> None:
    name = submitted(runtime)
    put_result(runtime, name, "a", "b.tif", raster)
    key = put_task_of_result(runtime, name)
    address = f"/api/requests/{name}/results/a/b.tif"
    with portal.client() as client, portal.browser() as browser:
        assert client.get(address).status_code == 200
        (blob,) = runtime.blobs.names("artifacts")
        runtime.blobs.delete("artifacts", blob)
        if damaged:  # which is known by the whole only, and then by its parts
            runtime.blobs.put_bytes("artifacts", blob, raster[:-9] + bytes(9))
        for answer in (
            client.get(address),
            client.get(address, headers={"Range": "bytes=5-9"}),
            client.head(address),
            browser.get(f"/requests/{name}/pictures/a/b.tif"),
            browser.get(f"/requests/{name}/view/a/b.tif"),
        ):
            assert answer.status_code == 410, answer
        assert "Submit the request again" in answer.text
        task = runtime.tasks.task(key)
        assert task is not None
        assert (task.state, task.interests) == (State.EXPIRED, (name,))
        (interest,) = request_operations.results(runtime, name)
        (file,) = interest.files
        runtime.blobs.put_bytes("artifacts", "made/again", raster)
        made = replace(file, blob="artifacts/made/again")
        again = replace(task, state=State.DONE, files=(made,))
        row = Upsert(row=task_table.task_row(key), entity=task_table.TASK.dump(again))
        runtime.store.transact(task_table.TABLE, shard(key), [row])
        assert client.get(address).content == raster, "not told yet"
        whole = client.get(f"/api/requests/{name}/archive.zip").content
        assert zipfile.ZipFile(io.BytesIO(whole)).read("a/b.tif") == raster
        put_interest(runtime, replace(interest, files=(made,)))
        assert browser.get(f"/requests/{name}/pictures/a/b.tif").status_code == 200


def test_failures_have_category_cause_remedy_and_attempts_their_log(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    timeouts = (Category.EXECUTION_TIMEOUT,) * 3
    key = put_failed_task(runtime, name, "MCD15A2.A2012001.h17v03.005.hdf", timeouts)
    set_row(
        runtime,
        name,
        phases={Phase.COLLECTION: PhaseCount(total=1, failed=1)},
        gaps=(Gap(what="MCD15A2.005 2012-01-01", reason="execution timeout"),),
        gap_count=1,
    )
    with portal.client() as client, portal.client("bob@example.org") as other:
        status = client.get(f"/api/requests/{name}").json()
        (failure,) = client.get(f"/api/requests/{name}/failures").json()
        task = client.get(failure["attempts_url"]).json()
        attempt = client.get(f"/api/tasks/{key}/attempts/2").json()
        absent = client.get(f"/api/tasks/{key}/attempts/9")
        malformed = client.get("/api/tasks/zz")
        theirs = other.get(f"/api/tasks/{key}")
    assert status["phases"]["collection"]["failed"] == 1
    assert status["gaps"] == [
        {"what": "MCD15A2.005 2012-01-01", "why": "execution timeout", "affects": []}
    ]
    assert status["failures"][0]["category"] == "execution timeout"
    assert failure["cause"]
    assert failure["remedy"]
    assert task["state"] == "failed"
    assert [one["outcome"] for one in task["attempts"]] == ["execution timeout"] * 3
    assert "attempt 2" in attempt["log"]
    assert (absent.status_code, malformed.status_code, theirs.status_code) == (404, 400, 404)


@pytest.mark.parametrize("order", ["pause", "resume"])
def test_an_order_reaches_the_manager(portal: LivePortal, runtime: Runtime, order: str) -> None:
    name = submitted(runtime)
    with portal.client() as client, portal.client("bob@example.org") as other:
        assert other.post(f"/api/requests/{name}/{order}").status_code == 404
        assert request_operations.load(runtime, name).order is None
        assert client.post(f"/api/requests/{name}/{order}").status_code == 202
        assert client.post(f"/api/requests/{name}/explode").status_code in (404, 405)
    assert request_operations.load(runtime, name).order == order


def test_cancelling_is_a_state_from_the_moment_of_the_order(
    portal: LivePortal, runtime: Runtime
) -> None:
    name = submitted(runtime)
    phases = {Phase.REPROJECTION: PhaseCount(total=7, done=3, cancelled=1)}
    set_row(runtime, name, state=RequestState.RUNNING, phases=phases)
    with portal.client() as client, portal.client("bob@example.org") as other:
        assert other.post(f"/api/requests/{name}/cancel").status_code == 404
        answer = client.post(f"/api/requests/{name}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (202, "cancelling")
        assert answer.json()["phases"]["reprojection"]["cancelled"] == 1
        assert client.post(f"/api/requests/{name}/cancel").status_code == 202
        refused = {
            order: client.post(f"/api/requests/{name}/{order}")
            for order in ("pause", "resume", "confirm", "retry")
        }
        token = client.headers["Authorization"].removeprefix("Bearer ")
    for order, told in refused.items():
        problem = told.json()
        assert (told.status_code, problem["detail"], problem["remedy"]) == (
            409,
            f"Request {name} is being cancelled.",
            "Wait until it is cancelled; then retry it or submit it again.",
        ), order
    with portal.browser() as browser:
        page = browser.get(f"/requests/{name}").text
    assert "3 of 4 unfinished tasks are still to be withdrawn" in page
    assert "3 of 7, 1 cancelled" in page
    assert "order-cancel" not in page
    row = request_operations.load(runtime, name)
    assert (row.state, row.order, row.paused) == (RequestState.CANCELLING, None, False)
    status = Client(url=portal.url, token=token).status(name)
    assert str(status) == "cancelling | reprojection 3/7 (1 cancelled)"


def test_storage_that_does_not_answer_is_503(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StoreError("gone")

    monkeypatch.setattr(runtime.store, "get", broken)
    with portal.client() as client:
        answer = client.get("/api/requests/one")
        assert client.get("/healthz").status_code == 503
    assert answer.status_code == 503
    assert answer.json()["remedy"]
    with portal.browser() as browser:
        assert "Try again</a>" in browser.get("/requests/one").text
        sent = browser.post("/requests/one/retry")
    assert sent.status_code == 503
    assert "Try again</a>" not in sent.text  # its address is no page


def test_a_fault_inside_is_500_and_keeps_its_secrets(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("key=abc")

    monkeypatch.setattr(runtime.store, "get", broken)
    with portal.client() as client:
        answer = client.get("/api/requests/one")
    assert answer.status_code == 500
    assert "abc" not in answer.text


def test_the_catalogue_is_searched(portal: LivePortal) -> None:
    with portal.client() as client:
        found = client.get("/api/products?q=leaf area MCD15A2").json()
    assert "MCD15A2" in {item["name"] for item in found}
    assert all("MCD15A2" in item["name"] for item in found)
    assert {"name": "Lai_1km", "kind": "continuous", "band": ""} in found[0]["layers"]


def test_the_description_names_every_call(portal: LivePortal) -> None:
    with portal.client() as client:
        described = client.get("/api/openapi.json").json()
        page = client.get("/docs", headers={"Accept": "text/html"}).text
    assert described["info"]["title"] == "Swathmill"
    for path in described["paths"]:
        assert path in page
    assert "/api/requests/{request_id}/results/{path}" in described["paths"]
    assert SECRET not in json.dumps(described)


def test_the_command_s_client_speaks_to_the_portal(
    portal: LivePortal, runtime: Runtime, tmp_path: Path
) -> None:
    with portal.client() as http:
        token = http.headers["Authorization"].removeprefix("Bearer ")
    client = Client(url=portal.url, token=token)
    manager = ScriptedManager(runtime, tmp_path)
    with manager.running():
        assert client.preview(parse_request(DOCUMENT))["granules"] == 32
    status = client.submit(parse_request(DOCUMENT))
    for _ in range(5):
        manager.tick()
    ended = client.status(status.id)
    assert ended.state == "complete"
    assert ended.phases[Phase.COLLECTION].reused == 1
    files = client.results(status.id)
    assert len(files) == 3
    fetched = client.download(files[0], tmp_path / "out")
    assert hashlib.sha256(fetched.read_bytes()).hexdigest() == files[0].sha256
    with pytest.raises(RefusedError):
        client.status("no-such-request")


def test_a_call_waits_until_a_request_has_changed(portal: LivePortal, runtime: Runtime) -> None:
    request = submitted(runtime)
    client = Client(url=portal.url, token=tokens.issue(SECRET, "ada@example.org", Role.SCIENTIST))
    first = client.status(request)
    assert first.etag
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.status, request, unlike=first)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        set_row(runtime, request, state=RequestState.RUNNING)
        assert waiting.result(10.0).state is RequestState.RUNNING


def test_a_call_ends_its_wait_when_the_portal_stops_or_time_is_up(
    portal: LivePortal, runtime: Runtime
) -> None:
    address = f"/api/requests/{submitted(runtime)}"
    with portal.client() as client:
        etag = client.get(address).headers["etag"]
        same = {"If-None-Match": f"W/{etag}"}
        unchanged = client.get(address, params={"wait": 0.1}, headers=same)
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(client.get, address, params={"wait": 60}, headers=same)
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
            portal.stopping.set()
            assert waiting.result(10.0).status_code == 304


@pytest.mark.parametrize(("text", "resolution"), [("EPSG:32631", 1000), ("EPSG:4326", 0.01)])
def test_the_crs_of_a_request_is_parsed_once_and_looked_up_by_its_holders_alone(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch, text: str, resolution: float
) -> None:
    parsed: list[str] = []
    looked_up: list[str] = []

    def parse(text: str) -> Crs:
        parsed.append(text)
        return Crs(text)

    known = lru_cache(parse)

    def look_up(text: str) -> Crs:
        looked_up.append(text)
        return known(text)

    monkeypatch.setattr(crs, "_known", look_up)
    with portal.client() as client:
        asked = {**DOCUMENT, "grid": {"crs": text, "resolution": resolution}}
        assert client.post("/api/requests", json=asked).status_code == 202
    assert parsed == [text]
    assert len(looked_up) <= 5, "the text, its code, the lattice, its copy, and grids"


def test_a_key_has_so_many_characters_at_most(portal: LivePortal) -> None:
    with portal.client() as client:
        for more in (0, 1):
            key = {"Idempotency-Key": "k" * (submissions.LONGEST_KEY + more)}
            answer = client.post("/api/requests", json=DOCUMENT, headers=key)
            assert answer.status_code == (400 if more else 202), answer.text
    assert "has 256 characters; 255 are the most" in answer.text
