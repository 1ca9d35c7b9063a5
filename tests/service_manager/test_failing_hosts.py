"""Hosts on which everything fails: the evidence, the hold, the probes and the release."""

from collections.abc import Sequence

import pytest

from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.fleet.failing import ELSEWHERE, IN_A_ROW
from service_manager.fleet.machines import Machines
from tasks.bag.categories import Category
from tasks.bag.workers import Ask, Hold
from tests.service_manager.fleet.test_machines import Judged
from tests.service_manager.test_slow_machines import OPTIONS, event

BAD, BAD_TOO, GOOD = "w0", "w1", "w2"  # the first two are of one host


class Fleet(Judged):
    """Two workers on a bad host, and others that are well."""

    def __init__(self, workers: int = 8) -> None:
        super().__init__(workers=workers, hosts={BAD: "bad", BAD_TOO: "bad"})

    def fail(
        self, *keys: str, on: str = BAD, category: Category = Category.UNKNOWN, took: float = 0.004
    ) -> None:
        for key in keys:
            self.machines.ended(event(key, on, took, category), self.statistics, self.now)

    def fail_all(self) -> None:
        """All that it takes: a row, successes elsewhere, and one more failure."""
        row = [f"t{number}" for number in range(IN_A_ROW)]
        self.fail(*row)
        for key in row[:ELSEWHERE]:
            self.end(GOOD, 100.0, key=key)
        self.now += 1.0
        self.fail("one more")

    def held(self, seconds: float = 0.0) -> dict[str, Hold]:
        self.look(seconds)
        return {name: hold for name, hold in self.holds.items() if hold is not Hold.NONE}


def test_a_host_on_which_everything_fails_is_held_with_all_its_workers() -> None:
    fleet = Fleet()
    fleet.fail_all()
    (orders, moves) = fleet.look()
    assert {(one.worker, one.hold, one.failing) for one in orders} == {
        (BAD, Hold.DRAINED, True),
        (BAD_TOO, Hold.DRAINED, True),
    }
    assert orders[0].why == (
        "6 tasks failed on bad one after another, and 2 of them succeeded on other hosts since "
        "(t0: unknown; t1: unknown)."
    )
    assert (orders[0].wait, moves) == (600.0, [])


@pytest.mark.parametrize("missing", ["failures", "elsewhere", "after", "different", "of its own"])
def test_less_is_no_evidence(missing: str) -> None:
    fleet = Fleet()
    row = [f"t{number}" for number in range(IN_A_ROW - 2 * (missing == "failures"))]
    if missing == "different":
        row = [row[0], row[1]] * IN_A_ROW
    category = Category.USER_CODE_FAILED if missing == "of its own" else Category.UNKNOWN
    fleet.fail(*row, category=category)
    for key in row[: ELSEWHERE - (missing == "elsewhere")]:
        fleet.end(GOOD, 100.0, key=key)
    fleet.now += 1.0
    # What began before may have met what is over now, such as an archive that was away.
    fleet.fail(row[-1], took=50.0 if missing == "after" else 0.004, category=category)
    assert fleet.held() == {}


@pytest.mark.parametrize("on", [BAD, BAD_TOO])
def test_a_success_on_the_host_ends_the_row(on: str) -> None:
    fleet = Fleet()
    fleet.fail(*(f"t{number}" for number in range(IN_A_ROW)))
    fleet.end(on, 100.0)
    for key in ("t0", "t1", "t2"):
        fleet.end(GOOD, 100.0, key=key)
    fleet.now += 1.0
    fleet.fail("one more")
    assert fleet.held() == {}


def test_what_fails_on_every_host_holds_none() -> None:
    """An archive that is away: all fail; when it is back, each host has a success soon."""
    fleet = Fleet()
    for turn in range(50):
        for worker in range(8):
            fleet.fail(f"t{turn}", on=f"w{worker}", category=Category.CONNECTION_FAILURE)
    for worker in range(8):
        fleet.end(f"w{worker}", 100.0, key=f"t{worker}")
    assert fleet.held(10.0) == {}


@pytest.mark.parametrize(
    "category", [Category.DISK_SHARED, Category.WORKER_LOST, Category.CANCELLED]
)
def test_what_costs_a_task_nothing_is_no_evidence(category: Category) -> None:
    fleet = Fleet()
    row = [f"t{number}" for number in range(IN_A_ROW)]
    fleet.fail(*row, category=category)
    for key in row[:ELSEWHERE]:
        fleet.end(GOOD, 100.0, key=key)
    fleet.now += 1.0
    fleet.fail("one more", category=category)
    assert fleet.held() == {}


