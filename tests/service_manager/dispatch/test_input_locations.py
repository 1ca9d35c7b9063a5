"""Where the inputs of tasks lie, as far as the manager has heard."""

import pytest

from service_manager.dispatch import input_locations
from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import ManagerCache


def locations_of(*hosts: str) -> InputLocations:
    """Hosts with one worker each, named after them."""
    seen = ManagerCache()
    seen.workers = {f"{host}-worker": (host, 1) for host in hosts}
    return InputLocations(seen)


def test_a_task_that_failed_is_not_sent_to_the_same_host_again() -> None:
    locations = locations_of("a", "b")
    locations.made("k", "g", "a-worker", 5)
    assert locations.host("k", {"a", "b"}) == "a"
    locations.ended("k", "a-worker")
    assert locations.host("k", {"a", "b"}) == ""
    locations.ended("k", "a-worker")  # a lost answer, asked again


def test_the_host_with_most_bytes_holds_a_task() -> None:
    locations = locations_of("a", "b")
    locations.made("k", "g1", "a-worker", 10)
    locations.made("k", "g2", "b-worker", 6)
    locations.made("k", "g3", "b-worker", 6)
    locations.made("k", "g4", "a worker that is gone", 100)
    assert locations.host("k", {"a", "b"}) == "b"
    assert locations.host("k", {"a"}) == "a"
    assert locations.host("k", {"c"}) == ""


def test_a_host_that_was_given_a_task_or_has_ended_it_holds_its_inputs() -> None:
    locations = locations_of("a", "b", "c")
    for task in ("k", "other", "third"):
        locations.made(task, "g", "a-worker", 6)
    locations.ended("other", "c-worker")
    assert locations.host("k", {"c"}) == "c"
    locations.ended("third", "a worker that is gone")
    locations.given("k", "b")
    assert locations.host("k", {"b"}) == "b"


@pytest.mark.parametrize("forgotten", ["task", "input"])
def test_what_was_heard_of_first_is_forgotten_first(
    forgotten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks and inputs are remembered apart, each up to a number."""
    monkeypatch.setattr(input_locations, "REMEMBERED", 3)
    locations = locations_of("a", "b")

    def name(number: int) -> tuple[str, str]:
        return ("k", f"g{number}") if forgotten == "input" else (f"k{number}", "g")

    locations.made(*name(0), "a-worker", 100)
    first = name(0)[0]
    for number in (1, 2, 2):  # the second time is nothing new
        locations.made(*name(number), "b-worker", 1)
    assert locations.host(first, {"a", "b"}) == "a"
    locations.made(*name(3), "b-worker", 1)
    locations.given(first, "b")  # although one input is forgotten
    assert locations.host(first, {"a"}) == ""
