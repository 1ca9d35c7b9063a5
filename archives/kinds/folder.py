"""An archive that is a folder of files: indexed once, then updated when files change.

The index is one SQLite file, which processes may share. A granule is described by the most reliable
source: the file's own structure (through a reader that the caller passes), then its sidecar, then
its name. A file that cannot be read is still listed by its name, so that asking for it fails with
the right cause instead of overlooking it.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Protocol

from archives.errors import ArchiveError, IndexUnusableError, UnlikeRecordError
from archives.fetch.files import Files, LocalFiles
from archives.fetch.partial import check_room
from archives.fetch.parts import InParts
from archives.formats.checksums import digest, same_checksum
from archives.formats.granule_file import check_granule_file
from archives.formats.overlooked import overlooked
from archives.formats.sidecar import Sidecar
from archives.kinds.coverage import MOST_PLACED, Coverage, cells_touched
from archives.model import (
    Fetched,
    GranuleRecord,
    Holding,
    Misnamed,
    Progress,
    Ring,
    newest_editions,
)
from modis.box import LonLatBox
from modis.collection import Collection
from modis.granule_day import granule_day
from modis.granule_name import GranuleName, parse_granule_name
from modis.ocean_name import parse_ocean_name
from modis.tile import Tile

INDEX_SCHEMA = 4
"""Raise it when rows or what is read into them change. Where builds share a folder, the name of an
index has it (`index_name`): each would make the other's anew."""
_BATCH = 1_000  # files that are written to the index in one transaction
_SWATH_MINUTES = 5


class Outline(Protocol):
    """What a reader finds in a granule; every item may be missing ("" or None)."""

    @property
    def name(self) -> str: ...
    @property
    def product(self) -> str: ...
    @property
    def collection(self) -> str: ...
    @property
    def start(self) -> datetime | None: ...
    @property
    def end(self) -> datetime | None: ...
    @property
    def tile(self) -> Tile | None: ...
    @property
    def boundary(self) -> tuple[Ring, ...] | None: ...
    @property
    def production_time(self) -> str: ...
    @property
    def day_night(self) -> str: ...


OutlineReader = Callable[[Sequence[Path]], Sequence[Outline | None]]
"""Reads the outlines of granules; None stands for a file that cannot be read. It must not raise for
bad files, and should read in a separate process, because HDF4 can crash."""


def index_name(name: str) -> str:
    """Return the name of an index file that only builds with this schema use."""
    return f"{name}-v{INDEX_SCHEMA}.sqlite"


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """The result of updating the index."""

    files: int
    added: int
    removed: int
    unrecognised: tuple[str, ...]


