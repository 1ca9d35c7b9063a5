"""Translate an HTTP answer that is not the requested file into one error per cause."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from itertools import chain
from urllib.parse import parse_qs, urljoin, urlsplit, urlunsplit

from archives.errors import (
    AnswerBrokenError,
    ArchiveError,
    ArchiveTimeoutError,
    CredentialsRefusedError,
    DownloadFailedError,
    LicenceNotAcceptedError,
    NotGranuleError,
    NotPermittedError,
    NotPublishedError,
    ServerBusyError,
    SignatureExpiredError,
    TokenRefusedError,
)
from archives.formats.granule_file import begins_as_granule, instead_of

# Query parameters that sign a URL: AWS Signature 4, CloudFront, Azure SAS.
_SIGNATURES = {"x-amz-signature", "signature", "sig"}
_LICENCE = re.compile(
    r"\beula\b|licen[cs]e agreement|approve_app|accept.{0,40}terms", re.IGNORECASE
)
_HEAD = 64  # bytes inspected before any is passed on
_WHOLE = 1 << 16  # bytes read of what is no granule, to tell its size
_LONGEST = 86_400.0  # seconds of pause that an answer may ask for
_SAID = 200  # characters of a server's own text quoted in a message


def answer_error(
    status: int, url: str, headers: Mapping[str, str], body: str, *, now: float
) -> ArchiveError:
    """Return the error that an answer's status means; `now` (POSIX seconds) dates a Retry-After."""
    where = bare_url(url)
    if status in (429, 503):
        delay = retry_after(headers.get("retry-after", ""), now)
        asked = "" if delay is None else f" and asks for {_pause(delay)} of pause"
        return ServerBusyError(f"{where} answered {status}: it is busy{asked}", delay)
    if status in (404, 410):
        return NotPublishedError(f"{where} answered {status}: the archive does not hold it")
    if status in (401, 403):
        return _refusal(status, url, body)
    if status in (408, 504):
        return ArchiveTimeoutError(f"{where} answered {status}: the server behind it did not")
    return DownloadFailedError(f"{where} answered {status}{_said(body)}; try again later")


def _refusal(status: int, url: str, body: str) -> CredentialsRefusedError:
    where = bare_url(url)
    # Earthdata Login says "EULA Acceptance Failure" in a 403, with a `resolution_url` to click.
    if _LICENCE.search(body):
        click = _resolution(body) or "https://urs.earthdata.nasa.gov/profile"
        return LicenceNotAcceptedError(
            f"{where} wants its licence to be accepted first: sign in and accept it at {click}"
        )
    if is_signed(url):
        return SignatureExpiredError(
            f"{where} answered {status} to a signed address: the signature has expired; "
            "it is signed again at the next try"
        )
    if status == 401:
        return TokenRefusedError(
            f"{where} answered 401: the token is missing, expired or not valid; make a new one at "
            "https://urs.earthdata.nasa.gov/user_tokens and set it"
        )
    return NotPermittedError(
        f"{where} answered 403{_said(body)}: this account may not read the file; ask the archive "
        "for access"
    )


def see_granule(pieces: Iterator[bytes], name: str, where: str) -> Iterator[bytes]:
    """Pass on all pieces of a body after checking that it begins as a granule.

    So a page or a sentence in a granule's place is told by its first bytes, before the rest is
    fetched. `check_granule_file` checks the whole file.

    Raises:
        CredentialsRefusedError: it is HTML, which archives send with status 200 to ask for a
            sign-in.
        NotGranuleError: it is anything else.
    """
    first: list[bytes] = []
    wanted = _HEAD
    for piece in pieces:
        first.append(piece)
        found = sum(map(len, first))
        if found >= wanted:
            if begins_as_granule(first[0] if len(first) == 1 else b"".join(first)):
                break
            wanted = _WHOLE
            if found >= _WHOLE:
                break
    head = b"".join(first)
    if begins_as_granule(head):
        return chain(first, pieces)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<!--")):
        raise CredentialsRefusedError(
            f"{where} sent a web page instead of {name}, a sign-in page most likely; set or "
            "renew the archive's token"
        )
    size, more = min(len(head), _WHOLE), len(head) >= _WHOLE
    raise NotGranuleError(instead_of(name, f"{where} sent", head, size, more=more))


def is_signed(url: str) -> bool:
    """Tell whether a URL carries its own permission."""
    return any(name.lower() in _SIGNATURES for name in parse_qs(urlsplit(url).query))


def bare_url(url: str) -> str:
    """Strip a URL for messages and logs: no user, password, query or fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(a broken address)"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def followed(url: str, to: str) -> str:
    """Resolve an address, which may be relative, against a URL; raise AnswerBrokenError."""
    try:
        joined = urljoin(url, to)
        urlsplit(joined)
    except ValueError as error:
        raise AnswerBrokenError(f"{bare_url(url)} leads to no address: {error}") from None
    return joined


def retry_after(text: str, now: float) -> float | None:
    """Return the seconds a Retry-After asks for: a number, or a date (RFC 9110, 10.2.3).

    More than a day counts as a day: a wrong clock says decades.
    """
    try:
        asked = float(text)
    except ValueError:
        try:
            asked = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(0.0, asked), _LONGEST) if math.isfinite(asked) else None


def _pause(seconds: float) -> str:
    """Word a pause in the unit that people would take."""
    if seconds >= _LONGEST:
        return "a day or more"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _resolution(body: str) -> str:
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    link = said.get("resolution_url") if isinstance(said, dict) else None
    return link if isinstance(link, str) and link.startswith("https://") else ""


def _said(body: str) -> str:
    """Quote the text of a server's answer, if it has any."""
    text = " ".join(re.sub(r"<[^>]*>", " ", body).split())
    return f" ({text[:_SAID]})" if text else ""
