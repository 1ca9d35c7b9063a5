"""Places where workers are: what is sent to which, and what is of the whole fleet."""

from dataclasses import replace

import pytest

from service_manager.dispatch import dispatch as module
from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.fleet_dispatch import FleetDispatch
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from tasks.bag import workers
from tasks.bag.model import Phase, RequestState
from tasks.bag.task_rows import ReadyMarker
from tasks.bag.workers import WorkerRow
from tasks.operators.manager_rows import HostQueue, PlaceQueue
from tasks.operators.restrictions import Kind, Restriction
from tasks.setting_values import WorkPlaces
from tasks.storage.queues import FIRST
from tests.service_manager.dispatch.test_restrictions import restrict
from tests.service_manager.test_decisions import cache, running
from tests.service_manager.workbench import Bench, collect, plan_of

WORK = WorkPlaces.read("gpu=reduction/segment big=aggregation")
SEGMENT, OTHER = "reduction segment 12345678, 1-2 Mpx", "reduction mean 12345678"
MOSAIC, FETCH = "aggregation mosaic 0.01, 1-2 Mpx", "collection MOD13A2.6 from archive.example.org"


def fleet(work: WorkPlaces = WORK, places: int = 0, resend: float = 30.0) -> FleetDispatch:
    return FleetDispatch(lambda: Dispatch(window=64, resend=resend, places=places), work)


def seen_of(*requests: tuple[str, str, float], **slots: int) -> ManagerCache:
    """A worker at each place that is named, with so many slots; `at` has none."""
    found = cache(*(requests or (("r", "a", 1.0),)))
    found.workers = {place: (f"host-{place}", number) for place, number in slots.items()}
    found.worker_places = {place: place for place in slots if place != "at"}
    found.slots = sum(slots.values())
    return found


def filled(found: FleetDispatch, task_class: str, number: int = 50, request: str = "r") -> None:
    for i in range(number):
        found.add(f"{task_class.split()[1][:4]}{request}{i:04d}", request, task_class)


def sent(found: FleetDispatch, seen: ManagerCache, now: float = 0.0) -> dict[str, int]:
    """How many keys are sent now, by place."""
    keys = [key for batch in found.choose(seen, now) for key in batch]
    counts: dict[str, int] = {}
    for key in keys:
        counts[found.place(key)] = counts.get(found.place(key), 0) + 1
    return counts


def test_each_place_is_sent_what_its_slots_take_and_hides_nothing() -> None:
    found, seen = fleet(), seen_of(at=2, gpu=1, big=4)
    filled(found, MOSAIC)
    filled(found, SEGMENT)
    filled(found, OTHER, 20)
    assert sent(found, seen) == {"": 6, "big": 10, "gpu": 4}
    assert sent(found, seen, 1.0) == {}


def test_a_place_without_slots_is_sent_nothing_and_holds_up_nothing() -> None:
    found, seen = fleet(), seen_of(at=2, big=1)
    filled(found, SEGMENT, 2000)
    filled(found, MOSAIC, 3)
    filled(found, FETCH, 3)
    assert sent(found, seen) == {"": 3, "big": 3}
    looks = {look.place: (look.cache.slots, look.ready) for look in found.looks(seen)}
    assert looks == {"": (2, {"r": 3}), "big": (1, {"r": 3}), "gpu": (0, {"r": 2000})}


def test_without_places_there_is_one_dispatch_and_all_slots_are_its_own() -> None:
    found, seen = fleet(WorkPlaces()), cache(("r", "a", 1.0), slots=3)
    filled(found, SEGMENT)
    assert sent(found, seen) == {"": 8}
    assert found.looks(seen)[0].cache is seen


def test_workers_of_a_place_that_has_no_work_are_sent_nothing() -> None:
    found, seen = fleet(WorkPlaces()), seen_of(at=1, gpu=20)
    filled(found, SEGMENT)
    assert sent(found, seen) == {"": 4}


def test_a_host_is_chosen_among_those_of_the_place() -> None:
    seen = seen_of(at=2, gpu=1)
    assert [*seen.view("gpu", WORK).workers] == ["gpu"]
    assert [*seen.view("", WORK).workers] == ["at"]
    assert [*seen.view("big", WORK).workers] == []


