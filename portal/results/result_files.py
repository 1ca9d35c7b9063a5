"""Find a request's results by path, and read them from storage, which may have lost some.

The paths are remembered between calls, so that many downloads read them once.
"""

import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from portal.serving.caches import Kept
from portal.serving.problems import GoneError, NotFoundError
from tasks.bag import protocol
from tasks.bag.model import ArtifactFile
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.errors import BlobMissingError, CorruptBlobError, SwathmillError
from tasks.packages.items import without_items
from tasks.requests import request_operations
from tasks.requests.gaps import affected
from tasks.requests.plan import Gap
from tasks.requests.request_table import RequestRow
from tasks.storage.blobs import Served, SigningBlobs, is_damaged, split_blob

_REMEMBERED = 64  # requests whose results are remembered
_LOST = 32  # results of a request that are looked at one by one
_GAPS_KEPT = 16  # requests whose gaps are remembered
_NEWEST = 4  # results of a request that are known as the newest
_SHARE = 20.0  # times the duration of a read for which it serves
_QUICK = 0.05  # seconds of a read that is repeated each time
SHORTLY = 2.0
"""Seconds for which what was read serves while the request's row is the same. Results and failures
change shortly before the row does."""
TAIL = 2**22  # bytes at the end of a result that are sent only after its checksum was verified


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """One file of a request's results: its path, the file of the artifact, and the task's key."""

    path: str
    file: ArtifactFile
    key: str


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What was read of a request, at which state of it, when, and how long that took.

    `newest` are the paths of the results that came last, as far as earlier reads show. `lost` are
    keys of tasks of whose files storage has lost one: each may have been made again since.
    """

    etag: str  # the row's
    version: tuple[object, ...]
    files: Mapping[str, ResultFile]
    failures: tuple[Interest, ...]
    awaited: tuple[Interest, ...]
    newest: tuple[str, ...]
    read: float
    took: float
    lost: frozenset[str] = frozenset()


class ResultIndex:
    """Map paths of results to their files, for the requests looked at last. Thread-safe.

    A running request's are read again when its row has changed, and after two seconds. While a
    request of very many tasks runs, what was read last serves for 20 times as long as
    reading took: so, however many pages follow it, it takes a twentieth of a processor at most.
    What storage has lost is read again alone, until it has been made again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._gaps: Kept[tuple[Gap, ...]] = Kept(_GAPS_KEPT)
        self._lock = threading.Lock()

    def is_known(self, row: RequestRow) -> bool:
        """Tell whether a request's results are at hand, without a read."""
        with self._lock:
            return row.id in self._known

    def files(self, runtime: Runtime, row: RequestRow) -> Mapping[str, ResultFile]:
        """Return the finished results of a request by path, sorted by path."""
        return self._fresh(runtime, row).files

    def failures(self, runtime: Runtime, row: RequestRow) -> tuple[Interest, ...]:
        """Return what failed or could not be made, by phase and name."""
        return self._fresh(runtime, row).failures

    def awaited(self, runtime: Runtime, row: RequestRow) -> tuple[Interest, ...]:
        """Return the results of a request that are planned, and neither made nor failed."""
        return () if row.state.ended else self._fresh(runtime, row).awaited

    def newest(self, runtime: Runtime, row: RequestRow) -> tuple[ResultFile, ...]:
        """Return the results that came last, the newest first: a few, without STAC items.

        Rows do not say when a result came: this tells what each read found beyond the read before.
        Empty if the first read found many already, until another one comes.
        """
        known = self._fresh(runtime, row)
        return tuple(known.files[path] for path in known.newest)

    def _fresh(self, runtime: Runtime, row: RequestRow) -> _Known:
        now = runtime.clock.monotonic()
        with self._lock:
            known = self._known.get(row.id)
            if known is not None:
                same = known.version == _version(row)
                serves = known.took > _QUICK and now - known.read < _SHARE * known.took
                just = known.etag == row.etag and now - known.read < SHORTLY
                if same if row.state.ended else serves or just:
                    self._known.move_to_end(row.id)
                else:
                    known = None
        if known is None:
            return self._read(runtime, row)
        return self._made_again(runtime, row, known) if known.lost else known

    def gaps(
        self, runtime: Runtime, row: RequestRow
    ) -> tuple[tuple[Gap, ...], Mapping[str, tuple[str, ...]]]:
        """Return all gaps of a request, and by `Gap.what` the paths of the results that lack it."""
        gaps = self._gaps.get(f"{row.id} {row.etag}", lambda: request_operations.gaps(runtime, row))
        if not gaps:
            return (), {}
        files = self.files(runtime, row).values()
        return gaps, affected(gaps, ((found.path, found.file.completeness) for found in files))

    def find(self, runtime: Runtime, row: RequestRow, path: str) -> ResultFile:
        """Return the result at a path; raise NotFoundError if no finished result has this path."""
        with self._lock:
            known = self._known.get(row.id)
        found = known.files.get(path) if known is not None else None
        if found is None:
            found = self._read(runtime, row).files.get(path)
        if found is None:
            raise NotFoundError(
                f"Request {row.id} has no finished result {path!r}.",
                "Its results are listed at /api/requests/ID/results; more may come later.",
            )
        return found

    def reader(self, runtime: Runtime, row: RequestRow) -> "ResultReader":
        """Return a reader of a request's results."""
        return ResultReader(runtime=runtime, index=self, request=row.id)

    def lose(self, request: str, key: str) -> None:
        """Look at a task of a request again at each call, until its files have been made again.

        Where very many are lost, everything is read again instead.
        """
        with self._lock:
            known = self._known.get(request)
            if known is None or key in known.lost:
                return
            if len(known.lost) < _LOST:
                self._known[request] = replace(known, lost=known.lost | {key})
            else:
                del self._known[request]

    def _made_again(self, runtime: Runtime, row: RequestRow, known: _Known) -> _Known:
        """Read what was lost; return what is known with those that have other files by now."""
        read = [runtime.tasks.interest(row.id, key) for key in sorted(known.lost)]
        found = _files_of(request_operations.results_in([one for one in read if one is not None]))
        changed = {one.key for path, one in found.items() if known.files.get(path) != one}
        if not changed:
            return known
        rest = {path: one for path, one in known.files.items() if one.key not in changed}
        new = {path: one for path, one in found.items() if one.key in changed}
        made = replace(known, files=dict(sorted((rest | new).items())), lost=known.lost - changed)
        with self._lock:
            if self._known.get(row.id) is known:
                self._known[row.id] = made
        return made

    def _read(self, runtime: Runtime, row: RequestRow) -> _Known:
        began = runtime.clock.monotonic()
        notable = request_operations.notable(runtime, row.id)
        listed = _files_of(request_operations.results_in(notable))
        ended = runtime.clock.monotonic()
        files = dict(sorted(listed.items()))
        with self._lock:
            before = self._known.get(row.id)
        known = _Known(
            etag=row.etag,
            version=_version(row),
            files=files,
            newest=_newest(files, before),
            failures=tuple(request_operations.failures_in(notable)),
            awaited=tuple(one for one in notable if one.output and one.outcome is None),
            read=ended,
            took=ended - began,
        )
        with self._lock:
            self._known[row.id] = known
            self._known.move_to_end(row.id)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return known


