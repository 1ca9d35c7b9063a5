"""A host that holds a task's inputs is preferred: how often they are at hand, and at what cost."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from random import Random
from time import process_time

import pytest

from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import ManagerCache, WatchedAttempt
from service_manager.dispatch.preference import LOOK
from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from tasks.bag import protocol, workers
from tasks.bag.kinds import Spec
from tasks.bag.model import ArtifactFile, Phase
from tasks.bag.workers import RunningAttempt, WorkerRow
from tasks.requests import request_operations
from tasks.requests.plan import Plan
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.queues import FIRST
from tests.service_manager.workbench import collect, document, mosaic, plan_of

STEP, BEAT = 0.25, 5.0
LENGTHS = {Phase.COLLECTION: 3.0, Phase.AGGREGATION: 1.5}


def scene(granules: int) -> Plan:
    """Four cells of each granule and its neighbour, and a mosaic of every 16 cells."""
    raw = [collect(f"g{i:03d}") for i in range(granules)]
    cells: list[Spec] = [
        mosaic(f"cell{i}-{n}", raw[i], raw[(i + 1) % granules])
        for i in range(granules)
        for n in range(4)
    ]
    tops = [mosaic(f"top{i}", *cells[i : i + 16]) for i in range(0, len(cells), 16)]
    return plan_of(*raw, *cells, *tops)


@dataclass
class Slot:
    claimed: protocol.Claimed
    until: float
    began: float


@dataclass
class Fleet:
    """A manager on the memory store and hosts that keep what they made or fetched."""

    prefers: bool
    hosts: int = 3
    slots: int = 2
    silent_from: float = float("inf")  # when the last host begins to take nothing, yet beats
    length: float = 1.0  # times the usual
    granules: int = 24
    hits: int = 0
    misses: int = 0
    queues: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    held: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    running: dict[str, list[Slot]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.runtime = memory_runtime(ManualClock())
        self.options = ManagerOptions(orphans=float("inf"))
        self.plan = scene(self.granules)
        self.random = Random(1)
        self.sequence = 0
        send_to = (lambda keys, host: self.queues[host].extend(keys)) if self.prefers else None
        self.manager = Manager(
            self.runtime,
            self.options,
            lambda _: self.plan,
            self.queues[""].extend,
            1,
            send_to=send_to,
        )

    def names(self) -> list[str]:
        return [f"host{i}" for i in range(self.hosts)]

    def run(self, title: str) -> float:
        """Seconds until a request of the plan has ended."""
        clock = self.runtime.clock
        request = request_operations.submit(self.runtime, "owner", document(title))
        began = self.began = clock.now()
        due = 0.0
        while not request_operations.load(self.runtime, request).state.ended:
            if clock.now() >= due:
                self.beat()
                due = clock.now() + BEAT
            self.manager.tick()
            for name in self.random.sample(self.names(), self.hosts):
                self.work(name)
            clock.sleep(STEP)
            assert clock.now() - began < 4000, "the request does not end"
        return clock.now() - began

    def beat(self) -> None:
        self.sequence += 1
        now = self.runtime.clock.now()
        for name in self.names():
            row = WorkerRow(
                name=f"{name}-worker",
                host=name,
                slots=self.slots,
                started=1.0,
                beat_at=now,
                sequence=self.sequence,
                attempts=tuple(
                    RunningAttempt(
                        key=slot.claimed.task.key,
                        claim=slot.claimed.claim,
                        started_ago=now - slot.began,
                        phase=slot.claimed.task.phase,
                        task_class=slot.claimed.task.task_class,
                    )
                    for slot in self.running[name]
                ),
            )
            workers.beat(self.runtime.store, self.runtime.clock, row)

    def work(self, name: str) -> None:
        now = self.runtime.clock.now()
        for slot in [slot for slot in self.running[name] if slot.until <= now]:
            self.running[name].remove(slot)
            self.end(name, slot)
        if name == self.names()[-1] and now - self.began >= self.silent_from:
            return
        while len(self.running[name]) < self.slots:
            queue = self.queues[FIRST] or self.queues[name] or self.queues[""]
            if not queue:
                return
            claimed = protocol.claim(
                self.runtime, queue.pop(0), f"{name}-worker", self.options.retry
            )
            if claimed is not None:
                self.begin(name, claimed, now)

    def begin(self, name: str, claimed: protocol.Claimed, now: float) -> None:
        for given in claimed.spec.inputs:
            self.hits += given.key in self.held[name]
            self.misses += given.key not in self.held[name]
            self.held[name].add(given.key)
        length = self.length * LENGTHS[claimed.task.phase] * self.random.uniform(0.5, 1.5)
        self.running[name].append(Slot(claimed=claimed, until=now + length, began=now))

    def end(self, name: str, slot: Slot) -> None:
        claimed, now = slot.claimed, self.runtime.clock.now()
        key = claimed.task.key
        attempt = claimed.attempt(
            started=slot.began, ended=now, duration=now - slot.began, category=None, message=""
        )
        file = ArtifactFile(name="f", blob=f"artifacts/{key}", size=10, sha256="0" * 64)
        protocol.commit(self.runtime, attempt, [file], claimed.task)
        self.held[name].add(key)
        self.runtime.wakeups.publish(key)

    @property
    def rate(self) -> float:
        return self.hits / (self.hits + self.misses)


@pytest.mark.slow
def test_inputs_are_at_hand_more_often_and_nothing_waits_for_it() -> None:
    plain, preferring = (Fleet(prefers=prefers, granules=48) for prefers in (False, True))
    without, seconds = plain.run("all"), preferring.run("all")
    assert preferring.rate > plain.rate + 0.12
    assert preferring.misses < 0.65 * plain.misses
    assert seconds <= without * 1.1


def test_a_host_that_takes_nothing_delays_little() -> None:
    """What only it was told of goes to all when the patience is over."""
    without, seconds = (
        Fleet(prefers=prefers, silent_from=20.0).run("all") for prefers in (False, True)
    )
    assert seconds <= without * 1.1


def test_inputs_that_were_made_for_others_are_known_too() -> None:
    fleet = Fleet(prefers=True)
    raw = [p for p in fleet.plan if not p.spec.inputs]
    whole = fleet.plan
    fleet.plan = Plan(tasks=tuple(raw))
    fleet.run("granules alone")
    fleet.plan = whole
    fleet.run("all of it")
    assert fleet.rate > 0.5


def fleet_cache(**slots: int) -> ManagerCache:
    seen = ManagerCache(slots=sum(slots.values()))
    seen.workers = {f"{host}-worker": (host, number) for host, number in slots.items()}
    return seen


def sent(dispatch: Dispatch, seen: ManagerCache, now: float) -> list[str]:
    """The keys of all batches that are sent now."""
    return [key for batch in dispatch.choose(seen, now) for key in batch]


def dispatch_of(seen: ManagerCache, *keys: str) -> Dispatch:
    locations = InputLocations(seen)
    dispatch = Dispatch(window=64, resend=30, locations=locations, patience=6)
    for key in keys:
        locations.made(key, f"input of {key}", "a-worker", 5)
        dispatch.add(key, "r")
    return dispatch


def test_a_task_goes_to_the_host_of_its_inputs_then_to_all_then_again_after_silence() -> None:
    seen = fleet_cache(a=1, b=1)
    dispatch = dispatch_of(seen, "k")
    found = [(t, dispatch.host("k")) for t in range(100) if sent(dispatch, seen, float(t))]
    assert found == [(0, "a"), (6, ""), (36, ""), (96, "")]


def test_a_host_is_given_what_two_turns_of_its_slots_take_and_less_while_another_is_idle() -> None:
    keys = [f"k{i}" for i in range(20)]
    seen = fleet_cache(a=2, b=20)
    dispatch = dispatch_of(seen, *keys)
    assert [dispatch.host(key) for key in sent(dispatch, seen, 0.0)].count("a") == 2
    seen = fleet_cache(a=2, b=1)
    dispatch = dispatch_of(seen, *keys)
    chosen = sent(dispatch, seen, 0.0)
    assert [dispatch.host(key) for key in chosen].count("a") == 4


def test_tasks_that_have_their_host_come_first_but_no_task_is_passed_over_for_ever() -> None:
    seen = fleet_cache(a=1, b=1)
    locations = InputLocations(seen)
    dispatch = Dispatch(window=1000, resend=30, locations=locations, patience=6)
    dispatch.add("first", "r")
    for i in range(100):
        locations.made(f"k{i}", "g", "a-worker", 5)
        dispatch.add(f"k{i}", "r")
    taken: list[str] = []
    while "first" not in taken:
        for key in sent(dispatch, seen, 0.0):
            taken.append(key)
            dispatch.remove(key)
        assert len(taken) <= LOOK + 4
    assert taken[0] == "k0"


def test_an_idle_host_takes_what_no_host_has_inputs_for_rather_than_what_another_has() -> None:
    seen = fleet_cache(a=1, b=1)
    seen.running["busy"] = replace(_running("busy", "a-worker"), begun=True)
    dispatch = dispatch_of(seen, *(f"k{i}" for i in range(6)))
    for i in range(6):
        dispatch.add(f"free{i}", "r", rank=1)
    chosen = sent(dispatch, seen, 0.0)
    assert [dispatch.host(key) for key in chosen if key[0] == "k"] == ["a", "a"]
    assert chosen[0] == "free0"


def test_a_host_without_slots_gets_nothing_and_one_alone_has_no_queue_of_its_own() -> None:
    for seen in (fleet_cache(a=0, b=4), fleet_cache(a=4)):
        dispatch = dispatch_of(seen, "k")
        assert sent(dispatch, seen, 0.0) == ["k"]
        assert dispatch.host("k") == ""


@pytest.mark.slow
@pytest.mark.parametrize("length", [0.1, 4.0])
def test_short_tasks_and_long_ones_take_no_longer(length: float) -> None:
    plain = Fleet(prefers=False, length=length)
    preferring = Fleet(prefers=True, length=length)
    without, seconds = plain.run("all"), preferring.run("all")
    assert seconds <= without * 1.1


@pytest.mark.parametrize("busy", [False, True])
def test_choosing_a_message_takes_no_longer_with_ten_thousand_hosts(busy: bool) -> None:
    """It took 18 ms when each message looked at all hosts."""
    seen = ManagerCache(slots=20_000)
    seen.workers = {f"w{i}": (f"host{i}", 2) for i in range(10_000)}
    locations = InputLocations(seen)
    dispatch = Dispatch(window=100, resend=30.0, locations=locations)
    for i in range(1000):
        dispatch.add(f"{i:064x}", "r")
        for n in range(2):
            locations.made(f"{i:064x}", f"input{i}-{n}", f"w{7 * i + n}", 100)
    for i in range(20_000 if busy else 0):
        seen.running[f"k{i}"] = _running(f"k{i}", f"w{i // 2}")
    began = process_time()
    chosen = dispatch.choose(seen, 0.0)
    took = process_time() - began
    assert len(chosen) == (66 if busy else 1000)
    assert all(dispatch.host(keys[0]) for keys in chosen)
    assert took < 0.2 + 0.001 * len(chosen)


def _running(key: str, worker: str) -> WatchedAttempt:
    return WatchedAttempt(
        key=key,
        claim=key,
        worker=worker,
        attempt=1,
        retries=0,
        phase=Phase.COLLECTION,
        task_class="class",
        sponsor="other",
        claimed_at=0.0,
        since=0.0,
    )
