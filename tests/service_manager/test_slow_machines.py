"""Progress that tells of a miss, machines that are drained and tried again: decisions alone."""

import random
from dataclasses import dataclass, field, replace

import pytest

from service_manager.dispatch.attempt_statistics import AttemptProgress, AttemptStatistics
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from service_manager.fleet.machines import Machines
from service_manager.fleet.monitor import Monitor, Verdicts
from service_manager.options import ManagerOptions
from tasks.bag.categories import Category
from tasks.bag.history import ClassStatistics
from tasks.bag.model import Phase, State
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.time_limits import TimeLimits
from tasks.bag.workers import Hold, RunningAttempt, WorkerRow

OPTIONS = ManagerOptions(
    heartbeat=5, lease=30, time_limits=TimeLimits(floor=10, ceiling=3600), probe=600
)
SHORT = replace(OPTIONS, probe=0.0, time_limits=TimeLimits(floor=10, ceiling=400))


def event(
    key: str, worker: str, duration: float, category: Category | None = None, number: int = 1
) -> CompletionEvent:
    return CompletionEvent(
        key=key,
        row="",
        number=number,
        state=State.READY if category else State.DONE,
        category=category,
        duration=duration,
        ended=0.0,
        phase=Phase.REPROJECTION,
        task_class="class",
        worker=worker,
        has_dependents=False,
        interests=(),
        not_before=0.0,
        message="",
        fallback="",
        sponsor="r",
        files=(),
        counted=False,
    )


@dataclass
class Fleet:
    """Workers `w0`, `w1`, ... as the monitor sees them, and time."""

    workers: int = 4
    waiting: int = 0  # tasks that no slot has taken
    statistics: dict[str, ClassStatistics] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)  # workers that have left
    silent: set[str] = field(default_factory=set)  # and those that do not beat
    options: ManagerOptions = OPTIONS
    now: float = 0.0
    cache: ManagerCache = field(default_factory=ManagerCache)
    progress: dict[str, float] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    whys: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    sequence: int = 0
    beats: dict[str, int] = field(default_factory=dict)  # the latest of each worker

    def __post_init__(self) -> None:
        self.monitor = Monitor(self.options, self.cache)

    def learn(self, mean: float = 100.0, number: int = 40) -> None:
        """Successes of about `mean` seconds with steady progress on all workers, which are warm
        afterwards."""
        rng = random.Random(1)
        self.monitor.hear([self.row(f"w{i}") for i in range(self.workers)], self.now)
        for i in range(number):
            duration = mean * rng.lognormvariate(0, 0.3)
            course = AttemptProgress()
            for part in range(1, 20):
                course.note(part / 20, duration * part / 20)
            one = self.begin(f"past{i}", f"w{i % self.workers}")
            one.course = course
            self.end(one, duration)

    def begin(self, key: str, worker: str) -> WatchedAttempt:
        one = self.cache.running[key] = WatchedAttempt(
            key=key,
            claim="claim-" + key,
            worker=worker,
            attempt=1,
            retries=0,
            phase=Phase.REPROJECTION,
            task_class="class",
            sponsor="r",
            claimed_at=0.0,
            since=self.now,
        )
        return one

    def end(self, one: WatchedAttempt, duration: float, category: Category | None = None) -> None:
        del self.cache.running[one.key]
        self.monitor.ended(event(one.key, one.worker, duration, category), one, {}, self.now)

    def look(self, until: float) -> Verdicts:
        """Beats up to a time; all verdicts of that time."""
        found = Verdicts()
        while self.now < until:
            self.now += 5.0
            self.sequence += 1
            names = [f"w{i}" for i in range(self.workers) if f"w{i}" not in self.gone]
            self.beats |= {name: self.sequence for name in names if name not in self.silent}
            self.monitor.hear([self.row(name) for name in names], self.now)
            verdicts = self.monitor.look(self.statistics, self.now, lambda: {"": self.waiting})
            for order in verdicts.holds:
                self.holds[order.worker], self.whys[order.worker] = order.hold, order.why
            for running in verdicts.moves:
                running.ordered = self.now
            for kill in verdicts.kills:
                kill.running.ordered = self.now
            found.holds.extend(verdicts.holds)
            found.moves.extend(verdicts.moves)
            found.kills.extend(verdicts.kills)
            found.given_up.extend(verdicts.given_up)
        return found

    def row(self, name: str) -> WorkerRow:
        return WorkerRow(
            name=name,
            host=name,
            slots=2,
            started=1.0,
            beat_at=0.0,
            sequence=self.beats.get(name, 0),
            hold=self.holds.get(name, Hold.NONE),
            hold_why=self.whys.get(name, ""),
            unfit=self.unfit.get(name, ""),
            attempts=tuple(
                RunningAttempt(
                    key=one.key,
                    claim=one.claim,
                    started_ago=self.now - one.since,
                    phase=one.phase,
                    task_class=one.task_class,
                    progress=self.progress.get(one.key, 0.0),
                )
                for one in self.cache.running.values()
                if one.worker == name
            ),
        )


