"""The one way of a package to the network: a proxy that connects to named hosts alone.

The sandbox has a network of its own, in which nothing is but the proxy's listening socket; the
launcher makes it there and hands it over (`confine.py`). The proxy itself is a process of ours
outside. It knows one order, CONNECT to a host by its name (RFC 9110, 9.3.6). It looks the name up
once, and connects to the very address that it has judged: a name that means another address the
next time leads nowhere else. A redirect is an order like any other. What flows through a connection
is not looked at.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from processes import proctree
from processes.parents import die_with_parent
from tasks.network_hosts import AllowedHosts, Endpoint, read_endpoint
from tasks.shown_text import shown

MOST_CONNECTIONS = 32
_SECONDS = 30.0  # for an order to arrive, and for a host to answer
_HEAD = 2**14  # bytes of an order
_PIECE = 2**16
_MOST_LINES = 100  # in the log of a run


@contextmanager
def proxy(reach: AllowedHosts) -> Iterator[int]:
    """Run a proxy for one program; yield the socket over which it takes its listening socket."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        theirs.close()
        _be_proxy(parent, ours, reach)
    ours.close()
    try:
        yield theirs.fileno()
    finally:
        theirs.close()
        proctree.kill(pid)
        os.waitpid(pid, 0)


def _be_proxy(parent: int, from_sandbox: socket.socket, reach: AllowedHosts) -> None:
    """Serve until this process is killed; never return."""
    try:
        if die_with_parent(parent):
            _, found, _, _ = socket.recv_fds(from_sandbox, 1, 1)
            if found:
                listener = socket.socket(fileno=found[0])
                listener.setblocking(False)
                asyncio.run(_Proxy(reach).serve(listener))
    except BaseException as error:  # noqa: BLE001 - the caller is only a forked copy of the child
        _say(f"the proxy has ended: {error!r}")
    finally:
        os._exit(1)


def _say(what: str) -> None:
    with suppress(OSError):
        os.write(1, f"swathmill: network: {shown(what)}\n".encode())


class _RefusedError(Exception):
    """An order is not carried out: the status of the answer, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class _Proxy:
    reach: AllowedHosts
    connections: int = 0
    lines: int = 0

    async def serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._take, sock=listener, limit=_HEAD)
        await server.serve_forever()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        full = self.connections > MOST_CONNECTIONS
        try:
            try:
                theirs = await asyncio.wait_for(self._connected(reader, full), _SECONDS)
            except _RefusedError as error:
                self._note(f"refused: {error}")
                writer.write(_answer(error.status, str(error)))
                await writer.drain()
                return
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await _relay((reader, writer), theirs)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # one of the two is gone, or this was no order
        finally:
            self.connections -= 1
            writer.close()

    async def _connected(
        self, reader: asyncio.StreamReader, full: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        head = await reader.readuntil(b"\r\n\r\n")
        if full:
            raise _RefusedError(503, f"more than {MOST_CONNECTIONS} connections at once")
        endpoint = _ordered(head.partition(b"\r\n")[0].decode("latin-1"))
        if endpoint not in self.reach.endpoints:
            raise _RefusedError(403, f"the package does not name the host {endpoint}")
        for address in await self._addresses(endpoint):
            with suppress(OSError):
                connected = await asyncio.open_connection(address, endpoint.port)
                self._note(f"connected to {endpoint} at {address}")
                return connected
        raise _RefusedError(502, f"{endpoint} takes no connection")

    async def _addresses(self, endpoint: Endpoint) -> list[str]:
        """Look a name up, and return those of its addresses that it may have."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(
                endpoint.host, endpoint.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
        except OSError as error:
            raise _RefusedError(502, f"{endpoint} is not found: {error}") from None
        addresses = [str(where[0]) for *_, where in found]
        if permitted := [one for one in addresses if self.reach.permits(one)]:
            return permitted
        raise _RefusedError(403, f"{endpoint} has an address that is not public: {addresses[0]}")

    def _note(self, what: str) -> None:
        self.lines += 1
        if self.lines <= _MOST_LINES:
            _say(what)
        elif self.lines == _MOST_LINES + 1:
            _say("more is not noted here")


def _ordered(line: str) -> Endpoint:
    """Read the first line of an order."""
    method, _, rest = line.partition(" ")
    if method != "CONNECT":
        raise _RefusedError(405, "only CONNECT is known here: use https")
    target = rest.partition(" ")[0]
    try:
        if ":" not in target:
            raise ValueError(f"{target!r} names no port")
        return read_endpoint(target)
    except ValueError as error:
        raise _RefusedError(403, str(error)[:200]) from None


def _answer(status: int, why: str) -> bytes:
    # The reason is what most programs show.
    text = shown(why).encode("ascii", "replace")
    return b"HTTP/1.1 %d %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % (status, text)


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _relay(one: _Ends, other: _Ends) -> None:
    """Pass on what each end sends until both have ended, or one is gone."""
    try:
        with suppress(OSError):
            await asyncio.gather(_pass_on(one[0], other[1]), _pass_on(other[0], one[1]))
    finally:
        other[1].close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
