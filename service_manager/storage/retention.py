"""Deleting what is not worth keeping: artifacts, and blobs of attempts that came to nothing.

So are checkpoints of tasks that have ended. A task is EXPIRED before any of its blobs goes: a
request that comes meanwhile finds it either DONE with its blobs, or EXPIRED and to be made again.
Blobs are judged by name and task row alone, and artifacts by `worth`.
"""

import heapq
from collections.abc import Iterator

import structlog

from service_manager.storage.worth import Kept, Policy, Wanting, Why, beyond_quota, ended, kept
from tasks.bag import checkpoints, history, transitions
from tasks.bag.expectation import Times
from tasks.bag.model import Phase, State, Task
from tasks.bag.protocol import change_task
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS
from tasks.bag.transitions import Change
from tasks.errors import FencedError
from tasks.holdings.stored_structures import drop_old
from tasks.operators import prices
from tasks.operators.manager_rows import PhaseStore
from tasks.request.library import NO_UPLOADS, Library
from tasks.requests import outbox, request_operations
from tasks.storage.blobs import ARTIFACTS, CHECKPOINTS, GRANULES

log = structlog.get_logger("manager.retention")

_CANDIDATES = 2000  # of a shard, for the quota: those of least worth
_DAY = 86_400.0
_PAUSE = 100  # rows or blobs between two points at which a pass may pause

NOTHING = Policy(storage=float("inf"), results=float("inf"))
"""Keeps no artifact without an interest of a request, ended or not."""


