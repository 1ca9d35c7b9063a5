"""Each call of storage fails once, at each place of a request's life: it ends as without it.

A call that fails has had no effect, or its effect is there and its answer was lost. What called is
what calls again in the product: the manager in its next round, the worker that claims and commits,
the program that submits, retries and sends mails.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pytest

from tasks.bag import history
from tasks.bag.categories import Category
from tasks.bag.model import RequestState
from tasks.errors import StoreError
from tasks.requests import outbox, request_operations, retrying
from tasks.requests.request_table import RequestRow
from tasks.requests.retrying import Scope
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Operation, Row
from tests.service_manager.leader.test_manager import G, bench, left_over
from tests.service_manager.workbench import Bench, document

T = TypeVar("T")
PARTS = 8
TRIES = 8  # of a caller; updates within try several times themselves


class FailsOnce(MemoryStore):
    """A store whose call number `at` fails, `late`: after it took effect."""

    def __init__(self, at: int = -1, *, late: bool = False) -> None:
        super().__init__()
        self.calls: list[str] = []
        self._at, self._late = at, late
        self.is_quiet = False  # what is read to look at the end does not count

    def _next(self, what: str) -> bool:
        if self.is_quiet:
            return False
        self.calls.append(what)
        return len(self.calls) - 1 == self._at

    def get(self, table: str, partition: str, row: str) -> Row | None:
        if self._next("get"):
            raise StoreError("away")
        return super().get(table, partition, row)

    def scan(
        self, table: str, partition: str, start: str, end: str, limit: int | None = None
    ) -> Iterator[Row]:
        if self._next("scan"):
            raise StoreError("away")
        yield from super().scan(table, partition, start, end, limit)

    def transact(
        self, table: str, partition: str, operations: Sequence[Operation]
    ) -> tuple[str, ...]:
        fails = self._next("transact")
        if fails and not self._late:
            raise StoreError("away")
        etags = super().transact(table, partition, operations)
        if fails:
            raise StoreError("the answer was lost")
        return etags


def again(call: Callable[[], T]) -> T:
    """Call until storage answers."""
    for _ in range(TRIES):
        try:
            return call()
        except StoreError:
            continue
    raise AssertionError("storage failed more than once")


class Patient(Bench):
    """Goes on after a failure as the processes do."""

    def restart(self, epoch: int = 1) -> None:
        again(partial(super().restart, epoch))

    def rounds(self, number: int, seconds: float = 1.0) -> None:
        for _ in range(number):
            with suppress(StoreError):  # the next round is another try
                self.manager.tick()
            sent, self.sent[:] = list(self.sent), []
            for key in sent:
                self.sent[:] = [key]
                again(self._retried)
            self.runtime.clock.sleep(seconds)

    def _retried(self) -> None:
        kept = list(self.sent)
        try:
            self.work()
        except StoreError:
            self.sent[:] = kept
            raise

    def row(self, request: str) -> RequestRow:
        return again(lambda: request_operations.load(self.runtime, request))


def life(store: FailsOnce) -> dict[str, object]:
    """A request with a gap, another that its owner has try it again, and their mails."""
    left = {G[0].key: Category.SOURCE_NOT_PUBLISHED, G[1].key: Category.OPERATION_TIMEOUT}
    runtime = replace(memory_runtime(ManualClock()), store=store)
    b = Patient(
        plans=bench().plans,
        runtime=runtime,
        decide=lambda claimed: left.pop(claimed.task.key, None),
    )
    again(lambda: request_operations.submit(runtime, "owner", document("p"), request_id="first"))
    first = b.until_ended("first")
    retried = again(lambda: retrying.retry(runtime, "first", Scope()))
    second = b.until_ended(retried.id)
    b.rounds(40)
    mails = again(lambda: list(outbox.unsent(store)))
    for mail in mails:
        again(partial(outbox.mark_sent, store, runtime.clock, mail, 1.0))
    today = dt.datetime.fromtimestamp(runtime.clock.now(), dt.UTC).date()
    store.is_quiet = True
    return {
        "ended": [
            (row.state, row.outputs, row.delivered, row.gap_count) for row in (first, second)
        ],
        "line": [one.retry_of for one in request_operations.list_requests(runtime)],
        "results": [one.name for one in request_operations.results(runtime, second.id)],
        "mails": sorted((mail.request == "first", mail.kind, mail.subject) for mail in mails),
        "unsent": list(outbox.unsent(store)),
        "left over": left_over(b),
        "counted": sorted(
            (day.task_class, str(day.category), day.count)
            for day in history.executions(store, 3, today)
        ),
        "ran": sorted(set(b.ran)),
    }


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """What comes without a failure, and where one may be: the call, and whether it is late."""

    found: dict[str, object]
    places: list[tuple[int, bool]]


@pytest.fixture(scope="module")
def quiet() -> Quiet:
    store = FailsOnce()
    found = life(store)
    assert {*store.calls} == {"get", "scan", "transact"}
    places = [(at, False) for at in range(len(store.calls))]
    places += [(at, True) for at, what in enumerate(store.calls) if what == "transact"]
    return Quiet(found=found, places=places)


def test_the_life_is_one_of_two_requests_and_touches_storage_often(quiet: Quiet) -> None:
    assert quiet.found["ended"] == [
        (RequestState.GAPS, 2, 2, 1),
        (RequestState.COMPLETE, 2, 2, 0),
    ]
    assert quiet.found["left over"] == quiet.found["unsent"] == []
    assert len(quiet.places) > 300


@pytest.mark.parametrize("part", range(PARTS))
def test_one_call_that_fails_changes_nothing_of_what_comes(quiet: Quiet, part: int) -> None:
    """A sample of the places; the next test has them all."""
    at, late = quiet.places[len(quiet.places) * part // PARTS]
    store = FailsOnce(at, late=late)
    assert life(store) == quiet.found
    assert len(store.calls) > at


@pytest.mark.proof
def test_no_call_that_fails_changes_anything_of_what_comes(quiet: Quiet) -> None:
    found = {place: life(FailsOnce(place[0], late=place[1])) for place in quiet.places}
    assert [place for place, one in found.items() if one != quiet.found] == []
