"""A manager's round: its concerns, what it sends, and what it tells others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from service_manager.events.completion_events import Processed
from service_manager.events.sweep import AT_REST
from service_manager.leader.manager import CLEANING, Manager, SendError
from service_manager.options import ManagerOptions
from tasks.bag import protocol, workers
from tasks.bag.categories import Category
from tasks.bag.kinds import Spec
from tasks.bag.model import Phase, RequestOrder, State
from tasks.bag.task_keys import SHARDS
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.workers import RunningAttempt, WorkerRow
from tasks.errors import FencedError, StoreError
from tasks.messages.wakeups import LOOK
from tasks.operators import restrictions
from tasks.operators.manager_rows import PhaseQueue
from tasks.operators.restrictions import Kind, Restriction
from tasks.requests import outbox, request_operations
from tasks.service import tracing
from tasks.service.tracing import Span
from tasks.setting_values import Slots
from tasks.storage import blobs
from tests.service_manager.workbench import Bench, collect, mosaic, plan_of

G = [collect(f"g{i}") for i in range(4)]
TOP = mosaic("top", G[0])


@dataclass
class Told:
    """A manager and all that it tells others."""

    tasks: Sequence[Spec] = (*G, TOP)
    options: ManagerOptions = field(default_factory=ManagerOptions)
    sent: list[tuple[str, ...]] = field(default_factory=list)
    sent_to: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    heard: list[CompletionEvent] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)  # what may be recalled
    takes: int = 1000  # messages that the broker takes
    beats: int = 0

    def __post_init__(self) -> None:
        self.bench = Bench({"p": plan_of(*self.tasks)}, self.options)
        self.runtime, self.clock = self.bench.runtime, self.bench.runtime.clock
        self.take_over(1)

    def take_over(self, epoch: int) -> None:
        """A new manager that knows nothing but the tables."""
        self.manager = Manager(
            self.runtime,
            self.options,
            self.bench.plan_of_request,
            self.send,
            epoch,
            send_to=self.send_to,
            scale=lambda wanted, _place: self.wanted.append(wanted),
            recall=self.recall,
            heard=self.heard.extend,
        )

    def send(self, keys: Sequence[str]) -> None:
        if len(self.sent) >= self.takes:
            raise SendError("no broker")
        self.sent.append(tuple(keys))

    def send_to(self, keys: Sequence[str], host: str) -> None:
        self.sent_to.append((tuple(keys), host))

    def recall(self) -> Sequence[str]:
        back, self.queue = self.queue, []
        return back

    def rounds(self) -> None:
        """Rounds until there is no more to do at once; the clock stands still."""
        while self.manager.tick():
            pass

    def beat(self, *names: str, slots: int = 1, attempts: tuple[RunningAttempt, ...] = ()) -> None:
        """Let workers beat, each on a host of its name."""
        self.beats += 1
        for name in names:
            row = WorkerRow(
                name=name,
                host=f"host of {name}",
                slots=slots,
                started=1.0,
                beat_at=self.clock.now(),
                sequence=self.beats,
                attempts=attempts,
            )
            workers.beat(self.runtime.store, self.clock, row)

    def claim(self, spec: Spec, worker: str = "w") -> protocol.Claimed:
        claimed = protocol.claim(self.runtime, spec.key, worker, self.options.retry)
        assert claimed is not None
        return claimed

    def end(self, claimed: protocol.Claimed, category: Category | None = None) -> None:
        now = self.clock.now()
        attempt = claimed.attempt(started=now, ended=now, duration=1.0, category=category)
        if category is None:
            protocol.commit(self.runtime, attempt, [self.bench._store(claimed)], claimed.task)
        else:
            protocol.fail(self.runtime, attempt, self.options.retry)
        self.runtime.wakeups.publish(claimed.task.key)

    @property
    def keys(self) -> list[str]:
        return [key for keys in self.sent for key in keys]


def concerns(told: Told, *some: tuple[Callable[[], bool], float]) -> None:
    told.manager._concerns = some


def test_a_concern_that_fails_is_tried_again_and_the_others_go_on() -> None:
    told, ran = Told(), list[str]()

    def runs(name: str) -> bool:
        ran.append(name)
        return False

    def fails() -> bool:
        ran.append("fails")
        raise StoreError("no answer")

    concerns(
        told,
        (fails, 0.0),
        (lambda: runs("seldom"), 10.0),
        (lambda: runs("ever"), 0.0),
    )
    for seconds in (0, 9.5, 0.5):
        told.clock.sleep(seconds)
        assert not told.manager.tick()
    every = ["fails", "seldom", "ever"]
    assert ran == [*every, "fails", "ever", *every]


@pytest.mark.parametrize("busy", [(True, False), (False, True), (False, False)])
def test_a_round_is_busy_when_one_concern_is(busy: tuple[bool, bool]) -> None:
    told = Told()
    concerns(told, *((lambda b=b: b, 0.0) for b in busy))
    assert told.manager.tick() == any(busy)


def test_a_manager_that_is_over_does_nothing_more() -> None:
    told = Told()

    def fenced() -> bool:
        raise FencedError("another one acts")

    concerns(told, (fenced, 0.0))
    with pytest.raises(FencedError):
        told.manager.tick()


def test_it_says_what_is_ready_and_what_runs_by_phase() -> None:
    told = Told()
    told.beat("w", slots=2)
    told.bench.submit("p")
    told.rounds()
    assert told.manager.ready == 4
    told.manager.queues()
    claimed = told.claim(G[0])
    told.clock.sleep(5)
    told.beat("w", slots=2, attempts=(listed(claimed),))
    told.rounds()
    queues = {queue.phase: queue for queue in told.manager.queues()}
    assert queues == {phase: PhaseQueue(phase=phase) for phase in Phase} | {
        Phase.COLLECTION: PhaseQueue(phase=Phase.COLLECTION, ready=3, oldest=5.0, running=1)
    }
    assert [worker.name for worker in told.manager.workers] == ["w"]
    assert told.manager.stored == told.manager._retention.stored()


def listed(claimed: protocol.Claimed) -> RunningAttempt:
    task = claimed.task
    return RunningAttempt(
        key=task.key,
        claim=claimed.claim,
        started_ago=0.0,
        phase=task.phase,
        task_class=task.task_class,
    )


def test_the_slots_wanted_are_told_at_each_heartbeat() -> None:
    told = Told(options=ManagerOptions(scale_slots=Slots(least=1), scale_seconds=60.0))
    assert told.manager.wanted_slots == 1
    told.rounds()
    told.bench.submit("p")
    told.rounds()
    assert told.wanted == [1]
    told.clock.sleep(told.options.heartbeat)
    told.rounds()
    assert told.wanted == [1, told.manager.wanted_slots]
    assert told.manager.wanted_slots > 1


def test_workers_leave_by_the_slots_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    told, found = Told(options=ManagerOptions(scale_slots=Slots(least=2))), list[int]()
    monkeypatch.setattr(
        told.manager._attempts, "scale_in", lambda wanted, _place: found.append(wanted)
    )
    told.rounds()
    assert found == [2]


def test_a_batch_goes_to_the_host_of_its_inputs_and_others_to_all() -> None:
    told = Told(tasks=(G[0], TOP))
    told.beat("a", "b")
    told.bench.submit("p")
    told.rounds()
    assert (told.keys, told.sent_to) == ([G[0].key], [])
    told.end(told.claim(G[0], "a"))
    told.rounds()
    assert (told.keys, told.sent_to) == ([G[0].key], [((TOP.key,), "host of a")])
    assert [event.key for event in told.heard] == [G[0].key]


def test_a_host_that_made_inputs_for_an_earlier_request_is_preferred_for_a_new_one() -> None:
    told = Told(tasks=G[:1])
    told.beat("a", "b")
    told.bench.submit("p")
    told.rounds()
    told.end(told.claim(G[0], "a"))
    told.rounds()
    told.bench.plans = {"q": plan_of(G[0], TOP)}
    told.bench.submit("q")
    told.rounds()
    assert told.sent_to == [((TOP.key,), "host of a")]


def test_what_the_broker_does_not_take_is_sent_in_the_next_round() -> None:
    told = Told(takes=1)
    told.beat("w", slots=4)
    told.bench.submit("p")
    told.rounds()
    first = told.keys
    assert len(first) == 1
    told.takes = 1000
    told.rounds()
    assert sorted(told.keys) == sorted(g.key for g in G)


def test_what_waits_is_chosen_again_under_new_restrictions() -> None:
    told = Told(tasks=G)
    told.beat("w", slots=4)
    told.bench.submit("p")
    told.rounds()
    told.queue, told.sent = told.keys, []
    pause = Restriction(kind=Kind.PAUSE_PHASE, subject=Phase.COLLECTION)
    restrictions.put(told.runtime.store, pause)
    told.clock.sleep(1)
    told.rounds()
    assert (told.queue, told.sent) == ([], [])
    restrictions.lift(told.runtime.store, told.clock, Kind.PAUSE_PHASE, Phase.COLLECTION)
    told.clock.sleep(1)
    told.rounds()
    assert sorted(told.keys) == sorted(g.key for g in G)


def test_a_task_that_failed_is_sent_again_after_its_back_off() -> None:
    told = Told(tasks=G[:1])
    told.bench.submit("p")
    told.rounds()
    told.end(told.claim(G[0]), Category.SERVER_BUSY)
    told.sent = []
    told.rounds()
    task = told.runtime.tasks.task(G[0].key)
    assert task is not None
    told.clock.sleep(task.not_before - told.clock.now() - 1)
    told.rounds()
    assert told.keys == []
    told.clock.sleep(1)
    told.rounds()
    assert told.keys == [G[0].key]


def test_a_new_manager_sends_what_backs_off_when_it_is_due() -> None:
    told = Told(tasks=G[:1])
    told.bench.submit("p")
    told.rounds()
    told.end(told.claim(G[0]), Category.SERVER_BUSY)
    told.rounds()
    told.take_over(2)
    told.sent = []
    told.rounds()
    assert told.keys == []
    task = told.runtime.tasks.task(G[0].key)
    assert task is not None
    told.clock.sleep(task.not_before - told.clock.now())
    told.rounds()
    assert told.keys == [G[0].key]


def test_a_request_that_is_cancelled_before_it_is_planned_is_told_with_a_link() -> None:
    told = Told(options=ManagerOptions(portal_url="https://portal.example"))
    request = told.bench.submit("p")
    request_operations.order(told.runtime, request, RequestOrder.CANCEL)
    told.rounds()
    (mail,) = outbox.mails(told.runtime.store)
    assert f"https://portal.example/requests/{request}" in mail.body


def test_the_wait_of_an_end_for_the_manager_is_a_span_of_its_attempt(
    spans: list[Span],
) -> None:
    told = Told(tasks=G[:1])
    request = told.bench.submit("p")
    told.rounds()
    told.end(told.claim(G[0]))
    ended = told.clock.now()
    told.clock.sleep(2)
    told.rounds()
    (span,) = [span for span in spans if span.name == "process end"]
    attempt = tracing.attempt_of(request, G[0].key, 1)
    assert (span.trace, span.parent) == (tracing.trace_of(request), attempt)
    assert span.id == tracing.span_of(span.trace, attempt, "process end")
    assert (span.began, span.ended) == (ended, ended + 2)
    assert span.attributes == {
        "swathmill.request": request,
        "swathmill.task": G[0].key,
        "swathmill.attempt": 1,
    }


@dataclass
class Cleaner:
    """Stands for the retention: what it is asked, and seconds that each step takes."""

    told: Told
    steps: int = 1
    seconds: float = 0.0
    fails: bool = False
    shards: list[str] = field(default_factory=list)
    took: int = 0

    def passing(self, shard: str) -> Iterator[bool]:
        self.shards.append(shard)
        for _ in range(self.steps):
            if self.fails:
                raise StoreError("no answer")
            self.took += 1
            self.told.clock.sleep(self.seconds)
            yield True


def cleaning(told: Told, **more: float) -> Cleaner:
    cleaner = Cleaner(told, **more)  # type: ignore[arg-type]
    told.manager._retention = cleaner  # type: ignore[assignment]
    return cleaner


def test_a_shard_is_cleaned_after_the_other_and_the_first_after_the_wait() -> None:
    told = Told(options=ManagerOptions(orphans=1600.0))
    cleaner = cleaning(told)
    told.clock.sleep(1599)
    told.rounds()
    assert cleaner.shards == []
    for _ in range(17):
        told.clock.sleep(1)
        told.rounds()
        told.clock.sleep(99)
        told.rounds()
    assert cleaner.shards == [*SHARDS, SHARDS[0]]


def test_useless_blobs_go_after_the_wait_and_what_is_worth_keeping_stays() -> None:
    told = Told(tasks=G[:1], options=ManagerOptions(orphans=1600.0))
    told.bench.submit("p")
    told.rounds()
    told.end(told.claim(G[0]))
    stray = blobs.artifact_name(G[0].key, "fenced", "cell.tif")
    told.runtime.blobs.put_bytes(blobs.ARTIFACTS, stray, b"of an attempt that was fenced")
    for _ in range(16 * 3):
        told.clock.sleep(100)
        told.rounds()
    assert not told.runtime.blobs.exists(blobs.ARTIFACTS, stray)
    task = told.runtime.tasks.task(G[0].key)
    assert task is not None
    assert (task.state, task.interests) == (State.DONE, ())


def test_cleaning_takes_a_small_part_of_a_round_and_goes_on_in_the_next() -> None:
    told = Told(options=ManagerOptions(orphans=16.0))
    cleaner = cleaning(told, steps=5, seconds=CLEANING * 0.6)
    told.clock.sleep(16)
    assert not told.manager.tick()
    assert cleaner.took == 2
    for _ in range(2):
        told.manager.tick()
    assert (cleaner.took, cleaner.shards) == (5, [SHARDS[0]])
    told.manager.tick()
    assert cleaner.shards == [SHARDS[0]]


def test_a_shard_that_could_not_be_cleaned_does_not_hold_up_the_next() -> None:
    told = Told(options=ManagerOptions(orphans=16.0))
    cleaner = cleaning(told)
    cleaner.fails = True
    told.clock.sleep(16)
    told.rounds()
    cleaner.fails = False
    told.clock.sleep(1)
    told.rounds()
    assert cleaner.shards == [*SHARDS[:2]]


def test_a_new_manager_sweeps_all_shards_and_then_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, swept = Told(), list[str]()
    due = told.manager._sweep.due

    def look() -> str | None:
        shard = due()
        swept.extend([] if shard is None else [shard])
        return shard

    monkeypatch.setattr(told.manager._sweep, "due", look)
    told.manager.tick()
    assert sorted(swept) == [*SHARDS]
    swept.clear()
    told.clock.sleep((AT_REST - 1) * told.options.sweep)
    told.manager.tick()
    assert not swept  # nothing goes on that could have been missed
    told.bench.submit("p")
    told.rounds()
    swept.clear()
    told.manager.tick()
    assert len(swept) == 1


def test_an_event_whose_wake_up_was_lost_is_found_by_the_sweep() -> None:
    told = Told(tasks=G[:1])
    told.bench.submit("p")
    told.rounds()
    told.end(told.claim(G[0]))
    told.runtime.wakeups.drain()
    told.rounds()
    assert told.heard == []
    for _ in SHARDS:
        told.clock.sleep(told.options.sweep)
        told.rounds()
    assert [event.key for event in told.heard] == [G[0].key]


def test_a_manager_that_knows_no_worker_looks_for_one_when_it_is_told_to_look() -> None:
    told = Told()
    told.rounds()
    told.beat("w", slots=2)
    told.rounds()
    assert not told.manager.workers
    told.runtime.wakeups.publish(LOOK)
    told.rounds()
    assert [worker.name for worker in told.manager.workers] == ["w"]
    told.beat("another")
    told.runtime.wakeups.publish(LOOK)
    told.rounds()
    assert [worker.name for worker in told.manager.workers] == ["w"]  # at its own time


def test_plans_beside_the_rounds_are_let_go_of_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told, closed = Told(), list[str]()

    def close() -> None:
        closed.append("plans")

    monkeypatch.setattr(told.manager._lifecycle, "close", close)
    told.manager.close()
    assert closed == ["plans"]


def test_ends_count_as_known_until_the_round_that_left_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told()
    until: list[float] = []
    monkeypatch.setattr(told.manager._attempts, "counted", until.append)
    for more in (True, False):
        monkeypatch.setattr(told.manager._events, "run", lambda more=more: Processed(more=more))
        told.clock.sleep(5.0)
        told.manager._process_events()
    assert until == [told.clock.monotonic()]
