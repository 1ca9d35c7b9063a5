"""Room for a package's runs, which only workers find out: what waits for it takes no slot."""

from dataclasses import replace

import pytest

from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.dispatch.rooms import Rooms
from tasks.bag import protocol
from tasks.bag.categories import Category
from tasks.bag.model import State
from tasks.operators.manager_rows import HostQueue
from tests.service_manager.test_decisions import cache, running, sent
from tests.service_manager.test_reaction import all_rounds
from tests.service_manager.workbench import Bench, collect, plan_of

RUN, BIG = "reduction own 1a2b3c4d, 1-2 Mpx", "reduction own 1a2b3c4d, 2-4 Mpx"
SHIPPED, WARP = "reduction mean 99887766, 1-2 Mpx", "reprojection MOD13A2.6 0.01"
WHY = "no place in the reduction pool: no runner had a free slot"


def at_work(seen: ManagerCache, *keys: str) -> None:
    for key in keys:
        seen.running[key] = replace(running(key), task_class=RUN, claimed_at=float(key[1:]))


def lacking(at: float = 0.0) -> tuple[Dispatch, ManagerCache]:
    """Runs wait, two are at work, and a third has found no room at a time."""
    dispatch, seen = Dispatch(window=64, resend=1000), cache(("r", "a", 1.0), slots=20)
    dispatch.choose(seen, at)
    at_work(seen, "k1", "k2")
    dispatch.no_room(seen, RUN, WHY)
    for number in range(10):
        dispatch.add(f"r{number}", "r", BIG if number % 2 else RUN)
    return dispatch, seen


def test_what_finds_no_room_is_sent_no_more_and_the_rest_goes_on() -> None:
    dispatch, seen = lacking()
    dispatch.add("s0", "r", SHIPPED)
    dispatch.add("w0", "r", WARP)
    assert sorted(sent(dispatch, seen, 1.0)) == ["s0", "w0"]
    queue = HostQueue(host="own 1a2b3c4d", places=2, waiting=10, why=WHY)
    assert dispatch.waiting_for_room(seen) == [queue]
    del seen.running["k1"]
    assert sent(dispatch, seen, 2.0) == ["r0"]
    assert sent(dispatch, seen, 3.0) == []


def test_after_a_while_half_as_many_more_are_tried() -> None:
    dispatch, seen = lacking()
    assert sent(dispatch, seen, 29.0) == []
    assert len(sent(dispatch, seen, 31.0)) == 2  # 4 may be on their way
    assert sent(dispatch, seen, 59.0) == []
    assert len(sent(dispatch, seen, 61.0)) == 1
    assert dispatch.waiting_for_room(seen)[0].places == 5


def test_room_that_has_grown_to_all_slots_is_no_limit() -> None:
    rooms = Rooms()
    rooms.lacked("family", 0, WHY, 0.0)
    assert rooms.limits(0.0, 20) == {"family": 1}  # never none
    assert rooms.limits(150.0, 20) == {"family": 8}
    assert rooms.limits(240.0, 20) == {}
    assert rooms.limits(0.0, 20) == {}


def test_wanted_slots_know_the_room() -> None:
    dispatch, seen = lacking()
    dispatch.add("w0", "r", WARP)
    assert dispatch.backlog(seen) == {"r": 1}
    del seen.running["k1"]
    assert dispatch.backlog(seen) == {"r": 2}


def test_only_a_run_of_a_package_lacks_room() -> None:
    dispatch, seen = Dispatch(window=64, resend=1000), cache(("r", "a", 1.0), slots=20)
    dispatch.no_room(seen, WARP, "it waited for a connection")
    dispatch.add("w0", "r", WARP)
    assert sent(dispatch, seen, 0.0) == ["w0"]


def test_what_is_given_back_for_want_of_room_tells_the_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Bench({"a": plan_of(collect("g0"))})
    b.submit("a")
    all_rounds(b.manager)
    told: list[tuple[str, str]] = []

    def no_room(_cache: ManagerCache, task_class: str, why: str) -> None:
        told.append((task_class, why))

    monkeypatch.setattr(b.manager._dispatch, "no_room", no_room)
    (key,) = b.sent
    claimed = protocol.claim(b.runtime, key, "w", b.options.retry)
    assert claimed is not None
    protocol.give_back(b.runtime, {key: claimed.claim}, why=WHY)
    all_rounds(b.manager)
    assert told == [(claimed.task.task_class, WHY)]
    task = b.runtime.tasks.task(key)
    assert task is not None
    assert (task.retries, task.losses) == (0, 0)


def test_a_run_that_failed_on_a_disk_which_others_filled_tells_the_manager_and_is_not_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Bench({"a": plan_of(collect("g0"))})
    b.submit("a")
    all_rounds(b.manager)
    told: list[tuple[int, str]] = []

    def no_room(seen: ManagerCache, _task_class: str, why: str) -> None:
        told.append((len(seen.running), why))

    monkeypatch.setattr(b.manager._dispatch, "no_room", no_room)
    (key,) = b.sent
    claimed = protocol.claim(b.runtime, key, "w", b.options.retry)
    assert claimed is not None
    ended = claimed.attempt(
        started=0, ended=1, duration=1, category=Category.DISK_SHARED, message="full; others held"
    )
    assert protocol.fail(b.runtime, ended, b.options.retry)
    all_rounds(b.manager)
    assert told == [(0, "full; others held")]
    task = b.runtime.tasks.task(key)
    assert task is not None
    assert (task.state, task.retries, task.losses) == (State.READY, 0, 1)
    assert task.not_before > b.runtime.clock.now()
