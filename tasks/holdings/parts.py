"""Granules of sources, held on this machine as far as they were read.

Readers say which bytes they lack (`reprojection/formats/held.py`); here they are fetched. A granule
that lies on this machine is read where it is. A small one is fetched whole, since its structure
takes more calls than its values; so is one whose structure is scattered, and one whose source sends
no parts.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from archives.errors import UnlikeRecordError
from archives.fetch.parts import InParts, Range, WholeOnlyError
from archives.model import GranuleRecord
from archives.sources import Acceptance, Sources
from processes.locks import locked
from reprojection.errors import NotHeldError
from reprojection.formats.held import Held, completed, joined, keep
from tasks.holdings.structures import Structures

T = TypeVar("T")

WHOLE_BYTES = 4_000_000
"""A granule of at most this size is fetched whole."""

MOST_ROUNDS = 24
"""Calls after which a granule is fetched whole: where its structure is scattered."""

BYTES_OF_ROUND = 250_000
"""Bytes of a granule for each of which one more call is made: a large one pays many calls."""

IN_USE = 600.0
"""Seconds for which a granule that was used may be in use."""


def identity(record: GranuleRecord) -> str:
    """Return a name that stands for what a source lists as a granule."""
    said = repr((record.source, record.url, record.size, record.checksum)).encode()
    return hashlib.sha256(said).hexdigest()[:20]


_EDITION = ".edition"  # the file beside parts that says which edition they are of
_HEAD = 1 << 16
_GAP = 1 << 14  # bytes between two parts that are fetched with them
_GAP_IN_HASTE = 1 << 18  # what four connections of 20 MB/s bring while one more call answers
_BLOCK = 1 << 14  # bytes of structure that are fetched at once; twice as many after each
_MOST_BLOCK = 1 << 18
_MOST_IN_HASTE = 1 << 23  # held in memory while it comes
_MOST_PARTS = 512  # of structure in one round: more of them are scattered over the file


@dataclass
class Traffic:
    """What was fetched: bytes, parts, and granules that were fetched whole."""

    bytes: int = 0
    parts: int = 0
    whole: int = 0


@dataclass
class PartsFolder:
    """A folder of granules of sources; beyond `most` bytes, those used longest ago go, None: none.

    What was used in the last ten minutes stays: somebody may be reading it. Several processes may
    share the folder. Files of this machine are read where they are, unless `copies`: then the
    folder gets parts of them, too. `accept` looks at what is fetched whole. `structures` are
    known from readings before, also of files that are not here any more. `in_haste`: somebody waits
    for what is read, so rather more bytes are fetched than more calls are made.
    """

    sources: Sources
    folder: Path
    most: int | None
    copies: bool = False
    accept: Acceptance | None = None
    structures: Structures | None = None
    in_haste: bool = False
    traffic: Traffic = field(default_factory=Traffic)

    def read(self, records: Sequence[GranuleRecord], work: Callable[[Sequence[Path]], T]) -> T:
        """Do some work on the files of granules, which may be held in part.

        Args:
            records: The granules.
            work: Reads them, in their order. It is begun again after each fetch.

        Raises:
            ArchiveError: a granule cannot be fetched, or was replaced.
            OSError: ENOSPC.
        """
        for again in (True, False):
            reading = _Reading(self)
            if again:  # later, what is stored may be of the edition before, too
                self._bring(records)
            try:
                reading.begin(records)
                found = completed(lambda: work(list(reading.records)), reading.fetch)  # noqa: B023
            except UnlikeRecordError:
                # What is known may be the structure of an edition before.
                if not (again and self._forget(records)):
                    raise
            else:
                reading.end()
                return found
        raise AssertionError  # pragma: no cover - the second pass returns or raises

    def path_of(self, record: GranuleRecord, opened: "_Opened | None" = None) -> Path:
        """Return a granule's file: its own on this machine, else one of this folder.

        What is opened for its first parts is put into `opened`.
        """
        near = None if self.copies else self.sources.path_of(record)
        if near is not None:
            return near
        path = self.folder / identity(record) / record.name
        if path.exists():
            os.utime(path.parent)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._begin(record, path, {} if opened is None else opened)
        return path

    def _bring(self, records: Sequence[GranuleRecord]) -> None:
        """Take the structures that other machines have stored of granules that are not here."""
        if self.structures is None:
            return
        for record in records:
            name = identity(record)
            small = 0 < record.size <= WHOLE_BYTES
            if small or (self.folder / name / record.name).exists():
                continue
            if self.copies or self.sources.path_of(record) is None:
                with suppress(OSError):  # it is learnt again
                    self.structures.bring(name)

    def _forget(self, records: Sequence[GranuleRecord]) -> bool:
        """Forget the structures of granules; tell whether there was one."""
        if self.structures is None:
            return False
        names = [identity(record) for record in records]
        known = [name for name in names if (self.structures.folder / name).exists()]
        for name in known:
            self.structures.forget(name)
            shutil.rmtree(self.folder / name, ignore_errors=True)
        return bool(known)

    def _begin(self, record: GranuleRecord, path: Path, opened: "_Opened") -> None:
        if self._is_known(record, path):
            return
        parts = opened[path] = self.sources.in_parts(record)
        try:
            size = 0 if parts is None else record.size or parts.size()
            if parts is None or size <= WHOLE_BYTES:
                self.fetch_whole(record, path)
                return
            head, tail = (0, _HEAD), (size - _HEAD, size)
            self.keep(path, size, parts, [head, tail])
        except WholeOnlyError:
            self.fetch_whole(record, path)

    def _is_known(self, record: GranuleRecord, path: Path) -> bool:
        """Begin a file with what is known of a granule's structure, if anything is."""
        if self.structures is None:
            return False
        with self._alone():
            edition = None if path.exists() else self.structures.give(identity(record), path)
            if edition is not None:
                (path.parent / _EDITION).write_text(edition, "utf-8")
            return path.exists()

    def fetch_whole(self, record: GranuleRecord, path: Path) -> None:
        """Fetch a granule, which replaces what is held of it. Raises ArchiveError, OSError."""
        fetched = self.sources.fetch(record, path, accept=self.accept)
        self.traffic.whole += 1
        self.traffic.bytes += fetched.size
        self._make_room()

    def keep(self, path: Path, size: int, parts: InParts, ranges: Sequence[Range]) -> None:
        """Fetch parts of a granule. Raises ArchiveError, OSError."""
        wanted = joined(ranges, _GAP_IN_HASTE if self.in_haste else _GAP)
        try:
            data = parts.read(wanted)
        except UnlikeRecordError:
            shutil.rmtree(path.parent, ignore_errors=True)
            raise
        with self._alone():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._see_same(path, parts.edition)
            keep(path, size, {low: part for (low, _), part in zip(wanted, data, strict=True)})
        self.traffic.parts += len(wanted)
        self.traffic.bytes += sum(map(len, data))
        self._make_room()

    def _see_same(self, path: Path, edition: str) -> None:
        """See that parts are of the edition that is held; raise UnlikeRecordError, keep nothing."""
        said = path.parent / _EDITION
        if path.exists() and (said.read_text("utf-8") if said.exists() else "") != edition:
            shutil.rmtree(path.parent, ignore_errors=True)
            raise UnlikeRecordError(f"{path.name} was replaced since parts of it came; begin again")
        if not path.exists():
            said.write_text(edition, "utf-8")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes and threads from changing what is held meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / ".lock"):
            yield

    def _make_room(self) -> None:
        if self.most is None:
            return
        found = []
        for path in self.folder.glob("*/*"):
            with suppress(FileNotFoundError):  # another process has taken it
                used = path.parent.stat().st_mtime
                found.append((used, 512 * path.stat().st_blocks, path.parent))
        held, until = sum(size for _, size, _ in found), time.time() - IN_USE
        for used, size, folder in sorted(found):
            if held <= self.most or used > until:
                break
            shutil.rmtree(folder, ignore_errors=True)
            held -= size


