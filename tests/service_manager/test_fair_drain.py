"""A healthy worker is not drained: what counts as evidence, and who is never held."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service_manager.dispatch.attempt_statistics import AttemptStatistics
from service_manager.fleet.machines import Machines
from tasks.bag import workers
from tasks.bag.categories import Category
from tasks.bag.history import ClassStatistics
from tasks.bag.workers import Hold, WorkerRow
from tasks.storage.clock import ManualClock
from tasks.storage.memory_store import MemoryStore
from tests.service_manager.test_slow_machines import OPTIONS, Fleet, event


@pytest.fixture
def pair() -> Fleet:
    """Two workers of two slots, warm."""
    found = Fleet(workers=2)
    found.learn()
    return found


def slow(fleet: Fleet, worker: str, until: float) -> None:
    """Two attempts on a worker that get nowhere until a time."""
    for key in ("a", "b"):
        fleet.begin(f"{key} on {worker}", worker)
    fleet.look(until)


def free(fleet: Fleet) -> int:
    """The slots that take work after the next look and the beat that follows it."""
    fleet.look(fleet.now + 10)
    return fleet.cache.slots


# --- what is evidence ---


def test_the_first_attempts_of_a_worker_are_no_evidence() -> None:
    """It has just started, and the others have long known the class."""
    fleet = Fleet(workers=2)
    fleet.learn()
    fleet.workers = 3
    fleet.look(5)
    slow(fleet, "w2", 300)
    assert fleet.holds == {}
    for one in list(fleet.cache.running.values()):
        fleet.end(one, 300.0)
    fleet.look(310)
    assert fleet.holds == {}
    slow(fleet, "w2", 400)
    assert fleet.holds == {"w2": Hold.DRAINED}


def test_the_first_attempts_of_a_class_on_a_worker_are_no_evidence(pair: Fleet) -> None:
    for i in range(40):
        one = pair.begin(f"new{i}", "w0")
        one.task_class = "new class"
        ended = replace(event(one.key, "w0", 10.0), task_class="new class")
        pair.monitor.ended(ended, one, {}, 0.0)
        del pair.cache.running[one.key]
    for key in ("a", "b"):
        pair.begin(key, "w1").task_class = "new class"
    pair.look(200)
    assert pair.holds == {}


def test_a_class_that_only_this_worker_knows_is_no_evidence() -> None:
    fleet = Fleet(workers=1)
    fleet.learn()
    fleet.workers = 4
    fleet.look(5)
    slow(fleet, "w0", 200)
    assert fleet.holds == {}


def test_lost_attempts_and_failures_are_no_evidence(pair: Fleet) -> None:
    for i, category in enumerate([Category.WORKER_LOST, Category.CANCELLED] * 5):
        pair.end(pair.begin(f"lost{i}", "w1"), 1000.0, category)
    pair.look(20)
    assert pair.holds == {}


def test_what_ran_while_its_worker_was_silent_is_no_evidence(pair: Fleet) -> None:
    """Cut off for half a minute with two attempts, and back: not slow."""
    first = pair.begin("a", "w1")
    second = pair.begin("b", "w1")
    pair.progress |= {"a": 0.05, "b": 0.05}
    pair.look(10)
    pair.silent = {"w1"}
    pair.look(50)
    assert pair.holds == {}
    pair.silent = set()
    pair.look(100)
    pair.end(first, 400.0)
    pair.end(second, 400.0)
    pair.look(110)
    assert pair.holds == {}


# --- who is never held ---


def test_the_last_worker_is_released_when_the_others_leave(pair: Fleet) -> None:
    slow(pair, "w1", 60)
    assert pair.holds == {"w1": Hold.DRAINED}
    assert pair.cache.slots == 2
    pair.gone = {"w0"}
    assert free(pair) == 2
    assert free(pair) == 2


def test_the_last_worker_is_released_when_its_probe_was_slow_too(pair: Fleet) -> None:
    slow(pair, "w1", 60)
    for one in list(pair.cache.running.values()):
        pair.end(one, 60.0, Category.CANCELLED)
    pair.look(700)
    assert pair.holds == {"w1": Hold.PROBE}
    pair.gone = {"w0"}
    pair.begin("probe", "w1")
    pair.look(800)
    assert free(pair) == 2


def test_a_slow_worker_takes_what_waits_while_all_others_are_full(pair: Fleet) -> None:
    pair.waiting = 1
    pair.begin("c", "w0")
    pair.begin("d", "w0")
    pair.progress |= {"c": 0.9, "d": 0.9}
    slow(pair, "w1", 200)
    assert pair.holds == {"w1": Hold.NONE}
    assert "times as long as usual" in pair.whys["w1"]
    assert pair.cache.slots == 4


def test_a_drained_worker_takes_what_waits_when_all_others_are_full(pair: Fleet) -> None:
    """Two reductions hang on the other worker: what waits is begun at once, not after the probe."""
    slow(pair, "w1", 60)
    assert pair.holds == {"w1": Hold.DRAINED}
    for one in list(pair.cache.running.values()):
        pair.end(one, 60.0, Category.CANCELLED)
    for key in ("hangs", "hangs too"):
        pair.begin(key, "w0").task_class = "reduction"
    pair.look(70)
    assert pair.holds == {"w1": Hold.DRAINED}
    pair.waiting = 1
    assert free(pair) == 4
    assert pair.holds == {"w1": Hold.NONE}
    pair.waiting = 0
    assert free(pair) == 2
    assert pair.holds == {"w1": Hold.DRAINED}


def test_in_a_large_fleet_a_slow_worker_is_drained_once_the_others_suffice() -> None:
    fleet = Fleet(workers=8, waiting=1)
    fleet.learn()
    for worker in range(8):
        for slot in range(2):
            key = f"{worker}{slot}"
            fleet.begin(key, f"w{worker}")
            fleet.progress[key] = 0.0 if worker == 1 else 0.95
    assert fleet.look(60).moves == []
    assert fleet.holds == {"w1": Hold.NONE}
    fleet.end(fleet.cache.running["20"], 60.0)
    moves = fleet.look(65).moves
    assert fleet.holds == {"w1": Hold.DRAINED}
    assert [one.key for one in moves] == ["10", "11"]


def test_what_a_slow_worker_costs_in_time_is_not_the_tasks_fault(pair: Fleet) -> None:
    """It is five times slower, and needed: its attempt has more than four times the mean."""
    pair.statistics = {"class": ClassStatistics(task_class="class", count=40, mean=100.0)}
    pair.waiting = 1
    for key in ("c", "d"):
        pair.begin(key, "w0").task_class = "reduction"
    for key in ("a", "hangs"):
        pair.begin(key, "w1")
    for until in range(5, 500, 5):
        pair.progress["a"] = until / 500
        assert pair.look(until).kills == []
    assert pair.holds == {"w1": Hold.NONE}
    pair.end(pair.cache.running["a"], 500.0)
    assert [kill.running.key for kill in pair.look(900).kills] == ["hangs"]


_events = st.lists(
    st.tuples(
        st.sampled_from(["slow", "join", "leave", "drain", "end", "hold", "wait"]),
        st.integers(0, 5),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(_events)
def test_one_worker_and_a_quarter_of_the_slots_are_free_at_every_look(
    events: list[tuple[str, int]],
) -> None:
    """Workers come, go, are slow, probed and held by a manager before this one."""
    machines = Machines(AttemptStatistics(samples=5), OPTIONS.time_limits, probe=20.0, beat=5.0)
    rows = {f"w{i}": row(f"w{i}", slots=1 + i % 3) for i in range(4)}
    machines.hear(rows.values(), {}, 0.0)
    for i in range(60):
        machines.ended(event(f"past{i}", f"w{i % 4}", 90.0 + i % 20), {}, 0.0)
        machines._statistics.learn("class", 90.0 + i % 20)
    now = 0.0
    for number, (happens, which) in enumerate(events):
        now += 5.0
        name = f"w{which}"
        match happens:
            case "slow" if name in rows:
                for i in range(3):
                    machines.ended(event(f"slow{number}-{i}", name, 2000.0), {}, now)
            case "end" if name in rows:
                machines.ended(event(f"well{number}", name, 100.0), {}, now)
            case "join":
                rows.setdefault(name, row(name, started=now))
            case "leave":
                rows.pop(name, None)
            case "drain" if name in rows:
                rows[name] = row(name, started=rows[name].started, draining=True)
            case "hold" if name in rows:
                rows[name] = row(name, started=now, hold=Hold.DRAINED)
            case "wait":
                now += 60.0
        beating = [replace(one, sequence=number) for one in rows.values()]
        machines.hear(beating, {}, now)
        machines.look({}, now)
        there = [one for one in beating if not one.draining]
        slots = [machines.slots(one) for one in there if not machines.slow(one.name)]
        assert not there or slots
        assert sum(slots) >= sum(one.slots for one in there) / 4


def row(
    name: str,
    *,
    slots: int = 2,
    started: float = 1.0,
    draining: bool = False,
    hold: Hold = Hold.NONE,
) -> WorkerRow:
    return WorkerRow(
        name=name,
        host=name,
        slots=slots,
        started=started,
        beat_at=0.0,
        draining=draining,
        hold=hold,
    )


# --- what is told ---


def test_the_evidence_is_told_with_the_order(pair: Fleet) -> None:
    for key in ("a", "b"):
        pair.begin(key, "w1")
    (drained,) = pair.look(60).holds
    assert "times as long as usual" in drained.why
    assert "class: at least" in drained.why
    assert 500.0 < drained.wait <= 600.0


def test_the_row_keeps_why_since_when_and_until_when_through_beats() -> None:
    store, clock = MemoryStore(), ManualClock()
    mine = row("w")
    workers.beat(store, clock, mine)
    workers.order_hold(store, clock, "w", 1.0, Hold.DRAINED, why="It is slow.", wait=600.0)
    drained = clock.now()
    clock.sleep(10.0)
    workers.beat(store, clock, mine)
    (found,) = workers.list_workers(store)
    assert (found.hold, found.hold_why) == (Hold.DRAINED, "It is slow.")
    assert (found.hold_since, found.hold_until) == (drained, drained + 600.0)
    clock.sleep(600.0)
    for hold in (Hold.PROBE, Hold.NONE):
        workers.order_hold(store, clock, "w", 1.0, hold, why="It is slow.")
        workers.beat(store, clock, mine)
        (found,) = workers.list_workers(store)
        assert (found.hold_since, found.hold_until) == (drained, 0.0)
        assert (found.hold, found.needed) == (hold, hold is Hold.NONE)
    workers.order_hold(store, clock, "w", 1.0, Hold.NONE)
    (found,) = workers.list_workers(store)
    assert (found.hold_why, found.hold_since, found.needed) == ("", 0.0, False)
    workers.order_hold(store, clock, "w", 1.0, Hold.NONE)
    (found,) = workers.list_workers(store)
    assert (found.hold_why, found.hold_since, found.hold_until) == ("", 0.0, 0.0)


# --- what is remembered ---


def test_successes_on_workers_that_have_left_are_forgotten() -> None:
    fleet = Fleet(workers=5)
    fleet.look(5)
    for name in ("w0", "w1"):
        for i in range(20):
            fleet.end(fleet.begin(f"{i} on {name}", name), 100.0)
    fleet.gone = {"w0"}
    fleet.look(10)
    slow(fleet, "w1", 400)
    assert fleet.holds == {}
    for i in range(5):
        fleet.end(fleet.begin(f"{i} on w2", "w2"), 100.0)
    fleet.look(410)
    assert fleet.holds == {"w1": Hold.DRAINED}


def test_classes_without_a_success_for_the_longest_time_are_forgotten() -> None:
    fleet = Fleet()
    fleet.learn()
    for i in range(1000):
        one = fleet.begin(f"task{i}", "w0")
        one.task_class = f"class {i}"
        ended = replace(event(one.key, "w0", 10.0), task_class=one.task_class)
        del fleet.cache.running[one.key]
        fleet.monitor.ended(ended, one, {}, fleet.now)
    slow(fleet, "w1", 400)
    assert fleet.holds == {}
