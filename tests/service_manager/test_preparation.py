"""How far a request is before its tasks run: days searched, then tasks written."""

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter

import pytest

from archives.model import GranuleRecord
from modis.box import LonLatBox
from service_manager.leader.manager import PREPARING, Manager
from service_manager.options import ManagerOptions
from service_manager.planner.plan_stream import PlanStream
from tasks.bag.model import RequestOrder, RequestState
from tasks.packages.packages import Packages
from tasks.request.document import Request
from tasks.requests import request_operations
from tasks.requests.request_table import Preparation
from tests.service_manager.shelf import LIMITS, REQUEST, Shelf, composites
from tests.service_manager.workbench import Bench

DAYS = 121  # of the request; every eighth has granules
LIMIT_SECONDS = 20.0
ALL = 1000  # days


@dataclass(frozen=True, kw_only=True)
class Gated(Shelf):
    """An archive that lists one more day with granules each time it is let."""

    permits: threading.Semaphore

    def search(
        self,
        product: str,
        collection: str,
        start_day: dt.date,
        end_day: dt.date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        found = super().search(product, collection, start_day, end_day, box)
        for _, records in groupby(found, key=attrgetter("start_day")):
            assert self.permits.acquire(timeout=LIMIT_SECONDS)
            yield from records


@dataclass
class Searching(Bench):
    """A bench whose planner works in a thread, over an archive that the test holds back."""

    permits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    beside: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))

    def plan_of_request(self, request: Request) -> PlanStream:  # type: ignore[override]
        shelf = Gated(records=composites(), permits=self.permits)
        return PlanStream(request, shelf, Packages.of(LIMITS), LIMITS)

    def restart(self, epoch: int = 1) -> None:
        """Start again, knowing nothing but the tables."""
        self.manager = Manager(
            self.runtime,
            self.options,
            self.plan_of_request,
            self.sent.extend,
            epoch,
            self.beside.submit,
        )

    def until(self, there: Callable[[], bool], seconds: float = PREPARING) -> None:
        """Rounds without the worker until something is so."""
        limit = time.monotonic() + LIMIT_SECONDS
        while not there():
            assert time.monotonic() < limit, "it did not come"
            self.manager.tick()
            self.runtime.clock.sleep(seconds)


@pytest.fixture
def bench() -> Iterator[Searching]:
    found = Searching(plans={}, options=ManagerOptions(slice=0.0))
    yield found
    found.manager.close()
    found.permits.release(ALL)
    found.beside.shutdown()


def days(bench: Searching, request: str) -> int:
    """How many days are searched, as the row of a request that is being planned says."""
    row = bench.row(request)
    assert row.state is RequestState.PLANNING
    assert row.preparation == Preparation(
        done=row.preparation.done if row.preparation else -1, total=DAYS, unit="days"
    )
    return row.preparation.done


def test_planning_counts_the_days_that_are_searched(bench: Searching) -> None:
    request = bench.submit("p", **REQUEST)
    assert bench.row(request).state is RequestState.SUBMITTED
    assert bench.row(request).preparation is None
    bench.until(lambda: bench.row(request).state is RequestState.PLANNING)
    assert days(bench, request) == 0
    bench.permits.release(5)  # whole are the first three dates: two are still being listed
    bench.until(lambda: days(bench, request) == 17)
    bench.permits.release(5)
    bench.until(lambda: days(bench, request) == 57)
    bench.permits.release(ALL)
    bench.until(lambda: bench.row(request).state is RequestState.WRITING)


def test_writing_counts_the_tasks_that_are_written(bench: Searching) -> None:
    bench.permits.release(ALL)
    request = bench.submit("p", **REQUEST)
    seen = []

    def runs() -> bool:
        row = bench.row(request)
        if row.state is RequestState.WRITING:
            assert row.preparation is not None
            assert (row.preparation.total, row.preparation.unit) == (row.preview.tasks, "tasks")
            written = len(list(request_operations.interests(bench.runtime, request)))
            assert row.preparation.done <= written
            seen.append(row.preparation.done)
        return row.state is RequestState.RUNNING

    bench.until(runs)
    assert seen == sorted(seen)
    assert len({*seen}) > 10
    assert bench.row(request).preparation is None


def test_the_row_is_written_every_other_second_at_most(bench: Searching) -> None:
    bench.permits.release(ALL)
    request = bench.submit("p", **{**REQUEST, "cells": True})
    bench.until(lambda: bench.row(request).state is RequestState.WRITING)
    changed = [bench.runtime.clock.now()]
    before = bench.row(request).preparation
    while bench.row(request).state is RequestState.WRITING:
        bench.manager.tick()
        bench.runtime.clock.sleep(0.1)
        row = bench.row(request)
        if row.state is RequestState.WRITING and row.preparation != before:
            changed.append(bench.runtime.clock.now())
            before = row.preparation
    apart = [later - earlier for earlier, later in pairwise(changed[1:])]
    assert apart
    assert min(apart) >= PREPARING - 0.2


def test_another_manager_goes_on_with_planning(bench: Searching) -> None:
    request = bench.submit("p", **REQUEST)
    bench.permits.release(6)
    bench.until(lambda: bench.row(request).state is RequestState.PLANNING)
    bench.until(lambda: days(bench, request) > 0)
    bench.manager.close()
    bench.restart(epoch=2)
    bench.permits.release(ALL)
    bench.until(lambda: bench.row(request).state is RequestState.RUNNING)
    assert bench.row(request).attempts == 2
    assert bench.until_ended(request).state is RequestState.COMPLETE


def test_what_is_cancelled_while_it_is_planned_ends_at_once(bench: Searching) -> None:
    request = bench.submit("p", **REQUEST)
    bench.until(lambda: bench.row(request).state is RequestState.PLANNING)
    request_operations.order(bench.runtime, request, RequestOrder.CANCEL)
    row = bench.row(request)
    assert (row.state, row.preparation) == (RequestState.CANCELLED, None)
    assert row.message == "cancelled while it was being planned"
    bench.permits.release(ALL)
    for _ in range(20):
        bench.manager.tick()
        bench.runtime.clock.sleep(1)
    assert bench.row(request) == row
    assert list(request_operations.interests(bench.runtime, request)) == []
