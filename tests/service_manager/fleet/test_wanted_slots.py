"""Slots wanted: the rule, and a fleet that an autoscaler sizes by it."""

import math
from collections import deque
from dataclasses import dataclass, field, replace

import pytest
import redis

from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.ledger import Entry
from service_manager.dispatch.manager_cache import Live, ManagerCache, WatchedAttempt
from service_manager.fleet.wanted_slots import UNKNOWN, WantedSlots
from service_manager.options import ManagerOptions
from tasks.bag.model import MissingPolicy, Phase, RequestState, State
from tasks.bag.task_rows import CompletionEvent
from tasks.messages.wanted_slots import LIST, RedisWantedSlots
from tasks.requests.request_table import RequestRow
from tasks.setting_values import Slots

POLL = 30  # seconds between two looks of KEDA
STABLE = 300  # seconds: KEDA goes down to the largest number of so long


def attempt(key: str) -> WatchedAttempt:
    return WatchedAttempt(
        key=key,
        claim=key,
        worker="w",
        attempt=1,
        retries=0,
        phase=Phase.REPROJECTION,
        task_class="reprojection",
        sponsor="r",
        claimed_at=0.0,
        since=0.0,
    )


def event(key: str, seconds: float) -> CompletionEvent:
    return CompletionEvent(
        key=key,
        number=1,
        state=State.DONE,
        category=None,
        phase=Phase.REPROJECTION,
        task_class="reprojection",
        worker="w",
        duration=seconds,
        sponsor="r",
        row="o|" + key,
        has_dependents=False,
        interests=("r",),
        not_before=0.0,
        fallback="",
        files=(),
    )


