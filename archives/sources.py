"""Several archives as one: asked in order; the newest edition of a granule counts."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from typing import Protocol, runtime_checkable

from archives.errors import (
    ArchiveError,
    DamagedCopyError,
    NotPublishedError,
    UnlikeRecordError,
    soonest,
)
from archives.fetch.parts import InParts
from archives.kinds.coverage import Coverage, Covering, joined
from archives.model import (
    Archive,
    Fetched,
    GranuleRecord,
    Holding,
    Misnamed,
    NameChecking,
    Progress,
    Stamped,
    edition_rank,
)
from modis.box import LonLatBox
from modis.collection import Collection
from modis.granule_day import granule_day
from modis.granule_name import parse_granule_name
from modis.ocean_name import parse_ocean_name

log = logging.getLogger("archives.sources")

_INDICATIVE = timedelta(minutes=1)


class ArchiveSource(Archive, Protocol):
    """An archive of a chain.

    `name` is its name in settings and records. If it is `authoritative`, it lists every published
    granule of what it serves: once it has answered, the sources after it are not asked.
    """

    name: str
    authoritative: bool


@runtime_checkable
class Refreshable(Protocol):
    """A source that caches what it has learned."""

    def refresh(self) -> object:
        """Update the cache."""


@runtime_checkable
class Overlooking(Protocol):
    """A source that sees files which it cannot list as granules."""

    def overlooked(self, product: str) -> list[str]:
        """Say which files may be of a product and how to have them listed. Raises ArchiveError."""


@runtime_checkable
class Absent(Protocol):
    """A source that sees at once whether what it lists is there at all."""

    def absent(self) -> str:
        """Name the place that is not there; empty: it is."""


@runtime_checkable
class Near(Protocol):
    """A source whose granules may be files of this machine."""

    def path_of(self, record: GranuleRecord) -> Path | None:
        """Return the granule's file; None if it is not on this machine."""

    def copy_near(self, record: GranuleRecord, to: Path) -> bool:
        """Copy the granule's file, if it is there and has the stamp of the record.

        Raises ArchiveError if it is there and cannot be read.
        """


@runtime_checkable
class Divisible(Protocol):
    """A source that may read parts of its granules."""

    def in_parts(self, record: GranuleRecord) -> InParts | None:
        """Return the granule's file, of which parts can be read; None where they cannot."""


@runtime_checkable
class Relisting(Protocol):
    """A source that looks one granule up without a search."""

    def relist(self, record: GranuleRecord) -> GranuleRecord | None:
        """Return the record as it is now; None if the granule is not there. Raises ArchiveError."""


Acceptance = Callable[[Path, GranuleRecord], None]
"""Looks at a fetched file; raises ArchiveError if it is not to be taken as the record's granule."""


@runtime_checkable
class Listing(Protocol):
    """A source that may be able to list the products it holds."""

    def products(self) -> list[tuple[str, str]] | None:
        """List every (product, collection); None when it cannot say."""


