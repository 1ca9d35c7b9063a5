"""The manager's pure decisions: dispatch, monitor, how a request ends."""

from dataclasses import replace
from random import Random

import pytest

from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import Live, ManagerCache, WatchedAttempt
from service_manager.fleet.monitor import GiveUp, Kill, Monitor, Verdicts
from service_manager.options import ManagerOptions
from service_manager.requests.ending import judge, lacking
from tasks.bag.categories import Category
from tasks.bag.classes import sized
from tasks.bag.expectation import Times
from tasks.bag.history import ClassStatistics
from tasks.bag.model import ArtifactFile, MissingPolicy, Phase, RequestState, TaskOutcome
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import mates
from tasks.bag.task_rows import Interest, ReadyMarker
from tasks.bag.workers import Ask, RunningAttempt, WorkerRow
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, RequestRow
from tasks.storage.queues import FIRST

OPTIONS = ManagerOptions(heartbeat=5, lease=30)


def cache(*requests: tuple[str, str, float], slots: int = 2) -> ManagerCache:
    """Requests as (id, owner, submitted)."""
    found = ManagerCache(slots=slots)
    for name, owner, submitted in requests:
        row = RequestRow(id=name, owner=owner, state=RequestState.RUNNING, submitted=submitted)
        found.requests[name] = Live(row=row, policy=MissingPolicy.SKIP)
    return found


def running(
    key: str = "k", *, retries: int = 0, since: float = 0.0, worker: str = "w"
) -> WatchedAttempt:
    return WatchedAttempt(
        key=key,
        claim="claim-" + key,
        worker=worker,
        attempt=1,
        retries=retries,
        phase=Phase.REPROJECTION,
        task_class="class",
        sponsor="r",
        claimed_at=0.0,
        since=since,
    )


def worker(sequence: int, *attempts: RunningAttempt, name: str = "w") -> WorkerRow:
    return WorkerRow(
        name=name,
        host="h",
        slots=2,
        started=1.0,
        beat_at=0.0,
        sequence=sequence,
        attempts=attempts,
    )


def listed(found: WatchedAttempt, ago: float = 0.0) -> RunningAttempt:
    return RunningAttempt(
        key=found.key,
        claim=found.claim,
        started_ago=ago,
        phase=found.phase,
        task_class=found.task_class,
    )


# --- dispatch ---


def sent(dispatch: Dispatch, seen: ManagerCache, now: float) -> list[str]:
    """The keys of all batches that are sent now."""
    return [key for batch in dispatch.choose(seen, now) for key in batch]


def markers(*keys: str) -> dict[str, ReadyMarker]:
    """What a sweep finds."""
    return {key: ReadyMarker(key=key, request="r") for key in keys}


def test_owners_share_and_a_small_request_is_not_hidden() -> None:
    dispatch = Dispatch(window=64, resend=30)
    seen = cache(("large", "a", 1.0), ("small", "b", 2.0), slots=4)
    for i in range(1000):
        dispatch.add(f"{i:04d}", "large")
    for i in range(3):
        dispatch.add(f"s{i}", "small")
    chosen = sent(dispatch, seen, 0.0)
    assert len(chosen) == 10
    assert sum(key.startswith("s") for key in chosen) == 3
    assert chosen[1].startswith("s")


def test_of_one_owner_the_request_with_least_in_flight_comes_first() -> None:
    dispatch = Dispatch(window=64, resend=30)
    seen = cache(("large", "a", 1.0), ("small", "a", 2.0), slots=2)
    for i in range(100):
        dispatch.add(f"{i:04d}", "large")
    sent(dispatch, seen, 0.0)
    dispatch.add("s0", "small")
    for key in ("0000", "0001"):
        dispatch.remove(key)
        dispatch.freed(1.0)
    assert "s0" in sent(dispatch, seen, 1.0)


def test_a_window_bounds_what_a_request_has_on_the_queue() -> None:
    dispatch = Dispatch(window=3, resend=30)
    seen = cache(("r", "a", 1.0), slots=2)
    for i in range(20):
        dispatch.add(f"{i:04d}", "r")
    assert len(sent(dispatch, seen, 0.0)) == 3
    assert sent(dispatch, seen, 1.0) == []
    dispatch.remove("0000")
    assert sent(dispatch, seen, 1.0) == ["0003"]


def test_a_large_fleet_widens_the_window() -> None:
    dispatch = Dispatch(window=3, resend=30)
    for i in range(20):
        dispatch.add(f"{i:04d}", "r")
    assert len(sent(dispatch, cache(("r", "a", 1.0), slots=10), 0.0)) == 10


def test_of_a_large_request_a_part_is_remembered() -> None:
    dispatch = Dispatch(window=3, resend=30)
    seen = cache(("r", "a", 1.0), slots=2)
    for i in range(1000):
        dispatch.add(f"{i:04d}", "r")
    assert len(dispatch) == dispatch.most == 96
    taken: list[str] = []
    for _ in range(150):
        if dispatch.hungry():
            break
        for key in sent(dispatch, seen, len(taken) / 10):
            dispatch.remove(key)
            taken.append(key)
    dispatch.feed("r", markers(*(f"{i:04d}" for i in range(96, 102))).values(), more=False)
    assert dispatch.hungry() == []
    for _ in range(150):
        for key in sent(dispatch, seen, len(taken) / 10):
            dispatch.remove(key)
            taken.append(key)
    assert taken == [f"{i:04d}" for i in range(102)]
    assert len(dispatch) == 0


