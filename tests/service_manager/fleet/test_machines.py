"""The evidence against a machine in numbers: how much of it drains, and what is moved then."""

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Protocol, Self
from unittest.mock import Mock

import pytest

from service_manager.dispatch.attempt_statistics import AttemptProgress, AttemptStatistics
from service_manager.dispatch.manager_cache import WatchedAttempt
from service_manager.fleet import machines
from service_manager.fleet.machines import DrainOrder, Machines
from tasks.bag.categories import Category
from tasks.bag.history import ClassStatistics
from tasks.bag.workers import Ask, Hold
from tests.service_manager.test_decisions import running
from tests.service_manager.test_fair_drain import row
from tests.service_manager.test_slow_machines import OPTIONS, event

USUAL = {"class": ClassStatistics(task_class="class", count=5, mean=100.0)}


class TraceFunction(Protocol):
    def __call__(self, frame: FrameType, what: str, more: object, /) -> Self: ...


@dataclass
class Judged:
    """Workers of two slots, which have each done five attempts in the usual time."""

    workers: int = 8
    statistics: dict[str, ClassStatistics] = field(default_factory=lambda: USUAL)
    now: float = 10_000.0
    usual: float = 100.0
    leaving: set[str] = field(default_factory=set)
    asked: dict[str, Ask] = field(default_factory=dict)  # by operators
    unfit: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)  # other than those of the same names
    places: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = AttemptStatistics(samples=5)
        self.machines = Machines(self.known, OPTIONS.time_limits, probe=600.0, beat=5.0)
        self.numbers = itertools.count()
        self.running: dict[str, list[WatchedAttempt]] = {}
        self.holds: dict[str, Hold] = {}
        self.whys: dict[str, str] = {}
        self.failing: dict[str, bool] = {}
        self.waiting = 0
        self.hear()
        for worker in range(self.workers):
            self.end(f"w{worker}", *[self.usual] * 5)

    def hear(self, seconds: float = 0.0) -> list[DrainOrder]:
        """The workers beat, each with the hold that it was last ordered."""
        self.now += seconds
        sequence = next(self.numbers)
        rows = [
            replace(
                row(name, draining=name in self.leaving, hold=self.holds.get(name, Hold.NONE)),
                sequence=sequence,
                hold_why=self.whys.get(name, ""),
                host=self.hosts.get(name, name),
                asked=self.asked.get(name, Ask.NONE),
                unfit=self.unfit.get(name, ""),
                failing=self.failing.get(name, False),
                place=self.places.get(name, ""),
            )
            for name in (f"w{i}" for i in range(self.workers))
        ]
        return self._obey(self.machines.hear(rows, self.running, self.now))

    def end(self, worker: str, *durations: float, key: str = "") -> None:
        for duration in durations:
            ended = event(key or f"k{next(self.numbers)}", worker, duration)
            self.machines.ended(ended, self.statistics, self.now)

    def begin(self, worker: str, age: float = 0.0) -> WatchedAttempt:
        """An attempt that runs, and that has been listed since it began."""
        one = running(f"k{next(self.numbers)}", since=self.now - age, worker=worker)
        self.running.setdefault(worker, []).append(one)
        return one

    def look(self, seconds: float = 0.0) -> tuple[list[DrainOrder], list[WatchedAttempt]]:
        heard = self.hear(seconds)
        orders, moves = self.machines.look(self.statistics, self.now, lambda: {"": self.waiting})
        return heard + self._obey(orders), moves

    def drained(self, seconds: float = 0.0) -> list[str]:
        """Which workers a look drains."""
        orders, _ = self.look(seconds)
        return [one.worker for one in orders if one.hold is Hold.DRAINED]

    def _obey(self, orders: list[DrainOrder]) -> list[DrainOrder]:
        self.holds |= {one.worker: one.hold for one in orders}
        self.whys |= {one.worker: one.why for one in orders}
        self.failing |= {one.worker: one.failing for one in orders}
        return orders