@pytest.fixture
def fleet() -> Fleet:
    found = Fleet()
    found.learn()
    return found


def test_an_unfit_worker_counts_nowhere(fleet: Fleet) -> None:
    """It has no slot, and it is not one of those that may do the work alone."""
    others = [f"w{number}" for number in range(fleet.workers) if number != 1]
    fleet.unfit = {other: "no scratch" for other in others}
    fleet.look(fleet.now + 10)
    assert fleet.cache.slots == 2
    for turn in range(8):
        fleet.end(fleet.begin(f"slow{turn}", "w1"), 1000.0)
        fleet.look(fleet.now + 5)
    assert fleet.holds.get("w1", Hold.NONE) is Hold.NONE, "the last one that is fit is not drained"


# --- progress ---


def test_an_attempt_that_will_miss_its_bound_is_killed_at_half_of_it() -> None:
    """One attempt on a worker, so that nothing else speaks against the machine."""
    fleet = Fleet(options=SHORT)
    fleet.learn()
    stuck = fleet.begin("stuck", "w1")
    fleet.progress["stuck"] = 0.1
    verdicts = fleet.look(195)
    assert verdicts.kills == []
    verdicts = fleet.look(215)
    (kill,) = verdicts.kills
    assert kill.running is stuck
    assert kill.least > 1.5 * kill.limit


def test_an_attempt_that_gets_on_is_left_alone_until_its_bound() -> None:
    fleet = Fleet(options=SHORT)
    fleet.learn()
    fleet.begin("slow", "w1")
    fleet.progress["slow"] = 0.8
    assert fleet.look(395).kills == []
    (kill,) = fleet.look(405).kills
    assert kill.least == 0.0


def test_a_phase_that_is_slow_in_every_attempt_kills_none() -> None:
    """A class that reports nothing for four fifths of its time."""
    fleet = Fleet(options=SHORT)
    for i in range(20):
        one = fleet.begin(f"past{i}", "w0")
        one.course.ages = [80.0] * 19
        fleet.end(one, 100.0)
    fleet.begin("honest", "w1")
    assert fleet.look(395).kills == []


def test_progress_is_not_held_against_a_class_that_is_not_known() -> None:
    statistics = AttemptStatistics(samples=5)
    assert statistics.least("new", 1000.0, AttemptProgress()) == 1000.0
    for _ in range(4):
        statistics.learn("new", 100.0, AttemptProgress(ages=[10.0]))
    assert statistics.least("new", 1000.0, AttemptProgress()) == 1000.0
    statistics.learn("new", 100.0, AttemptProgress(ages=[10.0]))
    assert statistics.least("new", 1000.0, AttemptProgress()) == 10_000.0


def test_progress_never_goes_back() -> None:
    course = AttemptProgress()
    course.note(0.5, 10.0)
    course.note(0.2, 20.0)
    course.note(0.55, 30.0)
    assert course.ages == [10.0] * 10 + [30.0]