def test_what_a_sweep_did_not_read_is_not_gone() -> None:
    dispatch = Dispatch(window=9, resend=30)
    seen = cache(("r", "a", 1.0), slots=3)
    for key in ("a1", "a5", "a9"):
        dispatch.add(key, "r")
    dispatch.reconcile("a", markers("a2", "a5"), {"r": [("a5", "g")]})
    assert dispatch.hungry() == ["r"]
    assert sorted(sent(dispatch, seen, 0.0)) == ["a2", "a5", "a9"]


def test_a_message_is_sent_again_after_silence_and_ever_less_often() -> None:
    dispatch = Dispatch(window=3, resend=30)
    seen = cache(("r", "a", 1.0))
    dispatch.add("k", "r")
    times = [t for t in range(0, 1500) if sent(dispatch, seen, float(t))]
    # The pause grows up to eight times the first one, and stays so.
    assert times == [0, 30, 90, 210, 450, 690, 930, 1170, 1410]


def family_of(number: int, day: int = 1, product: str = "MOD09A1") -> list[str]:
    """Keys of tasks that read the same granules."""
    return sorted(
        CollectSpec(
            product=product, collection="6", granule=f"x.A2012{day:03d}.{i}", production="1"
        ).key
        for i in range(number)
    )


def batches(
    *keys: str, usual: float | None = 0.02, slots: int = 1, alone: str = ""
) -> list[tuple[str, ...]]:
    """What is sent at once of ready tasks."""
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: usual)
    for key in keys:
        dispatch.add(key, "r", "class", alone=key == alone)
    return dispatch.choose(cache(("r", "a", 1.0), slots=slots), 0.0)


def test_a_batch_is_some_seconds_of_work_and_at_most_20_tasks() -> None:
    keys = family_of(200)
    assert [len(batch) for batch in batches(*keys, usual=0.01)][:2] == [20, 20]
    assert [len(batch) for batch in batches(*keys, usual=0.5)][:2] == [4, 4]
    assert {len(batch) for batch in batches(*keys, usual=5.0)} == {1}
    assert {len(batch) for batch in batches(*keys, usual=None)} == {1}


def test_a_batch_is_of_one_family_first_and_side_by_side_in_its_shard() -> None:
    first, second = family_of(30), family_of(30, day=2)
    other = family_of(30, product="MOD13A2")
    found = batches(*first, *second, *other)
    assert found[0] == tuple(first[:20])
    assert all(len({mates(key) for key in batch}) == 1 for batch in found)


def test_a_batch_leaves_work_for_idle_slots() -> None:
    keys = family_of(40)
    assert len(batches(*keys, slots=4)[0]) == 5
    assert {len(batch) for batch in batches(*keys[:7], slots=4)} == {1}


def test_what_failed_before_goes_alone() -> None:
    keys = family_of(40)
    found = batches(*keys, alone=keys[0])
    assert found[0] == (keys[0],)
    assert all(keys[0] not in batch for batch in found[1:])
    assert len(batches(*keys, alone=keys[1])[0]) == 20


def test_a_batch_that_no_worker_took_is_sent_again_as_one() -> None:
    keys = family_of(40)
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.02)
    seen = cache(("r", "a", 1.0), slots=1)
    for key in reversed(keys):
        dispatch.add(key, "r", "class")
    assert dispatch.choose(seen, 0.0) == [tuple(keys[20:]), tuple(keys[:20])]
    assert dispatch.choose(seen, 1.0) == []
    for key in keys[30:]:
        dispatch.remove(key)
    again = dispatch.choose(seen, 31.0)
    assert sorted(key for batch in again for key in batch) == keys[:30]
    assert len(again) == 2


def test_a_paused_request_is_not_sent() -> None:
    dispatch = Dispatch(window=3, resend=30)
    seen = cache(("r", "a", 1.0))
    live = seen.requests["r"]
    live.row = RequestRow(id="r", owner="a", state=RequestState.RUNNING, submitted=1.0, paused=True)
    dispatch.add("k", "r")
    assert sent(dispatch, seen, 0.0) == []


def test_what_the_broker_did_not_take_is_sent_next_time() -> None:
    dispatch = Dispatch(window=3, resend=30)
    seen = cache(("r", "a", 1.0))
    dispatch.add("k", "r")
    assert sent(dispatch, seen, 0.0) == ["k"]
    dispatch.unsend(["k"])
    assert sent(dispatch, seen, 0.5) == ["k"]


def test_what_is_taken_back_is_sent_first_and_in_its_order() -> None:
    dispatch = Dispatch(window=9, resend=30)
    seen = cache(("r", "a", 1.0), slots=1)
    for i in range(9):
        dispatch.add(f"{i:04d}", "r")
    first = sent(dispatch, seen, 0.0)
    assert first == ["0000", "0001", "0002", "0003"]
    dispatch.unsend(first[1:])
    assert sent(dispatch, seen, 1.0) == first[1:]


