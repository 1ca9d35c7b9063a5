"""The manager at scale: its own code, against tables and workers that are simulated.

    python -m bench.scale [--sizes 30000 300000 3000000] [--fleet N [--workers 1000 10000]]
        [--json FILE]

A request of N ready tasks runs on a fleet; each call of the store takes 8 ms of simulated time, as
in Azure, and a partition that has had 2,000 rows read and written in a second refuses further
calls. Each worker is a host of its own, each task has two inputs that hosts hold, and tasks are
sent to the hosts of their inputs first, as in a stack. Later somebody else submits a request of ten
tasks: after twenty seconds, and on large fleets once slots come free evenly. Measured are the
manager's processor time per task in steady state (the harness's own is taken off), its memory above
what it had before, the calls that were refused, how often a task ran where its inputs are, and the
simulated time until the small request's first and last task start. `--fleet N` has N of 300,000
tasks end on 10,000 workers that beat every 5 seconds, as they do as shipped, or on each of the
numbers of `--workers`.
"""

import argparse
import gc
import heapq
import json
import logging
import multiprocessing
import random
import resource
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from zlib import crc32

import structlog

from bench.scale_rows import BIG, CLASS, Claim, GeneratedStore
from service_manager.dispatch.manager_cache import ManagerCache
from service_manager.events.completion_events import READERS
from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from tasks.bag import task_table, workers
from tasks.bag.model import Attempt, Phase, RequestState, State, Task
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import shard
from tasks.bag.workers import RunningAttempt, WorkerRow
from tasks.errors import StoreError
from tasks.request.document import Request, dump_request, parse_request
from tasks.requests import request_operations, request_table
from tasks.requests.plan import Plan, PlannedTask
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tasks.storage.queues import FIRST
from tasks.storage.store import Delete, Row

LATENCY = 0.008  # seconds of one call
LIMIT = 2000  # rows of a partition in a second
LONGEST = 3.5  # times the mean that a task takes: at four times it would be killed
SMALL_AT = 20.0  # seconds, and no sooner than two tasks take: the first ones end together
OUT = Path(__file__).parent / "out" / "scale.json"


class ThrottledError(StoreError):
    """A partition has had more rows than Azure lets it have in a second."""


@dataclass
class Result:
    """One run. Times in seconds, memory in MB."""

    tasks: int
    workers: int
    ended: int = 0
    cpu_ms_a_task: float = 0.0
    take_over_cpu: float = 0.0  # reading all the request's interests
    ledger_bytes_a_task: float = 0.0
    memory: float = 0.0
    dispatch_delay: float = 0.0  # mean time that a free slot waits for a message
    small_first: float = -1.0
    small_last: float = -1.0
    simulated: float = 0.0
    calls_a_task: float = 0.0
    busy: float = 0.0  # share of simulated time that the manager is at work
    choosing_ms: float = 0.0  # processor time for each message that is chosen
    at_hand: float = 0.0  # share of the tasks that ran on the host of their inputs
    longest_round: float = 0.0  # simulated seconds, after the first
    throttled: int = 0  # calls refused
    fullest: int = 0  # rows of the workers' fullest partition in a second