@pytest.mark.parametrize(
    ("durations", "drained"),
    [
        ([900], False),
        ([900, 900], True),
        ([900, 100, 900], False),  # what is as usual speaks for it
        ([100] * 20 + [900, 900], True),  # but not for ever
        ([190] * 4, False),  # twice as long says less
        ([190] * 5, True),
        ([150] * 100, False),
    ],
)
def test_so_many_attempts_that_took_so_long_drain_a_worker(
    durations: Sequence[float], drained: bool
) -> None:
    judged = Judged()
    judged.end("w1", *durations)
    assert judged.drained() == (["w1"] if drained else [])


def test_an_order_says_by_how_much_how_often_and_for_how_long() -> None:
    judged = Judged()
    judged.end("w1", 500, 900, 900, 900)
    ((order,), _) = judged.look()
    said = "class: 900 s, usually 100 s"
    assert order == DrainOrder(
        worker="w1",
        started=1.0,
        hold=Hold.DRAINED,
        why=f"Its attempts take about 7.6 times as long as usual. {said}; {said}; {said}.",
        wait=600.0,
    )
    judged.holds.clear()  # the order was lost
    assert judged.hear(200.0) == [replace(order, wait=400.0)]
    judged.holds.clear()
    assert judged.hear(1000.0) == [replace(order, wait=0.0)]
    ((probe,), _) = judged.look()
    assert probe == replace(order, hold=Hold.PROBE, wait=0.0)
    judged.hear(100.0)
    judged.end("w1", 100)
    ((released,), _) = judged.look()
    assert released == DrainOrder(worker="w1", started=1.0, hold=Hold.NONE)


def test_evidence_that_was_made_up_for_is_named_no_more() -> None:
    judged = Judged()
    judged.end("w1", 900, 100, 100, 500, 500)
    ((order,), _) = judged.look()
    assert order.why.count("class:") == 2


def test_after_a_release_a_worker_begins_anew() -> None:
    judged = Judged()
    judged.end("w1", 900, 900)
    assert judged.drained() == ["w1"]
    judged.look(600.0)
    judged.hear(100.0)
    judged.end("w1", 100)
    judged.look()
    judged.end("w1", 190, 190, 190, 190)
    assert judged.drained(1000.0) == []
    judged.end("w1", 190)
    ((order,), _) = judged.look()
    assert order.hold is Hold.DRAINED
    assert "about 1.9 times" in order.why


def test_a_worker_that_is_slow_right_after_its_release_waits_for_longer() -> None:
    """The release was a mistake; once it has been well for a while, it was none."""
    judged = Judged()

    def drained_for(seconds: float) -> float:
        judged.hear(seconds)
        judged.end("w1", 900, 900)
        ((order,), _) = judged.look()
        judged.look(order.wait)
        judged.hear(100.0)
        judged.end("w1", 100)
        judged.look()
        return order.wait

    assert [drained_for(seconds) for seconds in (0.0, 500.0, 1000.0, 1300.0)] == [
        600.0,
        1200.0,
        1200.0,
        600.0,
    ]


def test_an_attempt_that_began_before_is_no_probe() -> None:
    judged = Judged()
    judged.end("w1", 900, 900)
    judged.look()
    judged.look(600.0)
    judged.hear(90.0)
    judged.end("w1", 100, 300)
    assert judged.look() == ([], [])
    judged.end("w1", 90)
    assert judged.look()[0] == [DrainOrder(worker="w1", started=1.0, hold=Hold.NONE)]


@pytest.mark.parametrize(("duration", "hold"), [(199.0, Hold.NONE), (201.0, Hold.DRAINED)])
def test_a_probe_of_less_than_twice_the_usual_time_releases(duration: float, hold: Hold) -> None:
    judged = Judged()
    judged.end("w1", 900, 900)
    judged.look()
    judged.look(600.0)
    judged.hear(duration)
    judged.end("w1", duration)
    ((order,), _) = judged.look()
    assert (order.hold, order.wait) == (hold, 0.0 if hold is Hold.NONE else 1200.0)


@pytest.mark.parametrize("category", [Category.EXECUTION_TIMEOUT, Category.BAD_IMAGE_FORMAT])
def test_a_probe_that_was_killed_for_its_age_is_slow_and_a_failure_is_no_probe(
    category: Category,
) -> None:
    judged = Judged()
    judged.end("w1", 900, 900)
    judged.look()
    judged.look(600.0)
    judged.hear(100.0)
    failed = event("probe", "w1", 100.0, category)
    judged.machines.ended(failed, judged.statistics, judged.now)
    drained = category is Category.EXECUTION_TIMEOUT
    assert judged.drained() == (["w1"] if drained else [])


