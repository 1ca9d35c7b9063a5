"""Fetch one file over HTTP: resumed after a cut, verified, visible only when complete.

This module follows redirects itself, not the HTTP library: headers are chosen for each hop, so
that a token is sent to its own hosts and never to the signed address they redirect to (CloudFront
and S3 refuse a request with two kinds of permission). After a cut the first address is asked again,
with Range and If-Range (RFC 9110, 13.1.5 and 14.2), because a signed address may have expired.
"""

import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from archives.errors import (
    ArchiveError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    DownloadFailedError,
    NotPublishedError,
    SignatureExpiredError,
    UnlikeRecordError,
    soonest,
)
from archives.fetch.answers import answer_error, bare_url, followed, see_granule
from archives.fetch.http import (
    AS_STORED,
    CONTENT_RANGE,
    HOPS,
    Credentials,
    Manners,
    announced_length,
    http_client,
    redirection,
    some_text,
    validator_of,
)
from archives.fetch.limits import HostLimits
from archives.fetch.partial import DownloadOrigin, Partial, check_room
from archives.fetch.parts import AddressInParts
from archives.fetch.timing import Timing
from archives.model import Fetched, GranuleRecord, Progress

_RESUMES = 20
_LEAST = 1024  # bytes per second; a slower transfer during the stall time is a stall


class _AgainError(Exception):
    """The bytes kept cannot be used: ask for the whole file."""


class _ExpiredError(Exception):
    """The permission in a redirect has expired; the first address gives a new one."""


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    url: str
    size: int
    progress: Progress | None


