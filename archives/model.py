"""What every archive offers: granule records found by product and days, and their files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from pathlib import Path
from typing import Protocol, runtime_checkable

from modis.box import LonLatBox
from modis.collection import Collection
from modis.tile import Tile

Ring = tuple[tuple[float, float], ...]
"""A closed line of (longitude, latitude) degrees joined by great circles; the end is not repeated.
It bounds the smaller part of the sphere."""

Progress = Callable[[int, int], None]
"""Told the bytes so far and the bytes in all (0: unknown)."""


@dataclass(frozen=True, kw_only=True)
class GranuleRecord:
    """One granule as an archive lists it.

    `start` and `end` are UTC; `start` is the nominal start. `tile` is a sinusoidal tile, `boundary`
    rings around a swath; a granule with neither may lie anywhere.
    `production_time` is YYYYDDDHHMMSS as in granule names. `size` is in bytes, 0 where the archive
    does not say. `url` says where to fetch it from, in the archive's own way; `source` is the name
    of the archive that listed it. `checksum_type` is `sha512`, `sha256`, `md5` or `cksum` (POSIX).
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

    def to_json(self) -> dict[str, object]:
        """The record as JSON values; `from_json` reads it back equal."""
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
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "GranuleRecord":
        """Read what `to_json` wrote. Raises ValueError or KeyError when it is something else."""
        tile, boundary = data["tile"], data["boundary"]
        size = data["size"]
        if not isinstance(size, int):
            raise ValueError(f"size {size!r} of granule record {data.get('name')!r} is no integer")
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
        )

    @property
    def key(self) -> tuple[str, str, str, Tile | None]:
        """What makes two records editions of one granule."""
        return self.product, self.collection, self.start.isoformat(), self.tile

    @property
    def start_day(self) -> date:
        """The UTC day of the nominal start, by which requests select."""
        start = self.start
        return start.date() if start.tzinfo is UTC else start.astimezone(UTC).date()


def _optional(value: object) -> str | None:
    return None if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A file as it arrived: where it lies, its bytes and its SHA-256 in hexadecimal."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, order=True)
class Holding:
    """One collection of a product that an archive serves, and the days it has; None: unknown."""

    product: str
    collection: Collection
    first: date | None = None
    last: date | None = None


class Archive(Protocol):
    """A place granules can be found in and fetched from."""

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """The granules of a product whose nominal start day is in the inclusive span.

        Ordered by start, then name, and read as they are asked for: a day or a page at a time. Of
        several editions of one granule only the newest is listed. `box` is a hint: granules
        that do not touch it may be left out, or not. Raises ArchiveError, also while iterating.
        """

    def holdings(self, product: str) -> list[Holding]:
        """The collections of a product that the archive serves, by collection; none: not known.

        Raises ArchiveError.
        """

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        """Bring the granule's file to the path `to`, whole and verified, or leave nothing there.

        Raises ArchiveError: NotPublishedError, DownloadFailedError and the like.
        """


@runtime_checkable
class Stamped(Protocol):
    """An archive that can say without listing whether its list has changed."""

    def stamp(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> str:
        """A text that is another one once the same `search` would list anything else; empty: the
        archive cannot say. Raises ArchiveError."""


@dataclass(frozen=True, kw_only=True)
class Misnamed:
    """A file saved under another granule's name: `day` and `tile` are the name's, `holds` what its
    metadata says it is."""

    file: str
    day: date
    tile: Tile | None
    holds: GranuleRecord


@runtime_checkable
class NameChecking(Protocol):
    """An archive that reads what its files are, whatever their names say."""

    def misnamed(
        self, product: str, collection: str, start_day: date, end_day: date
    ) -> list[Misnamed]:
        """The files that have the name of a granule of the product and days, and hold another
        granule. Raises ArchiveError."""


def newest_editions(records: Iterable[GranuleRecord]) -> list[GranuleRecord]:
    """One record per granule, by start, then name: the newest production time, then first URL."""
    best: dict[tuple[str, str, str, Tile | None], GranuleRecord] = {}
    for record in sorted(records, key=lambda item: item.url):
        held = best.get(record.key)
        if held is None or record.production_time > held.production_time:
            best[record.key] = record
    return sorted(best.values(), key=lambda item: (item.start, item.name))


def newest_by_day(records: Iterable[GranuleRecord]) -> Iterator[GranuleRecord]:
    """`newest_editions` of records that come ordered by their start day, a day at a time."""
    for _, day in groupby(records, key=lambda item: item.start_day):
        yield from newest_editions(day)