@dataclass
class Fleet:
    """Workers that claim and end what they are sent, without their side of the protocol."""

    store: GeneratedStore
    number: int
    slots: int
    seconds: float
    beat: float
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    messages: deque[str] = field(default_factory=deque)
    ahead: deque[str] = field(default_factory=deque)  # taken before all else
    own: dict[str, deque[str]] = field(default_factory=dict)  # messages to one host
    spent: float = 0.0  # processor time of the harness

    def __post_init__(self) -> None:
        self.idle = {i: [0.0] * self.slots for i in range(self.number)}  # since when
        self.ends: list[tuple[float, str, int]] = []
        self.listed: dict[int, dict[str, float]] = {i: {} for i in range(self.number)}
        self.waited = 0.0
        self.starts = 0
        self.at_hand = 0
        self.ended = 0
        self.started_small: list[float] = []
        self.wakeups: list[str] = []

    def move(self) -> None:
        """Let everything happen that was due by now."""
        began = time.process_time()
        now = self.store.clock.monotonic()
        while True:
            self._start(now)
            if not self.ends or self.ends[0][0] > now:
                break
            self._end()
        self.spent += time.process_time() - began

    def send(self, keys: Sequence[str], host: str = "") -> None:
        """Take a message: to all, to all before what is kept for hosts, or to one host."""
        shared = {"": self.messages, FIRST: self.ahead}.get(host)
        to = self.own.setdefault(host, deque()) if shared is None else shared
        to.extend(keys)

    def recall(self) -> list[str]:
        """Give back all messages that no slot has taken."""
        queues = (self.ahead, *self.own.values(), self.messages)
        found = [key for queue in queues for key in queue]
        for queue in queues:
            queue.clear()
        return found

    def _start(self, now: float) -> None:
        while self.ahead and self.idle:
            self._start_on(self.ahead, now, next(iter(self.idle)))
        for host in [host for host, keys in self.own.items() if keys]:
            self._start_on(self.own[host], now, int(host[1:]))
        while self.messages and self.idle:
            self._start_on(self.messages, now, next(iter(self.idle)))

    def _start_on(self, keys: deque[str], now: float, worker: int) -> None:
        while keys and worker in self.idle:
            key = keys.popleft()
            number = self.store.number(key)
            if key in self.store.running or (number is not None and self.store.gone[number]):
                continue
            small = number is None
            if small and not self._take_small(key):
                continue
            since = self.idle[worker].pop()
            if not self.idle[worker]:
                del self.idle[worker]
            self.waited += now - since
            self.starts += 1
            if number is not None:
                self.store.gone[number] = 1
                self.at_hand += worker in holders(key, self.number)
            else:
                self.started_small.append(now)
            self.store.running[key] = Claim(f"w{worker:05d}", f"c{key[:15]}", now)
            self.listed[worker][key] = now
            length = self.seconds * min(LONGEST, self.rng.lognormvariate(-0.125, 0.5))
            heapq.heappush(self.ends, (now + length, key, worker))

    def _take_small(self, key: str) -> bool:
        marker = task_table.ready_row("small", key)
        if self.store.inner.get(task_table.TABLE, shard(key), marker) is None:
            return False
        self.store.inner.transact(task_table.TABLE, shard(key), [Delete(row=marker)])
        return True

    def _end(self) -> None:
        at, key, worker = heapq.heappop(self.ends)
        del self.store.running[key]
        start = self.listed[worker].pop(key)
        self.idle.setdefault(worker, []).append(at)
        self.ended += 1
        mine = self.store.number(key) is not None
        self.wakeups.append(key)
        done = Task(
            key=key,
            phase=Phase.COLLECTION,
            task_class=CLASS,
            inputs=0,
            state=State.DONE,
            attempt=1,
            interests=(BIG if mine else "small",),
            sponsor=BIG if mine else "small",
        )
        attempt = Attempt(
            key=key,
            number=1,
            claim="",
            phase=done.phase,
            task_class=CLASS,
            worker=f"w{worker:05d}",
            started=0.0,
            ended=self.store.clock.now(),
            duration=at - start,
        )
        event = task_table.attempt_event(done, attempt)
        self.store.inner.transact(task_table.TABLE, shard(key), [event])

    def rows(self, partition: str) -> list[Row]:
        """The workers' rows of a partition as of now."""
        now = self.store.clock.monotonic()
        sequence = int(now / self.beat) + 1
        return [
            Row(
                partition=partition,
                row=f"w{i:05d}",
                etag="",
                entity=workers.WORKER.dump(
                    WorkerRow(
                        name=f"w{i:05d}",
                        host=f"w{i:05d}",
                        slots=self.slots,
                        started=1.0,
                        beat_at=self.store.clock.now(),
                        sequence=sequence,
                        attempts=tuple(
                            RunningAttempt(
                                key=key,
                                claim=f"c{key[:15]}",
                                started_ago=now - start,
                                phase=Phase.COLLECTION,
                                task_class=CLASS,
                            )
                            for key, start in self.listed[i].items()
                        ),
                    )
                ),
            )
            for i in range(self.number)
            if workers.partition_of(f"w{i:05d}") == partition
        ]


def holders(key: str, hosts: int) -> tuple[int, int]:
    """The hosts that hold the two inputs of a task."""
    number = crc32(key[:14].encode())  # some tasks share theirs
    return number % hosts, number // hosts % hosts


