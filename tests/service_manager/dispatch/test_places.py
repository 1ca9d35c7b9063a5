"""Places at archive hosts: a task that finds none waits as READY, without a slot, uncharged."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from service_manager.dispatch import fresh_tasks
from service_manager.dispatch.allowance import Allowance, Need
from service_manager.dispatch.dispatch import _NEAR, Dispatch
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.fleet.wanted_slots import WantedSlots
from service_manager.options import ManagerOptions
from tasks.bag import classes
from tasks.bag.model import Phase
from tasks.bag.spec import CollectSpec
from tasks.operators.manager_rows import HostQueue
from tasks.operators.restrictions import Restrictions
from tests.service_manager.test_decisions import cache, family_of, running, sent

HOST = "archive.example.org"
FETCH, OTHER = f"collection MOD13A2.6 from {HOST}, 1-2 MB", "collection MOD13A2.6 from other:21"
WARP = "reprojection MOD13A2.6 0.01"


def fetching(dispatch: Dispatch, number: int, request: str = "r", task_class: str = FETCH) -> None:
    for i in range(number):
        dispatch.add(f"{request}{i:05}", request, task_class)


def runs(seen: ManagerCache, key: str, task_class: str, at: float = 0.0, place: int = 0) -> None:
    seen.running[key] = replace(
        running(key), task_class=task_class, claimed_at=at, place=place, begun=not place
    )


@pytest.mark.parametrize(
    ("url", "source", "host"),
    [
        ("https://archive.example.org/a/b.hdf", "cmr", HOST),
        ("http://me:secret@127.0.0.1:81/a/b.hdf", "pool+http", "127.0.0.1:81"),
        ("ftp://archive.example.org/a/b.hdf", "ftp", HOST),
        ("https://archive.example.org/a/b.hdf", "folder", ""),
        ("abfs://container/b.hdf", "folder", ""),
        ("", "raster", ""),
    ],
)
def test_the_class_of_a_collection_names_the_host(url: str, source: str, host: str) -> None:
    spec = CollectSpec(product="MOD13A2", collection="6", granule="g", production="1", size=3 << 20)
    spec = spec.model_copy(update={"url": url, "source": source})
    assert classes.archive_host(spec.task_class) == host
    assert classes.product(spec.task_class) == "MOD13A2.6"
    assert classes.parse(spec.task_class).family == "collection MOD13A2.6"
    assert classes.parse(spec.task_class).octave == 21


def test_no_more_messages_of_a_host_than_places_and_others_pass() -> None:
    dispatch, seen = Dispatch(window=64, resend=30, places=3), cache(("r", "a", 1.0), slots=20)
    fetching(dispatch, 10)
    dispatch.add("w1", "r", WARP)
    dispatch.add("o1", "r", OTHER)
    assert sent(dispatch, seen, 0.0) == ["r00000", "r00001", "r00002", "o1", "w1"]
    assert dispatch.waiting_for_places(seen) == [HostQueue(host=HOST, places=3, waiting=7)]
    dispatch.remove("r00000")
    runs(seen, "r00000", FETCH)  # taken by a slot: its place is held
    assert sent(dispatch, seen, 1.0) == []
    del seen.running["r00000"]
    assert sent(dispatch, seen, 2.0) == ["r00003"]


def test_a_message_is_sent_again_in_its_own_place() -> None:
    dispatch, seen = Dispatch(window=64, resend=30, places=1), cache(("r", "a", 1.0), slots=4)
    fetching(dispatch, 3)
    assert sent(dispatch, seen, 0.0) == ["r00000"]
    assert sent(dispatch, seen, 31.0) == ["r00000"]
    dispatch.unsend(["r00000"])
    assert sent(dispatch, seen, 32.0) == ["r00000"]


def test_a_batch_holds_one_place_until_the_last_of_it_has_ended() -> None:
    keys = family_of(40)
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.1, places=1)
    seen = cache(("r", "a", 1.0), slots=20)
    for key in keys:
        dispatch.add(key, "r", FETCH)
    (batch,) = dispatch.choose(seen, 0.0)
    assert len(batch) > 1  # by places, not by slots
    for place, key in enumerate(batch):
        dispatch.remove(key)
        runs(seen, key, FETCH, at=5.0, place=place)
    for key in batch[:-1]:
        del seen.running[key]
        assert dispatch.choose(seen, 1.0) == []
    del seen.running[batch[-1]]
    assert len(dispatch.choose(seen, 2.0)) == 1


def test_a_batch_is_of_one_host() -> None:
    keys = family_of(20)
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.01, places=4)
    for number, key in enumerate(keys):
        dispatch.add(key, "r", OTHER if number % 2 else FETCH)
    for batch in dispatch.choose(cache(("r", "a", 1.0), slots=1), 0.0):
        assert len({keys.index(key) % 2 for key in batch}) == 1


def test_what_waits_for_places_takes_no_room_from_what_needs_none() -> None:
    dispatch, seen = Dispatch(window=1, resend=30, places=1), cache(("r", "a", 1.0), slots=1)
    fetching(dispatch, 100)
    dispatch.add("w1", "r", WARP)
    assert "w1" in dispatch.known()
    assert sent(dispatch, seen, 0.0) == ["r00000"]
    dispatch.remove("r00000")
    assert sent(dispatch, seen, 1.0) == ["r00001"] or "w1" in dispatch.sent("r")


@pytest.mark.parametrize("limited", [False, True], ids=["places", "limit"])
def test_what_waits_for_a_limit_waits_in_every_request(limited: bool) -> None:
    """Who fills the last place, or the limit of a phase, has all requests looked at again."""
    dispatch = Dispatch(window=64, resend=30, places=0 if limited else 3)
    seen = cache(("l", "a", 1.0), ("s", "b", 2.0), slots=20)
    limits = {Phase.COLLECTION: 3} if limited else {Phase.REPROJECTION: 100}
    seen.restrictions = Restrictions(phase_limits=limits)
    for request in ("l", "s"):
        fetching(dispatch, 10, request)
        dispatch.add(f"w{request}", request, WARP)
    chosen = sent(dispatch, seen, 0.0)
    assert sorted(key for key in chosen if key[0] != "w") == ["l00000", "l00001", "s00000"]
    assert {"wl", "ws"} <= set(chosen)


def test_what_comes_back_takes_no_room_from_what_needs_no_place() -> None:
    dispatch, seen = Dispatch(window=1, resend=30, places=40), cache(("r", "a", 1.0), slots=1)
    fetching(dispatch, dispatch.most)
    back = sent(dispatch, seen, 0.0)
    assert back
    dispatch.unsend(back)
    for number in range(dispatch.most + 1):
        dispatch.add(f"w{number:03}", "r", WARP)
    known = dispatch.known()
    assert sum(key.startswith("w") for key in known) == dispatch.most


def test_places_are_shared_among_requests_in_turn() -> None:
    dispatch = Dispatch(window=64, resend=30, places=4)
    seen = cache(("l", "a", 1.0), ("s", "b", 2.0), slots=20)
    fetching(dispatch, 50, "l")
    fetching(dispatch, 2, "s")
    assert sorted(sent(dispatch, seen, 0.0)) == ["l00000", "l00001", "s00000", "s00001"]
    assert not dispatch.overtaken(seen)


class Looked(list[tuple[int, int, str]]):
    """Tasks in order that count how many of them are looked at one by one."""

    number = 0

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        for one in super().__iter__():
            Looked.number += 1
            yield one


def test_however_many_wait_for_a_full_host_none_of_them_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of 12,000, and a batch of its neighbours, is looked at for each place that comes free."""

    def begin(self: fresh_tasks._Ranked, *given: Need) -> None:
        real(self, *given)
        self.order = Looked()

    real = fresh_tasks._Ranked.__init__
    monkeypatch.setattr(fresh_tasks._Ranked, "__init__", begin)
    dispatch, seen = Dispatch(window=64, resend=1000, places=8), cache(("r", "a", 1.0), slots=400)
    dispatch.choose(seen, 0.0)
    fetching(dispatch, 12_000)
    first = sent(dispatch, seen, 1.0)
    assert len(first) == 8

    def looked(*calls: Callable[[ManagerCache], object]) -> int:
        Looked.number = 0
        for call in calls:
            call(seen)
        return Looked.number

    every = (dispatch.overtaken, dispatch.waiting_for_places, dispatch.backlog)
    assert looked(lambda seen: dispatch.choose(seen, 2.0), *every) == 0
    dispatch.add("w1", "r", WARP)
    assert looked(lambda seen: dispatch.choose(seen, 3.0), *every) < 10
    assert "w1" in dispatch.sent("r")
    for key in first[:2]:
        dispatch.remove(key)
    assert looked(lambda seen: dispatch.choose(seen, 4.0), *every) < 2 * _NEAR
    assert len(dispatch.sent("r")) == 9