class FolderArchive:
    """A folder of granules, local or remote (`RemoteFiles`), searched through its index.

    `index_path` is a file outside or inside the folder; its directory is created. `read_outlines`
    is given each new or changed file once. A remote file must be fetched for that, so it is read
    only if neither sidecar nor name tell its position. Raises IndexUnusableError if the folder or
    the index cannot be used.
    """

    authoritative = False

    def __init__(
        self,
        place: Path | Files,
        index_path: Path,
        read_outlines: OutlineReader | None = None,
        *,
        name: str = "folder",
    ) -> None:
        self.name = name
        self._files = LocalFiles(place) if isinstance(place, Path) else place
        self._index_path = index_path
        self._read_outlines = read_outlines
        self._fresh = False
        self._coverage: list[Coverage] | None = None  # valid until the folder changes

    def absent(self) -> str:
        """Implement `Absent.absent`: a remote folder says so when it is listed."""
        gone = isinstance(self._files, LocalFiles) and self._files.absent
        return self._files.place if gone else ""

    def refresh(self) -> Refreshed:
        """Update the index for new, changed and deleted files."""
        with self._index() as index:
            known = {
                str(url): (int(size), int(changed), str(sidecar))
                for url, size, changed, sidecar in index.execute(
                    "SELECT url, size, changed, sidecar FROM files"
                )
            }
            # Listed after `known`: a file that another process has just added is not taken as gone.
            on_disk = dict(self._files.stamps())
            gone = [url for url in known if url not in on_disk]
            with index:
                index.executemany("DELETE FROM files WHERE url = ?", ((url,) for url in gone))
            changed = [url for url, stamp in on_disk.items() if known.get(url) != stamp]
            for first in range(0, len(changed), _BATCH):
                # Files are read before the transaction begins: others wait for the writing alone.
                rows = self._rows({url: on_disk[url] for url in changed[first : first + _BATCH]})
                with index:
                    index.executemany(
                        "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
                    )
            lost = index.execute("SELECT url FROM files WHERE product IS NULL ORDER BY url")
            unrecognised = tuple(str(url) for (url,) in lost)
        if changed or gone:
            self._coverage = None
        self._fresh = True
        return Refreshed(
            files=len(on_disk), added=len(changed), removed=len(gone), unrecognised=unrecognised
        )

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """List a product's granules whose nominal start day is in the inclusive span, by start."""
        del box  # the index selects by days alone
        self._refresh_once()
        asked = (product, Collection(collection))
        with self._index() as index:
            days = index.execute(
                "SELECT DISTINCT start_day FROM files WHERE product = ? AND collection = ? "
                "AND start_day BETWEEN ? AND ? ORDER BY start_day",
                (*asked, start_day.isoformat(), end_day.isoformat()),
            ).fetchall()
            # Read a day at a time: an open read would keep others from refreshing the index.
            for (day,) in days:
                rows = index.execute(
                    "SELECT record, size, changed, sidecar FROM files WHERE product = ? AND "
                    "collection = ? AND start_day = ?",
                    (*asked, day),
                ).fetchall()
                yield from newest_editions(
                    replace(self._record(text), stamp=self._stamp_text(stamp))
                    for text, *stamp in rows
                )

    def stamp(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> str:
        """Implement `Stamped.stamp` from the files' names, sizes and times in the index."""
        del box
        self._refresh_once()
        with self._index() as index:
            rows = index.execute(
                "SELECT url, size, changed, sidecar FROM files WHERE product = ? AND "
                "collection = ? AND start_day BETWEEN ? AND ? ORDER BY url",
                (product, Collection(collection), f"{start_day}", f"{end_day}"),
            )
            found = hashlib.sha256()
            for row in rows:
                found.update(repr(row).encode())
        for one in self.misnamed(product, collection, start_day, end_day):
            found.update(repr(one).encode())
        return found.hexdigest()

    def misnamed(
        self, product: str, collection: str, start_day: date, end_day: date
    ) -> list[Misnamed]:
        """Implement `NameChecking.misnamed`: compare files' names with what was read from them."""
        self._refresh_once()
        asked = (product, Collection(collection))
        with self._index() as index:
            rows = index.execute(
                "SELECT url, record FROM files WHERE misnamed ORDER BY url"
            ).fetchall()
        found = []
        for url, text in rows:
            file = str(url).rpartition("/")[2]
            name = parse_granule_name(file)
            if name is None or (name.product, name.collection) != asked:
                continue
            day = granule_day(name.start)
            if start_day <= day <= end_day:
                holds = self._record(text)
                found.append(Misnamed(file=file, day=day, tile=name.tile, holds=holds))
        return found

    def holdings(self, product: str) -> list[Holding]:
        """List the collections of a product in the folder, with their first and last start day."""
        self._refresh_once()
        with self._index() as index:
            rows = index.execute(
                "SELECT collection, min(start_day), max(start_day) FROM files WHERE product = ? "
                "GROUP BY collection ORDER BY collection",
                (product,),
            ).fetchall()
        return [
            Holding(
                product=product,
                collection=Collection(str(collection)),
                first=date.fromisoformat(first),
                last=date.fromisoformat(last),
            )
            for collection, first, last in rows
        ]

    def products(self) -> list[tuple[str, str]]:
        """List every (product, collection) in the folder."""
        self._refresh_once()
        with self._index() as index:
            rows = index.execute(
                "SELECT DISTINCT product, collection FROM files WHERE product IS NOT NULL "
                "ORDER BY product, collection"
            )
            return [(str(product), str(collection)) for product, collection in rows]

    def overlooked(self, product: str) -> list[str]:
        """Implement `Overlooking.overlooked`."""
        return overlooked(self._files.names(), product)

    def coverage(self) -> list[Coverage]:
        """List everything in the folder, by product and collection."""
        self._refresh_once()
        if self._coverage is None:
            with self._index() as index:
                self._coverage = [
                    self._covered(index, str(product), Collection(str(collection)), int(count))
                    for product, collection, count in index.execute(
                        "SELECT product, collection, count(*) FROM files "
                        "WHERE product IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
                    ).fetchall()
                ]
        return self._coverage

    def _covered(
        self, index: sqlite3.Connection, product: str, collection: Collection, count: int
    ) -> Coverage:
        """Summarise what the index holds of one product.

        A remote folder gives no samples, because each would have to be fetched.
        """

        def rows(what: str, more: str = "", *values: object) -> list[tuple[object, ...]]:
            text = f"SELECT {what} FROM files WHERE product = ? AND collection = ? {more}"
            return index.execute(text, (product, collection, *values)).fetchall()

        days = rows("DISTINCT start_day", "ORDER BY start_day")
        tile = "json_extract(record, '$.tile')"
        tiles = rows(f"DISTINCT {tile}", f"AND {tile} IS NOT NULL")
        loose = rows("record", f"AND {tile} IS NULL LIMIT ?", MOST_PLACED + 1)
        placed = [self._record(str(text)) for (text,) in loose]
        anywhere = len(placed) > MOST_PLACED or any(r.boundary is None for r in placed)
        samples = dict.fromkeys(rows("min(url), max(url)")[0]) if self._files.near else ()
        return Coverage(
            product=product,
            collection=collection,
            granules=count,
            days=tuple(date.fromisoformat(str(day)) for (day,) in days),
            tiles=frozenset(_tile(str(text)) for (text,) in tiles),
            cells=frozenset() if anywhere else cells_touched(placed),
            anywhere=anywhere,
            samples=tuple(self._path(str(url)) for url in samples),
        )

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        """Copy the granule's file to `to`, verified against its size and published checksum."""
        chunks = self._files.chunks(record.url)
        partial = to.with_name(to.name + ".partial")
        published = digest(record.checksum_type or "")
        size = 0
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            check_room(to.parent, record.size)
            with partial.open("wb") as file:
                for chunk in chunks:
                    if published is not None:
                        published.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
                    if progress is not None:
                        progress(size, record.size)
            if size != record.size:
                raise UnlikeRecordError(
                    f"{record.name} has {size} bytes, its record says {record.size}: it changed "
                    "since it was listed; it is listed anew at the next try"
                )
            if published and not same_checksum(published.hexdigest(), record.checksum or ""):
                raise UnlikeRecordError(
                    f"{record.name} has {record.checksum_type} {published.hexdigest()}, its "
                    f"sidecar says {record.checksum}: the file is damaged, fetch it again"
                )
            check_granule_file(partial, record.name, f"{self._files.place} holds")
            partial.replace(to)
        finally:
            partial.unlink(missing_ok=True)
        return Fetched(path=to, size=size)

    def in_parts(self, record: GranuleRecord) -> InParts | None:
        """Return the granule's file, of which parts can be read."""
        return self._files.in_parts(record.url, record.size)

    def path_of(self, record: GranuleRecord) -> Path | None:
        """Return the granule's file; None in a folder elsewhere, and if it is gone."""
        near = self._files.near and self._files.stamp(record.url) is not None
        return Path(self._path(record.url)) if near else None

    def copy_near(self, record: GranuleRecord, to: Path) -> bool:
        """Implement `Near.copy_near`."""
        if not record.stamp:
            return False
        try:
            self.fetch(record, to)
        except ArchiveError:
            if self._stamp_now(record) == record.stamp:
                raise
            return False
        if self._stamp_now(record) == record.stamp:
            return True
        to.unlink()
        return False

    def _stamp_now(self, record: GranuleRecord) -> str:
        stamp = self._files.stamp(record.url)
        return "" if stamp is None else self._stamp_text(stamp)

    def _stamp_text(self, stamp: Iterable[object]) -> str:
        return " ".join(map(str, stamp)).rstrip() if self._files.near else ""

    def relist(self, record: GranuleRecord) -> GranuleRecord | None:
        """Read again what a granule's record says of its file; the index follows at its refresh."""
        stamp = self._files.stamp(record.url)
        if stamp is None:
            return None
        sidecar = self._files.sidecar(record.url)
        return replace(
            record,
            size=stamp[0],
            checksum=sidecar.checksum if sidecar else None,
            checksum_type=sidecar.checksum_type if sidecar else None,
        )

    def _path(self, url: str) -> str:
        with self._files.local(url) as path:
            return str(path)

    def _refresh_once(self) -> None:
        if not self._fresh:
            self.refresh()

    def _record(self, text: str) -> GranuleRecord:
        return replace(GranuleRecord.from_json(json.loads(text)), source=self.name)

    @contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        """Open the index, which other processes may use at the same time."""
        try:
            self._index_path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise self._unusable(problem) from problem
        try:
            with closing(sqlite3.connect(self._index_path, timeout=30.0)) as index:
                if _schema(index) != INDEX_SCHEMA:
                    _make_tables(index)
                yield index
        except sqlite3.Error as problem:
            raise self._unusable(problem) from problem

    def _unusable(self, problem: Exception) -> IndexUnusableError:
        return IndexUnusableError(
            f"the archive index {self._index_path} cannot be used ({problem}): delete it, or "
            "choose a folder that can be written"
        )

    def _rows(self, stamps: Mapping[str, tuple[int, int, str]]) -> list[tuple[object, ...]]:
        """Make the rows of new or changed files."""
        read = self._outlines(stamps)
        return [self._row(url, stamp, read.get(url)) for url, stamp in stamps.items()]

    def _outlines(self, stamps: Mapping[str, tuple[int, int, str]]) -> dict[str, Outline | None]:
        """Read outlines: of near files all at once, of others those that are not placed yet."""
        if self._read_outlines is None:
            return {}
        if self._files.near:
            outlines = self._read_outlines([Path(self._path(url)) for url in stamps])
            return dict(zip(stamps, outlines, strict=True))
        found: dict[str, Outline | None] = {}
        for url, (size, *_) in stamps.items():
            known = self._described(url, size, None)
            if known is None or (known.tile is None and known.boundary is None):
                with self._files.local(url) as path:
                    (found[url],) = self._read_outlines([path])
        return found

    def _row(
        self, url: str, stamp: tuple[int, int, str], outline: Outline | None
    ) -> tuple[object, ...]:
        record = self._described(url, stamp[0], outline)
        return (
            url,
            *stamp,
            record.product if record else None,
            record.collection if record else None,
            record.start_day.isoformat() if record else None,
            json.dumps(record.to_json()) if record else None,
            record is not None and _is_misnamed(url, record),
        )

    def _described(self, url: str, size: int, outline: Outline | None) -> GranuleRecord | None:
        name = url.rpartition("/")[2]
        return describe(name, url, size, outline, self._files.sidecar(url))


def _schema(index: sqlite3.Connection) -> int:
    return int(index.execute("PRAGMA user_version").fetchone()[0])


def _make_tables(index: sqlite3.Connection) -> None:
    """Make the tables anew, unless another process does so first."""
    with index:
        index.execute("BEGIN IMMEDIATE")
        if _schema(index) == INDEX_SCHEMA:
            return
        index.execute("DROP TABLE IF EXISTS files")
        index.execute(
            "CREATE TABLE files (url TEXT PRIMARY KEY, size INTEGER, changed INTEGER,"
            " sidecar TEXT, product TEXT, collection TEXT, start_day TEXT, record TEXT,"
            " misnamed INTEGER)"
        )
        index.execute("CREATE INDEX by_day ON files (product, collection, start_day)")
        index.execute("CREATE INDEX wrongly ON files (url) WHERE misnamed")
        index.execute(f"PRAGMA user_version = {INDEX_SCHEMA}")


def describe(
    file_name: str, url: str, size: int, outline: Outline | None, sidecar: Sidecar | None
) -> GranuleRecord | None:
    """Join structure, sidecar and name into a record; return None if none of them identifies it.

    If the file was read, its position is that in the file, even if the name names a whole tile.
    """
    official = (outline.name if outline else "") or (sidecar.name if sidecar else "")
    parts = parse_granule_name(official) or parse_granule_name(file_name)
    product = (outline.product if outline else "") or (sidecar.product if sidecar else "")
    collection = (outline.collection if outline else "") or (sidecar.collection if sidecar else "")
    ocean = parse_ocean_name(file_name)
    day_night = (
        (outline.day_night if outline else "")
        or (sidecar.day_night if sidecar else "")
        or (ocean.day_night if ocean else "")
    )
    start = (
        (parts.start if parts else None)
        or (outline.start if outline else None)
        or (sidecar.start if sidecar else None)
    )
    product = product or (parts.product if parts else "")
    collection = collection or (parts.collection if parts else "")
    if not product or not collection or start is None:
        return None
    end = (outline.end if outline else None) or (sidecar.end if sidecar else None)
    tile, boundary = _place(outline, sidecar, parts)
    return GranuleRecord(
        name=official if parse_granule_name(official) else file_name,
        product=product,
        collection=Collection(collection),
        start=start,
        end=end if end is not None and end >= start else start + timedelta(minutes=_SWATH_MINUTES),
        tile=tile,
        boundary=boundary,
        production_time=(parts.production_time if parts else "")
        or (outline.production_time if outline else ""),
        size=size,
        checksum=sidecar.checksum if sidecar else None,
        checksum_type=sidecar.checksum_type if sidecar else None,
        url=url,
        day_night=day_night,
    )


def _is_misnamed(url: str, record: GranuleRecord) -> bool:
    """Tell whether a file has the name of another granule than the one in it.

    A part cut out of a tile is identified by its name alone.
    """
    name = parse_granule_name(url.rpartition("/")[2])
    if name is None:
        return False
    mine = (record.product, record.collection, record.start_day)
    if mine != (name.product, name.collection, granule_day(name.start)):
        return True
    return record.tile is not None and record.tile != name.tile


def _tile(text: str) -> Tile:
    h, v = json.loads(text)
    return Tile(int(h), int(v))


def _place(
    outline: Outline | None, sidecar: Sidecar | None, parts: GranuleName | None
) -> tuple[Tile | None, tuple[Ring, ...] | None]:
    if outline is not None and (outline.tile is not None or outline.boundary is not None):
        return outline.tile, outline.boundary
    if parts is not None and parts.tile is not None:
        return parts.tile, None
    return None, sidecar.boundary if sidecar else None
