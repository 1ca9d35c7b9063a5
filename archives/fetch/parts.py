"""Read parts of a file that lies elsewhere, by position.

Over HTTP this goes the way of a download, by httpx: headers are chosen for each hop of a redirect,
so that the token goes to its own hosts alone. Other places are read by fsspec, which lists them,
too (`archives/fetch/files.py`). Each part is held to what the first one said of the file, so parts
of two editions never come together.
"""

import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import httpx

from archives.errors import (
    AnswerBrokenError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    DownloadFailedError,
    SignatureExpiredError,
    UnlikeRecordError,
)
from archives.fetch.answers import answer_error, bare_url, see_granule
from archives.fetch.http import (
    AS_STORED,
    CONTENT_RANGE,
    HOPS,
    Manners,
    http_client,
    redirection,
    some_text,
    validator_of,
)

_TRIES = 3
_AT_ONCE = 4

Range = tuple[int, int]
"""First byte, and the byte behind the last one."""


class WholeOnlyError(DownloadFailedError):
    """The place sends whole files alone; fetch the file."""


class InParts(Protocol):
    """A file elsewhere of which parts can be read."""

    @property
    def edition(self) -> str:
        """The text by which the file that was read differs from another edition; "" for none."""
        ...

    def size(self) -> int:
        """Return its bytes. Raises what `read` raises."""
        ...

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Read parts of the file, each whole.

        Raises:
            WholeOnlyError: parts cannot be had.
            UnlikeRecordError: the file is another one than before, or than its record says.
            ArchiveError: it cannot be read; the class tells the cause.
        """
        ...


class AddressInParts:
    """Implement `InParts` for an address; `size` is what its record says, 0 for nothing."""

    def __init__(self, url: str, size: int, manners: Manners) -> None:
        self._url = url
        self._size = size
        self._manners = manners
        self._validator: str | None = None
        self._led_to = url  # the address that answered last; its signature may serve again
        self._client = http_client(manners.timing, manners.context, **AS_STORED)
        weakref.finalize(self, self._client.close)

    @property
    def edition(self) -> str:
        """The validator that the server sends, or its date."""
        return self._validator or ""

    def size(self) -> int:
        """Return the file's bytes, asking for its first one if its record does not say."""
        if not self._size:
            self.read([(0, 1)])
        return self._size

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Implement `InParts.read`, over some connections at once."""
        if not ranges:
            return []
        # The first part of all says which file it is and where it lies.
        alone = 0 if self._validator and len(ranges) > 1 else 1
        first = [self._part(*one) for one in ranges[:alone]]
        if len(ranges) == alone:
            return first
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return first + list(pool.map(lambda one: self._part(*one), ranges[alone:]))

    def _part(self, begin: int, end: int) -> bytes:
        for left in reversed(range(_TRIES)):
            try:
                return self._ask(begin, end)
            except (ConnectionFailedError, ArchiveTimeoutError):
                if not left:
                    raise
                self._manners.sleep(self._manners.timing.pause)
            except SignatureExpiredError:
                if not left or self._led_to == self._url:
                    raise
                self._led_to = self._url
        raise AssertionError  # pragma: no cover - the last try returns or raises

    def _ask(self, begin: int, end: int) -> bytes:
        url = self._led_to
        for _ in range(HOPS):
            ranges = {"Range": f"bytes={begin}-{end - 1}"}
            with self._manners.answer(self._client, url, ranges) as answer:
                to = redirection(answer, url)
                if to is None:
                    found = self._take(answer, url, begin, end)
                    self._led_to = url
                    return found
            url = to
        raise DownloadFailedError(f"{bare_url(self._url)} redirects more than {HOPS} times")

    def _take(self, answer: httpx.Response, url: str, begin: int, end: int) -> bytes:
        """Judge an answer that is not a redirect, and read its bytes."""
        where = bare_url(url)
        if answer.status_code == 416:
            raise UnlikeRecordError(f"{where} is shorter than it was: it was replaced meanwhile")
        if answer.status_code == 200:
            # A sign-in page comes with this status, too; that is told as what it is.
            for _ in see_granule(answer.iter_raw(), where.rpartition("/")[2], where):
                break
            raise WholeOnlyError(f"{where} sends no parts of files: it is fetched whole")
        if answer.status_code != 206:
            text = some_text(answer)
            raise answer_error(answer.status_code, url, answer.headers, text, now=time.time())
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise DownloadFailedError(f"{where} compressed the file without being asked to")
        self._see_same(answer, where, begin, end)
        wanted = min(end, self._size) - begin
        found = bytearray()
        for piece in answer.iter_raw():
            found += piece
            if len(found) > wanted:
                break
        if len(found) != wanted:
            raise AnswerBrokenError(f"{where} sent {len(found)} bytes or more where {wanted} lie")
        return bytes(found)

    def _see_same(self, answer: httpx.Response, where: str, begin: int, end: int) -> None:
        """See that an answer is the part that was asked for, of the file that it was before."""
        match = CONTENT_RANGE.match(answer.headers.get("content-range", ""))
        if match is None or match[3] == "*":
            raise WholeOnlyError(f"{where} does not say which part it sends: it is fetched whole")
        total, validator = int(match[3]), validator_of(answer)
        if self._size and total != self._size:
            raise UnlikeRecordError(
                f"{where} has {total} bytes, {self._size} are expected: it was replaced meanwhile"
            )
        if self._validator not in (None, validator):
            raise UnlikeRecordError(f"{where} was replaced while it was read; begin again")
        if (int(match[1]), int(match[2])) != (begin, min(end, total) - 1):
            raise AnswerBrokenError(f"{where} sends another part than was asked for")
        if not validator:
            raise WholeOnlyError(
                f"{where} does not say which edition of the file it sends: it is fetched whole"
            )
        self._size, self._validator = total, validator
