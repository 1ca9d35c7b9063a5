"""Digesting news: ended attempts are counted, dependents and requests told, the news deleted.

The order is what makes it repeatable: statistics carry the batch's attempts in their own
transaction, telling a dependent or a request twice changes nothing, and the news goes last.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from service_manager.tasks.dependents import Dependents, Told
from service_manager.tasks.ledger import Entry
from service_manager.tasks.view import Live, View
from tasks.errors import ConflictError
from tasks.model.categories import RULES, Category, Retry
from tasks.model.keys import SHARDS, shard
from tasks.model.model import State, Task, WantOutcome
from tasks.storage.store import BATCH_OPERATIONS, Delete, Merge, Operation
from tasks.tables import history
from tasks.tables.rows import News
from tasks.tables.services import Services
from tasks.tables.task_table import note_counted, tell_want

log = structlog.get_logger("manager.digest")

ROWS = 200  # news read from one shard at once
_HELD = (State.FAILED, State.WAITING)  # until all that is being revived is
_TOGETHER = 960  # news digested at once: the cursor names them all in one property


@dataclass
class Digested:
    """What digesting came to."""

    ready: list[Task] = field(default_factory=list)
    later: list[tuple[float, str]] = field(default_factory=list)  # not before, key
    ended: list[News] = field(default_factory=list)  # attempts that ended
    more: bool = False  # some shard has more news


_Outcome = tuple[Live, News, WantOutcome]  # what a request in view hears


class Digest:
    """Reads the news of shards that hints or the sweep name. `epoch` guards the statistics."""

    def __init__(self, services: Services, view: View, dependents: Dependents, epoch: int) -> None:
        self._services = services
        self._store = services.store
        self._tasks = services.tasks
        self._view = view
        self._dependents = dependents
        self._epoch = epoch
        self._shards: set[str] = set(SHARDS)  # with news, as far as is known
        self._after: dict[str, News] = {}  # where the next read of a shard begins
        self._again: set[str] = set()  # got news, maybe before that
        # Attempts that are counted but may still be among the news: an earlier manager's until all
        # news were read, this one's until their news is deleted.
        self._counted = set(history.take_over(services.store, epoch))

    def hint(self, shards: Iterable[str]) -> None:
        """Take note that these shards have completion events."""
        self._shards.update(shards)
        self._again.update(self._after.keys() & set(shards))

    def run(self) -> Digested:
        """Digest what is known to be there, some of each shard.

        Raises:
            StoreError: storage failed; the rest is digested the next time.
            FencedError: a manager of a higher epoch acts.
        """
        result = Digested()
        fresh: set[str] = set()  # shards that get news by this round
        limit = min(ROWS, _TOGETHER // max(1, len(self._shards)))
        news = {
            number: self._tasks.news(number, limit, self._after.get(number))
            for number in sorted(self._shards)
        }
        # All shards' together: a dependent of inputs in many is told in one transaction.
        told = self._tell([one for some in news.values() for one in some])
        result.ready += told.ready
        fresh.update(shard(key) for key in told.ended)
        for number, some in news.items():
            self._settle(number, some, told)
            self._counted -= {history.attempt_id(n) for n in some}
            result.later += [(n.not_before, n.key) for n in some if n.not_before]
            result.ended += [n for n in some if n.number and not n.counted]
            if len(some) == limit:  # the rest of the shard next time, past what has to be kept
                self._after[number] = some[-1]
                result.more = True
            else:
                self._after.pop(number, None)
                self._shards.discard(number)
        if not result.more:
            self._counted = set()
        again = self._again - self._after.keys()
        self._again -= again
        result.more = result.more or bool(again)
        self.hint(fresh | again)
        return result

    def _tell(self, news: Sequence[News]) -> Told:
        attempts = [n for n in news if n.number]
        for start in range(0, len(attempts), history.BATCH):
            part = attempts[start : start + history.BATCH]
            # Before the call: its answer may get lost.
            self._counted |= {history.attempt_id(n) for n in part}
            self._count(part)
        # While tasks are revived, dependents before their inputs, none is planned anew over those
        # that exist: what it lacks may be revived after it.
        held = _HELD if self._view.reviving else ()
        told = self._dependents.tell([one for one in news if one.state not in held])
        for one in news:
            if one.state in held:
                told.kept.add(one.key)
                self._again.add(shard(one.key))
            elif one.state is State.WAITING:  # anew, or its attempt met an input that is gone
                lost = one.category is not None and RULES[one.category].retry is Retry.HEAL
                more = self._dependents.examine(one.key, look=lost)
                told.ready += more.ready
                told.ended += more.ended
                told.kept |= more.kept
        return told

    def _count(self, batch: Sequence[News]) -> None:
        for tries in range(5):
            try:
                history.count(self._store, batch, epoch=self._epoch, keep=self._counted)
            except ConflictError:
                if tries == 4:
                    raise
            else:
                return

    def _settle(self, number: str, news: Sequence[News], told: Told) -> None:
        """Tell the requests and delete the news, in as few transactions as there can be."""
        batch: list[_Telling] = []
        used: set[str] = set()
        for one in news:
            for telling in self._tellings(one, kept=one.key in told.kept):
                names = {op.row for op in telling.operations}
                if used & names or len(used) + len(names) > BATCH_OPERATIONS:
                    self._write(number, batch)
                    batch, used = [], set()
                batch.append(telling)
                used |= names
        self._write(number, batch)

    def _tellings(self, news: News, *, kept: bool) -> Iterator["_Telling"]:
        """Yield what a completion event leads to, in parts where many requests are concerned.

        The last part deletes the event if it may.
        """
        merges, outcomes = self._merges(news)
        most = BATCH_OPERATIONS - 1
        parts = [merges[at : at + most] for at in range(0, len(merges), most)] or [[]]
        seen = note_counted(news)
        for part in parts[:-1]:
            yield _Telling(news=news, merges=part, end=seen)
        etag = news.etag if len(parts) == 1 else None  # the parts before have changed it
        if merges or not kept or not news.counted:
            end = seen if kept else Delete(row=news.row, etag=etag)
            yield _Telling(news=news, merges=parts[-1], end=end, outcomes=outcomes)

    def _merges(self, news: News) -> tuple[list[Merge], list[_Outcome]]:
        merges: list[Merge] = []
        outcomes: list[_Outcome] = []
        outcome = self._outcome(news)
        if outcome is None:
            return merges, outcomes
        for request in news.wants:
            live = self._view.requests.get(request)
            merge = tell_want(
                request,
                news.key,
                outcome,
                category=news.category,
                message=news.message,
                files=news.files,
                stopped=outcome is WantOutcome.FAILED and not news.number,
            )
            if live is None:
                if self._untold(news, request, outcome):
                    merges.append(merge)
                continue
            if outcome is WantOutcome.SUPERSEDED:
                self._ledger(live, news.successor)
            entry = self._ledger(live, news.key)
            if entry is not None and entry.outcome not in (None, outcome):
                entry = self._ledger(live, news.key, afresh=True)  # untold by a retry, perhaps
            if entry is not None and entry.outcome in (None, outcome):
                merges.append(merge)
                outcomes.append((live, news, outcome))
        return merges, outcomes

    def _ledger(self, live: Live, key: str, *, afresh: bool = False) -> Entry | None:
        """Return what is recorded of a task for the request.

        It is read from the table when another manager, stalled since, wrote the interest.
        """
        if afresh or key not in live.ledger:
            want = self._tasks.want(live.id, key)
            if want is not None:
                live.note(want)
        return live.ledger.get(key)

    def _outcome(self, news: News) -> WantOutcome | None:
        """Return the outcome to record: none while the task goes on, or once it was revived."""
        if news.state is State.DONE:
            return WantOutcome.DONE
        if news.state is not State.FAILED:
            return None
        task = self._tasks.task(news.key)
        if task is None or task.state is not State.FAILED:
            return None
        if task.successor:
            # News of an end before this one, since when it was revived, says nothing.
            return WantOutcome.SUPERSEDED if task.successor == news.successor else None
        upstream = news.category is Category.UPSTREAM_FAILED
        return WantOutcome.GAP if upstream else WantOutcome.FAILED

    def _untold(self, news: News, request: str, outcome: WantOutcome) -> bool:
        """Whether an outcome must be recorded for a request that is not in the cache.

        The request is not loaded yet, or it has ended and lists files that were made again since.
        """
        want = self._tasks.want(request, news.key)
        if want is None:
            return False
        if want.outcome is WantOutcome.DONE is outcome:
            return want.files != news.files
        return not want.outcome

    def _write(self, number: str, batch: Sequence["_Telling"]) -> None:
        operations = [op for telling in batch for op in telling.operations]
        if not operations:
            return
        try:
            self._tasks.transact(number, operations)
        except ConflictError as error:
            log.debug("batch refused", shard=number, error=str(error))
            for telling in batch:
                self._write_one(number, telling)
        else:
            for telling in batch:
                _tell(telling.outcomes)

    def _write_one(self, number: str, telling: "_Telling") -> None:
        """Tell one news. Refused, it is gone, or the want of one who was to be told."""
        try:
            self._tasks.transact(number, telling.operations)
        except ConflictError as error:
            log.debug("news refused", shard=number, error=str(error))
        else:
            _tell(telling.outcomes)
            return
        etag = self._tasks.etag(number, telling.end.row)
        known = telling.end.etag if isinstance(telling.end, Delete) else None
        if not etag or known not in (None, etag):
            # Another manager has told it, or a call of ours whose answer was lost: since then it
            # may have been taken back, and what the wants say counts.
            for live, told, _ in telling.outcomes:
                self._ledger(live, told.key, afresh=True)
            self._again.add(number)
            return
        seen = note_counted(telling.news)
        end = Delete(row=telling.end.row) if isinstance(telling.end, Delete) else seen
        alone: list[list[Operation]] = [[merge, seen] for merge in telling.merges]
        alone.append([end])
        for operations in alone:
            try:
                self._tasks.transact(number, operations)
            except ConflictError as gone:
                log.debug("row gone", row=operations[0].row, error=str(gone))
        _tell(telling.outcomes)


@dataclass(frozen=True, kw_only=True)
class _Telling:
    """Part of what a completion event leads to.

    It has the interests to change, in one transaction with the event, which must be as it was read;
    and what the cached requests learn by it.
    """

    news: News
    merges: Sequence[Merge]
    end: Merge | Delete  # of the news
    outcomes: Sequence[_Outcome] = ()

    @property
    def operations(self) -> list[Operation]:
        return [*self.merges, self.end]


def _tell(outcomes: Iterable[_Outcome]) -> None:
    for live, news, outcome in outcomes:
        live.tell(news.key, outcome, news)