def test_a_task_that_was_slow_on_two_others_says_nothing_of_a_third() -> None:
    judged = Judged()
    for worker in range(8):
        for key in ("giant", "giant too"):
            judged.end(f"w{worker}", 500, key=key)
    assert judged.drained() == ["w0", "w1"]


def test_the_tasks_that_were_slow_first_are_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machines, "_REMEMBERED", 2)
    judged = Judged()
    for worker in ("w0", "w1"):
        for key in ("first", "second"):
            judged.end(worker, 500, key=key)
    judged.end("w2", 500, key="second")  # it is slow itself
    judged.end("w3", 500, key="third")  # in place of the first
    judged.end("w4", 500, 500, key="second")
    judged.end("w5", 500, key="first")
    judged.end("w5", 500, key="third")
    assert judged.drained() == ["w0", "w1", "w5"]


def test_what_an_attempt_has_taken_already_is_evidence_too() -> None:
    judged = Judged()
    judged.end("w1", 900)
    judged.begin("w1", 300)
    ((order,), _) = judged.look()
    assert order.why == (
        "Its attempts take about 3.0 times as long as usual. class: 900 s, usually 100 s; class: "
        "at least 300 s, usually 100 s."
    )


def test_the_latest_attempts_are_named_as_evidence() -> None:
    judged = Judged()
    judged.end("w1", *[180] * 3)
    for age in (500, 600):
        judged.begin("w1", age)
    ((order,), _) = judged.look()
    assert [part.split(",")[0] for part in order.why.split("usual. ")[1].split("; ")] == [
        "class: 180 s",
        "class: at least 500 s",
        "class: at least 600 s",
    ]


def test_an_attempt_that_says_nothing_does_not_hide_the_next() -> None:
    judged = Judged()
    missed, new, elsewhere = (judged.begin("w1", 900) for _ in range(3))
    missed.missed = 1
    new.task_class = "new class"
    elsewhere.task_class = "class of its own"
    for _ in range(8):
        ended = replace(event("k", "w1", 10.0), task_class="class of its own")
        judged.machines.ended(ended, judged.statistics, judged.now)
    assert judged.drained() == []
    for _ in range(2):
        judged.begin("w1", 900)
    assert judged.drained() == ["w1"]


def test_an_attempt_of_a_probe_that_has_taken_three_times_the_usual_ends_it() -> None:
    judged = Judged()
    judged.end("w1", 900, 900)
    judged.look()
    judged.begin("w1")  # of before
    judged.look(600.0)
    assert judged.holds["w1"] is Hold.PROBE
    judged.begin("w1")
    for _ in range(29):
        assert judged.look(10.0)[0] == []
    ((order,), _) = judged.look(10.0)
    assert (order.hold, order.wait) == (Hold.DRAINED, 1200.0)


# --- what is moved ---


@pytest.mark.parametrize(
    ("age", "retries", "steps", "limited", "moved"),
    [
        (0.0, 0, 0, False, True),
        (369.0, 0, 0, False, True),
        (371.0, 0, 0, False, False),  # less than 1.5 times the usual is ahead of it
        (519.0, 0, 0, False, False),
        (800.0, 0, 0, False, False),
        (371.0, 0, 0, True, True),  # it ends beyond its time limit of 400 s
        (371.0, 1, 0, True, False),
        (371.0, 0, 10, False, True),  # half of it is done
        (10.0, 0, 16, False, False),
        (10.0, 0, 16, True, False),
        (300.0, 0, 16, True, True),
    ],
)
def test_an_attempt_is_moved_if_others_end_it_sooner_or_its_time_limit_is_too_short(
    age: float, retries: int, steps: int, limited: bool, moved: bool
) -> None:
    """On a worker that is 5.2 times slower than usual."""
    judged = Judged()
    course = AttemptProgress(ages=[5.0 * step for step in range(1, 20)])
    for _ in range(5):
        judged.known.learn("class", 100.0, course if steps else None)
    judged.statistics = USUAL if limited else {}
    judged.end("w1", 900, 900)
    one = judged.begin("w1", age)
    one.retries = retries
    one.course.ages = [age] * steps
    orders, moves = judged.look()
    assert [order.hold for order in orders] == [Hold.DRAINED]
    assert moves == ([one] if moved else [])


