"""Carries the messages of one machine that has no Redis server: the same protocol, on one port.

`python -m swathmill.stack.message_server`; SWATHMILL_REDIS_URL has the port and the password.

Nothing is kept on disk, as by the Redis that `swathmill up` starts.
"""

import asyncio
import hmac
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from processes.ready import say_ready
from swathmill.stack.message_data import CommandError, MessageData, Reply
from swathmill.stack.ports import LOOPBACK

LARGEST_FROM_STRANGER = 1024
"""Bytes that a connection may send before it has given the password."""

_HELLO_WORDS = 5
"""Of a HELLO that gives a password."""
_POPS = {b"BLPOP": MessageData.lpop, b"BRPOP": MessageData.rpop}
_IGNORED = {b"SELECT", b"UNWATCH"}


class MessageServer:
    """What all connections share: the values, and who waits for items of lists."""

    def __init__(self, password: str) -> None:
        self.data = MessageData()
        self._password = password.encode()
        self._waiting: list[_Wait] = []

    def admits(self, words: Sequence[bytes]) -> bool:
        """Tell whether a command gives the password."""
        # AUTH [user] password, HELLO version AUTH user password
        given = words[4:5] if words[0].upper() == b"HELLO" else words[1:][-1:]
        return bool(given) and hmac.compare_digest(given[0], self._password)

    def await_item(self, wait: "_Wait") -> None:
        """Answer a connection when a list has an item."""
        self._waiting.append(wait)
        self.serve()

    def forget(self, connection: "_Connection") -> None:
        """Let a connection wait no more."""
        self._waiting = [wait for wait in self._waiting if wait.connection is not connection]

    def serve(self) -> None:
        """Give items to those who wait, the first one first."""
        for wait in self._waiting:
            found = wait.take(self.data)
            if found:
                self.forget(wait.connection)
                wait.connection.wake(found)


@dataclass(frozen=True)
class _Wait:
    """A connection that waits for an item of any of some lists, in their order."""

    connection: "_Connection"
    command: bytes
    keys: Sequence[bytes]

    def take(self, data: MessageData) -> list[Reply]:
        for key in self.keys:
            item = _POPS[self.command](data, key)
            if item is not None:
                return [key, item]
        return []