def test_what_runs_is_counted_at_the_place_of_its_class() -> None:
    seen = seen_of(at=2, gpu=2)
    for key, name in (("a", SEGMENT), ("b", FETCH), ("c", OTHER)):
        seen.running[key] = replace(running(key), task_class=name)
    here = seen.view("gpu", WORK)
    assert (here.busy, here.idle, [*here.running], sorted(here.elsewhere)) == (
        1,
        1,
        ["a"],
        ["b", "c"],
    )
    assert (seen.view("", WORK).busy, len([*here.all_running])) == (2, 3)


def test_owners_share_each_place_by_what_they_have_there() -> None:
    """Whoever has much at work elsewhere has the same right here."""
    found = fleet()
    seen = seen_of(("r", "a", 1.0), ("s", "b", 2.0), at=1, gpu=2)
    for i in range(9):
        seen.running[f"x{i}"] = replace(running(f"x{i}"), task_class=FETCH, sponsor="r")
    filled(found, SEGMENT, 20, "r")
    filled(found, SEGMENT, 20, "s")
    keys = [key for batch in found.choose(seen, 0.0) for key in batch]
    assert [key[4] for key in keys] == ["r", "s"] * 3


@pytest.mark.parametrize("runs", [True, False])
def test_the_limit_of_an_owner_is_of_all_places(runs: bool) -> None:
    found, seen = fleet(), seen_of(at=9, gpu=9)
    restrict(seen, Restriction(kind=Kind.LIMIT_OWNER, subject="a", value=3))
    filled(found, FETCH, 2 - runs)
    if runs:
        seen.running["x"] = replace(running("x"), task_class=FETCH)
    filled(found, SEGMENT, 20)
    counts = sent(found, seen)
    assert counts == {"": 2 - runs, "gpu": 1}
    assert sent(found, seen, 1.0) == {}
    assert sum(found.backlog(seen).values()) == 3


def test_the_limit_of_a_phase_is_of_all_places() -> None:
    found, seen = fleet(), seen_of(at=9, gpu=9)
    restrict(seen, Restriction(kind=Kind.LIMIT_PHASE, subject="reduction", value=4))
    seen.running["x"] = replace(running("x"), task_class=SEGMENT, phase=Phase.REDUCTION)
    filled(found, OTHER, 2)
    filled(found, SEGMENT, 20)
    assert sent(found, seen) == {"": 2, "gpu": 1}


def test_the_connections_to_an_archive_are_of_all_places() -> None:
    work = WorkPlaces.read("big=collection/MYD13A2.6")
    found, seen = fleet(work, places=3), seen_of(at=9, big=9)
    other = FETCH.replace("MOD", "MYD")
    filled(found, FETCH, 2)
    for i in range(9):
        found.add(f"myd{i}", "r", other)
    assert sent(found, seen) == {"": 2, "big": 1}
    host = HostQueue(host="archive.example.org", places=3, waiting=8)
    assert found.waiting_for_places(seen) == [host]


def test_what_is_read_and_swept_comes_to_its_place() -> None:
    found = fleet()
    names = [FETCH, SEGMENT, MOSAIC]
    markers = {
        f"0{i}": ReadyMarker(key=f"0{i}", request="r", task_class=name)
        for i, name in enumerate(names)
    }
    found.reconcile("0", markers)
    assert [found.place(key) for key in markers] == ["", "gpu", "big"]
    found.reconcile("0", {key: one for key, one in markers.items() if key != "01"})
    assert sorted(found.known()) == ["00", "02"]


def test_a_place_of_which_nothing_was_read_is_not_read_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_KEPT", 0.05)
    found = fleet()
    marker = ReadyMarker(key="00", request="r", task_class=FETCH)
    found.reconcile("0", {"00": marker}, {"r": [("00", "g")]})
    assert found.hungry() == ["r"]
    assert [place for place, one in found.places.items() if one.hungry()] == [""]
    new = [ReadyMarker(key=f"1{i}", request="r", task_class=SEGMENT) for i in range(2)]
    found.feed("r", [marker, *new], more=True)
    assert [place for place, one in found.places.items() if one.hungry()] == ["", "gpu"]
    found.feed("r", [marker], more=True)
    assert [place for place, one in found.places.items() if one.hungry()] == [""]
    found.feed("r", [marker, *new], more=False)
    assert (found.hungry(), sorted(found.known())) == ([], ["00", "10", "11"])