class Retention:
    """Goes through a shard's tasks and blobs.

    A blob is deleted in the second pass that finds it useless, at least `wait` seconds after the
    first pass, because somebody may be reading it.
    """

    def __init__(
        self,
        runtime: Runtime,
        wait: float,
        policy: Policy = NOTHING,
        library: Library = NO_UPLOADS,
    ) -> None:
        self._runtime = runtime
        self._library = library
        self._wait = wait
        self._weighs = self._policy = policy
        self._useless: dict[tuple[str, str], float] = {}
        self._sizes: dict[str, int] = {}  # bytes kept, by shard
        self._stored: dict[str, dict[Phase, PhaseStore]] = {}  # by shard
        self._least: dict[str, list[Kept]] = {}  # of a shard, what would go first
        self._ended: dict[str, float] = {}  # when requests ended
        self._forgot = float("-inf")  # when old history was deleted

    def expire(self, shard: str) -> int:
        """DONE -> EXPIRED for a shard's tasks that are not worth keeping; how many."""
        return sum(1 for expired in self.expiring(shard) if expired)

    def collect(self, shard: str) -> int:
        """Delete a shard's useless blobs; how many were deleted."""
        return sum(1 for deleted in self.collecting(shard) if deleted)

    def passing(self, shard: str) -> Iterator[bool]:
        """Run both passes; yield true for each task expired or blob deleted.

        Once in a turn of all shards, old mails and archives of deleted packages are deleted, too;
        once a day, old details of the history and old structures of granules.
        """
        yield from self.expiring(shard)
        yield from self.collecting(shard)
        if shard == SHARDS[-1]:
            number = outbox.drop_old(self._runtime.store, self._runtime.clock.now())
            log.debug("old mails deleted", count=number)
            self._library.delete_unused()
            yield from self._forget()

    def _forget(self) -> Iterator[bool]:
        """Once a day, delete what the history lists of long ago, and old structures."""
        now = self._runtime.clock.now()
        if now - self._forgot < _DAY:
            return
        self._forgot = now
        number = 0
        for deleted in history.forgetting(self._runtime.store, now - self._policy.history):
            number += deleted
            yield False
        log.debug("old history deleted", count=number)
        yield from drop_old(self._runtime.blobs, now)

    def expiring(self, shard: str) -> Iterator[bool]:
        """`expire`, with points at which to pause."""
        times = Times(history.class_statistics(self._runtime.store))
        self._policy = self._weighs.priced(prices.load(self._runtime.store).prices)
        size = 0
        stored = {phase: PhaseStore(phase=phase) for phase in Phase}
        least: list[Kept] = []
        self._ended.clear()
        for number, one in enumerate(survey(self._runtime, shard, times, self._ended)):
            now = self._runtime.clock.now()
            why = one.why(self._policy, now)
            if why is Why.NOT and self._expire(one):
                yield True
                continue
            size += one.size
            old = stored[one.phase]
            stored[one.phase] = PhaseStore(
                phase=one.phase, artifacts=old.artifacts + 1, size=old.size + one.size
            )
            if self._policy.quota and why in (Why.WORTH, Why.NOT):
                least.append(one)
                if len(least) > 2 * _CANDIDATES:
                    least = heapq.nsmallest(_CANDIDATES, least, key=self._density)
            if number % _PAUSE == 0:
                yield False
        self._sizes[shard] = size
        self._stored[shard] = stored
        self._least[shard] = least
        yield from self._meet_quota()

    def stored(self) -> tuple[tuple[PhaseStore, ...], int]:
        """Return what was kept at the latest look, by phase, and of how many shards."""
        found = [shard[phase] for phase in Phase for shard in self._stored.values()]
        return tuple(
            PhaseStore(
                phase=phase,
                artifacts=sum(one.artifacts for one in found if one.phase is phase),
                size=sum(one.size for one in found if one.phase is phase),
            )
            for phase in Phase
        ), len(self._stored)

    def collecting(self, shard: str) -> Iterator[bool]:
        """`collect`, with points at which to pause."""
        now = self._runtime.clock.monotonic()
        seen: set[tuple[str, str]] = set()
        for number, (container, name) in enumerate(self._names(shard)):
            if number % _PAUSE == 0:
                yield False
            if self._of_use(container, name):
                continue
            seen.add((container, name))
            if now - self._useless.setdefault((container, name), now) < self._wait:
                continue
            self._runtime.blobs.delete(container, name)
            del self._useless[(container, name)]
            yield True
        for known in [k for k in self._useless if k[1][0] == shard and k not in seen]:
            del self._useless[known]

    def _meet_quota(self) -> Iterator[bool]:
        """Once all shards were looked at: what is kept beyond the quota goes."""
        if not self._policy.quota or len(self._sizes) < len(SHARDS):
            return
        candidates = [one for least in self._least.values() for one in least]
        now = self._runtime.clock.now()
        for one in beyond_quota(candidates, sum(self._sizes.values()), self._policy, now):
            if self._expire(one):
                self._sizes[one.key[0]] -= one.size
                self._least[one.key[0]].remove(one)
                yield True

    def _density(self, one: Kept) -> float:
        return one.density(self._policy)

    def _expire(self, one: Kept) -> bool:
        """Withdraw the interests of requests whose results are kept no longer, then expire."""
        lapsed = {wanting.request for wanting in one.wanted}

        def decide(task: Task) -> Change:
            if task.state is State.EXPIRED or not lapsed.issuperset(task.interests):
                return Change(task=task)
            if task.interests:
                return transitions.drop(task, task.interests[0])
            return transitions.expire(task)

        task: Task | None = None
        try:
            for _ in range(len(lapsed) + 1):
                task = change_task(self._runtime, one.key, decide)
                if task is None or task.state is not State.DONE:
                    break
        except FencedError as error:
            log.debug("kept", task=one.key, why=str(error))
            return False
        return task is not None and task.state is State.EXPIRED

    def _of_use(self, container: str, name: str) -> bool:
        key, claim, *_ = name.split("/")
        task = self._runtime.tasks.task(key)
        if container == CHECKPOINTS:
            return checkpoints.is_of_use(task, name)
        return _of_use(task, claim, f"{container}/{name}")

    def _names(self, shard: str) -> Iterator[tuple[str, str]]:
        for container in (ARTIFACTS, GRANULES, CHECKPOINTS):
            for name in self._runtime.blobs.names(container, shard):
                if name.count("/") >= 2:
                    yield container, name


def _of_use(task: Task | None, claim: str, blob: str) -> bool:
    """Tell whether a blob is the artifact's, or may become so.

    Fencing tokens never come back, so a claim that is not the row's own can commit no more.
    """
    if task is None:
        return False
    if task.state is State.RUNNING:
        return task.claim == claim
    return any(file.blob == blob for file in task.files)


def survey(runtime: Runtime, shard: str, times: Times, known: dict[str, float]) -> Iterator[Kept]:
    """Yield the artifacts of a shard.

    `known` remembers from call to call when requests ended.
    """
    for task in runtime.tasks.all_tasks(shard):
        if task.state is State.DONE:
            wanted = [
                Wanting(request=name, ended=_when_ended(runtime, name, known))
                for name in task.interests
            ]
            yield kept(task, times, wanted)


def _when_ended(runtime: Runtime, request: str, known: dict[str, float]) -> float:
    if request not in known:
        try:
            row = request_operations.load(runtime, request)
        except request_operations.NoSuchRequestError:
            known[request] = 1.0
        else:
            known[request] = ended(row.state, row.ended)
    return known[request]
