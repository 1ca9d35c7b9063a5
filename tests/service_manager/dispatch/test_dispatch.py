"""How many messages are sent, of whom, and when again: the numbers of dispatch."""

from dataclasses import replace

import pytest

from service_manager.dispatch import dispatch as module
from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.ledger import Entry
from service_manager.dispatch.manager_cache import ManagerCache
from tasks.bag.model import Phase
from tasks.bag.task_rows import Interest
from tasks.operators.restrictions import Kind, Restriction
from tasks.storage.queues import FIRST
from tests.service_manager.dispatch.test_preference_rules import Hosts
from tests.service_manager.dispatch.test_restrictions import FETCH, WARP, restrict
from tests.service_manager.test_decisions import cache, family_of, running, sent


def filled(number: int, request: str = "r", window: int = 1000, **more: object) -> Dispatch:
    """Many ready tasks of one request."""
    found = Dispatch(window=window, resend=30, **more)  # type: ignore[arg-type]
    for i in range(number):
        found.add(f"{request}{i:04d}", request)
    return found


def run(
    seen: ManagerCache, *keys: str, sponsor: str = "r", phase: Phase = Phase.COLLECTION
) -> None:
    for key in keys:
        seen.running[key] = replace(running(key), sponsor=sponsor, phase=phase)


# --- how many ---


@pytest.mark.parametrize(
    ("slots", "busy", "number"),
    [
        (0, 0, 2),
        (3, 0, 3 + 3 + 2),
        (3, 2, 1 + 3 + 2),
        (3, 5, 3 + 2),
        (100, 0, 100 + 64 + 2),
    ],
)
def test_a_message_for_each_idle_slot_and_some_ahead(slots: int, busy: int, number: int) -> None:
    dispatch = filled(500)
    seen = cache(("r", "a", 1.0), slots=slots)
    run(seen, *(f"x{i}" for i in range(busy)))
    chosen = sent(dispatch, seen, 0.0)
    assert chosen == [f"r{i:04d}" for i in range(number)]
    assert sent(dispatch, seen, 1.0) == []
    dispatch.remove(chosen[0])
    dispatch.remove(chosen[1])
    assert len(sent(dispatch, seen, 2.0)) == 2


def test_the_queue_is_filled_at_the_rate_of_the_last_two_seconds() -> None:
    dispatch = filled(500)
    seen = cache(("r", "a", 1.0), slots=1)
    assert len(sent(dispatch, seen, 100.0)) == 4
    for _ in range(10):
        dispatch.freed(100.0)
    for _ in range(5):
        dispatch.freed(101.0)
    # For two in a second each: 1 idle slot, twice 15 in 2 s, less the 4 that wait.
    assert len(sent(dispatch, seen, 102.0)) == 1 + 2 * 15 - 4
    dispatch.unsend(dispatch.sent("r"))
    assert len(sent(dispatch, seen, 102.5)) == 1 + 2 * 5
    dispatch.unsend(dispatch.sent("r"))
    assert len(sent(dispatch, seen, 103.5)) == 4


def test_what_is_sent_again_needs_no_room_on_a_full_queue() -> None:
    """The broker may have lost all of it."""
    dispatch, seen = filled(500), cache(("r", "a", 1.0), slots=1)
    chosen = sent(dispatch, seen, 0.0)
    assert len(chosen) == 4
    assert sent(dispatch, seen, 29.0) == []
    assert sent(dispatch, seen, 30.0) == chosen


def test_what_was_taken_back_is_sent_next_and_in_its_order() -> None:
    dispatch, seen = filled(500), cache(("r", "a", 1.0), slots=1)
    chosen = sent(dispatch, seen, 0.0)
    dispatch.unsend(chosen)
    assert sent(dispatch, seen, 1.0) == chosen


def test_a_batch_is_one_message_and_many_tasks() -> None:
    keys = family_of(100)
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.01)
    for key in keys:
        dispatch.add(key, "r", "class")
    seen = cache(("r", "a", 1.0), slots=1)
    assert [len(batch) for batch in dispatch.choose(seen, 0.0)] == [20] * 4
    assert dispatch.choose(seen, 1.0) == []
    for key in keys[:19]:
        dispatch.remove(key)
    assert dispatch.choose(seen, 1.0) == []  # its message still waits for the last of them
    dispatch.remove(keys[19])
    assert [len(batch) for batch in dispatch.choose(seen, 1.0)] == [20]