def test_what_ended_unseen_is_learned_from_and_the_short_of_many_are_not_enough() -> None:
    """Of ten that run together the short ones end first."""
    fleet = Fleet()
    for i in range(10):
        fleet.begin(f"k{i}", f"w{i % 4}")
    fleet.look(5)
    for i in range(6):
        one = fleet.cache.running.pop(f"k{i}")
        fleet.monitor.ended(event(one.key, one.worker, 20.0), None, {}, fleet.now)
    assert fleet.monitor.expected("class", {}) == 80.0  # a generous guess
    fleet.look(10)
    assert fleet.monitor.expected("class", {}) == pytest.approx(20.0)


# --- machines ---


def test_what_is_moved_off_a_slow_worker_holds_up_no_other_verdict(fleet: Fleet) -> None:
    mine = [fleet.begin("a", "w1"), fleet.begin("b", "w1")]
    late = fleet.begin("late", "w2")
    late.since = -OPTIONS.time_limits.ceiling
    found = Verdicts()
    while not found.moves:
        assert fleet.now < 100
        late.ordered = None
        found = fleet.look(fleet.now + 5)
        assert [kill.running for kill in found.kills] == [late]
    assert found.moves == mine


def test_a_slow_worker_is_drained_and_its_attempts_moved(fleet: Fleet) -> None:
    mine = [fleet.begin("a", "w1"), fleet.begin("b", "w1")]
    other = fleet.begin("c", "w2")
    fleet.progress["c"] = 0.9
    verdicts = fleet.look(60)
    (drained,) = verdicts.holds
    assert (drained.worker, drained.started, drained.hold) == ("w1", 1.0, Hold.DRAINED)
    assert verdicts.moves == mine
    assert other.ordered is None
    assert fleet.cache.slots == 6


def test_one_long_task_drains_no_worker(fleet: Fleet) -> None:
    long = fleet.begin("long", "w1")
    assert fleet.look(390).holds == []
    fleet.end(long, 390.0)
    assert fleet.look(500).holds == []


def test_a_task_that_is_slow_everywhere_speaks_against_itself() -> None:
    machines = Machines(AttemptStatistics(samples=5), OPTIONS.time_limits, probe=600.0, beat=5.0)
    workers = [Fleet().row(f"w{i}") for i in range(8)]
    machines.hear(workers, {}, 0.0)
    for i in range(40):
        machines._statistics.learn("class", 90.0 + i % 20)
        machines.ended(event(f"past{i}", f"w{i % 8}", 90.0 + i % 20), {}, 0.0)
    for i in range(8):
        for key in ("giant", "giant too"):
            machines.ended(event(key, f"w{i}", 900.0), {}, 0.0)
    orders, _ = machines.look({}, 1.0)
    assert [order.worker for order in orders] == ["w0", "w1"]


def test_a_drained_worker_is_probed_and_released_when_it_is_as_usual(fleet: Fleet) -> None:
    for key in ("a", "b"):
        fleet.begin(key, "w1")
    (drained,) = fleet.look(60).holds
    assert drained.hold is Hold.DRAINED
    for key in ("a", "b"):
        fleet.end(fleet.cache.running[key], fleet.now, Category.CANCELLED)
    (probed,) = fleet.look(700).holds
    assert (probed.worker, probed.hold) == ("w1", Hold.PROBE)
    assert fleet.cache.slots == 7
    probe = fleet.begin("probe", "w1")
    fleet.progress["probe"] = 0.9
    fleet.look(fleet.now + 110)
    fleet.end(probe, 110.0)
    (released,) = fleet.look(fleet.now + 10).holds
    assert (released.worker, released.hold) == ("w1", Hold.NONE)
    assert fleet.cache.slots == 8


def test_a_probe_that_is_slow_drains_again_for_twice_as_long(fleet: Fleet) -> None:
    fleet.begin("a", "w1")
    fleet.begin("b", "w1")
    fleet.look(60)
    for key in ("a", "b"):
        fleet.end(fleet.cache.running[key], fleet.now, Category.CANCELLED)
    fleet.look(700)
    assert fleet.holds["w1"] is Hold.PROBE
    probe = fleet.begin("probe", "w1")
    verdicts = fleet.look(fleet.now + 100)
    assert [order.hold for order in verdicts.holds] == [Hold.DRAINED]
    assert verdicts.moves == [probe]
    fleet.end(probe, 100.0, Category.CANCELLED)
    began = fleet.now
    assert fleet.look(began + 1000).holds == []
    assert [order.hold for order in fleet.look(began + 1300).holds] == [Hold.PROBE]