class _Connection(asyncio.Protocol):
    """One client: its commands in order, its transaction, and its wait."""

    def __init__(self, server: MessageServer) -> None:
        self._server = server
        self._read = bytearray()
        self._admitted = False
        self._version = 2  # of the protocol
        self._queued: list[list[bytes]] | None = None  # between MULTI and EXEC
        self._watched: dict[bytes, object] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waits = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """End its wait: an item given to it would be lost."""
        del exc
        self._end_wait()

    def data_received(self, data: bytes) -> None:
        self._read += data
        if not self._admitted and len(self._read) > LARGEST_FROM_STRANGER:
            self._transport.abort()
        else:
            self._go_on()

    def wake(self, reply: Reply) -> None:
        """Answer the command that waited."""
        self._end_wait()
        self._write(reply)
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Carry out what came, until it waits."""
        try:
            while not self._waits and (words := take_command(self._read)):
                try:
                    self._carry_out(words)
                except CommandError as error:
                    self._transport.write(f"-{error}\r\n".encode())
        except ValueError:  # no command
            self._transport.abort()

    def _carry_out(self, words: list[bytes]) -> None:
        name = words[0].upper()
        if not self._admitted:
            self._admit(words)
        elif name == b"EXEC":
            self._write(self._execute())
        elif self._queued is not None:
            self._queued.append(words)
            self._transport.write(b"+QUEUED\r\n")
        elif name in _POPS:
            self._wait_for(name, words[1:])
        else:
            self._write(self._at_once(name, words))

    def _admit(self, words: list[bytes]) -> None:
        name = words[0].upper()
        if name not in (b"AUTH", b"HELLO") or (name == b"HELLO" and len(words) < _HELLO_WORDS):
            raise CommandError("NOAUTH Authentication required.")
        if not self._server.admits(words):
            raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
        self._admitted = True
        self._write(True if name == b"AUTH" else self._hello(words))

    def _hello(self, words: list[bytes]) -> Reply:
        """Take the version of the protocol that a client asks for."""
        version = int(words[1]) if len(words) > 1 else self._version
        if version not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
        self._version = version
        return {b"server": b"redis", b"version": b"6.0.0", b"proto": version, b"role": b"master"}

    def _at_once(self, name: bytes, words: list[bytes]) -> Reply:
        if name == b"PING":
            return b"PONG"
        if name == b"HELLO":
            return self._hello(words)
        if name == b"MULTI":
            self._queued = []
        elif name == b"WATCH":
            self._watched |= {key: self._server.data.seen(key) for key in words[1:]}
        elif name not in _IGNORED:
            reply = self._server.data.run(words)
            self._server.serve()
            return reply
        return True

    def _execute(self) -> Reply:
        """Carry out a transaction, unless what it watches has changed."""
        queued, watched = self._queued or [], self._watched
        self._queued, self._watched = None, {}
        data = self._server.data
        if any(data.seen(key) != value for key, value in watched.items()):
            return None
        replies = [data.run(words) for words in queued]
        self._server.serve()
        return replies

    def _wait_for(self, name: bytes, words: list[bytes]) -> None:
        *keys, seconds = words
        self._waits = True
        if float(seconds):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(float(seconds), self.wake, None)
        self._server.await_item(_Wait(self, name, keys))

    def _end_wait(self) -> None:
        self._waits = False
        self._server.forget(self)
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _write(self, reply: Reply) -> None:
        self._transport.write(encode(reply, self._version))


def take_command(read: bytearray) -> list[bytes] | None:
    """Take the first whole command off what was read.

    Raises:
        ValueError: it is no list of strings.
    """
    words: list[bytes] = []
    place, count = 0, -1
    while len(words) != count:
        end = read.find(b"\r\n", place)
        if end < 0:
            return None
        kind, number = bytes(read[place : place + 1]), int(read[place + 1 : end])
        expected, least = (b"*", 1) if count < 0 else (b"$", 0)
        if kind != expected or number < least:
            raise ValueError(kind)
        place = end + 2
        if count < 0:
            count = number
            continue
        if len(read) < place + number + 2:
            return None
        words.append(bytes(read[place : place + number]))
        place += number + 2
    del read[:place]
    return words


def encode(reply: Reply, version: int) -> bytes:
    """Return the bytes of an answer, by a version of the protocol."""
    new = version > 2
    if reply is None:
        return b"_\r\n" if new else b"$-1\r\n"
    if reply is True:
        return b"+OK\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, float):
        text = b"%.17g" % reply
        return b",%b\r\n" % text if new else encode(text, version)
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    mark, count = b"*", len(reply)
    if isinstance(reply, Mapping):
        parts: list[Reply] = [word for pair in reply.items() for word in pair]
        mark, count = (b"%", len(reply)) if new else (b"*", len(parts))
    else:
        parts = list(reply)
        if not new:
            parts = [word for one in parts for word in (one if isinstance(one, tuple) else (one,))]
            count = len(parts)
    return b"%b%d\r\n%b" % (mark, count, b"".join(encode(one, version) for one in parts))


async def listen(port: int, password: str) -> asyncio.Server:
    """Carry messages as long as the loop runs."""
    shared = MessageServer(password)
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(shared), LOOPBACK, port)


async def serve(port: int, password: str) -> None:
    """Carry messages until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await listen(port, password)
    say_ready()
    await stop.wait()
    server.close()


def main() -> None:
    """Read where to listen, and serve."""
    url = urlsplit(os.environ["SWATHMILL_REDIS_URL"])
    asyncio.run(serve(url.port or 0, url.password or ""))


if __name__ == "__main__":
    main()
