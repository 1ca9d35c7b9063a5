"""Read granules in the bucket of their archive, by temporary keys that the archive gives.

An address of the bucket is signed by these keys and read like any other one. NASA's keys are good
within the buckets' own region of Amazon alone. An endpoint takes the Earthdata token, may redirect
to the sign-in and back, and answers with JSON: `accessKeyId`, `secretAccessKey`, `sessionToken`,
`expiration`. Keys stay in this process' memory, and are asked for again shortly before they expire.
Where the bucket or the endpoint refuses, the same file comes over HTTPS.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, quote, urldefrag, urlsplit

import httpx

from archives.errors import (
    AnswerBrokenError,
    ArchiveError,
    CredentialsRefusedError,
    DownloadFailedError,
    LicenceNotAcceptedError,
    NotPermittedError,
    SourcesSettingError,
    TokenRefusedError,
)
from archives.fetch.answers import answer_error, bare_url
from archives.fetch.download import Downloader
from archives.fetch.http import HOPS, Manners, http_client, redirection, some_text
from archives.fetch.parts import InParts, Range
from archives.formats.umm import moment
from archives.model import Fetched, GranuleRecord, Progress

log = logging.getLogger("archives.direct")

_SPARE_SECONDS = 600.0  # of a key's hour: what is begun with it ends in time
_SIGNED_SECONDS = 3600
_PAUSE_SECONDS = 60.0  # after an endpoint that gave no keys
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PAGES = ("<!doctype html", "<html", "<head")


@dataclass(frozen=True, kw_only=True)
class DirectLink:
    """Where a granule lies in a bucket, and the address that gives keys for it."""

    bucket: str
    key: str
    keys_at: str


def with_direct_link(url: str, s3_url: str, keys_at: str) -> str:
    """Write the place in a bucket behind the granule's address over HTTPS, which stays usable."""
    parts = urlsplit(s3_url)
    place = quote(f"{parts.netloc}{parts.path}")
    return f"{url}#s3={place}&keys={quote(keys_at, safe='')}"


def direct_link(url: str) -> DirectLink | None:
    """Read what `with_direct_link` wrote; None where there is nothing."""
    said = parse_qs(urldefrag(url).fragment)
    bucket, _, key = said.get("s3", [""])[0].partition("/")
    keys_at = said.get("keys", [""])[0]
    if not (key and keys_at and _BUCKET.fullmatch(bucket)):
        return None  # another name could lead a signed address to another host
    return DirectLink(bucket=bucket, key=key, keys_at=keys_at)


@dataclass(frozen=True, kw_only=True)
class _Keys:
    """Temporary keys, and the time (POSIX seconds) until which they are used."""

    options: dict[str, str] = field(repr=False)
    until: float