class FleetStore(GeneratedStore):
    """The generated store, with the fleet's rows in the table `workers`, and Azure's limit of rows
    for each partition; the fleet's beats count, too."""

    fleet: Fleet
    second = -1
    throttled = fullest = 0

    def _charge(self, table: str, partition: str, rows: int, *, read: bool = True) -> None:
        """Count rows of a partition; beyond the limit, a read waits, as the SDK has it do, and a
        write is refused."""
        self._begin_second()
        while self.rows[table, partition] > LIMIT:
            self.throttled += 1
            if not read:
                raise ThrottledError(f"{table} {partition}: the server is busy")
            self.clock.sleep(self.second + 1 - self.clock.monotonic())
            self._begin_second()
        self.rows[table, partition] += rows
        if table == workers.TABLE:
            self.fullest = max(self.fullest, self.rows[table, partition])

    def together(self, read: Callable[[str], Row | None], names: Iterable[str]) -> list[Row | None]:
        """Read rows side by side, as the manager's threads do, in simulated time."""
        began, found = self.clock.monotonic(), []
        free = [began] * READERS  # when each thread is
        for name in names:
            at = heapq.heappop(free)
            self.clock.sleep(at - self.clock.monotonic())
            found.append(read(name))
            heapq.heappush(free, self.clock.monotonic())
        self.clock.sleep(max(free) - self.clock.monotonic())
        return found

    def _begin_second(self) -> None:
        second = int(self.clock.monotonic())
        if second > self.second:
            self.second = second
            self.rows = Counter[tuple[str, str]]()
            each = self.fleet.number / self.fleet.beat / len(workers.PARTITIONS)
            for one in workers.PARTITIONS:
                self.rows[workers.TABLE, one] = round(2 * each)  # read and written

    def get(self, table: str, partition: str, row: str) -> Row | None:
        self._charge(table, partition, 1)
        return super().get(table, partition, row)

    def transact(self, table, partition, operations):  # type: ignore[no-untyped-def]
        self._charge(table, partition, len(operations), read=False)
        return super().transact(table, partition, operations)

    def scan(self, table, partition, start, end, limit=None):  # type: ignore[no-untyped-def]
        self._charge(table, partition, 0)
        if table != workers.TABLE:
            return self._counted(
                table, partition, super().scan(table, partition, start, end, limit)
            )
        began = time.process_time()
        found = self.fleet.rows(partition)
        self._charge(table, partition, len(found))
        self.fleet.spent += time.process_time() - began
        return self._paged(iter(found))

    def _counted(self, table: str, partition: str, found: Iterator[Row]) -> Iterator[Row]:
        for row in found:
            self._charge(table, partition, 1)
            yield row


def _document(title: str) -> Request:
    return parse_request(
        {
            "title": title,
            "products": [{"name": "MOD13A2", "collection": "6", "layers": ["x"]}],
            "region": {"tiles": ["h18v04"]},
            "time": {"start": "2012-01-01", "end": "2012-01-02"},
            "grid": {"modis": 1000},
        }
    )


def _plan(_request: Request) -> Plan:
    specs = [
        CollectSpec(product="MOD13A2", collection="6", granule=f"small{i}", production="1")
        for i in range(10)
    ]
    return Plan(tasks=tuple(PlannedTask(spec=spec) for spec in specs))


