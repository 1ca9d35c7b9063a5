"""HTTP servers of tests, on this machine."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer

import uvicorn
from fastapi import FastAPI

from portal.http_server import Limits, server_config
from tests.waiting import until


class Quiet:
    """What makes a handler print nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Serve from a thread until the block ends; yields the server's address."""
    # By default it looks every half a second whether it is to end.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(uvicorn.Server):
    """A server that looks more often than each 0.1 s whether it is to end."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await asyncio.sleep(0.01)


@contextmanager
def serving_app(
    app: FastAPI, limits: Limits | None = None, proxies: str = "127.0.0.1"
) -> Iterator[str]:
    """Serve an application from a thread until the block ends; yields its address."""
    server = _Server(
        server_config(
            app,
            limits=limits,
            proxies=proxies,
            host="127.0.0.1",
            port=0,
            log_level="error",
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, what="the application is served")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
