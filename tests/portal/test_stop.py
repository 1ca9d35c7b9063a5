"""The portal's server ends when it is told to, and not at its next look."""

import signal
import socket
import threading

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from portal import http_server
from portal.http_server import Server, server_config


def test_it_ends_at_once_where_connections_wait_for_a_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_TURN_SECONDS", 3600.0)
    slept: list[str] = []

    async def sleeps(_server: uvicorn.Server, _sockets: list[socket.socket] | None = None) -> None:
        slept.append("uvicorn's own end begins with a sleep")

    monkeypatch.setattr(uvicorn.Server, "shutdown", sleeps)
    app = FastAPI()
    app.get("/livez")(lambda: "lives")
    ready, stopping = threading.Event(), threading.Event()
    server = Server(server_config(app, port=0, log_config=None), stopping, ready.set)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(60)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert client.get("/livez").json() == "lives"  # its connection is kept
        server.handle_exit(signal.SIGTERM, None)
        thread.join(60)
    assert not thread.is_alive()
    assert stopping.is_set()
    assert not slept
