"""One connection may not cost the portal much: sizes and times of heads, silent senders."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool

from portal import http_server
from portal.http_server import Limits
from tests.serving import serving_app
from tests.waiting import until

SIZES = Limits(head=4096, headers=20)
TIMES = Limits(seconds=0.3)


def served(limits: Limits) -> Iterator[str]:
    app = FastAPI()

    @app.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    @app.get("/livez")
    def livez() -> str:
        return "lives"

    with serving_app(app, limits) as address:
        yield address


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    yield from served(SIZES)


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    yield from served(TIMES)


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answer(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_a_header_without_end_is_refused_and_others_are_answered(url: str) -> None:
    """It was kept and joined anew with each piece: 54 MiB of it held up all other callers."""
    with connected(url) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nX: ")
        sent = 0
        try:
            while sent < 20 * 2**20:
                connection.sendall(b"a" * 65536)
                sent += 65536
        except OSError:
            pass
        assert sent < 20 * 2**20
        assert httpx.get(f"{url}/livez").json() == "lives"


@pytest.mark.parametrize(
    "head",
    [
        b"X: " + b"a" * 5000 + b"\r\n",
        b"".join(b"X%d: 1\r\n" % number for number in range(30)),
        b"".join(b"X%d: %s\r\n" % (number, b"a" * 500) for number in range(15)),
    ],
    ids=["long", "many", "together"],
)
def test_a_head_that_is_too_large_is_refused_with_431(url: str, head: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
        said = answer(connection)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b"4096 bytes and 20 headers; send fewer" in said
    with connected(url) as connection:  # in pieces
        connection.sendall(b"GET /" + b"a" * 1000)
        for _ in range(3):
            connection.sendall(b"a" * 1000)
        connection.sendall(b"a" * 100)  # the last: to what comes later, the answer is a reset
        assert b" 431 " in answer(connection)


def test_a_silent_connection_is_closed(impatient: str) -> None:
    with connected(impatient) as connection:
        assert answer(connection) == b""
    with connected(impatient) as connection:
        connection.sendall(b"GET /livez HTT")
        assert answer(connection).startswith(b"HTTP/1.1 408 ")


def test_a_body_whose_sender_falls_silent_is_given_up(impatient: str) -> None:
    with connected(impatient) as connection:
        connection.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        said = answer(connection)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"Nothing came for 0.3 s" in said


def test_a_sender_whose_body_nobody_reads_yet_is_not_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = threading.Event()
    was_silent = http_server._Http._was_silent

    def noted(self: http_server._Http) -> None:
        waited.set()
        was_silent(self)

    monkeypatch.setattr(http_server._Http, "_was_silent", noted)
    app = FastAPI()

    @app.post("/late")
    async def late(request: Request) -> int:
        await run_in_threadpool(waited.wait, 60)
        return len(await request.body())

    with serving_app(app, TIMES) as url:
        size = 3_000_000
        assert httpx.post(f"{url}/late", content=b"a" * size, timeout=60).json() == size
    assert waited.is_set()


def test_heads_of_one_connection_are_counted_apart(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads in two parts each: one that comes whole is not counted."""
    parts = Queue[int]()
    receive = http_server._Http.data_received

    def noted(self: http_server._Http, data: bytes) -> None:
        receive(self, data)
        parts.put(len(data))

    monkeypatch.setattr(http_server._Http, "data_received", noted)
    sent = come = 0
    with connected(url) as connection:
        for number in range(6):
            head = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1500
            rest = b"a" * 500 + b"\r\n\r\n"
            connection.sendall(head)
            sent += len(head)
            while come < sent:
                come += parts.get()
            connection.sendall(rest)
            sent += len(rest)
            said = b""
            while not said.endswith(b'"lives"'):
                part = connection.recv(4096)
                assert part, (number, said)
                said += part
            assert said.startswith(b"HTTP/1.1 200 ")


def test_each_piece_of_a_body_begins_the_wait_anew(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that takes long and whose sender is never silent is taken."""
    begun = []
    wait = http_server._Http._wait

    def noted(self: http_server._Http) -> None:
        begun.append(self)
        wait(self)

    monkeypatch.setattr(http_server._Http, "_wait", noted)
    with connected(url) as connection:
        connection.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
        until(lambda: len(begun) >= 2, what="the head")
        for number in range(3):
            connection.sendall(b"a")
            until(lambda: len(begun) >= 3 + number, what=f"piece {number}")  # noqa: B023
        connection.sendall(b"a")
        assert b" 200 " in connection.recv(4096)


def test_what_keeps_to_the_limits_is_answered(url: str) -> None:
    with httpx.Client() as client:  # one connection
        for size in (0, 10, 3_000_000):
            assert client.post(f"{url}/body", content=b"a" * size).json() == size
        assert client.get(f"{url}/livez", headers={"X": "a" * 3000}).json() == "lives"
    with connected(url) as connection:  # a body larger than a head, and a further call after it
        body = b"b" * 10_000
        call = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        connection.sendall(call + call + b"GET /livez HTTP/1.0\r\n\r\n")
        assert answer(connection).count(b"200 OK") == 3


def test_a_request_that_is_none_is_refused_with_400(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 400 ")


def test_every_server_of_the_portal_has_the_limits() -> None:
    """`server_config` alone configures uvicorn."""
    root = Path(__file__).parents[2]
    every = [
        path
        for folder in ("portal", "swathmill", "processes", "service_manager", "worker", "tests")
        for path in (root / folder).rglob("*.py")
        if "uvicorn.Config(" in path.read_text("utf-8") and path != Path(__file__)
    ]
    assert every == [root / "portal" / "http_server.py"]