def test_who_has_nothing_on_the_queue_is_overtaken_by_who_has_several_messages() -> None:
    dispatch = Dispatch(window=64, resend=30)
    seen = cache(("large", "a", 1.0), ("small", "a", 2.0), ("paused", "b", 0.0), slots=2)
    for i in range(50):
        dispatch.add(f"{i:04d}", "large")
    first = sent(dispatch, seen, 0.0)
    assert not dispatch.overtaken(seen)
    seen.requests["paused"].row = replace(seen.requests["paused"].row, paused=True)
    dispatch.add("p", "paused")
    assert not dispatch.overtaken(seen)
    dispatch.add("s", "small")
    assert dispatch.overtaken(seen)
    dispatch.unsend(first)
    assert sent(dispatch, seen, 1.0)[1] == "s"
    assert not dispatch.overtaken(seen)


def test_many_small_requests_do_not_have_the_queue_written_again_and_again() -> None:
    dispatch = Dispatch(window=64, resend=30)
    names = [f"r{i}" for i in range(50)]
    seen = cache(*((name, "a", float(i)) for i, name in enumerate(names)), slots=4)
    for name in names:
        for i in range(5):
            dispatch.add(f"{name}-{i}", name)
    waiting = sent(dispatch, seen, 0.0)
    assert len(waiting) == 10
    assert not dispatch.overtaken(seen)


@pytest.mark.parametrize("hosts", [1, 4])
def test_ten_small_tasks_start_when_a_slot_is_free_behind_ten_thousand_long_ones(
    hosts: int,
) -> None:
    """20 workers, tasks of 300 s: a slot is free each 15 s. Hosts hold inputs of the long ones."""
    seen = cache(("large", "a", 1.0), ("small", "b", 2.0), slots=20)
    seen.workers = {str(slot): (f"host{slot % hosts}", 1) for slot in range(20)}
    locations = InputLocations(seen)
    dispatch = Dispatch(window=64, resend=30, locations=locations)
    for i in range(10_000):
        dispatch.add(f"{i:05d}", "large")
        locations.made(f"{i:05d}", f"input {i}", str(i % 20), 1)
    queue: list[tuple[str, str]] = []
    busy = {slot: 15.0 * slot for slot in range(20)}  # until when
    started: dict[str, float] = {}
    now, submitted = 0.0, 1000.0
    while len(started) < 10:
        assert now < submitted + 300, started
        if now == submitted:
            for i in range(10):
                dispatch.add(f"s{i}", "small")
        for slot in [slot for slot, end in busy.items() if end <= now]:
            for key in [key for key, one in seen.running.items() if one.worker == str(slot)]:
                del seen.running[key]
                dispatch.remove(key)
                dispatch.freed(now)
            own = [FIRST, seen.workers[str(slot)][0], ""]
            mine = sorted((one for one in queue if one[1] in own), key=lambda o: own.index(o[1]))
            if not mine:
                continue
            queue.remove(mine[0])
            key = mine[0][0]
            if key not in dispatch.known() or key in seen.running:
                continue
            small = key.startswith("s")
            if small:
                started[key] = now - submitted
            busy[slot] = now + (1.0 if small else 300.0)
            seen.running[key] = replace(
                running(key, worker=str(slot)), sponsor="small" if small else "large"
            )
        if dispatch.overtaken(seen):
            dispatch.unsend([key for key, _ in queue])
            queue.clear()
        queue += [(key, dispatch.host(key)) for key in sent(dispatch, seen, now)]
        now += 0.5
    assert min(started.values()) <= 15.5
    assert max(started.values()) <= 30


def test_ready_tasks_are_counted_by_phase_with_the_time_since_the_first_was_seen() -> None:
    dispatch = Dispatch(window=64, resend=30)
    dispatch.add("0a", "r", "collection MOD.61")
    assert dispatch.queues(10.0) == {Phase.COLLECTION: (1, 0.0)}
    dispatch.add("0b", "r", "collection MOD.61")
    dispatch.add("0c", "r", "reduction own")
    dispatch.add("0d", "r")  # of no class that is known
    assert dispatch.queues(13.0) == {Phase.COLLECTION: (2, 3.0), Phase.REDUCTION: (1, 0.0)}
    dispatch.remove("0a")
    assert dispatch.queues(15.0) == {Phase.COLLECTION: (1, 2.0), Phase.REDUCTION: (1, 2.0)}
    dispatch.remove("0c")
    dispatch.queues(16.0)
    dispatch.add("0c", "r", "reduction own")
    assert dispatch.queues(17.0)[Phase.REDUCTION] == (1, 0.0)


def test_the_backlog_has_what_a_slot_may_take_on_the_queue_or_not() -> None:
    dispatch = Dispatch(window=2, resend=30)
    seen = cache(("r", "a", 1.0), ("paused", "a", 2.0), slots=0)
    for i in range(4):
        dispatch.add(f"0{i}", "r", "collection MOD.61")
        dispatch.add(f"1{i}", "paused", "collection MOD.61")
        dispatch.add(f"2{i}", "unread", "collection MOD.61")
    live = seen.requests["paused"]
    live.row = replace(live.row, paused=True)
    assert dispatch.backlog(seen) == {"r": 4, "unread": 4}
    assert sent(dispatch, seen, 0.0)
    assert dispatch.backlog(seen) == {"r": 4, "unread": 4}


