"""Data pools over HTTPS: folders `<product>.<collection>/<YYYY.MM.DD>`, listed by web pages.

LP DAAC and NSIDC served MODIS in this form until 2025, and mirrors still do. Such a page rounds
sizes, so size and checksum come from the sidecar, `<granule>.xml`, when the granule is fetched.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote

from archives.errors import AnswerBrokenError, NotPublishedError
from archives.fetch.answers import bare_url
from archives.fetch.download import Downloader
from archives.fetch.parts import InParts
from archives.formats.layout import Listed, record_of
from archives.formats.sidecar import parse_sidecar
from archives.kinds.web import Web
from archives.model import Fetched, GranuleRecord, Holding, Progress, newest_editions
from modis.box import LonLatBox
from modis.collection import Collection

_DAY = re.compile(r"(\d{4})\.(\d{2})\.(\d{2})/$")
_COLLECTION = re.compile(r"\.(\d{3})/$")


class PoolArchive:
    """The data pool at `url`, the folder above those of products; a mirror may lack granules."""

    authoritative = False

    def __init__(self, web: Web, downloader: Downloader, *, url: str, name: str = "") -> None:
        self.name = name or bare_url(url)
        self._web = web
        self._downloader = downloader
        self._url = url.rstrip("/")

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """Implement `Archive.search`: one page of all days, and one per day."""
        del box  # pages are by day only
        wanted = Collection(collection)
        folder = f"{self._url}/{product}.{wanted.padded}"
        for day in self._days(folder):
            if start_day <= day <= end_day:
                below = f"{folder}/{day:%Y.%m.%d}"
                records = (
                    record_of(
                        Listed(name=name, size=0, url=f"{below}/{quote(name)}"),
                        product,
                        wanted,
                        self.name,
                        {},
                    )
                    for name in self._links(below, named=True)
                )
                yield from newest_editions(
                    r for r in records if r is not None and r.start_day == day
                )

    def holdings(self, product: str) -> list[Holding]:
        """List the collections with a folder for the product, with their first and last day."""
        found = []
        for link in self._links(self._url):
            match = _COLLECTION.search(link)
            if match is None or link != f"{product}.{match[1]}/":
                continue
            days = self._days(f"{self._url}/{link.rstrip('/')}")
            if days:
                collection = Collection(match[1])
                found.append(
                    Holding(product=product, collection=collection, first=days[0], last=days[-1])
                )
        return sorted(found, key=lambda held: held.collection)

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        """Download the granule; verify it by its sidecar if there is one."""
        return self._downloader.granule(self._described(record), to, progress)

    def in_parts(self, record: GranuleRecord) -> InParts:
        """Return the granule's file, of which parts can be read."""
        return self._downloader.in_parts(record.url, record.size)

    def _described(self, record: GranuleRecord) -> GranuleRecord:
        try:
            sidecar = parse_sidecar(self._web.get(f"{record.url}.xml").body)
        except NotPublishedError:
            return record
        if sidecar is None:
            return record
        return replace(
            record,
            size=record.size or sidecar.size or 0,
            checksum=sidecar.checksum,
            checksum_type=sidecar.checksum_type,
        )

    def _days(self, folder: str) -> list[date]:
        days = set()
        for link in self._links(folder):
            match = _DAY.match(link)
            if match is not None:
                try:
                    days.add(date(int(match[1]), int(match[2]), int(match[3])))
                except ValueError:
                    continue
        return sorted(days)

    def _links(self, folder: str, *, named: bool = False) -> list[str]:
        """List the names that a folder's page links to; names of folders end with a slash.

        The list is empty if there is no such folder. If another page has `named` it, its absence is
        an error: a lost list is not an empty one.
        """
        try:
            answer = self._web.get(f"{folder}/")
        except NotPublishedError as error:
            if named:
                raise AnswerBrokenError(
                    f"{bare_url(folder)}/ is named by the page above it and is not there; "
                    "search again"
                ) from error
            return []
        text = answer.body.decode("utf-8", "replace")
        if "</html>" not in text.lower():
            raise AnswerBrokenError(
                f"{bare_url(folder)}/ is not a whole web page: {text[-80:]!r}; search again"
            )
        reader = _Links()
        reader.feed(text)
        reader.close()
        return sorted(reader.names)


class _Links(HTMLParser):
    """Collects the entries of a folder's page: links to items in the folder itself."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        link = unquote(dict(attrs).get("href") or "") if tag == "a" else ""
        if link and "/" not in link.rstrip("/") and ":" not in link and link[0] not in "?#./":
            self.names.add(link)
