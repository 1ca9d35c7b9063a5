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
from tasks.model.model import State, Task
from tasks.storage.store import BATCH_OPERATIONS, Delete, Entity, Merge, Operation, Row
from tasks.tables import history, rows
from tasks.tables.protocol import read_task
from tasks.tables.rows import News
from tasks.tables.services import Services

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


class Digest:
    """Reads the news of shards that hints or the sweep name. `epoch` guards the statistics."""

    def __init__(self, services: Services, view: View, dependents: Dependents, epoch: int) -> None:
        self._services = services
        self._store = services.store
        self._view = view
        self._dependents = dependents
        self._epoch = epoch
        self._shards: set[str] = set(SHARDS)  # with news, as far as is known
        self._after: dict[str, str] = {}  # where the next read of a shard begins
        self._again: set[str] = set()  # got news, maybe before that
        # Attempts that are counted but may still be among the news: an earlier manager's until all
        # news were read, this one's until their news is deleted.
        self._counted = set(history.take_over(services.store, epoch))

    def hint(self, shards: Iterable[str]) -> None:
        """These shards have news."""
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
        found = {number: self._read(number, limit) for number in sorted(self._shards)}
        news = {number: [rows.load_news(row) for row in found[number]] for number in found}
        # All shards' together: a dependent of inputs in many is told in one transaction.
        told = self._tell([one for some in news.values() for one in some])
        result.ready += told.ready
        fresh.update(shard(key) for key in told.ended)
        for number, some in news.items():
            self._settle(number, some, found[number], told)
            self._counted -= {history.attempt_id(n) for n in some}
            result.later += [(n.not_before, n.key) for n in some if n.not_before]
            result.ended += [n for n in some if n.number and not n.counted]
            if len(some) == limit:  # the rest of the shard next time, past what has to be kept
                self._after[number] = some[-1].row + "\0"
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

    def _read(self, number: str, limit: int) -> list[Row]:
        start, end = rows.prefix_range("o|")
        after = self._after.get(number, start)
        return list(self._store.scan(rows.TABLE, number, after, end, limit=limit))

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

    def _settle(self, number: str, news: Sequence[News], found: Sequence[Row], told: Told) -> None:
        """Tell the requests and delete the news, in as few transactions as there can be."""
        batch: list[_Telling] = []
        used: set[str] = set()
        for one, row in zip(news, found, strict=True):
            for telling in self._tellings(one, row, kept=one.key in told.kept):
                names = {op.row for op in telling.operations}
                if used & names or len(used) + len(names) > BATCH_OPERATIONS:
                    self._write(number, batch)
                    batch, used = [], set()
                batch.append(telling)
                used |= names
        self._write(number, batch)

    def _tellings(self, news: News, row: Row, *, kept: bool) -> Iterator["_Telling"]:
        """What a news comes to: of many requests, told in parts; the last deletes it if it may."""
        merges, outcomes = self._merges(news)
        most = BATCH_OPERATIONS - 1
        parts = [merges[at : at + most] for at in range(0, len(merges), most)] or [[]]
        seen = Merge(row=row.row, entity={"counted": True})
        for part in parts[:-1]:
            yield _Telling(merges=part, end=seen)
        etag = row.etag if len(parts) == 1 else None  # the parts before have changed it
        if merges or not kept or not news.counted:
            end = seen if kept else Delete(row=row.row, etag=etag)
            yield _Telling(merges=parts[-1], end=end, outcomes=outcomes)

    def _merges(self, news: News) -> tuple[list[Merge], list[tuple[Live, News, str]]]:
        merges: list[Merge] = []
        outcomes: list[tuple[Live, News, str]] = []
        outcome = self._outcome(news)
        for request in news.wants if outcome else ():
            live = self._view.requests.get(request)
            merge = Merge(row=rows.want_row(request, news.key), entity=_told(news, outcome))
            if live is None:
                if self._untold(news, request, outcome):
                    merges.append(merge)
                continue
            if outcome == "superseded":
                self._ledger(live, news.successor)
            entry = self._ledger(live, news.key)
            if entry is not None and entry.outcome not in ("", outcome):
                entry = self._ledger(live, news.key, afresh=True)  # untold by a retry, perhaps
            if entry is not None and entry.outcome in ("", outcome):
                merges.append(merge)
                outcomes.append((live, news, outcome))
        return merges, outcomes

    def _ledger(self, live: Live, key: str, *, afresh: bool = False) -> Entry | None:
        """What the request was told of a task; read from the table when another manager, stalled
        since, wrote the want."""
        if afresh or key not in live.ledger:
            row = self._store.get(rows.TABLE, shard(key), rows.want_row(live.id, key))
            if row is not None:
                live.note(rows.load_want(row))
        return live.ledger.get(key)

    def _outcome(self, news: News) -> str:
        """What the requests are told: nothing while the task goes on, or once it was revived."""
        if news.state is State.DONE:
            return "done"
        if news.state is not State.FAILED:
            return ""
        task = read_task(self._store, news.key)
        if task is None or task.state is not State.FAILED:
            return ""
        if task.successor:
            # News of an end before this one, since when it was revived, says nothing.
            return "superseded" if task.successor == news.successor else ""
        return "gap" if news.category is Category.UPSTREAM_FAILED else "failed"

    def _untold(self, news: News, request: str, outcome: str) -> bool:
        """Whether a request out of view must be told: it is not loaded yet, or it has ended and
        lists files that were made again since."""
        row = self._store.get(rows.TABLE, shard(news.key), rows.want_row(request, news.key))
        if row is None:
            return False
        want = rows.load_want(row)
        if want.outcome == "done" == outcome:
            return want.files != news.files
        return not want.outcome

    def _write(self, number: str, batch: Sequence["_Telling"]) -> None:
        operations = [op for telling in batch for op in telling.operations]
        if not operations:
            return
        try:
            self._store.transact(rows.TABLE, number, operations)
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
            self._store.transact(rows.TABLE, number, telling.operations)
        except ConflictError as error:
            log.debug("news refused", shard=number, error=str(error))
        else:
            _tell(telling.outcomes)
            return
        news = self._store.get(rows.TABLE, number, telling.end.row)
        known = telling.end.etag if isinstance(telling.end, Delete) else None
        if news is None or known not in (None, news.etag):
            # Another manager has told it, or a call of ours whose answer was lost: since then it
            # may have been taken back, and what the wants say counts.
            for live, told, _ in telling.outcomes:
                self._ledger(live, told.key, afresh=True)
            self._again.add(number)
            return
        seen = Merge(row=telling.end.row, entity={"counted": True})
        end = Delete(row=news.row) if isinstance(telling.end, Delete) else seen
        alone: list[list[Operation]] = [[merge, seen] for merge in telling.merges]
        alone.append([end])
        for operations in alone:
            try:
                self._store.transact(rows.TABLE, number, operations)
            except ConflictError as gone:
                log.debug("row gone", row=operations[0].row, error=str(gone))
        _tell(telling.outcomes)


@dataclass(frozen=True, kw_only=True)
class _Telling:
    """Part of what a news comes to: wants to change, in one transaction with the news, which must
    be as it was read; and what the requests in view hear by it."""

    merges: Sequence[Merge]
    end: Merge | Delete  # of the news
    outcomes: Sequence[tuple[Live, News, str]] = ()

    @property
    def operations(self) -> list[Operation]:
        return [*self.merges, self.end]


def _tell(outcomes: Iterable[tuple[Live, News, str]]) -> None:
    for live, news, outcome in outcomes:
        live.tell(news.key, outcome, news)


def _told(news: News, outcome: str) -> Entity:
    return {
        "outcome": outcome,
        "category": news.category.value if news.category else "",
        "message": news.message,
        "stopped": outcome == "failed" and not news.number,
        "files": rows.dump_files(news.files),
    }