def test_of_a_request_with_more_than_is_remembered_all_that_has_not_ended_counts() -> None:
    dispatch = Dispatch(window=1, resend=30)
    seen = cache(("r", "a", 1.0), slots=0)
    live = seen.requests["r"]
    for i in range(100):
        key = f"{i:064x}"
        live.note(Interest(request="r", key=key, phase=Phase.COLLECTION))
        dispatch.add(key, "r", "collection MOD.61")
    assert len(dispatch) == dispatch.most < 100
    assert dispatch.backlog(seen) == {"r": 100}
    dispatch.feed("r", (), more=False)
    assert dispatch.backlog(seen) == {"r": dispatch.most}
    dispatch.feed("no such request", (), more=True)
    assert dispatch.hungry() == []


def test_a_request_is_forgotten_when_nothing_of_it_is_ready_any_more() -> None:
    dispatch = Dispatch(window=64, resend=30)
    seen = cache(("r", "a", 1.0))
    dispatch.add("0a", "r")
    dispatch.add("0b", "r")
    assert sent(dispatch, seen, 0.0) == ["0a", "0b"]
    assert dispatch.sent("r") == ["0a", "0b"]
    assert dispatch.sent("another") == []
    for key in ("0a", "0b", "0b"):
        dispatch.remove(key)
    assert (dispatch.sent("r"), dispatch.known(), dispatch.backlog(seen)) == ([], [], {})


def test_a_task_that_has_another_sponsor_is_sent_on_its_account_anew() -> None:
    dispatch = Dispatch(window=64, resend=30)
    seen = cache(("r", "a", 1.0), ("other", "b", 2.0))
    dispatch.add("0a", "r", "collection MOD.61")
    assert sent(dispatch, seen, 0.0) == ["0a"]
    dispatch.add("0a", "r", "collection MOD.61", alone=True)  # it keeps its place
    assert dispatch.sent("r") == ["0a"]
    dispatch.add("0a", "other", "collection MOD.61")
    assert (dispatch.sent("r"), dispatch.sent("other")) == ([], [])
    assert sent(dispatch, seen, 1.0) == ["0a"]
    assert dispatch.sent("other") == ["0a"]


def test_of_requests_with_as_much_in_flight_the_oldest_comes_first() -> None:
    dispatch = Dispatch(window=64, resend=30)
    seen = cache(("a", "same", 3.0), ("b", "same", 1.0), ("c", "same", 2.0), slots=3)
    for name in "abc":
        for i in range(2):
            dispatch.add(f"0{name}{i}", name)
    chosen = sent(dispatch, seen, 0.0)
    assert [key[1] for key in chosen[:3]] == ["b", "c", "a"]


def test_a_sweep_leaves_what_it_did_not_read() -> None:
    dispatch = Dispatch(window=64, resend=30)
    for key in ("0a", "0b", "0c", "0d", "0f", "1a"):
        dispatch.add(key, "r")
    dispatch.add("0d", "small")
    dispatch.reconcile(
        "0",
        {"0e": ReadyMarker(key="0e", request="r", task_class="c", alone=True)},
        {"r": [("0b", "0c")]},
    )
    assert dispatch.known() == ["0c", "1a", "0e"]
    assert dispatch._ready["r"].more
    task = dispatch._tasks["0e"]
    assert (task.sponsor, task.task_class, task.alone) == ("r", "c", True)


def test_a_sweep_puts_right_what_is_ready() -> None:
    dispatch = Dispatch(window=9, resend=30)
    seen = cache(("r", "a", 1.0))
    for key in ("a1", "a2", "b1"):
        dispatch.add(key, "r")
    dispatch.reconcile("a", markers("a2", "a3"))
    assert sorted(sent(dispatch, seen, 0.0)) == ["a2", "a3", "b1"]


def test_quick_tasks_fill_the_queue_ahead_of_the_slots() -> None:
    dispatch = Dispatch(window=1000, resend=30)
    seen = cache(("r", "a", 1.0), slots=2)
    for i in range(2000):
        dispatch.add(f"{i:04d}", "r")
    most = 0
    for second in range(20):
        chosen = sent(dispatch, seen, second * 0.5)
        most = max(most, len(chosen))
        for key in chosen:  # the workers end all of it at once
            dispatch.remove(key)
            dispatch.freed(second * 0.5)
    assert most > 100


def test_a_fleet_heard_of_at_once_does_not_flood_the_queue() -> None:
    dispatch = Dispatch(window=8000, resend=30)
    seen = cache(("r", "a", 1.0), slots=1000)
    for i in range(8000):
        dispatch.add(f"{i:04d}", "r")
    first = sent(dispatch, seen, 0.0)
    assert 1000 <= len(first) < 1100
    for key in first:  # the beats tell that all of it runs
        dispatch.remove(key)
        seen.running[key] = running(key)
    assert len(sent(dispatch, seen, 15.0)) < 100