def test_a_task_whose_class_is_known_at_last_waits_for_what_that_needs() -> None:
    dispatch, seen = Dispatch(window=64, resend=30, places=1), cache(("r", "a", 1.0), slots=20)
    fetching(dispatch, 3, task_class="")
    fetching(dispatch, 3)
    assert sent(dispatch, seen, 0.0) == ["r00000"]


def test_wanted_slots_know_the_limit() -> None:
    dispatch, seen = Dispatch(window=64, resend=30, places=8), cache(("r", "a", 1.0), slots=2)
    fetching(dispatch, 1000)
    runs(seen, "x", FETCH)
    assert dispatch.backlog(seen) == {"r": 7}
    wanted = WantedSlots(ManagerOptions(scale_seconds=1.0))
    assert wanted.count(seen, dispatch.backlog(seen), 0.0) == 8
    for i in range(5):
        dispatch.add(f"w{i}", "r", WARP)
    assert dispatch.backlog(seen) == {"r": 12}


@pytest.mark.parametrize("seconds", [1.0, 12.0])
def test_400_slots_over_8_places_keep_them_busy_and_none_waits(seconds: float) -> None:
    """Messages reach a slot after 20 ms; the manager looks at each end, and learns of what runs."""
    granules, places, slots = 160, 8, 400
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: seconds, places=places)
    seen = cache(("r", "a", 1.0), slots=slots)
    for key in family_of(granules):
        dispatch.add(key, "r", FETCH)
    now, held, most, used, ended = 0.0, 0, 0, 0.0, 0
    numbers = itertools.count()
    events: list[tuple[float, int, str, tuple[str, ...]]] = []

    def send() -> None:
        for batch in dispatch.choose(seen, now):
            heapq.heappush(events, (now + 0.02, next(numbers), "taken", batch))

    send()
    while events:
        at, number, what, batch = heapq.heappop(events)
        used, now = used + held * (at - now), at
        if what == "taken":
            held += 1
            most = max(most, held)
            for place, key in enumerate(batch):
                runs(seen, key, FETCH, at=now + number / 1e6, place=place)
                dispatch.remove(key)
                end = now + seconds * (place + 1)
                last = "last" if key == batch[-1] else "ended"
                heapq.heappush(events, (end, next(numbers), last, (key,)))
        else:
            ended += 1
            held -= what == "last"
            del seen.running[batch[0]]
            dispatch.freed(now)
        send()
    assert ended == granules
    assert most == places  # none waits in a slot, so none is lost
    assert used / (places * now) >= 0.95