def test_what_is_sent_is_work_for_all_slots_as_well() -> None:
    """What gets ready while all have work goes together; the last of it is divided."""
    keys = family_of(34)
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.01)
    seen = cache(("r", "a", 1.0), slots=2)
    for key in keys[:32]:
        dispatch.add(key, "r", "class")
    assert [len(batch) for batch in dispatch.choose(seen, 0.0)] == [8] * 4
    for key in keys[:26]:
        dispatch.remove(key)
    for key in keys[32:]:
        dispatch.add(key, "r", "class")
    # Of six that were sent two may have begun; with those that are ready, six are left.
    assert dispatch.choose(seen, 0.0) == [(keys[32],), (keys[33],)]
    dispatch.unsend(keys[32:])
    for key in family_of(4, day=2):
        dispatch.add(key, "r", "class")
    assert [len(batch) for batch in dispatch.choose(seen, 0.0)] == [2, 2, 2]


def test_what_may_not_be_sent_makes_no_batch_larger() -> None:
    keys, others = family_of(40), family_of(100, day=2)
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.01)
    for key in keys:
        dispatch.add(key, "r", "class")
    for key in others:
        dispatch.add(key, "paused", "class")
    seen = cache(("r", "a", 1.0), ("paused", "b", 0.0), slots=4)
    seen.requests["paused"].stopped = True
    assert len(dispatch.choose(seen, 0.0)[0]) == 5
    dispatch.turns = 1
    dispatch.unsend(dispatch.sent("r"))
    assert len(dispatch.choose(seen, 0.0)[0]) == 10


def test_a_batch_is_of_classes_that_are_known_and_of_so_many_seconds() -> None:
    keys = family_of(200)
    seconds = {"short": 0.5, "long": 1.4}
    dispatch = Dispatch(window=64, resend=30, expected=seconds.get)
    for key, name in zip(keys, ["short", "long", "new", *197 * ["short"]], strict=True):
        dispatch.add(key, "r", name)
    first, *_ = dispatch.choose(cache(("r", "a", 1.0), slots=0), 0.0)
    assert first == (keys[0], keys[1])


@pytest.mark.parametrize(
    ("ready", "slots", "number"), [(40, 1, 4), (200, 1, 6), (400, 2, 6), (800, 1, 16)]
)
def test_a_batch_is_a_small_part_of_what_its_request_has_left(
    ready: int, slots: int, number: int
) -> None:
    """What finishes a result waits until a slot has done its batch."""
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.125)
    for key in family_of(ready):
        dispatch.add(key, "r", "class")
    first, *_ = dispatch.choose(cache(("r", "a", 1.0), slots=slots), 0.0)
    assert len(first) == number


def test_what_of_a_request_waits_for_inputs_counts_as_left() -> None:
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.125)
    for key in family_of(100):
        dispatch.add(key, "r", "class")
    seen = cache(("r", "a", 1.0), slots=1)
    for key in family_of(600, day=2):
        seen.requests["r"].ledger.put(key, Entry(phase=Phase.AGGREGATION))
    first, *_ = dispatch.choose(seen, 0.0)
    assert len(first) == 16


def test_what_finishes_a_result_is_sent_to_a_full_queue_one_for_each_slot() -> None:
    seen = cache(("r", "a", 1.0), slots=1)
    dispatch = Dispatch(window=64, resend=30, locations=InputLocations(seen))
    for i in range(10):
        dispatch.add(f"c{i}", "r", rank=10 + i)
    assert len(sent(dispatch, seen, 0.0)) == 4
    dispatch.add("late", "r", "aggregation mosaic", rank=50)
    assert sent(dispatch, seen, 1.0) == []
    for i in range(3):
        dispatch.add(f"m{i}", "r", "aggregation mosaic", rank=5 + i)
    for i in range(3):
        assert sent(dispatch, seen, 2.0) == [f"m{i}"]
        assert dispatch.host(f"m{i}") == FIRST
        assert sent(dispatch, seen, 3.0) == []
        dispatch.remove(f"m{i}")  # a slot takes it
    assert sent(dispatch, seen, 4.0) == []