def test_what_is_on_the_queue_is_looked_at_once_however_many_are_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatch = Dispatch(window=8000, resend=30)
    seen = cache(("r", "a", 1.0), slots=2000)
    for i in range(8000):
        dispatch.add(f"{i:04d}", "r")
    looked = 0
    due = Dispatch._due

    def counted(self: Dispatch, sent: object, now: float) -> bool:
        nonlocal looked
        looked += 1
        return due(self, sent, now)  # type: ignore[arg-type]

    monkeypatch.setattr(Dispatch, "_due", counted)
    first = len(sent(dispatch, seen, 0.0))
    assert first >= 2000
    seen.slots = 3000
    assert len(sent(dispatch, seen, 1.0)) == 1000
    assert looked <= 2 * first


# --- monitor ---


@pytest.mark.parametrize(
    ("count", "mean", "retries", "expected"),
    [
        (0, 0.0, 0, 3600),
        (4, 100.0, 0, 3600),
        (5, 100.0, 0, 400),
        (5, 1.0, 0, 60),
        (5, 100.0, 1, 800),
        (5, 100.0, 2, 1600),
        (5, 100.0, 9, 3600),
        (5, 5000.0, 0, 3600),
    ],
)
def test_the_bound_is_four_times_the_mean(
    count: int, mean: float, retries: int, expected: float
) -> None:
    statistics = ClassStatistics(task_class="class", count=count, mean=mean)
    times = Times({"class": statistics}, samples=5)
    assert OPTIONS.time_limits.limit(times, "class", retries) == expected


def test_an_attempt_beyond_its_bound_is_killed_once_then_given_up() -> None:
    seen = ManagerCache()
    one = seen.running["k"] = running()
    monitor = Monitor(OPTIONS, seen)
    statistics = {"class": ClassStatistics(task_class="class", count=5, mean=20.0)}
    for second in range(0, 80, 5):
        monitor.hear([worker(second, listed(one, float(second)))], float(second))
        assert monitor.look(statistics, float(second)) == Verdicts()
    monitor.hear([worker(81, listed(one, 81.0))], 81.0)
    found = monitor.look(statistics, 81.0)
    assert found == Verdicts(kills=[Kill(running=one, limit=80.0)])
    one.ordered = 81.0
    for second in range(85, 120, 5):
        monitor.hear([worker(second, listed(one, float(second)))], float(second))
        assert monitor.look(statistics, float(second)) == Verdicts()
    monitor.hear([worker(123, listed(one, 123.0))], 123.0)
    assert monitor.look(statistics, 123.0).given_up == [
        GiveUp(
            running=one,
            category=Category.EXECUTION_TIMEOUT,
            message="ran longer than 80 s, and its worker did not end it",
        )
    ]


def test_a_yearly_group_outlives_the_bound_of_daily_ones() -> None:
    """Ten times 4x the daily mean, and it runs on; a daily one is killed beside it."""
    day, year = sized("aggregation group", 2**20), sized("aggregation group", 365 * 2**20)
    statistics = {day: ClassStatistics(task_class=day, count=100, mean=20.0)}
    seen = ManagerCache()
    for one, name in ((running("day"), day), (running("year"), year)):
        one.task_class = name
        seen.running[one.key] = one
    monitor = Monitor(OPTIONS, seen)
    monitor.hear([worker(1, *(listed(one, 800.0) for one in seen.running.values()))], 800.0)
    found = monitor.look(statistics, 800.0)
    assert [kill.running.key for kill in found.kills] == ["day"]


def test_a_silent_worker_is_lost_after_its_lease_and_a_beating_one_is_not() -> None:
    seen = ManagerCache()
    one = seen.running["k"] = running()
    monitor = Monitor(OPTIONS, seen)
    monitor.hear([worker(1, listed(one))], 0.0)
    for second in (10.0, 30.0, 40.0):
        monitor.hear([worker(1, listed(one))], second)
        assert monitor.look({}, second) == Verdicts()
    monitor.hear([worker(1, listed(one))], 41.0)
    assert monitor.look({}, 41.0).given_up == [
        GiveUp(running=one, category=Category.WORKER_LOST, message="worker w was silent for 40 s")
    ]
    assert seen.slots == 0


@pytest.mark.parametrize(("retries", "killed"), [(0, 1), (1, 0)])
def test_an_attempt_may_take_longer_with_each_try(retries: int, killed: int) -> None:
    seen = ManagerCache()
    one = seen.running["k"] = running(retries=retries)
    monitor = Monitor(OPTIONS, seen)
    statistics = {"class": ClassStatistics(task_class="class", count=5, mean=100.0)}
    monitor.hear([worker(1, listed(one, 500.0))], 500.0)
    assert len(monitor.look(statistics, 500.0).kills) == killed


def test_a_worker_that_was_not_heard_of_yet_is_not_lost_at_once() -> None:
    """A manager that takes over reads what runs before it reads the workers' beats."""
    seen = ManagerCache()
    seen.running["k"] = running()
    monitor = Monitor(OPTIONS, seen)
    assert [len(monitor.look({}, second).given_up) for second in (0.0, 40.0, 41.0)] == [0, 0, 1]


def test_a_claim_its_worker_never_lists_is_lost() -> None:
    seen = ManagerCache()
    one = seen.running["k"] = running()
    monitor = Monitor(OPTIONS, seen)
    verdicts = []
    for beat in range(1, 5):
        monitor.hear([worker(beat)], beat * 5.0)
        verdicts.append(monitor.look({}, beat * 5.0).given_up)
    lost = GiveUp(
        running=one,
        category=Category.WORKER_LOST,
        message="worker w does not run it (any more)",
    )
    assert verdicts == [[], [], [lost], [lost]]


