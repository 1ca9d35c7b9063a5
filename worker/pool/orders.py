"""What goes over a connection between a worker and a runner of the reduction pool.

A connection is one attempt:

1. the runner sends PLACE when it has a free slot;
2. the worker sends an `Order` as a line of JSON, then the bytes of its files without a link;
3. the runner sends messages, each a line of JSON, and an empty line now and then while it works.
   After `saved` come the bytes of the checkpoint, after `succeeded` those of its files in their
   order. `ended` is the last line.

Whoever wants to end the attempt closes the connection.
"""

from collections.abc import Iterator
from typing import Protocol

from tasks.bag.model import ArtifactFile
from tasks.bag.spec import ReduceSpec
from tasks.strict_model import StrictModel
from worker.sandbox.messages import LentFile

PLACE = b"place\n"
ALIVE = b"\n"
ALIVE_SECONDS = 5.0  # between two empty lines
SILENT_SECONDS = 30.0  # without a line, after which the other side counts as lost
LONGEST_LINE = 8 * 2**20
_CHUNK = 2**20


class Order(StrictModel):
    """An attempt of a reduction, for a runner; the fields are those of `Job`."""

    request: str
    key: str
    claim: str
    spec: ReduceSpec
    inputs: dict[int, tuple[ArtifactFile, ...]]
    lent: tuple[LentFile, ...]
    state: str = ""


class Readable(Protocol):
    """A file, or a connection as one."""

    def read(self, size: int, /) -> bytes:
        """Read up to so many bytes."""
        ...

    def readline(self, size: int, /) -> bytes:
        """Read a line of up to so many bytes."""
        ...


class BrokenOffError(Exception):
    """The other side ended the connection in the middle of something."""


def read_line(stream: Readable) -> bytes:
    """Read a line that is not empty; raise BrokenOffError where there is none."""
    while True:
        line = stream.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise BrokenOffError("a line breaks off, or is too long")
        if line != ALIVE:
            return line


def read_parts(stream: Readable, size: int) -> Iterator[bytes]:
    """Yield so many bytes; raise BrokenOffError where there are fewer."""
    left = size
    while left > 0:
        data = stream.read(min(_CHUNK, left))
        if not data:
            raise BrokenOffError(f"{left} bytes of a file are absent")
        left -= len(data)
        yield data
