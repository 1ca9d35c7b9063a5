"""The client of the portal's API: what it sends, and how it tells of what comes back."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from swathmill.access import local_client
from swathmill.answers import PackageVersion, RequestStatus
from swathmill.client import PUSH_SECONDS, RASTER_SECONDS, Client
from swathmill.commands import requests
from swathmill.errors import ApiError, BrokenOffError, RefusedError, StackError
from swathmill.stack.folder import DataFolder
from swathmill.stack.storage import embedded
from tasks.bag.model import RequestState
from tasks.request.document import parse_request
from tasks.service.connect import connect_storage
from tasks.storage.blobs import ARTIFACTS
from tasks.storage.file_blobs import FileBlobs
from tests.archives.servers import Served, file_server, redirect
from tests.swathmill.answered import read_result, read_status, status_json

DOCUMENT = {
    "title": "Leaves",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}
CONTENT = b"pixels" * 1000
RESULT = read_result(
    name="Lai_1km/2012-01-01.tif",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    url="/api/requests/r1/results/Lai_1km/2012-01-01.tif",
)


def client(handler: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client(
        url="http://127.0.0.1:9", token="the-token", transport=httpx.MockTransport(handler)
    )


def test_uploads_have_the_time_that_they_take(tmp_path: Path) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(422, json={"title": "Refused", "detail": "No."})

    file = tmp_path / "hills.tif"
    file.write_bytes(b"pixels")
    with pytest.raises(RefusedError, match="No"):
        client(handler).push_package(str(file))
    for files in ((str(file),), ()):
        with pytest.raises(RefusedError, match="No"):
            client(handler).push_raster(files, {"name": "hills"})
    package, raster, form = seen
    assert package.read() == b"pixels"
    assert b'filename="hills.tif"' in raster.read()
    assert b'name="name"' in form.read()
    assert [one.headers["Content-Type"][:20] for one in (raster, form)] == [
        "multipart/form-data;"
    ] * 2
    waits = [request.extensions["timeout"]["read"] for request in seen]
    assert waits == [PUSH_SECONDS, RASTER_SECONDS, RASTER_SECONDS]


def test_submitting_sends_the_document_and_the_token() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(202, json=status_json(id="r1", state="submitted"))

    status = client(handler).submit(parse_request(DOCUMENT))
    assert (status.id, status.state) == ("r1", RequestState.SUBMITTED)
    (request,) = seen
    assert request.headers["Authorization"] == "Bearer the-token"
    assert (request.method, request.url.path) == ("POST", "/api/requests")
    assert parse_request(json.loads(request.content)) == parse_request(DOCUMENT)


def test_an_unchanged_status_is_asked_for_by_its_etag_and_waited_for() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if "If-None-Match" in request.headers:
            return httpx.Response(304)
        return httpx.Response(200, json=status_json(id="r1"), headers={"ETag": '"7"'})

    one = client(handler)
    first = one.status("r1")
    assert one.status("r1", unlike=first) is first
    assert "wait" not in seen[0].url.params
    assert seen[1].headers["If-None-Match"] == '"7"'
    assert float(seen[1].url.params["wait"]) < one.timeout
    assert "etag" not in first.model_dump()


def test_a_dry_run_asks_for_one() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.params["dry_run"] == "true"
        return httpx.Response(200, json={"granules": 32, "tasks": 80})

    assert client(handler).preview(parse_request(DOCUMENT)) == {"granules": 32, "tasks": 80}


def test_a_refusal_names_field_and_remedy() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        del request
        return httpx.Response(
            422,
            json={
                "title": "Refused",
                "detail": "no such layer",
                "field": "a.b",
                "remedy": "Fix it.",
            },
            headers={"Content-Type": "application/problem+json"},
        )

    with pytest.raises(RefusedError) as caught:
        client(handler).status("r1")
    assert (caught.value.field, caught.value.problem) == ("a.b", "no such layer")
    assert (caught.value.remedy, caught.value.status) == ("Fix it.", 422)


def test_a_failing_portal_is_no_refusal() -> None:
    with pytest.raises(ApiError, match="out of order"):
        client(lambda _: httpx.Response(503, json={"detail": "out of order"})).status("r1")


def test_an_answer_that_is_no_problem_document_is_shown_as_it_is() -> None:
    with pytest.raises(RefusedError, match="<h1>nothing here</h1>"):
        client(lambda _: httpx.Response(404, text="<h1>nothing here</h1>")).status("r1")


def test_a_portal_that_does_not_answer_is_named_with_a_remedy() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(ApiError, match=r"127\.0\.0\.1:9 does not answer.*swathmill up"):
        client(handler).requests()


def test_a_download_arrives_whole_under_its_name(tmp_path: Path) -> None:
    told: list[int] = []
    path = client(lambda _: httpx.Response(200, content=CONTENT)).download(
        RESULT, tmp_path, progress=told.append
    )
    assert path == tmp_path / "Lai_1km" / "2012-01-01.tif"
    assert path.read_bytes() == CONTENT
    assert sum(told) == len(CONTENT)


def test_a_file_that_is_there_already_is_not_fetched_again(tmp_path: Path) -> None:
    target = tmp_path / RESULT.name
    target.parent.mkdir()
    target.write_bytes(CONTENT)
    assert client(lambda _: httpx.Response(500)).download(RESULT, str(tmp_path)) == target


def test_a_result_is_copied_from_the_storage_of_this_machine(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    blobs.create([ARTIFACTS])
    blobs.put_bytes(ARTIFACTS, "k/c/a.tif", CONTENT)
    result = RESULT.model_copy(update={"blob": f"{ARTIFACTS}/k/c/a.tif"})
    portal = replace(client(lambda _: httpx.Response(500)), blobs=blobs)
    path = portal.download(result, tmp_path / "out")
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o200
    path.write_bytes(b"edited by its owner")
    assert blobs.get_bytes(ARTIFACTS, "k/c/a.tif") == CONTENT


def test_commands_on_the_machine_of_a_stack_copy_from_its_files(tmp_path: Path) -> None:
    folder = DataFolder(path=tmp_path)
    folder.prepare()
    folder.secrets()
    assert local_client(folder).blobs is None
    runtime = connect_storage(embedded(folder))
    runtime.blobs.put_bytes(ARTIFACTS, "k/c/a.tif", CONTENT)
    blobs = local_client(folder).blobs
    assert blobs is not None
    assert blobs.get_bytes(ARTIFACTS, "k/c/a.tif") == CONTENT


@pytest.mark.parametrize("stored", [b"damaged", None])
def test_a_result_that_storage_damaged_or_lost_is_the_portals_to_tell(
    tmp_path: Path, stored: bytes | None
) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    blobs.create([ARTIFACTS])
    if stored:
        blobs.put_bytes(ARTIFACTS, "k/c/a.tif", stored)
    result = RESULT.model_copy(update={"blob": f"{ARTIFACTS}/k/c/a.tif"})
    told = httpx.Response(410, json={"detail": "Storage has lost it.", "remedy": "Submit again."})
    with pytest.raises(RefusedError, match="Storage has lost it"):
        replace(client(lambda _: told), blobs=blobs).download(result, tmp_path / "out")
    assert not [*(tmp_path / "out").rglob("*.tif")]


def test_a_damaged_download_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="damaged"):
        client(lambda _: httpx.Response(200, content=b"other")).download(RESULT, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_download_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield CONTENT[:3]
        raise httpx.RemoteProtocolError("peer closed connection")

    with pytest.raises(BrokenOffError, match=r"broke off.*Fetch it again"):
        client(lambda _: httpx.Response(200, content=parts())).download(RESULT, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    answers = [httpx.Response(200, content=parts()), httpx.Response(200, content=CONTENT)]
    path = client(lambda _: answers.pop(0)).download(RESULT, tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["../outside.tif", "{}/outside.tif", "a/../../outside.tif"])
def test_a_result_is_never_written_outside_its_folder(tmp_path: Path, name: str) -> None:
    evil = RESULT.model_copy(update={"name": name.format(tmp_path)})
    with pytest.raises(ApiError, match="outside"):
        client(lambda _: httpx.Response(200, content=CONTENT)).download(evil, tmp_path / "out")


def test_the_command_fetches_what_there_is_and_tells_what_storage_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = RESULT.model_copy(update={"name": "lost.tif", "url": "/lost"})
    listed = [item.model_dump(mode="json") for item in (lost, RESULT)]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/results"):
            return httpx.Response(200, json=listed)
        if request.url.path == "/lost":
            told = {"detail": "Storage has lost it.", "remedy": "Submit the request again."}
            return httpx.Response(410, json=told)
        return httpx.Response(200, content=CONTENT)

    monkeypatch.setattr(requests, "client_for", lambda *_: client(handler))
    with pytest.raises(StackError, match="Storage has lost it"):
        requests.results("r1", out=tmp_path)
    assert [path.name for path in tmp_path.rglob("*.tif")] == [Path(RESULT.name).name]


def test_a_download_goes_to_storage_without_the_token_and_only_if_its_certificate_is_right(
    tmp_path: Path,
) -> None:
    path = "/artifacts/1.tif"
    with file_server() as portal, file_server(tmp_path) as unknown, file_server() as storage:
        for server in (unknown, storage):
            server.files[path] = Served(data=CONTENT)
        portal.acts[RESULT.url] = [redirect(f"{one.url}{path}?sig=1") for one in (unknown, storage)]
        one = Client(url=portal.url, token="the-token")
        with pytest.raises(ApiError, match=r"storage at 127\.0\.0\.1 .*CERTIFICATE_VERIFY_FAILED"):
            one.download(RESULT, tmp_path / "results")
        assert unknown.asked == []
        one.download(RESULT, tmp_path / "results")
        (asked,) = storage.asked
    assert "authorization" not in asked.headers
    assert (tmp_path / "results" / RESULT.name).read_bytes() == CONTENT


def test_what_a_later_portal_says_besides_is_left_out() -> None:
    assert RequestStatus.model_validate(status_json(later=1)) == read_status()
    version = {
        "version": "1",
        "digest": "",
        "size": 0,
        "files": 0,
        "pushed": None,
        "manifest": {"later": 1},
        "archive_url": "",
    }
    assert PackageVersion.model_validate({**version, "later": 1}).manifest == {"later": 1}
