"""A host that cannot run a package: its runs go to the others, and wait where there is none."""

from dataclasses import replace

import pytest

from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.dispatch.unsuited import Unsuited
from tasks.bag import protocol, workers
from tasks.bag.protocol import NOT_HERE
from tasks.operators.manager_rows import HostQueue
from tests.service_manager.test_decisions import cache, running, worker
from tests.service_manager.test_reaction import all_rounds
from tests.service_manager.workbench import Bench, collect, plan_of

RUN, BIG = "reduction own 1a2b3c4d, 1-2 Mpx", "reduction own 1a2b3c4d, 2-4 Mpx"
SHIPPED = "reduction mean 99887766, 1-2 Mpx"
WHY = "own was not run: its machine cannot shut it in"


def fleet(*hosts: str) -> tuple[Dispatch, ManagerCache]:
    """A dispatch over hosts with two slots each; a request has ten runs, and A has no sandbox."""
    seen = cache(("r", "a", 1.0), slots=2 * len(hosts))
    seen.workers = {f"worker of {host}": (host, 2) for host in hosts}
    dispatch = Dispatch(
        window=64, resend=30.0, locations=InputLocations(seen), patience=6.0, places=0
    )
    dispatch.choose(seen, 0.0)
    dispatch.unsuited(RUN, "A", WHY)
    for number in range(10):
        dispatch.add(f"r{number}", "r", BIG if number % 2 else RUN)
    return dispatch, seen


def hosts_of(dispatch: Dispatch, seen: ManagerCache, now: float) -> dict[str, str]:
    """The keys that are sent now, each with whom to."""
    found = [key for batch in dispatch.choose(seen, now) for key in batch]
    return {key: dispatch.host(key) for key in found}


def test_its_runs_go_to_other_hosts_as_many_as_these_have_slots_for() -> None:
    dispatch, seen = fleet("A", "B", "C")
    found = hosts_of(dispatch, seen, 1.0)
    assert {*found.values()} == {"B", "C"}
    assert len(found) == 8, "two turns of their four slots, whatever idles on A"
    assert dispatch.waiting_for_room(seen) == [
        HostQueue(host="own 1a2b3c4d", places=8, waiting=2, why=WHY)
    ]
    dispatch.add("s0", "r", SHIPPED)
    assert hosts_of(dispatch, seen, 1.5).keys() == {"s0"}


def test_a_run_that_nobody_took_is_not_sent_to_all() -> None:
    dispatch, seen = fleet("A", "B")
    first = hosts_of(dispatch, seen, 1.0)
    assert {*first.values()} == {"B"}
    assert hosts_of(dispatch, seen, 8.0) == {}, "its host is busy: that is no silence"
    again = hosts_of(dispatch, seen, 32.0)
    assert again.keys() == first.keys()
    assert {*again.values()} == {"B"}


def test_where_no_other_host_is_they_wait_and_are_tried_after_a_while() -> None:
    dispatch, seen = fleet("A")
    assert hosts_of(dispatch, seen, 1.0) == {}
    assert dispatch.backlog(seen) == {"r": 0}
    (queue,) = dispatch.waiting_for_room(seen)
    assert (queue.places, queue.waiting, queue.why) == (0, 10, WHY)
    assert hosts_of(dispatch, seen, 59.0) == {}
    # The machine may have been mended, or others may come to wait for.
    assert {*hosts_of(dispatch, seen, 61.0).values()} == {""}
    assert dispatch.waiting_for_room(seen) == []


def test_a_worker_that_comes_gets_what_waits() -> None:
    dispatch, seen = fleet("A")
    assert hosts_of(dispatch, seen, 1.0) == {}
    seen.workers["worker of B"] = ("B", 2)
    assert {*hosts_of(dispatch, seen, 2.0).values()} == {"B"}


def test_the_least_laden_of_the_hosts_that_can_is_chosen() -> None:
    dispatch, seen = fleet("A", "B", "C")
    for number in range(3):
        key = f"k{number}"
        seen.running[key] = replace(running(key, worker="worker of B"), task_class=RUN)
    found = hosts_of(dispatch, seen, 1.0)
    assert [*found.values()][:2] == ["C", "C"]
    assert "A" not in found.values()


def test_what_is_known_of_a_host_is_forgotten_after_a_while() -> None:
    known = Unsuited()
    known.gave_back("own", "A", WHY, 0.0)
    known.gave_back("own", "B", WHY, 30.0)
    assert known.hosts("own", 59.0) == {"A", "B"}
    assert known.hosts("own", 61.0) == {"B"}
    assert known.hosts("other", 61.0) == frozenset()
    assert known.hosts("own", 90.0) == frozenset()
    assert (known.families(), known.why("own")) == ([], "")


def test_the_manager_is_told_which_host_gave_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Bench({"a": plan_of(collect("g0"))})
    b.submit("a")
    workers.beat(b.runtime.store, b.runtime.clock, worker(1))
    all_rounds(b.manager)
    told: list[tuple[str, str, str]] = []

    def unsuited(task_class: str, host: str, why: str) -> None:
        told.append((task_class, host, why))

    monkeypatch.setattr(b.manager._dispatch, "unsuited", unsuited)
    (key,) = b.sent
    claimed = protocol.claim(b.runtime, key, "w", b.options.retry)
    assert claimed is not None
    protocol.give_back(b.runtime, {key: claimed.claim}, why=NOT_HERE + WHY)
    all_rounds(b.manager)
    assert told == [(claimed.task.task_class, "h", WHY)]
    task = b.runtime.tasks.task(key)
    assert task is not None
    assert (task.retries, task.losses) == (0, 0)