class Run:
    """One size: a manager, its tables, its fleet."""

    def __init__(self, tasks: int, number: int, seconds: float, beat: float = 5.0) -> None:
        clock = ManualClock()
        self.store = FleetStore(tasks=tasks, clock=clock, latency=LATENCY)
        self.fleet = self.store.fleet = Fleet(self.store, number, 2, seconds, beat)
        self.runtime: Runtime = replace(memory_runtime(clock), store=self.store)
        self.options = ManagerOptions(heartbeat=beat, lease=6 * beat)
        self.small_at = max(SMALL_AT, 2 * seconds)
        self.result = Result(tasks=tasks, workers=number)
        row = request_table.RequestRow(
            id=BIG,
            owner="somebody",
            state=RequestState.RUNNING,
            submitted=clock.now(),
            document=dump_request(_document(BIG)),
        )
        self.store.inner.transact(
            request_table.TABLE,
            request_table.PARTITION,
            request_table.insert_request(row),
        )

    def go(self, ended: int) -> Result:
        """Run until so many tasks have ended."""
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found, clock, fleet = self.result, self.store.clock, self.fleet
        manager = Manager(
            self.runtime,
            self.options,
            _plan,
            fleet.send,
            1,
            send_to=fleet.send,
            recall=fleet.recall,
            together=self.store.together,
        )
        choosing = self._watch(manager)
        began = time.process_time()
        manager.tick()
        found.take_over_cpu = time.process_time() - began
        start, submitted, worked = clock.monotonic(), 0.0, 0.0
        spent, calls = 0.0, 0
        steady = None
        while fleet.ended < ended:
            fleet.move()
            for key in fleet.wakeups:
                self.runtime.wakeups.publish(key)
            fleet.wakeups.clear()
            now = clock.monotonic()
            if not submitted and now - start >= self.small_at:
                submitted = now
                request_operations.submit(
                    self.runtime, "other", _document("small"), request_id="small"
                )
            mine = time.process_time()
            harness = fleet.spent
            calls_before = self.store.calls
            busy = manager.tick()
            found.longest_round = max(found.longest_round, clock.monotonic() - now)
            if steady is None and fleet.ended > ended // 5:
                steady = (fleet.ended, clock.monotonic())
                fleet.waited = 0.0
                fleet.starts = fleet.at_hand = 0
                choosing.clear()
            elif steady is not None:
                spent += time.process_time() - mine - (fleet.spent - harness)
                calls += self.store.calls - calls_before
                worked += clock.monotonic() - now
            if not busy:
                clock.sleep(self.options.tick)
        first, since = steady or (0, start)
        number = fleet.ended - first
        found.ended = fleet.ended
        found.cpu_ms_a_task = 1000 * spent / number
        found.calls_a_task = calls / number
        found.busy = worked / (clock.monotonic() - since)
        found.dispatch_delay = fleet.waited / max(1, fleet.starts)
        found.at_hand = fleet.at_hand / max(1, fleet.starts)
        found.choosing_ms = 1000 * choosing["seconds"] / max(1, choosing["messages"])
        found.throttled, found.fullest = self.store.throttled, self.store.fullest
        found.memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        found.ledger_bytes_a_task = _ledger_bytes(manager) / found.tasks
        found.simulated = clock.monotonic() - start
        if fleet.started_small:
            found.small_first = min(fleet.started_small) - submitted
            found.small_last = max(fleet.started_small) - submitted
        return found

    def _watch(self, manager: Manager) -> Counter[str]:
        """Have tasks get their inputs' hosts when they are known, and time what is chosen."""
        dispatch, locations = manager._dispatch, manager._locations
        assert locations is not None
        add, choose, number = dispatch.add, dispatch.choose, self.fleet.number
        took: Counter[str] = Counter()

        def added(
            key: str, sponsor: str, task_class: str = "", *, alone: bool = False, rank: int = 0
        ) -> None:
            new = key not in dispatch.places[""]._tasks
            add(key, sponsor, task_class, alone=alone, rank=rank)
            if new and key in dispatch.places[""]._tasks:
                for host in holders(key, number):
                    locations.made(key, f"input {key[:14]} {host}", f"w{host:05d}", 10**8)

        def chosen(cache: ManagerCache, now: float) -> list[tuple[str, ...]]:
            began = time.process_time()
            found = choose(cache, now)
            took["seconds"] += time.process_time() - began  # type: ignore[assignment]
            took["messages"] += len(found)
            return found

        dispatch.add, dispatch.choose = added, chosen  # type: ignore[method-assign]
        return took


def _ledger_bytes(manager: Manager) -> int:
    ledger = manager.cache.requests[BIG].ledger if BIG in manager.cache.requests else None
    return ledger.size if ledger else 0


def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _one(tasks: int) -> Result:
    _quiet()
    return Run(tasks, 100, 4.0).go(5000)


def _fleet(ended: int, number: int) -> Result:
    _quiet()
    return Run(300_000, number, 120.0).go(ended)


def table(found: list[Result]) -> str:
    """A Markdown table, one row for each run."""
    lines = [
        "| tasks | workers | ended | manager's CPU a task | calls a task | memory | ledger "
        "| a message is chosen in | inputs at hand | a free slot waits "
        "| ten tasks behind it start after | manager busy | longest round "
        "| refused, fullest partition |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.tasks:,} | {r.workers:,} | {r.ended:,} | {r.cpu_ms_a_task:.2f} ms "
        f"| {r.calls_a_task:.2f} | {r.memory:.0f} MB | {r.ledger_bytes_a_task:.0f} B a task "
        f"| {r.choosing_ms:.2f} ms | {r.at_hand:.0%} "
        f"| {r.dispatch_delay:.2f} s | {r.small_first:.1f} to {r.small_last:.1f} s "
        f"| {r.busy:.0%} | {r.longest_round:.1f} s | {r.throttled}, {r.fullest:,} rows a second |"
        for r in found
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the sizes, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[30_000, 300_000, 3_000_000])
    parser.add_argument("--fleet", type=int, default=0)
    parser.add_argument("--workers", type=int, nargs="+", default=[10_000])
    parser.add_argument("--json", type=Path, default=OUT)
    arguments = parser.parse_args()
    jobs: list[tuple[Callable[..., Result], tuple[int, ...]]]
    jobs = [(_one, (size,)) for size in arguments.sizes]
    if arguments.fleet:
        jobs += [(_fleet, (arguments.fleet, number)) for number in arguments.workers]
    found: list[Result] = []
    for job, given in jobs:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(job, given))
        print(found[-1], flush=True)
    print(table(found))
    arguments.json.parent.mkdir(exist_ok=True)
    arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
