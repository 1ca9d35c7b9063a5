"""NASA's Common Metadata Repository: one search over the granules of every data centre.

This module calls it over HTTP and does not use the `earthaccess` package: it needs only two
documented calls, a search must not sign in, and the downloads need their own redirect loop anyway.
Source: the CMR Search API (cmr.earthdata.nasa.gov/search/site/docs/search/api), "Search After".
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from archives.errors import AnswerBrokenError, ArchiveError, ArchiveTimeoutError, soonest
from archives.fetch.answers import bare_url
from archives.fetch.direct import DirectReader, tell_https, with_direct_link
from archives.fetch.download import Downloader
from archives.fetch.parts import InParts
from archives.formats.umm import (
    CmrCollection,
    beginning,
    collection_of,
    concept_of,
    direct_url,
    record_of,
)
from archives.kinds.web import Answer, Web
from archives.model import Fetched, GranuleRecord, Holding, Progress, newest_by_day
from modis.box import LonLatBox
from modis.collection import Collection
from modis.ocean_name import is_l2p
from modis.sphere import wrap_longitude

CMR_URL = "https://cmr.earthdata.nasa.gov/search"

_PAGE = 2000  # the API's largest page
_EARLY = timedelta(days=1)
"""How far a nominal start day may lie before its time span; there is no limit after it."""

_NEVER = datetime(1, 1, 1, tzinfo=UTC)
_WIDER = 3.0  # degrees
_POLAR = 75.0  # degrees of latitude beyond which boxes go all around


class CmrArchive:
    """The CMR at `url`.

    Its list is complete: every published granule of a collection it serves is listed. With `direct`
    granules are read in buckets of the region in which this process runs, where their collection
    names one there and the bucket gives them; else over HTTPS.
    """

    authoritative = True

    def __init__(
        self,
        web: Web,
        downloader: Downloader,
        *,
        url: str = CMR_URL,
        name: str = "cmr",
        direct: DirectReader | None = None,
    ) -> None:
        self.name = name
        self._direct = direct
        self._web = web
        self._downloader = downloader
        self._url = url.rstrip("/")
        self._collections: dict[str, tuple[CmrCollection, ...]] = {}

    def refresh(self) -> None:
        """Forget the known collections, so that they are asked for again."""
        self._collections.clear()

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """Implement `Archive.search`, page by page; nothing if the collection is not served."""
        wanted = Collection(collection)
        asked = self._asked(product, wanted, start_day, end_day, box)
        if not asked:
            return
        parameters = [
            *asked,
            ("sort_key[]", "start_date"),
            ("sort_key[]", "producer_granule_id"),
            ("page_size", str(_PAGE)),
        ]
        found = self._ordered(parameters, product, wanted)
        yield from newest_by_day(r for r in found if start_day <= r.start_day <= end_day)

    def stamp(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> str:
        """Implement `Stamped.stamp` with one call: the number of granules and the last revision.

        Whatever is added or changed has a later revision; removals change the number.
        """
        asked = self._asked(product, Collection(collection), start_day, end_day, box)
        if not asked:
            return "no collection"
        answer = self._web.get(
            f"{self._url}/granules.umm_json",
            [*asked, ("sort_key[]", "-revision_date"), ("page_size", "1")],
        )
        items = _items(answer)
        hits = answer.headers.get("cmr-hits", "")
        try:
            last = [(i["meta"]["concept-id"], i["meta"]["revision-date"]) for i in items]
        except (KeyError, TypeError):
            return ""
        return f"{asked} {hits} {last}" if hits and (last or hits == "0") else ""

    def _asked(
        self, product: str, wanted: str, start_day: date, end_day: date, box: LonLatBox | None
    ) -> list[tuple[str, str]]:
        """Return the parameters of a search for a collection's granules; empty if not served."""
        concepts = [c.concept for c in self._known(product) if c.collection == wanted]
        if not concepts:
            return []
        asked = [
            *(("collection_concept_id[]", concept) for concept in concepts),
            ("temporal", f"{start_day:%Y-%m-%d}T00:00:00Z,{end_day:%Y-%m-%d}T23:59:59Z"),
        ]
        if box is not None:
            asked.append(("bounding_box", _around(box)))
        return asked

    def holdings(self, product: str) -> list[Holding]:
        """List the collections of a product that have granules, from all data centres."""
        spans: dict[Collection, list[CmrCollection]] = {}
        for each in self._known(product):
            spans.setdefault(each.collection, []).append(each)
        return [
            Holding(
                product=product,
                collection=collection,
                first=min((c.first for c in same if c.first), default=None),
                last=None
                if any(c.last is None for c in same)
                else max(c.last for c in same if c.last),
            )
            for collection, same in sorted(spans.items())
        ]

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        """Fetch the granule from its bucket, or download it from the address that the CMR gave."""
        failures: list[ArchiveError] = []
        link = self._direct.link(record.url) if self._direct else None
        if self._direct is not None and link is not None:
            try:
                return self._direct.fetch(link, record, to, progress)
            except ArchiveError as error:
                tell_https(link, error)
                failures.append(error)
        try:
            return self._downloader.granule(record, to, progress)
        except ArchiveError as error:
            raise soonest([*failures, error]) from error

    def in_parts(self, record: GranuleRecord) -> InParts:
        """Return the granule's file, of which parts can be read."""
        https = self._downloader.in_parts(record.url, record.size)
        link = self._direct.link(record.url) if self._direct else None
        if self._direct is None or link is None or not record.size:
            return https
        return self._direct.in_parts(link, record.size, https)

    def _with_direct(self, item: dict[str, Any], record: GranuleRecord) -> GranuleRecord:
        """Note beside the record's address where the granule lies in a bucket of the region."""
        if self._direct is None:
            return record
        known = {each.concept: each for each in self._known(record.product)}
        its = known.get(concept_of(item))
        s3_url = direct_url(item, record.name)
        if its is None or its.region != self._direct.region or not its.keys_at or not s3_url:
            return record
        return replace(record, url=with_direct_link(record.url, s3_url, its.keys_at))

    def _known(self, product: str) -> tuple[CmrCollection, ...]:
        if product not in self._collections:
            answer = self._web.get(
                f"{self._url}/collections.umm_json",
                [*_named(product), ("has_granules", "true"), ("page_size", str(_PAGE))],
            )
            items = _items(answer)
            try:
                known = tuple(collection_of(item) for item in items)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise _unreadable(answer, error) from error
            self._collections[product] = tuple(each for each in known if each.product == product)
        return self._collections[product]

    def _ordered(
        self, parameters: list[tuple[str, str]], product: str, collection: Collection
    ) -> Iterator[GranuleRecord]:
        """Sort records by nominal start.

        A few days are held back, because the CMR sorts by another time. A composite's nominal day
        may lie up to its whole period after the beginning of its span.
        """
        held: list[tuple[datetime, str, int, GranuleRecord]] = []
        cartesian = any(c.cartesian for c in self._known(product) if c.collection == collection)
        for number, item in enumerate(self._pages(parameters)):
            try:
                record = record_of(item, product, collection, self.name, cartesian=cartesian)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise AnswerBrokenError(
                    f"{bare_url(self._url)} lists a granule of {product} that cannot be read "
                    f"({type(error).__name__}: {error})"
                ) from error
            while held and held[0][0] < beginning(item) - _EARLY:
                yield heapq.heappop(held)[3]
            if record is not None:
                found = self._with_direct(item, record)
                heapq.heappush(held, (record.start, record.name, number, found))
        while held:
            yield heapq.heappop(held)[3]

    def _pages(self, parameters: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """Yield every item of a search; refuse a page that repeats or a list that shrinks."""
        url = f"{self._url}/granules.umm_json"
        after, before, last, got = "", frozenset[str](), _NEVER, 0
        while True:
            headers = {"CMR-Search-After": after} if after else {}
            answer = self._web.get(url, parameters, headers)
            items = _items(answer)
            try:
                here = frozenset(str(item["meta"]["concept-id"]) for item in items)
                starts = [beginning(item) for item in items]
            except (KeyError, ValueError, TypeError) as error:
                raise _unreadable(answer, error) from error
            if here & before or len(here) < len(items) or (starts and starts[0] < last):
                raise AnswerBrokenError(
                    f"{bare_url(url)} lists granules twice: its pages repeat; search again"
                )
            got += len(items)
            yield from items
            if starts:
                last = starts[-1]
            after, before = answer.headers.get("cmr-search-after", ""), here
            if not after or not items:
                break
        hits = answer.headers.get("cmr-hits", str(got))
        if not hits.isdecimal():
            raise AnswerBrokenError(f"{bare_url(url)} announced {hits[:20]!r} granules")
        if got < (total := int(hits)):
            raise AnswerBrokenError(
                f"{bare_url(url)} announced {total} granules and listed {got}: the list shrank "
                "while it was read; search again"
            )


def _named(product: str) -> list[tuple[str, str]]:
    """Return the parameters that find a product's collections.

    Each collection of a GHRSST product has a short name of its own, which ends in its version.
    """
    if is_l2p(product):
        return [("short_name", f"{product}-v*"), ("options[short_name][pattern]", "true")]
    return [("short_name", product)]


def _around(box: LonLatBox) -> str:
    """Widen the box and write it in the CMR's notation.

    The CMR's polygons have few corners, joined by great circles, which cut off parts of tiles and
    swaths.
    """
    west, south, east, north = box
    low, high = max(south - _WIDER, -90.0), min(north + _WIDER, 90.0)
    far = max(abs(low), abs(high))
    aside = _WIDER / math.cos(math.radians(min(far, _POLAR)))
    if far > _POLAR or box.width + 2 * aside >= 360.0:
        west, east = -180.0, 180.0
    else:
        west, east = map(wrap_longitude, (west - aside, east + aside))
    return ",".join(f"{side:.6f}" for side in (west, low, east, high))


def _items(answer: Answer) -> list[dict[str, Any]]:
    if answer.headers.get("cmr-timed-out", "").lower() == "true":
        raise ArchiveTimeoutError(f"{bare_url(answer.url)} gave up half-way through its search")
    page = answer.json()
    items = page.get("items") if isinstance(page, dict) else None
    if not isinstance(items, list):
        raise AnswerBrokenError(f"{bare_url(answer.url)} answered without a list of items")
    return items


def _unreadable(answer: Answer, error: Exception) -> AnswerBrokenError:
    return AnswerBrokenError(
        f"{bare_url(answer.url)} lists an item that cannot be read "
        f"({type(error).__name__}: {error})"
    )