def test_at_most_three_quarters_of_the_slots_are_drained(fleet: Fleet) -> None:
    for i in range(fleet.workers):
        for slot in range(2):
            fleet.begin(f"task{i}{slot}", f"w{i}")
    fleet.look(100)
    assert len(fleet.holds) == 3


def test_nothing_is_drained_when_it_is_switched_off() -> None:
    fleet = Fleet(options=replace(OPTIONS, probe=0.0))
    fleet.learn()
    fleet.begin("a", "w1")
    fleet.begin("b", "w1")
    assert fleet.look(100).holds == []


def test_an_order_that_was_lost_is_given_again(fleet: Fleet) -> None:
    fleet.begin("a", "w1")
    fleet.begin("b", "w1")
    fleet.look(60)
    del fleet.holds["w1"]
    (again,) = fleet.look(65).holds
    assert (again.worker, again.started, again.hold) == ("w1", 1.0, Hold.DRAINED)
    assert again.why
    assert again.wait == pytest.approx(600.0, abs=50.0)


def test_a_manager_that_takes_over_goes_by_the_rows() -> None:
    fleet = Fleet()
    fleet.holds["w1"] = Hold.DRAINED
    fleet.look(5)
    assert fleet.cache.slots == 6


def test_a_drained_worker_does_not_teach_what_is_usual() -> None:
    fleet = Fleet()
    fleet.holds["w1"] = Hold.DRAINED
    fleet.learn()
    fleet.look(5)
    for i in range(200):
        fleet.end(fleet.begin(f"slow{i}", "w1"), 1000.0)
    fleet.begin("a", "w2")
    fleet.begin("b", "w2")
    assert [order.worker for order in fleet.look(100).holds] == ["w2"]


def probe_in_vain(fleet: Fleet, key: str) -> float:
    """A probe of `w1` that is slow; the seconds until the next one."""
    probe = fleet.begin(key, "w1")
    while not fleet.look(fleet.now + 5).moves:
        assert fleet.now - probe.since < 100
    fleet.end(probe, fleet.now - probe.since, Category.CANCELLED)
    began = fleet.now
    while fleet.holds["w1"] is not Hold.PROBE:
        fleet.look(fleet.now + 5)
    return fleet.now - began


def test_waits_grow_with_the_time_for_which_a_worker_is_slow() -> None:
    fleet = Fleet(options=replace(OPTIONS, probe=60.0))
    fleet.learn()
    for key in ("a", "b"):
        fleet.begin(key, "w1")
    fleet.look(60)
    for key in ("a", "b"):
        fleet.end(fleet.cache.running[key], fleet.now, Category.CANCELLED)
    fleet.look(150)
    waits = [probe_in_vain(fleet, f"probe{i}") for i in range(14)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(120, abs=10)
    assert waits[-1] == pytest.approx(fleet.now / 8, rel=0.15)


def test_a_task_that_was_slow_on_slow_workers_still_speaks_against_one(fleet: Fleet) -> None:
    """Moved from probe to probe, it would otherwise keep the last to its end."""
    fleet.workers = 12
    fleet.learn()
    for i in range(1, 5):
        for slot in range(2):
            fleet.begin(f"task{i}{slot}", f"w{i}")
    fleet.look(60)
    held = [w for w, hold in fleet.holds.items() if hold is Hold.DRAINED]
    assert held == ["w1", "w2", "w3", "w4"]
    for one in list(fleet.cache.running.values()):
        fleet.end(one, fleet.now, Category.CANCELLED)
    fleet.look(700)
    for worker in held:
        assert fleet.holds[worker] is Hold.PROBE
        probe = fleet.begin("wanderer", worker)
        assert fleet.look(fleet.now + 100).moves == [probe]
        fleet.end(probe, 100.0, Category.CANCELLED)