def test_a_claim_that_was_ordered_to_end_is_lost_when_nobody_ends_it() -> None:
    """Its worker died before it listed the claim, and before it read the order."""
    seen = ManagerCache()
    one = seen.running["k"] = running()
    monitor = Monitor(OPTIONS, seen)
    verdicts = []
    for beat in range(1, 14):
        monitor.hear([worker(beat)], beat * 5.0)
        one.ordered = 10.0
        verdicts.append(len(monitor.look({}, beat * 5.0).given_up))
    assert verdicts == [0] * 10 + [1] * 3


def test_an_attempt_is_as_old_as_its_worker_says() -> None:
    """A manager that takes over does not begin to count again."""
    seen = ManagerCache()
    one = seen.running["k"] = running(since=1000.0)
    monitor = Monitor(OPTIONS, seen)
    monitor.hear([worker(1, listed(one, ago=900.0))], 1000.0)
    assert one.since == 100.0


@pytest.mark.parametrize(
    ("beats", "since"),
    [
        ([(100.0, 0.0)], 100.0),
        ([(100.0, -3.0)], 100.0),  # its worker's clock was set back
        ([(100.0, 10.0)], 90.0),  # it waited in a batch after it was claimed
        ([(100.0, 10.0), (110.0, 15.0)], 90.0),
        ([(100.0, 10.0), (110.0, 25.0)], 85.0),
    ],
)
def test_an_attempt_began_when_the_beat_says_that_puts_it_earliest(
    beats: list[tuple[float, float]], since: float
) -> None:
    seen = ManagerCache()
    one = seen.running["k"] = running(since=50.0)
    monitor = Monitor(OPTIONS, seen)
    for number, (now, ago) in enumerate(beats):
        monitor.hear([worker(number, listed(one, ago))], now)
    assert one.since == since


@pytest.mark.parametrize("leaves", [{"draining": True}, {"asked": Ask.DRAIN}])
def test_a_worker_that_leaves_or_that_an_operator_drains_is_no_place_for_tasks(
    leaves: dict[str, object],
) -> None:
    seen = ManagerCache()
    monitor = Monitor(OPTIONS, seen)
    leaving = replace(worker(1, name="leaving"), **leaves)  # type: ignore[arg-type]
    monitor.hear([worker(1), leaving], 0.0)
    assert seen.workers == {"w": ("h", 2)}
    assert seen.slots == 2


def test_what_a_class_usually_takes_is_guessed_until_enough_have_succeeded() -> None:
    monitor = Monitor(OPTIONS, ManagerCache())
    few = {"class": ClassStatistics(task_class="class", count=4, mean=20.0)}
    enough = {"class": ClassStatistics(task_class="class", count=5, mean=20.0)}
    assert monitor.expected("class", {}) is None
    assert monitor.expected("class", few) == 20.0
    assert monitor.expected("class", enough) == 20.0
    assert monitor.expected("another", enough) is None


def test_the_time_limit_of_a_task_in_a_batch_runs_from_its_begin() -> None:
    seen = ManagerCache()
    one = seen.running["k"] = running()
    one.place = 1
    monitor = Monitor(OPTIONS, seen)
    statistics = {"class": ClassStatistics(task_class="class", count=5, mean=20.0)}
    for second in range(0, 200, 5):
        beat = replace(worker(second), waiting=(one.claim,))
        monitor.hear([beat], float(second))
        assert monitor.look(statistics, float(second)) == Verdicts()
    assert not one.in_hand
    for second in range(200, 280, 5):
        monitor.hear([worker(second, listed(one, second - 199.0))], float(second))
        assert monitor.look(statistics, float(second)) == Verdicts()
    assert one.in_hand
    monitor.hear([worker(280, listed(one, 81.0))], 280.0)
    assert [kill.running for kill in monitor.look(statistics, 280.0).kills] == [one]


def test_what_no_beat_has_listed_yet_has_no_time_limit() -> None:
    """A manager that stalled after it read the claim does not take the stall for its age."""
    seen = ManagerCache()
    seen.running["k"] = running()
    monitor = Monitor(OPTIONS, seen)
    statistics = {"class": ClassStatistics(task_class="class", count=5, mean=20.0)}
    monitor.hear([worker(1)], 500.0)
    assert monitor.look(statistics, 500.0) == Verdicts()


def test_what_waited_in_a_lost_batch_is_not_in_hand() -> None:
    """As its worker's last beat tells; without one, the first of the batch was in hand."""
    seen = ManagerCache()
    for place, key in enumerate("abcd"):
        one = seen.running[key] = running(key)
        one.place = place
    monitor = Monitor(OPTIONS, seen)
    claims = {key: one.claim for key, one in seen.running.items()}
    beat = worker(1, listed(seen.running["b"]))
    monitor.hear([replace(beat, waiting=(claims["a"], claims["c"]))], 0.0)
    monitor.hear([replace(beat, waiting=(claims["a"], claims["c"]))], 41.0)
    lost = {v.running.key: v.running.in_hand for v in monitor.look({}, 41.0).given_up}
    assert lost == {"a": False, "b": True, "c": False, "d": False}
    fresh = running("e")
    assert fresh.in_hand


