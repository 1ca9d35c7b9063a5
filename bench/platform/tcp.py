"""TCP between two workers: the time of a round trip, and the rate of a transfer.

One side answers (`swathmill bench answer`), the other one asks. A question is a line with the
number of bytes that the answer is to have.
"""

import socket
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat

from bench.platform.clients import OneCall

_CHUNK = bytes(2**20)
_PATIENCE = 30.0  # seconds
MOST_BYTES = 2 * 10**9


class _Answers(socketserver.StreamRequestHandler):
    """Answer each question of a connection."""

    disable_nagle_algorithm = True

    def handle(self) -> None:
        while line := self.rfile.readline(20):
            left = min(int(line), MOST_BYTES)
            while left:
                left -= self.connection.send(_CHUNK[:left])


class AnswerServer(socketserver.ThreadingTCPServer):
    """The side that answers."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), _Answers)


@dataclass(frozen=True, kw_only=True)
class TcpCalls:
    """Each client has a connection to the other worker and asks for `size` bytes at a time."""

    host: str
    port: int
    size: int

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        del client
        with socket.create_connection((self.host, self.port), timeout=_PATIENCE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield repeat(partial(self._ask, connection))

    def _ask(self, connection: socket.socket) -> int:
        connection.sendall(f"{self.size}\n".encode())
        left = self.size
        buffer = bytearray(2**20)
        while left:
            got = connection.recv_into(buffer, min(left, len(buffer)))
            if not got:
                raise ConnectionError("the other worker closed the connection")
            left -= got
        return self.size
