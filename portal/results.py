"""A request's results by path, remembered between calls so that many downloads read them once."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from portal.downloads import ResultFile
from portal.problems import NotFoundError
from tasks import requests
from tasks.requests import RequestRow
from tasks.services import Services

_REMEMBERED = 64  # requests


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

    def forget(self, request: str) -> None:
        """Read a request's results anew the next time: a blob was not where it had been."""
        with self._lock:
            self._known.pop(request, None)

    def _read(self, services: Services, row: RequestRow) -> Mapping[str, ResultFile]:
        listed = {
            path: ResultFile(path=path, file=file)
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