class Downloader:
    """Fetches files by HTTP and HTTPS; `context` replaces the default TLS certificates."""

    def __init__(
        self,
        credentials: Credentials,
        limits: HostLimits,
        *,
        timing: Timing | None = None,
        context: ssl.SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._manners = Manners(
            credentials=credentials,
            limits=limits,
            timing=timing or Timing(),
            context=context,
            sleep=sleep,
        )

    def get(
        self,
        urls: Sequence[str],
        to: Path,
        *,
        size: int,
        checksum: str | None,
        checksum_type: str | None,
        progress: Progress | None = None,
    ) -> Fetched:
        """Download the file to `to` from the first of the URLs that provides it.

        `size` is in bytes, 0 if the catalogue does not say. `checksum_type` is a kind of hash that
        `Partial` knows; an unknown kind is not checked. The bytes received so far stay beside
        `to` in `<to>.part` for the next call, from any process.

        Raises:
            ArchiveError: none of the URLs provided the file; the class tells the cause. Of several
                causes, the one that may pass soonest.
            OSError: ENOSPC; also before any byte is written.
        """
        to.parent.mkdir(parents=True, exist_ok=True)
        errors: list[ArchiveError] = []
        partial = Partial(to, checksum_type)
        try:
            for url in urls:
                wanted = _Wanted(url=url, size=size, progress=progress)
                try:
                    self._fetch(wanted, partial)
                    return partial.finish(size, checksum)
                except ArchiveError as error:
                    errors.append(error)
        finally:
            partial.close()
        if not errors:
            raise NotPublishedError(f"{to.name} has no address to be fetched from")
        raise soonest(errors)

    def granule(
        self, record: GranuleRecord, to: Path, progress: Progress | None = None, *, url: str = ""
    ) -> Fetched:
        """Download a granule as its record says, from its address or another one; as `get`."""
        return self.get(
            [url or record.url],
            to,
            size=record.size,
            checksum=record.checksum,
            checksum_type=record.checksum_type,
            progress=progress,
        )

    def in_parts(self, url: str, size: int) -> AddressInParts:
        """Return a file of which parts can be read, from one address; `size` as in `get`."""
        return AddressInParts(url, size, self._manners)

    def _fetch(self, wanted: _Wanted, partial: Partial) -> None:
        """Request the file, and request the rest after each cut as long as bytes arrive."""
        followed(wanted.url, "")  # raises for an invalid address
        if partial.origin is not None and partial.origin.url != bare_url(wanted.url):
            partial.clear()
        whole, signed = False, False
        with http_client(self._manners.timing, self._manners.context, **AS_STORED) as asking:
            for left in reversed(range(_RESUMES)):
                before = partial.length
                try:
                    self._ask(asking, wanted, partial)
                    return
                except _AgainError:
                    partial.clear()
                    if whole:
                        raise DownloadFailedError(
                            f"{bare_url(wanted.url)} sends neither the requested range nor the file"
                        ) from None
                    whole = True
                except _ExpiredError as expired:
                    if signed and expired.__cause__ is not None:
                        raise expired.__cause__ from None
                    signed = True
                except (ConnectionFailedError, ArchiveTimeoutError):
                    if partial.length <= before or not left:
                        raise
                    self._manners.sleep(self._manners.timing.pause)
        raise DownloadFailedError(f"{bare_url(wanted.url)} was cut {_RESUMES} times; try later")

    def _ask(self, client: httpx.Client, wanted: _Wanted, partial: Partial) -> None:
        """Request the missing bytes once, with all redirects; the bytes go to `partial`."""
        origin = partial.origin
        if (
            origin is not None
            and partial.length
            and partial.length == (wanted.size or origin.total)
        ):
            return
        if origin is not None and not origin.validator:
            partial.clear()
        ranges = _range_headers(partial)
        url = wanted.url
        for _ in range(HOPS):
            with self._manners.answer(client, url, ranges) as answer:
                to = redirection(answer, url)
                if to is None:
                    try:
                        self._take(answer, url, wanted, partial)
                    except SignatureExpiredError as error:
                        if url == wanted.url:
                            raise
                        raise _ExpiredError from error
                    return
            url = to
        raise DownloadFailedError(f"{bare_url(wanted.url)} redirects more than {HOPS} times")

    def _take(self, answer: httpx.Response, url: str, wanted: _Wanted, partial: Partial) -> None:
        """Judge an answer that is not a redirect, and keep its bytes."""
        if answer.status_code == 416 and partial.length:
            raise _AgainError
        if answer.status_code not in (200, 206):
            body = some_text(answer)
            raise answer_error(answer.status_code, url, answer.headers, body, now=time.time())
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise DownloadFailedError(f"{bare_url(url)} compressed the file without being asked to")
        pieces = self._paced(answer.iter_raw(), bare_url(url))
        if answer.status_code == 206:
            total = _check_range(answer, partial)
        else:
            pieces = see_granule(pieces, partial.to.name, bare_url(url))
            total = announced_length(answer)
        _compare_sizes(total, wanted.size, bare_url(url))
        total = total or wanted.size
        if answer.status_code == 200:
            partial.begin(
                DownloadOrigin(
                    url=bare_url(wanted.url), validator=validator_of(answer), total=total
                )
            )
        check_room(partial.to.parent, total - partial.length)
        self._keep(pieces, total, wanted, partial)

    def _keep(self, pieces: Iterator[bytes], total: int, wanted: _Wanted, partial: Partial) -> None:
        where = bare_url(wanted.url)
        for piece in pieces:
            if total and partial.length + len(piece) > total:
                partial.clear()
                raise DownloadFailedError(f"{where} sends more than the announced {total} bytes")
            partial.append(piece)
            if wanted.progress is not None:
                wanted.progress(partial.length, total)
        if partial.length < total:
            found = partial.length
            partial.clear()
            raise DownloadFailedError(f"{where} ended after {found} of {total} bytes")

    def _paced(self, pieces: Iterator[bytes], where: str) -> Iterator[bytes]:
        """Pass on the pieces as long as they do not arrive too slowly."""
        stall = self._manners.timing.stall
        since, got = time.monotonic(), 0
        for piece in pieces:
            got += len(piece)
            now = time.monotonic()
            if now - since > stall:
                if got < stall * _LEAST:
                    raise ArchiveTimeoutError(f"{where} sent only {got} bytes in {stall:g} s")
                since, got = now, 0
            yield piece


def _range_headers(partial: Partial) -> dict[str, str]:
    if partial.origin is None or not partial.length:
        return {}
    return {"Range": f"bytes={partial.length}-", "If-Range": partial.origin.validator}


def _check_range(answer: httpx.Response, partial: Partial) -> int:
    """Return the file's total bytes from an answer that continues `partial` (0: unknown)."""
    match = CONTENT_RANGE.match(answer.headers.get("content-range", ""))
    if match is None or int(match[1]) != partial.length or partial.origin is None:
        raise _AgainError
    # Some servers support Range but not If-Range, so compare what they say about the file.
    known = partial.origin.validator
    now = answer.headers.get("etag" if known.startswith('"') else "last-modified", known)
    total = 0 if match[3] == "*" else int(match[3])
    if now != known or (total and partial.origin.total and total != partial.origin.total):
        raise _AgainError
    return total


def _compare_sizes(total: int, size: int, where: str) -> None:
    if total and size and total != size:
        raise UnlikeRecordError(
            f"{where} announces {total} bytes, the catalogue says {size}: one is out of date"
        )