def test_no_more_than_what_finishes_a_result_is_sent_to_a_full_queue() -> None:
    """A host that holds the inputs of a later cell does not have that sent in its place."""
    hosts = Hosts()
    seen = cache(("r", "a", 1.0))
    seen.workers = hosts.cache.workers
    for name in seen.workers:
        seen.running[name] = replace(running(name), worker=name)
    dispatch = Dispatch(window=64, resend=30, locations=hosts.locations)
    for i in range(10):
        dispatch.add(f"c{i}", "r", rank=10 + i)
    assert len(sent(dispatch, seen, 0.0)) == 4
    dispatch.add("b", "r", rank=6)
    assert sent(dispatch, seen, 1.0) == []
    dispatch.add("mosaic", "r", "aggregation mosaic", rank=5)
    assert sent(dispatch, seen, 1.0) == ["mosaic"]


# --- in whose turn ---


@pytest.mark.parametrize("known", [False, True])
def test_what_runs_counts_once_for_whom_it_runs(known: bool) -> None:
    """Until the manager hears that a task runs, it counts as sent."""
    dispatch = Dispatch(window=64, resend=30)
    seen = cache(("r", "a", 2.0), ("s", "b", 1.0), slots=9)
    if known:
        dispatch.add("r0", "r")
        assert sent(dispatch, seen, 0.0) == ["r0"]
        run(seen, "r0")
    else:
        run(seen, "r0")
    run(seen, "x0", "x1", sponsor="s")
    for i in (1, 2, 3):
        dispatch.add(f"r{i}", "r")
        dispatch.add(f"s{i}", "s")
    assert sent(dispatch, seen, 1.0)[:3] == ["r1", "s1", "r2"]


def test_what_runs_for_an_owner_counts_for_all_the_owner_s_requests() -> None:
    dispatch = Dispatch(window=64, resend=30)
    seen = cache(("r", "a", 1.0), ("other", "a", 1.0), ("s", "b", 2.0), slots=9)
    run(seen, "x0", sponsor="other")
    dispatch.add("r1", "r")
    dispatch.add("s1", "s")
    assert sent(dispatch, seen, 0.0) == ["s1", "r1"]


def test_of_a_request_that_is_not_read_yet_ready_tasks_are_sent() -> None:
    dispatch = filled(1, "unread")
    assert sent(dispatch, cache(slots=1), 0.0) == ["unread0000"]


@pytest.mark.parametrize(
    ("large", "small", "overtaken"),
    [("a", "b", True), ("a", "a", True)],
)
def test_a_request_with_one_message_there_is_not_chosen_again(
    large: str, small: str, overtaken: bool
) -> None:
    dispatch = filled(50, "l")
    seen = cache(("l", large, 1.0), ("s", small, 2.0), slots=0)
    assert len(sent(dispatch, seen, 0.0)) == 2
    dispatch.remove("l0000")
    dispatch.add("s", "s")
    assert not dispatch.overtaken(seen)
    assert sent(dispatch, seen, 1.0) == ["s"]
    dispatch.unsend(["s"])
    seen.slots = 1
    assert len(sent(dispatch, seen, 2.0)) > 1
    dispatch.unsend(["s"])
    assert dispatch.overtaken(seen) is overtaken
    run(seen, *(f"x{i}" for i in range(9)), sponsor="s")
    assert not dispatch.overtaken(seen)


# --- under limits ---


@pytest.mark.parametrize("known", [False, True])
def test_a_limit_of_a_phase_counts_what_is_sent_and_what_runs_once(known: bool) -> None:
    dispatch, seen = Dispatch(window=9, resend=30), cache(("r", "a", 1.0), slots=9)
    restrict(seen, Restriction(kind=Kind.LIMIT_PHASE, subject="collection", value=2))
    if known:
        dispatch.add("f0", "r", FETCH)
        assert sent(dispatch, seen, 0.0) == ["f0"]
    run(seen, "f0")
    for i in (1, 2, 3):
        dispatch.add(f"f{i}", "r", FETCH)
        dispatch.add(f"u{i}", "r")  # of no phase that is known
    assert sorted(sent(dispatch, seen, 1.0)) == ["f1", "u1", "u2", "u3"]


