"""What every archive offers: granule records found by product and days, and their files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from pathlib import Path
from typing import Protocol, runtime_checkable

from modis.box import LonLatBox
from modis.collection import Collection
from modis.granule_day import granule_day
from modis.granule_name import is_near_real_time, parse_granule_name
from modis.ocean_name import parse_ocean_name
from modis.tile import Tile

Ring = tuple[tuple[float, float], ...]
"""A closed line of (longitude, latitude) degrees joined by great circles; the end is not repeated.
It bounds the smaller part of the sphere."""

Progress = Callable[[int, int], None]
"""Called with the bytes received so far and the total (0: unknown)."""


@dataclass(frozen=True, kw_only=True)
class GranuleRecord:
    """One granule as an archive lists it.

    `start` and `end` are UTC; `start` is the nominal start. `tile` is the (h, v) of a sinusoidal
    tile, `boundary` holds rings around a swath; a granule with neither may lie anywhere.
    `production_time` is YYYYDDDHHMMSS as in granule names. `size` is in bytes, 0 if the archive
    does not say. `url` says where to fetch the granule, in the archive's own notation; `source` is
    the name of the archive that listed it. `checksum_type` is `sha512`, `sha256`, `md5` or `cksum`
    (POSIX). `stamp` changes with the content of a file on this machine; empty: it lies elsewhere.
    """

    name: str
    product: str
    collection: Collection
    start: datetime
    end: datetime
    tile: Tile | None
    boundary: tuple[Ring, ...] | None
    production_time: str
    size: int
    checksum: str | None
    checksum_type: str | None
    url: str
    day_night: str
    source: str = ""
    stamp: str = ""
    companions: "tuple[GranuleRecord, ...]" = ()

    def to_json(self) -> dict[str, object]:
        """Convert the record to JSON values; `from_json` restores an equal record."""
        return {
            "name": self.name,
            "product": self.product,
            "collection": self.collection,
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "tile": list(self.tile) if self.tile else None,
            "boundary": (
                [[list(point) for point in ring] for ring in self.boundary]
                if self.boundary
                else None
            ),
            "production_time": self.production_time,
            "size": self.size,
            "checksum": self.checksum,
            "checksum_type": self.checksum_type,
            "url": self.url,
            "day_night": self.day_night,
            "source": self.source,
            "stamp": self.stamp,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "GranuleRecord":
        """Restore what `to_json` wrote; raise ValueError or KeyError for anything else."""
        tile, boundary = data["tile"], data["boundary"]
        size = data["size"]
        if not isinstance(size, int):
            raise ValueError(f"size {size!r} of granule {data.get('name')!r} is not an integer")
        return cls(
            name=str(data["name"]),
            product=str(data["product"]),
            collection=Collection(str(data["collection"])),
            start=datetime.fromisoformat(str(data["start"])),
            end=datetime.fromisoformat(str(data["end"])),
            tile=Tile(int(tile[0]), int(tile[1])) if isinstance(tile, list) else None,
            boundary=(
                tuple(tuple((float(x), float(y)) for x, y in ring) for ring in boundary)
                if isinstance(boundary, list)
                else None
            ),
            production_time=str(data["production_time"]),
            size=size,
            checksum=_optional(data["checksum"]),
            checksum_type=_optional(data["checksum_type"]),
            url=str(data["url"]),
            day_night=str(data["day_night"]),
            source=str(data.get("source", "")),
            stamp=str(data.get("stamp", "")),
        )

    @property
    def key(self) -> tuple[str, str, str, Tile | str | None]:
        """The name that editions of one granule have in common."""
        place: Tile | str | None = self.tile
        if place is None and (name := parse_granule_name(self.name)) is not None:
            place = name.other_tile or None
        elif (ocean := parse_ocean_name(self.name)) is not None:
            place = ocean.granule
        return self.product, self.collection, self.start.isoformat(), place

    @property
    def start_day(self) -> date:
        """The UTC day of the nominal start, by which requests select."""
        return granule_day(self.start)


def _optional(value: object) -> str | None:
    return None if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A fetched file: its path and its size in bytes."""

    path: Path
    size: int


@dataclass(frozen=True, kw_only=True, order=True)
class Holding:
    """One collection of a product that an archive serves, and its days; None: unknown."""

    product: str
    collection: Collection
    first: date | None = None
    last: date | None = None


class Archive(Protocol):
    """A place where granules can be found and fetched."""

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """List a product's granules whose nominal start day is in the inclusive span.

        They are sorted by start, then name, and read when they are asked for: a day or a page at a
        time. Of several editions of one granule only the newest is listed. `box` is a hint:
        granules that do not touch it may be left out, or not. Raises ArchiveError, also while
        iterating.
        """

    def holdings(self, product: str) -> list[Holding]:
        """List the collections of a product that the archive serves; empty if unknown.

        Raises ArchiveError.
        """

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        """Fetch the granule's file to the path `to`, whole and verified, or leave nothing there.

        Raises ArchiveError: NotPublishedError, DownloadFailedError and others.
        """


@runtime_checkable
class Stamped(Protocol):
    """An archive that can tell, without listing, whether its list has changed."""

    def stamp(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> str:
        """Return a text that changes whenever the same `search` would list anything else.

        It is empty if the archive cannot tell. Raises ArchiveError.
        """


@dataclass(frozen=True, kw_only=True)
class Misnamed:
    """A file saved under another granule's name.

    `day` and `tile` are those of the name; `holds` is what its metadata says it is.
    """

    file: str
    day: date
    tile: Tile | None
    holds: GranuleRecord


@runtime_checkable
class NameChecking(Protocol):
    """An archive that reads what its files hold, whatever their names are."""

    def misnamed(
        self, product: str, collection: str, start_day: date, end_day: date
    ) -> list[Misnamed]:
        """List the files named like a granule of the product and days that hold another granule.

        Raises ArchiveError.
        """


def newest_editions(records: Iterable[GranuleRecord]) -> list[GranuleRecord]:
    """Keep one record per granule, by start, then name.

    A standard one goes before one of near real time, then the newest production time counts, then
    the first URL.
    """
    best: dict[tuple[str, str, str, Tile | str | None], GranuleRecord] = {}
    for record in sorted(records, key=lambda item: item.url):
        held = best.get(record.key)
        if held is None or edition_rank(record) > edition_rank(held):
            best[record.key] = record
    return sorted(best.values(), key=lambda item: (item.start, item.name))


def edition_rank(record: GranuleRecord) -> tuple[bool, str]:
    """Return by what one edition of a granule goes before another: the larger first."""
    return not is_near_real_time(record.name), record.production_time


def newest_by_day(records: Iterable[GranuleRecord]) -> Iterator[GranuleRecord]:
    """Apply `newest_editions` a day at a time to records that are sorted by start day."""
    for _, day in groupby(records, key=lambda item: item.start_day):
        yield from newest_editions(day)