def test_no_work_makes_it_needed_and_its_slots_do_not_count() -> None:
    fleet = Fleet(workers=3)
    fleet.fail_all()
    fleet.waiting = 100
    assert set(fleet.held()) == {BAD, BAD_TOO}
    assert set(fleet.held(30.0)) == {BAD, BAD_TOO}


def test_one_probe_at_a_time_and_its_success_releases_the_host() -> None:
    fleet = Fleet()
    fleet.fail_all()
    fleet.held()
    assert fleet.held(599.0) == {BAD: Hold.DRAINED, BAD_TOO: Hold.DRAINED}
    assert fleet.held(2.0) == {BAD: Hold.PROBE, BAD_TOO: Hold.DRAINED}
    assert fleet.held(700.0) == {BAD: Hold.PROBE, BAD_TOO: Hold.DRAINED}
    fleet.fail("handed back", category=Category.CANCELLED)
    fleet.fail("begun before", took=2000.0)
    assert fleet.held() == {BAD: Hold.PROBE, BAD_TOO: Hold.DRAINED}, "that says nothing"
    fleet.fail("probe", took=1.0)
    assert fleet.held() == {BAD: Hold.DRAINED, BAD_TOO: Hold.DRAINED}
    assert fleet.held(1199.0) == {BAD: Hold.DRAINED, BAD_TOO: Hold.DRAINED}, "twice as long"
    assert Hold.PROBE in fleet.held(2.0).values()
    fleet.now += 1.0
    fleet.end(BAD, 0.5)
    assert fleet.held() == {}
    fleet.fail("one")
    assert fleet.held() == {}, "it begins anew"


def test_no_wait_for_a_probe_is_longer_than_the_longest_time_limit() -> None:
    fleet = Fleet()
    fleet.fail_all()
    fleet.held()
    fleet.held(40_000.0)  # nobody took the probe meanwhile; an eighth of this is too long
    fleet.now += 5.0
    fleet.fail("probe", took=1.0)
    assert fleet.held(3599.0) == {BAD: Hold.DRAINED, BAD_TOO: Hold.DRAINED}
    assert Hold.PROBE in fleet.held(2.0).values()


def test_a_probe_goes_to_a_worker_that_takes_it() -> None:
    fleet = Fleet()
    fleet.fail_all()
    fleet.held()
    fleet.unfit = {BAD: "no scratch"}
    assert fleet.held(601.0) == {BAD: Hold.DRAINED, BAD_TOO: Hold.PROBE}


@pytest.mark.parametrize("worker", [BAD, BAD_TOO])
def test_an_operator_releases_the_host_by_any_of_its_workers(worker: str) -> None:
    fleet = Fleet()
    fleet.fail_all()
    fleet.held()
    fleet.asked = {worker: Ask.RELEASE}
    fleet.hear(5.0)
    fleet.asked = {}
    fleet.hear(5.0)
    assert fleet.held() == {}


def test_a_manager_that_takes_over_knows_which_host_fails() -> None:
    fleet, other = Fleet(), Fleet()
    fleet.fail_all()
    fleet.held()
    other.holds, other.whys, other.failing = fleet.holds, fleet.whys, fleet.failing
    other.machines = Machines(other.known, OPTIONS.time_limits, probe=600.0, beat=5.0)
    assert other.held(10.0) == {BAD: Hold.DRAINED, BAD_TOO: Hold.DRAINED}
    assert Hold.PROBE in other.held(601.0).values()
    other.now += 1.0
    other.end(BAD, 0.5)
    assert other.held() == {}


def test_a_failing_host_is_held_when_the_others_have_left_too() -> None:
    fleet = Fleet(workers=3)
    fleet.fail_all()
    fleet.held()
    fleet.leaving = {GOOD}
    assert fleet.held(60.0) == {BAD: Hold.DRAINED, BAD_TOO: Hold.DRAINED}


@pytest.mark.parametrize(
    ("hosts", "expected"), [(("a", "b"), "b"), (("a",), ""), (("b", "c"), "b or c")]
)
def test_a_task_that_failed_is_sent_to_another_host_first(
    hosts: Sequence[str], expected: str
) -> None:
    cache = ManagerCache(workers={"w-a": ("a", 2), "w-b": ("b", 2)})
    locations = InputLocations(cache)
    locations.made("k", "input", "w-a", 10**9)
    assert locations.host("k", ("a", "b")) == "a"
    locations.ended("k", "w-a", failed=True)
    assert locations.host("k", hosts) in expected.split(" or ")
    locations.ended("k", "w-b")
    assert locations.host("k", hosts) == ""
