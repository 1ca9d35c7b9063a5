"""A TCP proxy between the processes and their servers: it delays, cuts, refuses and swallows."""

import asyncio
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16
CALLS = (b"GET ", b"PUT ", b"POST ", b"MERGE ", b"DELETE ", b"HEAD ", b"PATCH ")
BUSY = (
    b"HTTP/1.1 503 Server Busy\r\nx-ms-error-code: ServerBusy\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
KINDS = ("reset", "lost answer", "refuse", "delay", "hole")

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class Weather:
    """How a server's connections fare. `strength` is a probability for each piece of a stream,
    or the longest delay in seconds. A hole holds everything back until it is over, as a network
    that is cut and comes back; "there" holds back only what goes to the server, and "back" only
    what it answers. A "busy" server of HTTP answers calls with 503."""

    kind: str = "calm"
    strength: float = 0.0


class Proxy:
    """One listening port of `host` per server, in a thread of its own. `weather` may be set at any
    time. With `tls` it speaks TLS with who connects, and without it with the servers."""

    def __init__(
        self,
        seed: int,
        cut: Callable[[str], None],
        host: str = LOOPBACK,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.tls = tls
        self._host = host
        self._random = random.Random(seed)
        self._cut = cut
        self._loop = asyncio.new_event_loop()
        self._weather: dict[int, Weather] = {}
        self._ports: dict[int, int] = {}
        self._servers: list[asyncio.Server] = []
        self._open_now: set[asyncio.Task[None]] = set()  # asyncio itself forgets them
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def port_before(self, port: int) -> int:
        """The port that leads to a server's, opened at the first call."""
        if port not in self._ports:
            self._ports[port] = self._await(self._open(port))
        return self._ports[port]

    def set(self, port: int, weather: Weather) -> None:
        """The weather from now on for the connections of a server."""
        self._weather[port] = weather

    def close(self) -> None:
        """Stop listening and drop all connections."""
        self._await(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self, port: int) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connection(port, reader, writer)

        server = await asyncio.start_server(serve, self._host, 0, ssl=self.tls)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        me = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not me]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        me = asyncio.current_task()
        if me is not None:
            self._open_now.add(me)
            me.add_done_callback(self._open_now.discard)
        if self._now(port).kind == "refuse":
            self._abort("refused", writer)
            return
        try:
            there, back = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            self._abort("server down", writer)
            return
        both = (writer, back)
        ways = [
            asyncio.ensure_future(self._relay(port, reader, back, both, answers=False)),
            asyncio.ensure_future(self._relay(port, there, writer, both, answers=True)),
        ]
        try:
            await asyncio.gather(*ways)
        except (OSError, asyncio.CancelledError):
            for way in ways:
                way.cancel()
        finally:
            for one in both:
                one.transport.abort()

    async def _relay(
        self,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: tuple[asyncio.StreamWriter, ...],
        *,
        answers: bool,
    ) -> None:
        while data := await reader.read(CHUNK):
            weather = self._now(port)
            hit = self._random.random() < weather.strength
            if weather.kind == "reset" and hit:
                self._abort("reset", *both)
            if weather.kind == "lost answer" and answers and hit:
                self._abort("answer lost", *both)
            if weather.kind == "busy" and hit and not answers and data.startswith(CALLS):
                both[0].write(BUSY)
                await both[0].drain()
                both[0].close()
                return
            if weather.kind == "delay":
                await asyncio.sleep(self._random.uniform(0.0, weather.strength))
            while self._now(port).kind in ("hole", "back" if answers else "there"):
                await asyncio.sleep(0.05)
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:  # TLS has no half of a connection
            writer.close()

    def _now(self, port: int) -> Weather:
        return self._weather.get(port, Weather())

    def _abort(self, why: str, *writers: asyncio.StreamWriter) -> None:
        """Cut connections so that the other side sees a reset, and not an orderly end."""
        self._cut(why)
        for writer in writers:
            raw: socket.socket | None = writer.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
