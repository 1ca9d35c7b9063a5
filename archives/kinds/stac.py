"""STAC APIs, such as the Planetary Computer, for MODIS and VIIRS items that hold the granule.

Source: STAC API 1.0.0, "Item Search" (POST /search, `next` links with `body` and `merge`), and the
Planetary Computer's "Using tokens for data access" (GET `<sas>/token/<collection>` gives `token`
and `msft:expiry`; the token is appended to addresses at blob storage).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from archives.errors import (
    AnswerBrokenError,
    CredentialsRefusedError,
    NotPublishedError,
    SignatureExpiredError,
)
from archives.fetch.answers import bare_url, followed, is_signed
from archives.fetch.download import Downloader
from archives.fetch.parts import InParts
from archives.formats.umm import moment, whole
from archives.kinds.web import Web
from archives.model import Fetched, GranuleRecord, Holding, Progress, Ring, newest_editions
from modis.box import LonLatBox
from modis.collection import Collection
from modis.formats import GRANULE_SUFFIXES
from modis.granule_name import parse_granule_name

PLANETARY_COMPUTER_URL = "https://planetarycomputer.microsoft.com/api/stac/v1"
PLANETARY_COMPUTER_SIGN = "https://planetarycomputer.microsoft.com/api/sas/v1/token"
# One collection for Terra and Aqua: MOD13A1 and MYD13A1 are `modis-13A1-061`.
PLANETARY_COMPUTER_COLLECTION = "modis-{suffix}-{version}"

_PAGE = 250
_PAGES = 2000
_WINDOW = timedelta(days=16)
_SOON = 120.0  # seconds before its expiry at which a signature is renewed
_UNREADABLE = (LookupError, ValueError, TypeError, AttributeError)
# Multihash codes (multicodec table) at the start of `file:checksum`, with the digest's length.
_MULTIHASH = {"1220": "sha256", "1340": "sha512", "d50110": "md5"}


@dataclass(frozen=True, kw_only=True)
class Signing:
    """The address that gives signatures, and the ends of host names that accept them.

    A host name contains the port if the address does.
    """

    url: str
    hosts: tuple[str, ...] = (".blob.core.windows.net",)


class StacArchive:
    """The STAC API at `url`.

    `collection` names the STAC collection of a product, with `{product}`, `{suffix}` (the product
    without its satellite's three letters) and `{version}` (three digits). An API may lack granules
    (the Planetary Computer has gaps since June 2025), so a granule it does not list may be
    published.
    """

    authoritative = False

    def __init__(
        self,
        web: Web,
        downloader: Downloader,
        *,
        url: str = PLANETARY_COMPUTER_URL,
        name: str = "planetary-computer",
        collection: str = PLANETARY_COMPUTER_COLLECTION,
        signing: Signing | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._web = web
        self._downloader = downloader
        self._url = url.rstrip("/")
        self._collection = collection
        self._signing = signing
        self._clock = clock
        self._tokens: dict[str, tuple[str, float]] = {}

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """Implement `Archive.search`, some days at a time: an API may sort items in any way."""
        del box  # APIs join corners by straight lines on a map: ask by days alone
        wanted = Collection(collection)
        first = start_day
        while first <= end_day:
            last = min(end_day, first + _WINDOW - timedelta(days=1))
            records = (
                self._record(item, product, wanted)
                for item in self._items(self._name_of(product, wanted), first, last)
            )
            yield from newest_editions(
                r for r in records if r is not None and first <= r.start_day <= last
            )
            first = last + timedelta(days=1)

    def holdings(self, product: str) -> list[Holding]:
        """List the collections that the API describes for a product."""
        found = []
        for collection in map(Collection, ("5", "6", "61", "7", "1", "2")):
            name = self._name_of(product, collection)
            try:
                answer = self._web.get(f"{self._url}/collections/{name}")
            except NotPublishedError:
                continue
            first, last = _extent(answer.json())
            found.append(Holding(product=product, collection=collection, first=first, last=last))
        return sorted(found, key=lambda item: item.collection)

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        """Download the granule; sign its address if needed, renew an expired signature once."""
        name = self._name_of(record.product, record.collection)

        def download(url: str) -> Fetched:
            return self._downloader.granule(record, to, progress, url=url)

        try:
            return download(self._signed(record.url, name))
        except SignatureExpiredError:
            if self._tokens.pop(name, None) is None:
                raise
        except CredentialsRefusedError:
            # An API without a service for signatures may sign the addresses it lists.
            signed = None if self._signing else self._address(record, name)
            if signed is None or not is_signed(signed):
                raise
            return download(signed)
        return download(self._signed(record.url, name))

    def in_parts(self, record: GranuleRecord) -> InParts:
        """Return the granule's file, of which parts can be read; sign its address if needed."""
        name = self._name_of(record.product, record.collection)
        return self._downloader.in_parts(self._signed(record.url, name), record.size)

    def _address(self, record: GranuleRecord, name: str) -> str | None:
        """Find a granule's address as the API lists it now, with the signature records lack."""
        for item in self._items(name, record.start_day, record.start_day):
            try:
                found = next((a for a in _addresses(item) if _file_name(a[0]) == record.name), None)
            except _UNREADABLE:
                continue
            if found is not None:
                return found[0]
        return None

    def _name_of(self, product: str, collection: Collection) -> str:
        return self._collection.format(
            product=product, suffix=product[3:], version=collection.padded
        )

    def _items(self, name: str, first: date, last: date) -> Iterator[Mapping[str, Any]]:
        """Yield every item of a search, by its `next` links."""
        url = f"{self._url}/search"
        body: dict[str, Any] | None = {
            "collections": [name],
            "datetime": f"{first.isoformat()}T00:00:00Z/{last.isoformat()}T23:59:59Z",
            "limit": _PAGE,
        }
        seen: set[str] = set()
        for number in range(_PAGES):
            try:
                answer = self._web.get(url) if body is None else self._web.post(url, body)
            except NotPublishedError as error:
                if number:
                    raise AnswerBrokenError(f"{error}, though a page links to it") from error
                return
            page = answer.json()
            items = page.get("features") if isinstance(page, dict) else None
            if not isinstance(page, dict) or not isinstance(items, list):
                raise AnswerBrokenError(f"{bare_url(url)} answered without a list of features")
            names = {str(item.get("id", "")) for item in items if isinstance(item, dict)}
            if len(names) < len(items) or names & seen:
                raise AnswerBrokenError(
                    f"{bare_url(url)} lists items twice: its pages repeat; search again"
                )
            seen |= names
            yield from items
            try:
                following = _next(page, url, body)
                if following is None or not items:
                    _check_count(page, len(seen), url)
                    return
            except _UNREADABLE as error:
                raise AnswerBrokenError(
                    f"{bare_url(url)} lists a page that cannot be read "
                    f"({type(error).__name__}: {error})"
                ) from error
            url, body = following
        raise AnswerBrokenError(f"{bare_url(url)} has more than {_PAGES} pages")

    def _record(
        self, item: Mapping[str, Any], product: str, collection: Collection
    ) -> GranuleRecord | None:
        """Make a record from an item; None for another product or without a granule file."""
        try:
            return _record_of(item, product, collection, self.name)
        except _UNREADABLE as error:
            raise AnswerBrokenError(
                f"{bare_url(self._url)} lists an item that cannot be read "
                f"({type(error).__name__}: {error})"
            ) from error

    def _signed(self, url: str, name: str) -> str:
        """Append a signature that is valid for a while to the address."""
        signing = self._signing
        if signing is None or not urlsplit(url).netloc.lower().endswith(signing.hosts):
            return url
        token, ends = self._tokens.get(name, ("", 0.0))
        if ends < self._clock() + _SOON:
            answer = self._web.get(f"{signing.url.rstrip('/')}/{name}").json()
            try:
                token = str(answer["token"])  # type: ignore[index]
                ends = moment(str(answer["msft:expiry"])).timestamp()  # type: ignore[index]
            except (KeyError, ValueError, TypeError) as error:
                raise AnswerBrokenError(f"{signing.url} gave no signature ({error!r})") from None
            self._tokens[name] = (token, ends)
        return f"{url}{'&' if urlsplit(url).query else '?'}{token}"


def _record_of(
    item: Mapping[str, Any], product: str, collection: Collection, source: str
) -> GranuleRecord | None:
    found = (
        (url, asset, parts)
        for url, asset in _addresses(item)
        if (parts := parse_granule_name(_file_name(url))) is not None
        and (parts.product, parts.collection) == (product, collection)
    )
    url, asset, parts = next(found, ("", {}, None))
    if parts is None:
        return None
    said = item["properties"]
    end = said.get("end_datetime")
    checksum, kind = _multihash(str(asset.get("file:checksum") or ""))
    return GranuleRecord(
        name=_file_name(url),
        product=product,
        collection=collection,
        start=parts.start,
        end=max(parts.start, moment(str(end))) if end else parts.start + timedelta(minutes=5),
        tile=parts.tile,
        boundary=None if parts.tile else _rings(item.get("geometry")),
        production_time=parts.production_time,
        size=whole(asset.get("file:size") or 0),
        checksum=checksum,
        checksum_type=kind,
        url=url.partition("?")[0],
        day_night="",
        source=source,
    )


def _addresses(item: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield addresses of the granule files among an item's assets, with the asset.

    For an asset stored elsewhere (s3) the address is that of an alternate that can be fetched (STAC
    "Alternate Assets" 1.2).
    """
    for asset in item["assets"].values():
        alternates = (asset.get("alternate") or {}).values()
        for url in (str(each["href"]) for each in (asset, *alternates)):
            if url.startswith(("https://", "http://")) and _file_name(url).lower().endswith(
                GRANULE_SUFFIXES
            ):
                yield url, asset


def _file_name(url: str) -> str:
    return urlsplit(url).path.rpartition("/")[2]


def _rings(geometry: Mapping[str, Any] | None) -> tuple[Ring, ...] | None:
    """Return the outer rings of a GeoJSON polygon or multipolygon; None for anything else."""
    if not geometry or geometry.get("type") not in ("Polygon", "MultiPolygon"):
        return None
    parts = geometry["coordinates"]
    polygons = [parts] if geometry["type"] == "Polygon" else parts
    rings = []
    for polygon in polygons:
        ring = [(float(point[0]), float(point[1])) for point in polygon[0]]
        if len(ring) > 3 and ring[0] == ring[-1]:
            ring.pop()
        rings.append(tuple(ring))
    return tuple(rings) or None


def _multihash(text: str) -> tuple[str | None, str | None]:
    for code, kind in _MULTIHASH.items():
        if text.lower().startswith(code):
            return text[len(code) :].lower(), kind
    return None, None


def _next(
    page: Mapping[str, Any], url: str, body: dict[str, Any] | None
) -> tuple[str, dict[str, Any] | None] | None:
    """Return address and body of the request for the next page; None at the end."""
    link = next((x for x in page.get("links", ()) if x.get("rel") == "next"), None)
    if link is None:
        return None
    to = followed(url, str(link["href"]))
    if urlsplit(to)[:2] != urlsplit(url)[:2]:
        raise AnswerBrokenError(f"{bare_url(url)} sends us to {bare_url(to)} for its next page")
    if str(link.get("method", "GET")).upper() != "POST":
        return to, None
    more = link.get("body") or {}
    return to, {**(body or {}), **more} if link.get("merge") else dict(more)


def _check_count(page: Mapping[str, Any], got: int, url: str) -> None:
    total = page.get("numberMatched", (page.get("context") or {}).get("matched"))
    if isinstance(total, int) and got < total:
        raise AnswerBrokenError(
            f"{bare_url(url)} announced {total} items and listed {got}: the list shrank while it "
            "was read; search again"
        )


def _extent(collection: object) -> tuple[date | None, date | None]:
    try:
        first, last = collection["extent"]["temporal"]["interval"][0]  # type: ignore[index]
        return (
            moment(str(first)).date() if first else None,
            moment(str(last)).date() if last else None,
        )
    except (KeyError, IndexError, TypeError, ValueError):
        return None, None