class Sources:
    """A chain of sources, and separate chains for some products.

    The sources up to the first authoritative one that has anything are asked, and their answers
    merged: of one granule's editions (never of two collections) the newest production time counts,
    and of equal ones the source named first. If a source fails, at the start or half-way, those
    after it replace it. If there are none, the search raises its error: half a list is not an
    answer.
    """

    def __init__(
        self,
        chain: Sequence[ArchiveSource],
        products: Mapping[str, Sequence[ArchiveSource]] | None = None,
    ) -> None:
        self._chain = tuple(chain)
        self._products = {name: tuple(own) for name, own in (products or {}).items()}
        self._lock = threading.Lock()
        self.failures = 0
        """Number of sources that failed during a search and were replaced by others."""

    def chain(self, product: str) -> tuple[ArchiveSource, ...]:
        """Return the sources of a product, in order."""
        return self._products.get(product, self._chain)

    def refresh(self) -> None:
        """Update what the sources cache, but for those that are not there; raise ArchiveError."""
        for source in self._all():
            if isinstance(source, Refreshable) and not _is_absent(source):
                source.refresh()

    def absent(self) -> tuple[str, ...]:
        """Name the places of sources that are not there; calls nothing over the network."""
        found = [one.absent() for one in self._all() if isinstance(one, Absent)]
        return tuple(place for place in found if place)

    def products(self) -> list[tuple[str, str]] | None:
        """List every (product, collection) of all sources; None if one of them cannot tell."""
        found: set[tuple[str, str]] = set()
        for source in self._all():
            own = source.products() if isinstance(source, Listing) else None
            if own is None:
                return None
            found.update(own)
        return sorted(found)

    def overlooked(self, product: str) -> list[str]:
        """Implement `Overlooking.overlooked` over the product's chain."""
        return [
            said
            for source in self.chain(product)
            if isinstance(source, Overlooking)
            for said in source.overlooked(product)
        ]

    def path_of(self, record: GranuleRecord) -> Path | None:
        """Return the file of a granule that lies on this machine, by the source that listed it."""
        found = (
            source.path_of(record)
            for source in self.chain(record.product)
            if isinstance(source, Near) and source.name == record.source
        )
        return next((path for path in found if path is not None), None)

    def copy_near(self, record: GranuleRecord, to: Path) -> bool:
        """Copy the file of a granule that lies on this machine, by the source that listed it.

        Returns whether it is there as it was listed. Raises NotPublishedError if there is no such
        source here, else ArchiveError if the file cannot be read.
        """
        chain = self.chain(record.product)
        for source in chain:
            if isinstance(source, Near) and source.name == record.source:
                return source.copy_near(record, to)
        raise NotPublishedError(f"no source lists {record.name}: " + _named(chain, record.product))

    def in_parts(self, record: GranuleRecord) -> InParts | None:
        """Return a granule's file by the source that listed it; None if that reads no parts."""
        for source in self.chain(record.product):
            if isinstance(source, Divisible) and source.name == record.source:
                return source.in_parts(record)
        return None

    def divides(self, record: GranuleRecord) -> bool:
        """Tell whether parts of a granule may be had from the source that listed it."""
        return any(
            isinstance(source, Divisible) and source.name == record.source
            for source in self.chain(record.product)
        )

    def coverage(self) -> list[Coverage] | None:
        """List all that the sources hold that are there; None if one cannot list itself."""
        found: dict[tuple[str, str], Coverage] = {}
        for source in self._all():
            if _is_absent(source):
                continue
            own = source.coverage() if isinstance(source, Covering) else None
            if own is None:
                return None
            for each in own:
                key = each.product, each.collection
                found[key] = joined(found[key], each) if key in found else each
        return [found[key] for key in sorted(found)]

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """Implement `Archive.search` over the product's chain."""
        waiting = list(self.chain(product))
        wanted = (product, Collection(collection), start_day, end_day, box)
        search = _Search(wanted, waiting, self._note_failure)
        yield from search.records()

    def stamp(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> str:
        """Implement `Stamped.stamp`: join the stamps of all sources, if each has one."""
        found = []
        for source in self.chain(product):
            own = ""
            if isinstance(source, Stamped):
                own = source.stamp(product, collection, start_day, end_day, box)
            if not own:
                return ""
            found.append((source.name, own))
        return repr(found)

    def misnamed(
        self, product: str, collection: str, start_day: date, end_day: date
    ) -> list[Misnamed]:
        """Implement `NameChecking.misnamed` over the product's sources that read their files."""
        return [
            found
            for source in self.chain(product)
            if isinstance(source, NameChecking)
            for found in source.misnamed(product, collection, start_day, end_day)
        ]

    def _note_failure(self) -> None:
        with self._lock:
            self.failures += 1

    def holdings(self, product: str) -> list[Holding]:
        """List the collections that any of the product's sources serves, with all their days.

        Raises ArchiveError if no source answers.
        """
        found: dict[str, Holding] = {}
        failure: ArchiveError | None = None
        answered = False
        for source in self.chain(product):
            try:
                held = source.holdings(product)
            except ArchiveError as error:
                failure = failure or error
                log.warning("holdings not known: %s: %s", source.name, error)
                continue
            answered = True
            for each in held:
                before = found.get(each.collection)
                found[each.collection] = _joined(before, each) if before else each
        if failure is not None and not answered:
            raise failure
        return [found[collection] for collection in sorted(found)]

    def fetch(
        self,
        record: GranuleRecord,
        to: Path,
        progress: Progress | None = None,
        accept: Acceptance | None = None,
    ) -> Fetched:
        """Fetch from the source that listed the granule, else from others that list its name.

        Each source is looked up again if what it gives is not what it listed: the file has been
        replaced since. `accept` may refuse a copy; then the next source is asked.

        Raises ArchiveError: of several errors the one that may pass soonest, else the first.
        """
        chain = self.chain(record.product)
        own = [source for source in chain if source.name == record.source]
        failures: list[ArchiveError] = []
        for source in (*own, *(source for source in chain if source not in own)):
            try:
                here = record if source in own else _listed(source, record)
                if here is not None:
                    return _fetch_current(source, here, to, progress, accept)
            except ArchiveError as error:
                failures.append(error)
                log.warning("granule not given: %s: %s: %s", source.name, record.name, error)
        if failures:
            raise soonest(failures)
        raise NotPublishedError(f"no source lists {record.name}: " + _named(chain, record.product))

    def _all(self) -> tuple[ArchiveSource, ...]:
        named = [self._chain, *self._products.values()]
        return tuple({id(source): source for chain in named for source in chain}.values())


class _Search:
    """One search in progress: the sources that are being read, and those in reserve."""

    def __init__(
        self,
        wanted: tuple[str, str, date, date, LonLatBox | None],
        waiting: list[ArchiveSource],
        failed: Callable[[], None],
    ) -> None:
        self._failed = failed
        self._product, self._collection, self._start, self._end, self._box = wanted
        self._ranks = {id(source): rank for rank, source in enumerate(waiting)}
        self._waiting = waiting
        self._reading: list[_Days] = []

    def records(self) -> Iterator[GranuleRecord]:
        self._take_more(self._start)
        while (day := min((d.day for d in self._reading if d.day), default=None)) is not None:
            found: list[tuple[int, GranuleRecord]] = []
            while days := next((each for each in self._reading if each.day == day), None):
                found.extend((self._ranks[id(days.source)], record) for record in days.take())
                self._replace_failed(days, day)
            yield from _newest(found)

    def _take_more(self, start: date) -> None:
        """Start reading the next sources, up to one that is authoritative."""
        while self._waiting:
            source = self._waiting.pop(0)
            days = _Days(source, self._product, self._collection, start, self._end, self._box)
            self._reading.append(days)
            self._replace_failed(days, start)
            if source.authoritative and days.found and days.failure is None:
                return

    def _replace_failed(self, days: "_Days", day: date) -> None:
        """Replace a failed source by those after it, from that day on."""
        if days.failure is None or days not in self._reading:
            return
        self._reading.remove(days)
        rank = self._ranks[id(days.source)]
        later = any(self._ranks[id(other.source)] > rank for other in self._reading)
        if not later and not self._waiting:
            raise days.failure
        self._failed()
        log.warning("search failed, others take over: %s: %s", days.source.name, days.failure)
        if not any(other.source.authoritative for other in self._reading):
            self._take_more(day)


class _Days:
    """A source's records, a day at a time: `day` is the next one, None at the end."""

    def __init__(
        self,
        source: ArchiveSource,
        product: str,
        collection: str,
        start: date,
        end: date,
        box: LonLatBox | None,
    ) -> None:
        self.source = source
        self.day: date | None = None
        self.failure: ArchiveError | None = None
        self.found = False
        records = source.search(product, collection, start, end, box)
        self._groups = groupby(records, key=lambda record: record.start_day)
        self._group: Iterator[GranuleRecord] = iter(())
        self._step()

    def take(self) -> list[GranuleRecord]:
        """Return the records of `day` and go to the next; keep what arrived before a failure."""
        found: list[GranuleRecord] = []
        try:
            found.extend(self._group)
        except ArchiveError as error:
            self.failure, self.day = error, None
            return found
        self._step()
        return found

    def _step(self) -> None:
        try:
            self.day, self._group = next(self._groups)
            self.found = True
        except StopIteration:
            self.day = None
        except ArchiveError as error:
            self.failure, self.day = error, None


def _is_absent(source: ArchiveSource) -> bool:
    return isinstance(source, Absent) and bool(source.absent())


def _newest(found: list[tuple[int, GranuleRecord]]) -> list[GranuleRecord]:
    """Keep one record per granule of a day: the newest edition, of equal ones the first."""
    best: dict[object, GranuleRecord] = {}
    for _, record in sorted(found, key=lambda pair: (pair[0], pair[1].url)):
        held = best.get(record.key)
        if held is None or edition_rank(record) > edition_rank(held):
            best[record.key] = record
    return sorted(best.values(), key=lambda record: (record.start, record.name))


def _fetch_current(
    source: ArchiveSource,
    record: GranuleRecord,
    to: Path,
    progress: Progress | None,
    accept: Acceptance | None,
) -> Fetched:
    """Fetch a granule as its source lists it now."""
    try:
        return _fetch_accepted(source, record, to, progress, accept)
    except UnlikeRecordError as error:
        now = source.relist(record) if isinstance(source, Relisting) else _listed(source, record)
        if now is None or _about(now) == _about(record):
            raise
        log.info("granule listed anew: %s: %s: %s", source.name, record.name, error)
        return _fetch_accepted(source, now, to, progress, accept)


def _fetch_accepted(
    source: ArchiveSource,
    record: GranuleRecord,
    to: Path,
    progress: Progress | None,
    accept: Acceptance | None,
) -> Fetched:
    """Fetch a granule; fetch it once more if it may have been damaged on its way."""
    for last in (False, True):
        fetched = source.fetch(record, to, progress)
        if accept is None:
            break
        try:
            accept(fetched.path, record)
            break
        except ArchiveError as error:
            fetched.path.unlink()
            if last or not (isinstance(error, DamagedCopyError) and error.again):
                raise
    return fetched


def _about(record: GranuleRecord) -> tuple[object, ...]:
    """Return what a record says of its file."""
    return record.url, record.size, record.checksum, record.checksum_type


def _listed(source: ArchiveSource, record: GranuleRecord) -> GranuleRecord | None:
    """Find a granule by its name in another source; return None if it is not listed there."""
    days = _days_of(record.name)
    if days is None:
        return None
    found = source.search(record.product, record.collection, *days)
    return next((each for each in found if each.name == record.name), None)


def _days_of(name: str) -> tuple[date, date] | None:
    """Return the days on which a granule of this name may begin, the first and the last; or None.

    The indicative time of sea surface temperature is some seconds after the beginning.
    """
    if (parts := parse_granule_name(name)) is not None:
        day = granule_day(parts.start)
        return day, day
    if (ocean := parse_ocean_name(name)) is not None:
        return granule_day(ocean.start - _INDICATIVE), granule_day(ocean.start)
    return None


def _joined(one: Holding, other: Holding) -> Holding:
    return Holding(
        product=one.product,
        collection=one.collection,
        first=min(one.first, other.first) if one.first and other.first else None,
        last=max(one.last, other.last) if one.last and other.last else None,
    )


def _named(chain: Sequence[ArchiveSource], product: str) -> str:
    names = ", ".join(source.name for source in chain)
    return f"{product} has the sources {names}" if names else f"{product} has no source"
