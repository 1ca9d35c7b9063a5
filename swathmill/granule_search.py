"""`swathmill.search`: find granules in the sources that requests use, and fetch them."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import overload

from archives.model import GranuleRecord
from archives.sources import Sources
from reprojection.errors import ChoiceRefusedError
from reprojection.isolation import ReadingProcess
from swathmill.regions import region_box
from tasks.holdings.granule_lists import granules_with_guides
from tasks.service.sources import open_sources
from tasks.settings import Settings

Days = str | date | tuple[str | date, str | date]


@dataclass(frozen=True)
class FoundGranules(Sequence[GranuleRecord]):
    """Granules that sources list: a sequence of records, which `swathmill.load` takes.

    Attributes:
        records: The granules, by start, then name, with those that say where their pixels lie.
        sources: Where they were found, and are fetched from.
    """

    records: tuple[GranuleRecord, ...]
    sources: Sources

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, at: int) -> GranuleRecord: ...

    @overload
    def __getitem__(self, at: slice) -> "FoundGranules": ...

    def __getitem__(self, at: int | slice) -> "GranuleRecord | FoundGranules":
        if isinstance(at, slice):
            return FoundGranules(self.records[at], self.sources)
        return self.records[at]

    def __iter__(self) -> Iterator[GranuleRecord]:
        return iter(self.records)

    def __repr__(self) -> str:
        size = sum(record.size for record in self.records) / 1e6
        return f"<{len(self)} granules, {size:.1f} MB or more>"

    def paths(self, folder: str | Path | None = None) -> list[Path]:
        """Return the granules' files; those that are not on this machine are fetched.

        A file that is in the folder under the granule's name, of its size, is not fetched again.

        Args:
            folder: Where fetched granules go; made if absent. None fetches nothing.

        Raises:
            ChoiceRefusedError: a granule is not on this machine, and no folder was named.
            ArchiveError: a granule cannot be fetched.
        """
        found = []
        for record in self.records:
            path = self.sources.path_of(record)
            if path is None and folder is None:
                raise ChoiceRefusedError(
                    f"{record.name} of {record.source} is not on this machine: name a folder to "
                    "fetch it into, by load(..., folder=...) or paths(folder)"
                )
            found.append(self._fetched(record, Path(folder)) if path is None and folder else path)
        return [path for path in found if path is not None]

    def _fetched(self, record: GranuleRecord, folder: Path) -> Path:
        path = folder / record.name
        if not (path.is_file() and record.size in (0, path.stat().st_size)):
            folder.mkdir(parents=True, exist_ok=True)
            self.sources.fetch(record, path)
        return path


def search(
    product: str,
    region: object = None,
    time: Days = "",
    *,
    collection: str = "",
    archive: str | Path = "",
    sources: str = "",
) -> FoundGranules:
    """Find a product's granules, and those that say where their pixels lie, if others do.

    Args:
        product: Short name, such as MOD13A2.
        region: What they may touch: a geometry with `__geo_interface__`, of which the box counts,
            or west, south, east, north, in longitude and latitude. None is the whole Earth.
        time: A day, or the first and the last: "2018-01-01", "2018-01-01..2018-01-16", or two.
        collection: By default the newest that the sources serve.
        archive: A folder of granules, or its fsspec URL.
        sources: Sources as in the setting SWATHMILL_SOURCES: "cmr", "laads", "stac+https://...";
            with an archive its folder. By default those of the settings.

    Returns:
        The granules; empty if there are none.

    Raises:
        ChoiceRefusedError: the time names no days.
        GridError: the region is none.
        ArchiveError: no source is set, or one does not answer.
    """
    first, last = _days(time)
    box = None if region is None else region_box(region)
    settings = _settings(str(archive), sources)
    reader = ReadingProcess()
    with tempfile.TemporaryDirectory(prefix="swathmill-search-") as folder:
        try:
            # The positions of a folder's swaths are only known from the files themselves.
            outlines = reader.read_outlines if box else None
            chain = open_sources(settings, Path(folder) / "index.sqlite", outlines)
            held = chain.holdings(product)
            newest = max((h.collection for h in held), key=lambda c: c.age, default="")
            records = granules_with_guides(chain, product, collection or newest, (first, last), box)
        finally:
            reader.close()
    return FoundGranules(tuple(records), chain)


def _settings(archive: str, sources: str) -> Settings:
    """Return the settings with the sources that are named in place of theirs."""
    if archive:
        return Settings(archive=archive, sources=sources or "folder")
    return Settings(sources=sources) if sources else Settings()


def _days(time: Days) -> tuple[date, date]:
    """Return the first and last day that are meant."""
    ends: Sequence[str | date] = (time,) if isinstance(time, str | date) else time
    if isinstance(time, str):
        ends = time.replace("/", "..").split("..")
    try:
        found = [_day(one) for one in ends]
        first, last = found if len(found) == 2 else (found[0], found[0])
    except (ValueError, IndexError):
        raise ChoiceRefusedError(
            f"{time!r} names no days: write '2018-01-01', '2018-01-01..2018-01-16', or give two "
            "dates"
        ) from None
    if last < first or len(found) > 2:
        raise ChoiceRefusedError(f"{time!r} is no span of days: name the first, then the last")
    return first, last


def _day(one: str | date) -> date:
    if isinstance(one, datetime):
        return one.date()
    return one if isinstance(one, date) else date.fromisoformat(one.strip()[:10])
