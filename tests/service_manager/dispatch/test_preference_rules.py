"""Which tasks are kept for the host that holds their inputs, decision by decision."""

from dataclasses import dataclass, field

import pytest

from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from service_manager.dispatch.preference import LOOK, Preference
from tasks.bag.model import Phase


@dataclass
class Hosts:
    """Workers as (name, host, slots), and tasks named after the worker that made their input."""

    workers: tuple[tuple[str, str, int], ...] = (("a", "A", 1), ("b", "B", 1))
    cache: ManagerCache = field(default_factory=ManagerCache)

    def __post_init__(self) -> None:
        self.cache.workers = {name: (host, slots) for name, host, slots in self.workers}
        self.locations = InputLocations(self.cache)
        for name, *_ in self.workers:
            self.locations.made(name, f"input of {name}", name, 5)

    def running(self, worker: str, place: int = 0) -> None:
        key = f"running {len(self.cache.running)}"
        self.cache.running[key] = WatchedAttempt(
            key=key,
            claim="c",
            worker=worker,
            attempt=1,
            retries=0,
            phase=Phase.REPROJECTION,
            task_class="class",
            sponsor="r",
            claimed_at=0.0,
            since=0.0,
            place=place,
        )

    @property
    def preference(self) -> Preference:
        return Preference(self.cache, self.locations)


def kept(preference: Preference, key: str) -> int:
    """How many tasks like this one are kept for its host."""
    number = 0
    while preference.first([key]) == key:
        preference.give([key])
        number += 1
    return number


def test_a_host_has_the_slots_of_all_its_workers_for_two_turns() -> None:
    hosts = Hosts((("a", "A", 1), ("a2", "A", 2), ("b", "B", 1)))
    preference = hosts.preference
    assert kept(preference, "a") == 3  # while b is idle
    preference.give_all()  # b takes it
    assert kept(preference, "a") == 3


def test_only_what_a_slot_works_at_takes_it() -> None:
    hosts = Hosts((("a", "A", 3), ("b", "B", 1)))
    hosts.running("a", place=1)  # it waits in a batch
    hosts.running("a worker that is gone")
    assert kept(hosts.preference, "a") == 3
    hosts.running("a")
    assert kept(hosts.preference, "a") == 2


def test_where_no_slot_is_idle_each_host_is_given_what_comes_next() -> None:
    hosts = Hosts()
    hosts.running("a")
    hosts.running("b")
    preference = hosts.preference
    preference.give_all()  # no slot takes it yet
    assert (kept(preference, "a"), kept(preference, "b")) == (2, 2)


def test_messages_that_wait_for_a_host_count_as_given() -> None:
    preference = Hosts().preference
    for host in ("A", "B", "a host that is gone"):
        preference.waiting(host)
    assert (kept(preference, "a"), kept(preference, "b")) == (1, 1)


@pytest.mark.parametrize(("before", "found"), [(LOOK - 1, "a"), (LOOK, "")])
def test_tasks_are_looked_at_up_to_a_number(before: int, found: str) -> None:
    assert Hosts().preference.first([*["of no host"] * before, "a", "b"]) == found


def test_a_batch_is_of_tasks_of_one_host_which_then_holds_the_inputs_of_all() -> None:
    hosts = Hosts((("a", "A", 1), ("a2", "A", 1), ("b", "B", 1)))
    preference = hosts.preference
    assert preference.alike("a", "a2")
    assert not preference.alike("a", "b")
    preference.give(["a", "b"])
    assert hosts.locations.host("b", {"A"}) == "A"


def test_a_host_alone_has_no_tasks_kept_for_it() -> None:
    assert Hosts((("a", "A", 2),)).preference.first(["a"]) == ""