def test_a_task_is_moved_a_few_times_and_not_while_it_is_ordered_to_end() -> None:
    judged = Judged()
    judged.end("w1", 900, 900)
    one = judged.begin("w1")
    moves = []
    for _ in range(8):
        moves.append(len(judged.look()[1]))
        one.ordered = judged.now
        assert judged.look()[1] == []
        one.ordered = None
    assert moves == [1] * 5 + [0] * 3


def test_what_is_not_known_of_a_class_moves_nothing() -> None:
    judged = Judged()
    judged.end("w1", 900, 900)
    judged.begin("w1").task_class = "new class"
    assert judged.look()[1] == []


def test_what_runs_on_each_of_several_slow_workers_is_moved() -> None:
    judged = Judged()
    slow = [judged.begin(worker) for worker in ("w1", "w2")]
    for one in slow:
        judged.end(one.worker, 900, 900)
    assert judged.look()[1] == slow


def test_a_worker_takes_what_was_decided_before_its_row_says_so() -> None:
    judged = Judged()
    as_before = row("w1")
    assert judged.machines.slots(as_before) == 2
    judged.end("w1", 900, 900)
    judged.look()
    assert judged.machines.slots(as_before) == 0
    judged.look(600.0)
    assert judged.machines.slots(as_before) == 1
    assert judged.machines.slots(replace(as_before, draining=True)) == 0
    unknown = row("new", slots=3, hold=Hold.PROBE)
    assert judged.machines.slots(unknown) == 1


# --- who is needed ---


@pytest.mark.parametrize(
    ("workers", "full", "waiting", "needed"),
    [
        (2, 1, 1, True),
        (2, 1, 0, False),
        (2, 0, 2, False),  # the other one has slots for what waits
        (2, 0, 3, True),
        (4, 2, 2, False),
        (4, 3, 1, True),
        (60, 59, 1, True),
    ],
)
def test_a_slow_worker_is_needed_while_more_waits_than_the_others_take(
    workers: int, full: int, waiting: int, needed: bool
) -> None:
    judged = Judged(workers=workers)
    slow = f"w{workers - 1}"
    judged.end(slow, 900, 900)
    for worker in range(full):
        for _ in range(2):
            judged.begin(f"w{worker}")
    judged.waiting = waiting
    ((order,), _) = judged.look()
    assert (order.hold, order.wait) == ((Hold.NONE, 0.0) if needed else (Hold.DRAINED, 600.0))
    assert order.why.startswith("Its attempts take about 5.2 times as long as usual.")
    assert judged.machines.slow(slow)
    assert judged.look() == ([], [])


def test_a_place_keeps_a_worker_whoever_is_free_elsewhere() -> None:
    judged = Judged(places={"w1": "gpu"})
    judged.end("w0", 500, 500, 500)
    judged.end("w1", 500, 500, 500)
    assert judged.drained() == ["w0"]


@pytest.mark.parametrize("place", ["", "gpu"])
def test_a_slow_worker_is_needed_for_what_waits_at_its_own_place(place: str) -> None:
    judged = Judged(workers=4, places={"w0": "gpu", "w1": "gpu"})
    judged.end("w1", 500, 500, 500)
    assert judged.drained() == ["w1"]
    judged.begin("w0")
    judged.begin("w0")
    judged.hear()
    orders, _ = judged.machines.look(USUAL, judged.now, lambda: {place: 1})
    assert [(one.worker, one.hold) for one in orders] == ([("w1", Hold.NONE)] if place else [])


