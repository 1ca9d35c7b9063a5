"""A request's results: by path, remembered between calls so that many downloads read them once,
and read from storage, which may have lost some."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from portal.core.problems import GoneError, NotFoundError
from tasks.errors import BlobMissingError, CorruptBlobError
from tasks.model.gaps import affected
from tasks.model.model import ArtifactFile
from tasks.model.plan import Gap
from tasks.storage.blobs import is_damaged, split_blob
from tasks.tables import protocol, requests
from tasks.tables.request_table import RequestRow
from tasks.tables.services import Services

_REMEMBERED = 64  # requests
TAIL = 2**22  # bytes at the end of a result that are sent once the whole is known to be right


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """One file among a request's results: its path there, the artifact's file it is, and the task
    that made it."""

    path: str
    file: ArtifactFile
    key: str


@dataclass(frozen=True, kw_only=True)
class _Known:
    version: tuple[str, int]
    files: Mapping[str, ResultFile]


class ResultIndex:
    """Paths of results to their files, of the requests looked at last. Safe between threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def files(self, services: Services, row: RequestRow) -> Mapping[str, ResultFile]:
        """What is finished of a request, by path, in order of path."""
        version = (row.state.value, row.delivered)
        with self._lock:
            known = self._known.get(row.id)
            if known is not None and known.version == version and row.state.ended:
                self._known.move_to_end(row.id)
                return known.files
        return self._read(services, row)

    def gaps(
        self, services: Services, row: RequestRow
    ) -> tuple[tuple[Gap, ...], Mapping[str, tuple[str, ...]]]:
        """All that a request lacks, and by `Gap.what` the paths of the results that lack it."""
        gaps = requests.gaps(services, row)
        if not gaps:
            return (), {}
        files = self.files(services, row).values()
        return gaps, affected(gaps, ((found.path, found.file.completeness) for found in files))

    def find(self, services: Services, row: RequestRow, path: str) -> ResultFile:
        """The result at a path; NotFoundError when it is not finished or not asked for."""
        with self._lock:
            known = self._known.get(row.id)
        found = known.files.get(path) if known is not None else None
        if found is None:
            found = self._read(services, row).get(path)
        if found is None:
            raise NotFoundError(
                f"Request {row.id} has no finished result {path!r}.",
                "Its results are listed at /api/requests/ID/results; more may come later.",
            )
        return found

    def reader(self, services: Services, row: RequestRow) -> "ResultReader":
        """Reads a request's results from storage."""
        return ResultReader(services=services, index=self, request=row.id)

    def forget(self, request: str) -> None:
        """Read a request's results anew the next time: a blob was not where it had been."""
        with self._lock:
            self._known.pop(request, None)

    def _read(self, services: Services, row: RequestRow) -> Mapping[str, ResultFile]:
        listed = {
            path: ResultFile(path=path, file=file, key=want.key)
            for want in requests.results(services, row.id)
            for file in want.files
            for path in [f"{want.output.strip('/')}/{file.name}".lstrip("/")]
        }
        files = dict(sorted(listed.items()))
        with self._lock:
            self._known[row.id] = _Known(version=(row.state.value, row.delivered), files=files)
            self._known.move_to_end(row.id)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return files


@dataclass(frozen=True, kw_only=True)
class ResultReader:
    """Reads results of one request. What storage has lost or damaged is told by GoneError, and made
    again for the next request that wants it; what was damaged on its way, by CorruptBlobError."""

    services: Services
    index: ResultIndex
    request: str

    def part(
        self, result: ResultFile, start: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        """Bytes of a result as they are stored; raises before the first."""
        try:
            return self.services.blobs.stream(*split_blob(result.file.blob), start, length)
        except BlobMissingError:
            raise self._lost(result) from None

    def whole(self, result: ResultFile) -> Iterator[bytes]:
        """A result, whose end is held back unless the whole is what was recorded: raises before the
        first part, or in place of the end."""
        return self._checked(result, self.part(result))

    def current(self, result: ResultFile) -> ResultFile:
        """A result as its task has it now: made again, perhaps; GoneError when it is known to be
        lost."""
        task = self.services.tasks.task(result.key)
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
            if not is_damaged(self.services.blobs, read):
                raise read
            raise self._lost(result)
        yield tail

    def _lost(self, result: ResultFile) -> GoneError:
        self.index.forget(self.request)
        protocol.lose(self.services, result.key, result.file.blob)
        return GoneError(
            f"Storage has lost {result.path}, or damaged it.",
            "Submit the request again: what is missing is made again, and comes back here, too.",
        )