# --- how a request ends ---


def interest(
    name: str, outcome: TaskOutcome, *, output: str = "", category: Category | None = None
) -> Interest:
    return Interest(
        request="r",
        key=name,
        phase=Phase.AGGREGATION if output else Phase.COLLECTION,
        name=name,
        output=output,
        outcome=outcome,
        category=category,
        message="said so" if category else "",
    )


@pytest.mark.parametrize(
    ("policy", "outcomes", "gaps", "expected"),
    [
        (MissingPolicy.SKIP, [TaskOutcome.DONE, TaskOutcome.DONE], 0, RequestState.COMPLETE),
        (MissingPolicy.SKIP, [TaskOutcome.DONE, TaskOutcome.DONE], 1, RequestState.GAPS),
        (MissingPolicy.SKIP, [TaskOutcome.FAILED, TaskOutcome.DONE], 0, RequestState.GAPS),
        (MissingPolicy.SKIP, [TaskOutcome.FAILED, TaskOutcome.GAP], 0, RequestState.FAILED),
        (MissingPolicy.FAIL, [TaskOutcome.FAILED, TaskOutcome.DONE], 0, RequestState.FAILED),
        (MissingPolicy.FAIL, [TaskOutcome.DONE, TaskOutcome.DONE], 1, RequestState.GAPS),
        (MissingPolicy.FAIL, [TaskOutcome.DONE, TaskOutcome.SUPERSEDED], 0, RequestState.FAILED),
    ],
)
def test_how_a_request_ends(
    policy: MissingPolicy, outcomes: list[TaskOutcome], gaps: int, expected: RequestState
) -> None:
    interests = [interest("granule", outcomes[0]), interest("result", outcomes[1], output="out")]
    found = judge(policy, interests, [Gap(what="day", reason="no granule")] * gaps)
    assert found.state is expected
    assert found.message


def reduction_of(*ends: Interest) -> list[Interest]:
    """A request for a reduction: one plain raster, and what the runs came to."""
    return [interest("layer", TaskOutcome.DONE, output="MCD15A2.005/Lai_1km"), *ends]


CRASH = "python own.py ended with exit code 1: ModuleNotFoundError: No module named 'scipy'"


def crashed(number: int, message: str = CRASH, *, stopped: bool = False) -> Interest:
    failed = interest(
        f"r0c{number} 2012-04", TaskOutcome.FAILED, category=Category.USER_CODE_FAILED
    )
    return replace(failed, phase=Phase.REDUCTION, message=message, stopped=stopped)


RUNS = {Phase.REDUCTION: PhaseCount(total=20)}
GAP = interest("Lai_1km_own.2012-04", TaskOutcome.GAP, output="own/Lai_1km_own")


def test_a_request_whose_every_reduction_failed_has_failed_and_says_of_what() -> None:
    stopped = [crashed(n, stopped=True, message="not run") for n in range(3, 20)]
    interests = reduction_of(*[crashed(n) for n in range(3)], *stopped, GAP)
    found = judge(MissingPolicy.SKIP, interests, [], steps=["own"], phases=RUNS)
    assert found.state is RequestState.FAILED
    assert found.message == (
        "no result of the reduction own could be made: user code failed: python own.py ended with "
        "exit code 1: ModuleNotFoundError: No module named 'scipy' (3 of 20 runs; 17 were not run, "
        "because the first all failed); 1 other result is there"
    )


def test_a_reduction_that_failed_for_some_groups_is_told_beside_its_results() -> None:
    other = crashed(2, message="python own.py ended with exit code 3: odd")
    made = interest("Fpar_1km_own.2012-04", TaskOutcome.DONE, output="own/Fpar_1km_own")
    interests = reduction_of(crashed(0), crashed(1), other, made)
    found = judge(MissingPolicy.SKIP, interests, [], steps=["own"], phases=RUNS)
    assert found.state is RequestState.GAPS
    assert "2 of 2 results are there; some lack an input: user code failed: python own.py" in (
        found.message
    )
    assert found.message.endswith("'scipy' (3 of 20 runs, 2 of them in these words)")


def test_without_a_result_the_failed_granules_are_the_cause() -> None:
    granules = [
        replace(
            interest(f"g{n}.hdf", TaskOutcome.FAILED, category=Category.UNREADABLE_INPUT_FILE),
            message=f"g{n}.hdf is cut off",
        )
        for n in range(3)
    ]
    found = judge(MissingPolicy.SKIP, [*granules, GAP], [], steps=["own"])
    assert found.message == (
        "none of the 1 results could be made: unreadable input file: g0.hdf is cut off (and 2 more "
        "tasks)"
    )


def test_rasters_without_one_valid_pixel_are_named() -> None:
    interests = [
        replace(
            interest(name, TaskOutcome.DONE, output="own"),
            files=(
                ArtifactFile(name=f"{name}.tif", blob="b", size=1, sha256="", valid_share=share),
                ArtifactFile(name=f"{name}.json", blob="c", size=1, sha256=""),
            ),
        )
        for name, share in (("a", 0.0), ("b", 0.5), ("c", 0.0), ("d", 1e-9))
    ]
    found = judge(MissingPolicy.SKIP, interests, [])
    assert found.state is RequestState.COMPLETE
    assert found.message == (
        "all 4 results are there; 2 of 4 rasters hold no valid pixel: own/a.tif, own/c.tif"
    )


