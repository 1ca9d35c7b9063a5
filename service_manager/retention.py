"""Deleting what nobody wants: artifacts of no request, and blobs of attempts that came to nothing.

A task is EXPIRED before any of its blobs goes: a request that comes meanwhile finds it either DONE
with its blobs, or EXPIRED and to be made again. Blobs are judged by name and task row alone.
"""

from collections.abc import Iterator

import structlog

from service_manager.view import View
from tasks import rows, transitions
from tasks.blobs import ARTIFACTS, GRANULES
from tasks.errors import FencedError
from tasks.model import State, Task
from tasks.protocol import change_task, read_task
from tasks.services import Services
from tasks.transitions import Change

log = structlog.get_logger("manager.retention")


class Retention:
    """Goes through a shard's tasks and blobs. A blob is deleted in the second pass that finds it to
    be of no use, at least `wait` seconds after the first: a reader may be at it."""

    def __init__(self, services: Services, view: View, wait: float) -> None:
        self._services = services
        self._view = view
        self._wait = wait
        self._useless: dict[tuple[str, str], float] = {}

    def expire(self, shard: str) -> int:
        """DONE -> EXPIRED for a shard's tasks that no request wants; how many."""
        expired = 0
        start, end = rows.prefix_range("t|")
        for row in list(self._services.store.scan(rows.TABLE, shard, start, end)):
            task = rows.load_task(row)
            if task.state is State.DONE and not task.wants:
                expired += self._expire(task.key)
        return expired

    def collect(self, shard: str) -> int:
        """Delete a shard's useless blobs; how many were deleted."""
        deleted = 0
        now = self._services.clock.monotonic()
        seen: set[tuple[str, str]] = set()
        for container, name in self._names(shard):
            key, claim, *_ = name.split("/")
            task = read_task(self._services.store, key)
            if _of_use(task, claim, f"{container}/{name}"):
                continue
            seen.add((container, name))
            if now - self._useless.setdefault((container, name), now) < self._wait:
                continue
            self._services.blobs.delete(container, name)
            del self._useless[(container, name)]
            deleted += 1
        for known in [k for k in self._useless if k[1][0] == shard and k not in seen]:
            del self._useless[known]
        return deleted

    def _expire(self, key: str) -> bool:
        def decide(task: Task) -> Change:
            if task.state is State.EXPIRED:
                return Change(task=task, operations=())
            return transitions.expire(task)

        try:
            task = change_task(self._services, key, decide)
        except FencedError as error:
            log.debug("kept", task=key, why=str(error))
            return False
        return task is not None and task.state is State.EXPIRED

    def _names(self, shard: str) -> Iterator[tuple[str, str]]:
        for container in (ARTIFACTS, GRANULES):
            for name in self._services.blobs.names(container, shard):
                if name.count("/") >= 2:
                    yield container, name


def _of_use(task: Task | None, claim: str, blob: str) -> bool:
    """Whether a blob is the artifact's, or may become so: claim ids never come back, so a claim
    that is not the row's own can commit no more."""
    if task is None:
        return False
    if task.state is State.RUNNING:
        return task.claim == claim
    return any(file.blob == blob for file in task.files)