def test_what_waits_for_a_place_is_looked_through_once_not_for_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of collections wait while reprojections of the same request go on."""
    looks = itertools.count()
    passes = Allowance.passes

    def counted(self: Allowance, need: Need) -> bool:
        next(looks)
        return passes(self, need)

    monkeypatch.setattr(Allowance, "passes", counted)
    dispatch, seen = Dispatch(window=64, resend=30, places=2), cache(("r", "a", 1.0), slots=20)
    fetching(dispatch, 1_000)
    for i in range(30):
        dispatch.add(f"w{i:05}", "r", WARP)
    assert len(sent(dispatch, seen, 0.0)) > 20
    assert next(looks) < 3_000


def test_reprojections_of_earlier_results_leave_the_places_of_a_host_busy() -> None:
    """Places are fewer than slots: who waits for reprojections would have them idle."""
    dispatch, seen = Dispatch(window=64, resend=30, places=2), cache(("r", "a", 1.0), slots=6)
    for i in range(50):
        dispatch.add(f"w{i:05}", "r", WARP, rank=1)
    for i in range(9):
        dispatch.add(f"f{i:05}", "r", FETCH, rank=2 + i)
    assert sent(dispatch, seen, 0.0)[:3] == ["f00000", "f00001", "w00000"]


@pytest.mark.parametrize(("slots", "fetches"), [(4, 2), (3, 0)])
def test_half_of_the_slots_are_left_to_earlier_results(slots: int, fetches: int) -> None:
    dispatch, seen = Dispatch(window=64, resend=30, places=3), cache(("r", "a", 1.0), slots=slots)
    for i in range(50):
        dispatch.add(f"w{i:05}", "r", WARP, rank=1)
    for i in range(9):
        dispatch.add(f"f{i:05}", "r", FETCH, rank=2 + i)
    assert sum(key.startswith("f") for key in sent(dispatch, seen, 0.0)) == fetches