_Opened = dict[Path, InParts | None]


@dataclass
class _Reading:
    """One piece of work on files: how often each was fetched from."""

    folder: PartsFolder
    records: dict[Path, GranuleRecord] = field(default_factory=dict)
    _opened: _Opened = field(default_factory=dict)
    _learnt: dict[Path, list[Range]] = field(default_factory=dict)
    _rounds: dict[Path, int] = field(default_factory=dict)
    _ahead: dict[Path, Range] = field(default_factory=dict)  # end of the last block, and its bytes

    def begin(self, records: Sequence[GranuleRecord]) -> None:
        """Have the first parts of files that are not here."""
        for record in records:
            self.records[self.folder.path_of(record, self._opened)] = record

    def fetch(self, error: NotHeldError) -> None:
        path = error.path
        record = self.records[path]
        if path not in self._opened:
            self._opened[path] = self.folder.sources.in_parts(record)
        parts = self._opened[path]
        self._rounds[path] = self._rounds.get(path, 0) + 1
        most = max(MOST_ROUNDS, error.size // BYTES_OF_ROUND)
        if parts is None or self._rounds[path] > most:
            self.folder.fetch_whole(record, path)
            return
        ranges = error.ranges if error.values else self._read_ahead(error)
        if not ranges:
            return  # another process has fetched it meanwhile
        if not error.values and len(joined(ranges, _GAP)) > _MOST_PARTS:
            self.folder.fetch_whole(record, path)
            return
        try:
            self.folder.keep(path, error.size, parts, ranges)
        except WholeOnlyError:
            self.folder.fetch_whole(record, path)
            return
        if not error.values:
            self._learnt.setdefault(path, []).extend(ranges)

    def _read_ahead(self, error: NotHeldError) -> tuple[Range, ...]:
        """Return what is missing; where a list leads from one place to the next, more behind it.

        Lists of HDF4 do: each block of them tells where the next one begins. What goes on close to
        the last block, and all of it in haste, is fetched in blocks that grow.
        """
        if len(error.ranges) > 1:
            return error.ranges
        ((begin, end),) = error.ranges
        last, block = self._ahead.get(error.path, (begin, _BLOCK // 2))
        if self.folder.in_haste:
            block = min(2 * block, _MOST_IN_HASTE)
        else:
            block = min(2 * block, _MOST_BLOCK) if 0 <= begin - last <= block else _BLOCK
        end = min(max(end, begin + block), error.size)
        self._ahead[error.path] = end, block
        held = Held.of(error.path)
        return ((begin, end),) if held is None else held.missing([(begin, end)])

    def end(self) -> None:
        """Keep what was learnt of the structure of granules."""
        structures = self.folder.structures
        if structures is None:
            return
        for path in self.records:
            held = Held.of(path)
            learnt = self._learnt.get(path, [])
            name = path.parent.name
            if held is None or not (learnt or structures.lacks(name)):
                continue
            ends = [(0, min(_HEAD, held.size)), (max(0, held.size - _HEAD), held.size)]
            edition = (path.parent / _EDITION).read_text("utf-8")
            with suppress(OSError):  # it is learnt again
                structures.add(name, path, [*learnt, *ends], edition)