def test_a_place_is_named_by_the_words_that_a_class_begins_with() -> None:
    work = WorkPlaces.read("gpu=reduction/segment,reduction/flood long=reduction a=extraction/M.6")
    for name, place in (
        (SEGMENT, "gpu"),
        ("reduction flood 1234, 1-2 Mpx", "gpu"),
        ("reduction segmentation 1234", "long"),
        ("extraction M.6, 1-2 px", "a"),
        ("extraction M.61", ""),
        ("aggregation group, 1-2 Mpx", ""),
        ("", ""),
    ):
        assert work.of(name) == place
    assert work.names == ("a", "gpu", "long")


# --- the manager ---


GROUPS = [collect(f"g{i}") for i in range(4)]


class Placed:
    """A manager whose collections are done at a place."""

    def __init__(self, **more: object) -> None:
        options = ManagerOptions(
            heartbeat=5,
            lease=30,
            work_places=WorkPlaces.read("big=collection"),
            **more,  # type: ignore[arg-type]
        )
        self.bench = Bench({"p": plan_of(*GROUPS)}, options)
        self.sent: list[tuple[str, str]] = []
        self.wanted: dict[str, int] = {}
        self.manager = Manager(
            self.bench.runtime,
            options,
            self.bench.plan_of_request,
            lambda keys: self.sent.extend((key, "") for key in keys),
            1,
            send_to=lambda keys, whom: self.sent.extend((key, whom) for key in keys),
            scale=lambda wanted, place: self.wanted.update({place: wanted}),
        )

    def beat(self, name: str, place: str) -> None:
        clock = self.bench.runtime.clock
        row = WorkerRow(
            name=name, host=name, slots=2, started=1.0, beat_at=clock.now(), place=place,
            sequence=int(clock.now()),
        )  # fmt: skip
        workers.beat(self.bench.runtime.store, clock, row)

    def rounds(self, seconds: float) -> None:
        while self.manager.tick():
            pass
        self.bench.runtime.clock.sleep(seconds)
        while self.manager.tick():
            pass


def test_work_waits_for_its_place_and_says_so() -> None:
    placed = Placed()
    request = placed.bench.submit("p")
    placed.beat("w", "")
    placed.rounds(6.0)
    assert request_state(placed, request) is RequestState.RUNNING
    assert placed.sent == []
    assert placed.wanted == {"": 0, "big": 1}
    other, big = placed.manager.places()
    assert (other.place, other.workers, other.slots, other.why) == ("", 1, 2, "")
    assert big == PlaceQueue(place="big", wanted_slots=1, ready=4, requests=(request,))
    none = "none has been here since the manager began to act"
    assert big.why == f"waits for a worker of place big: {none}"
    placed.beat("b", "big")
    placed.rounds(6.0)
    assert {whom.partition("@") for _, whom in placed.sent} <= {
        ("", "@", "big"), (FIRST, "@", "big"), ("b", "@", "big"),
    }  # fmt: skip
    assert len(placed.sent) == 4
    assert placed.manager.places()[1].why == ""


def request_state(placed: Placed, request: str) -> RequestState:
    return placed.manager.cache.requests[request].row.state


def test_a_place_whose_last_worker_is_gone_says_so() -> None:
    gone = PlaceQueue(place="big", ready=1, heard=5.0)
    assert gone.why == "waits for a worker of place big: the last one is gone"
    assert PlaceQueue(place="", ready=1).why.startswith("waits for a worker without a place")
    assert PlaceQueue(place="big", ready=0).why == ""


def test_workers_leave_by_what_is_wanted_at_their_place() -> None:
    placed = Placed(scale_in=10.0)
    placed.bench.submit("p")
    for _ in range(5):
        for name, place in (("w", ""), ("b", "big"), ("old", "gone")):
            placed.beat(name, place)
        placed.rounds(6.0)
    rows = {row.name: row.draining for row in workers.list_workers(placed.bench.runtime.store)}
    assert rows == {"w": True, "b": False, "old": True}
    assert placed.wanted["gone"] == 0