def test_what_was_sent_before_a_limit_is_sent_again_beyond_it() -> None:
    dispatch, seen = filled(0), cache(("r", "a", 1.0), slots=9)
    for i in range(3):
        dispatch.add(f"f{i}", "r", FETCH)
    assert len(sent(dispatch, seen, 0.0)) == 3
    restrict(seen, Restriction(kind=Kind.LIMIT_PHASE, subject="collection", value=1))
    assert len(sent(dispatch, seen, 31.0)) == 3


def test_a_paused_phase_holds_up_no_other_and_counts_in_no_backlog() -> None:
    dispatch, seen = Dispatch(window=1, resend=30), cache(("r", "a", 1.0), slots=9)
    for i in range(40):
        dispatch.add(f"f{i:02}", "r", FETCH)
        dispatch.add(f"w{i:02}", "r", WARP)
    restrict(seen, Restriction(kind=Kind.PAUSE_PHASE, subject="collection"))
    for i in range(100):
        key = f"{i:064x}"
        seen.requests["r"].note(Interest(request="r", key=key, phase=Phase.COLLECTION))
    assert dispatch.backlog(seen) == {"r": 16}
    assert {key[0] for key in sent(dispatch, seen, 0.0)} == {"w"}


def test_an_owner_whose_limit_is_reached_is_passed_by_and_overtakes_nobody() -> None:
    dispatch = filled(50, "l")
    seen = cache(("l", "a", 1.0), ("s", "b", 2.0), slots=2)
    assert len(sent(dispatch, seen, 0.0)) == 6
    dispatch.add("s0", "s", FETCH)
    assert dispatch.overtaken(seen)
    restrict(seen, Restriction(kind=Kind.LIMIT_OWNER, subject="b", value=0))
    assert not dispatch.overtaken(seen)
    restrict(seen, Restriction(kind=Kind.LIMIT_PHASE, subject="collection", value=1))
    assert dispatch.overtaken(seen)
    run(seen, "x")
    assert not dispatch.overtaken(seen)


# --- to which host ---


def preferring(**slots: int) -> tuple[ManagerCache, InputLocations, Dispatch]:
    seen = cache(("r", "a", 1.0), slots=sum(slots.values()))
    seen.workers = {f"{host}-worker": (host, number) for host, number in slots.items()}
    locations = InputLocations(seen)
    found = Dispatch(window=64, resend=30, locations=locations, patience=6, expected=lambda _: 0.01)
    return seen, locations, found


def test_a_batch_that_waits_for_a_host_takes_the_room_of_one_message() -> None:
    seen, locations, dispatch = preferring(a=1, b=1)
    keys = family_of(60)
    for key in keys:
        locations.made(key, f"input of {key}", "a-worker", 5)
        dispatch.add(key, "r", "class")
    hosts = [{dispatch.host(key) for key in batch} for batch in dispatch.choose(seen, 0.0)]
    assert hosts == [{"a"}, {""}, {"a"}, {""}]


def test_a_batch_has_tasks_of_one_host() -> None:
    seen, locations, dispatch = preferring(a=4, b=4)
    keys = family_of(20)
    for number, key in enumerate(keys):
        locations.made(key, f"input of {key}", f"{'ab'[number % 2]}-worker", 5)
        dispatch.add(key, "r", "class")
    for batch in dispatch.choose(seen, 0.0):
        assert len({locations.host(key, {"a", "b"}) for key in batch}) == 1


def test_a_task_that_no_host_is_better_for_goes_to_all() -> None:
    seen, _, dispatch = preferring(a=1, b=1)
    dispatch.add("k", "r")
    assert sent(dispatch, seen, 0.0) == ["k"]
    assert dispatch.host("k") == ""
    assert dispatch.host("no such task") == ""


def test_the_first_task_is_passed_over_for_a_number_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK", 3)
    seen, locations, dispatch = preferring(a=50, b=50)
    dispatch.add("first", "r")
    for i in range(10):
        locations.made(f"k{i}", "g", "a-worker", 5)
        dispatch.add(f"k{i}", "r")
    assert sent(dispatch, seen, 0.0)[:6] == ["k0", "k1", "k2", "first", "k3", "k4"]
