"""Tasks that may be sent are found behind a page of tasks of which none may be sent."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.fleet_dispatch import WITHOUT_PLACES, FleetDispatch
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.events import sweep
from service_manager.events.sweep import Sweep
from tasks.bag import task_table
from tasks.bag.model import Phase
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import ReadyMarker
from tasks.operators.restrictions import Kind, Restriction
from tasks.service.memory_runtime import memory_runtime
from tasks.setting_values import WorkPlaces
from tasks.storage.store import Delete, Insert
from tests.service_manager.dispatch.test_fleet_dispatch import seen_of
from tests.service_manager.dispatch.test_restrictions import restrict
from tests.service_manager.test_decisions import running

FETCH = "collection MOD13A2.6 from archive.example.org"
WARP = "reprojection P.6 0.01"
SEGMENT, MEAN = "reduction segment 12345678, 1-2 Mpx", "reduction mean 12345678, 1-2 Mpx"
PAGE = 3

Block = Callable[[FleetDispatch, ManagerCache], None]


def _pause(_found: FleetDispatch, seen: ManagerCache) -> None:
    restrict(seen, Restriction(kind=Kind.PAUSE_PHASE, subject="collection"))


def _limit(_found: FleetDispatch, seen: ManagerCache) -> None:
    restrict(seen, Restriction(kind=Kind.LIMIT_PHASE, subject="collection", value=1))
    seen.running["e" * 64] = replace(running("e" * 64), task_class=FETCH, phase=Phase.COLLECTION)


def _fill_host(found: FleetDispatch, seen: ManagerCache) -> None:
    found.add("f" * 64, "r", FETCH)
    assert found.choose(seen, 0.0)


def _fill_room(found: FleetDispatch, seen: ManagerCache) -> None:
    found.add("f" * 64, "r", SEGMENT)
    assert found.choose(seen, 0.0)
    found.no_room(seen, SEGMENT, "it waited for memory")


def _nothing(_found: FleetDispatch, _seen: ManagerCache) -> None:
    """The place of the first tasks has no workers."""


BLOCKS = [
    pytest.param("gpu=reduction/segment", SEGMENT, MEAN, _nothing, id="place without workers"),
    pytest.param("", FETCH, WARP, _pause, id="paused phase"),
    pytest.param("", FETCH, WARP, _limit, id="limit of a phase"),
    pytest.param("", FETCH, WARP, _fill_host, id="archive host"),
    pytest.param("", SEGMENT, WARP, _fill_room, id="room for a package"),
]


class Shelf:
    """A shard with ready tasks of one request, read by pages of three."""

    def __init__(self, places: str = "gpu=reduction/segment") -> None:
        self.runtime: Runtime = memory_runtime()
        self.cache = seen_of(at=8)
        work = WorkPlaces.read(places) if places else WITHOUT_PLACES
        self.dispatch = FleetDispatch(lambda: Dispatch(window=9, resend=30.0, places=1), work)
        self.sweep = Sweep(self.runtime, self.cache, self.dispatch, 30.0)

    def key(self, number: int) -> str:
        return f"0{number:063x}"

    def put(self, first: int, number: int, task_class: str) -> None:
        for i in range(first, first + number):
            marker = ReadyMarker(key=self.key(i), request="r", task_class=task_class)
            row = task_table.ready_row("r", marker.key)
            self.runtime.tasks.transact(
                "0", [Insert(row=row, entity=task_table.READY.dump(marker))]
            )

    def take(self, number: int) -> None:
        """Have a worker claim a task."""
        row = task_table.ready_row("r", self.key(number))
        self.runtime.tasks.transact("0", [Delete(row=row)])
        self.dispatch.remove(self.key(number))

    def sent(self) -> set[int]:
        chosen = self.dispatch.choose(self.cache, self.runtime.clock.monotonic())
        return {int(key, 16) for batch in chosen for key in batch}


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_PAGE", PAGE)
    monkeypatch.setattr(sweep, "_BEHIND", 4)


@pytest.mark.parametrize(("places", "blocked", "behind", "block"), BLOCKS)
@pytest.mark.parametrize("number", [PAGE, 2 * PAGE + 1, 4 * PAGE])
def test_what_may_be_sent_is_found_behind_what_waits(
    places: str, blocked: str, behind: str, block: Block, number: int
) -> None:
    shelf = Shelf(places)
    block(shelf.dispatch, shelf.cache)
    shelf.put(0, number, blocked)
    shelf.put(number, 2, behind)
    shelf.sweep.run("0")
    assert shelf.sent() == {number, number + 1}


def test_farther_behind_it_is_found_by_later_sweeps_and_read_as_long_as_there_is_some() -> None:
    shelf = Shelf()
    shelf.put(0, 7 * PAGE, SEGMENT)
    shelf.put(7 * PAGE, 2 * PAGE, MEAN)
    found: list[int] = []
    for _ in range(12):
        shelf.sweep.run("0")
        new = shelf.sent()
        for number in new:
            shelf.take(number)
        found.append(len(new))
    assert found == [0, 0, 0, PAGE, PAGE, *[0] * 7]
    assert [key for key in shelf.dispatch.known() if int(key, 16) >= 7 * PAGE] == []


def test_tasks_that_were_not_read_stay_ready_and_those_that_are_gone_do_not() -> None:
    shelf = Shelf()
    shelf.put(0, 7 * PAGE, SEGMENT)
    for number in range(7 * PAGE + 1):
        shelf.dispatch.add(shelf.key(number), "r", SEGMENT)
    shelf.take(1)
    shelf.dispatch.add(shelf.key(1), "r", SEGMENT)
    shelf.sweep.run("0")  # the first page, and four behind it
    assert len(shelf.dispatch) == 7 * PAGE
    shelf.sweep.run("0")  # the first one, and the last but one
    shelf.sweep.run("0")  # the first one, and the last
    assert len(shelf.dispatch) == 7 * PAGE - 1


def test_where_something_may_be_sent_no_more_than_a_page_is_read() -> None:
    shelf = Shelf()
    shelf.put(0, PAGE - 1, SEGMENT)
    shelf.put(PAGE - 1, 20, MEAN)
    shelf.sweep.run("0")
    assert len(shelf.dispatch) == PAGE


def test_a_hungry_place_is_fed_from_behind_what_waits_for_another() -> None:
    shelf = Shelf()
    shelf.put(0, 100, SEGMENT)  # more than is read of a shard at once
    shelf.put(100, 2, MEAN)
    shelf.dispatch.add(shelf.key(200), "r", MEAN)
    shelf.sweep.feed("r")
    assert shelf.sent() == {100, 101, 200}
