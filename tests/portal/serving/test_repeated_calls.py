"""A call that is made again is answered as before, until a row has changed, and to nobody else."""

import time
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from portal.results.result_files import SHORTLY
from portal.serving import repeated_calls, tokens
from portal.serving.sessions import Sessions
from portal.serving.tokens import Person, Role
from portal.serving.traffic import HEADER, TRACE
from tasks.accounts import reader_links
from tasks.accounts.token_table import Scope, TokenTable, make_token
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.errors import StoreError
from tasks.requests import request_operations
from tasks.storage.store import LocalStore, Row
from tests.portal.scripted import (
    SECRET,
    LivePortal,
    client_of,
    put_result,
    set_row,
    settings,
)
from tests.portal.submissions import submitted
from tests.serving import serving_app
from tests.waiting import until

ADA, BEN = "ada@example.org", "ben@example.org"
OF_ROW = ("/api/requests/{}", "/jobs/{}", "/api/requests?limit=20")
OF_RESULTS = (
    "/api/requests/{}/results",
    "/api/requests/{}/failures",
    "/collections/{}/items?limit=10",
)


class Reads:
    """Counts reads of whole rows, which a repeated answer needs none of."""

    def __init__(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        get, scan = runtime.store.get, runtime.store.scan

        def counted_get(table: str, partition: str, row: str) -> Row | None:
            self.number += table in ("requests", "tasks")
            return get(table, partition, row)

        def counted_scan(
            table: str, partition: str, start: str, end: str, limit: int | None = None
        ) -> Iterator[Row]:
            self.number += table in ("requests", "tasks")
            return scan(table, partition, start, end, limit)

        monkeypatch.setattr(runtime.store, "get", counted_get)
        monkeypatch.setattr(runtime.store, "scan", counted_scan)

    def of(self, client: httpx.Client, path: str, **headers: str) -> tuple[httpx.Response, int]:
        """Call; return the answer, and how many rows were read for it."""
        before = self.number
        answer = client.get(path, headers=headers)
        return answer, self.number - before


@pytest.fixture
def reads(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(runtime, monkeypatch)


def same(answer: httpx.Response) -> tuple[object, ...]:
    """What a repeated answer has to have as before."""
    own = (HEADER.lower(), "date")
    headers = {name: value for name, value in answer.headers.items() if name not in own}
    return answer.status_code, headers, answer.content


@pytest.mark.parametrize("path", [*OF_ROW, *OF_RESULTS])
def test_a_repeated_call_is_answered_as_before_without_its_work(
    portal: LivePortal, runtime: Runtime, reads: Reads, raster: bytes, path: str
) -> None:
    name = submitted(runtime)
    put_result(runtime, name, "lai", "lai.2012-01-01.tif", raster)
    address = path.format(name)
    with structlog.testing.capture_logs() as lines, portal.client() as client:
        first, read = reads.of(client, address)
        again, read_again = reads.of(client, address)
        had = {"If-None-Match": first.headers["etag"]}
        unchanged, _ = reads.of(client, address, **had)
        still, read_still = reads.of(client, address, **had)
        whole, read_whole = reads.of(client, address)
        set_row(runtime, name, state=RequestState.RUNNING, delivered=1, outputs=7)
        changed, read_changed = reads.of(client, address, **had)
        had = {"If-None-Match": changed.headers["etag"]}
        again_unchanged, read_then = reads.of(client, address, **had)
        until(lambda: sum(line["event"] == "answered" for line in lines) == 7)
    assert read > 0
    assert (read_again, read_still, read_whole) == (0, 0, 0)
    assert same(again) == same(whole) == same(first)
    assert first.headers[HEADER] != again.headers[HEADER], "each call has its own id"
    assert first.headers.get(TRACE) == again.headers.get(TRACE)
    assert (unchanged.status_code, still.status_code, still.content) == (304, 304, b"")
    assert read_changed > 0
    assert (again_unchanged.status_code, again_unchanged.content, read_then) == (304, b"", 0)
    assert "content-length" not in still.headers
    if path in OF_ROW:
        assert changed.status_code == 200
        assert changed.content != first.content
    logged = {(line["route"], line.get("request")) for line in lines}
    assert len(logged) == 1, "a repeated call is logged as any"


def test_a_new_request_is_in_the_list_at_once(portal: LivePortal, runtime: Runtime) -> None:
    names = [submitted(runtime)]
    with portal.client() as client:
        for _ in range(3):
            listed = client.get("/api/requests?limit=20").json()
            assert sorted(one["id"] for one in listed) == sorted(names)
            names.append(submitted(runtime))


def test_another_address_and_other_headers_make_another_call(
    portal: LivePortal, runtime: Runtime
) -> None:
    for _ in range(3):
        submitted(runtime)
    path, ways = "/api/requests?limit=3", ("identity", "gzip")
    with portal.client() as client:
        for _ in range(2):
            assert [len(client.get(f"/api/requests?limit={n}").json()) for n in (1, 2)] == [1, 2]
            found = [client.get(path, headers={"Accept-Encoding": way}).headers for way in ways]
            assert [one.get("content-encoding") for one in found] == [None, "gzip"]
            other = client.get(path, headers={"Origin": "https://other.example.org"})
            assert other.headers["access-control-allow-origin"] == "*"


def test_lists_of_results_serve_for_a_moment_only(
    portal: LivePortal, runtime: Runtime, raster: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result is there shortly before the request's row counts it."""
    name = submitted(runtime)
    with portal.client() as client:
        assert client.get(f"/api/requests/{name}/results").json() == []
        put_result(runtime, name, "lai", "lai.2012-01-01.tif", raster)
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + SHORTLY)
        assert len(client.get(f"/api/requests/{name}/results").json()) == 1


def test_an_answer_that_is_made_again_as_before_is_kept_whole(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/requests/{submitted(runtime)}"
    with portal.client() as client:
        first = client.get(path)
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + SHORTLY)
        had = {"If-None-Match": first.headers["etag"]}
        assert client.get(path, headers=had).status_code == 304
        assert same(client.get(path)) == same(first)


def test_what_a_running_request_has_is_read_once_for_all_lists(
    portal: LivePortal, runtime: Runtime, raster: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = submitted(runtime)
    put_result(runtime, name, "lai", "lai.2012-01-01.tif", raster)
    read: list[str] = []
    really = request_operations.notable

    def notable(given: Runtime, request: str) -> list[Interest]:
        read.append(request)
        return really(given, request)

    monkeypatch.setattr(request_operations, "notable", notable)
    with portal.client() as client:
        for delivered in (1, 2):
            set_row(runtime, name, state=RequestState.RUNNING, delivered=delivered)
            for path in OF_RESULTS:
                client.get(path.format(name)).raise_for_status()
            assert len(read) == delivered
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + SHORTLY)
        client.get(OF_RESULTS[0].format(name)).raise_for_status()
        assert len(read) == 3, "they may change before the row does"


@pytest.mark.parametrize("path", [*OF_ROW, *OF_RESULTS])
def test_an_answer_is_for_whom_it_was_made(portal: LivePortal, runtime: Runtime, path: str) -> None:
    name = submitted(runtime, ADA)
    with portal.client(ADA) as ada, portal.client(BEN) as ben, portal.guest() as guest:
        theirs = ben.get(path.format(name))
        mine = [ada.get(path.format(name)) for _ in range(2)]
        assert [one.status_code for one in mine] == [200, 200]
        for client, status in ((ben, theirs.status_code), (guest, 401)):
            for _ in range(2):
                answer = client.get(path.format(name))
                assert answer.status_code == status
                assert name not in answer.text or status == 404
        assert same(ada.get(path.format(name))) == same(mine[0])


def test_a_token_that_ends_is_refused_at_once(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/requests/{submitted(runtime, ADA)}"
    table = TokenTable(runtime.store)
    text, row = make_token(
        runtime.store,
        owner=ADA,
        role="scientist",
        scope=Scope.READ,
        name="notebook",
        now=runtime.clock.now(),
        days=1.0,
    )
    with client_of(portal.url, {"Authorization": f"Bearer {text}"}) as program:
        assert [program.get(path).status_code for _ in range(2)] == [200, 200]
        assert table.revoke(ADA, row.id)
        assert program.get(path).status_code == 401
    with portal.client(ADA) as client:
        assert [client.get(path).status_code for _ in range(2)] == [200, 200]
        monkeypatch.setitem(tokens.LIFETIMES, tokens.Use.API, -1)
        assert client.get(path).status_code == 401


def test_what_groups_and_links_open_is_read_at_each_call(
    portal: LivePortal, runtime: Runtime, reads: Reads
) -> None:
    name = submitted(runtime, ADA)
    path = f"/api/requests/{name}"
    link = reader_links.issue(SECRET, name, runtime.clock.now() + 1000)
    with portal.client(ADA) as ada, portal.client(BEN) as ben, portal.visitor() as visitor:
        ada.put("/api/groups/team", json={"members": [BEN]}).raise_for_status()
        listed = "/api/requests?group=team"
        assert ben.get(listed).json() == []
        ada.patch(path, json={"group": "team"}).raise_for_status()
        visitor.get("/open", params={"token": link})
        for client in (ben, visitor):
            for _ in range(2):
                answer, read = reads.of(client, path)
                assert (answer.status_code, read > 0) == (200, True)
        assert [len(ben.get(listed).json()) for _ in range(2)] == [1, 1]
        ada.put("/api/groups/team", json={"members": []}).raise_for_status()
        ada.delete(f"{path}/links").raise_for_status()
        assert ben.get(listed).status_code == 404
        assert [client.get(path).status_code for client in (ben, visitor)] == [404, 404]


def test_a_call_that_waits_waits_each_time(portal: LivePortal, runtime: Runtime) -> None:
    path = f"/api/requests/{submitted(runtime)}"
    with portal.client() as client:
        had = {"If-None-Match": client.get(f"{path}?wait=0.3").headers["etag"]}
        for _ in range(2):
            began = time.monotonic()
            assert client.get(f"{path}?wait=0.3", headers=had).status_code == 304
            assert time.monotonic() - began >= 0.3


def test_trouble_of_storage_is_told(
    portal: LivePortal, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/requests/{submitted(runtime)}"

    def broken(*_args: object) -> None:
        raise StoreError("gone")

    with portal.client() as client:
        assert client.get(path).status_code == 200
        monkeypatch.setattr(runtime.store, "etags", broken)
        monkeypatch.setattr(runtime.store, "get", broken)
        answer = client.get(path)
    assert answer.status_code == 503
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_few_and_short_answers_are_kept(
    portal: LivePortal, runtime: Runtime, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = submitted(runtime)
    paths = [f"/api/requests?limit={number}" for number in (1, 2, 3)]
    monkeypatch.setattr(repeated_calls, "_MOST", 2)
    with portal.client() as client:
        for path in paths:
            client.get(path)
        read = [reads.of(client, path)[1] for path in reversed(paths)]
        assert [number > 0 for number in read] == [False, False, True]
        monkeypatch.setattr(repeated_calls, "_LARGEST", 100)
        long = [reads.of(client, f"/api/requests/{name}")[1] for _ in range(2)]
        assert min(long) > 0
        monkeypatch.setattr(repeated_calls, "_LARGEST", 2000)
        calls = [reads.of(client, paths[0], padding="x" * 2000)[1] for _ in range(2)]
        assert min(calls) > 0, "an answer to a long call is not kept either"


@pytest.mark.parametrize("parts", [1, 2])
def test_an_answer_in_parts_is_made_each_time(runtime: Runtime, parts: int) -> None:
    row = request_operations.load(runtime, submitted(runtime, ADA))
    called = 0
    app = FastAPI()
    app.state.settings = settings()
    app.state.portal = SimpleNamespace(sessions=Sessions(runtime.store))

    @app.get("/")
    def answer(request: Request) -> Response:
        nonlocal called
        called += 1
        repeated_calls.made_from_row(request, Person(owner=ADA, role=Role.SCIENTIST), row)
        return Response("a b") if parts == 1 else StreamingResponse(iter(("a ", "b")))

    assert isinstance(runtime.store, LocalStore)
    app.add_middleware(repeated_calls.Repeats, store=runtime.store)
    bearer = {"Authorization": f"Bearer {tokens.issue(SECRET, ADA)}"}
    with serving_app(app) as url, client_of(url, bearer) as client:
        assert [client.get("/").text for _ in range(2)] == ["a b", "a b"]
    assert called == parts


def test_another_scheme_makes_another_call(runtime: Runtime) -> None:
    """Answers have links with the scheme by which a proxy was called."""
    row = request_operations.load(runtime, submitted(runtime, ADA))
    app = FastAPI()
    app.state.settings = settings()
    app.state.portal = SimpleNamespace(sessions=Sessions(runtime.store))

    @app.get("/")
    def scheme(request: Request) -> str:
        repeated_calls.made_from_row(request, Person(owner=ADA, role=Role.SCIENTIST), row)
        return request.url.scheme

    assert isinstance(runtime.store, LocalStore)
    app.add_middleware(repeated_calls.Repeats, store=runtime.store)
    bearer = {"Authorization": f"Bearer {tokens.issue(SECRET, ADA)}"}
    for scheme_called in ("http", "https"):
        with TestClient(app, f"{scheme_called}://portal.example.org", headers=bearer) as client:
            assert [client.get("/").json() for _ in range(2)] == [scheme_called] * 2
