"""Carries the messages of one machine that has no Redis server: the same protocol, on one port.

`python -m swathmill.stack.message_server`; SWATHMILL_REDIS_URL has the port and the password.

Nothing is kept on disk, as by the Redis that `swathmill up` starts.
"""

import asyncio
import hmac
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from processes.ready import say_ready
from swathmill.stack.message_data import CommandError, MessageData, Reply
from swathmill.stack.ports import LOOPBACK

LARGEST_FROM_STRANGER = 1024
"""Bytes that a connection may send before it has given the password."""

_POPS = {b"BLPOP": MessageData.lpop, b"BRPOP": MessageData.rpop}
_IGNORED = {b"CLIENT", b"SELECT", b"UNWATCH"}


class MessageServer:
    """What all connections share: the values, and who waits for items of lists."""

    def __init__(self, password: str) -> None:
        self.data = MessageData()
        self._password = password.encode()
        self._waiting: list[_Wait] = []

    def admits(self, words: Sequence[bytes]) -> bool:
        """Tell whether a command gives the password."""
        last = words[-1]
        return words[0].upper() == b"AUTH" and hmac.compare_digest(last, self._password)

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
        if words[0].upper() != b"AUTH":
            raise CommandError("NOAUTH Authentication required.")
        if not self._server.admits(words):
            raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
        self._admitted = True
        self._write(True)

    def _at_once(self, name: bytes, words: list[bytes]) -> Reply:
        if name == b"PING":
            return b"PONG"
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
        self._transport.write(encode(reply))


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


def encode(reply: Reply) -> bytes:
    """Return the bytes of an answer."""
    if reply is None:
        return b"$-1\r\n"
    if reply is True:
        return b"+OK\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    return b"*%d\r\n%b" % (len(reply), b"".join(map(encode, reply)))


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