@dataclass
class Fleet:
    """Workers of two slots, sized as KEDA does it, that run a backlog of equal tasks.

    The dispatcher and the rule are those of the manager. Replicas that leave end their attempts.
    """

    tasks: int
    seconds: int
    start_up: int
    most: int
    slots: int = 2
    now: int = 0
    replicas: int = 1
    coming: deque[tuple[int, int]] = field(default_factory=deque)  # when, replicas
    wanted: deque[int] = field(default_factory=lambda: deque(maxlen=STABLE // POLL))
    peak: int = 1

    def run(self) -> int:
        """The seconds until all tasks have ended."""
        cache, rule = ManagerCache(), WantedSlots(ManagerOptions())
        dispatch = Dispatch(64, 30.0)
        queue: deque[str] = deque()
        ends: deque[tuple[int, str]] = deque()
        left = self.tasks
        unread = self.tasks
        taken: set[str] = set()
        while left:
            while self.coming and self.coming[0][0] <= self.now:
                self.replicas = self.coming.popleft()[1]
            while ends and ends[0][0] <= self.now:
                _, key = ends.popleft()
                del cache.running[key]
                dispatch.freed(float(self.now))
                rule.ended(event(key, float(self.seconds)))
                left -= 1
            cache.slots = self.replicas * self.slots
            while unread and len(dispatch) < dispatch.most:
                unread -= 1
                dispatch.add(f"{unread:064x}", "r")
            for batch in dispatch.choose(cache, float(self.now)):
                queue.extend(batch)
            while queue and len(cache.running) < cache.slots:
                key = queue.popleft()
                if key in taken:  # its message was sent again meanwhile
                    continue
                taken.add(key)
                dispatch.remove(key)
                cache.running[key] = replace(attempt(key), since=float(self.now))
                ends.append((self.now + self.seconds, key))
            if self.now % POLL == 0:
                ready = sum(dispatch.backlog(cache).values()) + unread
                self.scale(rule.count(cache, {"r": ready}, float(self.now)))
            self.now += 1
        return self.now

    def scale(self, wanted: int) -> None:
        found = min(self.most, max(1, math.ceil(wanted / self.slots)))
        self.wanted.append(found)
        going = self.coming[-1][1] if self.coming else self.replicas
        if found > going:
            self.coming.append((self.now + self.start_up, found))
        elif max(self.wanted) < going and not self.coming:
            self.replicas = max(self.wanted)
        self.peak = max(self.peak, self.replicas)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [5, 30, 180])
@pytest.mark.parametrize("start_up", [60, 600, 1020])
def test_a_backlog_is_worked_off_by_the_whole_fleet(seconds: int, start_up: int) -> None:
    most, slots = 20, 2
    tasks = 7200 * most * slots // seconds // 2  # an hour of the whole fleet
    fleet = Fleet(tasks=tasks, seconds=seconds, start_up=start_up, most=most)
    took = fleet.run()
    # One replica works while the others start; then all do.
    early = start_up * slots // seconds
    ideal = start_up + (tasks - early) * seconds / (most * slots)
    assert fleet.peak == most
    assert took <= 1.3 * ideal


def test_without_work_only_the_standby_is_wanted() -> None:
    rule = WantedSlots(ManagerOptions(scale_slots=Slots(least=4)))
    assert rule.count(ManagerCache(), {}, 0.0) == 4


def test_running_attempts_are_wanted_whatever_waits() -> None:
    """Else a scaler would stop workers in the middle of long attempts."""
    cache = ManagerCache()
    cache.running = {key: attempt(key) for key in ("a", "b", "c")}
    assert WantedSlots(ManagerOptions()).count(cache, {}, 0.0) == 3


def test_few_long_tasks_want_one_slot_each_and_many_short_ones_share() -> None:
    rule = WantedSlots(ManagerOptions(scale_seconds=300.0))
    rule.ended(event("a", 900.0))
    assert rule.count(ManagerCache(), {"r": 7}, 0.0) == 7
    rule = WantedSlots(ManagerOptions(scale_seconds=300.0))
    rule.ended(event("a", 3.0))
    assert rule.count(ManagerCache(), {"r": 1000}, 0.0) == 10


def test_what_was_never_timed_counts_for_a_minute() -> None:
    rule = WantedSlots(ManagerOptions(scale_seconds=300.0))
    assert rule.count(ManagerCache(), {"r": 100}, 0.0) == 100 * UNKNOWN / 300


def known(*requests: str) -> ManagerCache:
    cache = ManagerCache()
    for name in requests:
        row = RequestRow(id=name, owner="o", state=RequestState.RUNNING, submitted=0.0)
        cache.requests[name] = Live(row=row, policy=MissingPolicy.SKIP)
    return cache


def test_a_request_counts_by_its_own_attempts_of_late_and_others_by_those_of_all() -> None:
    rule = WantedSlots(ManagerOptions(scale_seconds=100.0))
    cache = known("a", "b", "c")
    for request, seconds in (("a", 10.0), ("a", 20.0), ("b", 211.0)):
        rule.ended(replace(event("k", seconds), sponsor=request))
    # a: 10 + 0.1 x 10 = 11; all: 11 + 0.1 x 200 = 31
    assert rule.count(cache, {"a": 1000}, 0.0) == 110
    assert rule.count(cache, {"b": 1000}, 0.0) == 1000
    assert rule.count(cache, {"c": 1000}, 0.0) == 310
    assert rule.count(cache, {"a": 1000, "c": 1000}, 0.0) == 420


def test_what_was_learnt_of_a_request_goes_with_it() -> None:
    rule = WantedSlots(ManagerOptions(scale_seconds=100.0))
    for request, seconds in (("a", 10.0), ("b", 110.0)):
        rule.ended(replace(event("k", seconds), sponsor=request))
    assert rule.count(known("a"), {"a": 1000}, 0.0) == 100
    assert rule.count(known(), {"a": 1000}, 0.0) == 200
    assert rule.count(known("a"), {"a": 1000}, 0.0) == 200


def test_an_event_without_an_attempt_teaches_nothing() -> None:
    rule = WantedSlots(ManagerOptions(scale_seconds=UNKNOWN))
    rule.ended(replace(event("k", 1.0), sponsor="a", number=0))
    assert rule.count(known("a"), {"a": 10}, 0.0) == 10


def test_without_a_limit_of_cost_all_are_wanted() -> None:
    rule = WantedSlots(ManagerOptions(scale_slots=Slots(most=0)))
    assert (
        rule.count(ManagerCache(), {"r": 1_000_000}, 0.0)
        == 1_000_000 * UNKNOWN / ManagerOptions().scale_seconds
    )


def test_the_limit_of_cost_holds() -> None:
    rule = WantedSlots(ManagerOptions(scale_slots=Slots(most=40)))
    assert rule.count(ManagerCache(), {"r": 1_000_000}, 0.0) == 40


def test_a_large_request_counts_whole_though_dispatch_remembers_a_part() -> None:
    dispatch = Dispatch(4, 30.0)
    for number in range(200):
        dispatch.add(f"{number:02x}" * 32, "r")
    cache = ManagerCache()
    assert len(dispatch) < 200
    live = Live(
        row=RequestRow(id="r", owner="o", state=RequestState.RUNNING, submitted=0.0),
        policy=MissingPolicy.SKIP,
    )
    for number in range(200):
        live.ledger.put(f"{number:02x}" * 32, Entry(Phase.REPROJECTION, None, False, False))
    cache.requests["r"] = live
    assert dispatch.backlog(cache) == {"r": 200}
    live.row = replace(live.row, paused=True)
    assert dispatch.backlog(cache) == {}


@pytest.mark.integration
def test_scalers_read_the_number_as_the_length_of_a_list(redis_server: str) -> None:
    tell = RedisWantedSlots(redis_server)
    client = redis.Redis.from_url(redis_server)
    for wanted in (3, 5000, 12, 0, 1):
        tell(wanted)
        assert client.llen(LIST) == wanted
    tell(0)


def test_a_redis_that_does_not_answer_stops_nothing() -> None:
    RedisWantedSlots("redis://127.0.0.1:1/0")(5)


def test_attempts_that_run_for_long_say_so_before_they_end() -> None:
    rule = WantedSlots(ManagerOptions(scale_seconds=300.0))
    rule.ended(event("quick", 10.0))
    cache = ManagerCache()
    cache.running = {f"{n}": replace(attempt(f"{n}"), since=100.0) for n in range(10)}
    ready = {"r": 1000}
    assert rule.count(cache, ready, 105.0) == 10 + math.ceil(1000 * 10 / 300)
    assert rule.count(cache, ready, 250.0) == 10 + 1000 * 150 / 300
    assert rule.count(cache, ready, 900.0) == 10 + 1000
    # Those of others, and what only waits in a batch, say nothing of these tasks.
    cache.running = {key: replace(one, sponsor="s") for key, one in cache.running.items()}
    assert rule.count(cache, ready, 900.0) == 10 + math.ceil(1000 * 10 / 300)
    cache.running = {
        key: replace(one, sponsor="r", begun=False) for key, one in cache.running.items()
    }
    assert rule.count(cache, ready, 900.0) == math.ceil(1000 * 10 / 300)
