"""The proxy of a package, at its bounds."""

import asyncio
import socket

import pytest

from tasks.network_hosts import AllowedHosts
from tests.own_loop import run_on_own_loop
from worker.sandbox import proxy
from worker.sandbox.proxy import MOST_CONNECTIONS

_ORDER = b"CONNECT example.org:443 HTTP/1.1\r\n\r\n"


def test_so_many_connections_are_open_at_once() -> None:
    async def talk() -> list[bytes]:
        listener = socket.create_server(("127.0.0.1", 0))
        served = proxy._Proxy(AllowedHosts())
        serving = asyncio.create_task(served.serve(listener))
        address = listener.getsockname()
        held = [await asyncio.open_connection(*address) for _ in range(MOST_CONNECTIONS)]
        answers = []
        held.append(await asyncio.open_connection(*address))
        for reader, writer in held[-1:-3:-1]:
            writer.write(_ORDER)
            answers.append(await reader.readline())
        for _, writer in held:
            writer.close()
        while served.connections:
            await asyncio.sleep(0)
        serving.cancel()
        return answers

    refused, let_in = run_on_own_loop(talk())
    assert let_in == b"HTTP/1.1 403 the package does not name the host example.org\r\n"
    assert refused == b"HTTP/1.1 503 more than 32 connections at once\r\n"


def test_a_log_has_so_many_lines_of_it_and_says_that_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(proxy, "_say", said.append)
    one = proxy._Proxy(AllowedHosts())
    for number in range(proxy._MOST_LINES + 3):
        one._note(f"line {number}")
    assert said[99:] == ["line 99", "more is not noted here"]