def _files_of(results: Iterable[Interest]) -> dict[str, ResultFile]:
    """Return the files of results by path."""
    return {
        path: ResultFile(path=path, file=file, key=interest.key)
        for interest in results
        for file in interest.files
        for path in [f"{interest.output.strip('/')}/{file.name}".lstrip("/")]
    }


def _newest(files: Mapping[str, ResultFile], before: _Known | None) -> tuple[str, ...]:
    """Return the paths of the results that came last, as far as the read before shows."""
    earlier = before.files if before is not None else {}
    came = [path for path in without_items(files) if files[path] != earlier.get(path)]
    if before is None:
        return tuple(came) if len(came) <= _NEWEST else ()
    rest = [path for path in before.newest if path in files and path not in came]
    return (*came, *rest)[:_NEWEST]


def _version(row: RequestRow) -> tuple[object, ...]:
    failed = sum(count.failed for count in row.phases.values())
    return row.state.value, row.delivered, failed, len(row.retry_orders)


@dataclass(frozen=True, kw_only=True)
class ResultReader:
    """Read the results of one request from storage.

    Raises GoneError for a result that storage has lost or damaged; such a result is made again for
    the next request that wants it. Raises CorruptBlobError for bytes that were damaged in transit.
    """

    runtime: Runtime
    index: ResultIndex
    request: str

    def part(
        self, result: ResultFile, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Yield bytes of a result as they are stored; raise before the first part if that fails."""
        try:
            return self.runtime.blobs.stream(*split_blob(result.file.blob), start, length)
        except BlobMissingError:
            raise self._lost(result) from None

    def whole(self, result: ResultFile) -> Iterator[bytes]:
        """Yield a whole result; send its end only if the whole has the recorded checksum.

        Raises before the first part, or in place of the end.
        """
        return self._checked(result, self.part(result))

    def link(self, result: ResultFile, seconds: float, served: Served) -> str:
        """Return a link to the result in storage that is good for some seconds.

        It is "" where storage cannot sign links. Raises GoneError if storage has lost the result.
        """
        blobs: object = self.runtime.blobs
        if not seconds or not isinstance(blobs, SigningBlobs):
            return ""
        place = split_blob(result.file.blob)
        if not self.runtime.blobs.exists(*place):
            raise self._lost(result)
        return blobs.signed_link(*place, seconds, served)

    def current(self, result: ResultFile) -> ResultFile:
        """Return the file that the result's task has now: it may have been made again.

        Raises GoneError if the file is known to be lost.
        """
        task = self.runtime.tasks.task(result.key)
        if task is None or result.file in task.files:
            return result
        for file in task.files:
            if file.name == result.file.name:
                return replace(result, file=file)
        raise self._lost(result)

    def _checked(self, result: ResultFile, stream: Iterator[bytes]) -> Iterator[bytes]:
        running, tail = hashlib.sha256(), b""
        for part in stream:
            running.update(part)
            if tail:
                yield tail
            if len(part) > TAIL:
                yield part[:-TAIL]
            tail = part[-TAIL:]
        found, recorded = running.hexdigest(), result.file.sha256
        if found != recorded:
            read = CorruptBlobError(result.file.blob, recorded, found)
            if not is_damaged(self.runtime.blobs, read):
                raise read
            raise self._lost(result)
        yield tail

    def _lost(self, result: ResultFile) -> GoneError:
        self.index.lose(self.request, result.key)
        protocol.lose(self.runtime, result.key, result.file.blob)
        return GoneError(
            f"Storage has lost {result.path}, or damaged it.",
            "Submit the request again: the missing result is made again and appears here, too.",
        )


class BlobFile(io.RawIOBase):
    """A result as a file that reads only the bytes asked for from storage.

    For programs that do not pass exceptions on from their reads, they are collected in `failures`.
    """

    def __init__(
        self, reader: ResultReader, result: ResultFile, failures: list[Exception] | None = None
    ) -> None:
        self._reader = reader
        self._size = result.file.size
        self._result = result
        self._failures = failures
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError("before the begin of the file")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        try:
            data = b"".join(self._reader.part(self._result, self._at, length))
        except SwathmillError as error:
            if self._failures is None:
                raise
            self._failures.append(error)
            return 0
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