class _Kept:
    """The keys that this process has been given, by endpoint and permission.

    Buckets that refuse are not asked for a while, nor are those to which no keys were given: an
    endpoint that is away would be waited for with each granule.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[tuple[str, str], _Keys] = {}
        self._refused: dict[tuple[str, str], float] = {}

    def keys(self, endpoint: str, permission: str, ask: Callable[[], _Keys]) -> _Keys:
        """Return the keys of an endpoint, asked for if none are good for long enough."""
        with self._lock:
            known = self._keys.get((endpoint, permission))
            if known is None or known.until <= time.time():
                known = self._keys[endpoint, permission] = ask()
            return known

    def refuse(self, bucket: str, permission: str, until: float) -> None:
        """Note that a bucket is not to be read until then."""
        with self._lock:
            self._refused[bucket, permission] = until

    def is_refused(self, bucket: str, permission: str) -> bool:
        """Tell whether a bucket is not to be read yet."""
        with self._lock:
            return self._refused.get((bucket, permission), 0.0) > time.time()


_KEPT = _Kept()


class DirectReader:
    """Reads from buckets of one region of Amazon, in which this process runs.

    `service` is the address of S3, "" for Amazon's own.
    """

    def __init__(
        self, region: str, downloader: Downloader, manners: Manners, *, service: str = ""
    ) -> None:
        """Raise SourcesSettingError where the library that signs is not installed."""
        if find_spec("botocore") is None:
            raise SourcesSettingError(
                f"SWATHMILL_SOURCES has region={region}, which needs botocore: install "
                "swathmill[s3]"
            )
        self.region = region
        self._downloader = downloader
        self._manners = manners
        self._service = service

    def link(self, url: str) -> DirectLink | None:
        """Return the place in a bucket that a record names; None where it is not to be read.

        That is where none is named, where the token does not go to the address that gives keys, and
        where the bucket has just refused them.
        """
        found = direct_link(url)
        if found is None:
            return None
        permission = self._permission(found)
        if not permission or _KEPT.is_refused(found.bucket, permission):
            return None
        return found

    def fetch(
        self, link: DirectLink, record: GranuleRecord, to: Path, progress: Progress | None
    ) -> Fetched:
        """Copy a granule from its bucket, verified as a download; raise ArchiveError."""
        keys = self._keys(link)
        try:
            return self._downloader.granule(record, to, progress, url=self._signed(link, keys))
        except CredentialsRefusedError as error:
            raise self._refusal(link, keys) from error

    def in_parts(self, link: DirectLink, size: int, https: InParts) -> InParts:
        """Return a granule's file in its bucket, else `https`, of which parts can be read."""
        return _DirectInParts(self, link, size, https)

    def read(
        self, link: DirectLink, size: int, ranges: Sequence[Range]
    ) -> tuple[InParts, list[bytes]]:
        """Open a file in its bucket and read its first parts; raise ArchiveError."""
        keys = self._keys(link)
        opened = self._downloader.in_parts(self._signed(link, keys), size)
        try:
            return opened, opened.read(ranges)
        except CredentialsRefusedError as error:
            raise self._refusal(link, keys) from error

    def _permission(self, link: DirectLink) -> str:
        return self._manners.credentials.headers(link.keys_at).get("Authorization", "")

    def _keys(self, link: DirectLink) -> _Keys:
        permission = self._permission(link)
        try:
            return _KEPT.keys(link.keys_at, permission, lambda: self._ask(link.keys_at))
        except ArchiveError:
            _KEPT.refuse(link.bucket, permission, time.time() + _PAUSE_SECONDS)
            raise

    def _signed(self, link: DirectLink, keys: _Keys) -> str:
        """Sign an address of the bucket; only its query, which no message has, is of the keys."""
        # Only where it is used: it takes long to import.
        from botocore.auth import S3SigV4QueryAuth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        amazon = f"https://{link.bucket}.s3.{self.region}.amazonaws.com"
        place = f"{self._service}/{link.bucket}" if self._service else amazon
        wanted = AWSRequest("GET", f"{place}/{quote(link.key)}")
        own = Credentials(keys.options["key"], keys.options["secret"], keys.options["token"])
        S3SigV4QueryAuth(own, "s3", self.region, expires=_SIGNED_SECONDS).add_auth(wanted)
        return str(wanted.url)

    def _refusal(self, link: DirectLink, keys: _Keys) -> NotPermittedError:
        _KEPT.refuse(link.bucket, self._permission(link), keys.until)
        return NotPermittedError(
            f"s3://{link.bucket} refuses the keys of {bare_url(link.keys_at)}, which are good in "
            f"{self.region} alone, and for what this account may read; where this process runs "
            f"elsewhere, take #region={self.region} out of SWATHMILL_SOURCES"
        )

    def _ask(self, endpoint: str) -> _Keys:
        """Ask an endpoint for keys, over the sign-in if it redirects there."""
        url = endpoint
        with http_client(self._manners.timing, self._manners.context) as asking:
            for _ in range(HOPS):
                with self._manners.answer(asking, url, {"Accept": "application/json"}) as answer:
                    to = redirection(answer, url)
                    if to is None:
                        return _given(answer, url, endpoint)
                if urlsplit(to).path.rstrip("/").endswith("/approve_app"):
                    raise LicenceNotAcceptedError(
                        f"{bare_url(endpoint)} wants its application to be approved first: sign in "
                        "as the token's owner and approve it at "
                        "https://urs.earthdata.nasa.gov/profile"
                    )
                url = to
        raise DownloadFailedError(f"{bare_url(endpoint)} redirects more than {HOPS} times")


class _DirectInParts:
    """Read parts in the bucket, or over HTTPS where the first of them cannot be had there."""

    def __init__(self, reader: DirectReader, link: DirectLink, size: int, https: InParts) -> None:
        self._reader = reader
        self._link = link
        self._size = size
        self._https = https
        self._opened: InParts | None = None

    @property
    def edition(self) -> str:
        """The edition of the file that was read, by the place that gave it."""
        return "" if self._opened is None else self._opened.edition

    def size(self) -> int:
        """Return the bytes that the file is listed with."""
        return self._size

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """Implement `InParts.read`."""
        if self._opened is not None:
            return self._opened.read(ranges)
        try:
            self._opened, found = self._reader.read(self._link, self._size, ranges)
        except ArchiveError as error:
            tell_https(self._link, error)
            self._opened = self._https
            found = self._opened.read(ranges)
        return found


def tell_https(link: DirectLink, error: ArchiveError) -> None:
    """Log why a file of a bucket comes over HTTPS."""
    log.warning("over HTTPS, not from s3://%s: %s", link.bucket, error)


def _given(answer: httpx.Response, url: str, endpoint: str) -> _Keys:
    """Read the keys in an answer, or raise the error it means; never name what it holds."""
    where = bare_url(endpoint)
    text = some_text(answer)
    if answer.status_code != 200:
        raise answer_error(answer.status_code, url, answer.headers, text, now=time.time())
    if text.lstrip().lower().startswith(_PAGES):
        raise TokenRefusedError(
            f"{where} sends us to sign in: set SWATHMILL_EARTHDATA_TOKEN to a token that is not "
            "expired (https://urs.earthdata.nasa.gov/user_tokens)"
        )
    try:
        said = json.loads(text)
        options = {
            "key": str(said["accessKeyId"]),
            "secret": str(said["secretAccessKey"]),
            "token": str(said["sessionToken"]),
        }
        until = moment(str(said["expiration"])).timestamp() - _SPARE_SECONDS
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise AnswerBrokenError(
            f"{where} answered without keys that can be read ({type(error).__name__})"
        ) from None
    return _Keys(options=options, until=until)