def test_a_silent_worker_takes_nothing_that_waits() -> None:
    judged = Judged(workers=2)
    judged.end("w1", 900, 900)
    judged.waiting = 1
    assert judged.drained() == ["w1"]
    rows = [replace(row("w0"), sequence=0), replace(row("w1"), sequence=99)]
    rows[1] = replace(rows[1], hold=Hold.DRAINED, hold_why="slow")
    judged.machines.hear(rows, {}, judged.now)
    judged.machines.hear(rows, {}, judged.now + 15.0)
    assert judged.machines.look(USUAL, judged.now + 15.0, lambda: {"": 1})[0] == []
    ((order,), _) = judged.machines.look(USUAL, judged.now + 16.0, lambda: {"": 1})
    assert (order.worker, order.hold) == ("w1", Hold.NONE)


def test_a_needed_worker_is_drained_again_and_its_attempts_are_moved() -> None:
    """Not before: another would end them sooner, if one were free."""
    judged = Judged(workers=2)
    judged.end("w1", 900, 900)
    full = [judged.begin("w0") for _ in range(2)]
    slow = judged.begin("w1")
    judged.waiting = 1
    assert judged.look()[1] == []
    judged.waiting = 0
    ((order,), moves) = judged.look(100.0)
    assert (order.hold, order.wait, moves) == (Hold.DRAINED, 500.0, [slow])
    judged.waiting = 1
    judged.look()
    judged.running["w0"] = full[1:]
    assert judged.drained() == ["w1"]


def test_a_needed_worker_shows_whether_it_is_as_fast_as_usual_again() -> None:
    judged = Judged(workers=2)
    judged.end("w1", 900, 900)
    for _ in range(2):
        judged.begin("w0")
    judged.waiting = 1
    judged.look()
    judged.hear(300.0)
    judged.end("w1", 100)  # before its next try is due
    assert judged.look() == ([], [])
    judged.look(300.0)
    judged.hear(100.0)
    judged.end("w1", 100)
    ((order,), _) = judged.look()
    assert order == DrainOrder(worker="w1", started=1.0, hold=Hold.NONE)
    assert not judged.machines.slow("w1")


def test_a_manager_that_takes_over_knows_who_is_slow_and_needed() -> None:
    judged = Judged(workers=2)
    rows = [row("w0"), replace(row("w1"), hold_why="It is slow.")]
    later = Machines(judged.known, OPTIONS.time_limits, probe=600.0, beat=5.0)
    (order,) = later.hear(rows, {}, judged.now)
    assert (order.worker, order.hold, order.why) == ("w1", Hold.NONE, "It is slow.")
    ((order,), _) = later.look(USUAL, judged.now)
    assert (order.worker, order.hold, order.why) == ("w1", Hold.DRAINED, "It is slow.")


def test_a_row_that_says_needed_of_a_worker_that_is_not_slow_is_corrected() -> None:
    judged = Judged(workers=2)
    judged.whys["w1"] = "It is slow."
    assert judged.hear(5.0) == [DrainOrder(worker="w1", started=1.0, hold=Hold.NONE)]
    assert judged.hear(5.0) == []


def test_an_operator_drains_a_worker_that_is_needed() -> None:
    judged = Judged(workers=2)
    judged.end("w1", 900, 900)
    judged.waiting = 9
    judged.look()
    assert judged.machines.slots(row("w1")) == 2
    judged.asked["w1"] = Ask.DRAIN
    assert [one.hold for one in judged.hear(5.0)] == [Hold.DRAINED]
    assert judged.look() == ([], [])
    assert judged.machines.slots(row("w1")) == 0


def test_of_those_that_are_held_for_slowness_the_least_slow_is_released() -> None:
    """When the others leave; not one that an operator has drained, or that leaves itself."""
    judged = Judged(workers=5)
    judged.end("w1", 900, 900)
    judged.end("w2", 500, 500)
    judged.end("w3", 900, 900, 900)
    assert judged.drained() == ["w1", "w2", "w3"]
    judged.asked["w0"] = Ask.DRAIN
    judged.leaving = {"w3"}
    judged.hear(5.0)
    assert judged.look(5.0)[0] == []
    judged.leaving = {"w3", "w4"}
    assert [(one.worker, one.hold) for one in judged.look(5.0)[0]] == [("w2", Hold.NONE)]
    judged.asked["w1"] = judged.asked["w2"] = Ask.DRAIN
    judged.hear(5.0)
    assert judged.look(5.0)[0] == []


