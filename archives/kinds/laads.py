"""LAADS over HTTPS: folders by collection, product, year and day, as JSON or CSV listings.

Source: the download scripts of LAADS (ladsweb.modaps.eosdis.nasa.gov, "Data Download Scripts"): a
folder's address with `.json` or `.csv` appended lists it; size 0 means a folder. Addresses of files
are those in the listing (`downloadsLink`: files have moved to data.laadsdaac.earthdatacloud), else
they follow from the folder's address.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from urllib.parse import quote

from archives.errors import AnswerBrokenError, NotPublishedError
from archives.fetch.answers import bare_url
from archives.fetch.download import Downloader
from archives.fetch.parts import InParts
from archives.formats.geometa import SwathPlace, geometa_path, read_geometa
from archives.formats.layout import Listed, archive_set, day_folders, record_of, year_holdings
from archives.kinds.web import Web
from archives.model import Fetched, GranuleRecord, Holding, Progress, newest_editions
from modis.box import LonLatBox
from modis.collection import Collection

LAADS_URL = "https://ladsweb.modaps.eosdis.nasa.gov/archive"


class LaadsArchive:
    """An archive with the layout of LAADS, at `url` (the folder above `allData`)."""

    authoritative = True

    def __init__(
        self, web: Web, downloader: Downloader, *, url: str = LAADS_URL, name: str = "laads"
    ) -> None:
        self.name = name
        self._web = web
        self._downloader = downloader
        self._url = url.rstrip("/")
        self._places: dict[str, Mapping[str, SwathPlace]] = {}

    def refresh(self) -> None:
        """Forget the positions of swaths, because those of recent days are still being added."""
        self._places.clear()

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """Implement `Archive.search`: one listing per year, and one per day with granules."""
        del box  # listings are by day only
        below = f"allData/{archive_set(product, collection)}/{product}"
        for day in day_folders(start_day, end_day, lambda year: self._folders(f"{below}/{year}")):
            folder = f"{below}/{day:%Y/%j}"
            listed = [item for item in self._list(folder, named=True) if item.size]
            places = self._swath_places(product, day) if any(i.is_swath for i in listed) else {}
            records = (
                record_of(item, product, Collection(collection), self.name, places)
                for item in listed
            )
            yield from newest_editions(r for r in records if r is not None and r.start_day == day)

    def holdings(self, product: str) -> list[Holding]:
        """List the collections that have a folder for the product, with its first and last year."""
        return year_holdings(product, lambda number: self._folders(f"allData/{number}/{product}"))

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        """Download the granule."""
        return self._downloader.granule(record, to, progress)

    def in_parts(self, record: GranuleRecord) -> InParts:
        """Return the granule's file, of which parts can be read."""
        return self._downloader.in_parts(record.url, record.size)

    def _folders(self, folder: str) -> list[str]:
        return [item.name for item in self._list(folder) if not item.size]

    def _list(self, folder: str, *, named: bool = False) -> list[Listed]:
        """List a folder's entries; empty if there is no such folder.

        If another folder has `named` it, its absence is an error: a lost list is not an empty one.
        """
        address = f"{self._url}/{quote(folder)}"
        try:
            try:
                return _entries(self._web.get(f"{address}.json").body.decode("utf-8"), address)
            except NotPublishedError:
                return _entries(self._web.get(f"{address}.csv").body.decode("utf-8"), address)
        except NotPublishedError as error:
            if named:
                raise AnswerBrokenError(
                    f"{bare_url(address)} is named by the folder above it and is not there; "
                    "search again"
                ) from error
            return []
        except UnicodeDecodeError as error:
            raise AnswerBrokenError(
                f"{bare_url(address)} sent a listing that is not text ({error})"
            ) from error

    def _swath_places(self, product: str, day: date) -> Mapping[str, SwathPlace]:
        """Read the positions of the day's swaths; empty if there is no such file."""
        path = geometa_path(product, day)
        if path is None:
            return {}
        if path not in self._places:
            if len(self._places) >= 64:
                self._places.clear()
            try:
                text = self._web.get(f"{self._url}/{path}").body.decode("utf-8", "replace")
                self._places[path] = read_geometa(text)
            except NotPublishedError:
                self._places[path] = {}
        return self._places[path]


def _entries(text: str, address: str) -> list[Listed]:
    """Parse a listing: a JSON list, or an object with `content`, else CSV with a header."""
    try:
        if not text.strip():
            raise ValueError("it is empty")
        if text.lstrip()[:1] in ("[", "{"):
            page = json.loads(text)
            rows = page.get("content", page) if isinstance(page, dict) else page
        else:
            rows = list(csv.DictReader(io.StringIO(text), skipinitialspace=True))
            if not text.lower().lstrip().startswith("name"):
                raise ValueError("no head line")
        return [_entry(row, address) for row in rows]
    except (
        *(ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error),
    ) as error:
        raise AnswerBrokenError(
            f"{bare_url(address)} sent no listing ({type(error).__name__}: {error}): {text[:80]!r}"
        ) from error


def _entry(row: Mapping[str, object], address: str) -> Listed:
    name = str(row["name"])
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"a file cannot be called {name!r}")
    md5, cksum = row.get("md5sum"), row.get("cksum")
    checksum, kind = (str(md5), "md5") if md5 else (str(cksum), "cksum") if cksum else ("", "")
    return Listed(
        name=name,
        size=int(str(row["size"])),
        url=str(row.get("downloadsLink") or f"{address}/{quote(name)}"),
        checksum=checksum or None,
        checksum_type=kind or None,
    )