def test_what_is_lacking_is_named_with_its_reason() -> None:
    interests = [
        interest("result", TaskOutcome.GAP, output="out"),
        interest("cell", TaskOutcome.GAP),
        interest("granule", TaskOutcome.FAILED, category=Category.DOWNLOAD_FAILED),
    ]
    assert lacking(interests, [Gap(what="day", reason="no granule")]) == (
        Gap(what="day", reason="no granule"),
        Gap(what="granule", reason="download failed: said so"),
        Gap(what="result", reason="none of its inputs could be made"),
    )


# --- the order of results ---


def test_tasks_of_the_first_result_go_first_whenever_they_became_ready() -> None:
    dispatch = Dispatch(window=9, resend=30)
    seen = cache(("r", "a", 1.0), slots=2)
    for key, rank in [("c2", 2), ("c3", 3), ("c1", 1), ("d1", 1)]:
        dispatch.add(key, "r", rank=rank)
    assert sent(dispatch, seen, 0.0) == ["c1", "d1", "c2", "c3"]
    dispatch.add("e", "r", rank=9)
    dispatch.unsend(["d1", "c1", "c3"])
    dispatch.add("c4", "r", rank=1)
    # What is taken back goes before what else is of its rank, and no further.
    assert sent(dispatch, seen, 1.0) == ["d1", "c1", "c4", "c3", "e"]


def test_a_known_task_gets_its_new_rank() -> None:
    dispatch = Dispatch(window=9, resend=30)
    for key, rank in [("a", 1), ("b", 2), ("c", 3)]:
        dispatch.add(key, "r", rank=rank)
    dispatch.add("c", "r", rank=0)
    assert sent(dispatch, cache(("r", "a", 1.0), slots=2), 0.0) == ["c", "a", "b"]


def test_of_a_large_request_the_first_results_are_remembered() -> None:
    dispatch = Dispatch(window=1, resend=30)
    seen = cache(("r", "a", 1.0))
    numbers = [*range(100)]
    Random(1).shuffle(numbers)
    for number in numbers:
        dispatch.add(f"{number:04d}", "r", "collection A.6", rank=number)
    assert sorted(dispatch.known()) == [f"{i:04d}" for i in range(dispatch.most)]
    found = [
        ReadyMarker(key=f"{i:04d}", request="r", task_class="collection A.6", rank=i)
        for i in reversed(range(100))
    ]
    taken = []
    while len(dispatch):
        for key in sent(dispatch, seen, 0.0):
            dispatch.remove(key)
            taken.append(key)
        if dispatch.hungry():
            left = [one for one in found if one.key not in taken]
            dispatch.feed("r", left, more=False)
    assert taken == [f"{i:04d}" for i in range(100)]


def test_a_batch_is_made_of_the_results_that_are_next() -> None:
    keys = family_of(60)
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.01)
    order = [*keys[1::3], *keys[::3], *keys[2::3]]
    for rank, key in enumerate(order):
        dispatch.add(key, "r", "class", rank=rank)
    first, second, *_ = dispatch.choose(cache(("r", "a", 1.0), slots=1), 0.0)
    assert first == tuple(keys[1::3])
    assert second == tuple(keys[::3])


@pytest.mark.parametrize("between", [80, 600])
def test_a_batch_takes_no_task_of_much_later_results(between: int) -> None:
    own, others = family_of(2), family_of(between, day=2, product="MOD13A2")
    same_shard = [
        key for day in range(3, 60) for key in family_of(1, day=day) if mates(key) == mates(own[0])
    ]
    assert same_shard
    dispatch = Dispatch(window=64, resend=30, expected=lambda _: 0.01)
    for rank, key in enumerate([*own, *others, *same_shard]):
        dispatch.add(key, "r", "class", rank=rank)
    first, *_ = dispatch.choose(cache(("r", "a", 1.0), slots=1), 0.0)
    assert first == tuple(own)


def test_a_result_that_can_be_finished_goes_before_what_its_request_has_on_the_queue() -> None:
    seen = cache(("r", "a", 1.0), ("s", "a", 2.0), slots=2)
    dispatch = Dispatch(window=64, resend=30, locations=InputLocations(seen))
    for i in range(10):
        dispatch.add(f"c{i}", "r", rank=10 + i)
    sent(dispatch, seen, 0.0)
    dispatch.add("mosaic", "r", "aggregation mosaic", rank=5)
    dispatch.remove("c0")
    assert sent(dispatch, seen, 1.0)[0] == "mosaic"
    assert dispatch.host("mosaic") == FIRST
    assert dispatch.host("c1") == ""
    # Not before what others have there.
    dispatch.add("other", "s", rank=10)
    dispatch.remove("c1")
    dispatch.remove("c2")
    assert "other" in sent(dispatch, seen, 2.0)
    dispatch.remove("mosaic")
    for key in ("c3", "c4", "c5"):
        dispatch.remove(key)
    dispatch.add("later", "r", "aggregation mosaic", rank=6)
    assert "later" in sent(dispatch, seen, 3.0)
    assert dispatch.host("later") == ""