# --- what is noise ---


def known(mean: float, count: int = 50) -> dict[str, ClassStatistics]:
    return {"class": ClassStatistics(task_class="class", count=count, mean=mean)}


@pytest.mark.parametrize(
    ("mean", "count", "slow", "drains"),
    [
        (0.0747, 1000, 0.144, False),  # as two healthy workers of one busy host were
        (0.1, 1000, 2.0, False),
        (0.1, 1000, 2.2, True),
        (0.5, 19, 30.0, False),  # of a class that took less than ten seconds in all
        (0.5, 21, 30.0, True),
    ],
)
def test_short_times_drain_nobody(mean: float, count: int, slow: float, drains: bool) -> None:
    fleet = Judged(statistics=known(mean, count), usual=mean)
    fleet.end("w0", *[slow] * 20)
    assert fleet.drained() == (["w0"] if drains else [])


def test_a_time_that_is_noise_speaks_for_no_worker_either() -> None:
    """A slow worker is drained by its long attempts, however many short ones are between."""
    classes = {
        "short": ClassStatistics(task_class="short", count=1000, mean=0.1),
        "class": ClassStatistics(task_class="class", count=1000, mean=100.0),
    }
    fleet = Judged(statistics=classes)
    for worker in ("w0", "w1"):
        for _ in range(6):
            fleet.machines.ended(
                replace(event(f"k{next(fleet.numbers)}", worker, 0.1), task_class="short"),
                classes,
                fleet.now,
            )
    for _ in range(8):
        fleet.end("w0", 500)
        for _ in range(20):
            fleet.machines.ended(
                replace(event(f"k{next(fleet.numbers)}", "w0", 0.5), task_class="short"),
                classes,
                fleet.now,
            )
    assert fleet.drained() == ["w0"]


def test_a_running_attempt_that_is_late_by_noise_drains_nobody() -> None:
    fleet = Judged(statistics=known(0.2, 1000), usual=0.2)
    for _ in range(2):
        fleet.begin("w0", age=1.9)
    assert fleet.drained() == []
    assert fleet.drained(5.0) == ["w0"]


def test_workers_of_one_host_are_held_against_other_hosts_alone() -> None:
    """The host has other load: its workers are slow together, and none knows a faster one."""
    alone = Judged(workers=4, hosts={f"w{i}": "one" for i in range(4)})
    alone.end("w0", *[500] * 20)
    assert alone.drained() == []
    two = Judged(workers=4, hosts={"w0": "one", "w1": "one"})
    two.end("w0", *[500] * 20)
    assert two.drained() == ["w0"]


@pytest.mark.parametrize(("hosts", "drains"), [({"w1": "one", "w2": "one"}, True), ({}, False)])
def test_workers_of_one_host_are_one_witness(hosts: dict[str, str], drains: bool) -> None:
    """A task that was slow on two of them says nothing of the task yet."""
    fleet = Judged(hosts=hosts)
    for i in range(8):
        for worker in ("w1", "w2", "w0"):
            fleet.end(worker, 500, key=f"t{i}")
    assert ("w0" in fleet.drained()) is drains


def test_one_attempt_counts_for_so_much_at_most() -> None:
    """Less than drains a worker: a single long task never does."""
    usual = Mock(spread=0.5)
    most = machines._MOST
    assert [machines._evidence(usual, far) for far in (1e6, -1e6)] == [most, -most]
    assert most == pytest.approx(math.log(100.0))
    assert most < machines._DRAIN


def test_a_look_costs_each_worker_alike_however_many_there_are() -> None:
    """Work that is done for each pair of workers would keep a manager of 10,000 busy."""

    def lines(number: int) -> int:
        judged = Judged(number)
        for worker in range(number):
            judged.begin(f"w{worker}", age=50.0)
        judged.look(10.0)
        run = 0

        def trace(_frame: FrameType, what: str, _more: object) -> TraceFunction:
            nonlocal run
            run += what == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            judged.machines.look(judged.statistics, judged.now)
        finally:
            sys.settrace(before)
        return run

    few, many = lines(20), lines(200)
    assert many < 12 * few
