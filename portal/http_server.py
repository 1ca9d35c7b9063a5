"""The HTTP server in front of the portal: uvicorn, with bounds on what a connection may cost.

The parser keeps a head until it is whole, and joins a header's pieces anew with each that comes.
So heads have a size, a number of headers and a time, and a body's sender may not fall silent.
"""

import asyncio
import logging
import socket
import threading
from asyncio import TimerHandle
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from portal.serving.sending import LINE

_GRACE_SECONDS = 5
_TURN_SECONDS = 0.1
_TURNS_TO_CLOSE = 3  # of the loop, until a connection that was closed has told so
_BEHIND = 2**17  # bytes that a reader may be behind what is written to many
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a connection may cost.

    Attributes:
        head: Bytes of a request's line and headers together.
        headers: How many headers a request has at most.
        seconds: In which a head is there, after the connection or the first byte of a further
            request; and how long the sender of a body may be silent.
        connections: How many connections an address has at once; a trusted proxy any number.
    """

    head: int = 64 * 1024
    headers: int = 200
    seconds: float = 20.0
    connections: int = 1000


def server_config(
    app: FastAPI, *, limits: Limits | None = None, proxies: str = "", **more: Any
) -> uvicorn.Config:
    """Return the configuration of each server of the portal; `more` is uvicorn's.

    Of `proxies`, addresses and networks with commas between, it is believed for whom they call.
    Each proxy adds the address that it sees at the end of `X-Forwarded-For`, so the caller is the
    last one there that is no such proxy; what a caller has written there itself comes before.
    """
    trusted = tuple(
        ip_network(one, strict=False) for one in filter(None, map(str.strip, proxies.split(",")))
    )
    own = {"limits": limits or Limits(), "trusted": trusted, "open": Counter[str]()}
    limited = type("LimitedHttp", (_Http,), own)
    settings = {"timeout_graceful_shutdown": _GRACE_SECONDS, **more}
    return uvicorn.Config(
        app,
        http=limited,
        ws="none",
        # Sign-in links carry their token in the address, so addresses are not logged.
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted),
        forwarded_allow_ips=[str(one) for one in trusted],
        **settings,
    )


class _RefusedHeadError(Exception):
    """A head is over a limit; the parser passes it on as an error of its own."""


class Server(uvicorn.Server):
    """Calls `ready` once it listens, and sets `stopping` first when it ends: calls wait for it."""

    def __init__(
        self, config: uvicorn.Config, stopping: threading.Event, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._ready = ready
        self._ordered = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def main_loop(self) -> None:
        """Turn ten times a second, as uvicorn's loop does; the order to end wakes it."""
        self._loop = asyncio.get_running_loop()
        turn = 0
        while not await self.on_tick(turn):
            turn += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ordered.wait(), _TURN_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take the order to end, in a signal's handler: a sleeping loop would not notice it."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ordered.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Have calls that wait end, and then all others; where there are none, end at once."""
        self._stopping.set()
        for server in self.servers:
            server.close()
        for connection in [*self.server_state.connections]:
            connection.shutdown()
        for _ in range(_TURNS_TO_CLOSE):
            await asyncio.sleep(0)
        if not self.server_state.connections and not self.server_state.tasks and not sockets:
            await self.lifespan.shutdown()
            return
        await super().shutdown(sockets)  # which first sleeps for 0.1 s
        if self.force_exit:  # a second order: calls are broken off, and each would log that
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


class _Line:
    """Implements `portal.serving.sending.Line`: writes past ASGI."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def write(self, piece: bytes) -> bool:
        """Write a piece; False if its reader is gone or does not keep up."""
        cycle, transport = self._cycle, self._cycle.transport
        if not cycle.chunked_encoding or cycle.response_complete:
            raise RuntimeError("no answer is being sent in pieces")
        if cycle.disconnected or transport.is_closing():
            return False
        transport.write(piece)
        return transport.get_write_buffer_size() <= _BEHIND


class _Http(HttpToolsProtocol):
    limits = Limits()
    trusted: tuple[Network, ...] = ()
    open: Counter[str]  # connections by address, of all of a server

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._in_head = False  # of a request whose first byte has come
        self._head = 0  # bytes of it so far, but those that came together with another's body
        self._begun = 0  # requests that began in what has just come
        self._refusal: tuple[int, str] | None = None
        self._timer: TimerHandle | None = None
        self._peer = ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        address = ip_address(self.client[0]) if self.client else None
        if address is not None and not any(address in network for network in self.trusted):
            self._peer = str(address)
            self.open[self._peer] += 1
            if self.open[self._peer] > self.limits.connections:
                self._refuse(429, "Your address has too many connections; use those that are open.")
                return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._peer:
            self.open[self._peer] -= 1
            if not self.open[self._peer]:
                del self.open[self._peer]
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head, self._begun = self._in_head, 0
        idle = not was_in_head and (self.cycle is None or not self.cycle.more_body)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and (was_in_head or (idle and self._begun == 1)):
            self._head += len(data)
            if self._head > self.limits.head:
                self._refuse(431, self._too_large)
        elif self._timer is not None and not self._in_head:
            self._wait()  # for more of the body

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head = True, 0
        self._begun += 1
        if self._timer is None:
            self._wait()

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.head or len(self.headers) > self.limits.headers:
            self._refusal = 431, self._too_large
            raise _RefusedHeadError
        self._in_head = False
        self._wait()
        super().on_headers_complete()
        if self.cycle is not None:  # its task begins later
            self.cycle.scope["extensions"] = {LINE: {"line": _Line(self.cycle)}}

    def on_message_complete(self) -> None:
        self._wait_no_more()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._refusal or (400, msg)))

    @property
    def _too_large(self) -> str:
        return (
            f"A request's line and headers may have {self.limits.head} bytes and "
            f"{self.limits.headers} headers; send fewer, or put what is long into the body."
        )

    def _wait(self) -> None:
        self._wait_no_more()
        self._timer = self.loop.call_later(self.limits.seconds, self._was_silent)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _was_silent(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        began = self._in_head or self.cycle is not None
        if self.flow.read_paused:  # nobody has asked for more
            self._wait()
        elif not began or (self.cycle is not None and self.cycle.response_started):
            self.transport.close()
        else:
            self._refuse(408, f"Nothing came for {self.limits.seconds:g} s; send it again.")

    def _refuse(self, status: int, text: str) -> None:
        self._wait_no_more()
        head = [
            STATUS_LINE[status],
            b"content-type: text/plain; charset=utf-8\r\n",
            b"content-length: " + str(len(text)).encode("ascii") + b"\r\n",
            *([b"retry-after: 5\r\n"] if status == 429 else []),
            b"connection: close\r\n\r\n",
        ]
        self.transport.write(b"".join([*head, text.encode("ascii")]))
        self.transport.close()
